//! Runs a scenario through the real engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{IdError, Reason, RunId};
use stagger_core::plan::{Ask, plan};
use stagger_core::run::{Ending, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::backend::{Backend as _, BackendError};
use stagger_engine::clock::Clock as _;
use stagger_engine::driver::{DriveError, Driver, Listener, Parts, Step};
use stagger_engine::store::Store;
use stagger_engine::supervisor::{self, Identity, SuperviseError};

use crate::backend::Sim;
use crate::clock::{Pace, VirtualClock};
use crate::measure::Truth;
use crate::scenario::Scenario;
use crate::target::target;

/// How a simulation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimEnding {
    /// The run is over.
    Over(Ending),
    /// It waits for a person, and the scenario has none left.
    Held(Reason),
    /// It never came to an end.
    Endless(Reason),
}

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimReport {
    /// How it ended.
    pub ending: SimEnding,
    /// Waves passed.
    pub waves: u32,
    /// Waves of the first plan.
    pub planned_waves: usize,
    /// Units that serve on something else than before.
    pub units: usize,
    /// How long the first plan said that it takes.
    pub forecast: SignedDuration,
    /// How long it took on the virtual clock.
    pub took: SignedDuration,
    /// Events in the journal.
    pub events: u64,
    /// What came of it by the truth.
    pub truth: Truth,
    /// Guards that were left behind.
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
}

/// After so long on the virtual clock a simulation is endless.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// After so many steps at one time it is endless too.
const MOST_STEPS: u32 = 5_000;

/// Plans a scenario and runs it to its end.
///
/// # Errors
/// A name is not valid, or the store fails.
pub async fn simulate(
    scenario: &Scenario,
    store: Box<dyn Store>,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
    pace: Pace,
) -> Result<SimReport, SimError> {
    let sim = Sim::new(scenario.cluster.clone(), scenario.faults.clone())?;
    let clock = sim.clock(pace);
    let target = target(&scenario.cluster, &scenario.target, &scenario.policy)?;
    let first = {
        let mut world = sim.world();
        world
            .snapshot()
            .map_err(|e| BackendError::permanent("observe", e.to_string()))?
    };
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let forecast = plan(&Ask {
        snapshot: &first,
        target: &target,
        policy: &scenario.policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    });
    let run = RunId::new(format!("sim-{}", scenario.cluster.name))?;
    let who = Identity {
        incarnation: "simulated-1".to_owned(),
        host: "localhost".to_owned(),
        process: 1,
    };
    let parts = Parts {
        backend: Arc::new(sim.clone()),
        store,
        clock: Arc::new(clock.clone()),
        artifacts,
        listener,
    };
    let baseline = serde_json::Value::Null;
    let began = clock.now();
    let (mut driver, lease) = supervisor::start(
        parts,
        &who,
        run.clone(),
        target,
        scenario.policy.clone(),
        baseline,
    )
    .await?;
    let mut story = Story::new(scenario, began);
    let ending = story.tell(&mut driver, &sim, &clock).await?;
    let backend: Arc<dyn stagger_engine::backend::Backend> = Arc::new(sim.clone());
    lease.give_back(&backend).await.map_err(SuperviseError::from)?;
    Ok(report(
        ending,
        driver.run(),
        &sim,
        forecast.waves(),
        forecast.forecast(),
        began,
    ))
}

fn report(
    ending: SimEnding,
    run: &Run,
    sim: &Sim,
    planned_waves: usize,
    forecast: SignedDuration,
    began: Timestamp,
) -> SimReport {
    let world = sim.world();
    let from = &world.spec.release;
    SimReport {
        ending,
        waves: run.waves_passed(),
        planned_waves,
        units: world.units().filter(|(_, runs, up)| *up && *runs != from).count(),
        forecast,
        took: world.time().duration_since(began),
        events: run.seq(),
        truth: world.truth().clone(),
        guards: world.guards().map(ToString::to_string).collect(),
        run: run.start().run.clone(),
    }
}

