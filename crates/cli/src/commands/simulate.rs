//! `simulate`: a scenario through the real engine, on a cluster in memory.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use stagger_core::model::{Snapshot, Target};
use stagger_core::plan::{PlanningInput, plan};
use stagger_core::run::{Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::cluster::Executor as _;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_sim::{ClockSpeed, Scenario, Sim, SimEnding, SimReport, simulate as carry_out, target};
use tempfile::TempDir;

use super::state_folder;
use crate::args::Cli;
use crate::documents::{self, Simulation};
use crate::error::CliError;
use crate::exit::Exit;
use crate::forecasts::Outlook;
use crate::print;
use crate::show;
use crate::show::live::Progress;
use crate::show::plan::{Detail, PlanNotes};
use stagger_report::{duration, event_text};

/// How long a simulation lasts for those who watch, in seconds.
const WATCHED: f64 = 40.0;

/// `simulate`
pub(crate) async fn simulate(cli: &Cli, scenario: &Path, fast: bool) -> Result<Exit, CliError> {
    let name = scenario.display().to_string();
    let text = std::fs::read_to_string(scenario)
        .map_err(|error| CliError::usage(format!("read the scenario {name}: {error}")))?;
    run_document(cli, &text, &name, fast).await
}

/// The scenario in that text.
pub(super) fn parsed(text: &str, name: &str) -> Result<Scenario, CliError> {
    Scenario::parse(text).map_err(|error| {
        let mut refused = CliError::usage(format!("the scenario {name} is refused"));
        refused.causes = std::error::Error::source(&error)
            .map(ToString::to_string)
            .into_iter()
            .collect();
        refused
    })
}

pub(super) async fn run_document(cli: &Cli, text: &str, name: &str, fast: bool) -> Result<Exit, CliError> {
    let scenario = parsed(text, name)?;
    if !cli.json {
        print::status_line(scenario.about.trim());
        show_plan(&scenario).await?;
    }
    let listener: Box<dyn Listener> = if cli.json {
        Box::new(Silent)
    } else {
        Box::new(Progress::new(&[], Outlook::default()))
    };
    let watched = (!fast && !cli.json).then_some(WATCHED);
    let (report, folder) = play_recorded(cli, &scenario, watched, listener).await?;
    show_report(cli, &report, &folder);
    Ok(exit_of(&scenario, &report))
}

/// Plays it in so many seconds, or as fast as can be, and says where its journal is.
pub(super) async fn play_recorded(
    cli: &Cli,
    scenario: &Scenario,
    watched: Option<f64>,
    listener: Box<dyn Listener>,
) -> Result<(SimReport, PathBuf), CliError> {
    // A rehearsal at once, in memory: how long it takes on the cluster's clock sets the pace.
    let scratch = scratch()?;
    let rehearsal = run(
        scenario,
        SqliteStore::in_memory()?,
        Artifacts::in_folder(scratch.path().to_owned()),
        Box::new(Silent),
        ClockSpeed::Fast,
    )
    .await?;
    let pace = watched.map_or(ClockSpeed::Fast, |watched| ClockSpeed::Real {
        factor: watched / rehearsal.took.as_secs_f64().max(1.0),
    });
    let folder = create_unique_folder(
        &state_folder(cli)?.join("simulations"),
        &format!(
            "{}-{}",
            scenario.cluster.name,
            Timestamp::now().strftime("%Y%m%d-%H%M%S")
        ),
    )?;
    let store = SqliteStore::open(&folder.join("journal.db"))?;
    let artifacts = Artifacts::in_folder(folder.join("artifacts"));
    let report = run(scenario, store, artifacts, listener, pace).await?;
    Ok((report, folder))
}

/// Whether it went as it was to go.
pub(super) fn exit_of(scenario: &Scenario, report: &SimReport) -> Exit {
    match report.ending {
        _ if !report.findings.is_empty() => Exit::No,
        SimEnding::Over(Ending::Done) => Exit::Done,
        SimEnding::Over(Ending::Incomplete { .. } | Ending::RolledBack { .. } | Ending::Aborted) => {
            if scenario.expect.ending.is_some() {
                Exit::Done
            } else {
                Exit::No
            }
        }
        SimEnding::Held(_) | SimEnding::Endless(_) => Exit::NeedsYou,
    }
}

async fn run(
    scenario: &Scenario,
    store: SqliteStore,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
    pace: ClockSpeed,
) -> Result<SimReport, CliError> {
    let scenario = scenario.clone();
    // It has a runtime of its own, on one thread.
    let played =
        tokio::task::spawn_blocking(move || carry_out(&scenario, Box::new(store), artifacts, listener, pace));
    played
        .await
        .map_err(|error| CliError::new(Exit::Internal, format!("play the scenario: {error}")))?
        .map_err(simulation_failed)
}

/// Two simulations may begin in one second: each has its journal for itself.
fn create_unique_folder(among: &Path, name: &str) -> Result<PathBuf, CliError> {
    std::fs::create_dir_all(among).map_err(|error| cannot_make(among, &error))?;
    let mut number = 1;
    loop {
        let folder = match number {
            1 => among.join(name),
            more => among.join(format!("{name}-{more}")),
        };
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(cannot_make(&folder, &error)),
        }
    }
}

