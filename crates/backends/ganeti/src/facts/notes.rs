//! Notes of a visit: tags on its node, written before a change. Whoever leaves the node later, also another
//! process after a crash, learns from them what was taken, by which run, and since when.
//!
//! A note is `stagger:WHAT:OF@RUN`; `stagger:run:RUN@SECONDS` says when the visit began, in seconds since
//! 1970. Earlier releases wrote no run into the note: such a note belongs to the last run that is noted on
//! its node without a time.
//!
//! `stagger:waits:CALL@RUN` says that a node is empty, and that its visit continues once an operator marks it
//! as done.
//!
//! `stagger:sent:BOOT@RUN` says that a reboot, or a command for the node, was about to be sent while it had
//! that boot id: until it has another one, or has answered long enough, it may be going down.
//!
//! `stagger:done:CALL` is no note of a visit: it stays, and says that the last maintenance other than a
//! reboot was done by that call. Like a boot id, it is only compared with its value before a run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use stagger_core::model::RunId;

/// How our tags begin.
const PREFIX: &str = "stagger:";
const AWAY: &str = "stagger:away:";
const COPY: &str = "stagger:copy:";
const STOPPED: &str = "stagger:stopped:";
const CANDIDATE: &str = "stagger:was:master-candidate";
const REGULAR: &str = "stagger:was:regular";
const RUN: &str = "stagger:run:";
const WAITS: &str = "stagger:waits:";
const SENT: &str = "stagger:sent:";
const DONE: &str = "stagger:done:";
const BOOT: &str = "stagger:boot:";
/// Between a note and its run, and between a run and its time.
const OF: char = '@';

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

/// The notes of one visit. Instances by their ids: a name may change meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The run whose visit it is; `None`: none is noted.
    pub run: Option<RunId>,
    /// When the visit began; `None`: that is not noted.
    pub since: Option<Timestamp>,
    /// The boot id that the node had then. Never read back: its tag outlives the visit ([`NodeNotes::boots`]).
    pub boot: Option<String>,
    /// Instances that were moved away, and come back.
    pub away: BTreeSet<String>,
    /// Instances whose second copy was made elsewhere, and comes back.
    pub copies: BTreeSet<String>,
    /// Instances that were shut down, and are started again.
    pub stopped: BTreeSet<String>,
    /// The role that the node had.
    pub was: Option<PriorRole>,
    /// The calls that wait until a person says that the node is done.
    pub waits: BTreeSet<String>,
    /// The boot id that the node had when a reboot or a command was about to be sent to it.
    pub sent: Option<String>,
    /// The tags from which they were read; none: they are not written yet.
    pub written: Vec<String>,
}

impl Notes {
    /// As tags: those from which they were read, or those that are to be written.
    pub fn tags(&self) -> Vec<String> {
        if !self.written.is_empty() {
            return self.written.clone();
        }
        let of = self
            .run
            .as_ref()
            .map(|run| format!("{OF}{run}"))
            .unwrap_or_default();
        let noted = |what: &str, ids: &BTreeSet<String>| -> Vec<String> {
            ids.iter().map(|id| format!("{what}{id}{of}")).collect()
        };
        let mut tags = noted(AWAY, &self.away);
        tags.extend(noted(COPY, &self.copies));
        tags.extend(noted(STOPPED, &self.stopped));
        tags.extend(noted(WAITS, &self.waits));
        tags.extend(self.sent.iter().map(|boot| format!("{SENT}{boot}{of}")));
        tags.extend(self.was.map(|was| match was {
            PriorRole::Candidate => format!("{CANDIDATE}{of}"),
            PriorRole::Regular => format!("{REGULAR}{of}"),
        }));
        if let (Some(run), Some(since)) = (&self.run, self.since) {
            tags.push(format!("{RUN}{run}{OF}{}", since.as_second()));
        }
        if let (Some(boot), Some(since)) = (&self.boot, self.since) {
            tags.push(boot_tag(boot, since));
        }
        tags
    }

    /// Whose visit it is, in words.
    pub fn owner_text(&self) -> String {
        match &self.run {
            Some(run) => format!("run {run}"),
            None => "a run that is not named".to_owned(),
        }
    }

