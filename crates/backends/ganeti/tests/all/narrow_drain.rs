//! Jobs of others wait while a wave is at work, and no longer.

use std::time::Duration;

use crate::common::setup;
use crate::double::World;
use crate::double::queue::Op;
use crate::lives::{End, Lives, mixed, with_failover};
use stagger_core::run::Ending;
use stagger_ganeti::reason::EMERGENCY;

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
    let setup = setup(mixed()).await;
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
    stagger_ganeti::guards::take(backend.rapi(), &setup.settings, &call, &guard, 1800)
        .await
        .unwrap();
    assert!(is_drained(&setup.world()));
    let by = stagger_core::model::RunId::new("somebody").unwrap();
    let dropped = backend.drop_guards(&by).await.unwrap();
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].run, "run-1");
    assert_eq!(setup.world().left_behind(), [""; 0]);
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
        let read = stagger_ganeti::reason::JobReason::parse(reason).unwrap();
        assert!(read.key.starts_with("run-1-"), "{reason}");
    }
}
