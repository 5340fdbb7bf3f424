//! Limits on concurrent work, and mutual exclusion.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, SemaphorePermit};

/// How many migrations each node may take part in at once, and who must not disturb whom, over all visits of this
/// process.
#[derive(Debug)]
pub struct MigrationLimits {
    each: usize,
    nodes: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    /// Looks at disks, each a job: Ganeti runs twenty jobs at once, whoever sent them.
    looks: Semaphore,
    /// Held by whoever does something, and alone by who changes the master: RAPI does not answer meanwhile, and
    /// Ganeti breaks off the jobs that run.
    pub(crate) master: RwLock<()>,
    /// This process has handed its run over, and whether the master changes is not known yet.
    pub(crate) hands_over: AtomicBool,
}

/// So many looks at disks at once.
const LOOKS: usize = 8;

impl MigrationLimits {
    /// So many each.
    pub fn new(each: usize) -> Self {
        Self {
            each: each.max(1),
            nodes: Mutex::new(BTreeMap::new()),
            looks: Semaphore::new(LOOKS),
            master: RwLock::new(()),
            hands_over: AtomicBool::new(false),
        }
    }

    pub(crate) async fn take(&self, one: &str, other: &str) -> Vec<OwnedSemaphorePermit> {
        // In one order, so that no two wait for each other.
        let mut names = [one, other];
        names.sort_unstable();
        let mut permits = Vec::with_capacity(2);
        for name in names {
            let semaphore = {
                let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
                let known = nodes
                    .entry(name.to_owned())
                    .or_insert_with(|| Arc::new(Semaphore::new(self.each)));
                Arc::clone(known)
            };
            // It is never closed.
            permits.extend(semaphore.acquire_owned().await.ok());
        }
        permits
    }

    /// May look at an instance's disks.
    pub(crate) async fn disk_query_permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.looks.acquire().await.ok()
    }
}
