//! `simulate` with a goal: carried out on a copy of the cluster, in memory.

use std::sync::Arc;

use stagger_core::model::{Doors, Policy, Reason};
use stagger_core::plan::Plan;
use stagger_core::run::Ending;
use stagger_sim::rehearse::{FailureRun, RehearsalRun};
use stagger_sim::{ClusterCopy, RehearsalReport, SimEnding};

use super::plan;
use crate::args::{Cli, GoalWith, RehearsalFlags};
use crate::clusters::{self, RehearsalInput};
use crate::documents::{self, Case, Exposure, Guests, Rehearsal, RehearsalOutcome, RehearsalRisk, Time};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::{PlanRequest, make_plan};
use crate::print;
use crate::show;

/// `simulate` with a goal.
pub(crate) async fn rehearse(cli: &Cli, args: &GoalWith<RehearsalFlags>) -> Result<Exit, CliError> {
    let (goal, args) = (args.goal(), args.with());
    let cluster = clusters::open(cli, &args.from).await?;
    let RehearsalInput { planning, copy } = cluster.rehearsal_input(&goal).await?;
    let mut planning = planning.selected(&goal.select)?;
    let made = make_plan(&goal.policy, &mut planning)?;
    let PlanRequest { target, policy, .. } = planning;
    let copy = Arc::new(copy);
    let (seed, osds) = (args.seed.unwrap_or(1), copy.osds_up());
    let runs = args.runs.unwrap_or_else(|| usual_runs(osds));
    let scratch = super::simulate::scratch()?;
    let what = stagger_sim::CopyRehearsal {
        copy: Arc::clone(&copy),
        target,
        policy: with_open_doors(policy),
        seed,
        runs,
        scratch: scratch.path().to_owned(),
    };
    if osds == 0 && args.runs.is_some() {
        print::status_line(
            "failures are drawn among OSDs only, and there are none: --runs changes nothing here",
        );
    }
    if osds > 200 {
        print::status_line(&format!(
            "{osds} OSDs: the run and {runs} more, each of which plans before each wave; --runs makes them fewer"
        ));
    }
    // It makes runtimes of its own.
    let came = tokio::task::spawn_blocking(move || stagger_sim::rehearse(&what)).await;
    let came = came
        .map_err(|error| CliError::new(Exit::Internal, format!("rehearse the upgrade: {error}")))?
        .map_err(super::simulate::simulation_failed)?;
    let told = report(&made, &copy, seed, came);
    if cli.json {
        print::json(&documents::REHEARSAL.of(&told));
    } else {
        let next = match cluster.external_runner() {
            Some(otherwise) => otherwise.to_owned(),
            None => plan::run_command(cli, goal.to_args(), None),
        };
        print::data_line(&show::rehearsal::rehearsal(
            &told,
            copy.snapshot.terms(),
            print::width(),
            &next,
        ));
    }
    Ok(match told.ended {
        RehearsalOutcome::Done => Exit::Done,
        RehearsalOutcome::Incomplete | RehearsalOutcome::RolledBack | RehearsalOutcome::Aborted => Exit::No,
        RehearsalOutcome::Held | RehearsalOutcome::Endless => Exit::NeedsYou,
    })
}

/// Each run plans anew before each of its waves: with a thousand OSDs it takes some ten seconds.
fn usual_runs(osds: usize) -> u32 {
    match osds {
        0..=200 => 100,
        201..=1_000 => 10,
        _ => 3,
    }
}

/// Nobody is there to be asked.
fn with_open_doors(policy: Policy) -> Policy {
    let doors = match policy.doors {
        Doors::Ask => Doors::AutoAfter(0),
        auto @ Doors::AutoAfter(_) => auto,
    };
    Policy { doors, ..policy }
}

fn report(made: &Plan, copy: &ClusterCopy, seed: u64, came: RehearsalReport) -> Rehearsal {
    let RehearsalReport {
        undisturbed,
        disturbed,
    } = came;
    let first = undisturbed.plan.as_ref().unwrap_or(made);
    let (ended, reason) = outcome(&undisturbed.ending);
    let exposure = &undisturbed.exposure;
    let wave = exposure.worst_wave.as_ref();
    Rehearsal {
        cluster: first.cluster.clone(),
        title: first.title.clone(),
        plan: first.id.clone(),
        search: first.search,
        seed,
        ended,
        why: reason.map(ToString::to_string),
        time: Time {
            planned_waves: first.waves(),
            waves: undisturbed.waves,
            planned_units: show::plan::units(first),
            units: undisturbed.units,
            forecast_seconds: first.forecast().as_secs(),
            took_seconds: undisturbed.took.as_secs(),
        },
        doors: undisturbed.doors.clone(),
        exposure: Exposure {
            placement_groups: copy.groups.len(),
            worst: exposure.worst,
            stage: wave.map(|wave| wave.stage.clone()),
            wave: wave.map(|wave| wave.number),
            placement_group_seconds: exposure.group_seconds,
            stopped: exposure.stopped,
        },
        guests: undisturbed.guests.map(|guests| Guests {
            running: guests.all,
            moves: guests.moves,
            worst_down: guests.worst_down,
        }),
        risk: (!disturbed.is_empty()).then(|| risk(disturbed)),
        left_alone: undisturbed.left_alone,
    }
}

fn risk(disturbed: Vec<FailureRun>) -> RehearsalRisk {
    let cases: Vec<Case> = disturbed.into_iter().map(case).collect();
    let hit = || cases.iter().filter(|case| case.stopped > 0);
    RehearsalRisk {
        runs: cases.len(),
        stopped_in: hit().count(),
        longest_seconds: hit().map(|case| case.longest_seconds).max().unwrap_or(0),
        most_placement_groups: hit().map(|case| case.stopped).max().unwrap_or(0),
        still_stopped_in: hit().filter(|case| case.still_stopped > 0).count(),
        cases,
    }
}

fn case(disturbed: FailureRun) -> Case {
    let FailureRun { osd, at, course } = disturbed;
    let (ended, reason) = outcome(&course.ending);
    let reason = reason.map(|reason| reason.code.to_string());
    let RehearsalRun {
        units,
        left_alone,
        exposure,
        ..
    } = course;
    Case {
        osd,
        at_seconds: at,
        ended,
        reason,
        units,
        left_alone: left_alone.into_iter().map(|left| left.unit).collect(),
        stopped: exposure.stopped,
        longest_seconds: exposure.longest_stop,
        still_stopped: exposure.still_stopped,
    }
}

fn outcome(ending: &SimEnding) -> (RehearsalOutcome, Option<&Reason>) {
    match ending {
        SimEnding::Over(Ending::Done) => (RehearsalOutcome::Done, None),
        SimEnding::Over(Ending::Incomplete { .. }) => (RehearsalOutcome::Incomplete, None),
        SimEnding::Over(Ending::RolledBack { reason }) => (RehearsalOutcome::RolledBack, Some(reason)),
        SimEnding::Over(Ending::Aborted) => (RehearsalOutcome::Aborted, None),
        SimEnding::Held(reason) => (RehearsalOutcome::Held, Some(reason)),
        SimEnding::Endless(reason) => (RehearsalOutcome::Endless, Some(reason)),
    }
}
