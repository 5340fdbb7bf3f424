//! A run is a fold over its journal.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::event::{Action, Answer, Command, Ending, Entry, Event, Outcome, Seq, Start};
use super::{join, outside};
use crate::model::{ConditionName, GuardName, OnFailure, PartName, Phase, Reason, Revision, UnitId};
use crate::plan::{Move, Plan};

/// An event that cannot follow those before it: the journal is not one of ours, or was altered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("journal event {seq} cannot follow those before it: {why}")]
pub struct IllegalEvent {
    /// The event's place.
    pub seq: Seq,
    /// Why not.
    pub why: &'static str,
}

/// What a run has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub(super) start: Box<Start>,
    pub(super) started_at: Timestamp,
    pub(super) seq: Seq,
    pub(super) fence: u64,
    pub(super) holder: String,
    /// The newest token whose holder has written something of its own: before that it had ruled out
    /// stray calls of all holders before.
    pub(super) ruled_out: u64,
    /// The place of the last event that changed the world, or may have: what was observed before it
    /// is old.
    pub(super) changed: Seq,
    pub(super) plan: Option<Box<Plan>>,
    /// Whether the plan was made since the last wave ended.
    pub(super) plan_is_fresh: bool,
    pub(super) open: BTreeMap<Seq, Action>,
    pub(super) wave: Option<OpenWave>,
    pub(super) guards: BTreeMap<(GuardName, Vec<UnitId>), TakenGuard>,
    /// Waves passed in each stage: growth goes on from there.
    pub(super) earned: BTreeMap<PartName, u32>,
    /// What this run has changed, with what it ran before.
    pub(super) done: BTreeMap<UnitId, Revision>,
    pub(super) last_wave: Option<LastWave>,
    pub(super) aside: BTreeMap<UnitId, Aside>,
    pub(super) judged: Option<Judged>,
    pub(super) gates: Option<Gates>,
    pub(super) doors: BTreeSet<PartName>,
    pub(super) steps: BTreeSet<PartName>,
    pub(super) step: Option<SettledStep>,
    pub(super) paused: bool,
    pub(super) aborting: bool,
    pub(super) going_back: Option<Reason>,
    /// A wave failed and is back on the release before: the run ends there.
    pub(super) rolled_back: Option<Reason>,
    pub(super) held: Option<(Reason, Timestamp)>,
    pub(super) ended: Option<Ending>,
}

/// A wave being carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWave {
    /// Of which stage.
    pub stage: PartName,
    /// Its units, with what they ran before.
    pub units: BTreeMap<UnitId, Visit>,
    /// What did not serve before it was opened.
    pub not_serving: Vec<UnitId>,
    /// What is done to the guests of its units while they are down.
    pub moves: Vec<Move>,
    /// When it was opened.
    pub opened: Timestamp,
    /// Since when its gates are waited for.
    pub waiting: Option<Timestamp>,
    /// Whether both judges agreed to it.
    pub agreed: bool,
    /// Why it failed, if it did: it is on its way back.
    pub failed: Option<(Vec<UnitId>, Reason)>,
    /// How often the wait for its gates was prolonged because recovery made progress.
    pub prolonged: u32,
    /// Whether what tells later what happened was gathered.
    pub collected: bool,
    /// Whether it brings its units back to the release before.
    pub back: bool,
}

/// How far a unit's turn has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// What it ran before.
    pub before: Revision,
    /// The last phase that was done.
    pub done: Option<Phase>,
    /// Why the phase after it failed, if it did.
    pub failed: Option<String>,
    /// Whether it could be neither entered nor left: nothing of it was changed.
    pub stuck: bool,
    /// Whether the corrective restart was tried, or of one that is stuck to leave it once more.
    pub restarted: bool,
    /// Whether it was brought back; `Err`: why it could not be.
    pub went_back: Option<Result<(), String>>,
    /// Whether that made its data anew.
    pub rebuilt: bool,
    /// When its turn began.
    pub since: Option<Timestamp>,
}

/// A guard that was taken, or may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TakenGuard {
    /// When it goes by itself.
    pub(super) until: Timestamp,
    /// Why taking it failed, if it did and it was not held before.
    pub(super) failed: Option<String>,
    /// When taking or renewing it failed the last time, if it has not been done since.
    pub(super) tried: Option<Timestamp>,
    /// How often giving it back was tried in vain.
    pub(super) drops: u32,
}

/// The last step that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettledStep {
    pub(super) step: PartName,
    pub(super) failed: Option<String>,
    pub(super) at: Timestamp,
}

/// The wave before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastWave {
    pub(super) at: Timestamp,
    /// It was the first of its stage in this run.
    pub(super) canary: bool,
}

/// A unit that is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aside {
    pub(super) reason: Reason,
    pub(super) until: Option<Timestamp>,
    pub(super) tries: u32,
}

