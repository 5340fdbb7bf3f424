//! Commands to a run: left in the journal for whoever carries it out.

use jiff::Timestamp;
use stagger_core::model::{Part, PartName, RunId, StageSpec};
use stagger_core::run::{Command, Run};
use stagger_core::view;
use stagger_engine::supervisor;

use super::{store, user, which};
use crate::args::{Cli, Confirm, Ended, HostIs, Settle};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Leaves a command.
pub(crate) fn ask(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<Exit, CliError> {
    let (run, nobody) = left(cli, run, command)?;
    match nobody {
        Some(_) => print::talk(&format!(
            "run {run} was asked; nobody carries it out now: `stagger resume {run}` does"
        )),
        None => print::talk(&format!(
            "run {run} was asked; whoever carries it out heeds it at once"
        )),
    }
    if cli.json {
        let store = store(cli)?;
        print::json(&view::run(&supervisor::replay(&*store, &run)?, None));
    }
    Ok(Exit::Done)
}

/// `abort` and `rollback`: where nobody carries the run out, this process does, to that end.
pub(crate) async fn bring_to_its_end(
    cli: &Cli,
    run: Option<&RunId>,
    command: &Command,
) -> Result<Exit, CliError> {
    if on_its_way(cli, run)? {
        return ask(cli, run, command);
    }
    let (run, nobody) = left(cli, run, command)?;
    let why = nobody.unwrap_or_default();
    print::talk(&format!(
        "run {run} was asked; nobody carries it out ({why}): this process does"
    ));
    Box::pin(super::run::go_on(cli, &run)).await
}

/// Whether somebody carries the run out now.
fn on_its_way(cli: &Cli, run: Option<&RunId>) -> Result<bool, CliError> {
    let store = store(cli)?;
    let run = supervisor::replay(&*store, &which(&*store, run)?)?;
    Ok(supervisor::nobody(&*store, &run)?.is_none())
}

/// Leaves a command; of which run, and why nobody carries that out now, if that is so.
fn left(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<(RunId, Option<String>), CliError> {
    let mut store = store(cli)?;
    let run = which(&*store, run)?;
    supervisor::ask(&mut *store, &run, Timestamp::now(), command, &user())?;
    let nobody = supervisor::nobody(&*store, &supervisor::replay(&*store, &run)?)?;
    Ok((run, nobody))
}

/// `approve`: a door that the run knows.
pub(crate) fn approve(cli: &Cli, run: Option<&RunId>, door: &PartName) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = which(&*store, run)?;
    knows(&supervisor::replay(&*store, &run)?, door)?;
    ask(cli, Some(&run), &Command::Approve { door: door.clone() })
}

/// `confirm`: a host is off.
pub(crate) fn confirm(cli: &Cli, wish: &Confirm) -> Result<Exit, CliError> {
    let Confirm {
        host,
        word: HostIs::IsOff,
        run,
    } = wish;
    let command = Command::Confirm {
        host: host.clone(),
        ended: Vec::new(),
    };
    ask(cli, run.as_ref(), &command)
}

/// `settle`: an effect that the run waits for.
pub(crate) fn settle(cli: &Cli, wish: &Settle) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = which(&*store, wish.run.as_ref())?;
    let state = supervisor::replay(&*store, &run)?;
    if state.intent(wish.intent).is_none() {
        let open: Vec<String> = state.open().map(|(seq, _)| seq.to_string()).collect();
        let error = CliError::usage(format!("run {run} waits for no effect {}", wish.intent));
        return Err(error.hint(if open.is_empty() {
            "it waits for none: `stagger history` shows how each ended".to_owned()
        } else {
            format!("those that it waits for: {}", open.join(", "))
        }));
    }
    let command = Command::Settle {
        intent: wish.intent,
        done: wish.how == Ended::Done,
    };
    ask(cli, Some(&run), &command)
}

/// Refuses a door that a run does not have.
pub(crate) fn knows(run: &Run, door: &PartName) -> Result<(), CliError> {
    let start = run.start();
    let of = |part: &Part| match part {
        Part::Stage(stage) => stage.door_before_last.as_ref().map(|door| door.name.clone()),
        Part::Step(step) => step.door.as_ref().map(|door| door.name.clone()),
    };
    let doors: Vec<PartName> = start.target.parts.iter().filter_map(of).collect();
    let mut accepted = start.target.stages().filter_map(StageSpec::accepted_by);
    if doors.contains(door) || accepted.any(|word| word == *door) {
        return Ok(());
    }
    let names: Vec<_> = doors.iter().map(PartName::as_str).collect();
    let error = CliError::usage(format!("run {} has no door {door}", start.run));
    Err(error.hint(format!("its doors: {}", names.join(", "))))
}
