//! One run on a copy, from its beginning to where it ends or stands still.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{IdError, PartName, Reason, RunId, Topology};
use stagger_core::plan::{LeftAlone, Plan};
use stagger_core::run::{Action, Entry, Event, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::Backend;
use stagger_engine::driver::{DriveError, Driver, DriverParts, DriverStep, Listener};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::StoreError;
use stagger_engine::supervisor::{self, Identity, SuperviseError};

use super::CopyRehearsal;
use crate::backend::Sim;
use crate::clock::{ClockError, ClockSpeed, VirtualClock};
use crate::scenario::InjectedFault;
use crate::simulate::SimEnding;
use crate::world::GuestsMoved;
use crate::world::{PgExposure, WaveName};

/// How a run on a copy went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsalRun {
    /// How it ended, or what it stands still for.
    pub ending: SimEnding,
    /// Waves passed.
    pub waves: u32,
    /// Units that it changed.
    pub units: usize,
    /// How long it took on the virtual clock. One that is held counts until then.
    pub took: SignedDuration,
    /// Its first plan.
    pub plan: Option<Plan>,
    /// The one-way doors that it passed.
    pub doors: Vec<PartName>,
    /// The units that its last plan left alone.
    pub left_alone: Vec<LeftAlone>,
    /// What it came to for the placement groups.
    pub exposure: PgExposure,
    /// What became of guests, where hosts have them.
    pub guests: Option<GuestsMoved>,
}

