//! One event after another.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::model::{ConditionName, Kind, Part as TargetPart, PartName, Phase, Revision, UnitId};
use stagger_core::plan::Plan;
use stagger_core::run::{Action, Answer, Entry, Event, Outcome, Seq, Start};

use super::record::{
    Activity, GuardRecord, Hold, Interval, Judgement, OperatorCommand, PartRecord, Shut, Span, SpanEnd,
    StepRecord, VisitRecord, WaveEnd, WaveRecord,
};
use super::{History, UnitProgress, UnitRecord};

/// A history that grows by one event after another.
#[derive(Debug, Clone)]
pub struct HistoryRecorder {
    made: History,
    /// Of each stage, which kind its units are.
    kinds_of_stages: BTreeMap<PartName, Kind>,
    /// The newest plan's waves to come: of which stage, how long.
    planned: Option<(PartName, u32)>,
    /// The place of the open wave among the parts.
    wave: Option<usize>,
    /// Effects without an outcome.
    open: BTreeMap<Seq, Action>,
    /// Where the last turn of a unit is: which of the parts, and which of its turns.
    turns: BTreeMap<UnitId, (usize, usize)>,
    /// What was laid out ahead of the wave that the unit will be of.
    ahead: BTreeMap<UnitId, Vec<Span>>,
}

