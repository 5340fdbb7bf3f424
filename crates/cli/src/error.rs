//! Error messages: what was tried, why it failed, what to do.

use std::fmt::Write as _;

use stagger_core::model::Reason;
use stagger_engine::cluster::names::UnknownName;
use stagger_engine::cluster::{BackendError, LockError, PlannerError, Retryability};
use stagger_engine::driver::DriveError;
use stagger_engine::redact::redact;
use stagger_engine::store::StoreError;
use stagger_engine::supervisor::SuperviseError;
use stagger_rook::client::ClientError;

use crate::exit::Exit;

/// An error on its way to the terminal.
#[derive(Debug)]
pub(crate) struct CliError {
    /// With what code the program ends.
    pub(crate) exit: Exit,
    /// What was tried, and why it failed.
    pub(crate) message: String,
    /// What is behind it, outermost first.
    pub(crate) causes: Vec<String>,
    /// What to do.
    pub(crate) hints: Vec<String>,
}

impl CliError {
    /// Wrong use or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// With this code.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            ..Self::usage(message)
        }
    }

    /// The same with what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A list of refusals.
    pub(crate) fn refused(what: &str, reasons: &[Reason]) -> Self {
        let mut error = Self::new(Exit::No, format!("{what} is refused"));
        error.causes = reasons.iter().map(ToString::to_string).collect();
        if let Some(first) = reasons.first() {
            let which = if reasons.len() == 1 {
                "it"
            } else {
                "the first reason"
            };
            let hint = format!(
                "nothing was changed; `stagger reason {}` explains {which}",
                first.code
            );
            error.hints.push(hint);
        }
        error
    }

    /// Another error, with what is behind it.
    pub(crate) fn caused(exit: Exit, error: &dyn std::error::Error) -> Self {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(inner) = source {
            causes.push(inner.to_string());
            source = inner.source();
        }
        Self {
            exit,
            message: error.to_string(),
            causes,
            hints: Vec::new(),
        }
    }

    /// As printed, without colour.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            let _ = writeln!(text, "  caused by: {cause}");
        }
        for hint in &self.hints {
            let _ = writeln!(text, "\nhint: {hint}");
        }
        // It may quote a line of a configuration, or what a program printed.
        redact(&text)
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::caused(Exit::Internal, &error)
    }
}

impl From<BackendError> for CliError {
    fn from(error: BackendError) -> Self {
        let exit = match error.retryability {
            Retryability::Transient | Retryability::Expired => Exit::Unreachable,
            Retryability::Permanent => Exit::Usage,
        };
        let mut made = Self::caused(exit, &error);
        made.hints.extend(error.hint);
        made
    }
}

impl From<UnknownName> for CliError {
    fn from(error: UnknownName) -> Self {
        let made = Self::usage(error.to_string());
        match error.hint() {
            Some(hint) => made.hint(hint),
            None => made,
        }
    }
}

impl From<PlannerError> for CliError {
    fn from(error: PlannerError) -> Self {
        match error {
            PlannerError::Refused(refusal) => Self::refused("it", &refusal.0),
            PlannerError::Name(error) => error.into(),
            PlannerError::Goal(why) => Self::usage(why),
            PlannerError::Facts(error) => error.into(),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::NoRun(_) | StoreError::OfAnotherRelease { .. } => Exit::Usage,
            StoreError::OtherSchema { .. } => Exit::NeedsYou,
            StoreError::FencedOut { .. } | StoreError::MovedOn { .. } => Exit::No,
            StoreError::Damaged { .. } | StoreError::Failed { .. } => Exit::Unreachable,
        };
        let made = Self::caused(exit, &error);
        match &error {
            StoreError::Damaged { last_good, .. } => made.hint(format!(
                "nothing was changed; event {last_good} is the last good one: restore the file from a backup, or start a new run with another --state folder"
            )),
            StoreError::NoRun(_) => made.hint("`stagger history` lists the runs"),
            StoreError::OfAnotherRelease { .. } => made.hint("use the release that wrote it, or a later one"),
            StoreError::OtherSchema { .. } => made.hint("nothing was changed; `stagger db version` shows the schema"),
            StoreError::FencedOut { .. } | StoreError::MovedOn { .. } => {
                made.hint("another process has the run: `stagger status` shows it")
            }
            StoreError::Failed { .. } => made.hint(
                "nothing starts without a journal; repair that, then `stagger resume` continues",
            ),
        }
    }
}

impl From<SuperviseError> for CliError {
    fn from(error: SuperviseError) -> Self {
        match error {
            SuperviseError::Lock(LockError::Held(claim)) => {
                Self::new(Exit::No, format!("the cluster is locked by {claim}"))
                    .hint("one run at a time: wait for it, or `stagger status` there")
            }
            SuperviseError::Store(error) => error.into(),
            SuperviseError::Drive(error) => error.into(),
            SuperviseError::Unfinished(run) => {
                Self::new(Exit::No, format!("run {run} of this cluster is not over")).hint(format!(
                    "`stagger resume {run}` continues it, `stagger abort {run}` ends it"
                ))
            }
            SuperviseError::Lock(LockError::Backend(error)) | SuperviseError::Unidentified(error) => error.into(),
            other @ SuperviseError::NameOfAnother { .. } => Self::caused(Exit::Usage, &other).hint(
                "a name belongs to one cluster: give this one another name in the configuration, or keep its journals \
                 elsewhere (--state)",
            ),
            other @ SuperviseError::OfAnotherCluster { .. } => {
                Self::caused(Exit::Usage, &other).hint("--config names the configuration of its cluster")
            }
            other @ (SuperviseError::Lock(LockError::Lost(_))
            | SuperviseError::Empty(_)
            | SuperviseError::Over(_)) => Self::caused(Exit::No, &other),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Config(_)
            | ClientError::Which(_)
            | ClientError::NoneThere { .. }
            | ClientError::Refused { .. } => Exit::Usage,
            ClientError::Unreachable { .. } | ClientError::NotHeard { .. } => Exit::Unreachable,
            ClientError::NoOperator(_) => Exit::NeedsYou,
            ClientError::Overwritten { .. } => Exit::No,
        };
        let mut made = Self::caused(exit, &error);
        made.hints.extend(error.hint().map(str::to_owned));
        made
    }
}

impl From<DriveError> for CliError {
    fn from(error: DriveError) -> Self {
        match error {
            DriveError::Store(error) => error.into(),
            DriveError::Backend(error) => error.into(),
            other @ DriveError::Illegal(_) => Self::caused(Exit::Internal, &other),
            other @ DriveError::LeaseLost(_) => Self::caused(Exit::NeedsYou, &other)
                .hint("nothing more was started; `stagger resume` continues where its journal is"),
            other @ DriveError::StrayCall { .. } => Self::caused(Exit::NeedsYou, &other)
                .hint("nothing more was started; `stagger resume` continues once they can be reached")
                .hint("for one that is certainly off: `stagger confirm HOST is-off`, then `stagger resume`"),
        }
    }
}
