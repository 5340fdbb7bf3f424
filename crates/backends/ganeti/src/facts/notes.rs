//! What a visit notes on its node, in tags, before it changes anything: whoever leaves the node later, also
//! another process after a crash, knows from there what was taken away from it.

use std::collections::BTreeSet;

use stagger_core::model::RunId;

/// How our tags begin.
const PREFIX: &str = "stagger:";
const AWAY: &str = "stagger:away:";
const COPY: &str = "stagger:copy:";
const STOPPED: &str = "stagger:stopped:";
const CANDIDATE: &str = "stagger:was:master-candidate";
const REGULAR: &str = "stagger:was:regular";
const RUN: &str = "stagger:run:";

/// The role that a node had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorRole {
    /// A master candidate, or the master.
    Candidate,
    /// Neither.
    Regular,
}

impl PriorRole {
    /// As RAPI has it.
    pub fn as_role(self) -> &'static str {
        match self {
            Self::Candidate => "master-candidate",
            Self::Regular => "regular",
        }
    }
}

/// The notes of one node. Instances by their ids: a name may change meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// Instances that were moved away, and come back.
    pub away: BTreeSet<String>,
    /// Instances whose second copy was made elsewhere, and comes back.
    pub copies: BTreeSet<String>,
    /// Instances that were shut down, and are started again.
    pub stopped: BTreeSet<String>,
    /// The role that it had.
    pub was: Option<PriorRole>,
    /// The runs whose visits it is; several where one began when another had been given up.
    pub runs: BTreeSet<RunId>,
    /// Tags of ours that this release does not know.
    pub unknown: Vec<String>,
}

impl Notes {
    /// The notes among a node's tags.
    pub fn read(tags: &[String]) -> Self {
        let mut notes = Self::default();
        for tag in tags {
            if let Some(uuid) = tag.strip_prefix(AWAY) {
                notes.away.insert(uuid.to_owned());
            } else if let Some(uuid) = tag.strip_prefix(COPY) {
                notes.copies.insert(uuid.to_owned());
            } else if let Some(uuid) = tag.strip_prefix(STOPPED) {
                notes.stopped.insert(uuid.to_owned());
            } else if tag == CANDIDATE {
                notes.was = Some(PriorRole::Candidate);
            } else if tag == REGULAR {
                // Both: it was written twice, and a candidate it may be again.
                notes.was.get_or_insert(PriorRole::Regular);
            } else if let Some(run) = tag.strip_prefix(RUN).and_then(|run| RunId::new(run).ok()) {
                notes.runs.insert(run);
            } else if tag.starts_with(PREFIX) {
                notes.unknown.push(tag.clone());
            }
        }
        notes
    }

    /// As tags.
    pub fn tags(&self) -> Vec<String> {
        let away = self.away.iter().map(|uuid| format!("{AWAY}{uuid}"));
        let copies = self.copies.iter().map(|uuid| format!("{COPY}{uuid}"));
        let stopped = self.stopped.iter().map(|uuid| format!("{STOPPED}{uuid}"));
        let was = self.was.map(|was| match was {
            PriorRole::Candidate => CANDIDATE.to_owned(),
            PriorRole::Regular => REGULAR.to_owned(),
        });
        let runs = self.runs.iter().map(|run| format!("{RUN}{run}"));
        away.chain(copies).chain(stopped).chain(was).chain(runs).collect()
    }

    /// Whether a visit has begun, and is not over.
    pub fn is_empty(&self) -> bool {
        let nothing_away = self.away.is_empty() && self.copies.is_empty() && self.stopped.is_empty();
        nothing_away && self.was.is_none() && self.runs.is_empty()
    }

    /// What of these is not noted yet.
    #[must_use]
    pub fn missing_in(&self, noted: &Self) -> Self {
        Self {
            away: self.away.difference(&noted.away).cloned().collect(),
            copies: self.copies.difference(&noted.copies).cloned().collect(),
            stopped: self.stopped.difference(&noted.stopped).cloned().collect(),
            was: self.was.filter(|_| noted.was.is_none()),
            runs: self.runs.difference(&noted.runs).cloned().collect(),
            unknown: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_noted_is_read(
            away in proptest::collection::btree_set("[0-9a-f-]{36}", 0..5),
            copies in proptest::collection::btree_set("[0-9a-f-]{36}", 0..5),
            stopped in proptest::collection::btree_set("[0-9a-f-]{36}", 0..5),
            was in proptest::option::of(proptest::bool::ANY),
            runs in proptest::collection::btree_set("[0-9]{8}-[0-9]{4}-[0-9a-f]{4}", 0..2),
        ) {
            let was = was.map(|candidate| if candidate { PriorRole::Candidate } else { PriorRole::Regular });
            let runs = runs.iter().map(|run| RunId::new(run.as_str()).unwrap()).collect();
            let notes = Notes { away, copies, stopped, was, runs, unknown: Vec::new() };
            let mut tags = notes.tags();
            // Ganeti's own rule for a tag.
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_.+*/:@-".contains(c);
            prop_assert!(tags.iter().all(|tag| tag.len() <= 128 && tag.chars().all(allowed)));
            tags.push("rack:a".to_owned());
            prop_assert_eq!(&Notes::read(&tags), &notes);
            prop_assert!(notes.missing_in(&notes).is_empty());
            prop_assert_eq!(notes.missing_in(&Notes::default()), notes);
        }
    }
}
