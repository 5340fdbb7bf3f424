//! What is gone while a unit has its turn is asked for, also where that came about after the run began.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::model::{
    Budgets, ClusterName, Code, GoingBack, Interruption, Kind, Part, PartName, Phase, Policy, Revision,
    Snapshot, StageSpec, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Command, Decision, Ending, Entry, Event, Run, TimedObservation};

/// A run with one metadata server to do, whose standby went away: it alone serves now.
struct Alone {
    run: Run,
    standby: bool,
}

impl Alone {
    fn new(partial: bool) -> Self {
        let kind = Kind::new("mds").unwrap();
        let stage = StageSpec {
            name: PartName::new("mds").unwrap(),
            kind,
            revision: Revision::new("20").unwrap(),
            width: Width::Policy,
            phases: vec![Phase::Change],
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: true,
            going_back: GoingBack::Restart,
            maintenance: None,
        };
        let start = begun::start(
            vec![Part::Stage(stage)],
            Policy {
                partial,
                ..Policy::default()
            },
        );
        Self {
            run: begun::run(start),
            standby: false,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let unit = Unit {
            id: UnitId::new("mds.a").unwrap(),
            kind: Kind::new("mds").unwrap(),
            state: UnitState::Serving,
            revision: Some(Revision::new("18").unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        };
        let generation = if self.standby { "2" } else { "1" };
        let snapshot = Snapshot::new(
            ClusterName::new("lab").unwrap(),
            Timestamp::UNIX_EPOCH,
            generation.to_owned(),
            vec![unit],
            Budgets::default(),
            Vec::new(),
            BTreeMap::new(),
        );
        let interruption = Interruption {
            name: "mds.a".to_owned(),
            sort: "mds".to_owned(),
            units: vec![UnitId::new("mds.a").unwrap()],
            what: "clients of the file system home wait".to_owned(),
            // As a backend has it that was told of each word.
            permitted: self
                .run
                .permitted_interruptions()
                .any(|word| word == "mds.a" || word == "mds"),
        };
        // What is permitted, and what stands in nobody's way who was left.
        let other = |name: &str, unit: &str, permitted| Interruption {
            name: name.to_owned(),
            units: vec![UnitId::new(unit).unwrap()],
            permitted,
            ..interruption.clone()
        };
        let others = [other("pool.a", "mds.a", true), other("pool.b", "mds.b", false)];
        let alone = Some(interruption).filter(|_| !self.standby);
        snapshot
            .unwrap()
            .with_interruptions(alone.into_iter().chain(others))
    }

    fn write(&mut self, event: Event) {
        let entry = Entry {
            seq: self.run.seq() + 1,
            at: Timestamp::UNIX_EPOCH,
            event,
        };
        self.run.apply(entry).unwrap();
    }

    /// What it comes to while it only writes.
    fn goes_on(&mut self) -> Decision {
        for _ in 0..20 {
            let snapshot = self.snapshot();
            let seen = TimedObservation {
                snapshot: &snapshot,
                as_of: self.run.seq(),
            };
            match self.run.next(Timestamp::UNIX_EPOCH, Some(seen)) {
                Decision::Record(events) => events.into_iter().for_each(|event| self.write(event)),
                other => return other,
            }
        }
        panic!("it only writes");
    }

    fn is_held(&mut self) {
        let Decision::Hold(reason) = self.goes_on() else {
            panic!("{:?}", self.goes_on());
        };
        assert_eq!(reason.code, Code::InterruptionNotPermitted);
        for words in [
            "clients of the file system home wait",
            "`stagger approve r1 mds.a`",
        ] {
            assert!(reason.detail.contains(words), "{reason}");
        }
        assert!(
            !reason.detail.contains("pool."),
            "that is not asked for: {reason}"
        );
    }
}

fn is_at_work(decision: &Decision) -> bool {
    matches!(decision, Decision::Judge(sets) if sets.len() == 1)
}

#[test]
fn what_nothing_stands_in_for_any_more_is_asked_for_in_mid_run() {
    for word in ["mds.a", "mds"] {
        let mut alone = Alone::new(false);
        alone.is_held();
        let door = PartName::new(word).unwrap();
        assert!(
            alone.run.knows_approval(&door) && !alone.run.knows_approval(&PartName::new("mds.b").unwrap())
        );
        alone.write(Event::Asked {
            command: Command::Approve { door },
            by: "anna".to_owned(),
        });
        assert!(is_at_work(&alone.goes_on()), "{word}: {:?}", alone.goes_on());
    }
}

#[test]
fn it_goes_on_by_itself_once_something_stands_in() {
    let mut alone = Alone::new(false);
    alone.is_held();
    alone.standby = true;
    assert!(is_at_work(&alone.goes_on()), "{:?}", alone.goes_on());
}

#[test]
fn whoever_asked_for_what_can_be_done_is_asked_for_nothing() {
    let mut alone = Alone::new(true);
    let Decision::Over(Ending::Incomplete { left }) = alone.goes_on() else {
        panic!("{:?}", alone.goes_on());
    };
    assert_eq!(left[0].0, "mds.a");
}
