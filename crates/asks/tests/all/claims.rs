//! A run among those who ask: it goes around what others have, they around what it has, and neither starves.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use stagger_asks::ask::{AskEnd, AskState};
use stagger_asks::claim::ClaimHolder;
use stagger_asks::{AskLedger, ClaimingBackend};
use stagger_core::model::{ClusterName, Phase, Revision, RunId, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::{Call, Executor as _, Lock as _, LockRecord, Retryability};

use crate::gates::{gate, ledger};
use crate::ledgers::wanted;
use crate::toy::Toy;

fn run_of(toy: &Arc<Toy>, ledger: &AskLedger, patience: i64) -> ClaimingBackend {
    let backend = Arc::clone(toy);
    ClaimingBackend::new(
        backend,
        ledger.clone(),
        Toy::identity(),
        RunId::new("r1").unwrap(),
        SignedDuration::from_secs(patience),
        Arc::new(SystemClock),
    )
}

fn units(all: &[usize]) -> Vec<UnitId> {
    all.iter().map(|at| Toy::unit(*at)).collect()
}

fn call() -> Call {
    Call {
        run: RunId::new("r1").unwrap(),
        seq: 7,
        announced: 1,
        fence: 1,
        deadline: None,
    }
}

fn change(at: usize) -> Action {
    Action::Visit {
        unit: Toy::unit(at),
        phase: Phase::Change,
        revision: Revision::new("2").unwrap(),
        moves: Vec::new(),
    }
}

async fn claimed(ledger: &AskLedger) -> BTreeSet<UnitId> {
    let board = ledger.board(&Toy::identity()).await.unwrap();
    let ours = |holder: &ClaimHolder| matches!(holder, ClaimHolder::Run(_));
    let claims = board.claims.into_iter().filter(|claim| ours(&claim.holder));
    claims.flat_map(|claim| claim.claim.units).collect()
}

#[tokio::test]
async fn a_run_goes_around_what_others_were_granted_and_claims_what_it_takes_down() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let (run, mut gate) = (run_of(&toy, &ledger, 900), gate(&toy, &ledger).await);
    let zero = ledger.place(&wanted("host0")).await.unwrap().id;
    gate.step().await.unwrap();
    run.observe().await.unwrap();
    assert!(matches!(
        run.check_stop(&units(&[1, 3])).await.unwrap(),
        Answer::No { .. }
    ));
    assert!(matches!(
        run.check_stop(&units(&[0, 3])).await.unwrap(),
        Answer::No { .. }
    ));
    assert_eq!(run.check_stop(&units(&[2, 4])).await.unwrap(), Answer::Yes);
    assert_eq!(claimed(&ledger).await, BTreeSet::from_iter(units(&[2, 4])));

    // Others are judged with that.
    let (three, two) = (
        ledger.place(&wanted("host3")).await.unwrap().id,
        ledger.place(&wanted("host2")).await.unwrap().id,
    );
    gate.step().await.unwrap();
    for id in [&three, &two] {
        assert!(matches!(
            ledger.ask(id).await.unwrap().state,
            AskState::Waiting(_)
        ));
    }
    // It takes one down and gives it back: the next look gives up the claim on it.
    run.perform(&call(), &change(2)).await.unwrap();
    run.observe().await.unwrap();
    assert_eq!(claimed(&ledger).await, BTreeSet::from_iter(units(&[4])));
    gate.step().await.unwrap();
    assert!(matches!(
        ledger.ask(&two).await.unwrap().state,
        AskState::Granted(_)
    ));
    // It is over: nothing stays.
    ledger.end(&zero, AskEnd::Done, "").await.unwrap();
    run.unlock(&record(), 1).await.unwrap();
    assert!(claimed(&ledger).await.is_empty());
    assert_eq!(toy.truth.lock().unwrap().unsafe_moments, Vec::<String>::new());
}

fn record() -> LockRecord {
    LockRecord {
        incarnation: "1".to_owned(),
        run: RunId::new("r1").unwrap(),
        host: "ops1".to_owned(),
        process: 1,
        since: jiff::Timestamp::UNIX_EPOCH,
        life: None,
    }
}

/// A grant between the look and the judgement: the facts are the same, the claims are not.
#[tokio::test]
async fn a_grant_that_came_after_the_look_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let (run, mut gate) = (run_of(&toy, &ledger, 900), gate(&toy, &ledger).await);
    run.observe().await.unwrap();
    let zero = ledger.place(&wanted("host0")).await.unwrap().id;
    gate.step().await.unwrap();
    let Answer::No { why } = run.check_stop(&units(&[1])).await.unwrap() else {
        panic!("host0 was granted");
    };
    assert!(why.contains("this would take down 1 more"), "{why}");
    // One that ended after the look: what it left was not seen.
    run.observe().await.unwrap();
    toy.stop(0);
    ledger.end(&zero, AskEnd::Done, "").await.unwrap();
    assert!(matches!(
        run.check_stop(&units(&[1])).await.unwrap(),
        Answer::No { .. }
    ));
    toy.start(0);
    run.observe().await.unwrap();
    assert_eq!(run.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
}

