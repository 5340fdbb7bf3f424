//! Runs a scenario through the real engine.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{IdError, Reason, RunId, Snapshot, Target, Topology, UnitId};
use stagger_core::plan::{Plan, PlanningInput, plan};
use stagger_core::run::{Command, Ending, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::backend::{Backend as _, BackendError};
use stagger_engine::clock::Clock;
use stagger_engine::driver::{DriveError, Driver, Listener, Step};
use stagger_engine::store::Store;
use stagger_engine::supervisor::{self, SuperviseError};

use crate::backend::Sim;
use crate::clock::{Pace, PlayError};
use crate::conductors::{Conductor, Ill, Stage};
use crate::findings::{Class, Finding, findings};
use crate::journal::{JournalIll, Shared};
use crate::measure::Truth;
use crate::person::{Act, Looked, confirmations};
use crate::scenario::Scenario;
use crate::target::target;
use crate::world::Grace;

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

impl SimEnding {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Over(Ending::Done) => "done",
            Self::Over(Ending::Incomplete { .. }) => "incomplete",
            Self::Over(Ending::RolledBack { .. }) => "rolled-back",
            Self::Over(Ending::Aborted) => "aborted",
            Self::Held(_) => "held",
            Self::Endless(_) => "endless",
        }
    }

    /// The stable word of its reason, if it has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Over(Ending::RolledBack { reason }) | Self::Held(reason) | Self::Endless(reason) => {
                Some(reason.code.code())
            }
            Self::Over(Ending::Done | Ending::Incomplete { .. } | Ending::Aborted) => None,
        }
    }
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
    pub truth: Truth,
    /// All that the truth found against the run.
    pub findings: Vec<Finding>,
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
    /// The world cannot be played.
    #[error("the scenario cannot be played")]
    Play(#[from] PlayError),
    /// The processes never come to an end.
    #[error("the run is carried on again and again, and never comes to an end")]
    NoEnd,
}

/// After so long on the virtual clock a simulation is endless.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// After so many steps at one time it is endless too.
const MOST_STEPS: u32 = 5_000;

/// Plans a scenario and runs it to its end, on this thread, which must not be one of a runtime.
///
/// # Errors
/// A name is not valid, or the store fails.
pub fn simulate(
    scenario: &Scenario,
    store: Box<dyn Store>,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
    pace: Pace,
) -> Result<SimReport, SimError> {
    let sim = Sim::new(scenario.cluster.clone(), scenario.faults.clone())?;
    sim.carry_out(pace, one_run(&sim, scenario, store, artifacts, listener))?
}

