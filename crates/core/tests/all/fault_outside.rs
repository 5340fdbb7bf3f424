//! What is not the wave's fault is not laid to it: a unit outside it that dies and stays dead, and one of its
//! own that must be left alone in mid-wave.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, Condition, ConditionName, Gate, GoingBack, Kind, Part, PartName, Phase, Policy,
    Reason, Revision, Snapshot, StageSpec, Unit, UnitId, UnitState, Verdict, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Entry, Event, Outcome, Run, Start, TimedObservation,
};
use stagger_core::view;

const OLD: &str = "18.2.7";
const NEW: &str = "20.2.1";
/// What the wave's gates have, in seconds.
const TIMEOUT: i64 = 60;

fn osd(id: u32) -> UnitId {
    UnitId::new(format!("osd.{id}")).unwrap()
}

fn revision(text: &str) -> Revision {
    Revision::new(text).unwrap()
}

fn start() -> Start {
    let stage = StageSpec {
        name: PartName::new("osd").unwrap(),
        kind: Kind::new("osd").unwrap(),
        revision: revision(NEW),
        width: Width::Policy,
        phases: vec![Phase::Change],
        guards: Vec::new(),
        gates: vec![Gate {
            condition: ConditionName::new("pgs-clean").unwrap(),
            hold: SignedDuration::ZERO,
            timeout: SignedDuration::from_secs(TIMEOUT),
        }],
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    };
    begun::start(vec![Part::Stage(stage)], Policy::default())
}

/// osd.0 on the new release, osd.1 as told, and whether all placement groups are clean.
fn seen(second: i64, other: UnitState, clean: Verdict) -> Snapshot {
    let unit = |id: u32, state: UnitState, runs: &str| Unit {
        id: osd(id),
        kind: Kind::new("osd").unwrap(),
        state,
        revision: Some(revision(runs)),
        domains: BTreeMap::new(),
        precedence: 0,
        untouchable: None,
    };
    let clean = Condition::new(
        ConditionName::new("pgs-clean").unwrap(),
        clean,
        "4 placement groups are degraded",
    );
    Snapshot::new(
        ClusterName::new("lab").unwrap(),
        Timestamp::from_second(second).unwrap(),
        "1".to_owned(),
        vec![unit(0, UnitState::Serving, NEW), unit(1, other, OLD)],
        Budgets::default(),
        vec![clean],
        BTreeMap::new(),
    )
    .unwrap()
}

/// A run whose wave of osd.0 serves on the new release.
struct Waiting(Run);

impl Waiting {
    fn new(not_serving: Vec<UnitId>) -> Self {
        Self::begun(not_serving, Outcome::Done { note: String::new() })
    }

    /// One whose visit came to that.
    fn after(outcome: Outcome) -> Self {
        Self::begun(Vec::new(), outcome)
    }

    fn begun(not_serving: Vec<UnitId>, outcome: Outcome) -> Self {
        let mut waiting = Self(begun::run(start()));
        let visit = Action::Visit {
            unit: osd(0),
            phase: Phase::Change,
            revision: revision(NEW),
            moves: Vec::new(),
        };
        for event in [
            Event::WaveOpened {
                stage: PartName::new("osd").unwrap(),
                units: vec![(osd(0), revision(OLD))],
                not_serving,
            },
            Event::Judged {
                units: vec![osd(0)],
                ours: Answer::Yes,
                theirs: Answer::Yes,
                facts: None,
            },
            Effect::from(visit).into(),
            Event::Settled { intent: 4, outcome },
        ] {
            waiting.write(0, event);
        }
        waiting
    }

    fn write(&mut self, second: i64, event: Event) {
        let at = Timestamp::from_second(second).unwrap();
        let seq = self.0.seq() + 1;
        self.0.apply(Entry { seq, at, event }).unwrap();
    }

    /// What comes next at that second; what it would write is written.
    fn next(&mut self, second: i64, other: UnitState, clean: Verdict) -> Decision {
        self.sees(second, &seen(second, other, clean))
    }