impl HistoryRecorder {
    /// That of a journal so far; `None`: its first event is not the start of a run.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        let (first, rest) = entries.split_first()?;
        let mut recorder = Self::begin(first)?;
        for entry in rest {
            recorder.record(entry);
        }
        Some(recorder)
    }

    /// With the first event alone; `None`: that is not the start of a run.
    pub fn begin(first: &Entry) -> Option<Self> {
        match &first.event {
            Event::Started(start) => Some(Self::started(start, first.at)),
            _ => None,
        }
    }

    /// One more event.
    pub fn record(&mut self, entry: &Entry) {
        self.made.last = entry.at;
        self.event(entry);
    }

    /// What it came to so far.
    pub fn history(&self) -> &History {
        &self.made
    }

    pub(super) fn into_history(self) -> History {
        self.made
    }

    fn started(start: &Start, at: Timestamp) -> Self {
        let stages = start.target.parts.iter().filter_map(|part| match part {
            TargetPart::Stage(stage) => Some((stage.name.clone(), stage.kind.clone())),
            TargetPart::Step(_) => None,
        });
        let kinds_of_stages: BTreeMap<PartName, Kind> = stages.clone().collect();
        let mut kinds: Vec<Kind> = Vec::new();
        for (_, kind) in stages {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Self {
            made: History {
                run: start.run.clone(),
                cluster: start.cluster.clone(),
                title: start.target.title.clone(),
                began: at,
                last: at,
                ended: None,
                forecast: None,
                parts: Vec::new(),
                holds: Vec::new(),
                guards: Vec::new(),
                words: Vec::new(),
                holders: Vec::new(),
                aside: Vec::new(),
                units: BTreeMap::new(),
                topology: start.topology.clone(),
                kinds,
            },
            kinds_of_stages,
            planned: None,
            wave: None,
            open: BTreeMap::new(),
            turns: BTreeMap::new(),
            ahead: BTreeMap::new(),
        }
    }

    fn event(&mut self, entry: &Entry) {
        let Entry { seq, at, event } = entry;
        let (seq, at) = (*seq, *at);
        match event {
            Event::Started(_) | Event::JournalBehind => {}
            Event::LeaseTaken { fence, holder } => self.made.holders.push((at, *fence, holder.clone())),
            Event::Planned { plan } => self.planned(plan),
            Event::WaveOpened { stage, units, .. } => self.opened(seq, at, stage, units),
            Event::WaveJoined { units, passed } => {
                for unit in passed {
                    self.set(unit, UnitProgress::Done);
                }
                self.join(units);
            }
            Event::Judged {
                units, ours, theirs, ..
            } => {
                let no = [("our own check", ours), ("the cluster", theirs)]
                    .into_iter()
                    .find_map(|(who, answer)| refusal(answer).map(|why| format!("{who}: {why}")));
                let units = units.len();
                if let Some(wave) = self.wave() {
                    wave.judged.push(Judgement { at, units, no });
                }
            }
            Event::WaveDropped { reason } => self.close(at, WaveEnd::Dropped(reason.clone())),
            Event::Intent { action, .. } => self.intent(seq, at, action),
            Event::Settled { intent, outcome } => self.record_settlement(*intent, at, outcome),
            Event::GatesTurned { shut } => self.gates(at, shut),
            Event::WaveFailed { units, reason, .. } => {
                if let Some(wave) = self.wave() {
                    wave.failed = Some(reason.clone());
                }
                for unit in units {
                    self.set(unit, UnitProgress::Failed);
                }
            }
            Event::WaveRecovered => {
                let units: Vec<UnitId> = self.units_of_wave();
                for unit in units {
                    self.set(&unit, UnitProgress::Verifying);
                }
            }
            Event::WavePassed => self.close(at, WaveEnd::Passed),
            Event::WaveWentBack => self.close(at, WaveEnd::WentBack),
            Event::StepPassed { step } => self.step(step, at).time.close(at),
            Event::SetAside { unit, reason, .. } => {
                self.set(unit, UnitProgress::Skipped);
                self.made.aside.push((at, unit.clone(), reason.clone()));
            }
            Event::Asked { command, by } => self.made.words.push(OperatorCommand {
                at,
                command: command.clone(),
                by: by.clone(),
            }),
            Event::Held { reason } => {
                self.released(at);
                self.made.holds.push(Hold {
                    reason: reason.clone(),
                    time: Interval::starting_at(at),
                });
            }
            Event::Released => self.released(at),
            Event::Ended { outcome } => {
                self.close(at, WaveEnd::Left);
                self.released(at);
                self.made.ended = Some(outcome.clone());
            }
        }
    }

    fn planned(&mut self, plan: &Plan) {
        self.made.forecast.get_or_insert(plan.forecast());
        self.planned = plan
            .stages()
            .next()
            .and_then(|stage| Some((stage.name.clone(), stage.waves.first()?.seconds)));
        for left in &plan.left_alone {
            if let Some(kind) = self.kinds_of_stages.get(&left.stage).cloned() {
                let waits = [UnitProgress::Waiting, UnitProgress::Skipped];
                self.add_planned_unit(&left.unit, kind, UnitProgress::Skipped, |state| {
                    waits.contains(&state)
                });
            }
        }
        for stage in plan.stages() {
            for unit in stage.waves.iter().flat_map(|wave| &wave.units) {
                // Its turn may come once more: another stage, or another attempt.
                let has_its_turn = [
                    UnitProgress::Down,
                    UnitProgress::Verifying,
                    UnitProgress::Preparing,
                ];
                self.add_planned_unit(unit, stage.kind.clone(), UnitProgress::Waiting, |state| {
                    !has_its_turn.contains(&state)
                });
            }
        }
    }

    /// A plan names a unit: it is that now, unless it was known and is not to become so.
    fn add_planned_unit(
        &mut self,
        unit: &UnitId,
        kind: Kind,
        state: UnitProgress,
        becomes: impl Fn(UnitProgress) -> bool,
    ) {
        if !self.made.kinds.contains(&kind) {
            self.made.kinds.push(kind.clone());
        }
        let known = self
            .made
            .units
            .entry(unit.clone())
            .or_insert(UnitRecord { kind, state });
        if becomes(known.state) {
            known.state = state;
        }
    }

    fn opened(&mut self, seq: Seq, at: Timestamp, stage: &PartName, units: &[(UnitId, Revision)]) {
        self.close(at, WaveEnd::Left);
        let seconds = self.planned.as_ref().filter(|(planned, _)| planned == stage);
        let forecast = seconds.map(|(_, seconds)| jiff::SignedDuration::from_secs(i64::from(*seconds)));
        let number = self.made.waves().count() + 1;
        self.wave = Some(self.made.parts.len());
        self.made.parts.push(PartRecord::Wave(WaveRecord {
            seq,
            number,
            stage: stage.clone(),
            time: Interval::starting_at(at),
            end: None,
            forecast,
            turns: Vec::new(),
            judged: Vec::new(),
            shut: Vec::new(),
            failed: None,
        }));
        self.join(units);
    }

    fn join(&mut self, units: &[(UnitId, Revision)]) {
        for (unit, before) in units {
            let turn = VisitRecord {
                unit: unit.clone(),
                before: Some(before.clone()),
                spans: self.ahead.remove(unit).unwrap_or_default(),
            };
            let Some(place) = self.wave else {
                return;
            };
            if let Some(wave) = self.wave() {
                wave.turns.push(turn);
                let number = wave.turns.len() - 1;
                self.turns.insert(unit.clone(), (place, number));
            }
        }
    }

    /// The open wave is over. A unit that was changed in it serves on the target, or is back on the release before; of one that
    /// was not, its turn may come yet.
    fn close(&mut self, at: Timestamp, end: WaveEnd) {
        let Some(wave) = self.wave() else {
            return;
        };
        wave.time.close(at);
        for shut in &mut wave.shut {
            shut.time.close(at);
        }
        let passed = end == WaveEnd::Passed;
        wave.end = Some(end);
        let units: Vec<(UnitId, bool, bool)> = wave
            .turns
            .iter()
            .map(|turn| {
                let done = |doing| {
                    let spans = turn.spans.iter();
                    spans
                        .rev()
                        .any(|span: &Span| span.doing == doing && span.end == Some(SpanEnd::Done))
                };
                (
                    turn.unit.clone(),
                    done(Activity::Changing),
                    done(Activity::RollingBack),
                )
            })
            .collect();
        self.wave = None;
        for (unit, is_changed, is_back) in units {
            let known = self.made.units.get(&unit).map(|known| known.state);
            let stays = matches!(known, Some(UnitProgress::Failed | UnitProgress::Skipped)) && !passed;
            if is_back {
                self.set(&unit, UnitProgress::RolledBack);
            } else if is_changed && !stays {
                self.set(&unit, UnitProgress::Done);
            } else if !stays && known != Some(UnitProgress::Done) && known != Some(UnitProgress::Skipped) {
                self.set(&unit, UnitProgress::Waiting);
            }
        }
    }

    fn intent(&mut self, seq: Seq, at: Timestamp, action: &Action) {
        self.open.insert(seq, action.clone());
        match action {
            Action::TakeGuard { guard, units, .. } => {
                let held = |record: &GuardRecord| {
                    record.guard == *guard && record.units == *units && record.time.to.is_none()
                };
                if !self.made.guards.iter().any(held) {
                    self.made.guards.push(GuardRecord {
                        guard: guard.clone(),
                        seq,
                        units: units.clone(),
                        time: Interval::starting_at(at),
                    });
                }
            }
            Action::Step { step } => {
                let step = self.step(step, at);
                step.tries += 1;
                step.failed = None;
            }
            Action::DropGuard { .. } | Action::Collect { .. } => {}
            Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => {
                let Some(doing) = activity(action) else {
                    return;
                };
                let span = Span {
                    doing,
                    time: Interval::starting_at(at),
                    end: None,
                };
                self.spans(unit, doing).push(span);
                self.set(
                    unit,
                    if doing == Activity::Preparing {
                        UnitProgress::Preparing
                    } else {
                        UnitProgress::Down
                    },
                );
            }
        }
    }

    fn record_settlement(&mut self, intent: Seq, at: Timestamp, outcome: &Outcome) {
        let Some(action) = self.open.remove(&intent) else {
            return;
        };
        let end = match outcome {
            Outcome::Done { .. } => SpanEnd::Done,
            Outcome::Failed { why } => SpanEnd::Failed(why.clone()),
            Outcome::NotBegun { why } => SpanEnd::NotBegun(why.clone()),
        };
        match &action {
            Action::DropGuard { guard, units } if end == SpanEnd::Done => {
                let same = |record: &&mut GuardRecord| {
                    record.guard == *guard && record.units == *units && record.time.to.is_none()
                };
                if let Some(record) = self.made.guards.iter_mut().find(same) {
                    record.time.close(at);
                }
            }
            // It was not held before and is not now: there is nothing to be given back.
            Action::TakeGuard { .. } if end != SpanEnd::Done => {
                self.made.guards.retain(|record| record.seq != intent);
            }
            Action::Step { step } => {
                if let SpanEnd::Failed(why) = end {
                    self.step(step, at).failed = Some(why);
                }
            }
            Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Collect { .. } => {}
            Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => {
                let Some(doing) = activity(&action) else {
                    return;
                };
                let state = settled_state(doing, &end);
                let open = |span: &&mut Span| span.doing == doing && span.end.is_none();
                if let Some(span) = self.spans(unit, doing).iter_mut().find(open) {
                    span.time.close(at);
                    span.end = Some(end);
                }
                if let Some(state) = state {
                    self.set(unit, state);
                }
            }
        }
    }

    fn gates(&mut self, at: Timestamp, now: &[(ConditionName, String)]) {
        let Some(wave) = self.wave() else {
            return;
        };
        for shut in wave.shut.iter_mut().filter(|shut| shut.time.to.is_none()) {
            match now.iter().find(|(gate, _)| gate.as_str() == shut.gate) {
                Some((_, why)) => shut.why.clone_from(why),
                None => shut.time.close(at),
            }
        }
        for (gate, why) in now {
            let is_open = |shut: &Shut| shut.gate == gate.as_str() && shut.time.to.is_none();
            if !wave.shut.iter().any(is_open) {
                wave.shut.push(Shut {
                    gate: gate.to_string(),
                    why: why.clone(),
                    time: Interval::starting_at(at),
                });
            }
        }
    }

    fn released(&mut self, at: Timestamp) {
        if let Some(hold) = self.made.holds.last_mut() {
            hold.time.close(at);
        }
    }

    fn set(&mut self, unit: &UnitId, state: UnitProgress) {
        if let Some(known) = self.made.units.get_mut(unit) {
            known.state = state;
        }
    }

    fn wave(&mut self) -> Option<&mut WaveRecord> {
        match self.made.parts.get_mut(self.wave?)? {
            PartRecord::Wave(wave) => Some(wave),
            PartRecord::Step(_) => None,
        }
    }

    fn units_of_wave(&mut self) -> Vec<UnitId> {
        self.wave()
            .map(|wave| wave.turns.iter().map(|turn| turn.unit.clone()).collect())
            .unwrap_or_default()
    }

    /// The activities of a unit: of its last visit, or of the next one for software that is installed before
    /// a wave.
    fn spans(&mut self, unit: &UnitId, doing: Activity) -> &mut Vec<Span> {
        let place = self.turns.get(unit).copied();
        let place = place.filter(|(part, _)| doing != Activity::Preparing || self.wave == Some(*part));
        if let Some((part, turn)) = place
            && let Some(PartRecord::Wave(wave)) = self.made.parts.get_mut(part)
        {
            return &mut wave.turns[turn].spans;
        }
        self.ahead.entry(unit.clone()).or_default()
    }

    /// The step's record, made where there is none that is open.
    fn step(&mut self, step: &PartName, at: Timestamp) -> &mut StepRecord {
        let open = |part: &PartRecord| match part {
            PartRecord::Step(record) => record.step == *step && record.time.to.is_none(),
            PartRecord::Wave(_) => false,
        };
        let place = self.made.parts.iter().rposition(open).unwrap_or_else(|| {
            self.made.parts.push(PartRecord::Step(StepRecord {
                step: step.clone(),
                time: Interval::starting_at(at),
                tries: 0,
                failed: None,
            }));
            self.made.parts.len() - 1
        });
        match &mut self.made.parts[place] {
            PartRecord::Step(record) => record,
            PartRecord::Wave(_) => unreachable!("the place is of a step"),
        }
    }
}

