//! Keeps the lock in the cluster alive while a run is carried out, and says when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend::{Backend, Claim, LockError};

/// The lock held, renewed in the background until this is dropped or given back.
#[derive(Debug)]
pub struct Lease {
    claim: Claim,
    fence: u64,
    lost: watch::Receiver<Option<String>>,
    renewer: JoinHandle<()>,
}

impl Lease {
    /// Takes the lock and keeps it.
    ///
    /// # Errors
    /// Another holds it, or the cluster cannot be asked.
    pub async fn take(backend: &Arc<dyn Backend>, claim: Claim, at_least: u64) -> Result<Self, LockError> {
        let fence = backend.lock(&claim, at_least).await?;
        // Taking it may have meant to wait out the claim of a dead holder, for longer than a lock lasts;
        // from here on its time is known to be ours.
        let alive = Instant::now();
        backend.renew(&claim, fence).await?;
        let (tell, lost) = watch::channel(None);
        let renewer = tokio::spawn(keep(Arc::clone(backend), claim.clone(), fence, alive, tell));
        Ok(Self {
            claim,
            fence,
            lost,
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
        self.lost.borrow().clone()
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

/// Renews at each third of the expiry; gives up when the lock may have been taken over, counted from
/// when the last successful call was *sent*, less a margin.
async fn keep(
    backend: Arc<dyn Backend>,
    claim: Claim,
    fence: u64,
    mut alive: Instant,
    tell: watch::Sender<Option<String>>,
) {
    let expires = backend.lock_expires();
    let margin = expires / 6;
    loop {
        tokio::time::sleep(expires / 3).await;
        let sent = Instant::now();
        let why = match tokio::time::timeout(expires / 3, backend.renew(&claim, fence)).await {
            Ok(Ok(())) => {
                // A renewal after too long a pause proves nothing: somebody may have been in between.
                if sent.duration_since(alive) + margin < expires {
                    alive = sent;
                    continue;
                }
                "this process was paused for longer than the lock lasts".to_owned()
            }
            Ok(Err(error @ (LockError::Held(_) | LockError::Lost(_)))) => error.to_string(),
            Ok(Err(LockError::Backend(_))) | Err(_) => {
                if alive.elapsed() + margin < expires {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
                format!("it could not be renewed for {} s", alive.elapsed().as_secs())
            }
        };
        tell.send_replace(Some(why));
        return;
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use stagger_core::model::{ClusterName, RunId, Snapshot, UnitId};
    use stagger_core::run::{Action, Answer};

    use super::*;
    use crate::backend::{BackendError, Call, Rail};

    const EXPIRES: Duration = Duration::from_millis(300);

    /// A world with nothing but a lock, which another held and left behind when it died.
    struct LeftBehind(ClusterName);

    #[async_trait]
    impl Backend for LeftBehind {
        fn cluster(&self) -> &ClusterName {
            &self.0
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
        let backend: Arc<dyn Backend> = Arc::new(LeftBehind(ClusterName::new("lab").unwrap()));
        let claim = Claim {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: "h".to_owned(),
            process: 1,
            since: jiff::Timestamp::UNIX_EPOCH,
        };
        let lease = Lease::take(&backend, claim, 0).await.unwrap();
        tokio::time::sleep(EXPIRES).await;
        assert_eq!(lease.lost(), None);
    }
}
