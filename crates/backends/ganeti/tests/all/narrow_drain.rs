//! Jobs of others wait while a wave is at work, and no longer.

use std::time::Duration;

use crate::common::setup;
use crate::double::World;
use crate::double::queue::Op;
use crate::lives::{End, Lives, all_is_well, mixed, with_failover};
use stagger_core::run::Ending;
use stagger_ganeti::config::{DrainScope, Watcher};
use stagger_ganeti::rapi::reason::EMERGENCY;

fn is_drained(world: &World) -> bool {
    world
        .shown
        .filters
        .values()
        .any(|filter| filter.action == "PAUSE")
}

/// Seen: a job that was submitted in the first wave was begun after the last one.
#[tokio::test]
async fn a_job_of_others_waits_for_one_wave_and_not_for_all() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.drain_scope = DrainScope::Cluster;
    with_failover(&mut setup);
    let mut lives = Lives::new(&setup);
    let watch = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut world = setup.world();
            if is_drained(&world) && !world.powercycles.is_empty() {
                break world.submit(Op::Other { ticks: 0 }, Some("nightly"));
            }
        }
    };
    let (end, job) = tokio::join!(lives.live(), watch);
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    let world = setup.world();
    assert_eq!(world.jobs[job as usize - 1].status, "success");
    let ended = |at: u64| world.ended.iter().position(|id| *id == at).unwrap();
    let last = world
        .jobs
        .iter()
        .rev()
        .find(|job| matches!(job.op, Op::Powercycle { .. }))
        .unwrap();
    assert!(ended(job) < ended(last.id), "it ran between two waves");
    assert!(!is_drained(&world), "and nothing waits afterwards");
}

/// Seen: after a hold the queue stayed paused for half an hour, and nobody was told.
#[tokio::test]
async fn while_a_person_is_waited_for_nobodys_jobs_wait() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    assert!(matches!(end, End::Held(_)), "{end:?}");
    let mut world = setup.world();
    for _ in 0..5 {
        world.tick();
    }
    assert_eq!(world.now.nodes["n3"].role, "D", "the wave is not over");
    assert!(!is_drained(&world));
    let job = world.submit(Op::Other { ticks: 0 }, Some("by hand"));
    for _ in 0..5 {
        world.tick();
    }
    assert_eq!(world.jobs[job as usize - 1].status, "success");
}

#[tokio::test]
async fn an_emergency_passes_while_others_wait() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.drain_scope = DrainScope::Cluster;
    let mut lives = Lives::new(&setup);
    let watch = async {
        let (waits, passes) = loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut world = setup.world();
            if is_drained(&world) {
                let waits = world.submit(Op::Other { ticks: 0 }, Some("nightly"));
                break (waits, world.submit(Op::Other { ticks: 0 }, Some(EMERGENCY)));
            }
        };
        let mut world = setup.world();
        for _ in 0..4 {
            world.tick();
        }
        let status = |id: u64| world.jobs[id as usize - 1].status;
        (status(waits), status(passes))
    };
    let (end, (waits, passes)) = tokio::join!(lives.live(), watch);
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    assert_eq!((waits, passes), ("queued", "success"));
}

/// What is held is cleared at once by a person's word, of whatever run.
#[tokio::test]
async fn guards_are_dropped_by_a_word() {
    let setup = setup(mixed()).await;
    let backend = setup.backend(None);
    let guard = stagger_core::model::GuardName::new("drain").unwrap();
    let call = crate::common::call(1);
    stagger_ganeti::guards::take(backend.rapi(), &setup.settings, &call, &guard, &[], 1800)
        .await
        .unwrap();
    assert!(is_drained(&setup.world()));
    let by = stagger_core::model::RunId::new("somebody").unwrap();
    let dropped = backend.drop_guards(&by).await.unwrap();
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].run, "run-1");
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

/// Seen: the command for the watcher failed, and the drain stayed.
#[tokio::test]
async fn a_watcher_that_cannot_be_reached_keeps_no_drain() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.watcher = Some(Watcher {
        pause: "true {seconds}".to_owned(),
        resume: "echo no route to host; exit 255".to_owned(),
        info: "echo The watcher is not paused.".to_owned(),
    });
    let backend = setup.backend(None);
    // There is no fence, and this machine has seen the token of the pause all the same.
    let call = crate::common::call(1);
    for name in ["watcher-pause", "drain"] {
        let guard = stagger_core::model::GuardName::new(name).unwrap();
        stagger_ganeti::guards::take(backend.rapi(), &setup.settings, &call, &guard, &[], 1800)
            .await
            .unwrap();
    }
    assert!(is_drained(&setup.world()));
    let by = stagger_core::model::RunId::new("somebody").unwrap();
    let error = backend.drop_guards(&by).await.unwrap_err();
    assert!(error.why.contains("no route to host"), "{error}");
    assert!(error.why.contains("restored all the same: drain"), "{error}");
    assert!(!is_drained(&setup.world()));
    let left = backend.guards().await.unwrap();
    assert_eq!(
        left.len(),
        1,
        "what could not be given back is known still: {left:?}"
    );
}