/// The last answers of the judges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) answers: BTreeMap<Vec<UnitId>, (Answer, Answer)>,
}

/// Which gates are shut, since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gates {
    pub(super) shut: Vec<(ConditionName, String)>,
    pub(super) since: Timestamp,
}

impl State {
    /// The state after the first event, which must be `Started`.
    pub(super) fn first(entry: Entry) -> Result<Self, IllegalEvent> {
        let Entry { seq, at, event } = entry;
        let Event::Started(start) = event else {
            return Err(IllegalEvent {
                seq,
                why: "the first event must be the start",
            });
        };
        if start.version > super::VERSION {
            return Err(IllegalEvent {
                seq,
                why: "it was written by a later release of stagger",
            });
        }
        Ok(Self {
            start,
            started_at: at,
            seq,
            fence: 0,
            holder: String::new(),
            ruled_out: 0,
            changed: seq,
            plan: None,
            plan_is_fresh: false,
            open: BTreeMap::new(),
            wave: None,
            guards: BTreeMap::new(),
            earned: BTreeMap::new(),
            done: BTreeMap::new(),
            last_wave: None,
            aside: BTreeMap::new(),
            judged: None,
            gates: None,
            doors: BTreeSet::new(),
            steps: BTreeSet::new(),
            step: None,
            paused: false,
            aborting: false,
            going_back: None,
            rolled_back: None,
            held: None,
            ended: None,
        })
    }

