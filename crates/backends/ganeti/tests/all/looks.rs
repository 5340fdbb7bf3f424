//! What comes next in a visit, on facts that are written down.

use std::collections::BTreeMap;

use stagger_core::model::{ClusterName, MoveKind, RunId, UnitId, UnitState, Verdict};
use stagger_core::plan::Move;
use stagger_ganeti::config::Visits;
use stagger_ganeti::facts::notes::{Notes, PriorRole};
use stagger_ganeti::facts::{GanetiFacts, NodeRole, RunState, in_sync};
use stagger_ganeti::goal::EvacuationGoal;
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::translate::live::{NODES_ANSWER, live_snapshot};
use stagger_ganeti::visit::{
    JobBatch, LeaveProgress, MoveMethod, PlannedMoves, enter, leave, may_reboot, successor,
};

use crate::common::{rebooted, setup};
use crate::double::World;

async fn facts(make: impl FnOnce(&mut World)) -> GanetiFacts {
    observed(make).await.0
}

async fn observed(make: impl FnOnce(&mut World)) -> (GanetiFacts, GanetiCluster) {
    let mut world = World::with_nodes(4);
    make(&mut world);
    world.shown = world.now.clone();
    setup(world).await.rapi().observe().await.unwrap()
}

fn with_failover() -> Visits {
    Visits {
        failover: Some("true".to_owned()),
        ..Visits::default()
    }
}

/// What a plan does with instances of n2.
fn planned(moves: &[(&str, MoveKind, &str)]) -> PlannedMoves {
    let unit = |name: &str| UnitId::new(name).unwrap();
    let moves = moves.iter().map(|(guest, how, to)| Move {
        guest: (*guest).to_owned(),
        how: *how,
        from: unit("n2"),
        to: unit(to),
    });
    PlannedMoves {
        moves: moves.collect(),
        ..PlannedMoves::default()
    }
}

#[tokio::test]
async fn a_node_is_noted_then_drained_then_emptied() {
    let mut facts = facts(|world| {
        world.add("web", "drbd", "n2", Some("n3"));
        world.add("db", "sharedfile", "n2", None);
        world.add_down("old", "drbd", "n2", Some("n4"));
    })
    .await;
    let visits = Visits::default();
    let run = RunId::new("20261124-0000-abcd").unwrap();
    let mut planned = planned(&[("db", MoveKind::Migrate, "n4"), ("web", MoveKind::Migrate, "n3")]);
    planned.run = Some(run.clone());
    let next = |facts: &GanetiFacts| enter(facts, "n2", &visits, &planned).unwrap();
    let Some(JobBatch::Note(notes)) = next(&facts) else {
        panic!("{:?}", next(&facts))
    };
    assert_eq!(notes.away.len(), 2, "what is down is not moved");
    assert_eq!(notes.was, Some(PriorRole::Candidate));
    assert_eq!(notes.run, Some(run), "whose visit it is");
    assert_eq!(notes.since, Some(facts.at), "and since when");
    facts.nodes.get_mut("n2").unwrap().notes = notes.clone().into();
    assert_eq!(next(&facts), Some(JobBatch::Drain { promotes: false }));
    facts.candidates = Some(3);
    facts.nodes.get_mut("n4").unwrap().role = NodeRole::Regular;
    assert_eq!(
        next(&facts),
        Some(JobBatch::Drain { promotes: true }),
        "of three two would be left, and n4 can be the third"
    );
    facts.nodes.get_mut("n2").unwrap().role = NodeRole::Drained;
    let Some(JobBatch::Move(moves)) = next(&facts) else {
        panic!("{:?}", next(&facts))
    };
    let shown: Vec<_> = moves
        .iter()
        .map(|each| (each.instance.as_str(), each.to.as_str(), each.way))
        .collect();
    assert_eq!(
        shown,
        [
            ("db", "n4", MoveMethod::ToNode),
            ("web", "n3", MoveMethod::ToSecondary)
        ]
    );
    assert!(may_reboot(&facts, "n2", &visits, &planned).is_err());
    for (name, to) in [("db", "n4"), ("web", "n3")] {
        facts.instances.get_mut(name).unwrap().primary = to.to_owned();
    }
    assert_eq!(next(&facts), None);
    assert!(may_reboot(&facts, "n2", &visits, &planned).is_ok());
    let without_a_time = Notes { since: None, ..notes };
    facts.nodes.get_mut("n2").unwrap().notes = without_a_time.into();
    let noted_by_an_older_release = may_reboot(&facts, "n2", &visits, &planned);
    assert!(noted_by_an_older_release.is_ok());
}