/// Why a judge does not agree; `None`: it does, or has nothing to say.
fn refusal(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::No { why } | Answer::Unknown { why } => Some(why),
        Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => None,
    }
}

/// What an action does to its unit; `None`: it is about none.
fn activity(action: &Action) -> Option<Activity> {
    Some(match action {
        Action::Visit { phase, .. } => match phase {
            Phase::Prepare => Activity::Preparing,
            Phase::Enter => Activity::Entering,
            Phase::Change => Activity::Changing,
            Phase::Leave => Activity::Leaving,
        },
        Action::Restart { .. } => Activity::Restarting,
        Action::GoBack { .. } => Activity::RollingBack,
        Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Step { .. }
        | Action::Collect { .. } => {
            return None;
        }
    })
}

/// What its unit is once an effect has ended; `None`: as before.
fn settled_state(doing: Activity, end: &SpanEnd) -> Option<UnitProgress> {
    match (doing, end) {
        (Activity::Leaving | Activity::Restarting, SpanEnd::Done) => Some(UnitProgress::Verifying),
        (Activity::RollingBack, SpanEnd::Done) => Some(UnitProgress::RolledBack),
        (Activity::Preparing | Activity::Entering | Activity::Changing, SpanEnd::Done) => None,
        (_, SpanEnd::Failed(_)) => Some(UnitProgress::Failed),
        (_, SpanEnd::NotBegun(_)) => Some(UnitProgress::Preparing),
    }
}
