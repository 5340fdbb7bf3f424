//! Commands to a run: who may give them, why a run refuses one, and how it is left for the process that
//! carries the run out.

use stagger_core::run::Command;
use stagger_core::view::RunVerdict;

use crate::Shared;
use crate::access::{Caller, Role};
use crate::problem::ProblemDetails;
use crate::runs::ReadRun;

/// At most so many commands are pending.
const UNHEEDED: usize = 100;

/// The role that a command takes.
pub(crate) fn role_of(command: &Command) -> Role {
    match command {
        Command::Pause | Command::Resume | Command::Abort | Command::Rollback => Role::Operate,
        Command::Approve { .. } | Command::Confirm { .. } | Command::Settle { .. } => Role::Approve,
    }
}

/// Why a run does not take a command.
pub(crate) fn refusal(seen: &ReadRun, command: &Command) -> Option<ProblemDetails> {
    let run = &seen.journal.reading.run;
    match command {
        Command::Approve { door } if !run.knows_approval(door) => {
            let words = seen.journal.reading.pending_approvals();
            Some(ProblemDetails::conflict(format!(
                "the run has no {door}; it can approve: {}",
                words.join(", ")
            )))
        }
        Command::Settle { intent, .. } if run.intent(*intent).is_none() => Some(ProblemDetails::conflict(
            format!("the run waits for no effect {intent}"),
        )),
        Command::Pause
        | Command::Resume
        | Command::Abort
        | Command::Rollback
        | Command::Approve { .. }
        | Command::Confirm { .. }
        | Command::Settle { .. } => None,
    }
}

/// Leaves a command for the process that carries the run out; if there is none, one is started.
pub(crate) async fn ask(
    shared: &Shared,
    caller: &Caller,
    seen: &ReadRun,
    command: Command,
) -> Result<(), ProblemDetails> {
    let run = &seen.view.run;
    if seen.asked.len() >= UNHEEDED {
        return Err(ProblemDetails::conflict(format!(
            "{UNHEEDED} commands are pending already: `stagger resume {run}` applies them"
        )));
    }
    let goes_on = matches!(command, Command::Resume | Command::Abort | Command::Rollback);
    let asked = shared.runs.ask(run, command, caller.name.clone()).await;
    asked.map_err(|error| ProblemDetails::of(&error))?;
    let nobody = matches!(seen.view.verdict, RunVerdict::Interrupted | RunVerdict::NeedsYou);
    if let Some(carrier) = shared.carrier.as_ref().filter(|_| goes_on && nobody) {
        let begun = carrier.carry_on(&seen.view.cluster, run);
        begun.map_err(|error| {
            ProblemDetails::continue_failed(format!("start a process for run {run}: {error}"))
        })?;
    }
    Ok(())
}