#[tokio::test]
async fn what_cannot_move_or_has_no_place_is_named() {
    let visits = Visits::default();
    let shared = facts(|world| world.add("db", "rbd", "n2", None)).await;
    let why = enter(&shared, "n2", &visits, &PlannedMoves::default())
        .unwrap_err()
        .to_string();
    assert_eq!(why, "the plan has no place for db while n2 is away");

    let plain = facts(|world| world.add("log", "plain", "n2", None)).await;
    let why = enter(&plain, "n2", &visits, &PlannedMoves::default())
        .unwrap_err()
        .to_string();
    assert!(why.contains("log runs"), "{why}");
    let stop = PlannedMoves {
        as_if_down: true,
        ..PlannedMoves::default()
    };
    let Some(JobBatch::Note(notes)) = enter(&plain, "n2", &visits, &stop).unwrap() else {
        panic!("it is noted first")
    };
    assert_eq!((notes.away.len(), notes.stopped.len()), (0, 1));
    let moved = planned(&[("log", MoveKind::Relocate, "n3")]);
    let Some(JobBatch::Note(notes)) = enter(&plain, "n2", &visits, &moved).unwrap() else {
        panic!("it is noted first")
    };
    assert_eq!((notes.away.len(), notes.stopped.len()), (1, 0));

    let drained = facts(|world| world.now.nodes.get_mut("n2").unwrap().role = "D").await;
    let why = enter(&drained, "n2", &visits, &PlannedMoves::default())
        .unwrap_err()
        .to_string();
    assert!(why.contains("not by stagger"), "{why}");

    let away = facts(|world| {
        world.add("web", "drbd", "n2", Some("n3"));
        world.now.nodes.get_mut("n3").unwrap().up = false;
    })
    .await;
    let web = planned(&[("web", MoveKind::Migrate, "n3")]);
    let why = enter(&away, "n2", &visits, &web).unwrap_err().to_string();
    assert_eq!(why, "web would go to n3, which is not in service");
    let elsewhere = planned(&[("web", MoveKind::Migrate, "n4")]);
    let why = enter(&away, "n2", &visits, &elsewhere).unwrap_err().to_string();
    assert_eq!(
        why,
        "web would go to n4, and its second copy is not there any more"
    );
    let why = enter(&away, "n2", &visits, &PlannedMoves::default())
        .unwrap_err()
        .to_string();
    assert_eq!(
        why, "the plan has no place for web while n2 is away",
        "nobody has seen that there is room"
    );
}

#[tokio::test]
async fn the_masters_successor_is_a_candidate_in_service() {
    let all = facts(|_| {}).await;
    let boots: BTreeMap<_, _> = all
        .nodes
        .values()
        .filter_map(|node| Some((node.name.clone(), node.boot.clone()?)))
        .collect();
    let chosen = |facts: &GanetiFacts, visits: &Visits| successor(facts, "n1", visits, &boots);
    assert!(chosen(&all, &Visits::default()).is_err(), "there is no command");
    assert_eq!(chosen(&all, &with_failover()), Ok("n2".to_owned()));
    let named = Visits {
        successor: Some("n4".to_owned()),
        ..with_failover()
    };
    assert_eq!(chosen(&all, &named), Ok("n4".to_owned()));
    let turned = facts(|world| world.now.nodes.get_mut("n3").unwrap().boot = 2).await;
    assert_eq!(
        chosen(&turned, &with_failover()),
        Ok("n3".to_owned()),
        "n2 may be about to be rebooted itself"
    );
    let few = facts(|world| {
        world.now.nodes.get_mut("n2").unwrap().role = "R";
        world.now.nodes.get_mut("n3").unwrap().up = false;
        world.now.nodes.get_mut("n4").unwrap().role = "D";
    })
    .await;
    assert!(chosen(&few, &with_failover()).is_err());
    assert!(chosen(&few, &named).unwrap_err().to_string().contains("n4"));
}

