//! Whole runs, through the engine.

use std::time::Duration;

use futures::FutureExt as _;
use stagger_core::model::{Evacuate, LocalGuests, OnFailure};
use stagger_core::run::{Command, Ending};
use stagger_engine::cluster::Lock as _;

use crate::common::setup;
use crate::double::queue::{Job, Op};
use crate::double::{Dies, Fault, Then, World};
use crate::lives::{End, Lives, all_is_well, mixed, with_failover};

#[tokio::test]
async fn every_node_is_rebooted_once_the_master_last_and_all_is_as_before() {
    for lag in [0, 3] {
        let mut setup = setup(mixed()).await;
        with_failover(&mut setup);
        setup.world().lag = lag;
        let mut lives = Lives::new(&setup);
        let end = lives.live().await;
        assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
        let world = setup.world();
        all_is_well(&world, &mixed(), &["n1", "n2", "n3", "n4", "n5"]);
        assert_ne!(world.now.master, "n1");
        assert_eq!(world.now.nodes["n1"].role, "C");
        assert_eq!(world.now.nodes["n5"].role, "R");
        assert!(
            world.most_migrations.values().all(|most| *most == 1),
            "{:?}",
            world.most_migrations
        );
        let theirs = world.now.nodes.values().all(|node| node.tags.contains("rack:a"));
        assert!(theirs, "others' tags stay");
        for (name, noted) in world.noted_boots() {
            assert_eq!(noted, ["boot-1"], "how {name} had booted before");
        }
        let last = world
            .jobs
            .iter()
            .rev()
            .find(|job| matches!(job.op, Op::Powercycle { .. }))
            .unwrap();
        assert_eq!(
            last.op,
            Op::Powercycle {
                node: "n1".to_owned()
            }
        );
    }
}

/// Seen: where no run had ever been, the first one waited a quarter of an hour for calls of those before it.
#[tokio::test]
async fn the_first_run_on_a_cluster_waits_for_nobody_before_it() {
    let mut setup = setup(mixed()).await;
    with_failover(&mut setup);
    // For so long a command of a process before might be under way.
    setup.settings.hosts.timeout = 3600;
    let mut lives = Lives::new(&setup);
    lives.locks = true;
    let first = tokio::time::timeout(Duration::from_mins(2), lives.live()).await;
    assert!(matches!(first, Ok(End::Over(Ending::Done))), "{first:?}");
    let filters = setup.rapi().filters().await.unwrap();
    assert!(
        stagger_ganeti::rapi::fence::newest(&filters) > 0,
        "the next one knows of it"
    );
    let backend = setup.backend(None);
    let next = crate::common::claim("bbbb", "ops2");
    backend.lock(&next, 0).await.unwrap();
    assert!(backend.may_have_been_held());
}

/// At the end of a run it is compared once more where each instance ran before.
#[tokio::test]
async fn an_instance_that_is_not_where_it_ran_before_is_named() {
    let setup = setup(mixed()).await;
    let memory = setup.memory().await;
    let away = async || memory.displaced_instances(&setup.rapi().facts().await.unwrap());
    assert_eq!(away().await, [""; 0]);
    {
        let mut world = setup.world();
        let c = world.now.instances.get_mut("c").unwrap();
        c.snode = Some(std::mem::replace(&mut c.pnode, "n4".to_owned()));
        world.now.instances.remove("s");
        world.shown = world.now.clone();
    }
    assert_eq!(
        away().await,
        ["c is on n4, and was on n3"],
        "one that is gone has no home"
    );
}

/// Its journal was put back from a backup that knows nothing of the visit to n3.
#[tokio::test]
async fn a_node_that_the_run_has_drained_and_forgotten_is_given_back_and_has_its_turn() {
    for (noted, is_given_back) in [("stagger:run:run-1", true), ("stagger:run:run-0", false)] {
        let setup = setup(mixed()).await;
        let mut lives = Lives::new(&setup);
        lives.begin().await;
        {
            let mut world = setup.world();
            let uuid = world.now.instances["c"].uuid.clone();
            world.now.instances.get_mut("c").unwrap().pnode = "n4".to_owned();
            world.now.instances.get_mut("c").unwrap().snode = Some("n3".to_owned());
            let node = world.now.nodes.get_mut("n3").unwrap();
            node.role = "D";
            let notes = ["stagger:was:master-candidate", noted].map(str::to_owned);
            node.tags.extend(notes);
            node.tags.insert(format!("stagger:away:{uuid}"));
        }
        let end = lives.live().await;
        let End::Over(Ending::Incomplete { left }) = end else {
            panic!("{end:?}")
        };
        let left: Vec<&str> = left.iter().map(|(unit, _)| unit.as_str()).collect();
        if is_given_back {
            assert_eq!(left, ["n1"], "the master only");
            all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
        } else {
            // And nobody moves to it.
            assert_eq!(left, ["n1", "n2", "n3", "n4"]);
            assert_eq!(setup.world().now.nodes["n3"].role, "D", "that is another run's");
        }
    }
}