/// Several processes carry the run out, one after another; who comes to its end first ends the story.
async fn conducted(stage: &Stage<'_>, conductors: &[Conductor]) -> Result<SimEnding, SimError> {
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
    store: Box<dyn Store>,
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
    let shared = Shared::new(sim, store, &scenario.journal);
    let story = Story::new(scenario, began).with(shared.clone());
    let alone = [Conductor::default()];
    let stage = Stage {
        scenario,
        sim,
        run: run.clone(),
        topology: Topology::of(&seen),
        store: shared.clone(),
        artifacts,
        listener: Arc::new(Mutex::new(listener)),
        story,
        tries: AtomicU32::new(0),
    };
    let conductors = match scenario.conductors.as_slice() {
        [] => &alone,
        several => several,
    };
    let ending = conducted(&stage, conductors).await?;
    let carried_out = supervisor::replay(&shared, &run)?;
    let looked = stage.story.told().looked.clone();
    sim.world().watch_the_end();
    // Before anybody looks again: what was last seen is what the run could know.
    let mut findings = findings(&ending, &sim.world(), scenario.person.is_some());
    findings.extend(could_go_on(&ending, sim, scenario, &target)?);
    let world = sim.world();
    let from = &world.spec.release;
    Ok(SimReport {
        findings,
        ending,
        helped: looked.acts(),
        helped_last: looked.last().map(str::to_owned),
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
fn grace(scenario: &Scenario) -> Grace {
    let seconds = &scenario.cluster.seconds;
    // The word of a judge is on its way, and so is the call that it permits.
    let on_the_way = u64::from(seconds.ask) + u64::from(seconds.call);
    Grace {
        approval: Some(u64::from(scenario.policy.approval_age) + on_the_way),
        to_notice: if scenario.is_calm() {
            Grace::TO_NOTICE_CALMLY
        } else {
            Grace::USUAL.to_notice + nobody_can(scenario)
        },
    }
}

/// For so many seconds nobody can carry the run out, whoever follows whom: whoever stands still least does so for so long, and
/// without a journal nobody does anything.
fn nobody_can(scenario: &Scenario) -> u64 {
    let still = scenario.conductors.iter().map(|conductor| {
        let ills = conductor.ills.iter().map(|ill| match *ill {
            Ill::Paused { lasts, .. } | Ill::Frozen { lasts, .. } | Ill::CutOff { lasts, .. } => lasts,
            Ill::Killed { again, .. } => again,
            Ill::ClockSet { .. } => 0,
        });
        ills.map(u64::from).sum::<u64>()
    });
    let full = scenario.journal.iter().map(|ill| match *ill {
        JournalIll::Full { lasts, .. } => u64::from(lasts),
        JournalIll::Torn { .. } | JournalIll::Unsure { .. } | JournalIll::PutBack { .. } => 0,
    });
    still.min().unwrap_or_default() + full.sum::<u64>()
}

/// A run that was over when all was well again, and left what can be done: it could have been finished.
fn could_go_on(
    ending: &SimEnding,
    sim: &Sim,
    scenario: &Scenario,
    target: &Target,
) -> Result<Option<Finding>, SimError> {
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
    Ok((!could.is_empty()).then(|| Finding {
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

/// What a run has in its hands.
pub(crate) fn in_hand(run: &Run) -> BTreeSet<UnitId> {
    let units = run.wave().map(|wave| wave.units.keys().cloned().collect());
    units.unwrap_or_default()
}

/// What the scenario still holds in store. Clones share what was told of it.
#[derive(Clone)]
pub struct Story<'a> {
    scenario: &'a Scenario,
    began: Timestamp,
    told: Arc<Mutex<Told>>,
    /// Where people leave what they say.
    journal: Option<Shared>,
}

/// How far a story was told.
#[derive(Debug, Clone, Default)]
struct Told {
    asked: usize,
    healed: bool,
    looked: Looked,
    /// Since when a person knows that nobody can carry the run on, as hosts do not answer.
    strays_since: Option<Timestamp>,
}

/// What the person who looks after a run does now.
enum Looks {
    /// Nobody does, or nothing helps.
    Nobody,
    /// They look then.
    Then(Timestamp),
    /// They have done something.
    Acted,
}

impl<'a> Story<'a> {
    /// From its beginning.
    pub fn new(scenario: &'a Scenario, began: Timestamp) -> Self {
        Self {
            scenario,
            began,
            told: Arc::default(),
            journal: None,
        }
    }

    /// The same with what people say left in that journal.
    pub(crate) fn with(mut self, journal: Shared) -> Self {
        self.journal = Some(journal);
        self
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&self, seconds: u32) -> Timestamp {
        let seconds = SignedDuration::from_secs(i64::from(seconds));
        self.began.saturating_add(seconds).unwrap_or(Timestamp::MAX)
    }

    /// How long the run may need to see that all is well.
    fn to_open(&self) -> SignedDuration {
        let policy = &self.scenario.policy;
        let seconds = policy.gate_hold + policy.soak.max(policy.canary_soak) + policy.retry.longest;
        SignedDuration::from_secs(i64::from(seconds) + 60)
    }

    /// When something happens next that is not the run's doing.
    fn next(&self) -> Option<Timestamp> {
        let told = self.told();
        let ask = self.scenario.asks.get(told.asked).map(|ask| self.after(ask.at));
        let heal = self.scenario.heal.filter(|_| !told.healed);
        let heal = heal.map(|at| self.after(at));
        ask.into_iter().chain(heal).min()
    }

    /// All is healed, if it is time, but what the run has in its hands.
    pub(crate) fn heal(&self, sim: &Sim, in_hand: impl FnOnce() -> BTreeSet<UnitId>) {
        let now = sim.world().time();
        let is_due = self.scenario.heal.is_some_and(|at| self.after(at) <= now);
        if is_due && !std::mem::replace(&mut self.told().healed, is_due) {
            let in_hand = in_hand();
            sim.world().heal(&in_hand);
        }
    }

    /// Whoever looks after the run has heard that it cannot be carried on, since hosts do not answer: of those that are off
    /// they say so.
    pub(crate) fn hears_of_strays(&self, sim: &Sim, run: &RunId) {
        let Some(person) = self.scenario.person else {
            return;
        };
        let now = sim.world().time();
        let since = *self.told().strays_since.get_or_insert(now);
        let after = SignedDuration::from_secs(i64::from(person.after));
        if now < since.saturating_add(after).unwrap_or(Timestamp::MAX) {
            return;
        }
        self.told().strays_since = None;
        let said = confirmations(&sim.world());
        for command in said {
            if let Some(journal) = &self.journal {
                journal.clone().ask(run, now, &command, "a person").ok();
            }
        }
    }

    /// Does what is due by now.
    fn due(&self, driver: &mut Driver, sim: &Sim, now: Timestamp) -> Result<(), DriveError> {
        let is_due = |at: u32| self.after(at) <= now;
        self.heal(sim, || in_hand(driver.run()));
        let next = || self.scenario.asks.get(self.told().asked);
        while let Some(ask) = next().filter(|ask| is_due(ask.at)) {
            self.told().asked += 1;
            if driver.run().ended().is_none() {
                self.say(driver, sim, &ask.command, "the scenario")?;
            }
        }
        Ok(())
    }

    fn say(&self, driver: &mut Driver, sim: &Sim, what: &Command, by: &str) -> Result<(), DriveError> {
        sim.world().asked(what);
        match &self.journal {
            Some(journal) => {
                let at = sim.world().time();
                // Where it cannot be left it is said again later.
                journal.clone().ask(&driver.run().start().run, at, what, by).ok();
                Ok(())
            }
            None => driver.ask(what.clone(), by),
        }
    }

    /// Whoever looks after the run has heard that it is held.
    fn look(&self, driver: &mut Driver, sim: &Sim, reason: &Reason) -> Result<Looks, DriveError> {
        let Some(person) = self.scenario.person else {
            return Ok(Looks::Nobody);
        };
        let now = sim.world().time();
        let mut looked = self.told().looked.clone();
        if !looked.can_help() {
            return Ok(Looks::Nobody);
        }
        let since = looked.held_since(reason, now);
        let after = SignedDuration::from_secs(i64::from(person.after)) * looked.waits(reason);
        let then = since.saturating_add(after).unwrap_or(Timestamp::MAX);
        if now < then {
            self.told().looked = looked;
            return Ok(Looks::Then(then));
        }
        let acts = person.acts(&mut looked, driver.run(), reason, &sim.world());
        self.told().looked = looked;
        for act in acts {
            match act {
                Act::Start => sim.world().start_all(&in_hand(driver.run())),
                Act::Pools => sim.world().serve_with_one_less(),
                Act::Say(command) => self.say(driver, sim, &command, "a person")?,
            }
        }
        Ok(Looks::Acted)
    }

    /// Drives a run until it is over, or held with nobody left to help.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn tell(&self, driver: &mut Driver, sim: &Sim) -> Result<SimEnding, DriveError> {
        let clock = driver.clock();
        let poll = SignedDuration::try_from(sim.poll()).unwrap_or(SignedDuration::from_secs(1));
        let (mut then, mut steps) = (self.began, 0);
        let mut busy = self.began;
        loop {
            let now = sim.world().time();
            // A run that turns in a circle writes without an end while no time passes.
            steps = if now == then { steps + 1 } else { 0 };
            then = now;
            if steps > MOST_STEPS {
                let why = Reason::of_backend("turns-in-a-circle", format!("{steps} steps at one time"));
                return Ok(SimEnding::Endless(why));
            }
            self.due(driver, sim, now)?;
            let next = self.next();
            let quiet = sim.world().is_quiet() && next.is_none();
            if !quiet {
                busy = now;
            }
            // A gate that has opened by itself has to hold for its time before the run goes on.
            let for_good = quiet && now.duration_since(busy) > self.to_open();
            let too_long = now.duration_since(self.began) > LONGEST;
            let step = driver.step().await?;
            let held = match &step {
                Step::Held(reason) => Some(reason.clone()),
                Step::Wait { .. } => driver.run().held().map(|(reason, _)| reason.clone()),
                Step::Again | Step::Over(_) => None,
            };
            let looks = match held {
                Some(reason) => self.look(driver, sim, &reason)?,
                None => Looks::Nobody,
            };
            let looks = match looks {
                Looks::Acted => continue,
                Looks::Then(then) => Some(then),
                Looks::Nobody => None,
            };
            if matches!(step, Step::Wait { .. }) && looks.is_none() {
                self.told().looked.goes_on();
            }
            let quiet = quiet && looks.is_none();
            let for_good = for_good && looks.is_none();
            let next = next.into_iter().chain(looks).min();
            let wait = match step {
                Step::Again => continue,
                Step::Over(ending) => return Ok(SimEnding::Over(ending)),
                // It is held and would go on by itself, but nothing happens any more.
                Step::Wait { .. } if for_good && driver.run().held().is_some() => {
                    let held = driver.run().held().map(|(reason, _)| reason.clone());
                    return Ok(held.map_or(
                        SimEnding::Endless(Reason::of_backend("held", "")),
                        SimEnding::Held,
                    ));
                }
                Step::Wait { why, .. } | Step::Held(why) if too_long => return Ok(SimEnding::Endless(why)),
                Step::Wait { until, .. } => until.duration_since(clock.now()),
                Step::Held(reason) if quiet => return Ok(SimEnding::Held(reason)),
                // Until something happens, whoever looks sees what was there before.
                Step::Held(_) => {
                    let world = sim.world();
                    let looks = world.next_look().map(|look| look.duration_since(world.time()));
                    looks.unwrap_or(poll).max(poll)
                }
            };
            let until_next = next.map(|next| next.duration_since(sim.world().time()));
            let wait = until_next
                .map_or(wait, |next| next.min(wait))
                .max(SignedDuration::ZERO);
            clock.pause(wait.unsigned_abs()).await;
        }
    }
}
