//! Renews the lock in the cluster while a run is carried out, and reports when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use stagger_core::run::Seq;

use crate::clock::{Clock, Moment, timeout};
use crate::cluster::{Anchor, Backend, LockError, LockRecord, Retryability};
use crate::store::{JournalStore, Mark};

/// The lock held, renewed in the background until this is dropped or given back.
pub struct Lease {
    claim: LockRecord,
    fence: u64,
    watch: Watch,
    renewer: JoinHandle<()>,
    beside: LeaseStore,
}

/// A second connection to the store: each renewal records there who holds the run, and the journal position
/// for the cluster is read from it.
#[derive(Clone, Default)]
struct LeaseStore {
    store: Arc<Mutex<Option<Box<dyn JournalStore>>>>,
    /// The position that the cluster recorded last. Locked during an update, so that positions are written in
    /// order.
    told: Arc<Mutex<Option<Mark>>>,
    /// The journal's position when it was compared with the cluster's record, from which on it may be
    /// recorded; 0: not yet.
    compared: Arc<AtomicU64>,
}

impl std::fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

impl LeaseStore {
    async fn is_none(&self) -> bool {
        self.store.lock().await.is_none()
    }

    /// A store that cannot be written is no reason to release the lock: presence is information only.
    async fn beat(&self, claim: &LockRecord, fence: u64, expires: Duration) {
        let mut store = self.store.lock().await;
        if let Some(store) = store.as_mut()
            && let Err(error) = store.beat(&claim.run, fence, claim, expires).await
        {
            tracing::warn!(%error, "could not record which process carries out the run");
        }
    }

    /// The journal's position; `None`: unknown now, or it has not begun.
    async fn mark(&self, claim: &LockRecord) -> Option<Mark> {
        let store = self.store.lock().await;
        store.as_ref()?.mark(&claim.run, None).await.ok().flatten()
    }

    /// Tells the cluster where the journal stands, unless it knows of that place already or the two were not compared yet.
    /// Never of an older place than before: that would be one of a journal that was put back. Returns the place of which it knows then; 0: of none.
    async fn anchor(
        &self,
        backend: &dyn Backend,
        claim: &LockRecord,
        at_least: Seq,
    ) -> Result<Seq, LockError> {
        let compared = self.compared.load(Ordering::Acquire);
        if compared == 0 {
            return Ok(0);
        }
        let mut told = self.told.lock().await;
        let known = told.as_ref().map_or(0, |mark| mark.seq);
        if known >= at_least {
            return Ok(known);
        }
        let mark = self.mark(claim).await;
        let Some(mark) = mark.filter(|mark| mark.seq > known && mark.seq >= compared) else {
            return Ok(known);
        };
        let Mark { seq, sum } = mark.clone();
        let run = claim.run.clone();
        backend.anchor(&Anchor { run, seq, sum }).await?;
        *told = Some(mark);
        Ok(seq)
    }
}

/// Says whether the lock is certainly held, also to a task that wakes up before the renewal.
#[derive(Clone)]
pub struct Watch {
    lost: watch::Receiver<Option<String>>,
    alive: watch::Receiver<Moment>,
    expires: Duration,
    clock: Arc<dyn Clock>,
    claim: LockRecord,
    beside: LeaseStore,
}

/// The wait before another attempt to record the journal's position in the cluster.
const TELL_AGAIN: Duration = Duration::from_secs(1);

impl Watch {
    /// Before an effect starts, the cluster has recorded that the journal reached its announcement: a journal
    /// restored from before that is detected, however short the time between.
    ///
    /// A failed attempt is repeated while the lock is held. If it never succeeds, the renewals of the lock
    /// must do.
    ///
    /// # Errors
    /// Why nothing may be started: the lock is lost, or the journal has already lost the announcement.
    pub async fn anchored(&self, backend: &dyn Backend, seq: Seq) -> Result<(), String> {
        if self.beside.is_none().await {
            return Ok(());
        }
        loop {
            if let Some(why) = self.lost_reason() {
                return Err(why);
            }
            match self.beside.anchor(backend, &self.claim, seq).await {
                Ok(known) if known >= seq => return Ok(()),
                Ok(_) => return Err("the journal has lost an event that was written to it".to_owned()),
                Err(LockError::Backend(error)) if error.retryability != Retryability::Permanent => {
                    tracing::warn!(%error, "the journal could not be anchored; nothing starts before it is");
                    self.clock.pause(TELL_AGAIN).await;
                }
                Err(LockError::Backend(error)) => {
                    tracing::warn!(%error, "the journal could not be anchored");
                    return Ok(());
                }
                Err(error @ (LockError::Held(_) | LockError::Lost(_))) => return Err(error.to_string()),
            }
        }
    }

    /// Up to that place the journal was compared with the cluster's record, and says itself where it is
    /// behind: from here on its positions are recorded in the cluster. Before that, a successor must find the
    /// same record.
    pub fn compared(&self, up_to: Seq) {
        self.beside.compared.store(up_to, Ordering::Release);
    }