/// What the scenario still holds in store.
#[derive(Debug)]
pub struct Story<'a> {
    scenario: &'a Scenario,
    began: Timestamp,
    asked: usize,
    healed: bool,
}

impl<'a> Story<'a> {
    /// From its beginning.
    pub fn new(scenario: &'a Scenario, began: Timestamp) -> Self {
        Self {
            scenario,
            began,
            asked: 0,
            healed: false,
        }
    }

    fn after(&self, seconds: u32) -> Timestamp {
        let seconds = SignedDuration::from_secs(i64::from(seconds));
        self.began.saturating_add(seconds).unwrap_or(Timestamp::MAX)
    }

    /// When something happens next that is not the run's doing.
    fn next(&self) -> Option<Timestamp> {
        let ask = self.scenario.asks.get(self.asked).map(|ask| self.after(ask.at));
        let heal = self
            .scenario
            .heal
            .filter(|_| !self.healed)
            .map(|at| self.after(at));
        ask.into_iter().chain(heal).min()
    }

    /// Does what is due by now.
    fn due(&mut self, driver: &mut Driver, sim: &Sim, now: Timestamp) -> Result<(), DriveError> {
        if !self.healed && self.scenario.heal.is_some_and(|at| self.after(at) <= now) {
            self.healed = true;
            let in_hand = driver
                .run()
                .wave()
                .map(|wave| wave.units.keys().cloned().collect());
            sim.world().heal(&in_hand.unwrap_or_default());
        }
        while let Some(ask) = self.scenario.asks.get(self.asked)
            && self.after(ask.at) <= now
        {
            self.asked += 1;
            if driver.run().ended().is_none() {
                driver.ask(ask.command.clone(), "the scenario")?;
            }
        }
        Ok(())
    }

    /// Drives a run until it is over, or held with nobody left to help.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn tell(
        &mut self,
        driver: &mut Driver,
        sim: &Sim,
        clock: &VirtualClock,
    ) -> Result<SimEnding, DriveError> {
        let poll = SignedDuration::try_from(sim.poll()).unwrap_or(SignedDuration::from_secs(1));
        let (mut then, mut steps) = (self.began, 0);
        loop {
            let now = clock.now();
            // A run that turns in a circle writes without an end while no time passes.
            steps = if now == then { steps + 1 } else { 0 };
            then = now;
            if steps > MOST_STEPS {
                let why = Reason::new("turns-in-a-circle", format!("{steps} steps at one time"));
                return Ok(SimEnding::Endless(why));
            }
            self.due(driver, sim, now)?;
            let next = self.next().unwrap_or(Timestamp::MAX);
            let too_long = now.duration_since(self.began) > LONGEST;
            match driver.step().await? {
                Step::Again => {}
                Step::Over(ending) => return Ok(SimEnding::Over(ending)),
                // It is held and would go on by itself, but nothing happens any more.
                Step::Wait { .. }
                    if next == Timestamp::MAX && sim.world().is_quiet() && driver.run().held().is_some() =>
                {
                    let held = driver.run().held().map(|(reason, _)| reason.clone());
                    return Ok(held.map_or(SimEnding::Endless(Reason::new("held", "")), SimEnding::Held));
                }
                Step::Wait { why, .. } if too_long => return Ok(SimEnding::Endless(why)),
                Step::Wait { until, .. } => clock.sleep_until(until.min(next)).await,
                Step::Held(why) if too_long => return Ok(SimEnding::Endless(why)),
                Step::Held(_) if !sim.world().is_quiet() || next < Timestamp::MAX => {
                    let soon = now.saturating_add(poll).unwrap_or(Timestamp::MAX);
                    clock.sleep_until(soon.min(next)).await;
                }
                Step::Held(reason) => return Ok(SimEnding::Held(reason)),
            }
        }
    }
}
