//! Runs a scenario through the real engine.

mod driver;
mod ending;
mod findings;
mod journal;
mod operator;
mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use jiff::SignedDuration;
use stagger_core::model::{IdError, RunId, Snapshot, Target, Topology};
use stagger_core::plan::{Plan, PlanningInput, plan};
use stagger_core::run::Ending;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::Clock;
use stagger_engine::cluster::BackendError;
use stagger_engine::driver::{DriveError, Listener};
use stagger_engine::store::JournalStore;
use stagger_engine::supervisor::{self, SuperviseError};

pub use driver::ScenarioDriver;
pub use ending::SimEnding;
pub use findings::{Class, SimulationFinding};

use crate::backend::Sim;
use crate::clock::{ClockError, ClockSpeed};
use crate::scenario::{JournalFault, ProcessFault, ProcessSpec, Scenario};
use crate::target::target;
use crate::world::{GroundTruth, Tolerance};
use findings::findings;
use journal::SharedJournal;
use processes::ProcessContext;

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimReport {
    /// How it ended.
    pub ending: SimEnding,
    /// Waves passed.
    pub waves: u32,
    /// Waves of the first plan.
    pub planned_waves: usize,
    /// How often a person helped.
    pub helped: u32,
    /// Upon what reason a person acted last.
    pub helped_last: Option<String>,
    /// Units that serve on something else than before.
    pub units: usize,
    /// How long the first plan said that it takes.
    pub forecast: SignedDuration,
    /// How long it took on the virtual clock.
    pub took: SignedDuration,
    /// Events in the journal.
    pub events: u64,
    /// What came of it by the truth.
    pub truth: GroundTruth,
    /// All that the truth found against the run.
    pub findings: Vec<SimulationFinding>,
    /// Guards that were not cleared.
    pub guards: Vec<String>,
    /// Which run, in the store.
    pub run: RunId,
}