    /// Whether nothing is noted of a visit.
    pub fn is_empty(&self) -> bool {
        self.tags().is_empty()
    }

    /// Whether it says of an instance what was done with it.
    pub fn names(&self, uuid: &str) -> bool {
        self.away.contains(uuid) || self.copies.contains(uuid) || self.stopped.contains(uuid)
    }

    /// What of these is not noted yet.
    #[must_use]
    pub fn difference(&self, noted: &Self) -> Self {
        Self {
            run: self.run.clone(),
            since: self.since.filter(|_| noted.since.is_none()),
            // With no time it is no tag.
            boot: self.boot.clone(),
            away: self.away.difference(&noted.away).cloned().collect(),
            copies: self.copies.difference(&noted.copies).cloned().collect(),
            stopped: self.stopped.difference(&noted.stopped).cloned().collect(),
            was: self.was.filter(|_| noted.was.is_none()),
            waits: self.waits.difference(&noted.waits).cloned().collect(),
            sent: self.sent.clone().filter(|_| self.sent != noted.sent),
            written: Vec::new(),
        }
    }
}

/// All notes of one node: those of each run for themselves, since nobody acts on those of another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeNotes {
    visits: BTreeMap<Option<RunId>, Notes>,
    /// The calls by which maintenance other than a reboot was carried out last; several, where a process died between writing
    /// the newest and taking away the one before.
    pub done: BTreeSet<String>,
    /// Which boot ids the node had when visits began, and when that was.
    pub boots: BTreeSet<(Timestamp, String)>,
    /// Tags of ours that this release does not know.
    pub unknown: Vec<String>,
}

impl From<Notes> for NodeNotes {
    fn from(notes: Notes) -> Self {
        Self {
            visits: BTreeMap::from([(notes.run.clone(), notes)]),
            done: BTreeSet::new(),
            boots: BTreeSet::new(),
            unknown: Vec::new(),
        }
    }
}

impl NodeNotes {
    /// The notes among a node's tags.
    pub fn read(tags: &[String]) -> Self {
        // Who names runs in each note says when its visit began: notes without a run are not of those.
        let last_run = tags
            .iter()
            .filter_map(|tag| run_of(tag))
            .filter(|(_, since)| since.is_none())
            .map(|(run, _)| run)
            .max();
        let mut notes = Self::default();
        for tag in tags {
            if let Some((run, since)) = run_of(tag) {
                let visit = notes.visit(Some(run), tag);
                visit.since = visit.since.or(since);
                continue;
            }
            if let Some(call) = tag.strip_prefix(DONE) {
                notes.done.insert(call.to_owned());
                continue;
            }
            if let Some(boot) = boot_of(tag) {
                notes.boots.insert(boot);
                continue;
            }
            let (what, run) = match tag.split_once(OF) {
                Some((what, run)) => match RunId::new(run) {
                    Ok(run) => (what, Some(run)),
                    Err(_) => (tag.as_str(), None),
                },
                None => (tag.as_str(), last_run.clone()),
            };
            if let Some(uuid) = what.strip_prefix(AWAY) {
                notes.visit(run, tag).away.insert(uuid.to_owned());
            } else if let Some(uuid) = what.strip_prefix(COPY) {
                notes.visit(run, tag).copies.insert(uuid.to_owned());
            } else if let Some(uuid) = what.strip_prefix(STOPPED) {
                notes.visit(run, tag).stopped.insert(uuid.to_owned());
            } else if let Some(call) = what.strip_prefix(WAITS) {
                notes.visit(run, tag).waits.insert(call.to_owned());
            } else if let Some(boot) = what.strip_prefix(SENT) {
                notes.visit(run, tag).sent = Some(boot.to_owned());
            } else if what == CANDIDATE {
                notes.visit(run, tag).was = Some(PriorRole::Candidate);
            } else if what == REGULAR {
                // Both: it was written twice, and a candidate it may be again.
                notes.visit(run, tag).was.get_or_insert(PriorRole::Regular);
            } else if tag.starts_with(PREFIX) {
                notes.unknown.push(tag.clone());
            }
        }
        notes
    }

