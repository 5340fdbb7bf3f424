//! Filters as guards.

use std::time::{Duration, Instant};

use stagger_conformance::guards::{Guard, what_a_later_run_holds_is_left, what_is_taken_is_released};
use stagger_core::model::GuardName;
use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor as _};
use stagger_engine::heartbeats::Heartbeats;
use stagger_ganeti::config::Watcher;
use stagger_ganeti::guards;

use crate::common::{Setup, call, setup};
use crate::double::World;
use crate::double::queue::Op;

fn take(guard: &str) -> Action {
    Action::TakeGuard {
        guard: GuardName::new(guard).unwrap(),
        units: Vec::new(),
        expires: 600,
    }
}

fn give_back(guard: &str) -> Action {
    Action::DropGuard {
        guard: GuardName::new(guard).unwrap(),
        units: Vec::new(),
    }
}

fn status_after(setup: &Setup, id: u64) -> &'static str {
    let mut world = setup.world();
    for _ in 0..10 {
        world.tick();
    }
    world.jobs[id as usize - 1].status
}

#[tokio::test]
async fn its_guards_have_the_laws_of_every_guard() {
    let setup = setup(World::with_nodes(3)).await;
    let backend = setup.backend(None);
    let drain = Guard::new(&backend, "drain", &[]);
    let filters = || setup.world().left_behind();
    what_is_taken_is_released(&drain, &call(5), filters).await;
    what_a_later_run_holds_is_left(&drain, &call(5), filters).await;
}

#[tokio::test]
async fn others_wait_behind_the_drain_and_ours_run() {
    let mut world = World::with_nodes(3);
    world.add("web", "drbd", "n1", Some("n2"));
    world.lag = 2;
    let setup = setup(world).await;
    let backend = setup.backend(None);
    backend.perform(&call(5), &take("drain")).await.unwrap();
    let theirs = setup.world().submit(Op::Other { ticks: 0 }, Some("roll-1"));
    let ours = stagger_ganeti::rapi::reason::JobReason::new(&call(5), "look", 1).to_string();
    let info = Op::Info {
        instance: "web".to_owned(),
    };
    let ours = setup.world().submit(info, Some(&ours));
    assert_eq!(
        status_after(&setup, theirs),
        "queued",
        "waits, and is not cancelled"
    );
    assert_eq!(status_after(&setup, ours), "success");
    // A renewal is the same once more.
    backend.perform(&call(5), &take("drain")).await.unwrap();
    assert_eq!(backend.guards().await.unwrap().len(), 1);
    backend.perform(&call(5), &give_back("drain")).await.unwrap();
    assert_eq!(status_after(&setup, theirs), "success");
    assert_eq!(setup.world().left_behind(), [""; 0]);
    let again = backend.perform(&call(5), &give_back("drain")).await.unwrap();
    assert_eq!(again, "not held");
}

#[tokio::test]
async fn a_guard_that_another_run_holds_by_now_is_left_to_it() {
    let setup = setup(World::with_nodes(2)).await;
    let backend = setup.backend(None);
    backend.perform(&call(5), &take("drain")).await.unwrap();
    let later = Call {
        run: stagger_core::model::RunId::new("run-2").unwrap(),
        ..call(6)
    };
    backend.perform(&later, &take("drain")).await.unwrap();
    let said = backend.perform(&call(5), &give_back("drain")).await.unwrap();
    assert_eq!(said, "it is held by run run-2");
    assert_eq!(setup.world().left_behind().len(), 3);
}

