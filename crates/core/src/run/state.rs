//! A run is a fold over its journal.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::event::{Action, Answer, Command, Ending, Entry, Event, Outcome, Seq, Start};
use super::gate::Wanted;
use super::join;
use crate::model::{
    Code, ConditionName, GuardName, HostName, OnFailure, PartName, Phase, Reason, Revision, StageSpec, UnitId,
};
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
    /// Until when those of them may begin that both judges had to agree to.
    pub(super) deadlines: BTreeMap<Seq, Timestamp>,
    /// Under which fencing token each of them was announced.
    pub(super) announced: BTreeMap<Seq, u64>,
    pub(super) wave: Option<OpenWave>,
    pub(super) guards: BTreeMap<(GuardName, Vec<UnitId>), TakenGuard>,
    /// Waves passed in each stage: growth goes on from there.
    pub(super) earned: BTreeMap<PartName, u32>,
    /// What this run has changed, with what it ran before.
    pub(super) done: BTreeMap<UnitId, Revision>,
    /// Whose software was laid out, with which revision.
    pub(super) prepared: BTreeMap<UnitId, Revision>,
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
    /// Hosts that are off, by a person's word to the holder of now.
    pub(super) off: BTreeSet<HostName>,
    pub(super) ended: Option<Ending>,
    pub(super) ended_at: Option<Timestamp>,
}

/// A wave being carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the journal tells, and they go together in any way"
)]
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
    /// Whether both judges agreed to it, and nobody has taken over since without anything of it begun.
    pub agreed: bool,
    /// How often both judges agreed in vain since something of it was begun: all of it was too late.
    pub in_vain: u32,
    /// Why it failed, if it did: it is on its way back.
    pub failed: Option<(Vec<UnitId>, Reason)>,
    /// Nothing speaks against the change: it never came to those that failed.
    pub alone: bool,
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
    /// When it began to be taken out of service.
    pub since: Option<Timestamp>,
    /// When both judges agreed to that.
    pub approved: Option<Timestamp>,
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
    pub(super) answers: BTreeMap<Vec<UnitId>, Judgement>,
}

/// What both judges have said of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) ours: Answer,
    pub(super) theirs: Answer,
    pub(super) at: Timestamp,
}