/// The drain of a wave keeps those jobs waiting that name a node of it, or an instance of one, by whatever spelling; and no others,
/// however long they take.
#[tokio::test]
async fn a_drain_of_the_wave_keeps_nobody_else_waiting() {
    let mut world = World::with_nodes(4);
    world.add("web.example.org", "drbd", "n2", Some("n3"));
    world.add("db.example.org", "drbd", "n3", Some("n2"));
    world.add("mail.example.org", "drbd", "n3", Some("n4"));
    let mut setup = setup(world).await;
    setup.settings.pace.job = Duration::from_secs(5);
    setup.settings.cluster.visits.drain_scope = DrainScope::Wave;
    let endless = |name: &str| Op::Export {
        instance: name.to_owned(),
        ticks: u32::MAX,
    };
    setup.world().submit(endless("mail.example.org"), Some("nightly"));
    setup.world().submit(Op::Other { ticks: u32::MAX }, None);
    for _ in 0..5 {
        setup.world().tick();
    }
    let backend = setup.backend(None);
    let (call, drain) = (
        crate::common::call(1),
        stagger_core::model::GuardName::new("drain").unwrap(),
    );
    let wave = [stagger_core::model::UnitId::new("n2").unwrap()];
    let take = async || {
        stagger_ganeti::guards::take(backend.rapi(), &setup.settings, &call, &drain, &wave, 1800).await
    };
    let said = take().await.unwrap();
    assert!(said.contains("of the wave"), "{said}");
    let submit = |op: Op| setup.world().submit(op, Some("by hand"));
    let export = |name: &str| Op::Export {
        instance: name.to_owned(),
        ticks: 0,
    };
    let waits = [
        submit(export("web")),
        submit(export("web.example.org")),
        submit(export("db.example")),
        submit(Op::Powercycle {
            node: "n2".to_owned(),
        }),
    ];
    let pass = [submit(export("mail")), submit(Op::Other { ticks: 0 })];
    for _ in 0..10 {
        setup.world().tick();
    }
    let status = |id: u64| setup.world().jobs[id as usize - 1].status;
    assert_eq!(waits.map(status), ["queued"; 4]);
    assert_eq!(pass.map(status), ["success"; 2]);
    // A renewal writes the same once more, and whoever gives it back takes all of it away.
    take().await.unwrap();
    assert_eq!(backend.guards().await.unwrap().len(), 1);
    let by = stagger_core::model::RunId::new("somebody").unwrap();
    backend.drop_guards(&by).await.unwrap();
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

/// What is at work on an instance of the wave is waited for.
#[tokio::test]
async fn a_drain_of_the_wave_waits_for_what_is_at_work_there() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.job = Duration::from_millis(300);
    setup.settings.cluster.visits.drain_scope = DrainScope::Wave;
    let stuck = Op::Export {
        instance: "c".to_owned(),
        ticks: u32::MAX,
    };
    let stuck = setup.world().submit(stuck, None);
    for _ in 0..5 {
        setup.world().tick();
    }
    let drain = stagger_core::model::GuardName::new("drain").unwrap();
    let wave = [stagger_core::model::UnitId::new("n4").unwrap()];
    let call = crate::common::call(1);
    let taken =
        stagger_ganeti::guards::take(&setup.rapi(), &setup.settings, &call, &drain, &wave, 1800).await;
    let error = taken.unwrap_err();
    assert!(error.why.contains(&format!("running: {stuck} ")), "{error}");
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

#[tokio::test]
async fn a_run_drains_wave_by_wave() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.drain_scope = DrainScope::Wave;
    with_failover(&mut setup);
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n1", "n2", "n3", "n4", "n5"]);
}

/// Hooks and commands whose jobs would else wait behind our own drain.
#[tokio::test]
async fn every_hook_is_told_a_reason_that_passes() {
    let mut setup = setup(mixed()).await;
    let file = setup.folder.path().join("reasons");
    let hook = format!("echo {{node}} {{reason}} >> {}", file.display());
    setup.settings.cluster.visits.hooks.enter = Some(hook.clone());
    setup.settings.cluster.visits.hooks.leave = Some(hook);
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let told = std::fs::read_to_string(file).unwrap();
    let reasons: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons.len(), 8, "{told}");
    for reason in reasons {
        let read = stagger_ganeti::rapi::reason::JobReason::parse(reason).unwrap();
        assert!(read.key.starts_with("run-1-"), "{reason}");
    }
}
