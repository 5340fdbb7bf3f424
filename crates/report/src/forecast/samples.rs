//! What the journal of one run tells of how long things take, in milliseconds.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Kind, Part as TargetPart, PartName, RunId};
use stagger_core::plan::{Plan, PlannedPart};
use stagger_core::run::{Ending, Entry, Event};

use crate::History;
use crate::history::{Activity, Interval, PartRecord, SpanEnd, VisitRecord, WaveEnd, WaveRecord};

/// What of a plan takes time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanShape(pub(super) Vec<PartShape>);

/// A wave or a step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartShape {
    /// Units visited together.
    Wave {
        /// Which kind.
        kind: Kind,
        /// How many.
        units: u32,
        /// How long the plan says that it takes, in seconds.
        planned: u32,
        /// How much of that is only of this wave, and not of the shortest of its kind: the soak of a canary.
        only_here: u32,
    },
    /// A thing done once.
    Step(PartName),
}

impl PlanShape {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Self {
        let mut shortest: BTreeMap<&Kind, u32> = BTreeMap::new();
        for stage in plan.stages() {
            for wave in &stage.waves {
                let least = shortest.entry(&stage.kind).or_insert(wave.seconds);
                *least = wave.seconds.min(*least);
            }
        }
        let parts = plan.parts.iter().flat_map(|part| match part {
            PlannedPart::Step(step) => vec![PartShape::Step(step.name.clone())],
            PlannedPart::Stage(stage) => {
                let least = shortest.get(&stage.kind).copied().unwrap_or(0);
                let waves = stage.waves.iter().map(|wave| PartShape::Wave {
                    kind: stage.kind.clone(),
                    units: u32::try_from(wave.units.len()).unwrap_or(u32::MAX),
                    planned: wave.seconds,
                    only_here: wave.seconds - least,
                });
                waves.collect()
            }
        });
        Self(parts.collect())
    }

    /// Of these parts.
    pub fn new(parts: Vec<PartShape>) -> Self {
        Self(parts)
    }

    /// How long the plan itself says that it takes.
    pub fn planned(&self) -> SignedDuration {
        let seconds = self.0.iter().map(|part| match part {
            PartShape::Wave { planned, .. } => i64::from(*planned),
            PartShape::Step(_) => 0,
        });
        SignedDuration::from_secs(seconds.sum())
    }
}

/// A phase of a unit's turn, in the order in which they come; or the gates of its wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SamplePhase {
    Prepare,
    Enter,
    Change,
    Leave,
    Gates,
}

impl SamplePhase {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Enter => "enter",
            Self::Change => "change",
            Self::Leave => "leave",
            Self::Gates => "gates",
        }
    }

    fn of(doing: Activity) -> Option<Self> {
        match doing {
            Activity::Preparing => Some(Self::Prepare),
            Activity::Entering => Some(Self::Enter),
            Activity::Changing => Some(Self::Change),
            Activity::Leaving => Some(Self::Leave),
            Activity::Restarting | Activity::RollingBack => None,
        }
    }
}

/// What one run tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierRun {
    /// Which run.
    pub run: RunId,
    /// When it began.
    pub began: Timestamp,
    /// The first plan that it made.
    pub plan: PlanShape,
    /// How long it took without what it was held for between waves; `None`: it did not come to its target.
    pub took: Option<SignedDuration>,
    /// What draws are made of.
    pub samples: Samples,
    /// How long phases took.
    pub(super) phases: BTreeMap<(Kind, SamplePhase), Vec<i64>>,
}

/// How long things took in one run, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// Whole visits, by kind.
    pub visits: BTreeMap<Kind, Vec<i64>>,
    /// What waves took beside their longest visit and what the policy asked for of them alone, by kind.
    pub rests: BTreeMap<Kind, Vec<i64>>,
    /// Steps, by name.
    pub steps: BTreeMap<PartName, Vec<i64>>,
    /// What passed between two parts.
    pub gaps: Vec<i64>,
    /// What passed before the first part and after the last.
    pub ends: i64,
}

impl EarlierRun {
    /// One of which only that is known.
    pub fn new(
        run: RunId,
        began: Timestamp,
        plan: PlanShape,
        took: Option<SignedDuration>,
        samples: Samples,
    ) -> Self {
        Self {
            run,
            began,
            plan,
            took,
            samples,
            phases: BTreeMap::new(),
        }
    }