#[tokio::test]
async fn without_a_command_for_it_the_master_is_left_alone() {
    let setup = setup(mixed()).await;
    let end = Lives::new(&setup).live().await;
    let End::Over(Ending::Incomplete { left }) = end else {
        panic!("{end:?}")
    };
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].0.as_str(), left[0].1.code.code()),
        ("n1", "master-cannot-move")
    );
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn as_if_down_everything_is_stopped_and_started_and_nothing_is_moved() {
    let make = || {
        let mut world = World::with_nodes(3);
        world.add("log", "plain", "n2", None);
        world.add("web", "drbd", "n2", Some("n3"));
        world
    };
    let setup = setup(make()).await;
    let mut lives = Lives::new(&setup);
    lives.moving.as_if_down = true;
    lives.moving.local = LocalGuests::Accept;
    let end = lives.live().await;
    assert!(
        matches!(end, End::Over(Ending::Incomplete { .. })),
        "the master: {end:?}"
    );
    let world = setup.world();
    all_is_well(&world, &make(), &["n2", "n3"]);
    let migrated = |job: &Job| matches!(job.op, Op::Migrate { .. });
    assert!(!world.jobs.iter().any(migrated), "nothing is moved");
}

#[tokio::test]
async fn by_default_a_node_with_what_cannot_move_is_left_alone() {
    let make = || {
        let mut world = World::with_nodes(3);
        world.add("log", "plain", "n2", None);
        world
    };
    let setup = setup(make()).await;
    let end = Lives::new(&setup).live().await;
    let End::Over(Ending::Incomplete { left }) = end else {
        panic!("{end:?}")
    };
    let slugs: Vec<_> = left.iter().map(|(_, reason)| reason.code.code()).collect();
    assert_eq!(slugs, ["master-cannot-move", "non-redundant"]);
    all_is_well(&setup.world(), &make(), &["n3"]);
}

#[tokio::test]
async fn a_node_that_never_comes_back_stays_out_and_the_run_holds() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    let End::Held(reason) = end else { panic!("{end:?}") };
    assert!(reason.detail.contains("n3"), "{reason}");
    {
        let world = setup.world();
        assert_eq!(world.now.nodes["n3"].role, "D", "nothing new is put on it");
        assert_eq!(world.now.instances["c"].pnode, "n4", "it stays where it is safe");
        assert!(
            world
                .layout()
                .iter()
                .all(|(name, (.., runs))| *runs || name == "down")
        );
        assert_eq!(world.violations, [""; 0]);
        assert_eq!(world.powercycles["n3"], 1);
    }
    // A person sees to it, and the run goes on.
    {
        let mut world = setup.world();
        world.never_returns.clear();
        for _ in 0..20 {
            world.tick();
        }
    }
    lives.processes.ask(&Command::Abort).await;
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Aborted)), "{end:?}");
    let guards: Vec<_> = setup
        .world()
        .left_behind()
        .into_iter()
        .filter(|what| what.starts_with("filter"))
        .collect();
    assert_eq!(guards, [""; 0], "abort gives guards back");
}

#[tokio::test]
async fn a_node_that_came_back_late_is_given_back_when_a_person_resumes() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    assert!(matches!(end, End::Held(_)), "{end:?}");
    // Resumed too soon, it holds again.
    lives.processes.ask(&Command::Resume).await;
    let end = lives.live().await;
    assert!(matches!(end, End::Held(_)), "{end:?}");
    {
        let mut world = setup.world();
        world.never_returns.clear();
        for _ in 0..20 {
            world.tick();
        }
    }
    lives.processes.ask(&Command::Resume).await;
    let end = lives.live().await;
    assert!(
        matches!(end, End::Over(Ending::Incomplete { .. })),
        "the master: {end:?}"
    );
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn a_migration_that_fails_puts_the_node_back_and_it_is_tried_again() {
    let setup = setup(mixed()).await;
    setup.world().fault("PUT /2/instances/b/migrate", Fault::FailJob);
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

/// Ganeti refuses to drain a candidate where too few would be left, as in each cluster with more nodes than its pool
/// has: another is promoted in its stead.
#[tokio::test]
async fn where_too_few_candidates_would_be_left_another_is_promoted() {
    let make = || {
        let mut world = mixed();
        world.pool = 4;
        world
    };
    let setup = setup(make()).await;
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    all_is_well(&world, &make(), &["n2", "n3", "n4", "n5"]);
    let roles: String = world.now.nodes.values().map(|node| node.role).collect();
    assert_eq!(roles, "MCCCC", "who was promoted stays so");
}

/// It was never sent, or somebody cancelled it.
#[tokio::test]
async fn a_reboot_that_fails_is_sent_once_more() {
    let setup = setup(mixed()).await;
    setup.world().fault("POST /2/nodes/n3/powercycle", Fault::FailJob);
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

/// What it holds by default; it says which node, and why.
#[tokio::test]
async fn by_default_a_node_that_never_comes_back_is_named_too() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup);
    lives.on_failure = OnFailure::Rollback;
    let end = lives.live().await;
    let End::Held(reason) = end else { panic!("{end:?}") };
    assert!(
        reason.detail.contains("reboot n3: it does not answer"),
        "{reason}"
    );
}

