//! Commands to a run: left in the journal for the process that carries it out.

use jiff::Timestamp;
use stagger_core::model::{PartName, RunId};
use stagger_core::run::{Command, Run, Seq};
use stagger_core::view;
use stagger_engine::supervisor;

use super::{run_or_newest, store, user};
use crate::args::{CallOutcome, Cli, ConfirmArgs, HostState, SettleArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Leaves a command.
pub(crate) async fn ask(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<Exit, CliError> {
    let (run, nobody) = leave_command(cli, run, command).await?;
    match nobody {
        Some(_) => print::status_line(&format!(
            "requested; run {run} is interrupted: `stagger resume {run}` applies it"
        )),
        None => print::status_line(&format!("requested; run {run} applies it at once")),
    }
    if cli.json {
        let store = store(cli).await?;
        print::json(&view::run(&supervisor::replay(&*store, &run).await?, None));
    }
    Ok(Exit::Done)
}

/// `abort` and `rollback`: where nobody carries the run out, this process does, to that end.
pub(crate) async fn end_run(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<Exit, CliError> {
    if is_running(cli, run).await? {
        return ask(cli, run, command).await;
    }
    let (run, nobody) = leave_command(cli, run, command).await?;
    let why = nobody.unwrap_or_default();
    print::status_line(&format!(
        "run {run} is interrupted ({why}): this process resumes it"
    ));
    Box::pin(super::run::continue_run(cli, &run)).await
}

/// Whether somebody carries the run out now.
async fn is_running(cli: &Cli, run: Option<&RunId>) -> Result<bool, CliError> {
    let store = store(cli).await?;
    let run = supervisor::replay(&*store, &run_or_newest(&*store, run).await?).await?;
    Ok(supervisor::interruption_reason(&*store, &run).await?.is_none())
}

/// Leaves a command; of which run, and why nobody carries that out now, if that is so.
async fn leave_command(
    cli: &Cli,
    run: Option<&RunId>,
    command: &Command,
) -> Result<(RunId, Option<String>), CliError> {
    let mut store = store(cli).await?;
    let run = run_or_newest(&*store, run).await?;
    supervisor::ask(&mut *store, &run, Timestamp::now(), command, &user()).await?;
    let nobody = supervisor::interruption_reason(&*store, &supervisor::replay(&*store, &run).await?).await?;
    Ok((run, nobody))
}

/// `approve`: a door that the run knows.
pub(crate) async fn approve(cli: &Cli, run: Option<&RunId>, door: &PartName) -> Result<Exit, CliError> {
    let store = store(cli).await?;
    let run = run_or_newest(&*store, run).await?;
    check_approval(&supervisor::replay(&*store, &run).await?, door)?;
    ask(cli, Some(&run), &Command::Approve { door: door.clone() }).await
}

/// `confirm`: a host is off.
pub(crate) fn confirm_command(args: &ConfirmArgs) -> Command {
    let HostState::IsOff = args.word;
    Command::Confirm {
        host: args.host.clone(),
        ended: Vec::new(),
    }
}

/// `settle`: how an effect ended.
pub(crate) fn settle_command(args: &SettleArgs) -> Command {
    Command::Settle {
        intent: args.intent,
        done: args.how == CallOutcome::Done,
    }
}

/// The same of a run here: of an effect that it waits for.
pub(crate) async fn settle(cli: &Cli, args: &SettleArgs) -> Result<Exit, CliError> {
    let store = store(cli).await?;
    let run = run_or_newest(&*store, args.run.as_ref()).await?;
    check_waits_for(&supervisor::replay(&*store, &run).await?, args.intent)?;
    ask(cli, Some(&run), &settle_command(args)).await
}

/// Refuses an effect that a run does not wait for.
pub(crate) fn check_waits_for(run: &Run, intent: Seq) -> Result<(), CliError> {
    if run.intent(intent).is_some() {
        return Ok(());
    }
    let open: Vec<String> = run.open().map(|(seq, _)| seq.to_string()).collect();
    let error = CliError::usage(format!("run {} waits for no effect {intent}", run.start().run));
    Err(error.hint(if open.is_empty() {
        "it waits for none: `stagger history` shows how each ended".to_owned()
    } else {
        format!("those that it waits for: {}", open.join(", "))
    }))
}

/// Refuses a door that a run does not have.
pub(crate) fn check_approval(run: &Run, door: &PartName) -> Result<(), CliError> {
    if run.knows_approval(door) {
        return Ok(());
    }
    let start = run.start();
    let mut names: Vec<String> = start.target.doors().map(ToString::to_string).collect();
    let interruptions = run.plan().into_iter().flat_map(|plan| &plan.interruptions);
    names.extend(
        interruptions
            .filter(|found| !found.permitted)
            .map(|found| found.name.clone()),
    );
    let error = CliError::usage(format!("run {} has nothing named {door} to approve", start.run));
    Err(error.hint(format!("it has: {}", names.join(", "))))
}
