//! How long a gate has held is told by what was seen, not by the clock.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, Condition, ConditionName, Gate, GoingBack, Kind, Part, PartName, Phase, Policy,
    Revision, Snapshot, StageSpec, Unit, UnitId, UnitState, Verdict, Width,
};
use stagger_core::run::{Action, Answer, Decision, Effect, Entry, Event, Outcome, Run, TimedObservation};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn mon() -> UnitId {
    UnitId::new("mon.a").unwrap()
}

fn quorum() -> ConditionName {
    ConditionName::new("quorum").unwrap()
}

/// Everything is well, as seen at that second.
fn well(second: i64) -> Snapshot {
    let unit = Unit {
        id: mon(),
        kind: Kind::new("mon").unwrap(),
        state: UnitState::Serving,
        revision: Some(Revision::new("18.2.7").unwrap()),
        domains: BTreeMap::new(),
        precedence: 0,
        untouchable: None,
    };
    let condition = Condition::new(quorum(), Verdict::Yes, "");
    let cluster = ClusterName::new("lab").unwrap();
    let budgets = Budgets::default();
    Snapshot::new(
        cluster,
        at(second),
        "1".to_owned(),
        vec![unit],
        budgets,
        vec![condition],
        BTreeMap::new(),
    )
    .unwrap()
}

#[test]
fn an_answer_that_took_long_does_not_show_that_a_gate_has_held() {
    let stage = StageSpec {
        name: PartName::new("mon").unwrap(),
        kind: Kind::new("mon").unwrap(),
        revision: Revision::new("18.2.7").unwrap(),
        width: Width::Single,
        phases: vec![Phase::Change],
        guards: Vec::new(),
        gates: vec![Gate {
            condition: quorum(),
            hold: SignedDuration::from_secs(12),
            timeout: SignedDuration::from_secs(60),
        }],
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    };
    let start = begun::start(vec![Part::Stage(stage)], Policy::default());
    let before = Revision::new("16.2.15").unwrap();
    let visit = Action::Visit {
        unit: mon(),
        phase: Phase::Change,
        revision: Revision::new("18.2.7").unwrap(),
        moves: Vec::new(),
    };
    let events = [
        Event::Started(Box::new(start)),
        Event::WaveOpened {
            stage: PartName::new("mon").unwrap(),
            units: vec![(mon(), before)],
            not_serving: Vec::new(),
        },
        Event::Judged {
            units: vec![mon()],
            ours: Answer::Yes,
            theirs: Answer::Yes,
            facts: None,
        },
        Effect::from(visit).into(),
        Event::Settled {
            intent: 4,
            outcome: Outcome::Done { note: String::new() },
        },
        Event::GatesTurned { shut: Vec::new() },
    ];
    let entries = events.into_iter().zip(1..).map(|(event, seq)| Entry {
        seq,
        at: at(0),
        event,
    });
    let run = Run::replay(entries).unwrap().unwrap();
    let next = |seen: i64| {
        let snapshot = well(seen);
        let seen = TimedObservation {
            snapshot: &snapshot,
            as_of: run.seq(),
        };
        // The clock says in any case that the time is over.
        run.next(at(20), Some(seen))
    };
    assert!(matches!(next(11), Decision::Wait { .. }), "{:?}", next(11));
    assert_eq!(next(12), Decision::Record(vec![Event::WavePassed]));
}