impl Judgement {
    /// Whether both agree.
    pub(super) fn is_yes(&self) -> bool {
        self.ours == Answer::Yes && self.theirs.agrees()
    }
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
            deadlines: BTreeMap::new(),
            announced: BTreeMap::new(),
            wave: None,
            guards: BTreeMap::new(),
            earned: BTreeMap::new(),
            done: BTreeMap::new(),
            prepared: BTreeMap::new(),
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
            off: BTreeSet::new(),
            ended: None,
            ended_at: None,
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
                // It may have been started since, and have a call of another holder.
                self.off.clear();
                // What the process before saw and waited for is not ours.
                self.changed = seq;
                self.gates = None;
                self.judged = None;
                self.plan_is_fresh = false;
                if let Some(wave) = &mut self.wave {
                    wave.waiting = wave.waiting.map(|_| at);
                    // What was agreed to with the process before is asked again, wherever nothing was begun.
                    wave.agreed &= wave.is_begun();
                    for visit in wave.units.values_mut() {
                        visit.approved = None;
                    }
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
                let revision = self.stage(&stage).map(|stage| stage.revision);
                let fresh = |(unit, before)| {
                    let is_prepared = revision.is_some() && self.prepared.get(&unit) == revision.as_ref();
                    (unit, Visit::fresh(before, is_prepared))
                };
                let units = units.into_iter().map(fresh).collect();
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
                    in_vain: 0,
                    failed: None,
                    alone: false,
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
                // They join right after both judges agreed to them.
                let set: Vec<UnitId> = units.iter().map(|(unit, _)| unit.clone()).collect();
                let said = self
                    .judged
                    .take()
                    .and_then(|mut judged| judged.answers.remove(&set));
                let approved = said.filter(Judgement::is_yes).map(|said| said.at);
                wave.units.extend(units.into_iter().map(|(unit, before)| {
                    let visit = Visit {
                        approved,
                        ..Visit::fresh(before, false)
                    };
                    (unit, visit)
                }));
            }
            Event::Judged {
                units, ours, theirs, ..
            } => self.apply_judged(seq, units, Judgement { ours, theirs, at }),
            Event::WaveDropped { .. } => {
                if self.wave.take().is_none_or(|wave| wave.is_begun()) {
                    return illegal("there is no wave that could be dropped");
                }
                self.plan_is_fresh = false;
            }
            Event::Intent { action, before } => {
                if !self.may_be_announced(&action) {
                    return illegal("a unit is visited to which the judges have not agreed");
                }
                self.changed = seq;
                let is_prepared = matches!(
                    action,
                    Action::Visit {
                        phase: Phase::Prepare,
                        ..
                    }
                );
                if let Action::Visit { unit, .. } | Action::GoBack { unit, .. } = &action
                    && !is_prepared
                    && let Some(visit) = self.visit(unit)
                {
                    visit.since.get_or_insert(at);
                }
                self.open.insert(seq, action);
                self.announced.insert(seq, self.fence);
                self.deadlines.extend(before.map(|before| (seq, before)));
            }
            Event::Settled { intent, outcome } => {
                let Some(action) = self.open.remove(&intent) else {
                    return illegal("it settles what is not open");
                };
                self.deadlines.remove(&intent);
                self.announced.remove(&intent);
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
            Event::WaveFailed { units, reason, alone } => {
                let Some(wave) = &mut self.wave else {
                    return illegal("no wave is open");
                };
                wave.failed = Some((units, reason));
                wave.alone = alone;
                wave.waiting = None;
                self.gates = None;
            }
            Event::WaveRecovered => {
                let Some(wave) = self.wave.as_mut().filter(|wave| wave.failed.is_some()) else {
                    return illegal("there is no wave that has failed");
                };
                wave.failed = None;
                wave.waiting = None;
                wave.collected = false;
                for visit in wave.units.values_mut().filter(|visit| !visit.not_entered()) {
                    // It serves on the target: what is left of its turn goes on.
                    if visit.failed.take().is_some() {
                        visit.done = visit.done.max(Some(Phase::Change));
                    }
                }
                self.gates = None;
                self.held = None;
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
                        self.prepared.remove(&unit);
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
                if let Some(wave) = &mut self.wave {
                    if wave.units.get(&unit).is_some_and(Visit::is_begun) {
                        return illegal("a unit is set aside in the middle of its turn");
                    }
                    wave.units.remove(&unit);
                }
                self.aside.insert(unit, Aside { reason, until, tries });
                self.plan_is_fresh = false;
            }
            Event::Asked { command, by } => self.apply_asked(seq, at, command, &by),
            Event::Held { reason } => self.held = Some((reason, at)),
            Event::Released => {
                let held = self.held.take();
                if let Some(wave) = &mut self.wave
                    && held.is_some_and(|(held, _)| {
                        [Code::FaultOutsideTheWave, Code::WaveLeftAlone, Code::GatesShut].contains(&held.code)
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
                self.ended_at = Some(at);
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

    /// Whether that may be announced now: nobody is visited but in a wave to which both judges agreed.
    fn may_be_announced(&self, action: &Action) -> bool {
        let Action::Visit { unit, phase, .. } = action else {
            return true;
        };
        let wave = self.wave.as_ref().filter(|wave| wave.units.contains_key(unit));
        wave.is_some_and(|wave| wave.agreed || *phase == Phase::Prepare)
    }

    fn apply_judged(&mut self, seq: Seq, units: Vec<UnitId>, said: Judgement) {
        let at = said.at;
        if said.is_yes() {
            let until = self.approved_until(at);
            if let Some(wave) = &mut self.wave {
                let is_in = |unit: &UnitId| units.contains(unit);
                // Of part of those that are still to go down together nothing follows for the others.
                let waits = |visit: &Visit| !visit.is_begun() && visit.failed.is_none();
                let mut waiting = wave.units.iter().filter(|(_, visit)| waits(visit)).peekable();
                if waiting.peek().is_some() && waiting.all(|(unit, _)| is_in(unit)) {
                    wave.agreed = true;
                    wave.in_vain += 1;
                    for (_, visit) in wave.units.iter_mut().filter(|(unit, _)| is_in(unit)) {
                        visit.approved = Some(at);
                    }
                }
            }
            // What was announced and may not have begun may begin for so long once more.
            for (seq, deadline) in &mut self.deadlines {
                let of_it = self.open.get(seq).and_then(Action::unit);
                if of_it.is_some_and(|unit| units.contains(unit)) {
                    *deadline = until.max(*deadline);
                }
            }
        }
        let judged = self.judged.get_or_insert(Judged {
            seq,
            at,
            answers: BTreeMap::new(),
        });
        judged.seq = seq;
        judged.at = at;
        judged.answers.insert(units, said);
    }

    /// What both judges had said of it was too old: it is as if it had not been announced.
    fn apply_not_begun(&mut self, action: &Action) {
        self.judged = None;
        let Action::Visit { unit, phase, .. } = action else {
            return;
        };
        if let Some(visit) = self.visit(unit)
            && *phase > Phase::Prepare
            && visit.done.is_none_or(|done| done == Phase::Prepare)
        {
            visit.since = None;
            visit.approved = None;
        }
    }

    pub(super) fn apply_settled(&mut self, at: Timestamp, action: Action, outcome: Outcome) {
        let failed = match outcome {
            Outcome::Done { .. } => None,
            Outcome::Failed { why } => Some(why),
            Outcome::NotBegun { .. } => return self.apply_not_begun(&action),
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
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => {
                if phase == Phase::Prepare && failed.is_none() {
                    self.prepared.insert(unit.clone(), revision);
                }
                if let Some(wave) = self.wave.as_mut().filter(|_| phase > Phase::Prepare) {
                    wave.in_vain = 0;
                }
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

    fn apply_asked(&mut self, seq: Seq, at: Timestamp, command: Command, by: &str) {
        match command {
            Command::Pause => self.paused = true,
            Command::Resume => {
                self.paused = false;
                // A person looked: what was given up is tried again.
                self.aside.retain(|_, aside| aside.until.is_some());
                self.step = None;
                self.held = None;
                self.plan_is_fresh = false;
                // Whoever looked may have put another release there.
                self.prepared.clear();
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
                    wave.in_vain = 0;
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
                let reason = Reason::new(Code::AskedToGoBack, format!("{by} asked for it"));
                self.going_back.get_or_insert(reason);
                self.paused = false;
                self.held = None;
                self.plan_is_fresh = false;
            }
            Command::Confirm { host, ended } => self.apply_off(seq, at, host, ended, by),
            Command::Settle { intent, done } => self.apply_word(seq, at, intent, done, by),
        }
    }
}

impl OpenWave {
    /// Whether a unit of it was begun to be taken out of service.
    pub(super) fn is_begun(&self) -> bool {
        self.units.values().any(Visit::is_begun)
    }

    /// Whether its visits go on: both judges agreed, and it has not failed and does not go back.
    pub(super) fn goes_on(&self) -> bool {
        self.agreed && self.failed.is_none() && !self.back
    }
}

impl Visit {
    fn fresh(before: Revision, is_prepared: bool) -> Self {
        Self {
            before,
            done: is_prepared.then_some(Phase::Prepare),
            failed: None,
            stuck: false,
            restarted: false,
            went_back: None,
            rebuilt: false,
            since: None,
            approved: None,
        }
    }

    /// Whether it was begun to be taken out of service.
    pub(super) fn is_begun(&self) -> bool {
        self.since.is_some()
    }

    /// What it must be for its wave to pass.
    pub(super) fn wanted<'a>(&self, stage: &'a StageSpec) -> Wanted<'a> {
        if self.not_entered() {
            Wanted::Serving
        } else {
            Wanted::On(&stage.revision)
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
