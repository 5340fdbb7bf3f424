//! The master's turn.

use stagger_core::model::{MoveKind, Phase, UnitId};
use stagger_core::plan::Move;
use stagger_core::run::Action;
use stagger_engine::cluster::{BackendError, Call, Executor as _, Lock as _, LockError};
use stagger_ganeti::backend::GanetiBackend;

use crate::common::{Setup, call, claim, rebooted, setup};
use crate::double::World;
use crate::lives::with_failover;

fn make() -> World {
    let mut world = World::with_nodes(3);
    world.add("web", "drbd", "n1", Some("n2"));
    world
}

async fn enter_n1(backend: &GanetiBackend, fence: u64) -> Result<String, BackendError> {
    let web = Move {
        guest: "web".to_owned(),
        how: MoveKind::Migrate,
        from: UnitId::new("n1").unwrap(),
        to: UnitId::new("n2").unwrap(),
    };
    visit(backend, fence, "n1", Phase::Enter, vec![web]).await
}

async fn visit(
    backend: &GanetiBackend,
    fence: u64,
    node: &str,
    phase: Phase,
    moves: Vec<Move>,
) -> Result<String, BackendError> {
    let call = Call {
        seq: 9,
        ..call(fence)
    };
    let action = Action::Visit {
        unit: UnitId::new(node).unwrap(),
        phase,
        revision: rebooted(),
        moves,
    };
    backend.perform(&call, &action).await
}

async fn with_copy() -> (Setup, std::path::PathBuf) {
    let mut setup = setup(make()).await;
    with_failover(&mut setup);
    let copied = setup.folder.path().join("copied");
    setup.settings.cluster.visits.copy_journal = Some(format!("echo {{successor}} >> {}", copied.display()));
    (setup, copied)
}

#[tokio::test]
async fn from_elsewhere_the_master_changes_and_the_visit_goes_on() {
    let (setup, _) = with_copy().await;
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "ops1"), 0).await.unwrap();
    enter_n1(&backend, token).await.unwrap();
    let world = setup.world();
    assert_eq!(world.now.master, "n2");
    assert_eq!(world.now.nodes["n1"].role, "D");
    assert_eq!(world.now.instances["web"].pnode, "n2");
}

/// stagger runs on the master: exactly one of the two journals goes on.
#[tokio::test]
async fn on_the_master_itself_the_run_goes_on_on_the_successor_only() {
    let (setup, copied) = with_copy().await;
    let memory = setup.memory().await;
    let here = setup.backend(Some(memory.clone()));
    let me = claim("aaaa", "n1");
    let token = here.lock(&me, 0).await.unwrap();
    let error = enter_n1(&here, token).await.unwrap_err();
    assert!(error.outcome_unknown, "the intent stays open: {error}");
    assert!(error.why.contains("n2"), "{error}");
    assert_eq!(
        std::fs::read_to_string(&copied).unwrap(),
        "n2\n",
        "copied once, before"
    );
    assert_eq!(setup.world().now.master, "n2");
    assert_eq!(
        setup.world().now.nodes["n1"].role,
        "C",
        "nothing else was done here"
    );

    // This process is not the writer any more: neither its lock nor its jobs count.
    assert!(here.renew(&me, token).await.is_err());
    let error = visit(&here, token, "n3", Phase::Enter, Vec::new()).await;
    let error = error.unwrap_err();
    assert!(error.why.contains("cancelled"), "{error}");
    here.unlock(&me, token).await.unwrap();
    let again = setup.backend(Some(memory.clone()));
    let refused = again.lock(&claim("bbbb", "n1"), token).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "{refused:?}");

    // On the successor it goes on.
    let there = setup.backend(Some(memory));
    let token = there.lock(&claim("cccc", "n2"), token).await.unwrap();
    enter_n1(&there, token).await.unwrap();
    assert_eq!(setup.world().now.nodes["n1"].role, "D");
    assert_eq!(setup.world().now.instances["web"].pnode, "n2");
}

#[tokio::test]
async fn on_the_master_itself_nothing_begins_without_a_way_to_copy_the_journal() {
    let mut setup = setup(make()).await;
    with_failover(&mut setup);
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "n1.example.org"), 0).await.unwrap();
    let error = enter_n1(&backend, token).await.unwrap_err();
    assert!(error.hint.unwrap().contains("copy_journal"));
    assert_eq!(setup.world().now.master, "n1");
}