/// Ganeti says that an instance's node is down whenever a question about the instance fails, and that it runs
/// elsewhere without saying where.
#[tokio::test]
async fn a_node_on_which_somebody_may_run_is_not_entered() {
    let mut facts = facts(|world| {
        world.add("web", "drbd", "n2", Some("n3"));
        world.add("db", "sharedfile", "n2", None);
    })
    .await;
    let visits = Visits::default();
    let planned = planned(&[("db", MoveKind::Migrate, "n4"), ("web", MoveKind::Migrate, "n3")]);
    let may_enter = |of: &str, status: &str, node: &str| {
        let mut changed = facts.clone();
        let instance = changed.instances.get_mut(of).unwrap();
        (instance.doing, instance.status) = (RunState::Unclear, status.to_owned());
        enter(&changed, node, &visits, &planned).is_ok()
    };
    assert!(!may_enter("web", "ERROR_nodedown", "n2"));
    assert!(
        !may_enter("web", "ERROR_wrongnode", "n3"),
        "there its other copy is"
    );
    assert!(may_enter("web", "ERROR_wrongnode", "n4"));
    assert!(!may_enter("db", "ERROR_wrongnode", "n4"), "it may be anywhere");
    assert!(may_enter("db", "ERROR_nodedown", "n4"));
    facts.nodes.get_mut("n2").unwrap().boot = None;
    let why = enter(&facts, "n2", &visits, &planned).unwrap_err().to_string();
    assert!(why.contains("does not answer"), "{why}");
}

#[tokio::test]
async fn what_failed_on_its_way_is_started_and_then_comes_home() {
    let mut facts = facts(|world| world.add("web", "drbd", "n3", Some("n2"))).await;
    let web = facts.instances["web"].uuid.clone();
    facts.nodes.get_mut("n2").unwrap().notes = Notes {
        away: [web].into(),
        ..Notes::default()
    }
    .into();
    facts.instances.get_mut("web").unwrap().doing = RunState::Failed;
    let mut leaving = LeaveProgress::default();
    let next = leave(&facts, "n2", None, &leaving);
    assert_eq!(next, Ok(Some(JobBatch::Start(vec!["web".to_owned()]))));
    facts.instances.get_mut("web").unwrap().doing = RunState::Up;
    leaving.synced.insert("web".to_owned());
    let next = leave(&facts, "n2", None, &leaving);
    assert!(matches!(next, Ok(Some(JobBatch::Move(_)))), "{next:?}");
}

/// One question that a hypervisor did not answer makes an instance unclear: its note stays until somebody can tell.
#[tokio::test]
async fn what_is_unclear_is_not_forgotten() {
    let mut facts = facts(|world| {
        world.add("web", "drbd", "n3", Some("n2"));
        world.add_down("log", "plain", "n2", None);
    })
    .await;
    let id = |name: &str| facts.instances[name].uuid.clone();
    let (web, log) = (id("web"), id("log"));
    let noted: [(&str, Notes); 3] = [
        (
            "web",
            Notes {
                away: [web.clone()].into(),
                ..Notes::default()
            },
        ),
        (
            "web",
            Notes {
                copies: [web].into(),
                ..Notes::default()
            },
        ),
        (
            "log",
            Notes {
                stopped: [log].into(),
                ..Notes::default()
            },
        ),
    ];
    let leaving = LeaveProgress {
        synced: ["web".to_owned(), "log".to_owned()].into(),
    };
    for (name, notes) in noted {
        let was = facts.instances[name].doing;
        facts.instances.get_mut(name).unwrap().doing = RunState::Unclear;
        facts.nodes.get_mut("n2").unwrap().notes = notes.clone().into();
        let next = leave(&facts, "n2", None, &leaving);
        let Ok(Some(JobBatch::Look(why))) = &next else {
            panic!("{notes:?}: {next:?}")
        };
        assert!(why.contains(name), "{why}");
        facts.instances.get_mut(name).unwrap().doing = was;
    }
}

/// Seen: while the node was away the one died that its instance was on; the note went, and the instance stayed there for ever.
#[tokio::test]
async fn an_instance_that_fell_where_nobody_answers_is_not_forgotten() {
    let mut facts = facts(|world| world.add("web", "drbd", "n3", Some("n2"))).await;
    let notes = Notes {
        away: [facts.instances["web"].uuid.clone()].into(),
        ..Notes::default()
    };
    let leaving = LeaveProgress {
        synced: ["web".to_owned()].into(),
    };
    facts.nodes.get_mut("n2").unwrap().notes = notes.into();
    let instance = facts.instances.get_mut("web").unwrap();
    (instance.doing, instance.status) = (RunState::Failed, "ERROR_nodeoffline".to_owned());
    let node = facts.nodes.get_mut("n3").unwrap();
    (node.role, node.boot) = (NodeRole::Offline, None);
    let next = leave(&facts, "n2", None, &leaving);
    let Ok(Some(JobBatch::Look(why))) = &next else {
        panic!("{next:?}")
    };
    assert!(why.contains("web is ERROR_nodeoffline on n3"), "{why}");
    // Once that node is back it is started there, and comes home.
    let node = facts.nodes.get_mut("n3").unwrap();
    (node.role, node.boot) = (NodeRole::Candidate, Some("boot-2".to_owned()));
    assert_eq!(
        leave(&facts, "n2", None, &leaving),
        Ok(Some(JobBatch::Start(vec!["web".to_owned()])))
    );
}

