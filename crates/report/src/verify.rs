//! Whether a journal keeps the laws of `DESIGN.md`, as far as a journal can tell.
//!
//! Each law is a walk of its own over the events, with as little memory as it needs, so that a fault in what carries a run
//! out is not one here too. What was true in the cluster a journal does not know: of that both judges' answers are read, and
//! not whether they were right.

mod approvals;
mod cleanup;
mod effects;
mod evidence;
mod operator_commands;
mod order;
mod plans;

use serde::{Deserialize, Serialize};
use stagger_core::model::RunId;
use stagger_core::run::{Entry, Event, Seq, Start};

/// A law that a journal can show to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Places follow one another without gaps, from one beginning to at most one end.
    Order,
    /// A fencing token only grows: there is one writer at a time.
    OneWriter,
    /// Every outcome is of an effect that was announced before, every effect has at most one, and none is open at the end.
    JournalFirst,
    /// A wave or a step is the first of a plan made since the last one ended.
    BindingPlan,
    /// Not more units are in one wave than its plan permits together.
    Limits,
    /// Whatever takes a unit out of service was approved by both checks in its wave, and carries the end of that approval.
    TwoJudges,
    /// A point of no return is passed with an approval, or by a policy that opens it.
    PointsOfNoReturn,
    /// After a pause or an abort no wave is opened, and none starts of which nothing was started.
    AskedToStop,
    /// A unit is rolled back only where its wave has failed because of units, or where an operator requested it.
    Evidence,
    /// What was entered is left, and guards are cleared, before the run ends.
    GivenBack,
    /// A run that says that it is done has nothing left to do.
    Ending,
}

impl Law {
    /// All laws, in the order of the report.
    pub const ALL: [Self; 11] = [
        Self::Order,
        Self::OneWriter,
        Self::JournalFirst,
        Self::BindingPlan,
        Self::Limits,
        Self::TwoJudges,
        Self::PointsOfNoReturn,
        Self::AskedToStop,
        Self::Evidence,
        Self::GivenBack,
        Self::Ending,
    ];

    /// Its name, as in documents: `two-judges`.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::OneWriter => "one-writer",
            Self::JournalFirst => "journal-first",
            Self::BindingPlan => "binding-plan",
            Self::Limits => "limits",
            Self::TwoJudges => "two-judges",
            Self::PointsOfNoReturn => "points-of-no-return",
            Self::AskedToStop => "asked-to-stop",
            Self::Evidence => "evidence",
            Self::GivenBack => "given-back",
            Self::Ending => "ending",
        }
    }

    /// What it says, in one sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Order => "events follow one another without gaps, and nothing follows the end",
            Self::OneWriter => "each process that took the run over has a larger token than the one before",
            Self::JournalFirst => "every effect was announced before it was done, and has one outcome",
            Self::BindingPlan => "every wave and step is the first of a plan made for it",
            Self::Limits => "no wave has more units than its plan permits together",
            Self::TwoJudges => "every stop was approved by both checks, and the approval had not expired",
            Self::PointsOfNoReturn => "every point of no return was passed as the policy says",
            Self::AskedToStop => "nothing was started after a pause or an abort",
            Self::Evidence => "units were rolled back only on a failure or a command",
            Self::GivenBack => "guards were cleared, and every unit that was entered was left",
            Self::Ending => "the run ended as it says",
        }
    }

    fn read(self, journal: &Journal<'_>) -> (usize, Vec<Breach>) {
        match self {
            Self::Order => order::places(journal),
            Self::OneWriter => order::tokens(journal),
            Self::JournalFirst => effects::journal_first(journal),
            Self::BindingPlan => plans::binding(journal),
            Self::Limits => plans::limits(journal),
            Self::TwoJudges => approvals::two_judges(journal),
            Self::PointsOfNoReturn => operator_commands::points_of_no_return(journal),
            Self::AskedToStop => operator_commands::stop_commands(journal),
            Self::Evidence => evidence::evidence(journal),
            Self::GivenBack => cleanup::guards_cleared(journal),
            Self::Ending => plans::ending(journal),
        }
    }
}

/// A place where a law is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Breach {
    /// The place of the event.
    pub seq: Seq,
    /// How.
    pub why: String,
}

/// What a journal shows of one law.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LawVerdict {
    /// Which.
    pub law: Law,
    /// How many events it was held against.
    pub looked_at: usize,
    /// Where it is broken, in order; none: it holds.
    pub broken: Vec<Breach>,
}

/// What a journal tells of all laws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Which run.
    pub run: RunId,
    /// Events in its journal.
    pub events: usize,
    /// Whether the run is over: before that it may have effects open and guards taken.
    pub over: bool,
    /// Each law, in the order of [`Law::ALL`].
    pub laws: Vec<LawVerdict>,
}

impl Verification {
    /// Whether no law is broken.
    pub fn holds(&self) -> bool {
        self.laws.iter().all(|verdict| verdict.broken.is_empty())
    }
}

/// A journal that begins with the start of a run.
struct Journal<'a> {
    start: &'a Start,
    entries: &'a [Entry],
}

impl Journal<'_> {
    fn is_over(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.event, Event::Ended { .. }))
    }
}

/// Reads a journal; `None`: its first event is not the start of a run.
pub fn verify(entries: &[Entry]) -> Option<Verification> {
    let Event::Started(start) = &entries.first()?.event else {
        return None;
    };
    let journal = Journal { start, entries };
    let read = |law: Law| {
        let (looked_at, broken) = law.read(&journal);
        LawVerdict {
            law,
            looked_at,
            broken,
        }
    };
    Some(Verification {
        run: start.run.clone(),
        events: entries.len(),
        over: journal.is_over(),
        laws: Law::ALL.into_iter().map(read).collect(),
    })
}
