//! Keeps the lock in the cluster alive while a run is carried out, and says when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use stagger_core::run::Seq;

use crate::clock::{Clock, Moment, within};
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

/// The store beside the driver's: there each renewal says who is at work, and from there comes what the cluster is told of
/// the journal.
#[derive(Clone, Default)]
struct LeaseStore {
    store: Arc<Mutex<Option<Box<dyn JournalStore>>>>,
    /// What the cluster was last told. Held while it is told something newer: one place after another.
    told: Arc<Mutex<Option<Mark>>>,
    /// Where the journal stood when it had been compared with what the cluster knows, and might be told of; 0: not yet.
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

    /// A store that cannot be written is no reason to let go of the lock: who is at work is shown, not obeyed.
    async fn beat(&self, claim: &LockRecord, fence: u64, expires: Duration) {
        let mut store = self.store.lock().await;
        if let Some(store) = store.as_mut()
            && let Err(error) = store.beat(&claim.run, fence, claim, expires).await
        {
            tracing::warn!(%error, "could not record which process carries out the run");
        }
    }

    /// Where the journal stands; `None`: nobody can tell now, or it has not begun.
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

/// Tells whether the lock is certainly ours, also to whoever wakes up before the renewer does.
#[derive(Clone)]
pub struct Watch {
    lost: watch::Receiver<Option<String>>,
    alive: watch::Receiver<Moment>,
    expires: Duration,
    clock: Arc<dyn Clock>,
    claim: LockRecord,
    beside: LeaseStore,
}

/// So long after the cluster could not be told of the journal it is tried again.
const TELL_AGAIN: Duration = Duration::from_secs(1);

impl Watch {
    /// Before something is begun, the cluster knows that the journal stands at its announcement or behind it: a journal that is
    /// put back from before that is noticed, however short the time between.
    ///
    /// Where it cannot be told, it is tried again as long as the lock is ours. Where it never can, the renewals of the lock have
    /// to do.
    ///
    /// # Errors
    /// Why nothing must be begun: the lock is lost, or the journal has lost the announcement already.
    pub async fn anchored(&self, backend: &dyn Backend, seq: Seq) -> Result<(), String> {
        if self.beside.is_none().await {
            return Ok(());
        }
        loop {
            if let Some(why) = self.lost() {
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

    /// Up to that place the journal was compared with what the cluster knows of it, and says so itself where it is behind: from
    /// there on the cluster is told of its places. Before, whoever follows must find what we found.
    pub fn compared(&self, up_to: Seq) {
        self.beside.compared.store(up_to, Ordering::Release);
    }

    /// Why the lock may not be ours any more, if so.
    pub fn lost(&self) -> Option<String> {
        if let Some(why) = self.lost.borrow().clone() {
            return Some(why);
        }
        let since = self.alive.borrow().until(self.clock.moment());
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
        let keeper = keep(
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

    /// From now on each renewal is told to this store too, so that others see who is at work.
    pub async fn tell(&self, store: Box<dyn JournalStore>) {
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

    /// Renews no more, and says that nobody is at work: never before the last word that somebody is has come to its end.
    async fn stop(&self) {
        let mut store = self.beside.store.lock().await;
        self.renewer.abort();
        if let Some(store) = store.as_mut()
            && let Err(error) = store.left(&self.claim.run, self.fence).await
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

    /// Why it is not held any more, if it is not.
    pub fn lost(&self) -> Option<String> {
        self.watch.lost()
    }

    /// Tells the same to others, as to the driver.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// The cluster cannot be asked; the lock then goes at its expiry.
    pub async fn give_back(self, backend: &Arc<dyn Backend>) -> Result<(), LockError> {
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
async fn keep(
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
        let before = renewed.borrow().until(sent);
        let why = match within(&*clock, expires / 6, backend.renew(&claim, fence)).await {
            Some(Ok(())) => {
                // A renewal after too long a pause proves nothing: somebody may have been in between.
                if before + margin < expires {
                    renewed.send_replace(sent);
                    pause = expires / 3;
                    let said = beside.beat(&claim, fence, expires);
                    if within(&*clock, expires / 6, said).await.is_none() {
                        tracing::warn!("could not record in time which process carries out the run");
                    }
                    let anchored = beside.anchor(&*backend, &claim, Seq::MAX);
                    match within(&*clock, expires / 6, anchored).await {
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
                let since = renewed.borrow().until(clock.moment());
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
        assert_eq!(lease.lost(), None);
    }

    #[tokio::test]
    async fn one_renewal_without_an_answer_loses_nothing() {
        let lease = taken(2..3).await;
        tokio::time::sleep(EXPIRES * 2).await;
        assert_eq!(lease.lost(), None);
    }

    #[tokio::test]
    async fn what_is_never_answered_is_given_up_before_it_expires() {
        let begun = Instant::now();
        let mut lease = taken(2..u32::MAX).await;
        lease.watch.lost.changed().await.unwrap();
        assert!(
            lease
                .lost()
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
        assert_eq!(fresh.lost(), None);
        // The clock since boot stood still while the machine was frozen.
        let now = SystemClock.moment();
        let (frozen, _tell) = watch(Moment {
            wall: now.wall.checked_sub(Duration::from_secs(26)).unwrap(),
            ..now
        });
        assert!(frozen.lost().is_some());
        tell.send_replace(Some("another has it".to_owned()));
        assert_eq!(fresh.lost().as_deref(), Some("another has it"));
    }
}