    /// What a journal tells. `None`: it is none, nothing was planned, or units did not wait for whole waves, of which this model
    /// knows nothing.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        let history = History::of(entries)?;
        let Event::Started(start) = &entries.first()?.event else {
            return None;
        };
        let plan = entries.iter().find_map(|entry| match &entry.event {
            Event::Planned { plan } => Some(PlanShape::of(plan)),
            _ => None,
        })?;
        if !start.policy.barrier {
            return None;
        }
        let stages = start.target.parts.iter().filter_map(|part| match part {
            TargetPart::Stage(stage) => Some((&stage.name, &stage.kind)),
            TargetPart::Step(_) => None,
        });
        let kinds: BTreeMap<&PartName, &Kind> = stages.collect();
        let mut made = Self {
            run: history.run.clone(),
            began: history.began,
            plan,
            took: None,
            samples: Samples::default(),
            phases: BTreeMap::new(),
        };
        let shortest = shortest(&history, &kinds);
        for part in &history.parts {
            match part {
                PartRecord::Wave(wave) => {
                    if let Some(kind) = kinds.get(&wave.stage).filter(|_| is_undisturbed(&history, wave)) {
                        made.wave(kind, wave, shortest.get(kind).copied());
                    }
                }
                PartRecord::Step(step) => {
                    if let Some(to) = step.time.to {
                        let took = milliseconds(step.time.from, to);
                        made.samples
                            .steps
                            .entry(step.step.clone())
                            .or_default()
                            .push(took);
                    }
                }
            }
        }
        made.add_waits(&history);
        Some(made)
    }

    fn wave(&mut self, kind: &Kind, wave: &WaveRecord, shortest: Option<SignedDuration>) {
        let Some(over) = wave.time.to else {
            return;
        };
        let mut longest = None;
        let mut back = wave.time.from;
        for turn in &wave.turns {
            for span in turn.spans.iter().filter(|span| span.end == Some(SpanEnd::Done)) {
                if let (Some(phase), Some(to)) = (SamplePhase::of(span.doing), span.time.to) {
                    let took = milliseconds(span.time.from, to);
                    self.phases.entry((kind.clone(), phase)).or_default().push(took);
                }
            }
            if let Some((from, to)) = visit(turn) {
                let took = milliseconds(from, to);
                longest = longest.max(Some(took));
                back = back.max(to);
                self.samples.visits.entry(kind.clone()).or_default().push(took);
            }
        }
        let Some(longest) = longest else {
            return;
        };
        self.phases
            .entry((kind.clone(), SamplePhase::Gates))
            .or_default()
            .push(milliseconds(back, over));
        let only_here = match (wave.forecast, shortest) {
            (Some(planned), Some(shortest)) => (planned - shortest).max(SignedDuration::ZERO),
            (Some(_) | None, _) => SignedDuration::ZERO,
        };
        let only_here = i64::try_from(only_here.as_millis()).unwrap_or(i64::MAX);
        let rest = milliseconds(wave.time.from, over) - longest - only_here;
        self.samples
            .rests
            .entry(kind.clone())
            .or_default()
            .push(rest.max(0));
    }

    /// What passed before, between and after parts, without what the run was held for; and how long it took in all.
    fn add_waits(&mut self, history: &History) {
        let times = history.parts.iter().map(|part| match part {
            PartRecord::Wave(wave) => wave.time,
            PartRecord::Step(step) => step.time,
        });
        let times: Vec<Interval> = times.collect();
        let mut held_between = 0;
        let mut at = history.began;
        for (place, time) in times.iter().enumerate() {
            let gap = milliseconds(at, time.from);
            let held = held(history, at, time.from).min(gap);
            held_between += held;
            if place == 0 {
                self.samples.ends += gap - held;
            } else {
                self.samples.gaps.push(gap - held);
            }
            at = at.max(time.to.unwrap_or(history.last));
        }
        let gap = milliseconds(at, history.last);
        let held = held(history, at, history.last).min(gap);
        self.samples.ends += gap - held;
        let took = milliseconds(history.began, history.last) - held_between - held;
        self.took = (history.ended == Some(Ending::Done)).then(|| SignedDuration::from_millis(took));
    }
}

/// Of each kind how long its shortest wave was planned to take.
fn shortest<'a>(
    history: &History,
    kinds: &BTreeMap<&PartName, &'a Kind>,
) -> BTreeMap<&'a Kind, SignedDuration> {
    let mut shortest: BTreeMap<&Kind, SignedDuration> = BTreeMap::new();
    for wave in history.waves() {
        if let (Some(kind), Some(planned)) = (kinds.get(&wave.stage), wave.forecast) {
            let least = shortest.entry(kind).or_insert(planned);
            *least = planned.min(*least);
        }
    }
    shortest
}

/// Whether a wave passed without interruption, in one process and without a command: other waves say nothing
/// about the duration of a wave.
fn is_undisturbed(history: &History, wave: &WaveRecord) -> bool {
    let to = wave.time.to.unwrap_or(history.last);
    let within = |at: Timestamp| wave.time.from <= at && at <= to;
    wave.end == Some(WaveEnd::Passed)
        && wave.failed.is_none()
        && !history.holders.iter().any(|(at, ..)| within(*at))
        && !history.words.iter().any(|word| within(word.at))
}

/// From when to when a unit had its turn, if that went well.
fn visit(turn: &VisitRecord) -> Option<(Timestamp, Timestamp)> {
    let mut spans = turn.spans.iter().filter(|span| span.doing != Activity::Preparing);
    if turn.spans.iter().any(|span| span.end != Some(SpanEnd::Done)) {
        return None;
    }
    let first = spans.next()?;
    let last = spans.next_back().unwrap_or(first);
    Some((first.time.from, last.time.to?))
}

/// For how long the run was held between these times.
fn held(history: &History, from: Timestamp, to: Timestamp) -> i64 {
    let holds = history.holds.iter().map(|hold| {
        let begins = hold.time.from.max(from);
        let ends = hold.time.to.unwrap_or(history.last).min(to);
        milliseconds(begins, ends)
    });
    holds.sum()
}

fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    let took = to.duration_since(from).max(SignedDuration::ZERO);
    i64::try_from(took.as_millis()).unwrap_or(i64::MAX)
}