    /// The state after one more event: the whole legal history in one match.
    #[expect(clippy::too_many_lines, reason = "the whole legal history in one match")]
    pub(super) fn apply(&mut self, entry: Entry) -> Result<(), IllegalEvent> {
        let Entry { seq, at, event } = entry;
        let illegal = |why| Err(IllegalEvent { seq, why });
        if seq != self.seq + 1 {
            return illegal("its place is not the next one");
        }
        if self.ended.is_some() && !matches!(event, Event::LeaseTaken { .. }) {
            return illegal("the run is over");
        }
        let of_the_holder = !matches!(
            event,
            Event::Started(_) | Event::LeaseTaken { .. } | Event::Asked { .. }
        );
        match event {
            Event::Started(_) => return illegal("a run starts once"),
            Event::LeaseTaken { fence, holder } => {
                if fence <= self.fence {
                    return illegal("a fencing token only grows");
                }
                self.fence = fence;
                self.holder = holder;
                // What the process before saw and waited for is not ours.
                self.changed = seq;
                self.gates = None;
                self.judged = None;
                self.plan_is_fresh = false;
                if let Some(wave) = &mut self.wave {
                    wave.waiting = wave.waiting.map(|_| at);
                    // Nothing was touched yet: the judges are asked again.
                    wave.agreed &= wave.units.values().any(|visit| visit.since.is_some());
                }
            }
            Event::Planned { plan } => {
                if self.wave.as_ref().is_some_and(|wave| !wave.agreed) {
                    return illegal("a wave is open that is not agreed to");
                }
                self.plan = Some(plan);
                self.plan_is_fresh = true;
            }
            Event::WaveOpened {
                stage,
                units,
                not_serving,
            } => {
                if self.wave.is_some() {
                    return illegal("another wave is open");
                }
                self.gates = None;
                self.judged = None;
                self.held = None;
                let units = units
                    .into_iter()
                    .map(|(unit, before)| (unit, Visit::fresh(before)))
                    .collect();
                // It is the first of the plan that was written right before.
                let planned = self.plan.as_ref().and_then(|plan| plan.stage(&stage));
                let moves = planned.and_then(|stage| Some(stage.waves.first()?.moves.clone()));
                self.wave = Some(OpenWave {
                    stage,
                    units,
                    not_serving,
                    moves: moves.unwrap_or_default(),
                    opened: at,
                    waiting: None,
                    agreed: false,
                    failed: None,
                    prolonged: 0,
                    collected: false,
                    back: self.going_back.is_some(),
                });
            }
            Event::WaveJoined { units } => {
                let plan = self.plan.as_deref().filter(|_| self.plan_is_fresh);
                let Some(wave) = self
                    .wave
                    .as_mut()
                    .filter(|wave| wave.agreed && wave.failed.is_none())
                else {
                    return illegal("there is no wave that could be joined");
                };
                if units.iter().any(|(unit, _)| wave.units.contains_key(unit)) {
                    return illegal("a unit joins that is in the wave");
                }
                let planned = plan.and_then(|plan| join::first_wave(plan, wave));
                wave.moves.extend(
                    planned
                        .into_iter()
                        .flat_map(|planned| planned.moves.iter().cloned()),
                );
                let fresh = units
                    .into_iter()
                    .map(|(unit, before)| (unit, Visit::fresh(before)));
                wave.units.extend(fresh);
                self.judged = None;
            }
            Event::Judged { units, ours, theirs } => self.apply_judged(seq, at, units, ours, theirs),
            Event::WaveDropped { .. } => {
                if self.wave.take().is_none_or(|wave| wave.agreed) {
                    return illegal("there is no wave that could be dropped");
                }
                self.plan_is_fresh = false;
            }
            Event::Intent { action } => {
                self.changed = seq;
                if let Action::Visit { unit, .. } | Action::GoBack { unit, .. } = &action
                    && let Some(visit) = self.visit(unit)
                {
                    visit.since.get_or_insert(at);
                }
                self.open.insert(seq, action);
            }
            Event::Settled { intent, outcome } => {
                let Some(action) = self.open.remove(&intent) else {
                    return illegal("it settles what is not open");
                };
                self.changed = seq;
                self.apply_settled(at, action, outcome);
            }
            Event::GatesTurned { shut } => {
                if let Some(wave) = &mut self.wave {
                    if let Some(before) = &self.gates
                        && !before.shut.is_empty()
                        && !shut.is_empty()
                        && names(&before.shut) == names(&shut)
                    {
                        wave.prolonged += 1;
                    }
                    wave.waiting.get_or_insert(at);
                }
                self.gates = Some(Gates { shut, since: at });
            }
            Event::WaveFailed { units, reason } => {
                let Some(wave) = &mut self.wave else {
                    return illegal("no wave is open");
                };
                wave.failed = Some((units, reason));
                wave.waiting = None;
                self.gates = None;
            }
            Event::WavePassed => {
                let Some(wave) = self.wave.take() else {
                    return illegal("no wave is open");
                };
                let earned = self.earned.entry(wave.stage).or_insert(0);
                self.last_wave = Some(LastWave {
                    at,
                    canary: *earned == 0,
                });
                *earned += 1;
                for (unit, visit) in wave.units {
                    if visit.not_entered() {
                        continue;
                    }
                    self.aside.remove(&unit);
                    // What it ran before the run, not before a second try.
                    self.done.entry(unit).or_insert(visit.before);
                }
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::WaveWentBack => {
                let Some(wave) = self.wave.take() else {
                    return illegal("no wave is open");
                };
                if self.start.policy.on_failure != OnFailure::Continue && !wave.back {
                    self.rolled_back = wave.failed.map(|(_, reason)| reason);
                }
                if wave.back {
                    *self.earned.entry(wave.stage).or_insert(0) += 1;
                }
                for (unit, visit) in wave.units {
                    if visit.went_back == Some(Ok(())) {
                        self.done.remove(&unit);
                    } else if visit.failed.is_none() {
                        self.done.entry(unit).or_insert(visit.before);
                    }
                }
                self.last_wave = Some(LastWave { at, canary: false });
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::StepPassed { step } => {
                self.steps.insert(step);
                self.held = None;
                self.step = None;
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::SetAside { unit, reason, until } => {
                let tries = self.aside.get(&unit).map_or(0, |aside| aside.tries) + 1;
                self.aside.insert(unit, Aside { reason, until, tries });
                self.plan_is_fresh = false;
            }
            Event::Asked { command, by } => self.apply_asked(command, &by),
            Event::Held { reason } => self.held = Some((reason, at)),
            Event::Released => {
                let held = self.held.take();
                if let Some(wave) = &mut self.wave
                    && held.is_some_and(|(held, _)| {
                        [outside::FAULT_OUTSIDE, outside::LEFT_ALONE].contains(&held.slug.as_str())
                    })
                {
                    // Recovery after the fault has its own time.
                    wave.waiting = None;
                    wave.prolonged = 0;
                    self.gates = None;
                }
            }
            Event::Ended { outcome } => {
                if self.wave.is_some() || !self.open.is_empty() {
                    return illegal("something is still open");
                }
                self.ended = Some(outcome);
                self.held = None;
            }
        }
        if of_the_holder {
            self.ruled_out = self.fence;
        }
        self.seq = seq;
        Ok(())
    }

    fn visit(&mut self, unit: &UnitId) -> Option<&mut Visit> {
        self.wave.as_mut().and_then(|wave| wave.units.get_mut(unit))
    }

    fn apply_judged(&mut self, seq: Seq, at: Timestamp, units: Vec<UnitId>, ours: Answer, theirs: Answer) {
        let whole = self
            .wave
            .as_ref()
            .is_some_and(|wave| wave.units.keys().eq(units.iter()));
        let both = ours == Answer::Yes && matches!(theirs, Answer::Yes | Answer::NoOracle);
        if let Some(wave) = self.wave.as_mut().filter(|_| whole && both) {
            wave.agreed = true;
        }
        let judged = self.judged.get_or_insert(Judged {
            seq,
            at,
            answers: BTreeMap::new(),
        });
        judged.seq = seq;
        judged.at = at;
        judged.answers.insert(units, (ours, theirs));
    }

    fn apply_settled(&mut self, at: Timestamp, action: Action, outcome: Outcome) {
        let failed = match outcome {
            Outcome::Done { .. } => None,
            Outcome::Failed { why } => Some(why),
        };
        match action {
            Action::TakeGuard {
                guard,
                units,
                expires,
            } => {
                let taken = self.guards.entry((guard, units)).or_insert(TakenGuard {
                    until: at,
                    failed: None,
                    tried: None,
                    drops: 0,
                });
                taken.drops = 0;
                taken.tried = failed.is_some().then_some(at);
                // A renewal that failed leaves it as it was. One that could not be taken may have been taken all the
                // same: it is given back.
                let is_held = taken.failed.is_none() && at < taken.until;
                if failed.is_none() || !is_held {
                    taken.until = at
                        .checked_add(jiff::SignedDuration::from_secs(i64::from(expires)))
                        .unwrap_or(at);
                    taken.failed = failed;
                }
            }
            Action::DropGuard { guard, units } => {
                let key = (guard, units);
                if failed.is_none() {
                    self.guards.remove(&key);
                } else if let Some(taken) = self.guards.get_mut(&key) {
                    taken.drops += 1;
                }
            }
            Action::Visit { unit, phase, .. } => {
                if let Some(visit) = self.visit(&unit) {
                    match failed {
                        None => {
                            visit.done = Some(phase);
                            visit.stuck = false;
                        }
                        Some(why) => {
                            // It was never entered, so nothing may be restarted: it is left once more, and then a
                            // person looks at it.
                            if visit.failed.is_some() && phase == Phase::Leave {
                                visit.restarted = visit.stuck;
                                visit.stuck = true;
                            }
                            visit.failed = Some(why);
                        }
                    }
                }
            }
            Action::Restart { unit } => {
                if let Some(visit) = self.visit(&unit) {
                    visit.restarted = true;
                    visit.failed = failed;
                    if visit.failed.is_none() {
                        visit.done = Some(Phase::Leave);
                    }
                }
                if let Some(wave) = &mut self.wave {
                    wave.waiting = None;
                }
                self.gates = None;
            }
            Action::GoBack { unit, rebuild, .. } => {
                if let Some(visit) = self.visit(&unit) {
                    visit.went_back = Some(failed.map_or(Ok(()), Err));
                    visit.rebuilt |= rebuild;
                }
                if let Some(wave) = &mut self.wave {
                    wave.waiting = None;
                }
                self.gates = None;
            }
            Action::Step { step } => {
                self.step = Some(SettledStep { step, failed, at });
            }
            Action::Collect { .. } => {
                if let Some(wave) = &mut self.wave {
                    wave.collected = true;
                }
            }
        }
    }

    fn apply_asked(&mut self, command: Command, by: &str) {
        match command {
            Command::Pause => self.paused = true,
            Command::Resume => {
                self.paused = false;
                // A person looked: what was given up is tried again.
                self.aside.retain(|_, aside| aside.until.is_some());
                self.step = None;
                self.held = None;
                self.plan_is_fresh = false;
                for taken in self.guards.values_mut().filter(|taken| taken.failed.is_some()) {
                    taken.failed = None;
                    taken.tried = None;
                    taken.until = Timestamp::MIN;
                }
                if let Some(wave) = &mut self.wave {
                    for visit in wave.units.values_mut() {
                        visit.restarted = false;
                        if matches!(visit.went_back, Some(Err(_))) {
                            visit.went_back = None;
                        }
                    }
                    wave.waiting = None;
                    wave.prolonged = 0;
                    wave.failed = None;
                }
                self.gates = None;
            }
            Command::Approve { door } => {
                self.doors.insert(door);
                self.held = None;
            }
            Command::Abort => {
                self.aborting = true;
                self.paused = false;
                self.held = None;
            }
            Command::Rollback => {
                let reason = Reason::new("asked-to-go-back", format!("{by} asked for it"));
                self.going_back.get_or_insert(reason);
                self.paused = false;
                self.held = None;
                self.plan_is_fresh = false;
            }
        }
    }
}

impl Visit {
    fn fresh(before: Revision) -> Self {
        Self {
            before,
            done: None,
            failed: None,
            stuck: false,
            restarted: false,
            went_back: None,
            rebuilt: false,
            since: None,
        }
    }

    /// Whether it could not be entered and was left again: it is set aside and fails nothing.
    pub(super) fn not_entered(&self) -> bool {
        self.failed.is_some() && self.done == Some(Phase::Leave)
    }
}

fn names(shut: &[(ConditionName, String)]) -> Vec<&ConditionName> {
    shut.iter().map(|(name, _)| name).collect()
}