#[tokio::test]
async fn what_nobody_renews_is_taken_away_by_anybody_who_has_watched_it() {
    let setup = setup(World::with_nodes(2)).await;
    let backend = setup.backend(None);
    backend.perform(&call(5), &take("drain")).await.unwrap();
    let (begin, rapi) = (Instant::now(), setup.rapi());
    let mut beats = Heartbeats::default();
    let mut after = async |seconds: u64| {
        let now = begin + Duration::from_secs(seconds);
        guards::drop_expired(&rapi, &mut beats, now).await.unwrap()
    };
    // Whatever any clock says: what was never watched stays.
    assert_eq!(after(100_000).await.gone, []);
    backend.perform(&call(5), &take("drain")).await.unwrap();
    assert_eq!(after(100_700).await.gone, [], "it was renewed meanwhile");
    let looked = after(101_200).await;
    assert_eq!((looked.gone.len(), looked.held.len()), (0, 1));
    assert!(looked.next.is_some());
    let gone = after(101_400).await.gone;
    assert_eq!(gone.len(), 1);
    assert_eq!((gone[0].guard.as_str(), gone[0].run.as_str()), ("drain", "run-1"));
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

/// A job of others that never ends: the queue is not paused for it for ever.
#[tokio::test]
async fn a_job_of_others_that_never_ends_is_named_and_the_queue_goes_on() {
    let mut setup = setup(World::with_nodes(2)).await;
    setup.settings.pace.job = Duration::from_millis(300);
    let stuck = setup.world().submit(Op::Other { ticks: u32::MAX }, None);
    for _ in 0..5 {
        setup.world().tick();
    }
    let backend = setup.backend(None);
    let error = backend.perform(&call(5), &take("drain")).await.unwrap_err();
    assert!(error.why.contains(&format!("running: {stuck} ")), "{error}");
    assert!(error.hint.unwrap().contains("gnt-job cancel"));
    assert_eq!(setup.world().left_behind(), [""; 0]);
    // A renewal that meets it leaves the guard as it is.
    setup.world().jobs[stuck as usize - 1].status = "success";
    backend.perform(&call(5), &take("drain")).await.unwrap();
    setup.world().submit(Op::Other { ticks: u32::MAX }, Some("x"));
    setup.world().jobs.last_mut().unwrap().status = "running";
    backend.perform(&call(5), &take("drain")).await.unwrap_err();
    assert_eq!(setup.world().left_behind().len(), 3, "it is still held");
}

/// A holder that was stopped for a while must not write its guard over that of its successor.
#[tokio::test]
async fn who_was_overtaken_takes_no_guard() {
    let setup = setup(World::with_nodes(2)).await;
    let backend = setup.backend(None);
    backend.perform(&call(5), &take("drain")).await.unwrap();
    stagger_ganeti::rapi::fence::raise(&setup.rapi(), 6)
        .await
        .unwrap();
    backend.perform(&call(6), &take("drain")).await.unwrap();
    let error = backend.perform(&call(5), &take("drain")).await.unwrap_err();
    assert!(error.why.contains("another process"), "{error}");
    let held = backend.guards().await.unwrap();
    assert_eq!(held.len(), 1, "{held:?}");
}

/// A watcher that is a file: paused where it is there.
fn watched(setup: &mut Setup) -> std::path::PathBuf {
    let file = setup.folder.path().join("paused");
    let shown = file.display();
    setup.settings.cluster.visits.watcher = Some(Watcher {
        pause: format!("echo {{seconds}} > {shown}"),
        resume: format!("rm -f {shown}"),
        info: format!(
            "if [ -e {shown} ]; then echo The watcher is paused until later.; else echo The watcher is not paused.; fi"
        ),
    });
    file
}

#[tokio::test]
async fn the_watcher_is_paused_and_let_go() {
    let mut setup = setup(World::with_nodes(2)).await;
    let file = watched(&mut setup);
    let backend = setup.backend(None);
    backend.perform(&call(5), &take("watcher-pause")).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "600\n");
    backend
        .perform(&call(5), &give_back("watcher-pause"))
        .await
        .unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn a_pause_of_others_stays() {
    let mut setup = setup(World::with_nodes(2)).await;
    let file = watched(&mut setup);
    std::fs::write(&file, "theirs").unwrap();
    let backend = setup.backend(None);
    let said = backend.perform(&call(5), &take("watcher-pause")).await.unwrap();
    assert!(said.contains("by others"), "{said}");
    backend
        .perform(&call(5), &give_back("watcher-pause"))
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
}

#[tokio::test]
async fn without_its_commands_the_watcher_cannot_be_paused() {
    let setup = setup(World::with_nodes(2)).await;
    let error = setup
        .backend(None)
        .perform(&call(5), &take("watcher-pause"))
        .await
        .unwrap_err();
    assert!(error.hint.unwrap().contains("cluster.visits.watcher"));
}
