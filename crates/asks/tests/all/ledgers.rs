//! The store of asks, the same for both databases.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_asks::ask::{AskAnswer, AskEnd, AskState, NewAsk};
use stagger_asks::claim::{Claim, ClaimHolder};
use stagger_asks::{AskLedger, LedgerError, LedgerLocation};
use stagger_core::model::{ClusterName, RunId};

use crate::toy::Toy;

#[path = "../../../versioned/tests/all/server.rs"]
mod server;

pub(crate) fn wanted(host: &str) -> NewAsk {
    NewAsk {
        cluster: Toy::identity(),
        asker: "anna@ops1".to_owned(),
        key: None,
        hosts: BTreeSet::from([host.to_owned()]),
        units: BTreeSet::new(),
        hold: 600,
        until: None,
        lapses: false,
        why: "kernel".to_owned(),
        run: None,
    }
}

pub(crate) fn claim(host: &str) -> Claim {
    Claim {
        hosts: BTreeSet::from([host.to_owned()]),
        ..Claim::default()
    }
}

const LONG: Duration = Duration::from_mins(10);

#[expect(clippy::too_many_lines, reason = "one story of one store")]
async fn keeps_its_word(ledger: &AskLedger) {
    let cluster = Toy::identity();
    assert!(matches!(
        ledger.board(&cluster).await,
        Err(LedgerError::NoCluster(_))
    ));
    let name = ClusterName::new("toy").unwrap();
    ledger.register(&cluster, &name).await.unwrap();
    ledger.register(&cluster, &name).await.unwrap();
    assert_eq!(ledger.clusters().await.unwrap()[0].gate, None);

    // An ask is written once by its key.
    let ask = ledger.place(&wanted("host1")).await.unwrap();
    assert_eq!(ask.state, AskState::Waiting(AskAnswer::default()));
    let with_key = NewAsk {
        key: Some("k1".to_owned()),
        ..wanted("host2")
    };
    let first = ledger.place(&with_key).await.unwrap();
    assert_eq!(ledger.place(&with_key).await.unwrap().id, first.id);
    let other = NewAsk {
        hold: 7,
        ..with_key.clone()
    };
    assert_eq!(ledger.place(&other).await, Err(LedgerError::OtherAsk));
    let nobody = "a-0000000000000000".parse().unwrap();
    assert!(matches!(ledger.ask(&nobody).await, Err(LedgerError::NoAsk(_))));

    // One gate at a time, and its fence grows.
    let gate = ledger.take_gate(&cluster, "one", LONG).await.unwrap().unwrap();
    assert_eq!(ledger.take_gate(&cluster, "two", LONG).await.unwrap(), None);
    assert_eq!(ledger.clusters().await.unwrap()[0].gate.as_deref(), Some("one"));
    assert!(ledger.keep_gate(&gate, LONG).await.unwrap());
    ledger.leave_gate(&gate).await.unwrap();
    let next = ledger.take_gate(&cluster, "two", LONG).await.unwrap().unwrap();
    assert!(next.fence > gate.fence);
    assert!(!ledger.keep_gate(&gate, LONG).await.unwrap());

    // What is written by an older version, or by a gate that was succeeded, is not written.
    let board = ledger.board(&cluster).await.unwrap();
    assert_eq!(board.asks.len(), 2);
    assert!((board.now.duration_since(Timestamp::now())).abs() < SignedDuration::from_secs(60));
    let given = ledger
        .grant(&gate, board.version, &ask.id, &claim("host1"), LONG)
        .await
        .unwrap();
    assert_eq!(given, None);
    let given = ledger
        .grant(&next, board.version, &ask.id, &claim("host1"), LONG)
        .await
        .unwrap()
        .unwrap();
    let run = ClaimHolder::Run(RunId::new("r1").unwrap());
    let by_old = ledger
        .claim(&cluster, board.version, &run, &claim("host2"), LONG)
        .await
        .unwrap();
    assert_eq!(by_old, None);
    let board = ledger.board(&cluster).await.unwrap();
    let ours = ledger
        .claim(&cluster, board.version, &run, &claim("host2"), LONG)
        .await
        .unwrap()
        .unwrap();
    assert!(ours > given);
    let board = ledger.board(&cluster).await.unwrap();
    let fences: Vec<u64> = board.claims.iter().map(|claim| claim.fence).collect();
    assert_eq!(fences, [given, ours]);
    assert_eq!(board.fence, ours);
    let AskState::Granted(grant) = ledger.ask(&ask.id).await.unwrap().state else {
        panic!("it was granted");
    };
    assert_eq!(grant.fence, given);

    // Granted once, ended once, and with it its claim.
    let again = ledger
        .grant(&next, board.version, &ask.id, &claim("host1"), LONG)
        .await
        .unwrap();
    assert_eq!(again, None, "it does not wait any more");
    assert_eq!(
        ledger.board(&cluster).await.unwrap().version,
        board.version,
        "all or nothing"
    );
    assert!(ledger.extend(&ask.id, LONG).await.unwrap());
    ledger.saw_down(&ask.id).await.unwrap();
    assert!(!ledger.extend(&ask.id, LONG).await.unwrap(), "it is down already");
    assert!(ledger.end(&ask.id, AskEnd::Done, "").await.unwrap());
    assert!(!ledger.end(&ask.id, AskEnd::Expired, "").await.unwrap());
    let board = ledger.board(&cluster).await.unwrap();
    assert_eq!(board.claims.len(), 1);
    assert_eq!(board.asks.len(), 1);

    // Answers are for those who wait.
    let answer = AskAnswer {
        why: "not now".to_owned(),
        earliest: Some(Timestamp::UNIX_EPOCH),
        ahead: 5,
        kept_free_since: Some(3),
        unfit_since: None,
    };
    let answers = [
        (ask.id.clone(), answer.clone()),
        (first.id.clone(), answer.clone()),
    ];
    ledger.answer(&answers).await.unwrap();
    assert_eq!(
        ledger.ask(&first.id).await.unwrap().state,
        AskState::Waiting(answer)
    );
    assert!(matches!(
        ledger.ask(&ask.id).await.unwrap().state,
        AskState::Ended {
            how: AskEnd::Done,
            ..
        }
    ));
    ledger.ask_anew(&first.id, &wanted("host3")).await.unwrap();
    let moved = ledger.ask(&first.id).await.unwrap();
    assert_eq!((moved.wanted, moved.asked), (wanted("host3"), first.asked));

    // Claims of runs are renewed, made smaller, and expire.
    assert!(ledger.renew(&cluster, ours, LONG).await.unwrap());
    ledger.shrink(&cluster, ours, &claim("host9")).await.unwrap();
    assert_eq!(
        ledger.board(&cluster).await.unwrap().claims[0].claim,
        claim("host9")
    );
    assert!(ledger.renew(&cluster, ours, Duration::ZERO).await.unwrap());
    assert!(!ledger.renew(&cluster, ours, LONG).await.unwrap(), "it was over");
    assert!(ledger.board(&cluster).await.unwrap().claims.is_empty());
    let all: BTreeSet<_> = ledger
        .history(&cluster, 10)
        .await
        .unwrap()
        .into_iter()
        .map(|ask| ask.id)
        .collect();
    assert_eq!(all, BTreeSet::from([ask.id, first.id]));
    assert_eq!(ledger.history(&cluster, 1).await.unwrap().len(), 1);
}

