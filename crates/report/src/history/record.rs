//! Records of waves, steps, visits and waits.

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{GuardName, PartName, Reason, Revision, UnitId};
use stagger_core::run::{Command, Seq};

/// When something began and when it was over; `None`: it is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// When it began.
    pub from: Timestamp,
    /// When it was over.
    pub to: Option<Timestamp>,
}

impl Interval {
    /// Since that time.
    pub fn starting_at(from: Timestamp) -> Self {
        Self { from, to: None }
    }

    /// It is over, unless it has been before.
    pub(super) fn close(&mut self, at: Timestamp) {
        self.to.get_or_insert(at);
    }

    /// How long it was, or has been at that time.
    pub fn length(&self, now: Timestamp) -> SignedDuration {
        self.to.unwrap_or(now).duration_since(self.from)
    }
}

/// A wave or a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartRecord {
    /// Units changed together.
    Wave(WaveRecord),
    /// A thing done once.
    Step(StepRecord),
}

/// A wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaveRecord {
    /// The place of the event that opened it.
    pub seq: Seq,
    /// The how many-th of the run, from 1.
    pub number: usize,
    /// Of which stage.
    pub stage: PartName,
    /// From when to when.
    pub time: Interval,
    /// How it ended; `None`: it is open.
    pub end: Option<WaveEnd>,
    /// How long its plan expected it to take.
    pub forecast: Option<SignedDuration>,
    /// The turns of its units, in the order in which they joined it.
    pub turns: Vec<VisitRecord>,
    /// What the judges were asked for it.
    pub judged: Vec<Judgement>,
    /// Gates that were shut while it was open.
    pub shut: Vec<Shut>,
    /// Why it failed, if it did, though it may have passed since.
    pub failed: Option<Reason>,
}

/// How a wave ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaveEnd {
    /// Its gates have held.
    Passed,
    /// It was not carried out.
    Dropped(Reason),
    /// It is back on the release before.
    WentBack,
    /// Another was opened, or the run ended, without a word of it.
    Left,
}

impl WaveEnd {
    /// In a word or two.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Dropped(_) => "dropped",
            Self::WentBack => "rolled back",
            Self::Left => "left",
        }
    }
}

/// The turn of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitRecord {
    /// Which unit.
    pub unit: UnitId,
    /// What it ran before; `None`: its software was laid out ahead of a wave that never came.
    pub before: Option<Revision>,
    /// What was done to it, in order.
    pub spans: Vec<Span>,
}

impl VisitRecord {
    /// From when to when it was out of service, in order: from the first effect of a visit until it was left, or until its change
    /// was done where nothing leaves it; and while it was started once more or brought back. An effect that failed leaves it
    /// out of service until the next one.
    pub fn out_of_service(&self) -> Vec<Interval> {
        let mut times: Vec<Interval> = Vec::new();
        // Whether the last time is over once the next visit begins, or goes on whatever comes.
        let mut is_over = true;
        for span in &self.spans {
            if span.doing == Activity::Preparing || matches!(span.end, Some(SpanEnd::NotBegun(_))) {
                continue;
            }
            let goes_on = !is_over || span.doing == Activity::Leaving;
            match times.last_mut().filter(|_| goes_on) {
                Some(last) => last.to = span.time.to,
                None => times.push(span.time),
            }
            is_over = span.end == Some(SpanEnd::Done) && span.doing != Activity::Entering;
        }
        times
    }

    /// Whether it was brought back to the release before.
    pub fn was_rolled_back(&self) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|span| span.doing == Activity::RollingBack && span.end == Some(SpanEnd::Done))
    }

    /// How long it was out of service in all, or has been at that time.
    pub fn down_for(&self, now: Timestamp) -> SignedDuration {
        let times = self.out_of_service().into_iter();
        times.map(|time| time.length(now)).sum()
    }
}

/// One effect on a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What was done.
    pub doing: Activity,
    /// From its intent to its outcome.
    pub time: Interval,
    /// Its outcome; `None`: it has none.
    pub end: Option<SpanEnd>,
}

/// An activity on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Its software is laid out.
    Preparing,
    /// It is taken out of service.
    Entering,
    /// It is changed.
    Changing,
    /// It is put back into service.
    Leaving,
    /// It is started once more.
    Restarting,
    /// It is brought back to the release before.
    RollingBack,
}

impl Activity {
    /// In a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Entering => "entering",
            Self::Changing => "changing",
            Self::Leaving => "leaving",
            Self::Restarting => "restarting",
            Self::RollingBack => "rolling back",
        }
    }
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanEnd {
    /// The state wanted is there.
    Done,
    /// It is not.
    Failed(String),
    /// It was too late to begin it.
    NotBegun(String),
}

/// What both judges said of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// When they had answered.
    pub at: Timestamp,
    /// Of how many units.
    pub units: usize,
    /// Why they may not go down; `None`: they may.
    pub no: Option<String>,
}

/// A gate that was shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Its name.
    pub gate: String,
    /// The latest reason.
    pub why: String,
    /// From when to when.
    pub time: Interval,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    /// Which.
    pub step: PartName,
    /// From its first attempt until its condition held.
    pub time: Interval,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last attempt failed, if it did.
    pub failed: Option<String>,
}

/// What the run was held by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// For what.
    pub reason: Reason,
    /// From when to when.
    pub time: Interval,
}

/// A guard that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRecord {
    /// Which.
    pub guard: GuardName,
    /// The place of the intent to take it.
    pub seq: Seq,
    /// The units; empty: the whole cluster.
    pub units: Vec<UnitId>,
    /// From when to when.
    pub time: Interval,
}

/// What a person asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCommand {
    /// When it was taken.
    pub at: Timestamp,
    /// What.
    pub command: Command,
    /// Who.
    pub by: String,
}
