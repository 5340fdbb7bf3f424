//! Orders that lose rows or fail requests, asked for by hand: each is refused, and nothing is changed.

use stagger_conformance::lock::claim;
use stagger_core::model::{Phase, Revision, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{Executor as _, Lock as _};
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::conditions;
use stagger_ironic::records::{Record, RecordState};

use crate::common::{Setup, call, goal, setup};

/// Everything as in mid-upgrade: new code everywhere, held to the old release.
pub async fn in_mid_upgrade(setup: &Setup) -> (IronicBackend, u64) {
    let backend = setup.backend(Some(goal()));
    let token = backend.lock(&claim("one"), 0).await.unwrap();
    for (seq, step) in (1..).zip(["schema", "pin"]) {
        let step = Action::Step {
            step: step.parse().unwrap(),
        };
        backend.perform(&call(token, seq), &step).await.unwrap();
    }
    (backend, token)
}

pub fn visit(unit: &str, phase: Phase, revision: &str) -> Action {
    Action::Visit {
        unit: UnitId::new(unit).unwrap(),
        phase,
        revision: Revision::new(revision).unwrap(),
        moves: Vec::new(),
    }
}

async fn turn(
    backend: &IronicBackend,
    token: u64,
    seq: &mut u64,
    unit: &str,
    revision: &str,
) -> Result<(), String> {
    for phase in Phase::all() {
        *seq += 1;
        let done = backend
            .perform(&call(token, *seq), &visit(unit, phase, revision))
            .await;
        done.map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub const HELD: &str = "29.0.6-pinned-2024.2";
const FREE: &str = "29.0.6";

#[tokio::test]
async fn d3_an_api_is_not_unpinned_before_the_conductors() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    let mut seq = 10;
    for unit in ["conductor.c1", "conductor.c2", "api.a1", "api.a2"] {
        turn(&backend, token, &mut seq, unit, HELD).await.unwrap();
    }
    let why = turn(&backend, token, &mut seq, "api.a1", FREE).await.unwrap_err();
    assert!(why.contains("c1 is still pinned"), "{why}");
    turn(&backend, token, &mut seq, "api.a1", HELD).await.unwrap();
    turn(&backend, token, &mut seq, "conductor.c1", FREE)
        .await
        .unwrap();
    let why = turn(&backend, token, &mut seq, "api.a1", FREE).await.unwrap_err();
    assert!(why.contains("c2 is still pinned"), "{why}");
    assert_eq!(setup.lab.now().violations, [""; 0]);
}

#[tokio::test]
async fn d5_no_pin_goes_while_an_old_service_lives() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    let mut seq = 10;
    for unit in ["conductor.c1", "conductor.c2", "api.a1"] {
        turn(&backend, token, &mut seq, unit, HELD).await.unwrap();
    }
    let why = turn(&backend, token, &mut seq, "conductor.c1", FREE)
        .await
        .unwrap_err();
    assert!(why.contains("a2 still runs 26.1.6"), "{why}");
    let back = visit("conductor.c1", Phase::Leave, HELD);
    backend.perform(&call(token, 80), &back).await.unwrap();
    let unpin = Action::Step {
        step: "unpin".parse().unwrap(),
    };
    let error = backend.perform(&call(token, 90), &unpin).await.unwrap_err();
    assert!(error.why.contains("a2 runs 26.1.6"), "{error}");
    let snapshot = backend.observe().await.unwrap();
    let gate = snapshot.condition(&conditions::NO_OLD_SERVICE.parse().unwrap());
    assert!(gate.why.contains("a2 runs 26.1.6"), "{gate:?}");
    assert_eq!(setup.lab.now().violations, [""; 0]);
}

/// What Ironic reads anew while it runs counts for its objects and not for its calls: a pin goes by a start.
#[tokio::test]
async fn d10_a_pin_comes_and_goes_by_a_start_and_in_no_other_way() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    let mut seq = 10;
    for unit in ["conductor.c1", "conductor.c2", "api.a1", "api.a2"] {
        turn(&backend, token, &mut seq, unit, HELD).await.unwrap();
    }
    let before = setup.lab.log().len();
    turn(&backend, token, &mut seq, "conductor.c1", FREE)
        .await
        .unwrap();
    let log = setup.lab.log().split_off(before);
    let at = |word: &str| log.iter().position(|command| command == word);
    let [unpinned, stopped, started] = ["unpin c1", "stop c1", "start c1"].map(at);
    assert!(
        unpinned.is_some() && unpinned < stopped && stopped < started,
        "{log:?}"
    );
}

#[tokio::test]
async fn both_conductors_are_never_drained() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    let enter = |unit| visit(unit, Phase::Enter, HELD);
    backend
        .perform(&call(token, 20), &enter("conductor.c1"))
        .await
        .unwrap();
    let error = backend
        .perform(&call(token, 21), &enter("conductor.c2"))
        .await
        .unwrap_err();
    assert!(error.why.contains("no other server in rpc1"), "{error}");
    let both: Vec<UnitId> = ["conductor.c1", "conductor.c2"]
        .map(|unit| unit.parse().unwrap())
        .into();
    let answer = backend.check_stop(&both[1..]).await.unwrap();
    assert!(
        matches!(answer, stagger_core::run::Answer::No { .. }),
        "{answer:?}"
    );
    assert_eq!(setup.lab.now().violations, [""; 0]);
}

#[tokio::test]
async fn a_service_that_others_have_changed_is_named_as_unknown() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    let mut seq = 10;
    turn(&backend, token, &mut seq, "conductor.c1", HELD)
        .await
        .unwrap();
    turn(&backend, token, &mut seq, "api.a1", HELD).await.unwrap();
    // Somebody starts it without its pin.
    setup.lab.now().services.get_mut("a1").unwrap().runs = Some(("29.0.6".to_owned(), None));
    let snapshot = backend.observe().await.unwrap();
    let a1 = snapshot.unit(snapshot.find(&"api.a1".parse().unwrap()).unwrap());
    assert_eq!(a1.revision, None);
    let known = snapshot.condition(&conditions::SERVICES_KNOWN.parse().unwrap());
    assert!(known.why.contains("a1 offers API 1.96"), "{known:?}");
    assert!(known.why.contains("offers 1.93"), "{known:?}");
}

#[tokio::test]
async fn who_has_lost_the_lock_writes_nothing_and_runs_nothing() {
    let setup = setup("26.1.6");
    let (backend, token) = in_mid_upgrade(&setup).await;
    backend.unlock(&claim("one"), token).await.unwrap();
    let successor = setup.backend(Some(goal()));
    let newer = successor.lock(&claim("two"), token).await.unwrap();
    assert!(newer > token);
    let change = visit("conductor.c1", Phase::Change, HELD);
    let before = setup.lab.log();
    let error = backend.perform(&call(token, 40), &change).await.unwrap_err();
    assert!(error.why.contains("token"), "{error}");
    assert_eq!(setup.lab.log(), before);
    successor
        .raise_fence(newer, &["conductor.c1".parse().unwrap()])
        .await
        .unwrap();
    let record = Record {
        release: "29.0.6".to_owned(),
        pin: None,
        state: RecordState::Runs,
        run: "run-1".to_owned(),
    };
    let facts = successor.collect_facts().await;
    assert_ne!(facts.records.get().unwrap().services["c1"], record);
}