/// The password of RAPI's user is changed in mid-run: the process ends and says what is wrong, and once that is mended the run goes on.
#[tokio::test]
async fn a_password_that_is_changed_in_mid_run_ends_the_process_and_not_the_run() {
    let undisturbed = setup(mixed()).await;
    let before = undisturbed.world().requests;
    assert!(matches!(Lives::new(&undisturbed).live().await, End::Over(_)));
    let points = undisturbed.world().requests - before;
    for point in [points / 5, points / 3, points / 2, points * 3 / 4] {
        let setup = setup(mixed()).await;
        let at = setup.world().requests + point;
        setup.world().then.push((at, Then::ChangePassword));
        let mut lives = Lives::new(&setup);
        // The kit takes an error of the driver for a defect of the test.
        let ended = std::panic::AssertUnwindSafe(lives.live()).catch_unwind().await;
        let said = match ended {
            Ok(End::Held(reason)) => reason.to_string(),
            Ok(other) => panic!("at {point}: {other:?}"),
            Err(said) => said.downcast_ref::<String>().unwrap().clone(),
        };
        assert!(
            said.contains("401") && said.contains("password_file"),
            "at {point}: {said}"
        );
        setup.world().locked_out = false;
        let mut end = lives.live().await;
        if let End::Held(_) = end {
            lives.processes.ask(&Command::Resume).await;
            end = lives.live().await;
        }
        assert!(
            matches!(end, End::Over(Ending::Incomplete { .. })),
            "at {point}: {end:?}"
        );
        all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
    }
}

#[tokio::test]
async fn an_instance_that_is_made_meanwhile_is_moved_too() {
    for at in [20, 60, 120, 200, 300] {
        let setup = setup(mixed()).await;
        let mut lives = Lives::new(&setup);
        setup
            .world()
            .then
            .push((at, Then::Create("new", "drbd", "n4", Some("n2"))));
        let end = lives.live().await;
        assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
        let world = setup.world();
        assert_eq!(world.violations, [""; 0], "made at request {at}");
        let layout = world.layout();
        assert_eq!(layout["new"], ("n4".to_owned(), Some("n2".to_owned()), true));
    }
}

#[tokio::test]
async fn jobs_of_others_that_were_begun_are_waited_for_and_later_ones_wait() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup);
    let early = setup.world().submit(Op::Other { ticks: 30 }, None);
    let watch = async {
        // Submitted once the drain is there.
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut world = setup.world();
            if world
                .shown
                .filters
                .values()
                .any(|filter| filter.action == "PAUSE")
            {
                break world.submit(Op::Other { ticks: 0 }, Some("nightly"));
            }
        }
    };
    let (end, late) = tokio::join!(lives.live(), watch);
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let mut world = setup.world();
    for _ in 0..10 {
        world.tick();
    }
    assert_eq!(world.jobs[early as usize - 1].status, "success");
    assert_eq!(
        world.jobs[late as usize - 1].status,
        "success",
        "it was not cancelled"
    );
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn lost_answers_and_full_queues_change_nothing_in_the_end() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup);
    lives.begin().await;
    for fault in [Fault::LoseAnswer, Fault::Late(5), Fault::LoseAnswer] {
        setup.world().fault("migrate", fault.clone());
        setup.world().fault("powercycle", fault.clone());
        setup.world().fault("PUT /2/nodes", fault.clone());
        setup.world().fault("GET /2/instances", Fault::LoseAnswer);
        setup.world().fault("GET /2/jobs", Fault::Status(503));
    }
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    for _ in 0..50 {
        setup.world().tick();
    }
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn with_its_real_lock_a_killed_run_is_carried_on() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.lock = Duration::from_secs(12);
    let mut lives = Lives::new(&setup);
    lives.locks = true;
    setup.world().kill = Some((250, Dies::After));
    let end = lives.live().await;
    assert!(matches!(end, End::Killed), "{end:?}");
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn in_a_full_evacuation_second_copies_go_away_and_come_back() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup);
    lives.moving.evacuate = Evacuate::Everything;
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
    let replaced: Vec<_> = world
        .jobs
        .iter()
        .filter_map(|job| match &job.op {
            Op::Replace { instance, to } => Some((instance.as_str(), to.as_str())),
            _ => None,
        })
        .collect();
    assert!(
        replaced.len() >= 16,
        "each of eight copies, there and back: {replaced:?}"
    );
    let cut_off: Vec<_> = world
        .degraded_by_reboot
        .iter()
        .filter(|(node, _)| node == "n3")
        .map(|(_, instance)| instance.as_str())
        .collect();
    assert_eq!(cut_off, ["down"], "what does not run stays");
}

#[tokio::test]
async fn without_the_drain_jobs_of_others_never_wait() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.drain = false;
    let mut lives = Lives::new(&setup);
    let long = setup.world().submit(Op::Other { ticks: 1_000_000 }, None);
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    assert_eq!(
        world.jobs[long as usize - 1].status,
        "running",
        "nobody waited for it"
    );
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
}