    /// Why the lock may be lost, if so.
    pub fn lost_reason(&self) -> Option<String> {
        if let Some(why) = self.lost.borrow().clone() {
            return Some(why);
        }
        let since = self.alive.borrow().duration_until(self.clock.moment());
        (since + margin(self.expires) >= self.expires)
            .then(|| format!("it was not renewed for {} s", since.as_secs()))
    }
}

/// So long before its expiry the lock counts as lost.
fn margin(expires: Duration) -> Duration {
    expires / 6
}

impl Lease {
    /// Takes the lock and keeps it.
    ///
    /// # Errors
    /// Another holds it, or the cluster cannot be asked.
    pub async fn take(
        backend: &Arc<dyn Backend>,
        clock: &Arc<dyn Clock>,
        claim: LockRecord,
        at_least: u64,
    ) -> Result<Self, LockError> {
        let fence = backend.lock(&claim, at_least).await?;
        // To take it may have meant to watch another's claim for longer than ours lasts: what counts is
        // the first renewal.
        let (renewed, alive) = watch::channel(clock.moment());
        backend.renew(&claim, fence).await?;
        let (tell, lost) = watch::channel(None);
        let beside = LeaseStore::default();
        let watch = Watch {
            lost,
            alive,
            expires: backend.lock_expires(),
            clock: Arc::clone(clock),
            claim: claim.clone(),
            beside: beside.clone(),
        };
        let keeper = renew_until_lost(
            Arc::clone(backend),
            Arc::clone(clock),
            claim.clone(),
            fence,
            renewed,
            tell,
            beside.clone(),
        );
        Ok(Self {
            claim,
            fence,
            watch,
            renewer: tokio::spawn(keeper),
            beside,
        })
    }

    /// From now on each renewal is recorded in this store too, so that others see who holds the run.
    pub async fn report_to(&self, store: Box<dyn JournalStore>) {
        *self.beside.store.lock().await = Some(store);
        self.beside
            .beat(&self.claim, self.fence, self.watch.expires)
            .await;
    }

    /// Tells the cluster what the journal has come to, as each renewal does.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn anchor(&self, backend: &Arc<dyn Backend>) -> Result<(), LockError> {
        self.beside
            .anchor(&**backend, &self.claim, Seq::MAX)
            .await
            .map(drop)
    }

    /// This process does nothing more, and says so; the lock goes by itself, as something of it may still be under way.
    pub async fn leave(self) {
        self.stop().await;
    }

    /// Ends the renewals and clears the presence, after the last renewal has completed.
    async fn stop(&self) {
        let mut store = self.beside.store.lock().await;
        self.renewer.abort();
        if let Some(store) = store.as_mut()
            && let Err(error) = store.clear_presence(&self.claim.run, self.fence).await
        {
            tracing::warn!(%error, "could not record that this process has left the run");
        }
    }

    /// The fencing token.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Who holds it.
    pub fn claim(&self) -> &LockRecord {
        &self.claim
    }

    /// Why the lock is lost, if it is.
    pub fn lost_reason(&self) -> Option<String> {
        self.watch.lost_reason()
    }

    /// Tells the same to others, as to the driver.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// The cluster cannot be asked; the lock then goes at its expiry.
    pub async fn release(self, backend: &Arc<dyn Backend>) -> Result<(), LockError> {
        self.stop().await;
        let anchored = self.anchor(backend).await;
        backend.unlock(&self.claim, self.fence).await.and(anchored)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewer.abort();
    }
}

