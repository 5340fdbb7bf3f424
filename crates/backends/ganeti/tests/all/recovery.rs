//! What runs have left is listed and given back from the cluster alone, and nobody acts on what another run has noted.

use std::time::Duration;

use stagger_core::model::{Evacuate, LocalGuests, RunId};
use stagger_core::run::{Command, Ending};
use stagger_engine::cluster::Lock as _;
use stagger_engine::cluster::LockError;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::recovery::Recovered;
use stagger_ganeti::recovery::leftovers::{InstanceChange, batch_text};

use crate::common::{Setup, claim, setup};
use crate::double::queue::Op;
use crate::double::{Dies, Fault, World};
use crate::lives::{End, Lives, mixed, with_failover};

async fn recovered(setup: &Setup, only: Option<&str>) -> Recovered {
    let mut claim = claim("recovery", "ops1");
    claim.run = RunId::new("recovery-1").unwrap();
    // Nobody else wants the lock, and on a busy machine a renewal may be late.
    let mut settings = setup.settings.clone();
    settings.pace.lock = Duration::from_mins(1);
    let backend = GanetiBackend::new(settings, None).unwrap();
    backend.recover(&claim, only).await.unwrap()
}

/// Everything is where it was and runs, and neither a node nor a filter tells of any run, but for what was told to stay.
fn all_is_given_back(world: &World, before: &World, kept: &[String], what: &str) {
    assert_eq!(world.layout(), before.layout(), "{what}");
    assert_eq!(world.left_behind(), [""; 0], "{what}");
    let drained: Vec<_> = world
        .now
        .nodes
        .iter()
        .filter(|(_, node)| node.role == "D")
        .collect();
    assert!(drained.is_empty(), "{what}: {drained:?}");
    let filters = &world.now.filters;
    let told = kept.first().and_then(|line| line.split(' ').next());
    let told = told.map_or(0, |count| count.parse().unwrap());
    assert_eq!(filters.len(), told, "{what}: {filters:?} {kept:?}");
    assert_eq!(world.violations, [""; 0], "{what}");
}

fn comes_back(setup: &Setup) {
    let mut world = setup.world();
    world.never_returns.clear();
    for _ in 0..20 {
        world.tick();
    }
}

/// Seen: a node never came back, the run was aborted, and nothing gave back what it had taken from the node.
#[tokio::test]
async fn what_an_aborted_run_has_left_is_listed_and_given_back_without_its_journal() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.settings.pace.call = Duration::from_secs(2);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup);
    assert!(matches!(lives.live().await, End::Held(_)));
    lives.processes.ask(&Command::Abort).await;
    assert!(matches!(lives.live().await, End::Over(Ending::Aborted)));
    std::fs::remove_file(&lives.processes.journal).unwrap();

    let backend = setup.backend(None);
    let left = backend.leftovers().await.unwrap();
    let [visit] = left.visits.as_slice() else {
        panic!("{left:?}")
    };
    assert_eq!(visit.node, "n3");
    assert_eq!(visit.notes.run, Some(RunId::new("run-1").unwrap()));
    assert!(visit.notes.since.is_some(), "since when is noted too");
    let instances: Vec<_> = visit
        .instances
        .iter()
        .map(|left| {
            (
                left.name.as_str(),
                left.done,
                left.now.as_ref().unwrap().0.as_str(),
            )
        })
        .collect();
    assert_eq!(instances, [("c", InstanceChange::Away, "n4")]);
    assert!(
        visit.refused.as_ref().unwrap().contains("does not answer"),
        "{visit:?}"
    );
    let snapshot = backend.observe_cluster().await.unwrap();
    let snapshot = backend
        .snapshot(
            &snapshot.0,
            &snapshot.1,
            &stagger_ganeti::goal::EvacuationGoal::default(),
        )
        .unwrap();
    let n3 = snapshot
        .units()
        .iter()
        .find(|unit| unit.id.as_str() == "n3")
        .unwrap();
    let why = n3.untouchable.as_ref().unwrap();
    assert_eq!(why.code.code(), "node-left-by-run");
    assert!(
        why.detail.contains("run run-1") && why.detail.contains("recover n3"),
        "{why}"
    );

    let dead = recovered(&setup, None).await;
    assert_eq!(dead.failed.len(), 1, "{dead:?}");
    assert!(dead.failed[0].why.contains("does not answer"), "{dead:?}");
    assert!(!setup.world().left_behind().is_empty(), "it is as it was");

    comes_back(&setup);
    let left = backend.leftovers().await.unwrap();
    let plan: Vec<String> = left.visits[0].plan.iter().map(batch_text).collect();
    assert_eq!(left.visits[0].refused, None);
    assert_eq!(
        plan,
        [
            "make it master-candidate again",
            "bring the disks in sync of b, c",
            "move back c from n4",
            "remove 4 tags"
        ]
    );
    let recovered = recovered(&setup, None).await;
    assert!(
        recovered.failed.is_empty() && recovered.kept.is_empty(),
        "{recovered:?}"
    );
    all_is_given_back(&setup.world(), &mixed(), &[], "after it came back");
    assert!(backend.leftovers().await.unwrap().is_empty());
}

