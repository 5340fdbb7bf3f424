//! What happens in a scenario while its run is driven: all is healed, commands are sent, and a person looks after it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Reason, RunId, UnitId};
use stagger_core::run::{Command, Run};
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::Executor as _;
use stagger_engine::driver::{DriveError, Driver, DriverStep};
use stagger_engine::store::JournalStore as _;

use super::ending::SimEnding;
use super::journal::SharedJournal;
use super::operator::{OperatorAction, OperatorState, known_outcomes};
use crate::backend::Sim;
use crate::scenario::Scenario;

/// After so long on the virtual clock a simulation is endless.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// After so many steps at one time it is endless too.
const MOST_STEPS: u32 = 5_000;

/// What a run has in its hands.
pub(crate) fn units_in_progress(run: &Run) -> BTreeSet<UnitId> {
    let units = run.wave().map(|wave| wave.units.keys().cloned().collect());
    units.unwrap_or_default()
}

/// Drives a run through what a scenario has in store for it. Clones share how far it has come.
#[derive(Clone)]
pub struct ScenarioDriver<'a> {
    scenario: &'a Scenario,
    began: Timestamp,
    progress: Arc<Mutex<ScenarioProgress>>,
    /// Where people leave what they say.
    journal: Option<SharedJournal>,
}

/// How far a scenario has come.
#[derive(Debug, Clone, Default)]
struct ScenarioProgress {
    commands_sent: usize,
    healed: bool,
    operator: OperatorState,
    /// Since when a person knows that nobody can carry the run on, as hosts do not answer.
    strays_since: Option<Timestamp>,
}

/// What the person who looks after a run does now.
enum OperatorTurn {
    /// Nobody does, or nothing helps.
    Nobody,
    /// They look then.
    Then(Timestamp),
    /// They have done something.
    Acted,
}

impl<'a> ScenarioDriver<'a> {
    /// From its beginning.
    pub fn new(scenario: &'a Scenario, began: Timestamp) -> Self {
        Self {
            scenario,
            began,
            progress: Arc::default(),
            journal: None,
        }
    }

    /// The same with what people say left in that journal.
    pub(crate) fn with(mut self, journal: SharedJournal) -> Self {
        self.journal = Some(journal);
        self
    }

    fn progress(&self) -> MutexGuard<'_, ScenarioProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the person knows who looks after the run.
    pub(super) fn operator(&self) -> OperatorState {
        self.progress().operator.clone()
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
        let progress = self.progress();
        let ask = self
            .scenario
            .asks
            .get(progress.commands_sent)
            .map(|ask| self.after(ask.at));
        let heal = self.scenario.heal.filter(|_| !progress.healed);
        let heal = heal.map(|at| self.after(at));
        ask.into_iter().chain(heal).min()
    }

    /// Whether it is time for all to be healed, but what the run has in its hands. Told once.
    pub(crate) fn is_to_heal(&self, sim: &Sim) -> bool {
        let now = sim.world().time();
        let is_due = self.scenario.heal.is_some_and(|at| self.after(at) <= now);
        is_due && !std::mem::replace(&mut self.progress().healed, is_due)
    }

    /// Whoever looks after the run has heard that it cannot be carried on, since hosts do not answer: of those that are off
    /// they say so.
    pub(crate) async fn record_reported_strays(&self, sim: &Sim, run: &RunId) {
        let Some(person) = self.scenario.person else {
            return;
        };
        let now = sim.world().time();
        let since = *self.progress().strays_since.get_or_insert(now);
        let after = SignedDuration::from_secs(i64::from(person.after));
        if now < since.saturating_add(after).unwrap_or(Timestamp::MAX) {
            return;
        }
        self.progress().strays_since = None;
        let said = known_outcomes(&sim.world());
        for command in said {
            if let Some(journal) = &self.journal {
                journal.clone().ask(run, now, &command, "an operator").await.ok();
            }
        }
    }

