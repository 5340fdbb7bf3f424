//! A gate before a cluster that knows what is safe: answers, ends, deaths, and a store that is away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_asks::ask::{AskEnd, AskGrant, AskId, AskState, NewAsk};
use stagger_asks::claim::ClaimHolder;
use stagger_asks::gate::{AskGate, GateError, GatePolicy, GateStep};
use stagger_asks::{AskLedger, LedgerLocation};
use stagger_core::model::{ClusterName, RunId};
use stagger_engine::clock::SystemClock;

use crate::ledgers::{claim, wanted};
use crate::toy::Toy;

/// Facts are never old.
fn policy() -> GatePolicy {
    GatePolicy {
        facts_age: Duration::ZERO,
        ..GatePolicy::default()
    }
}

pub(crate) async fn ledger(folder: &Path) -> AskLedger {
    let at = LedgerLocation::File(folder.join("asks.db"));
    let ledger = at.open().await.unwrap();
    let name = ClusterName::new("toy").unwrap();
    ledger.register(&Toy::identity(), &name).await.unwrap();
    ledger
}

async fn taken(toy: &Arc<Toy>, ledger: &AskLedger, policy: GatePolicy) -> Option<AskGate> {
    let name = ClusterName::new("toy").unwrap();
    let backend = Arc::clone(toy);
    let clock = Arc::new(SystemClock);
    AskGate::take(
        backend,
        ledger.clone(),
        &Toy::identity(),
        &name,
        "test",
        clock,
        policy,
    )
    .await
    .unwrap()
}

pub(crate) async fn gate(toy: &Arc<Toy>, ledger: &AskLedger) -> AskGate {
    taken(toy, ledger, policy()).await.unwrap()
}

async fn ask(ledger: &AskLedger, host: usize) -> AskId {
    ledger.place(&wanted(&Toy::host(host))).await.unwrap().id
}

async fn grant_of(ledger: &AskLedger, id: &AskId) -> Option<AskGrant> {
    match ledger.ask(id).await.unwrap().state {
        AskState::Granted(grant) => Some(grant),
        AskState::Waiting(_) | AskState::Ended { .. } => None,
    }
}

async fn why_of(ledger: &AskLedger, id: &AskId) -> String {
    match ledger.ask(id).await.unwrap().state {
        AskState::Waiting(answer) => answer.why,
        other @ (AskState::Granted(_) | AskState::Ended { .. }) => panic!("{other:?}"),
    }
}

async fn end_of(ledger: &AskLedger, id: &AskId) -> Option<AskEnd> {
    match ledger.ask(id).await.unwrap().state {
        AskState::Ended { how, .. } => Some(how),
        AskState::Waiting(_) | AskState::Granted(_) => None,
    }
}

#[tokio::test]
async fn as_many_as_is_safe_are_granted_and_the_others_are_told_why_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(6)), ledger(folder.path()).await);
    let mut gate = gate(&toy, &ledger).await;
    assert_eq!(gate.step().await.unwrap(), GateStep::default());
    assert_eq!(
        toy.truth.lock().unwrap().questions,
        0,
        "nobody asks: the cluster is left alone"
    );
    let mut asks = Vec::new();
    for host in 0..6 {
        asks.push(ask(&ledger, host).await);
    }
    let step = gate.step().await.unwrap();
    assert_eq!((step.granted_now, step.waiting), (3, 3), "every second of a ring");
    for host in [0, 2, 4] {
        assert!(grant_of(&ledger, &asks[host]).await.is_some());
    }
    let AskState::Waiting(answer) = ledger.ask(&asks[3]).await.unwrap().state else {
        panic!("a neighbour is granted");
    };
    assert!(
        answer.why.contains("this would take down 1 more"),
        "{}",
        answer.why
    );
    assert!(answer.why.contains(asks[2].as_str()), "{}", answer.why);
    assert_eq!(answer.ahead, 1, "{:?}", ledger.ask(&asks[1]).await);
    let when = answer.earliest.unwrap().duration_since(Timestamp::now());
    assert!((595..=601).contains(&when.as_secs()), "{when}");

    // What is granted goes down, and the rest when it is back.
    for host in [0, 2, 4] {
        toy.stop(host);
    }
    gate.step().await.unwrap();
    assert!(grant_of(&ledger, &asks[0]).await.unwrap().seen_down);
    toy.start(0);
    gate.step().await.unwrap();
    assert_eq!(end_of(&ledger, &asks[0]).await, Some(AskEnd::Returned));
    ledger.end(&asks[2], AskEnd::Done, "").await.unwrap();
    gate.step().await.unwrap();
    assert!(
        grant_of(&ledger, &asks[1]).await.is_none(),
        "host2 is said to be done, and is down"
    );
    toy.start(2);
    gate.step().await.unwrap();
    gate.step().await.unwrap();
    assert!(grant_of(&ledger, &asks[1]).await.is_some());
    assert_eq!(toy.truth.lock().unwrap().unsafe_moments, Vec::<String>::new());
}