    fn visit(&mut self, run: Option<RunId>, tag: &str) -> &mut Notes {
        let visit = self.visits.entry(run.clone()).or_default();
        visit.run = run;
        visit.written.push(tag.to_owned());
        visit
    }

    /// Whether no visit has begun that is not over.
    pub fn is_empty(&self) -> bool {
        self.visits.values().all(Notes::is_empty)
    }

    /// Those of that run's visit; `None`: those that name no run.
    pub fn of(&self, run: Option<&RunId>) -> Notes {
        let visit = self.visits.get(&run.cloned());
        visit.cloned().unwrap_or_else(|| Notes {
            run: run.cloned(),
            ..Notes::default()
        })
    }

    /// Of each visit, by its run.
    pub fn visits(&self) -> impl Iterator<Item = &Notes> {
        self.visits.values().filter(|notes| !notes.is_empty())
    }

    /// Whether the node has another boot id now than when a visit began, then or later.
    pub fn booted_since(&self, since: Timestamp, now: &str) -> bool {
        self.boots.iter().any(|(at, boot)| *at >= since && boot != now)
    }

    /// The tags of boot ids that tell nothing more, where that is the node's: all but the newest that is another.
    pub fn outdated_boots(&self, now: &str) -> Vec<String> {
        let mut known = self.boots.iter().rev();
        let newest = known.find(|(_, boot)| boot != now);
        let outdated = self.boots.iter().filter(|boot| Some(*boot) != newest);
        outdated.map(|(at, boot)| boot_tag(boot, *at)).collect()
    }

    /// Those of other runs than that.
    pub fn of_other_runs<'a>(&'a self, run: Option<&'a RunId>) -> impl Iterator<Item = &'a Notes> {
        self.visits().filter(move |notes| notes.run.as_ref() != run)
    }
}

/// The tag that says that maintenance other than a reboot was carried out by that call.
pub fn done_tag(call: &str) -> String {
    format!("{DONE}{call}")
}

fn boot_tag(boot: &str, at: Timestamp) -> String {
    format!("{BOOT}{boot}{OF}{}", at.as_second())
}

fn boot_of(tag: &str) -> Option<(Timestamp, String)> {
    let (boot, seconds) = tag.strip_prefix(BOOT)?.split_once(OF)?;
    let at = Timestamp::from_second(seconds.parse().ok()?).ok()?;
    Some((at, boot.to_owned()))
}

