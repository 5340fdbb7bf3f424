//! Planning: from the observations of a cluster to the input of a plan.

use serde::Serialize;
use stagger_core::model::{Policy, Reason, Snapshot, Target};

use super::BackendError;
use super::names::UnknownName;

/// Makes of facts what a plan is a function of. Everything here is pure: the same facts give the same plan.
pub trait Planner: Send + Sync {
    /// What a [`Source`](super::Source) collects.
    type Facts: Send + Sync;
    /// What can be wanted of such a cluster: a release, nodes to be rebooted.
    type Goal: Send + Sync;
    /// What a run keeps in its journal of how things were before it.
    type Memory: Serialize + Send;

    /// What there is.
    ///
    /// # Errors
    /// Facts that contradict each other, or make no names.
    fn snapshot(&self, facts: &Self::Facts) -> Result<Snapshot, BackendError>;

    /// The way to that goal.
    ///
    /// # Errors
    /// All reasons why it is not begun; or the policy or the goal names what there is not.
    fn plan(
        &self,
        facts: &Self::Facts,
        goal: &Self::Goal,
        policy: &Policy,
    ) -> Result<Planned<Self::Memory>, PlannerError>;
}

/// What a plan is made of, and what a run of it remembers.
#[derive(Debug, Clone)]
pub struct Planned<M> {
    /// What there is, as the policy permits it to be interrupted.
    pub snapshot: Snapshot,
    /// The stages and steps that lead to the goal.
    pub target: Target,
    /// How things are before the run.
    pub memory: M,
}

/// All reasons why nothing is begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused: {}", .0.iter().map(|reason| reason.code.code()).collect::<Vec<_>>().join(", "))]
pub struct Refusal(pub Vec<Reason>);

/// Why there is no way to a goal.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// The cluster speaks against it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The policy binds what there is not.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// The goal itself is wrong: it names what there is not.
    #[error("{0}")]
    Goal(String),
    /// The facts make no snapshot.
    #[error(transparent)]
    Facts(#[from] BackendError),
}