#[tokio::test]
async fn a_node_gets_its_role_its_copies_and_its_instances_back_in_this_order() {
    let mut facts = facts(|world| {
        world.add("web", "drbd", "n3", Some("n2"));
        world.add("mail", "drbd", "n3", Some("n2"));
        world.add("db", "sharedfile", "n4", None);
        world.add_down("log", "plain", "n2", None);
    })
    .await;
    let id = |facts: &GanetiFacts, name: &str| facts.instances[name].uuid.clone();
    let notes = Notes {
        away: [id(&facts, "web"), id(&facts, "db")].into(),
        stopped: [id(&facts, "log")].into(),
        was: Some(PriorRole::Regular),
        ..Notes::default()
    };
    let node = facts.nodes.get_mut("n2").unwrap();
    (node.role, node.notes) = (NodeRole::Drained, notes.clone().into());
    let mut leaving = LeaveProgress::default();
    assert_eq!(
        leave(&facts, "n2", None, &leaving),
        Ok(Some(JobBatch::Return(PriorRole::Regular)))
    );
    facts.nodes.get_mut("n2").unwrap().role = NodeRole::Regular;
    let both = vec!["mail".to_owned(), "web".to_owned()];
    assert_eq!(
        leave(&facts, "n2", None, &leaving),
        Ok(Some(JobBatch::Sync(both.clone())))
    );
    leaving.synced.extend(both);
    let Ok(Some(JobBatch::Move(moves))) = leave(&facts, "n2", None, &leaving) else {
        panic!("{:?}", leave(&facts, "n2", None, &leaving))
    };
    let names: Vec<_> = moves.iter().map(|each| each.instance.as_str()).collect();
    assert_eq!(names, ["db", "web"], "mail was at home on n3 before");
    for name in names {
        facts.instances.get_mut(name).unwrap().primary = "n2".to_owned();
    }
    assert_eq!(
        leave(&facts, "n2", None, &leaving),
        Ok(Some(JobBatch::Start(vec!["log".to_owned()])))
    );
    facts.instances.get_mut("log").unwrap().doing = RunState::Up;
    assert_eq!(
        leave(&facts, "n2", None, &leaving),
        Ok(Some(JobBatch::Forget(notes.tags())))
    );
    facts.nodes.get_mut("n2").unwrap().notes = Notes::default().into();
    assert_eq!(leave(&facts, "n2", None, &leaving), Ok(None));
    facts.nodes.get_mut("n2").unwrap().boot = None;
    let why = leave(&facts, "n2", None, &leaving).unwrap_err().to_string();
    assert!(why.contains("stays out of service"), "{why}");
}

#[tokio::test]
async fn what_may_go_together_follows_from_the_copies() {
    let (facts, cluster) = observed(|world| {
        world.add("a", "drbd", "n1", Some("n2"));
        world.add("b", "drbd", "n2", Some("n1"));
        world.add("c", "drbd", "n3", Some("n4"));
    })
    .await;
    let name = ClusterName::new("lab").unwrap();
    let goal = EvacuationGoal::default();
    let memory = GanetiMemory::of(&facts, rebooted(), goal.clone());
    let visits = with_failover();
    let snapshot = live_snapshot(&name, &facts, &cluster, Some(&memory), &goal, &visits).unwrap();
    let ix = |name: &str| {
        let id = stagger_core::model::UnitId::new(name).unwrap();
        snapshot.find(&id).unwrap()
    };
    let may = |nodes: &[&str]| {
        let set: Vec<_> = nodes.iter().map(|name| ix(name)).collect();
        stagger_core::check::may_stop(&snapshot, &set).is_ok()
    };
    assert!(may(&["n1", "n3"]) && may(&["n2", "n4"]));
    assert!(!may(&["n1", "n2"]) && !may(&["n3", "n4"]));
}