/// Whoever claims at the same time by the same version: one of them does.
async fn one_of_many_claims(ledger: &AskLedger) {
    let cluster = Toy::identity();
    let version = ledger.board(&cluster).await.unwrap().version;
    let mut all = Vec::new();
    for at in 0..20 {
        let (ledger, cluster) = (ledger.clone(), cluster.clone());
        all.push(tokio::spawn(async move {
            let run = ClaimHolder::Run(RunId::new(format!("r{at}")).unwrap());
            ledger
                .claim(&cluster, version, &run, &claim("host1"), LONG)
                .await
                .unwrap()
        }));
    }
    let mut claimed = 0;
    for one in all {
        claimed += usize::from(one.await.unwrap().is_some());
    }
    assert_eq!(claimed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_keeps_its_word() {
    let folder = tempfile::tempdir().unwrap();
    let at = LedgerLocation::File(folder.path().join("state/asks.db"));
    let ledger = at.open().await.unwrap();
    keeps_its_word(&ledger).await;
    one_of_many_claims(&at.open().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
async fn a_postgres_keeps_its_word() {
    let server = server::Server::start();
    let at = LedgerLocation::Server {
        url: server.url("postgres"),
        password: None,
    };
    let mut opened = at.open().await;
    for _ in 0..50 {
        if opened.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        opened = at.open().await;
    }
    keeps_its_word(&opened.unwrap()).await;
    one_of_many_claims(&at.open().await.unwrap()).await;
}

#[test]
fn a_password_is_not_shown() {
    let at = LedgerLocation::Server {
        url: "postgres://stagger@db/asks".to_owned(),
        password: Some("hidden".to_owned()),
    };
    assert!(!format!("{at:?} {at}").contains("hidden"));
}
