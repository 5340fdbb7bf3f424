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
        let asked = Instant::now();
        let fence = backend.lock(&claim, at_least).await?;
        let (tell, lost) = watch::channel(None);
        let renewer = tokio::spawn(keep(Arc::clone(backend), claim.clone(), fence, asked, tell));
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
