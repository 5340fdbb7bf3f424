//! What may go on, and how long: approvals expire, what cannot be prepared has changed nothing, and what speaks
//! against a wave is looked at once more before anything goes back.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, BudgetsBuilder, ClusterName, Code, Condition, ConditionName, Gate, GoingBack, HostName, Ix,
    Kind, OnFailure, Part, PartName, Phase, Policy, Reason, Revision, Snapshot, StageSpec, Unit, UnitId,
    UnitState, Verdict, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, TimedObservation,
};

const AGE: i64 = 20;

fn unit(id: &str) -> UnitId {
    UnitId::new(id).unwrap()
}

fn revision(text: &str) -> Revision {
    Revision::new(text).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn stage(kind: &str, may_be_left: bool) -> Part {
    Part::Stage(StageSpec {
        name: PartName::new(kind).unwrap(),
        kind: Kind::new(kind).unwrap(),
        revision: revision("20"),
        width: Width::Policy,
        phases: vec![Phase::Prepare, Phase::Change],
        guards: Vec::new(),
        gates: vec![Gate {
            condition: ConditionName::new("healthy").unwrap(),
            hold: SignedDuration::ZERO,
            timeout: SignedDuration::from_secs(60),
        }],
        door_before_last: None,
        may_be_left,
        going_back: GoingBack::Restart,
        maintenance: None,
    })
}

/// A run of three OSDs at once, and then a metadata server, in a world that is as it is told.
struct Story {
    run: Run,
    now: i64,
    units: BTreeMap<UnitId, (UnitState, &'static str)>,
    healthy: bool,
    /// Its OSDs may not go now, and may once it has recovered.
    recovers: bool,
    generation: u32,
}

impl Story {
    fn new(may_be_left: bool) -> Self {
        let start = begun::start(
            vec![stage("osd", may_be_left), stage("mds", false)],
            Policy {
                max_in_parallel: "100%".parse().unwrap(),
                growth: stagger_core::model::Growth::None,
                canary_soak: 0,
                gate_hold: 0,
                approval_age: u32::try_from(AGE).unwrap(),
                on_failure: OnFailure::Rollback,
                ..Policy::default()
            },
        );
        let names = ["osd.0", "osd.1", "osd.2", "mds.a"];
        Self {
            run: begun::run(start),
            now: 0,
            units: names.map(|id| (unit(id), (UnitState::Serving, "18"))).into(),
            healthy: true,
            recovers: false,
            generation: 1,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let units = self.units.iter().map(|(id, (state, runs))| Unit {
            id: id.clone(),
            kind: Kind::new(id.as_str().split('.').next().unwrap()).unwrap(),
            state: *state,
            revision: Some(revision(runs)),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let condition = Condition::new(
            ConditionName::new("healthy").unwrap(),
            if self.healthy { Verdict::Yes } else { Verdict::No },
            "PG_NOT_DEEP_SCRUBBED",
        );
        let mut now = BudgetsBuilder::default();
        if self.recovers {
            now.add("placement group", "1.0", 0, &[(Ix(1), 1), (Ix(2), 1), (Ix(3), 1)]);
        }
        let snapshot = Snapshot::new(
            ClusterName::new("lab").unwrap(),
            at(self.now),
            self.generation.to_string(),
            units.collect(),
            now.build(),
            vec![condition],
            BTreeMap::new(),
        )
        .unwrap();
        if self.recovers {
            snapshot.with_recovered(Budgets::default()).unwrap()
        } else {
            snapshot
        }
    }

    fn next(&self) -> Decision {
        let snapshot = self.snapshot();
        let seen = TimedObservation {
            snapshot: &snapshot,
            as_of: self.run.seq(),
        };
        self.run.next(at(self.now), Some(seen))
    }

    fn write(&mut self, event: Event) -> u64 {
        let seq = self.run.seq() + 1;
        let entry = Entry {
            seq,
            at: at(self.now),
            event,
        };
        self.run.apply(entry).unwrap();
        seq
    }

    fn settle(&mut self, intent: u64, outcome: Outcome) {
        self.write(Event::Settled { intent, outcome });
    }

    /// Decisions are carried out, with both judges agreeing, until effects are announced: they, with their places.
    fn announced(&mut self) -> Vec<(u64, Effect)> {
        for _ in 0..40 {
            match self.next() {
                Decision::Record(events) => events.into_iter().for_each(|event| {
                    self.write(event);
                }),
                Decision::Judge(sets) => {
                    for units in sets {
                        self.write(Event::Judged {
                            units,
                            ours: Answer::Yes,
                            theirs: Answer::Yes,
                            facts: Some(at(self.now)),
                        });
                    }
                }
                Decision::Act { fresh, .. } if !fresh.is_empty() => {
                    let write = |effect: Effect| (self.write(effect.clone().into()), effect);
                    return fresh.into_iter().map(write).collect();
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("nothing is announced");
    }

    /// The wave of all three, prepared: what is announced next takes them down.
    fn prepared(may_be_left: bool) -> Self {
        let mut story = Self::new(may_be_left);
        let prepares = story.announced();
        assert_eq!(
            phases(&prepares),
            ["prepare osd.0", "prepare osd.1", "prepare osd.2"]
        );
        for (intent, effect) in prepares {
            assert_eq!(effect.before, None, "it stops nothing");
            story.settle(intent, Outcome::Done { note: String::new() });
        }
        story
    }

    /// All three had their turn and are what that says.
    fn changed(states: [(UnitState, &'static str); 3], outcomes: [Outcome; 3]) -> Self {
        let mut story = Self::prepared(false);
        let changes = story.announced();
        for (((intent, effect), state), outcome) in changes.into_iter().zip(states).zip(outcomes) {
            story.units.insert(effect.action.unit().unwrap().clone(), state);
            story.settle(intent, outcome);
        }
        story.generation += 1;
        story
    }

    /// What it waits for or is held by in the end, while it only writes.
    fn waits(&mut self) -> Reason {
        for _ in 0..20 {
            match self.next() {
                Decision::Record(events) => events.into_iter().for_each(|event| {
                    self.write(event);
                }),
                Decision::Wait { why, .. } | Decision::Hold(why) => return why,
                other => panic!("{other:?}"),
            }
        }
        panic!("it only writes");
    }
}

fn phases(effects: &[(u64, Effect)]) -> Vec<String> {
    let told = |(_, effect): &(u64, Effect)| match &effect.action {
        Action::Visit { unit, phase, .. } => format!("{phase:?} {unit}").to_lowercase(),
        Action::Restart { unit } => format!("restart {unit}"),
        Action::GoBack { unit, .. } => format!("go back {unit}"),
        other => panic!("{other:?}"),
    };
    effects.iter().map(told).collect()
}

fn done() -> Outcome {
    Outcome::Done { note: String::new() }
}

fn failed() -> Outcome {
    Outcome::Failed {
        why: "exit 3".to_owned(),
    }
}

const NEW: (UnitState, &str) = (UnitState::Serving, "20");
const DOWN: (UnitState, &str) = (UnitState::Down, "20");

#[test]
fn what_stops_a_unit_carries_the_end_of_its_approval_and_is_judged_after_the_software_is_laid_out() {
    let mut story = Story::prepared(false);
    // The installation took its time: nobody was asked before it.
    story.now = 600;
    assert_eq!(
        story.next(),
        Decision::Judge(vec![vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]])
    );
    let changes = story.announced();
    assert_eq!(phases(&changes), ["change osd.0", "change osd.1", "change osd.2"]);
    for (seq, effect) in changes {
        assert_eq!(effect.before, Some(at(600 + AGE)));
        assert_eq!(story.run.begins_before(seq), Some(at(600 + AGE)));
    }
}

#[test]
fn a_unit_lost_during_the_installation_is_seen_before_anything_is_stopped() {
    let mut story = Story::prepared(false);
    story.healthy = false;
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    let [Event::WaveDropped { reason }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(reason.code, Code::GatesShut);
}

#[test]
fn an_approval_that_nobody_used_in_time_is_asked_for_again() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    story.write(Event::Judged {
        units: all.clone(),
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: None,
    });
    story.now = AGE;
    assert_eq!(story.next(), Decision::Judge(vec![all]));
}

/// Found by the simulator: after a dropped wave the next was judged by facts from before it, and a monitor that had crashed
/// since was not missed.
#[test]
fn an_approval_is_as_old_as_the_facts_by_which_we_judged() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    story.now = 100;
    story.write(Event::Judged {
        units: all.clone(),
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: Some(at(85)),
    });
    story.now = 85 + AGE;
    assert_eq!(story.next(), Decision::Judge(vec![all]));
    story.now -= 1;
    for (seq, effect) in story.announced() {
        assert_eq!(effect.before, Some(at(85 + AGE)));
        assert_eq!(story.run.begins_before(seq), Some(at(85 + AGE)));
    }
}

/// Found by the simulator: a monitor was refused since two others had gone down with their host, and the next to be asked about
/// was one of these. The oracle agreed, since it was down already; by what we had observed before, it served. It was stopped
/// when its host was back, before the other one was up.
#[test]
fn after_a_refusal_nobody_goes_by_what_was_observed_before_it() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    let before = story.run.seq();
    story.write(Event::Judged {
        units: all,
        ours: Answer::Yes,
        theirs: Answer::No {
            why: "placement group 1.0 would have 1 left".to_owned(),
        },
        facts: Some(at(0)),
    });
    let snapshot = story.snapshot();
    let seen = |as_of| TimedObservation {
        snapshot: &snapshot,
        as_of,
    };
    assert_eq!(story.run.next(at(0), Some(seen(before))), Decision::Observe);
    // What was said is remembered: the same is not asked once more.
    let Decision::Judge(sets) = story.run.next(at(0), Some(seen(story.run.seq()))) else {
        panic!("{:?}", story.next());
    };
    assert!(sets.iter().all(|set| set.len() < 3), "{sets:?}");
}

#[test]
fn approvals_that_are_always_too_old_are_told_and_not_asked_for_without_an_end() {
    let mut story = Story::prepared(false);
    for _ in 0..5 {
        for (intent, _) in story.announced() {
            story.settle(intent, Outcome::NotBegun { why: String::new() });
        }
    }
    assert_eq!(story.waits().code, Code::ApprovalTooShort);
    story.write(Event::Asked {
        command: stagger_core::run::Command::Resume,
        by: "anna".to_owned(),
    });
    assert_eq!(story.announced().len(), 3, "whoever resumes has it tried again");
}

#[test]
fn the_rest_of_a_wide_wave_is_judged_together_with_what_is_on_its_way_down() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    // The first is under way; the others could not be begun in time.
    let late = || Outcome::NotBegun {
        why: "too late".to_owned(),
    };
    story.now = AGE + 1;
    story.settle(changes[1].0, late());
    story.settle(changes[2].0, late());
    assert_eq!(
        story.next(),
        Decision::Judge(vec![vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]])
    );
    let rest = story.announced();
    assert_eq!(phases(&rest), ["change osd.1", "change osd.2"]);
    assert_eq!(rest[0].1.before, Some(at(AGE + 1 + AGE)));
}

#[test]
fn the_rest_waits_while_it_may_not_join_and_is_left_for_another_wave_when_the_first_are_done() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    story.now = AGE + 1;
    for (intent, _) in &changes[1..] {
        story.settle(*intent, Outcome::NotBegun { why: String::new() });
    }
    let no = |units: Vec<UnitId>| Event::Judged {
        units,
        ours: Answer::Yes,
        theirs: Answer::No {
            why: "1.7 would stop".to_owned(),
        },
        facts: None,
    };
    story.write(no(vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]));
    let Decision::Act { fresh, again } = story.next() else {
        panic!("{:?}", story.next());
    };
    assert_eq!(
        (fresh.len(), again),
        (0, vec![changes[0].0]),
        "it waits for osd.0"
    );
    story.units.insert(unit("osd.0"), NEW);
    story.settle(changes[0].0, done());
    let rest = vec![unit("osd.1"), unit("osd.2")];
    assert_eq!(story.next(), Decision::Judge(vec![rest.clone()]));
    story.write(no(rest));
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    assert!(
        events.iter().all(|event| matches!(event, Event::SetAside { reason, until: Some(_), .. } if reason.code == Code::OracleSaysNo)),
        "{events:?}"
    );
    for event in events {
        story.write(event);
    }
    assert_eq!(
        story.run.wave().unwrap().units.len(),
        1,
        "the wave ends with what was begun"
    );
}

#[test]
fn an_installation_that_failed_has_changed_nothing_and_nothing_is_restarted() {
    let mut story = Story::new(false);
    let prepares = story.announced();
    for ((intent, _), outcome) in prepares.into_iter().zip([done(), failed(), done()]) {
        story.settle(intent, outcome);
    }
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    let [Event::WaveDropped { reason }, Event::SetAside { unit: aside, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (reason.code.code(), aside),
        ("could-not-be-prepared", &unit("osd.1"))
    );
    for event in events {
        story.write(event);
    }
    // The others go on, and are not prepared once more.
    assert_eq!(phases(&story.announced()), ["change osd.0", "change osd.2"]);
}

#[test]
fn healthy_work_is_not_undone_for_a_warning_that_came_meanwhile() {
    let mut story = Story::changed([NEW; 3], [done(), done(), done()]);
    story.healthy = false;
    assert_eq!(story.waits().code, Code::GatesShut);
    story.now = 10_000;
    assert_eq!(story.waits().code, Code::GatesShut);
    assert_eq!(story.run.held().unwrap().0.code, Code::GatesShut);
    story.healthy = true;
    assert_eq!(
        phases(&story.announced()),
        ["prepare mds.a"],
        "it goes on by itself"
    );
}

/// Found on a real Ceph whose standby manager was away for half a minute: managers do not show in the number of the OSD map, so
/// the plan was taken for one of the world as it is, and the run was held for a person.
#[test]
fn what_was_down_and_is_back_is_planned_though_the_number_of_the_map_is_the_same() {
    let mut story = Story::new(false);
    story.units.insert(unit("osd.0"), DOWN);
    for phase in ["prepare", "change"] {
        let begun = story.announced();
        assert_eq!(
            phases(&begun),
            [format!("{phase} osd.1"), format!("{phase} osd.2")]
        );
        for (intent, effect) in begun {
            if phase == "change" {
                story.units.insert(effect.action.unit().unwrap().clone(), NEW);
            }
            story.settle(intent, done());
        }
    }
    story.generation += 1;
    story.healthy = false;
    assert_eq!(story.waits().code, Code::GatesShut);
    story.healthy = true;
    assert_eq!(story.waits().code, Code::UnitsLeftBehind);
    story.units.insert(unit("osd.0"), (UnitState::Serving, "18"));
    assert_eq!(phases(&story.announced()), ["prepare osd.0"]);
}

/// Found by the simulator: the gates count only what is worse than before the run, so they were open while groups that
/// were short before recovered. Each wave was dropped as soon as it was opened, and planned again, without a pause.
#[test]
fn what_recovers_is_waited_for_before_a_wave_is_opened() {
    let mut story = Story::new(true);
    story.recovers = true;
    let why = story.waits();
    assert_eq!(why.code, Code::GatesShut);
    assert!(why.detail.contains("recovered: "), "{why}");
    assert!(story.run.wave().is_none());
    story.now = 10_000;
    assert_eq!(story.waits().code, Code::GatesShut);
    assert_eq!(story.run.held().unwrap().0.code, Code::GatesShut);
    story.recovers = false;
    story.generation += 1;
    assert_eq!(
        phases(&story.announced()),
        ["prepare osd.0", "prepare osd.1", "prepare osd.2"],
        "it goes on by itself"
    );
}

#[test]
fn a_start_that_was_said_to_have_failed_and_serves_after_all_is_no_reason_to_go_back() {
    let mut story = Story::changed([NEW, NEW, DOWN], [done(), done(), failed()]);
    let [(intent, restart)] = &story.announced()[..] else {
        panic!("one is restarted");
    };
    assert_eq!(restart.action, Action::Restart { unit: unit("osd.2") });
    story.settle(*intent, failed());
    let [(intent, collect)] = &story.announced()[..] else {
        panic!("what happened is collected");
    };
    assert!(matches!(collect.action, Action::Collect { .. }), "{collect:?}");
    story.settle(*intent, done());
    story.units.insert(unit("osd.2"), NEW);
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    assert_eq!(events, [Event::WaveRecovered]);
    assert_eq!(phases(&story.announced()), ["prepare mds.a"]);
}

#[test]
fn what_did_not_start_goes_back_with_its_wave() {
    let mut story = Story::changed([NEW, NEW, DOWN], [done(), done(), failed()]);
    for _ in 0..2 {
        let all = story.announced();
        for (intent, effect) in all {
            let restart = matches!(effect.action, Action::Restart { .. });
            story.settle(intent, if restart { failed() } else { done() });
        }
    }
    assert_eq!(phases(&story.announced()), ["go back osd.2"]);
}

#[test]
fn a_run_that_is_to_do_what_can_be_done_ends_before_what_waits_for_the_rest() {
    let mut story = Story::new(true);
    let mut start = story.run.start().clone();
    start.policy.partial = true;
    story.run = begun::run(start);
    for osd in ["osd.0", "osd.1", "osd.2"] {
        story.units.insert(unit(osd), (UnitState::Down, "18"));
    }
    let ended = (0..20).find_map(|_| match story.next() {
        Decision::Record(events) => {
            for event in events {
                story.write(event);
            }
            None
        }
        Decision::Over(ending) => Some(ending),
        other => panic!("{other:?}"),
    });
    let Some(Ending::Incomplete { left }) = ended else {
        panic!("{ended:?}");
    };
    let names: Vec<&str> = left.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(names, ["osd.0", "osd.1", "osd.2", "mds"]);
}

#[test]
fn what_the_change_never_came_to_takes_nobody_back_with_it() {
    let old = (UnitState::Serving, "18");
    let mut story = Story::changed([NEW, NEW, old], [done(), done(), failed()]);
    // It serves as it did: stopped once more only as both judges agree, and then it is tried no further.
    for _ in 0..2 {
        for (intent, effect) in story.announced() {
            let restart = matches!(effect.action, Action::Restart { .. });
            story.settle(intent, if restart { failed() } else { done() });
        }
    }
    assert_eq!(phases(&story.announced()), ["go back osd.2"]);
    assert_eq!(
        story.run.wave().unwrap().failure().unwrap().blamed,
        [unit("osd.2")]
    );
}

#[test]
fn a_stage_begins_only_when_the_one_before_left_nothing_or_a_person_accepts_it() {
    for permitted in [false, true] {
        let mut story = Story::new(permitted);
        story.units.insert(unit("osd.1"), (UnitState::Down, "18"));
        let prepares = story.announced();
        assert_eq!(phases(&prepares), ["prepare osd.0", "prepare osd.2"]);
        for (intent, _) in prepares {
            story.settle(intent, done());
        }
        for (intent, effect) in story.announced() {
            story.units.insert(effect.action.unit().unwrap().clone(), NEW);
            story.settle(intent, done());
        }
        let why = story.waits();
        assert_eq!(why.code, Code::UnitsLeftBehind);
        let word = "`stagger approve r1 left-behind-osd`";
        assert_eq!(why.detail.contains(word), permitted, "{why}");
        story.write(Event::Asked {
            command: stagger_core::run::Command::Approve {
                door: PartName::new("left-behind-osd").unwrap(),
            },
            by: "anna".to_owned(),
        });
        if permitted {
            assert_eq!(phases(&story.announced()), ["prepare mds.a"]);
        } else {
            assert_eq!(story.waits().code, Code::UnitsLeftBehind);
            story.units.insert(unit("osd.1"), (UnitState::Serving, "18"));
            story.generation += 1;
            assert_eq!(phases(&story.announced()), ["prepare osd.1"], "it is back");
        }
    }
}

/// Seen: a host died in its visit, a person said that it is off, and seven healthy OSDs of the wave were brought back.
#[test]
fn for_a_host_that_is_off_nobody_goes_back() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    let (lost, _) = changes[0].clone();
    for (intent, effect) in changes.into_iter().skip(1) {
        story.units.insert(effect.action.unit().unwrap().clone(), NEW);
        story.settle(intent, done());
    }
    story.units.insert(unit("osd.0"), DOWN);
    story.healthy = false;
    story.generation += 1;
    story.write(Event::Asked {
        command: Command::Confirm {
            host: HostName::new("h0").unwrap(),
            ended: vec![lost],
        },
        by: "anna@ops1".to_owned(),
    });
    assert_eq!(story.waits().code, Code::GatesShut);
    story.now += 1000;
    let held = story.waits();
    assert_eq!(held.code, Code::GatesShut, "{held}");
    assert!(
        held.detail.contains("osd.0: h0 is off, as anna@ops1 confirmed"),
        "{held}"
    );
    // Once a person resumes, as the host is back, it has its turn again, and is asked about like any other.
    let mut resumed = Story {
        units: story.units.clone(),
        run: story.run.clone(),
        ..Story::new(false)
    };
    (resumed.now, resumed.generation, resumed.healthy) = (story.now, story.generation, false);
    resumed.write(Event::Asked {
        command: Command::Resume,
        by: "anna@ops1".to_owned(),
    });
    assert_eq!(resumed.next(), Decision::Judge(vec![vec![unit("osd.0")]]));
    assert_eq!(phases(&resumed.announced()), ["change osd.0"]);
    // Or the host is back before, and its OSD runs what it ran before: the wave passes, and it has its turn again.
    story.units.insert(unit("osd.0"), (UnitState::Serving, "18"));
    story.healthy = true;
    story.generation += 1;
    assert_eq!(story.waits().code, Code::UnitsSetAside);
    story.now += 60;
    assert_eq!(phases(&story.announced()), ["change osd.0"]);
}

/// The wave would be dropped, and what was done to the unit forgotten.
#[test]
fn one_that_is_lost_alone_is_started_once_more_when_a_person_resumes() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    for (_, effect) in &changes {
        story.units.insert(effect.action.unit().unwrap().clone(), DOWN);
    }
    story.generation += 1;
    let ended = changes.iter().map(|(intent, _)| *intent).collect();
    for command in [
        Command::Confirm {
            host: HostName::new("h0").unwrap(),
            ended,
        },
        Command::Resume,
    ] {
        let by = "anna@ops1".to_owned();
        story.write(Event::Asked { command, by });
    }
    assert_eq!(
        phases(&story.announced()),
        ["restart osd.0", "restart osd.1", "restart osd.2"]
    );
}

/// Seen: the clock of the next holder was 40 s behind, and an approval of 47 s ago counted as fresh.
#[test]
fn who_takes_over_does_not_go_by_another_machines_clock() {
    let mut story = Story::prepared(false);
    let (open, effect) = story.announced().remove(0);
    assert_eq!(story.run.begins_before(open), effect.before);
    story.write(Event::LeaseTaken {
        fence: 9,
        holder: "another".to_owned(),
    });
    story.now -= 40;
    assert!(story.run.begins_before(open).unwrap() < at(story.now));
}
