//! `confirm` and `settle`: outcomes that only the operator can determine.

use clap::{Args, ValueEnum};
use stagger_core::model::{HostName, RunId};
use stagger_core::run::Seq;

use super::OperatorRequest;

/// `confirm`
#[derive(Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// The host, as named in the run.
    pub(crate) host: HostName,
    /// Its state.
    pub(crate) word: HostState,
    /// The run [default: the newest].
    #[arg(long, conflicts_with = "OperatorCluster")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: OperatorRequest,
}

/// What a person can say of a host.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum HostState {
    /// It has no power, or was rebooted since: no command that was started on it is still running.
    IsOff,
}

/// `settle`
#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The number of its intent in the journal, as `stagger history` shows it.
    pub(crate) intent: Seq,
    /// Its outcome.
    pub(crate) how: CallOutcome,
    /// The run [default: the newest].
    #[arg(long, conflicts_with = "OperatorCluster")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: OperatorRequest,
}

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallOutcome {
    /// The wanted state was reached.
    Done,
    /// It was not, and nothing is still running.
    Failed,
}
