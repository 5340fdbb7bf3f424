//! Which run continues on this node, by the cluster's own state: for a systemd unit on every master
//! candidate.
//!
//! A run continues automatically in two cases: it was handed over to this node when the master changed; or
//! the process with the lock ended without releasing it, and this node is the master. An orderly stop
//! releases the lock, so that the operator decides when the run continues.

use stagger_core::model::RunId;
use stagger_engine::cluster::{Anchor, BackendError, LockError, LockRecord};

use crate::backend::GanetiBackend;
use crate::lock::{all_claims, anchor_of, handovers, is_renewed, same_host};
use crate::rapi::filters::ListedFilter;
use crate::rapi::local_node::node_or_host;

/// A run that may go on on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Succession {
    /// None: another node is the master.
    NotMaster {
        /// Which.
        master: String,
    },
    /// It was handed over to this node.
    HandedOver {
        /// Which.
        run: RunId,
    },
    /// It was handed over to another node, which is not the master: its turn is still to come, or whoever was to bring it about died.
    HandedAway {
        /// Who had it.
        by: Box<LockRecord>,
        /// To which node.
        to: String,
    },
    /// Somebody has the lock for it, or had.
    Claimed {
        /// Who.
        by: Box<LockRecord>,
        /// Where its journal stood, as far as the cluster was told.
        anchor: Option<Anchor>,
    },
}

/// Decides by the cluster's master, the name of this host, and the cluster's job filters: the runs that may go on, in the order in
/// which they do. One of which the journal says that it is over is passed over.
pub fn succession(master: &str, host: &str, filters: &[ListedFilter]) -> Vec<Succession> {
    if !same_host(master, host) {
        return vec![Succession::NotMaster {
            master: master.to_owned(),
        }];
    }
    let handovers = handovers(filters);
    let mut to_here: Vec<&RunId> = handovers
        .iter()
        .filter(|handover| same_host(&handover.to, host))
        .map(|handover| &handover.run)
        .collect();
    to_here.sort_by(|one, other| other.cmp(one));
    let mut claims = all_claims(filters);
    claims.retain(|claim| !to_here.contains(&&claim.lock.run));
    claims.sort_by_key(|claim| std::cmp::Reverse(claim.token));
    let claimed = claims.into_iter().map(|claim| {
        let by = Box::new(claim.lock);
        match handovers.iter().find(|handover| handover.run == by.run) {
            Some(handover) => Succession::HandedAway {
                by,
                to: handover.to.clone(),
            },
            None => Succession::Claimed {
                anchor: anchor_of(filters).filter(|anchor| anchor.run == by.run),
                by,
            },
        }
    });
    let handed_over = to_here
        .iter()
        .map(|&run| Succession::HandedOver { run: run.clone() });
    handed_over.chain(claimed).collect()
}

impl GanetiBackend {
    /// Which runs may go on on that host.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn succession(&self, host: &str) -> Result<Vec<Succession>, BackendError> {
        let failed =
            |error: crate::rapi::client::RapiClientError| error.of("find the run to resume here", false);
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
