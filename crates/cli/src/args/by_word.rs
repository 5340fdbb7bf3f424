//! What a person can say that nobody else can tell.

use clap::{Args, ValueEnum};
use stagger_core::model::{HostName, RunId};
use stagger_core::run::Seq;

use super::Heard;

/// `confirm`
#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// The host, as named in the run.
    pub(crate) host: HostName,
    /// Its state.
    pub(crate) word: HostIs,
    /// The run [default: the newest].
    #[arg(long, conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// What a person can say of a host.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum HostIs {
    /// It has no power, or was rebooted since: no command that was started on it is still running.
    IsOff,
}

/// `settle`
#[derive(Debug, Args)]
pub(crate) struct Settle {
    /// The number of its intent in the journal, as `stagger history` shows it.
    pub(crate) intent: Seq,
    /// Its outcome.
    pub(crate) how: Ended,
    /// The run [default: the newest].
    #[arg(long, conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ended {
    /// The wanted state was reached.
    Done,
    /// It was not, and nothing is still running.
    Failed,
}
