//! Visits that begin and cannot: hooks that say no, a RAPI that is away, a node that others take back.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Code, Phase, UnitId};
use stagger_core::run::{Action, Command, Ending, Event};
use stagger_engine::clock::{Steady, SystemClock};
use stagger_engine::cluster::{Call, Executor as _, Lock as _, Retryability};
use stagger_engine::deadline::Deadline;

use crate::common::{Setup, call, claim, rebooted, setup};
use crate::double::{Then, World};
use crate::lives::{End, Lives, all_is_well, mixed};

/// Hooks by which `n2` is not entered, and not left the first times.
async fn with_hooks(leaves_after: u32) -> Setup {
    let mut setup = setup(mixed()).await;
    let tries = setup.folder.path().join("tries");
    let only_n2 = "test {node} = n2 || exit 0";
    let hooks = &mut setup.settings.cluster.visits.hooks;
    hooks.enter = Some(format!("{only_n2}; echo not now; exit 1"));
    hooks.leave = Some(format!(
        "{only_n2}; echo x >> {0}; test $(wc -l < {0}) -gt {leaves_after}",
        tries.display()
    ));
    setup
}

fn is_home(world: &World, node: &str) -> bool {
    let of = mixed();
    let home = of.layout();
    let is_clean =
        world.now.nodes[node].tags.len() == 1 && world.now.nodes[node].role == of.now.nodes[node].role;
    is_clean && world.layout() == home
}

/// A node that could be neither entered nor left is left once more, and never rebooted.
#[tokio::test]
async fn a_node_whose_hook_says_no_is_not_rebooted_also_where_it_could_not_be_left() {
    for leaves_after in [0, 1] {
        let setup = with_hooks(leaves_after).await;
        let end = Lives::new(&setup).live().await;
        assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
        let world = setup.world();
        assert_eq!(world.powercycles.get("n2"), None, "a hook has said no");
        assert_eq!(world.violations, [""; 0]);
        assert!(is_home(&world, "n2"), "{:?}", world.layout());
    }
}

#[tokio::test]
async fn one_that_cannot_be_left_holds_the_run_and_is_left_as_soon_as_it_can_be() {
    let setup = with_hooks(3).await;
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let held = lives
        .processes
        .events()
        .await
        .into_iter()
        .find_map(|event| match event {
            Event::Held { reason } => Some(reason),
            _ => None,
        });
    let held = held.unwrap();
    assert_eq!(held.code, Code::WaveFailed);
    assert!(
        held.detail.ends_with("; undraining n2 is retried until it works"),
        "{held}"
    );
    let world = setup.world();
    assert_eq!(world.powercycles.get("n2"), None);
    assert!(is_home(&world, "n2"), "{:?}", world.layout());
}

/// A visit begins with waiting for the jobs of others: what the judges have said may be too old after that.
#[tokio::test]
async fn a_node_is_not_entered_on_a_word_that_grew_old_while_others_were_waited_for() {
    let setup = setup(mixed()).await;
    let backend = setup.backend(Some(setup.memory().await));
    let token = backend.lock(&claim("aaaa", "ops1"), 0).await.unwrap();
    let before = setup.world().layout();
    let until = Timestamp::now() - SignedDuration::from_secs(1);
    let call = Call {
        deadline: Some(Deadline::new(until, Arc::new(Steady::new(Arc::new(SystemClock))))),
        ..call(token)
    };
    let enter = Action::Visit {
        unit: UnitId::new("n2").unwrap(),
        phase: Phase::Enter,
        revision: rebooted(),
        moves: Vec::new(),
    };
    let error = backend.perform(&call, &enter).await.unwrap_err();
    assert_eq!(error.retryability, Retryability::Expired, "{error}");
    assert_eq!(setup.world().layout(), before);
}

/// RAPI is away for a while, whenever that is: nothing fails by it.
#[tokio::test]
async fn while_rapi_is_restarted_visits_wait() {
    for at in [40, 80, 120, 160, 200, 260, 320] {
        let setup = setup(mixed()).await;
        let mut lives = Lives::new(&setup);
        lives.begin().await;
        setup.world().then.push((at, Then::Restart(40)));
        let end = lives.live().await;
        let End::Over(Ending::Incomplete { left }) = end else {
            panic!("{at}: {end:?}")
        };
        assert_eq!(left.len(), 1, "the master alone: {left:?}");
        all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
    }
}

/// An administrator takes a node back between two phases: it is given back with all that was moved away.
#[tokio::test]
async fn a_node_that_others_take_back_before_its_reboot_gets_its_instances_again() {
    let mut setup = setup(mixed()).await;
    let file = setup.folder.path().join("undrained");
    setup.settings.cluster.visits.hooks.enter = Some(format!(
        "test {{node}} = n2 || exit 0; echo {{node}} > {0}.new && mv {0}.new {0}",
        file.display()
    ));
    setup.world().undrained = Some(file);
    let mut lives = Lives::new(&setup);
    for again in [None, Some(Command::Resume)] {
        if let Some(command) = again {
            lives.processes.ask(&command).await;
        }
        let end = lives.live().await;
        let End::Held(reason) = &end else {
            panic!("{end:?}")
        };
        assert!(reason.detail.contains("reboot n2"), "{reason}");
        let world = setup.world();
        assert!(is_home(&world, "n2"), "{:?}", world.layout());
        assert_eq!(world.powercycles.get("n2"), None);
    }
    lives.processes.ask(&Command::Abort).await;
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Aborted)), "{end:?}");
    assert_eq!(setup.world().violations, [""; 0]);
    assert_eq!(setup.world().left_behind(), [""; 0]);
}

/// A disk fails after it was looked at: the copy that is left is not taken away.
#[tokio::test]
async fn a_disk_that_fails_while_a_node_is_emptied_keeps_it_from_being_rebooted() {
    let setup = setup(mixed()).await;
    setup.world().fails_when_moved = Some("b");
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    let End::Held(reason) = &end else {
        panic!("{end:?}")
    };
    assert!(reason.detail.contains("see whether n2 may go away"), "{reason}");
    assert_eq!(setup.world().powercycles.get("n2"), None);
    setup.world().now.instances.get_mut("b").unwrap().degraded = false;
    lives.processes.ask(&Command::Resume).await;
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}