fn cannot_make(folder: &Path, error: &std::io::Error) -> CliError {
    CliError::new(
        Exit::Internal,
        format!("make the folder {}: {error}", folder.display()),
    )
}

pub(super) fn simulation_failed(error: impl std::error::Error) -> CliError {
    let mut failed = CliError::new(Exit::Internal, error.to_string());
    let mut source = error.source();
    while let Some(inner) = source {
        failed.causes.push(inner.to_string());
        source = inner.source();
    }
    failed
}

/// A folder that a rehearsal writes to and that is gone with it.
pub(super) fn scratch() -> Result<TempDir, CliError> {
    tempfile::Builder::new()
        .prefix("stagger-rehearsal-")
        .tempdir()
        .map_err(|error| cannot_make(&std::env::temp_dir(), &error))
}

/// The cluster of a scenario as it is first seen, and the target.
pub(super) async fn initial_state(scenario: &Scenario) -> Result<(Snapshot, Target), CliError> {
    let sim = Sim::new(scenario.cluster.clone(), Vec::new()).map_err(simulation_failed)?;
    // In the world's own time: an answer may take its while there.
    let looked = tokio::task::spawn_blocking(move || sim.carry_out(ClockSpeed::Fast, sim.observe()));
    let snapshot = looked
        .await
        .map_err(|error| CliError::new(Exit::Internal, format!("look at the scenario: {error}")))?
        .map_err(simulation_failed)??;
    let wanted = target(&scenario.cluster, &scenario.target, &scenario.policy).map_err(simulation_failed)?;
    Ok((snapshot, wanted))
}

async fn show_plan(scenario: &Scenario) -> Result<(), CliError> {
    let (snapshot, wanted) = initial_state(scenario).await?;
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let made = plan(&PlanningInput {
        snapshot: &snapshot,
        target: &wanted,
        policy: &scenario.policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    });
    print::status_line("");
    print::status_line(&show::plan::plan(
        &made,
        &snapshot,
        &PlanNotes::default(),
        Detail::default(),
        print::width(),
        "carried out now, in simulation\n",
    ));
    Ok(())
}

pub(super) fn show_report(cli: &Cli, report: &SimReport, folder: &Path) {
    let ending = match &report.ending {
        SimEnding::Over(ending) => event_text::ending(ending, false),
        SimEnding::Held(reason) => format!("needs you: {reason}"),
        SimEnding::Endless(reason) => format!("still held after days: {reason}"),
    };
    if cli.json {
        let violations = report.truth.violations.iter().map(ToString::to_string);
        print::json(&documents::SIMULATION.of(&Simulation {
            ending,
            waves: report.waves,
            planned_waves: report.planned_waves,
            units: report.units,
            forecast_seconds: report.forecast.as_secs(),
            took_seconds: report.took.as_secs(),
            events: report.events,
            stops: report.truth.stops,
            unsafe_stops: violations.collect(),
            findings: report.findings.iter().map(ToString::to_string).collect(),
            undetectable_lies: report.truth.undetectable,
            guards_left: report.guards.clone(),
            run: report.run.clone(),
            journal: folder.join("journal.db"),
        }));
        return;
    }
    print::data_line(&format!("\n{}", capitalized(&ending)));
    print::data_line(&format!(
        "{} waves of {} planned, {} units changed; {} on the cluster's clock, {} forecast",
        report.waves,
        report.planned_waves,
        report.units,
        duration(report.took),
        duration(report.forecast),
    ));
    print::data_line(&format!(
        "{} stops, {} availability violations, {} undetectable false reports, {} guards not cleared",
        report.truth.stops,
        report.truth.violations.len(),
        report.truth.undetectable,
        report.guards.len()
    ));
    for finding in &report.findings {
        print::data_line(&format!("  {finding}"));
    }
    print::data_line(&format!("Journal: {}", folder.join("journal.db").display()));
    print::data_line(&format!(
        "Next: stagger --state {} history {}",
        folder.display(),
        report.run
    ));
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Tells nobody.
#[derive(Debug)]
struct Silent;

impl Listener for Silent {
    fn event(&mut self, _entry: &Entry, _run: &Run) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_simulations_of_one_second_have_a_folder_each() {
        let state = tempfile::tempdir().unwrap();
        let among = state.path().join("simulations");
        let names: Vec<_> = (0..3)
            .map(|_| create_unique_folder(&among, "demo-20260101-000000").unwrap())
            .map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "demo-20260101-000000",
                "demo-20260101-000000-2",
                "demo-20260101-000000-3"
            ]
        );
    }
}