/// A simulation that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A name in the scenario.
    #[error("a name in the scenario is not valid")]
    Name(#[from] IdError),
    /// The simulated cluster cannot be observed at the start.
    #[error("the simulated cluster cannot be observed")]
    Backend(#[from] BackendError),
    /// The run could not be started.
    #[error("the run could not be started")]
    Supervise(#[from] SuperviseError),
    /// The run could not be driven.
    #[error("the run could not be driven")]
    Drive(#[from] DriveError),
    /// The world cannot be played.
    #[error("the scenario cannot be played")]
    Play(#[from] ClockError),
    /// The processes never come to an end.
    #[error("the run is resumed again and again, and never ends")]
    NoEnd,
}

/// Plans a scenario and runs it to its end, on this thread, which must not be one of a runtime.
///
/// # Errors
/// A name is not valid, or the store fails.
pub fn simulate(
    scenario: &Scenario,
    store: Box<dyn JournalStore>,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
    pace: ClockSpeed,
) -> Result<SimReport, SimError> {
    let sim = Sim::new(scenario.cluster.clone(), scenario.faults.clone())?;
    sim.carry_out(pace, one_run(&sim, scenario, store, artifacts, listener))?
}

/// Several processes carry the run out, one after another; who comes to its end first ends the story.
async fn conducted(stage: &ProcessContext<'_>, conductors: &[ProcessSpec]) -> Result<SimEnding, SimError> {
    let mut lives: Vec<_> = conductors
        .iter()
        .enumerate()
        .map(|(number, conductor)| Box::pin(stage.conduct(number, conductor)))
        .collect();
    poll_fn(|context| {
        for life in &mut lives {
            if let Poll::Ready(ended) = life.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

async fn one_run(
    sim: &Sim,
    scenario: &Scenario,
    store: Box<dyn JournalStore>,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
) -> Result<SimReport, SimError> {
    let clock = sim.clock();
    let target = target(&scenario.cluster, &scenario.target, &scenario.policy)?;
    let seen = look(sim)?;
    let forecast = planned(&seen, scenario, &target);
    let run = RunId::new(format!("sim-{}", scenario.cluster.name))?;
    let began = clock.now();
    sim.world().grace = grace(scenario);
    sim.world().wanted = Some(scenario.target.to.clone());
    let shared = SharedJournal::new(sim, store, &scenario.journal);
    let scenario_driver = ScenarioDriver::new(scenario, began).with(shared.clone());
    let alone = [ProcessSpec::default()];
    let stage = ProcessContext {
        scenario,
        sim,
        run: run.clone(),
        topology: Topology::of(&seen),
        store: shared.clone(),
        artifacts,
        listener: Arc::new(Mutex::new(listener)),
        scenario_driver,
        tries: AtomicU32::new(0),
    };
    let conductors = match scenario.conductors.as_slice() {
        [] => &alone,
        several => several,
    };
    let ending = conducted(&stage, conductors).await?;
    let carried_out = supervisor::replay(&shared, &run).await?;
    let operator = stage.scenario_driver.operator();
    sim.world().watch_the_end();
    // Before anybody looks again: what was last seen is what the run could know.
    let mut findings = findings(&ending, &sim.world(), scenario.person.is_some());
    findings.extend(resumable_finding(&ending, sim, scenario, &target)?);
    let world = sim.world();
    let from = &world.spec.release;
    Ok(SimReport {
        findings,
        ending,
        helped: operator.acts(),
        helped_last: operator.last().map(str::to_owned),
        waves: carried_out.waves_passed(),
        planned_waves: forecast.waves(),
        units: world.units().filter(|(_, runs, up)| *up && *runs != from).count(),
        forecast: forecast.forecast(),
        took: world.time().duration_since(began),
        events: carried_out.seq(),
        truth: world.truth().clone(),
        guards: world.guards().map(ToString::to_string).collect(),
        run,
    })
}

/// How strictly the truth judges a scenario.
fn grace(scenario: &Scenario) -> Tolerance {
    let seconds = &scenario.cluster.seconds;
    // The word of a judge is on its way, and so is the call that it permits.
    let on_the_way = u64::from(seconds.ask) + u64::from(seconds.call);
    Tolerance {
        approval: Some(u64::from(scenario.policy.approval_age) + on_the_way),
        to_notice: if scenario.is_calm() {
            Tolerance::TO_NOTICE_CALMLY
        } else {
            Tolerance::USUAL.to_notice + unattended_seconds(scenario)
        },
    }
}

/// For so many seconds nobody can carry the run out, whoever follows whom: whoever stands still least does so for so long, and
/// without a journal nobody does anything.
fn unattended_seconds(scenario: &Scenario) -> u64 {
    let still = scenario.conductors.iter().map(|conductor| {
        let ills = conductor.ills.iter().map(|ill| match *ill {
            ProcessFault::Paused { lasts, .. }
            | ProcessFault::Frozen { lasts, .. }
            | ProcessFault::CutOff { lasts, .. } => lasts,
            ProcessFault::Killed { again, .. } => again,
            ProcessFault::ClockSet { .. } => 0,
        });
        ills.map(u64::from).sum::<u64>()
    });
    let full = scenario.journal.iter().map(|ill| match *ill {
        JournalFault::Full { lasts, .. } => u64::from(lasts),
        JournalFault::Torn { .. } | JournalFault::Unsure { .. } | JournalFault::PutBack { .. } => 0,
    });
    still.min().unwrap_or_default() + full.sum::<u64>()
}

/// A run that was over when all was well again, and left what can be done: it could have been finished.
fn resumable_finding(
    ending: &SimEnding,
    sim: &Sim,
    scenario: &Scenario,
    target: &Target,
) -> Result<Option<SimulationFinding>, SimError> {
    let SimEnding::Over(Ending::Incomplete { left }) = ending else {
        return Ok(None);
    };
    if !sim.world().is_healed() {
        return Ok(None);
    }
    // What has come about since it looked last, it could not know.
    let seen = sim
        .world()
        .last_shown()
        .map(|seen| to_do(&seen, scenario, target));
    let now = to_do(&look(sim)?, scenario, target);
    let could_be_known = |what: &str| seen.as_ref().is_none_or(|seen| seen.contains(what));
    let could: Vec<String> = left
        .iter()
        .filter(|(what, _)| now.contains(what) && could_be_known(what))
        .filter(|(_, why)| !HAD_ITS_TURN.contains(&why.code.code()))
        .filter(|(what, _)| !sim.world().was_just_refused(what))
        .map(|(what, why)| format!("{what} ({why})"))
        .collect();
    Ok((!could.is_empty()).then(|| SimulationFinding {
        class: Class::WrongEnding,
        what: format!(
            "all is well, it is over, and it left what can be changed: {}",
            could.join("; ")
        ),
    }))
}

/// What was left for these reasons was tried as often as policy says, and is a person's business.
const HAD_ITS_TURN: [&str; 3] = ["went-back", "could-not-be-entered", "could-not-be-prepared"];

/// The units that a plan of these facts would visit.
fn to_do(snapshot: &Snapshot, scenario: &Scenario, target: &Target) -> BTreeSet<String> {
    let plan = planned(snapshot, scenario, target);
    let waves = plan.stages().flat_map(|stage| &stage.waves);
    waves
        .flat_map(|wave| &wave.units)
        .map(ToString::to_string)
        .collect()
}

fn look(sim: &Sim) -> Result<Snapshot, SimError> {
    let mut world = sim.world();
    let now = world.time();
    let seen = world.snapshot(now);
    Ok(seen.map_err(|error| BackendError::permanent("observe the cluster", error.to_string()))?)
}

fn planned(snapshot: &Snapshot, scenario: &Scenario, target: &Target) -> Plan {
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    plan(&PlanningInput {
        snapshot,
        target,
        policy: &scenario.policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    })
}
