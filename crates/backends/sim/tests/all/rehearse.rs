//! An upgrade on the copy of a cluster: what it costs, and what one more failure would cost.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    BudgetsBuilder, Code, Condition, ConditionName, Doors, Ix, Kind, Part, PartName, Phase, Policy, Revision,
    Snapshot, Target, Unit, UnitId, UnitState, Verdict,
};
use stagger_core::run::Ending;
use stagger_sim::copy::{CopiedGroup, CopiedPool};
use stagger_sim::scenario::TargetSpec;
use stagger_sim::target::GATES;
use stagger_sim::{ClusterCopy, CopyRehearsal, RehearsalReport, SimEnding, SimSpec, rehearse, target};

/// A pool over twelve OSDs on six hosts: each group on OSDs of `size` hosts one after another.
#[derive(Debug, Clone, Copy)]
struct Pool {
    size: u32,
    min_size: u32,
    k: u32,
}

const OSDS: u32 = 12;
const GROUPS: u32 = 24;
/// Seconds that a visit takes.
const VISIT: i64 = 60;

fn unit(id: &str, host: u32, state: UnitState) -> Unit {
    let kind = id.split('.').next().unwrap();
    Unit {
        id: UnitId::new(id).unwrap(),
        kind: Kind::new(kind).unwrap(),
        state,
        revision: Some(Revision::new("18.2.7").unwrap()),
        domains: BTreeMap::from([("host".to_owned(), format!("h{host}"))]),
        precedence: u32::from(id == "mgr.b"),
        untouchable: None,
    }
}

/// The cluster; this OSD is down, and in no group.
fn copy(pool: Pool, down: Option<u32>) -> ClusterCopy {
    let mut units = vec![];
    for (kind, names) in [("mgr", "ab"), ("mon", "abc")] {
        for (at, name) in names.chars().enumerate() {
            units.push(unit(&format!("{kind}.{name}"), at as u32, UnitState::Serving));
        }
    }
    let daemons = units.len() as u32;
    for osd in 0..OSDS {
        let state = if down == Some(osd) {
            UnitState::Down
        } else {
            UnitState::Serving
        };
        units.push(unit(&format!("osd.{osd}"), osd / 2, state));
    }
    let mut budgets = BudgetsBuilder::default();
    let groups: Vec<CopiedGroup> = (0..GROUPS)
        .map(|seed| {
            let osds = (0..pool.size).map(|shard| (seed + 2 * shard) % OSDS);
            let osds: Vec<u32> = osds.filter(|osd| down != Some(*osd)).collect();
            let members: Vec<(Ix, u32)> = osds.iter().map(|osd| (Ix(daemons + osd), 1)).collect();
            let limit = (members.len() as u32).saturating_sub(pool.min_size);
            budgets.add(
                "placement group of pool p",
                &format!("7.{seed:x}"),
                limit,
                &members,
            );
            CopiedGroup {
                pool: 0,
                seed,
                missing: vec![false; osds.len()],
                shards: members.iter().map(|(ix, _)| Some(*ix)).collect(),
            }
        })
        .collect();
    let mons: Vec<(Ix, u32)> = (2..5).map(|at| (Ix(at), 1)).collect();
    budgets.add_for(0, "monitors", "quorum", 1, &mons);
    budgets.add_for(0, "managers", "one stays", 1, &[(Ix(0), 1), (Ix(1), 1)]);
    let well = |name: &str, verdict| Condition::new(ConditionName::new(name).unwrap(), verdict, "as it was");
    let mut conditions: Vec<Condition> = GATES.iter().map(|name| well(name, Verdict::Yes)).collect();
    conditions.push(well("require-osd-release-20", Verdict::No));
    let durations = ["mon", "mgr", "osd"]
        .map(|kind| (Kind::new(kind).unwrap(), SignedDuration::from_secs(VISIT)))
        .into();
    ClusterCopy {
        snapshot: Snapshot::new(
            "copied".parse().unwrap(),
            Timestamp::from_second(1_800_000_000).unwrap(),
            "osdmap 7".to_owned(),
            units,
            budgets.build(),
            conditions,
            durations,
        )
        .unwrap(),
        pools: vec![CopiedPool {
            number: 7,
            name: "p".to_owned(),
            size: pool.size,
            min_size: pool.min_size,
            k: pool.k,
        }],
        groups,
        poll: 2,
        drains: false,
        comes_with: Vec::new(),
    }
}

fn policy() -> Policy {
    Policy {
        doors: Doors::AutoAfter(0),
        max_in_parallel: "2".parse().unwrap(),
        gate_timeout: 120,
        ..Policy::default()
    }
}

/// One phase, as Ceph's daemons have it: down and up in their restart.
fn wanted(policy: &Policy) -> Target {
    let spec: SimSpec =
        toml::from_str("name = 'x'\nrelease = '18.2.7'\nracks = 1\nhosts_per_rack = 1\nosds_per_host = 1")
            .unwrap();
    let to = TargetSpec {
        to: Revision::new("20.2.4").unwrap(),
        going_back: BTreeMap::new(),
    };
    let mut target = target(&spec, &to, policy).unwrap();
    for part in &mut target.parts {
        if let Part::Stage(stage) = part {
            stage.phases = vec![Phase::Change];
        }
    }
    target
}

fn rehearsed(copy: ClusterCopy, runs: u32) -> RehearsalReport {
    let scratch = tempfile::tempdir().unwrap();
    let policy = policy();
    let what = CopyRehearsal {
        copy: Arc::new(copy),
        target: wanted(&policy),
        policy,
        seed: 3,
        runs,
        scratch: scratch.path().to_owned(),
    };
    rehearse(&what).unwrap()
}