#[tokio::test]
async fn a_grant_ends_at_its_expiry_and_an_ask_at_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(4)), ledger(folder.path()).await);
    let mut gate = gate(&toy, &ledger).await;
    let short = ledger
        .place(&NewAsk {
            hold: 1,
            ..wanted("host0")
        })
        .await
        .unwrap()
        .id;
    gate.step().await.unwrap();
    assert!(grant_of(&ledger, &short).await.is_some());
    let until = Timestamp::now() + SignedDuration::from_millis(400);
    let hurried = ledger
        .place(&NewAsk {
            until: Some(until),
            ..wanted("host1")
        })
        .await
        .unwrap()
        .id;
    while end_of(&ledger, &short).await.is_none() || end_of(&ledger, &hurried).await.is_none() {
        gate.step().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(end_of(&ledger, &short).await, Some(AskEnd::Expired));
    assert_eq!(end_of(&ledger, &hurried).await, Some(AskEnd::TooLate));
    assert!(ledger.board(&Toy::identity()).await.unwrap().claims.is_empty());
}

#[tokio::test]
async fn what_is_not_there_or_not_sure_is_not_granted() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::ring(4)), ledger(folder.path()).await);
    let hosts = BTreeMap::from([("c988d250".to_owned(), "host2".to_owned())]);
    let mut gate = taken(&toy, &ledger, GatePolicy { hosts, ..policy() })
        .await
        .unwrap();
    let odd = ledger.place(&wanted("hots1")).await.unwrap().id;
    let by_id = ledger.place(&wanted("c988d250")).await.unwrap().id;
    let of_domain = ledger.place(&wanted("host0.example.org")).await.unwrap().id;
    gate.step().await.unwrap();
    let AskState::Ended {
        how: AskEnd::Refused,
        why,
        ..
    } = ledger.ask(&odd).await.unwrap().state
    else {
        panic!("there is no such host");
    };
    assert_eq!(why, "there is no host hots1; the nearest is host1");
    assert!(grant_of(&ledger, &by_id).await.is_some());
    assert!(grant_of(&ledger, &of_domain).await.is_some());

    // The oracle is of another opinion, or nobody can look.
    for id in [&by_id, &of_domain] {
        ledger.end(id, AskEnd::Done, "").await.unwrap();
    }
    toy.truth.lock().unwrap().oracle_says_no = true;
    let one = ask(&ledger, 1).await;
    gate.step().await.unwrap();
    assert_eq!(
        why_of(&ledger, &one).await,
        "the cluster says no: the oracle is of another opinion"
    );
    toy.truth.lock().unwrap().blind = true;
    gate.step().await.unwrap();
    assert!(
        why_of(&ledger, &one)
            .await
            .starts_with("the cluster cannot be observed")
    );
    toy.heal();
    gate.step().await.unwrap();
    assert!(grant_of(&ledger, &one).await.is_some());
}

#[tokio::test]
async fn a_host_that_another_takes_down_is_not_granted_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, ledger) = (Arc::new(Toy::new(2, Vec::new())), ledger(folder.path()).await);
    let mut gate = gate(&toy, &ledger).await;
    let version = ledger.board(&Toy::identity()).await.unwrap().version;
    let run = ClaimHolder::Run(RunId::new("r1").unwrap());
    ledger
        .claim(
            &Toy::identity(),
            version,
            &run,
            &claim("host0"),
            Duration::from_mins(1),
        )
        .await
        .unwrap()
        .unwrap();
    let (of_run, free) = (ask(&ledger, 0).await, ask(&ledger, 1).await);
    gate.step().await.unwrap();
    let why = why_of(&ledger, &of_run).await;
    assert!(
        why.contains("osd.0 is taken down by another already (run r1 has it until"),
        "{why}"
    );
    assert!(grant_of(&ledger, &free).await.is_some());
}

