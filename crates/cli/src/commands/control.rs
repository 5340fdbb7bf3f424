//! Commands to a run: left in the journal for whoever carries it out.

use jiff::Timestamp;
use stagger_core::model::{Part, PartName, RunId};
use stagger_core::run::{Command, Run};
use stagger_core::view;
use stagger_engine::supervisor;

use super::{store, user, which};
use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Leaves a command.
pub(crate) fn ask(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<Exit, CliError> {
    let mut store = store(cli)?;
    let run = which(&*store, run)?;
    supervisor::ask(&mut *store, &run, Timestamp::now(), command, &user())?;
    print::talk(&format!(
        "run {run} was asked; if nobody carries it out now, `stagger resume {run}` does"
    ));
    if cli.json {
        print::json(&view::run(&supervisor::replay(&*store, &run)?, None));
    }
    Ok(Exit::Done)
}

/// `approve`: a door that the run knows.
pub(crate) fn approve(cli: &Cli, run: Option<&RunId>, door: &PartName) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = which(&*store, run)?;
    knows(&supervisor::replay(&*store, &run)?, door)?;
    ask(cli, Some(&run), &Command::Approve { door: door.clone() })
}

/// Refuses a door that a run does not have.
pub(crate) fn knows(run: &Run, door: &PartName) -> Result<(), CliError> {
    let start = run.start();
    let doors: Vec<_> = start
        .target
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Stage(stage) => stage.door_before_last.as_ref(),
            Part::Step(step) => step.door.as_ref(),
        })
        .collect();
    if doors.iter().any(|known| known.name == *door) {
        return Ok(());
    }
    let names: Vec<_> = doors.iter().map(|door| door.name.as_str()).collect();
    let error = CliError::usage(format!("run {} has no door {door}", start.run));
    Err(error.hint(format!("its doors: {}", names.join(", "))))
}