/// Nothing is taken out of service without a claim that stands.
#[tokio::test]
async fn a_claim_that_is_gone_is_taken_again_or_nothing_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let (run, mut gate) = (run_of(&toy, &ledger, 900), gate(&toy, &ledger).await);
    run.observe().await.unwrap();
    assert_eq!(run.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
    let fence = ledger.board(&Toy::identity()).await.unwrap().claims[0].fence;
    // It stood still for longer than its claims last, and another was granted what is beside it.
    ledger
        .renew(&Toy::identity(), fence, std::time::Duration::ZERO)
        .await
        .unwrap();
    ledger.place(&wanted("host2")).await.unwrap();
    gate.step().await.unwrap();
    let refused = run.perform(&call(), &change(1)).await.unwrap_err();
    assert_eq!(refused.retryability, Retryability::Expired, "{refused}");
    assert_eq!(toy.truth.lock().unwrap().most_down, 0);
    // Where nothing speaks against it, it is claimed again.
    run.perform(&call(), &change(4)).await.unwrap();
    assert_eq!(toy.truth.lock().unwrap().most_down, 1);
}

/// A process that is resumed knows what the one before had claimed.
#[tokio::test]
async fn a_run_that_is_resumed_has_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let killed = run_of(&toy, &ledger, 900);
    killed.observe().await.unwrap();
    assert_eq!(killed.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
    drop(killed);
    let next = run_of(&toy, &ledger, 900);
    let seen = next.observe().await.unwrap();
    assert_eq!(seen.down().iter().count(), 0, "what is ours is not another's");
    next.perform(&call(), &change(1)).await.unwrap();
    next.observe().await.unwrap();
    assert!(claimed(&ledger).await.is_empty());
}

/// Seen on a real cluster: a visit that was open is done again first of all, and was refused since nothing was observed yet.
#[tokio::test]
async fn what_was_open_is_done_again_before_anything_is_observed() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let killed = run_of(&toy, &ledger, 900);
    killed.observe().await.unwrap();
    assert_eq!(killed.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
    drop(killed);
    let next = run_of(&toy, &ledger, 900);
    next.perform(&call(), &change(1)).await.unwrap();
    next.observe().await.unwrap();
    assert!(claimed(&ledger).await.is_empty());
}

/// Seen on a real cluster: a run that was killed in a visit and resumed had ended, and the next one was kept out by its claims.
#[tokio::test]
async fn a_run_that_was_resumed_and_ends_leaves_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let killed = run_of(&toy, &ledger, 900);
    killed.observe().await.unwrap();
    assert_eq!(killed.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
    killed.perform(&call(), &change(1)).await.unwrap();
    drop(killed);
    assert!(!claimed(&ledger).await.is_empty());
    // It finds the visit done, and has nothing to do for that unit.
    let next = run_of(&toy, &ledger, 900);
    next.observe().await.unwrap();
    let record = LockRecord {
        incarnation: "next".to_owned(),
        run: call().run,
        host: "here".to_owned(),
        process: 1,
        since: jiff::Timestamp::UNIX_EPOCH,
        life: None,
    };
    next.unlock(&record, 1).await.unwrap();
    assert!(claimed(&ledger).await.is_empty());
}

/// A run that waits is passed by others for its patience, and then it is its turn; and so it is the other way round.
#[tokio::test]
async fn a_run_and_those_who_ask_keep_each_other_out_for_no_longer_than_their_patience() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let name = ClusterName::new("toy").unwrap();
    let policy = stagger_asks::GatePolicy {
        patience: SignedDuration::ZERO,
        facts_age: std::time::Duration::ZERO,
        ..stagger_asks::GatePolicy::default()
    };
    let clock = Arc::new(SystemClock);
    let cluster = Toy::identity();
    let taken = stagger_asks::AskGate::take(
        Arc::clone(&toy) as Arc<dyn stagger_engine::cluster::Backend>,
        ledger.clone(),
        &cluster,
        &name,
        "test",
        clock,
        policy,
    );
    let (run, mut gate) = (run_of(&toy, &ledger, 0), taken.await.unwrap().unwrap());
    let zero = ledger.place(&wanted("host0")).await.unwrap().id;
    gate.step().await.unwrap();
    run.observe().await.unwrap();
    assert!(matches!(
        run.check_stop(&units(&[1])).await.unwrap(),
        Answer::No { .. }
    ));
    // Its place among those who ask is kept: a later one that would keep it out waits.
    let two = ledger.place(&wanted("host2")).await.unwrap().id;
    gate.step().await.unwrap();
    gate.step().await.unwrap();
    let AskState::Waiting(answer) = ledger.ask(&two).await.unwrap().state else {
        panic!("the run was first");
    };
    assert!(answer.why.contains("waited longer"), "{}", answer.why);
    ledger.end(&zero, AskEnd::Done, "").await.unwrap();
    run.observe().await.unwrap();
    assert_eq!(run.check_stop(&units(&[1])).await.unwrap(), Answer::Yes);
    run.perform(&call(), &change(1)).await.unwrap();
    run.observe().await.unwrap();
    // Its next wave came later than host2: that has its turn first.
    gate.step().await.unwrap();
    assert!(matches!(
        ledger.ask(&two).await.unwrap().state,
        AskState::Granted(_)
    ));
    let mut three = wanted("host3");
    three.hosts.insert("host5".to_owned());
    let wide = ledger.place(&three).await.unwrap().id;
    run.observe().await.unwrap();
    assert_eq!(run.check_stop(&units(&[0])).await.unwrap(), Answer::Yes);
    gate.step().await.unwrap();
    assert!(matches!(
        ledger.ask(&wide).await.unwrap().state,
        AskState::Waiting(_)
    ));
    assert!(matches!(
        run.check_stop(&units(&[4])).await.unwrap(),
        Answer::No { .. }
    ));
}