#[tokio::test]
async fn a_failover_that_fails_changes_nothing_and_says_so() {
    let mut setup = setup(make()).await;
    setup.settings.cluster.visits.failover = Some("echo no quorum for {successor}; exit 5".to_owned());
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "ops1"), 0).await.unwrap();
    let error = enter_n1(&backend, token).await.unwrap_err();
    assert!(error.why.contains("ended with 5: no quorum"), "{error}");
    assert_eq!(setup.world().now.nodes["n1"].role, "M");
    assert!(
        setup.world().now.nodes["n1"]
            .tags
            .iter()
            .all(|tag| tag == "rack:a")
    );
}

/// Seen: stagger runs on the master, and the failover fails. The run was handed over to nobody, and no unit went on with it.
#[tokio::test]
async fn a_failover_that_fails_on_the_master_itself_leaves_the_run_there() {
    let failing = "echo no quorum for {successor}; exit 5";
    // Cut off, while the cluster says that the master is who it was.
    for (command, said) in [
        (failing, "no quorum"),
        ("true {successor}; exit 255", "the master is"),
    ] {
        let (mut setup, copied) = with_copy().await;
        setup.settings.pace.failover = std::time::Duration::from_millis(300);
        setup.settings.cluster.visits.failover = Some(command.to_owned());
        let backend = setup.backend(Some(setup.memory().await));
        let me = claim("aaaa", "n1");
        let token = backend.lock(&me, 0).await.unwrap();
        let error = enter_n1(&backend, token).await.unwrap_err();
        assert!(error.why.contains(said), "{error}");
        assert!(!error.outcome_unknown, "the same would come of it again: {error}");
        assert!(error.hint.unwrap().contains("the run continues here"));
        assert_eq!(std::fs::read_to_string(&copied).unwrap(), "n2\n");
        assert_eq!(setup.world().now.master, "n1");
        let filters = setup.rapi().filters().await.unwrap();
        assert_eq!(stagger_ganeti::lock::handovers(&filters), []);

        // This process is the writer still, and so is who resumes the run here.
        backend.renew(&me, token).await.unwrap();
        visit(&backend, token, "n3", Phase::Enter, Vec::new())
            .await
            .unwrap();
        assert_eq!(setup.world().now.nodes["n3"].role, "D");
        backend.unlock(&me, token).await.unwrap();
        let again = setup.backend(None);
        again.lock(&claim("bbbb", "n1"), token).await.unwrap();
    }
}

/// Seen: the host's name has nothing in common with that of its node. It did not know that it runs on the master, handed nothing over,
/// and rebooted itself.
#[tokio::test]
async fn a_host_knows_its_node_by_the_address() {
    let (setup, copied) = with_copy().await;
    let address = |node: &str, of: &'static str| {
        setup.world().addresses.insert(node.to_owned(), of);
    };
    for (node, of) in [
        ("n1", "127.0.0.1"),
        ("n2", "198.51.100.2"),
        ("n3", "198.51.100.3"),
    ] {
        address(node, of);
    }
    let memory = setup.memory().await;
    let here = setup.backend(Some(memory.clone()));
    let me = claim("aaaa", "gnt01");
    let token = here.lock(&me, 0).await.unwrap();
    let error = enter_n1(&here, token).await.unwrap_err();
    assert!(error.hint.unwrap().contains("on n2"), "handed over");
    assert_eq!(std::fs::read_to_string(&copied).unwrap(), "n2\n");
    here.unlock(&me, token).await.unwrap();
    let again = setup.backend(Some(memory.clone()));
    let refused = again.lock(&claim("bbbb", "gnt01"), token).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "{refused:?}");

    // On the successor it goes on, which knows itself by its address too.
    address("n1", "198.51.100.1");
    address("n2", "127.0.0.1");
    let there = setup.backend(Some(memory));
    let run = stagger_core::model::RunId::new("run-1").unwrap();
    let handed_over = stagger_ganeti::takeover::Succession::HandedOver { run };
    assert_eq!(there.succession("gnt02").await.unwrap()[0], handed_over);
    let me = claim("cccc", "gnt02");
    let token = there.lock(&me, token).await.unwrap();
    there.renew(&me, token).await.unwrap();
    enter_n1(&there, token).await.unwrap();
    there.unlock(&me, token).await.unwrap();
    let filters = setup.rapi().filters().await.unwrap();
    assert_eq!(
        stagger_ganeti::lock::handovers(&filters),
        [],
        "it is known no more"
    );

    // Where several addresses are this machine's, nothing follows from them.
    address("n3", "127.0.0.1");
    let other = setup.backend(None);
    let elsewhere = other.succession("n3").await.unwrap();
    assert!(
        matches!(
            elsewhere.as_slice(),
            [stagger_ganeti::takeover::Succession::NotMaster { .. }]
        ),
        "{elsewhere:?}"
    );
}

