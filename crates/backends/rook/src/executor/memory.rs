//! The state before a run on Kubernetes, kept in its journal.

use serde::{Deserialize, Serialize};
use stagger_ceph::translate::Baseline;

use crate::api::pod_revision::RevisionCatalog;
use crate::executor::beside::{Changes, CoexistenceState};
use crate::executor::goal::Goal;

/// What a run keeps of how things were before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RookMemory {
    /// The cluster's health and daemons.
    pub baseline: Baseline,
    /// What revisions stand for.
    pub book: RevisionCatalog,
    /// What was asked for.
    pub wish: Goal,
    /// Beside a Rook that runs: how it was before. Else Rook must not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<CoexistenceState>,
}

impl RookMemory {
    /// What the run is to change.
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes {
            wish: &self.wish,
            baseline: &self.baseline,
            mds_by_rook: self.beside.as_ref().is_some_and(|beside| beside.mds_by_rook),
        }
    }
}
