//! What a person can say that nobody else can tell.

use clap::{Args, ValueEnum};
use stagger_core::model::{HostName, RunId};
use stagger_core::run::Seq;

use super::Heard;

/// `confirm`
#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// Which host, as the run calls it.
    pub(crate) host: HostName,
    /// What is true of it.
    pub(crate) word: HostIs,
    /// Which run; the newest, if not given.
    #[arg(long, conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// What a person can say of a host.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum HostIs {
    /// It is without power, or was started anew since: no command that was begun on it goes on.
    IsOff,
}

/// `settle`
#[derive(Debug, Args)]
pub(crate) struct Settle {
    /// The place of its intent in the journal, as `stagger history` shows it.
    pub(crate) intent: Seq,
    /// How it ended.
    pub(crate) how: Ended,
    /// Which run; the newest, if not given.
    #[arg(long, conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ended {
    /// The state wanted is there.
    Done,
    /// It is not, and nothing goes on.
    Failed,
}