/// Seen: the journal of a run on another node was copied over that of the successor, which nobody had asked for.
#[tokio::test]
async fn a_journal_that_is_not_on_the_master_stays_where_it_is() {
    let (setup, copied) = with_copy().await;
    let backend = setup.backend(Some(setup.memory().await));
    let me = claim("aaaa", "n3");
    let token = backend.lock(&me, 0).await.unwrap();
    enter_n1(&backend, token).await.unwrap();
    assert_eq!(setup.world().now.master, "n2");
    assert!(!copied.exists(), "the run goes on on n3");
    backend.unlock(&me, token).await.unwrap();
}

/// A command that takes longer than a renewal of the lock.
#[tokio::test]
async fn the_lock_is_kept_while_it_is_not_known_whether_the_master_changes() {
    let (mut setup, _) = with_copy().await;
    setup.settings.cluster.visits.failover =
        Some("sleep 2; echo no quorum for {successor}; exit 5".to_owned());
    // On a busy machine a renewal may be late.
    setup.settings.pace.lock = std::time::Duration::from_mins(1);
    let backend = setup.backend(Some(setup.memory().await));
    let me = claim("aaaa", "n1");
    let token = backend.lock(&me, 0).await.unwrap();
    let renewing = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            backend.renew(&me, token).await.unwrap();
        }
    };
    tokio::select! {
        entered = enter_n1(&backend, token) => assert!(entered.is_err()),
        () = renewing => unreachable!("it goes on for ever"),
    }
    backend.renew(&me, token).await.unwrap();
}

#[tokio::test]
async fn a_successor_that_never_answers_is_named() {
    let mut setup = setup(make()).await;
    setup.settings.pace.failover = std::time::Duration::from_millis(200);
    setup.settings.cluster.visits.failover = Some("true {successor}".to_owned());
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "ops1"), 0).await.unwrap();
    let error = enter_n1(&backend, token).await.unwrap_err();
    assert!(
        error.to_string().contains("make n2 the master instead of n1"),
        "{error}"
    );
    assert!(error.hint.unwrap().contains("getmaster"));
}

/// The command is cut off, or loses its connection, while the failover goes on over there.
#[tokio::test]
async fn a_failover_that_outlives_its_command_is_waited_for() {
    let (later, file) = ("(sleep 1; echo {successor} > FILE.new; mv FILE.new FILE)", "FILE");
    for command in [
        format!("{later} >/dev/null 2>&1 & exit 255"),
        format!("{later} >/dev/null 2>&1 & exit 124"),
    ] {
        let mut setup = setup(make()).await;
        let new_master = with_failover(&mut setup);
        let shown = new_master.display().to_string();
        setup.settings.cluster.visits.failover = Some(command.replace(file, &shown));
        let backend = setup.backend(Some(setup.memory().await));
        let token = backend.lock(&claim("aaaa", "ops1"), 0).await.unwrap();
        enter_n1(&backend, token).await.unwrap();
        let world = setup.world();
        assert_eq!(world.now.master, "n2");
        assert_eq!(world.now.instances["web"].pnode, "n2");
    }
}

/// Nobody would go on if stagger rebooted its own node, unless that is the master, which hands over.
#[tokio::test]
async fn a_node_on_which_stagger_runs_is_neither_entered_nor_rebooted() {
    let setup = setup(make()).await;
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "n3.example.org"), 0).await.unwrap();
    for phase in [Phase::Enter, Phase::Change] {
        let error = visit(&backend, token, "n3", phase, Vec::new()).await.unwrap_err();
        assert!(error.why.contains("stagger itself runs on it"), "{error}");
        assert!(error.hint.unwrap().contains("-O n3"));
    }
    assert!(setup.world().jobs.is_empty(), "{:?}", setup.world().jobs);
}