#[tokio::test]
async fn a_node_is_rebooted_when_its_boot_id_is_another() {
    let before = facts(|_| {}).await;
    let goal = EvacuationGoal::default();
    let memory = GanetiMemory::of(&before, rebooted(), goal.clone());
    let (after, cluster) = observed(|world| {
        world.now.nodes.get_mut("n2").unwrap().boot = 2;
        world.now.nodes.get_mut("n3").unwrap().up = false;
    })
    .await;
    let name = ClusterName::new("lab").unwrap();
    let visits = with_failover();
    let snapshot = live_snapshot(&name, &after, &cluster, Some(&memory), &goal, &visits).unwrap();
    let of = |name: &str| {
        let id = stagger_core::model::UnitId::new(name).unwrap();
        snapshot.unit(snapshot.find(&id).unwrap()).revision.clone()
    };
    assert_eq!(of("n2"), Some(rebooted()));
    assert_ne!(of("n4"), Some(rebooted()));
    assert_eq!(of("n3"), None, "nobody knows");
}

/// Ganeti gives nothing of a node without instances that it would have to ask it for, its boot id neither.
#[tokio::test]
async fn a_node_without_instances_serves_and_is_left_alone() {
    let (mut facts, mut cluster) = observed(|_| {}).await;
    let node = facts.nodes.get_mut("n1").unwrap();
    (node.vm_capable, node.boot) = (false, None);
    let node = cluster.nodes.iter_mut().find(|node| node.name == "n1").unwrap();
    (node.vm_capable, node.resources) = (false, None);
    let (name, goal, visits) = (
        ClusterName::new("lab").unwrap(),
        EvacuationGoal::default(),
        with_failover(),
    );
    let memory = GanetiMemory::of(&facts, rebooted(), goal.clone());
    for memory in [None, Some(&memory)] {
        let snapshot = live_snapshot(&name, &facts, &cluster, memory, &goal, &visits).unwrap();
        let unit = snapshot.unit(snapshot.find(&UnitId::new("n1").unwrap()).unwrap());
        assert_eq!(unit.state, UnitState::Serving);
        assert_eq!(
            unit.untouchable.as_ref().unwrap().code.code(),
            "node-not-vm-capable"
        );
        let answer = snapshot
            .conditions()
            .find(|one| one.name.as_str() == NODES_ANSWER);
        assert_eq!(answer.unwrap().verdict, Verdict::Yes);
    }
}

#[test]
fn disks_are_in_sync_only_when_both_sides_say_so() {
    let disk = |pstatus: serde_json::Value, sstatus: serde_json::Value| {
        serde_json::json!({ "name": "web", "disks": [
            { "iv_name": "disk/0", "dev_type": "drbd", "pstatus": pstatus, "sstatus": sstatus }] })
    };
    let fine = serde_json::json!(["/dev/drbd0", 147, 0, null, null, false, 1]);
    // As recorded while it was in resync, and as a side without its peer tells it.
    let syncing = serde_json::json!(["/dev/drbd0", 147, 0, 46.745, 25, true, 1]);
    let alone = serde_json::json!(["/dev/drbd0", 147, 0, null, null, true, 1]);
    assert_eq!(in_sync(&disk(fine.clone(), fine.clone())), Ok(()));
    let why = in_sync(&disk(syncing, fine.clone())).unwrap_err();
    assert_eq!(why, "disk/0 of web is in sync to 46.7 %");
    assert!(in_sync(&disk(fine.clone(), alone)).is_err());
    assert!(in_sync(&disk(fine, serde_json::Value::Null)).is_err());
    assert!(
        in_sync(&serde_json::json!({})).is_err(),
        "nothing known is not fine"
    );
}

/// As a journal has it.
#[test]
fn a_baseline_that_was_stored_is_read_and_written_as_it_was() {
    let stored = r#"{"wished":{"moving":{},"ignore_ipolicy":true,"durations":{}},"rebooted":"boot-after","boots":{"n1":"a"},"up":["u1"],"master":"n1"}"#;
    let mut expected: serde_json::Value = serde_json::from_str(stored).unwrap();
    expected["wished"]["moving"] = serde_json::to_value(EvacuationGoal::default().moving).unwrap();
    let baseline: GanetiMemory = serde_json::from_value(expected.clone()).unwrap();
    assert!(baseline.goal.ignore_ipolicy);
    assert_eq!(serde_json::to_value(&baseline).unwrap(), expected);
}