const REPLICATED: Pool = Pool {
    size: 3,
    min_size: 2,
    k: 1,
};

#[test]
fn each_visit_exposes_the_groups_of_its_osd_for_as_long_as_it_takes() {
    let came = rehearsed(copy(REPLICATED, None), 0);
    let run = came.undisturbed;
    assert_eq!(run.ending, SimEnding::Over(Ending::Done));
    let plan = run.plan.unwrap();
    assert_eq!((run.waves as usize, run.units), (plan.waves(), plan.units()));
    assert_eq!(plan.units() as u32, OSDS + 5);
    assert_eq!(plan.generation, "osdmap 7", "planned from what was observed");
    let doors: Vec<&str> = run.doors.iter().map(PartName::as_str).collect();
    assert_eq!(doors, ["last-mon", "require-osd-release"]);
    assert!(run.left_alone.is_empty());
    // A start takes a quarter longer at most.
    assert!(
        run.took >= plan.forecast() && run.took <= plan.forecast() * 2,
        "{:?}",
        run.took
    );

    let exposure = run.exposure;
    assert_eq!((exposure.stopped, exposure.still_stopped), (0, 0));
    // Each group has three shards, each shard one visit; it has two copies and one to spare again as soon
    // as the OSD is up, which takes two thirds of a visit, and a quarter longer at most.
    let (visits, start) = (u64::from(GROUPS * 3), VISIT as u64 * 2 / 3);
    let bounds = visits * start..=visits * start * 5 / 4;
    assert!(bounds.contains(&exposure.group_seconds), "{exposure:?}");
    // Two OSDs that share no group, of six groups each.
    assert_eq!(exposure.worst, 12);
    assert_eq!(exposure.worst_wave.unwrap().stage, "osd");
}

#[test]
fn one_more_failure_stops_groups_for_as_long_as_the_wave_is_down() {
    let came = rehearsed(copy(REPLICATED, None), 60);
    assert_eq!(came.disturbed.len(), 60);
    let hit = came
        .disturbed
        .iter()
        .filter(|run| run.course.exposure.stopped > 0);
    let hit: Vec<_> = hit.collect();
    assert!(!hit.is_empty() && hit.len() < 60, "{} hit", hit.len());
    for run in &hit {
        let exposure = &run.course.exposure;
        assert_eq!(exposure.still_stopped, 0, "a third copy has all: {run:?}");
        assert!(exposure.longest_stop <= VISIT.unsigned_abs() * 5 / 4, "{run:?}");
    }
    // Whoever died, the run does not go on over it.
    for run in &came.disturbed {
        assert!(
            matches!(run.course.ending, SimEnding::Held(_) | SimEnding::Over(_)),
            "{run:?}"
        );
    }
}

#[test]
fn with_a_copy_to_spare_nothing_stops() {
    let spare = Pool {
        size: 4,
        min_size: 2,
        k: 1,
    };
    let came = rehearsed(copy(spare, None), 40);
    assert!(came.disturbed.iter().all(|run| run.course.exposure.stopped == 0));
}

/// Of `k + 1` shards with `min_size = k`, what is written while one is away needs all the others.
#[test]
fn where_min_size_is_k_some_groups_wait_for_the_dead_osd() {
    let thin = Pool {
        size: 3,
        min_size: 2,
        k: 2,
    };
    let came = rehearsed(copy(thin, None), 60);
    assert_eq!(came.undisturbed.ending, SimEnding::Over(Ending::Done));
    assert_eq!(came.undisturbed.exposure.stopped, 0);
    assert!(
        came.disturbed
            .iter()
            .any(|run| run.course.exposure.still_stopped > 0)
    );
}

#[test]
fn what_is_down_already_is_left_alone_and_not_our_doing() {
    let came = rehearsed(copy(REPLICATED, Some(0)), 0);
    let run = came.undisturbed;
    assert!(
        matches!(&run.ending, SimEnding::Held(why) if why.code == Code::UnitsLeftBehind),
        "{:?}",
        run.ending
    );
    let left: Vec<&str> = run.left_alone.iter().map(|left| left.unit.as_str()).collect();
    // osd.0, and those whose groups have no copy to spare without it.
    assert!(
        left.contains(&"osd.0") && left.contains(&"osd.2") && !left.contains(&"osd.1"),
        "{left:?}"
    );
    assert_eq!(run.exposure.stopped, 0);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let came = || rehearsed(copy(REPLICATED, None), 12);
    assert_eq!(came(), came());
}

/// Nobody cures a cluster in a simulation: where a gate is shut at the beginning, it stays so.
#[test]
fn a_cluster_that_is_not_well_holds_before_the_first_wave() {
    let mut sick = copy(REPLICATED, None);
    let before = &sick.snapshot;
    let conditions = before.conditions().cloned().map(|mut condition| {
        if condition.name.as_str() == "pgs-clean" {
            condition.verdict = Verdict::No;
        }
        condition
    });
    sick.snapshot = Snapshot::new(
        before.cluster().clone(),
        before.observed_at(),
        before.generation().to_owned(),
        before.units().to_vec(),
        before.budgets().clone(),
        conditions.collect(),
        BTreeMap::new(),
    )
    .unwrap();
    let came = rehearsed(sick, 5);
    let SimEnding::Held(why) = &came.undisturbed.ending else {
        panic!("{:?}", came.undisturbed.ending);
    };
    assert_eq!(why.code, Code::GatesShut);
    assert_eq!((came.undisturbed.waves, came.disturbed.len()), (0, 0));
}