/// A rehearsal that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RehearseError {
    /// A name of the copy.
    #[error("a name in the copy of the cluster is not valid")]
    Name(#[from] IdError),
    /// The journal in memory.
    #[error("the journal of a simulated run cannot be kept")]
    Store(#[from] StoreError),
    /// A run could not be started.
    #[error("a simulated run could not be started")]
    Supervise(#[from] SuperviseError),
    /// A run could not be driven.
    #[error("a simulated run could not be driven")]
    Drive(#[from] DriveError),
    /// The copy cannot be played.
    #[error("a simulated run cannot be played")]
    Play(#[from] ClockError),
}

/// After so long on the virtual clock a run has no end. Windows for maintenance may be rare.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 60);
/// Held for so long, nothing more will happen.
const HELD: SignedDuration = SignedDuration::from_hours(1);
/// After so many steps at one time a run turns in a circle.
const MOST_STEPS: u32 = 5_000;

/// Makes runs of one rehearsal.
pub(super) struct RehearsalRunner<'a> {
    what: &'a CopyRehearsal,
}

impl<'a> RehearsalRunner<'a> {
    pub(super) fn new(what: &'a CopyRehearsal) -> Self {
        Self { what }
    }

    /// Carries out one run, with these faults.
    pub(super) fn run(
        &self,
        number: usize,
        faults: Vec<InjectedFault>,
    ) -> Result<RehearsalRun, RehearseError> {
        let sim = Sim::copied(&self.what.copy, self.what.seed, faults)?;
        sim.carry_out(ClockSpeed::Fast, self.one_run(number, &sim))?
    }

    async fn one_run(&self, number: usize, sim: &Sim) -> Result<RehearsalRun, RehearseError> {
        let CopyRehearsal {
            target,
            policy,
            scratch,
            ..
        } = self.what;
        sim.world().wants(target);
        let clock = sim.clock();
        let noted: Arc<Mutex<RunNotes>> = Arc::default();
        let who = Identity {
            incarnation: "simulated-1".to_owned(),
            host: "localhost".to_owned(),
            process: 1,
        };
        let backend: Arc<dyn Backend> = Arc::new(sim.clone());
        let parts = DriverParts {
            backend: Arc::clone(&backend),
            store: Box::new(SqliteStore::in_memory()?),
            clock: Arc::new(clock.clone()),
            artifacts: Artifacts::in_folder(scratch.clone()),
            listener: Box::new(RunListener {
                sim: sim.clone(),
                noted: Arc::clone(&noted),
            }),
        };
        let began = clock.now();
        let (mut driver, lease) = supervisor::start(
            parts,
            &who,
            RunId::new(format!("rehearsal-{number}"))?,
            target.clone(),
            policy.clone(),
            serde_json::Value::Null,
            Topology::default(),
        )
        .await?;
        let ending = drive(&mut driver, sim, &clock).await?;
        lease.release(&backend).await.map_err(SuperviseError::from)?;
        let run = driver.run();
        // What it waited for in vain does not count.
        let ended = match (&ending, run.held()) {
            (SimEnding::Held(_), Some((_, since))) => since,
            (SimEnding::Held(_) | SimEnding::Over(_) | SimEnding::Endless(_), _) => clock.now(),
        };
        let noted = std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner));
        let mut world = sim.world();
        let (exposure, guests) = (world.exposure(), world.guests_moved());
        Ok(RehearsalRun {
            ending,
            waves: run.waves_passed(),
            units: run.changed(),
            took: ended.duration_since(began),
            plan: noted.first,
            doors: noted.doors,
            left_alone: run.plan().map(|plan| plan.left_alone.clone()).unwrap_or_default(),
            exposure,
            guests,
        })
    }
}

/// Drives a run until it is over, or held with nothing to come that would release it.
async fn drive(driver: &mut Driver, sim: &Sim, clock: &VirtualClock) -> Result<SimEnding, DriveError> {
    let began = clock.now();
    let (mut then, mut steps) = (began, 0);
    let after = |now: Timestamp, time| now.saturating_add(time).unwrap_or(Timestamp::MAX);
    loop {
        let now = clock.now();
        steps = if now == then { steps + 1 } else { 0 };
        then = now;
        if steps > MOST_STEPS {
            let why = Reason::of_backend("turns-in-a-circle", format!("{steps} steps at one time"));
            return Ok(SimEnding::Endless(why));
        }
        let stepped = driver.step().await?;
        let held = driver.run().held().map(|(why, since)| (why.clone(), since));
        // Even where nothing is due any more: a gate that has opened by itself has to hold for its time.
        let for_good = |since: Timestamp| now.duration_since(since) > HELD;
        match (stepped, held) {
            (DriverStep::Again, _) => {}
            (DriverStep::Over(ending), _) => return Ok(SimEnding::Over(ending)),
            (DriverStep::Wait { .. } | DriverStep::Held(_), Some((why, since))) if for_good(since) => {
                return Ok(SimEnding::Held(why));
            }
            (DriverStep::Wait { why, .. } | DriverStep::Held(why), _)
                if now.duration_since(began) > LONGEST =>
            {
                return Ok(SimEnding::Endless(why));
            }
            // Until something happens or a time comes each look shows the same: none of them is made.
            (DriverStep::Wait { until, .. }, _) => {
                let look = sim.world().next_look();
                clock
                    .sleep_until(look.map_or(until, |look| look.min(until)))
                    .await;
            }
            (DriverStep::Held(_), _) => {
                let look = sim.world().next_look();
                clock.sleep_until(look.unwrap_or_else(|| after(now, HELD))).await;
            }
        }
    }
}

/// What is noted of a run while it goes on.
#[derive(Debug, Default)]
struct RunNotes {
    first: Option<Plan>,
    doors: Vec<PartName>,
    waves: std::collections::BTreeMap<PartName, u32>,
}

struct RunListener {
    sim: Sim,
    noted: Arc<Mutex<RunNotes>>,
}

impl Listener for RunListener {
    fn event(&mut self, entry: &Entry, run: &Run) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            Event::Planned { plan } if noted.first.is_none() => noted.first = Some((**plan).clone()),
            Event::WaveOpened { stage, .. } => {
                let wave = run.plan().and_then(|plan| plan.stage(stage)?.waves.first());
                let door = wave.and_then(|wave| wave.door.as_ref());
                if let Some(door) = door.filter(|door| !noted.doors.contains(&door.name)) {
                    noted.doors.push(door.name.clone());
                }
                let number = noted.waves.entry(stage.clone()).or_default();
                *number += 1;
                self.sim.world().wave_opened(WaveName {
                    stage: stage.to_string(),
                    number: *number,
                });
            }
            Event::Intent {
                action: Action::Step { step },
                ..
            } => {
                let spec = run.start().target.step(step);
                if let Some(door) = spec.and_then(|spec| spec.door.as_ref()) {
                    noted.doors.push(door.name.clone());
                }
            }
            _ => {}
        }
    }
}
