//! Which run goes on on this node, by what the cluster itself says: for a unit on every node that may be master.
//!
//! A run goes on by itself in two cases. It was handed over to this node when the master changed; or a process that had the lock
//! ended without giving it back, and this node is the master. Whoever ends a process in an orderly way gives the lock back, and
//! wants to decide when the run goes on.

use stagger_core::model::RunId;
use stagger_engine::cluster::{Anchor, BackendError, LockError, LockRecord};

use crate::backend::GanetiBackend;
use crate::filters::ListedFilter;
use crate::here::node_or_host;
use crate::lock::{all_claims, anchor_of, handovers, is_renewed, same_host};

/// Which run goes on on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Succession {
    /// None: another node is the master.
    NotMaster {
        /// Which.
        master: String,
    },
    /// None: no run is open, or all that are go on elsewhere.
    Nothing,
    /// It was handed over to this node.
    HandedOver {
        /// Which.
        run: RunId,
    },
    /// Somebody has the lock for it, or had.
    Claimed {
        /// Who.
        by: Box<LockRecord>,
        /// Where its journal stood, as far as the cluster was told.
        anchor: Option<Anchor>,
    },
}

/// Decides by the cluster's master, the name of this host, and the cluster's job filters.
pub fn succession(master: &str, host: &str, filters: &[ListedFilter]) -> Succession {
    if !same_host(master, host) {
        return Succession::NotMaster {
            master: master.to_owned(),
        };
    }
    let handovers = handovers(filters);
    let newest = handovers
        .iter()
        .filter(|handover| same_host(&handover.to, host))
        .map(|handover| &handover.run)
        .max();
    if let Some(run) = newest {
        return Succession::HandedOver { run: run.clone() };
    }
    let claims = all_claims(filters).into_iter();
    let newest = claims
        .filter(|claim| handovers.iter().all(|handover| handover.run != claim.lock.run))
        .max_by_key(|claim| claim.token);
    match newest {
        Some(claim) => Succession::Claimed {
            anchor: anchor_of(filters).filter(|anchor| anchor.run == claim.lock.run),
            by: Box::new(claim.lock),
        },
        None => Succession::Nothing,
    }
}

impl GanetiBackend {
    /// Which run goes on on that host.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn succession(&self, host: &str) -> Result<Succession, BackendError> {
        let failed = |error: crate::client::ApiError| error.of("ask which run goes on here", false);
        let info = self.rapi().get("/2/info").await.map_err(failed)?;
        // Ganeti may know this machine by a name that has nothing in common with its own.
        let host = &node_or_host(self.rapi(), host).await.map_err(failed)?;
        let filters = self.rapi().filters().await.map_err(failed)?;
        Ok(succession(
            info["master"].as_str().unwrap_or_default(),
            host,
            &filters,
        ))
    }

    /// Whether whoever has that claim lives: it is watched for as long as it lasts.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn lives(&self, claim: &LockRecord) -> Result<bool, LockError> {
        is_renewed(self.rapi(), claim).await
    }
}
