//! Limits the connections to one host that are set up at the same time.
//!
//! An ssh server refuses some connections that have not logged in yet once there are ten (`MaxStartups
//! 10:30:100` of `sshd_config(5)`), and a wave may have twenty daemons on a host. Connections that have
//! logged in are not counted, here as there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So few that three processes may do the same at once.
pub(super) const AT_ONCE: usize = 3;

/// By host, in this process.
static CONNECTING: Mutex<BTreeMap<String, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

/// Waits until there are fewer than [`AT_ONCE`] to that host. The permit is kept until the host has sent its
/// first line; `None`: connections are not counted any more.
pub(super) async fn begin(host: &str) -> Option<OwnedSemaphorePermit> {
    let of_host = {
        let mut all = CONNECTING.lock().unwrap_or_else(PoisonError::into_inner);
        let of_host = all
            .entry(host.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
        Arc::clone(of_host)
    };
    of_host.acquire_owned().await.ok()
}
