//! Commands to a run: left in the journal for whoever carries it out.

use jiff::Timestamp;
use stagger_core::model::RunId;
use stagger_core::run::Command;
use stagger_core::view;
use stagger_engine::supervisor;

use super::{store, user, which};
use crate::args::{Approve, Cli};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Leaves a command.
pub(crate) fn ask(cli: &Cli, run: Option<&RunId>, command: &Command) -> Result<Exit, CliError> {
    let mut store = store(cli)?;
    let run = which(&store, run)?;
    supervisor::ask(&mut store, &run, Timestamp::now(), command, &user())?;
    print::talk(&format!(
        "run {run} was asked; if nobody carries it out now, `stagger resume {run}` does"
    ));
    if cli.json {
        print::json(&view::run(&supervisor::replay(&store, &run)?, None));
    }
    Ok(Exit::Done)
}

/// `approve`: a door that the run knows.
pub(crate) fn approve(cli: &Cli, wish: &Approve) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = supervisor::replay(&store, &wish.run)?;
    let doors: Vec<_> = run
        .start()
        .target
        .parts
        .iter()
        .filter_map(|part| match part {
            stagger_core::model::Part::Stage(stage) => stage.door_before_last.as_ref(),
            stagger_core::model::Part::Step(step) => step.door.as_ref(),
        })
        .collect();
    if !doors.iter().any(|door| door.name == wish.door) {
        let names: Vec<_> = doors.iter().map(|door| door.name.as_str()).collect();
        let error = CliError::usage(format!("run {} has no door {}", wish.run, wish.door));
        return Err(error.hint(format!("its doors: {}", names.join(", "))));
    }
    ask(
        cli,
        Some(&wish.run),
        &Command::Approve {
            door: wish.door.clone(),
        },
    )
}