/// The run and the time of a tag that says that a visit has begun.
fn run_of(tag: &str) -> Option<(RunId, Option<Timestamp>)> {
    let said = tag.strip_prefix(RUN)?;
    let (run, since) = match said.split_once(OF) {
        Some((run, seconds)) => (run, Some(Timestamp::from_second(seconds.parse().ok()?).ok()?)),
        None => (said, None),
    };
    Some((RunId::new(run).ok()?, since))
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
            waits in proptest::collection::btree_set("[0-9]{8}-[0-9]{4}-[0-9a-f]{4}-[0-9]{1,6}-[0-9]", 0..3),
            run in "[0-9]{8}-[0-9]{4}-[0-9a-f]{4}",
            since in 1_700_000_000_i64..2_000_000_000,
        ) {
            let was = was.map(|candidate| if candidate { PriorRole::Candidate } else { PriorRole::Regular });
            let run = RunId::new(run).unwrap();
            let since = Timestamp::from_second(since).ok();
            let sent = was.and(Some("0d6ad5bc-3b3f-4d6c-9f0f-0f9f3c1f7f10".to_owned()));
            let boot = Some("0d6ad5bc-3b3f-4d6c-9f0f-0f9f3c1f7f10".to_owned());
            let notes = Notes { run: Some(run.clone()), since, boot, away, copies, stopped, was, waits, sent, written: Vec::new() };
            let mut tags = notes.tags();
            // Ganeti's own rule for a tag.
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_.+*/:@-".contains(c);
            prop_assert!(tags.iter().all(|tag| tag.len() <= 128 && tag.chars().all(allowed)));
            let written: Vec<String> = tags.iter().filter(|tag| !tag.starts_with(BOOT)).cloned().collect();
            tags.push("rack:a".to_owned());
            let read = NodeNotes::read(&tags);
            prop_assert_eq!(read.boots.len(), 1, "it outlives the visit");
            prop_assert_eq!(read.of(Some(&run)), Notes { written, boot: None, ..notes.clone() });
            prop_assert_eq!(read.of_other_runs(Some(&run)).count(), 0);
            prop_assert!(notes.difference(&notes).is_empty());
            prop_assert_eq!(notes.difference(&Notes::default()), notes);
        }
    }

    fn read(tags: &[&str]) -> NodeNotes {
        NodeNotes::read(&tags.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_boot_id_of_before_tells_whether_a_node_has_booted_since() {
        let notes = read(&[
            "stagger:boot:a@1000",
            "stagger:boot:b@2000",
            "stagger:boot:c@3000",
        ]);
        let since = |at| notes.booted_since(Timestamp::from_second(at).unwrap(), "c");
        assert!(since(1500) && since(2000));
        assert!(!since(2001), "the visit at 3000 was left without a reboot");
        assert_eq!(
            notes.outdated_boots("c"),
            ["stagger:boot:a@1000", "stagger:boot:c@3000"]
        );
        assert_eq!(
            notes.outdated_boots("d"),
            ["stagger:boot:a@1000", "stagger:boot:b@2000"]
        );
        assert!(notes.is_empty(), "none is of a visit that is not over");
    }

    #[test]
    fn notes_of_a_release_before_are_of_the_last_run_that_is_noted() {
        let runs = ["20261122-0537-ab12", "20261124-0000-abcd"].map(|run| RunId::new(run).unwrap());
        let tags = [
            "stagger:away:u1",
            "stagger:run:20261124-0000-abcd",
            "stagger:run:20261122-0537-ab12",
            "stagger:was:regular",
        ];
        let notes = read(&tags);
        let last = notes.of(Some(&runs[1]));
        assert_eq!((last.away.len(), last.was), (1, Some(PriorRole::Regular)));
        assert_eq!(
            last.tags(),
            [
                "stagger:away:u1",
                "stagger:run:20261124-0000-abcd",
                "stagger:was:regular"
            ]
        );
        assert_eq!(notes.of(Some(&runs[0])).away.len(), 0);
        let beside = read(&["stagger:stopped:u2", "stagger:run:20261124-0000-abcd@1795219724"]);
        assert_eq!(
            beside.of(None).stopped.len(),
            1,
            "that run names itself in its notes"
        );
        let nobodys = read(&["stagger:stopped:u2"]);
        assert_eq!(nobodys.of(None).stopped.len(), 1);
        assert!(nobodys.of(Some(&runs[0])).is_empty());
    }

    #[test]
    fn what_was_carried_out_is_no_note_of_a_visit() {
        let tag = done_tag("20261122-0537-ab12-9-1");
        let notes = read(&[&tag]);
        assert!(notes.is_empty() && notes.unknown.is_empty());
        assert_eq!(notes.done, BTreeSet::from(["20261122-0537-ab12-9-1".to_owned()]));
    }

    #[test]
    fn notes_of_two_runs_are_kept_apart_and_what_is_not_known_is_told() {
        let notes = read(&[
            "stagger:away:u1@20261122-0537-ab12",
            "stagger:run:20261122-0537-ab12@1795219724",
            "stagger:stopped:u2@20261124-0000-abcd",
            "stagger:later:u3",
        ]);
        let of: Vec<(String, usize, usize)> = notes
            .visits()
            .map(|visit| {
                (
                    visit.run.as_ref().unwrap().to_string(),
                    visit.away.len(),
                    visit.stopped.len(),
                )
            })
            .collect();
        assert_eq!(
            of,
            [
                ("20261122-0537-ab12".to_owned(), 1, 0),
                ("20261124-0000-abcd".to_owned(), 0, 1)
            ]
        );
        assert_eq!(notes.unknown, ["stagger:later:u3"]);
        let first = notes.visits().next().unwrap();
        assert_eq!(first.since.unwrap().as_second(), 1_795_219_724);
    }
}
