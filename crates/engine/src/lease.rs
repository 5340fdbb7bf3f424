//! Keeps the lock in the cluster alive while a run is carried out, and says when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend::{Backend, Claim, LockError};

/// The lock held, renewed in the background until this is dropped or given back.
#[derive(Debug)]
pub struct Lease {
    claim: Claim,
    fence: u64,
    watch: Watch,
    renewer: JoinHandle<()>,
}

/// Tells whether the lock is certainly ours, also to whoever wakes up before the renewer does.
#[derive(Debug, Clone)]
pub struct Watch {
    lost: watch::Receiver<Option<String>>,
    alive: watch::Receiver<Moment>,
    expires: Duration,
}

impl Watch {
    /// Why the lock may not be ours any more, if so.
    pub fn lost(&self) -> Option<String> {
        if let Some(why) = self.lost.borrow().clone() {
            return Some(why);
        }
        let since = self.alive.borrow().elapsed();
        (since + margin(self.expires) >= self.expires)
            .then(|| format!("it was not renewed for {} s", since.as_secs()))
    }
}

/// A moment on two clocks: the monotonic one stands still while the machine sleeps, the other can be
/// set back. The longer of both counts.
#[derive(Debug, Clone, Copy)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.monotonic.elapsed().max(wall)
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
    pub async fn take(backend: &Arc<dyn Backend>, claim: Claim, at_least: u64) -> Result<Self, LockError> {
        let fence = backend.lock(&claim, at_least).await?;
        // To take it may have meant to watch another's claim for longer than ours lasts: what counts is
        // the first renewal.
        let (renewed, alive) = watch::channel(Moment::now());
        backend.renew(&claim, fence).await?;
        let (tell, lost) = watch::channel(None);
        let watch = Watch {
            lost,
            alive,
            expires: backend.lock_expires(),
        };
        let renewer = tokio::spawn(keep(Arc::clone(backend), claim.clone(), fence, renewed, tell));
        Ok(Self {
            claim,
            fence,
            watch,
            renewer,
        })
    }

    /// The fencing token.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Who holds it.
    pub fn claim(&self) -> &Claim {
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
        self.renewer.abort();
        backend.unlock(&self.claim, self.fence).await
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
    claim: Claim,
    fence: u64,
    renewed: watch::Sender<Moment>,
    tell: watch::Sender<Option<String>>,
) {
    let expires = backend.lock_expires();
    let margin = margin(expires);
    let mut pause = expires / 3;
    loop {
        tokio::time::sleep(pause).await;
        let sent = Moment::now();
        let before = renewed.borrow().elapsed();
        let why = match tokio::time::timeout(expires / 6, backend.renew(&claim, fence)).await {
            Ok(Ok(())) => {
                // A renewal after too long a pause proves nothing: somebody may have been in between.
                if before + margin < expires {
                    renewed.send_replace(sent);
                    pause = expires / 3;
                    continue;
                }
                "this process was paused for longer than the lock lasts".to_owned()
            }
            Ok(Err(error @ (LockError::Held(_) | LockError::Lost(_)))) => error.to_string(),
            Ok(Err(LockError::Backend(_))) | Err(_) => {
                let since = renewed.borrow().elapsed();
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use stagger_core::model::{ClusterName, RunId, Snapshot, UnitId};
    use stagger_core::run::{Action, Answer};

    use super::*;
    use crate::backend::{BackendError, Call, Rail};

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
        let claim = Claim {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: "h".to_owned(),
            process: 1,
            since: jiff::Timestamp::UNIX_EPOCH,
        };
        Lease::take(&backend, claim, 0).await.unwrap()
    }

    #[async_trait]
    impl Backend for LeftBehind {
        fn cluster(&self) -> &ClusterName {
            &self.name
        }
        async fn observe(&self) -> Result<Snapshot, BackendError> {
            unreachable!("only the lock is asked for")
        }
        async fn may_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
            unreachable!("only the lock is asked for")
        }
        fn rail(&self, _: &Action) -> Rail {
            Rail::Fenced
        }
        async fn perform(&self, _: &Call, _: &Action) -> Result<String, BackendError> {
            unreachable!("only the lock is asked for")
        }
        async fn raise_fence(&self, _: u64, _: &[UnitId]) -> Result<(), BackendError> {
            Ok(())
        }
        async fn collect(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
            unreachable!("only the lock is asked for")
        }
        async fn lock(&self, _: &Claim, at_least: u64) -> Result<u64, LockError> {
            tokio::time::sleep(EXPIRES * 2).await;
            Ok(at_least + 1)
        }
        async fn renew(&self, _: &Claim, _: u64) -> Result<(), LockError> {
            if self
                .unanswered
                .contains(&(self.renewals.fetch_add(1, Ordering::Relaxed) + 1))
            {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
        async fn unlock(&self, _: &Claim, _: u64) -> Result<(), LockError> {
            Ok(())
        }
        fn lock_expires(&self) -> Duration {
            EXPIRES
        }
        fn poll(&self) -> Duration {
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

    fn watch(renewed: Moment) -> (Watch, watch::Sender<Option<String>>) {
        let (tell, lost) = watch::channel(None);
        let (_, alive) = watch::channel(renewed);
        let expires = Duration::from_secs(30);
        (Watch { lost, alive, expires }, tell)
    }

    #[test]
    fn who_wakes_up_late_knows_it_before_the_renewer_says_so() {
        let (fresh, tell) = watch(Moment::now());
        assert_eq!(fresh.lost(), None);
        // The monotonic clock stood still while the machine slept.
        let wall = SystemTime::now() - Duration::from_secs(26);
        let (slept, _tell) = watch(Moment {
            wall,
            ..Moment::now()
        });
        assert!(slept.lost().is_some());
        tell.send_replace(Some("another has it".to_owned()));
        assert_eq!(fresh.lost().as_deref(), Some("another has it"));
    }
}