    fn sees(&mut self, second: i64, snapshot: &Snapshot) -> Decision {
        let as_of = self.0.seq();
        let now = snapshot.observed_at();
        let decision = self.0.next(now, Some(TimedObservation { snapshot, as_of }));
        if let Decision::Record(events) = &decision {
            for event in events.clone() {
                self.write(second, event);
            }
        }
        decision
    }

    /// Up to the end of the gates' time, with osd.1 down.
    fn time_is_over(&mut self) -> Decision {
        let turned = self.next(1, UnitState::Down, Verdict::No);
        assert!(
            matches!(&turned, Decision::Record(events) if matches!(events[..], [Event::GatesTurned { .. }])),
            "{turned:?}"
        );
        let waits = self.next(TIMEOUT, UnitState::Down, Verdict::No);
        assert!(matches!(waits, Decision::Wait { .. }), "{waits:?}");
        self.next(TIMEOUT + 1, UnitState::Down, Verdict::No)
    }
}

fn slugs(decision: &Decision) -> Vec<String> {
    let Decision::Record(events) = decision else {
        panic!("{decision:?}");
    };
    let slug = |event: &Event| match event {
        Event::Held { reason } => reason.code.to_string(),
        Event::WaveFailed { reason, .. } => format!("failed: {}", reason.code),
        Event::Released => "released".to_owned(),
        Event::WavePassed => "passed".to_owned(),
        Event::GatesTurned { .. } => "turned".to_owned(),
        other => panic!("{other:?}"),
    };
    events.iter().map(slug).collect()
}

#[test]
fn it_is_held_by_name_and_the_wave_stays() {
    let mut run = Waiting::new(Vec::new());
    let held = run.time_is_over();
    assert_eq!(slugs(&held), ["fault-outside-the-wave"]);
    let Decision::Record(events) = &held else {
        unreachable!("just told")
    };
    let [Event::Held { reason }] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(
        reason.detail.starts_with("osd.1 failed outside the open wave"),
        "{}",
        reason.detail
    );
    // It waits without an end, and without writing the same again.
    let waits = run.next(100 * TIMEOUT, UnitState::Down, Verdict::No);
    assert!(matches!(waits, Decision::Wait { until: None, .. }), "{waits:?}");
}

#[test]
fn it_passes_when_the_fault_is_gone_and_recovery_has_its_own_time() {
    let mut run = Waiting::new(Vec::new());
    run.time_is_over();
    let back = 10 * TIMEOUT;
    assert_eq!(
        slugs(&run.next(back, UnitState::Serving, Verdict::No)),
        ["released"]
    );
    assert_eq!(
        slugs(&run.next(back, UnitState::Serving, Verdict::No)),
        ["turned"]
    );
    let waits = run.next(back + TIMEOUT - 1, UnitState::Serving, Verdict::No);
    assert!(matches!(waits, Decision::Wait { .. }), "{waits:?}");
    assert_eq!(
        slugs(&run.next(back + TIMEOUT - 1, UnitState::Serving, Verdict::Yes)),
        ["turned"]
    );
    assert_eq!(
        slugs(&run.next(back + TIMEOUT - 1, UnitState::Serving, Verdict::Yes)),
        ["passed"]
    );
}

#[test]
fn a_hold_is_released_by_open_gates_though_the_unit_stays_away() {
    let mut run = Waiting::new(Vec::new());
    run.time_is_over();
    assert_eq!(
        slugs(&run.next(TIMEOUT + 9, UnitState::Down, Verdict::Yes)),
        ["turned"]
    );
    assert_eq!(
        slugs(&run.next(TIMEOUT + 9, UnitState::Down, Verdict::Yes)),
        ["released", "passed"]
    );
}