/// Renews at each third of the expiry, and asks again at once where that fails: monitors that restart
/// let questions hang. Gives up when the lock may have been taken over, counted from when the last
/// successful call was *sent*, less a margin.
async fn renew_until_lost(
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    claim: LockRecord,
    fence: u64,
    renewed: watch::Sender<Moment>,
    tell: watch::Sender<Option<String>>,
    beside: LeaseStore,
) {
    let expires = backend.lock_expires();
    let margin = margin(expires);
    let mut pause = expires / 3;
    loop {
        clock.pause(pause).await;
        let sent = clock.moment();
        let before = renewed.borrow().duration_until(sent);
        let why = match timeout(&*clock, expires / 6, backend.renew(&claim, fence)).await {
            Some(Ok(())) => {
                // A renewal after too long a pause proves nothing: another process may have held the lock in
                // between.
                if before + margin < expires {
                    renewed.send_replace(sent);
                    pause = expires / 3;
                    let said = beside.beat(&claim, fence, expires);
                    if timeout(&*clock, expires / 6, said).await.is_none() {
                        tracing::warn!("could not record in time which process carries out the run");
                    }
                    let anchored = beside.anchor(&*backend, &claim, Seq::MAX);
                    match timeout(&*clock, expires / 6, anchored).await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => tracing::warn!(%error, "the journal could not be anchored"),
                        None => tracing::warn!("the journal could not be anchored in time"),
                    }
                    continue;
                }
                "this process was paused for longer than the lock lasts".to_owned()
            }
            Some(Err(error @ (LockError::Held(_) | LockError::Lost(_)))) => error.to_string(),
            Some(Err(LockError::Backend(_))) | None => {
                let since = renewed.borrow().duration_until(clock.moment());
                if since + margin < expires {
                    pause = (expires / 30).min(Duration::from_millis(500));
                    continue;
                }
                format!("it could not be renewed for {} s", since.as_secs())
            }
        };
        tell.send_replace(Some(why));
        return;
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    use async_trait::async_trait;
    use stagger_core::model::{ClusterName, RunId, Snapshot, UnitId};
    use stagger_core::run::{Action, Answer};

    use super::*;
    use crate::clock::SystemClock;
    use crate::cluster::{BackendError, Call, Executor, Fencing, Lock};

    const EXPIRES: Duration = Duration::from_secs(2);

    /// A world with nothing but a lock. Another held it and left it behind when it died; some renewals,
    /// counted from 1, get no answer.
    struct LeftBehind {
        name: ClusterName,
        renewals: AtomicU32,
        unanswered: Range<u32>,
    }

    async fn taken(unanswered: Range<u32>) -> Lease {
        let name = ClusterName::new("lab").unwrap();
        let renewals = AtomicU32::new(0);
        let backend: Arc<dyn Backend> = Arc::new(LeftBehind {
            name,
            renewals,
            unanswered,
        });
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Lease::take(&backend, &clock, claim(), 0).await.unwrap()
    }

    #[async_trait]
    impl Executor for LeftBehind {
        async fn observe(&self) -> Result<Snapshot, BackendError> {
            unreachable!("only the lock is asked for")
        }

        async fn check_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
            unreachable!("only the lock is asked for")
        }

        fn fencing(&self, _: &Action) -> Fencing {
            Fencing::Fenced
        }

        async fn perform(&self, _: &Call, _: &Action) -> Result<String, BackendError> {
            unreachable!("only the lock is asked for")
        }

        async fn raise_fence(&self, _: u64, _: &[UnitId]) -> Result<(), BackendError> {
            Ok(())
        }

        async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
            unreachable!("only the lock is asked for")
        }

        fn poll(&self) -> Duration {
            EXPIRES
        }
    }

    #[async_trait]
    impl Lock for LeftBehind {
        fn cluster(&self) -> &ClusterName {
            &self.name
        }

        async fn lock(&self, _: &LockRecord, at_least: u64) -> Result<u64, LockError> {
            tokio::time::sleep(EXPIRES * 2).await;
            Ok(at_least + 1)
        }

        async fn renew(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
            if self
                .unanswered
                .contains(&(self.renewals.fetch_add(1, Ordering::Relaxed) + 1))
            {
                std::future::pending::<()>().await;
            }
            Ok(())
        }

        async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
            Ok(())
        }

        fn lock_expires(&self) -> Duration {
            EXPIRES
        }
    }

    #[tokio::test]
    async fn waiting_for_a_dead_holder_does_not_count_as_a_pause() {
        let lease = taken(0..0).await;
        tokio::time::sleep(EXPIRES).await;
        assert_eq!(lease.lost_reason(), None);
    }

    #[tokio::test]
    async fn one_renewal_without_an_answer_loses_nothing() {
        let lease = taken(2..3).await;
        tokio::time::sleep(EXPIRES * 2).await;
        assert_eq!(lease.lost_reason(), None);
    }

    #[tokio::test]
    async fn what_is_never_answered_is_given_up_before_it_expires() {
        let begun = Instant::now();
        let mut lease = taken(2..u32::MAX).await;
        lease.watch.lost.changed().await.unwrap();
        assert!(
            lease
                .lost_reason()
                .is_some_and(|why| why.contains("could not be renewed"))
        );
        assert!(
            begun.elapsed() < EXPIRES * 2 + EXPIRES,
            "given up after another may have it"
        );
    }

    fn claim() -> LockRecord {
        LockRecord {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: "h".to_owned(),
            process: 1,
            since: jiff::Timestamp::UNIX_EPOCH,
            life: None,
        }
    }

    fn watch(renewed: Moment) -> (Watch, watch::Sender<Option<String>>) {
        let (tell, lost) = watch::channel(None);
        let (_, alive) = watch::channel(renewed);
        let expires = Duration::from_secs(30);
        let clock = Arc::new(SystemClock);
        (
            Watch {
                lost,
                alive,
                expires,
                clock,
                claim: claim(),
                beside: LeaseStore::default(),
            },
            tell,
        )
    }

    #[test]
    fn who_wakes_up_late_knows_it_before_the_renewer_says_so() {
        let (fresh, tell) = watch(SystemClock.moment());
        assert_eq!(fresh.lost_reason(), None);
        // The clock since boot stood still while the machine was frozen.
        let now = SystemClock.moment();
        let (frozen, _tell) = watch(Moment {
            wall: now.wall.checked_sub(Duration::from_secs(26)).unwrap(),
            ..now
        });
        assert!(frozen.lost_reason().is_some());
        tell.send_replace(Some("another has it".to_owned()));
        assert_eq!(fresh.lost_reason().as_deref(), Some("another has it"));
    }
}