    /// Does what is due by now.
    async fn due(&self, driver: &mut Driver, sim: &Sim, now: Timestamp) -> Result<(), DriveError> {
        let is_due = |at: u32| self.after(at) <= now;
        if self.is_to_heal(sim) {
            sim.world().heal(&units_in_progress(driver.run()));
        }
        let next = || self.scenario.asks.get(self.progress().commands_sent);
        while let Some(ask) = next().filter(|ask| is_due(ask.at)) {
            self.progress().commands_sent += 1;
            if driver.run().ended().is_none() {
                self.say(driver, sim, &ask.command, "the scenario").await?;
            }
        }
        Ok(())
    }

    async fn say(&self, driver: &mut Driver, sim: &Sim, what: &Command, by: &str) -> Result<(), DriveError> {
        sim.world().record_command(what);
        match &self.journal {
            Some(journal) => {
                let at = sim.world().time();
                // Where it cannot be left it is said again later.
                let run = &driver.run().start().run;
                journal.clone().ask(run, at, what, by).await.ok();
                Ok(())
            }
            None => driver.ask(what.clone(), by).await,
        }
    }

    /// Whoever looks after the run has heard that it is held.
    async fn look(
        &self,
        driver: &mut Driver,
        sim: &Sim,
        reason: &Reason,
    ) -> Result<OperatorTurn, DriveError> {
        let Some(person) = self.scenario.person else {
            return Ok(OperatorTurn::Nobody);
        };
        let now = sim.world().time();
        let mut operator = self.progress().operator.clone();
        if !operator.has_actions_left() {
            return Ok(OperatorTurn::Nobody);
        }
        let since = operator.held_since(reason, now);
        let after = SignedDuration::from_secs(i64::from(person.after)) * operator.waits(reason);
        let then = since.saturating_add(after).unwrap_or(Timestamp::MAX);
        if now < then {
            self.progress().operator = operator;
            return Ok(OperatorTurn::Then(then));
        }
        let acts = person.acts(&mut operator, driver.run(), reason, &sim.world());
        self.progress().operator = operator;
        for act in acts {
            match act {
                OperatorAction::Start => sim.world().start_all(&units_in_progress(driver.run())),
                OperatorAction::Pools => sim.world().serve_with_one_less(),
                OperatorAction::Say(command) => self.say(driver, sim, &command, "an operator").await?,
            }
        }
        Ok(OperatorTurn::Acted)
    }

    /// Drives a run until it is over, or held with nobody left to help.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn drive(&self, driver: &mut Driver, sim: &Sim) -> Result<SimEnding, DriveError> {
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
            self.due(driver, sim, now).await?;
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
                DriverStep::Held(reason) => Some(reason.clone()),
                DriverStep::Wait { .. } => driver.run().held().map(|(reason, _)| reason.clone()),
                DriverStep::Again | DriverStep::Over(_) => None,
            };
            let looks = match held {
                Some(reason) => self.look(driver, sim, &reason).await?,
                None => OperatorTurn::Nobody,
            };
            let looks = match looks {
                OperatorTurn::Acted => continue,
                OperatorTurn::Then(then) => Some(then),
                OperatorTurn::Nobody => None,
            };
            if matches!(step, DriverStep::Wait { .. }) && looks.is_none() {
                self.progress().operator.clear_hold();
            }
            let quiet = quiet && looks.is_none();
            let for_good = for_good && looks.is_none();
            let next = next.into_iter().chain(looks).min();
            let wait = match step {
                DriverStep::Again => continue,
                DriverStep::Over(ending) => return Ok(SimEnding::Over(ending)),
                // It is held and would go on by itself, but nothing happens any more.
                DriverStep::Wait { .. } if for_good && driver.run().held().is_some() => {
                    let held = driver.run().held().map(|(reason, _)| reason.clone());
                    return Ok(held.map_or(
                        SimEnding::Endless(Reason::of_backend("held", "")),
                        SimEnding::Held,
                    ));
                }
                DriverStep::Wait { why, .. } | DriverStep::Held(why) if too_long => {
                    return Ok(SimEnding::Endless(why));
                }
                DriverStep::Wait { until, .. } => until.duration_since(clock.now()),
                DriverStep::Held(reason) if quiet => return Ok(SimEnding::Held(reason)),
                // Until something happens, whoever looks sees what was there before.
                DriverStep::Held(_) => {
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