#[test]
fn a_gate_that_stays_shut_while_the_wave_serves_holds_it_until_it_opens_and_takes_nothing_back() {
    // What shuts it was down before, and is no news of the wave either.
    let mut run = Waiting::new(vec![osd(1)]);
    assert_eq!(slugs(&run.time_is_over()), ["gates-shut"]);
    let waits = run.next(100 * TIMEOUT, UnitState::Down, Verdict::No);
    assert!(matches!(waits, Decision::Wait { until: None, .. }), "{waits:?}");
    assert_eq!(view::run(&run.0, None).verdict, view::RunVerdict::Held);
    let opens = |run: &mut Waiting| slugs(&run.next(101 * TIMEOUT, UnitState::Down, Verdict::Yes));
    assert_eq!(opens(&mut run), ["turned"]);
    assert_eq!(opens(&mut run), ["released", "passed"]);
}

#[test]
fn a_person_may_still_ask_it_to_go_back() {
    let mut run = Waiting::new(Vec::new());
    run.time_is_over();
    let ask = Event::Asked {
        command: Command::Rollback,
        by: "anna".to_owned(),
    };
    run.write(TIMEOUT + 2, ask);
    let failed = run.next(TIMEOUT + 3, UnitState::Down, Verdict::No);
    assert_eq!(slugs(&failed), ["failed: gates-shut"]);
}

/// osd.0 of the wave as told, all else well.
fn of_the_wave(second: i64, state: UnitState, untouchable: Option<&str>) -> Snapshot {
    let whole = seen(second, UnitState::Serving, Verdict::Yes);
    let mut units = whole.units().to_vec();
    units[0].state = state;
    units[0].untouchable = untouchable.map(|why| Reason::of_backend("node-cordoned", why));
    Snapshot::new(
        whole.cluster().clone(),
        whole.observed_at(),
        "1".to_owned(),
        units,
        Budgets::default(),
        vec![whole.condition(&ConditionName::new("pgs-clean").unwrap())],
        BTreeMap::new(),
    )
    .unwrap()
}

#[test]
fn what_must_be_left_alone_in_mid_wave_is_waited_for_and_then_restarted() {
    let mut run = Waiting::after(Outcome::Failed {
        why: "its pod cannot be scheduled".to_owned(),
    });
    let cordoned = Some("its node n1 is cordoned");
    let held = run.sees(1, &of_the_wave(1, UnitState::Down, cordoned));
    assert_eq!(slugs(&held), ["wave-left-alone"]);
    // Nobody has to do anything for the run.
    assert_eq!(view::run(&run.0, None).verdict, view::RunVerdict::Held);
    let later = 100 * TIMEOUT;
    let waits = run.sees(later, &of_the_wave(later, UnitState::Down, cordoned));
    let Decision::Wait { until: None, why } = &waits else {
        panic!("{waits:?}");
    };
    assert_eq!(why.detail, "osd.0: its node n1 is cordoned");
    let released = run.sees(later + 1, &of_the_wave(later + 1, UnitState::Down, None));
    assert_eq!(slugs(&released), ["released"]);
    let restarts = run.sees(later + 1, &of_the_wave(later + 1, UnitState::Down, None));
    let Decision::Act { fresh, .. } = &restarts else {
        panic!("{restarts:?}");
    };
    assert!(
        matches!(&fresh[..], [Effect { action: Action::Restart { unit }, before: Some(_) }] if *unit == osd(0)),
        "it may serve again by then: {fresh:?}"
    );
}

#[test]
fn one_that_served_and_then_must_be_left_alone_has_its_time_when_it_is_back() {
    let mut run = Waiting::new(Vec::new());
    let turned = run.sees(1, &of_the_wave(1, UnitState::Down, None));
    assert_eq!(slugs(&turned), ["turned"]);
    let late = 2 * TIMEOUT;
    let held = run.sees(
        late,
        &of_the_wave(late, UnitState::Down, Some("its node is cordoned")),
    );
    assert_eq!(slugs(&held), ["wave-left-alone"]);
    // It serves again, on a node that still takes nothing new: that is no reason to wait.
    let back = 10 * TIMEOUT;
    let serves = |second| of_the_wave(second, UnitState::Serving, Some("its node is cordoned"));
    assert_eq!(slugs(&run.sees(back, &serves(back))), ["released"]);
    assert_eq!(slugs(&run.sees(back, &serves(back))), ["turned"]);
    assert_eq!(slugs(&run.sees(back, &serves(back))), ["passed"]);
}