/// Seen: a later run brought an instance back that was not in its plan, and started one that an aborted run had shut down.
#[tokio::test]
async fn a_run_never_acts_on_what_another_has_noted() {
    let make = || {
        let mut world = mixed();
        world.add("log", "plain", "n4", None);
        let web = world.now.instances.get_mut("s").unwrap();
        web.pnode = "n4".to_owned();
        let log = world.now.instances.get_mut("log").unwrap();
        (log.admin_up, log.running) = (false, false);
        let ids = ["s", "log"].map(|name| world.now.instances[name].uuid.clone());
        let tags = &mut world.now.nodes.get_mut("n2").unwrap().tags;
        tags.insert(format!("stagger:away:{}@run-0", ids[0]));
        tags.insert("stagger:run:run-0@1795219724".to_owned());
        // As releases before this one wrote them.
        let tags = &mut world.now.nodes.get_mut("n4").unwrap().tags;
        tags.insert(format!("stagger:stopped:{}", ids[1]));
        world.shown = world.now.clone();
        world
    };
    let setup = setup(make()).await;
    let mut lives = Lives::new(&setup);
    lives.moving.local = LocalGuests::Accept;
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    {
        let world = setup.world();
        assert_eq!(world.layout(), make().layout(), "all is where this run found it");
        let started = world
            .jobs
            .iter()
            .any(|job| matches!(&job.op, Op::Startup { instance } if instance == "log"));
        assert!(!started);
        let tags: Vec<String> = world.left_behind();
        assert_eq!(tags.len(), 3, "notes of others stay: {tags:?}");
    }
    let left = setup.backend(None).leftovers().await.unwrap();
    let runs: Vec<Option<String>> = left
        .visits
        .iter()
        .map(|visit| visit.notes.run.as_ref().map(ToString::to_string))
        .collect();
    assert_eq!(runs, [Some("run-0".to_owned()), None]);
    // Of one node only, and then of all.
    let one = recovered(&setup, Some("n4")).await;
    assert_eq!((one.done.len(), one.failed.len()), (1, 0), "{one:?}");
    assert!(setup.world().layout()["log"].2, "it runs again");
    assert_eq!(setup.world().layout()["s"].0, "n4");
    recovered(&setup, None).await;
    assert_eq!(setup.world().layout()["s"].0, "n2", "it is back");
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

/// While a run is at work nobody gives back what it needs.
#[tokio::test]
async fn what_a_run_has_in_hand_is_not_taken_from_it() {
    let setup = setup(mixed()).await;
    let run = claim("run", "ops2");
    let holder = setup.backend(None);
    let token = holder.lock(&run, 0).await.unwrap();
    let mine = claim("recovery", "ops1");
    let renews = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            holder.renew(&run, token).await.unwrap();
        }
    };
    let other = setup.backend(None);
    let refused = tokio::select! {
        refused = other.recover(&mine, None) => refused,
        () = renews => unreachable!(),
    };
    assert!(matches!(refused, Err(LockError::Held(by)) if by.host == "ops2"));
}