/// Whatever dies wherever: what was given counts, and what was not is not given twice.
#[tokio::test]
async fn a_gate_that_dies_is_succeeded_and_what_it_gave_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, store) = (Arc::new(Toy::ring(4)), ledger(folder.path()).await);
    let short = GatePolicy {
        lease: Duration::from_millis(300),
        ..policy()
    };
    let mut first = taken(&toy, &store, short.clone()).await.unwrap();
    let (zero, one) = (ask(&store, 0).await, ask(&store, 1).await);
    first.step().await.unwrap();
    assert!(grant_of(&store, &zero).await.is_some());
    // The second stands by for as long as the first has the lease, and it is never given back: the first was killed.
    assert!(taken(&toy, &store, short.clone()).await.is_none());
    let mut second = loop {
        if let Some(gate) = taken(&toy, &store, policy()).await {
            break gate;
        }
        tokio::task::yield_now().await;
    };
    second.step().await.unwrap();
    assert!(grant_of(&store, &one).await.is_none(), "host0 still counts");
    // The first wakes up: it learns that it was succeeded, and writes nothing.
    let gone = loop {
        match first.step().await {
            Err(GateError::Lost) => break true,
            Ok(step) => assert_eq!(step.granted_now, 0),
            Err(error) => panic!("{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert!(gone);
    assert!(grant_of(&store, &one).await.is_none());
}

#[tokio::test]
async fn while_the_store_is_away_nothing_is_granted_and_what_was_given_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, store) = (Arc::new(Toy::ring(4)), ledger(folder.path()).await);
    let mut gate = gate(&toy, &store).await;
    let zero = ask(&store, 0).await;
    gate.step().await.unwrap();
    assert!(grant_of(&store, &zero).await.is_some());
    let one = ask(&store, 1).await;
    // Somebody else holds the file, and does not let go.
    let locked = rusqlite_of(&folder.path().join("asks.db"));
    let failed = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let step = runtime.block_on(gate.step());
        (step, gate)
    });
    let (step, mut gate) = failed.await.unwrap();
    assert!(matches!(step, Err(GateError::Ledger(_))), "{step:?}");
    drop(locked);
    assert!(grant_of(&store, &zero).await.is_some());
    gate.step().await.unwrap();
    assert!(
        grant_of(&store, &one).await.is_none(),
        "its neighbour still counts"
    );
}

/// Holds the file for writing, and moves the version so that the gate has to write.
fn rusqlite_of(file: &Path) -> rusqlite::Connection {
    let on = rusqlite::Connection::open(file).unwrap();
    // A grant is out whose time is over: ending it is a write.
    on.execute("update gate_ask set expires = 1 where state = 'granted'", [])
        .unwrap();
    on.execute("update gate_cluster set gate_expires = gate_expires", [])
        .unwrap();
    on.execute_batch("begin exclusive").unwrap();
    on
}

/// Forty who ask all the time, a cluster that is never asked too much.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forty_askers_never_meet() {
    let folder = tempfile::tempdir().unwrap();
    let (toy, store) = (Arc::new(Toy::ring(12)), ledger(folder.path()).await);
    let gates = tokio::spawn({
        let (toy, store) = (Arc::clone(&toy), store.clone());
        async move {
            let mut gate = gate(&toy, &store).await;
            loop {
                gate.step().await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let mut askers = Vec::new();
    for number in 0..40 {
        let (toy, store) = (Arc::clone(&toy), store.clone());
        askers.push(tokio::spawn(async move {
            let host = number % 12;
            for turn in 0..3 {
                let id = ask(&store, host).await;
                while grant_of(&store, &id).await.is_none() {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                toy.stop(host);
                tokio::time::sleep(Duration::from_millis(2)).await;
                toy.start(host);
                // Some say that they are done, some are seen to be back.
                if (number + turn) % 2 == 0 {
                    store.end(&id, AskEnd::Done, "").await.unwrap();
                } else {
                    store.end(&id, AskEnd::Withdrawn, "").await.unwrap();
                }
            }
        }));
    }
    for asker in askers {
        asker.await.unwrap();
    }
    gates.abort();
    let truth = toy.truth.lock().unwrap();
    assert_eq!(truth.unsafe_moments, Vec::<String>::new());
    assert!(truth.most_down > 1, "one after another is not as many as is safe");
    let hosts: BTreeSet<usize> = truth.down.clone();
    assert!(hosts.is_empty());
}

/// Ten thousand at once, each of which has its first answer: how long that takes, printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "a measurement: `cargo test --release -p stagger-asks --test asks -- --ignored --nocapture ten_thousand`"]
async fn ten_thousand_ask_at_once() {
    const HOSTS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let budgets = (0..HOSTS).map(|at| (vec![at, (at + 7) % HOSTS, (at + 1_003) % HOSTS], 1));
    let (toy, store) = (
        Arc::new(Toy::new(HOSTS, budgets.collect())),
        ledger(folder.path()).await,
    );
    let begun = std::time::Instant::now();
    for host in 0..HOSTS {
        ask(&store, host).await;
    }
    let placed = begun.elapsed();
    let mut gate = gate(&toy, &store).await;
    let begun = std::time::Instant::now();
    let step = gate.step().await.unwrap();
    let first = begun.elapsed();
    let begun = std::time::Instant::now();
    gate.step().await.unwrap();
    let again = begun.elapsed();
    println!(
        "{HOSTS} asks written in {placed:?}, {:?} each; {} granted and {} told why in {first:?}; looked over once more in {again:?}",
        placed / HOSTS as u32,
        step.granted_now,
        step.waiting
    );
}