/// Seen: the fence was gone with the rest, the next run began with token 1, and hosts that had run a command of the recovery refused
/// all of its commands.
#[tokio::test]
async fn a_run_after_it_has_a_newer_token_than_any_before() {
    let setup = setup(mixed()).await;
    let backend = setup.backend(None);
    let run = claim("run", "ops1");
    let first = backend.lock(&run, 0).await.unwrap();
    backend.unlock(&run, first).await.unwrap();
    recovered(&setup, None).await;
    assert_eq!(setup.world().now.filters.len(), 0, "nothing tells of any token");
    // That of the recovery was between them.
    let second = backend.lock(&run, 0).await.unwrap();
    assert!(second > first + 1, "{second} after {first}");
    backend.unlock(&run, second).await.unwrap();
    let third = backend.lock(&run, 0).await.unwrap();
    assert_eq!(third, second + 1, "where the fence is, they are counted");
}

/// Seen: while nothing answered, the lock ran out, and giving back went on beside whoever had it by then.
#[tokio::test]
async fn giving_back_stops_when_the_lock_cannot_be_renewed() {
    let make = || {
        let mut world = mixed();
        let instance = world.now.instances.get_mut("s").unwrap();
        instance.pnode = "n4".to_owned();
        let tag = format!("stagger:away:{}@run-0", instance.uuid);
        let tags = &mut world.now.nodes.get_mut("n2").unwrap().tags;
        tags.insert(tag);
        tags.insert("stagger:run:run-0@1795219724".to_owned());
        world.shown = world.now.clone();
        world
    };
    let setup = setup(make()).await;
    // The first job of giving it back waits in the queue for longer than the lock lasts.
    setup.world().holds_queued = u32::MAX;
    let nobody_renews = async {
        loop {
            let submitted = !setup.world().jobs.is_empty();
            if submitted {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut world = setup.world();
        let claim = world
            .now
            .filters
            .values()
            .find(|filter| filter.reason.to_string().contains("recovery-1"))
            .map(|filter| format!("PUT /2/filters/{}", filter.uuid))
            .expect("the lock is claimed");
        world
            .faults
            .extend(std::iter::repeat_n((claim, Fault::Status(503)), 100_000));
        drop(world);
        std::time::Instant::now()
    };
    let mut claim = claim("recovery", "ops1");
    claim.run = RunId::new("recovery-1").unwrap();
    let backend = setup.backend(None);
    let (stopped, since) = tokio::join!(backend.recover(&claim, None), nobody_renews);
    let Err(LockError::Lost(why)) = &stopped else {
        panic!("{stopped:?}")
    };
    assert!(why.contains("was not renewed"), "{why}");
    assert!(
        since.elapsed() < setup.settings.pace.lock,
        "after {:?}: another may have it by now",
        since.elapsed()
    );
    let jobs = setup.world().jobs.len();
    {
        let mut world = setup.world();
        world.faults.clear();
        world.holds_queued = 0;
        for _ in 0..20 {
            world.tick();
        }
        assert_eq!(world.jobs.len(), jobs, "nothing more was begun");
    }
    let again = recovered(&setup, None).await;
    assert!(again.failed.is_empty(), "{again:?}");
    assert_eq!(setup.world().layout()["s"].0, "n2", "it is back");
}

/// Seen: a process was killed right after it had sent a reboot, and whoever recovered at once brought instances back to a node that
/// was about to go down.
#[tokio::test]
async fn a_node_is_not_given_back_while_its_reboot_is_on_its_way() {
    let make = || {
        let mut world = World::with_nodes(2);
        world.add("s", "sharedfile", "n2", None);
        // It shuts down for a while before it is silent.
        world.down_after = 400;
        world
    };
    let mut setup = setup(make()).await;
    setup.settings.pace.call = Duration::from_secs(1);
    let mut lives = Lives::new(&setup);
    let is_sent = async {
        while !setup.world().powercycles.contains_key("n2") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        end = lives.live() => panic!("{end:?}"),
        () = is_sent => {}
    }
    drop(lives);
    let left = setup.backend(None).leftovers().await.unwrap();
    let [visit] = left.visits.as_slice() else {
        panic!("{left:?}");
    };
    assert!(visit.may_go_down, "{visit:?}");
    let recovered = recovered(&setup, None).await;
    assert!(recovered.failed.is_empty(), "{recovered:?}");
    assert_eq!(setup.world().now.nodes["n2"].boot, 2, "it was waited for");
    all_is_given_back(&setup.world(), &make(), &recovered.kept, "at once");
}

/// How many points to leave out between two; the environment may ask for all (`EVERY=1`).
fn stride(usual: usize) -> usize {
    let every = std::env::var("EVERY").ok().and_then(|every| every.parse().ok());
    every.unwrap_or(usual)
}

#[tokio::test]
async fn a_cluster_is_brought_back_from_a_kill_anywhere_with_its_journal_deleted() {
    brought_back(stride(61)).await;
}

#[tokio::test]
#[ignore = "minutes; cargo xtask test --long runs it"]
async fn a_cluster_is_brought_back_from_a_kill_at_each_request_with_its_journal_deleted() {
    brought_back(1).await;
}

/// A process is killed at every so-manieth request of its run, at each in another way in turn.
async fn brought_back(every: usize) {
    let make = || {
        let mut world = World::with_nodes(3);
        world.add("a", "drbd", "n1", Some("n2"));
        world.add("b", "drbd", "n2", Some("n3"));
        world.add("s", "sharedfile", "n2", None);
        world.add_down("down", "drbd", "n3", Some("n1"));
        world.lag = 1;
        world
    };
    let made = async || {
        let mut setup = setup(make()).await;
        with_failover(&mut setup);
        setup.settings.pace.call = Duration::from_secs(1);
        setup.settings.hosts.timeout = 1;
        setup
    };
    let undisturbed = made().await;
    let before = undisturbed.world().requests;
    let mut lives = Lives::new(&undisturbed);
    lives.moving.evacuate = Evacuate::Everything;
    assert!(matches!(lives.live().await, End::Over(Ending::Done)));
    let points = undisturbed.world().requests - before;
    let (mut killed, mut left_something) = (0, 0);
    for (number, point) in (1..=points).step_by(every).enumerate() {
        let dies = [Dies::Before, Dies::After, Dies::Late(9)][number % 3];
        let setup = made().await;
        let mut lives = Lives::new(&setup);
        lives.moving.evacuate = Evacuate::Everything;
        let at = setup.world().requests + point;
        setup.world().kill = Some((at, dies));
        let what = format!("killed at request {point}, {dies:?}");
        killed += u32::from(matches!(lives.live().await, End::Killed));
        let _gone = std::fs::remove_file(&lives.processes.journal);
        // Whoever is quick finds nodes that are about to go down.
        if number % 2 == 0 {
            for _ in 0..20 {
                setup.world().tick();
            }
        }
        left_something += u32::from(!setup.backend(None).leftovers().await.unwrap().is_restored());
        let recovered = recovered(&setup, None).await;
        assert!(recovered.failed.is_empty(), "{what}: {recovered:?}");
        for _ in 0..20 {
            setup.world().tick();
        }
        println!("{what}");
        // A request whose answer was lost is refused for a while longer: that is told, and nothing else stays.
        let refused = |kept: &String| kept.contains("requests whose answer was lost are refused for");
        assert!(recovered.kept.iter().all(refused), "{what}: {recovered:?}");
        all_is_given_back(&setup.world(), &make(), &recovered.kept, &what);
    }
    println!("{killed} killed of {points} points; {left_something} had left something");
    assert!(killed > 5 && left_something > 5, "{killed} {left_something}");
}
