//! The lock and the records, in a database of ours.

use std::time::{Duration, Instant};

use stagger_core::model::ClusterName;
use stagger_engine::backend::LockError;
use stagger_ironic::records::{Book, Record, RecordState};

use crate::common::{call, claim};

const EXPIRES: Duration = Duration::from_millis(300);

fn book(folder: &tempfile::TempDir) -> Book {
    let url = format!("sqlite://{}/ours.db?mode=rwc", folder.path().display());
    let name = ClusterName::new("lab").unwrap();
    Book::open(&url, name, EXPIRES, Duration::from_secs(20)).unwrap()
}

fn record(release: &str, pin: Option<&str>) -> Record {
    Record {
        release: release.to_owned(),
        pin: pin.map(str::to_owned),
        state: RecordState::Runs,
        run: "run-1".to_owned(),
    }
}

#[tokio::test]
async fn of_two_contenders_one_gets_it_and_tokens_only_grow() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (book(&folder), book(&folder));
    let first = one.take(&claim("one"), 7).await.unwrap();
    assert_eq!(first, 8);
    let renewing = async {
        for _ in 0..10 {
            tokio::time::sleep(EXPIRES / 10).await;
            one.renew(first).await.unwrap();
        }
    };
    let two = claim("two");
    let (refused, ()) = tokio::join!(other.take(&two, 0), renewing);
    assert!(matches!(refused, Err(LockError::Held(by)) if by.incarnation == "one"));
    one.give_back(first).await.unwrap();
    let second = other.take(&two, 0).await.unwrap();
    assert!(second > first);
}

#[tokio::test]
async fn one_that_is_silent_is_watched_for_its_own_time_and_then_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (dead, heir) = (book(&folder), book(&folder));
    let token = dead.take(&claim("dead"), 0).await.unwrap();
    let begun = Instant::now();
    let newer = heir.take(&claim("heir"), 0).await.unwrap();
    assert!(begun.elapsed() > EXPIRES, "{:?}", begun.elapsed());
    assert!(newer > token);
    assert!(matches!(dead.renew(token).await, Err(LockError::Held(by)) if by.incarnation == "heir"));
    // What the dead one still wants to write is refused.
    let error = dead
        .note(&call(token, 1), "c1", &record("29.0.6", None))
        .await
        .unwrap_err();
    assert!(error.why.contains("token"), "{error}");
    assert!(heir.read().await.unwrap().services.is_empty());
}

#[tokio::test]
async fn contenders_in_a_crowd_never_have_it_together() {
    let folder = tempfile::tempdir().unwrap();
    book(&folder).read().await.unwrap();
    let mut contenders = tokio::task::JoinSet::new();
    for number in 0..8 {
        let book = book(&folder);
        contenders.spawn(async move { book.take(&claim(&format!("{number}")), 0).await });
    }
    let taken = contenders.join_all().await;
    let tokens: Vec<u64> = taken
        .iter()
        .filter_map(|taken| taken.as_ref().ok().copied())
        .collect();
    let newest = tokens.iter().max().unwrap();
    // Several may have had it one after another, as none of them renewed it: only the newest still has.
    let all = book(&folder);
    for token in &tokens {
        assert_eq!(all.renew(*token).await.is_ok(), token == newest);
    }
}

#[tokio::test]
async fn what_is_written_down_is_read_and_the_newest_counts() {
    let folder = tempfile::tempdir().unwrap();
    let book = book(&folder);
    let token = book.take(&claim("one"), 0).await.unwrap();
    let call = call(token, 1);
    book.note(&call, "c1", &record("26.1.6", None)).await.unwrap();
    book.note(&call, "c1", &record("29.0.6", Some("26.1")))
        .await
        .unwrap();
    book.mark(&call, "29.0.6", "schema", &"é".repeat(5000))
        .await
        .unwrap();
    book.mark(&call, "29.0.6", "unpin", "begun").await.unwrap();
    let read = book.read().await.unwrap();
    assert_eq!(read.services["c1"], record("29.0.6", Some("26.1")));
    assert!(read.is_marked("29.0.6", "unpin") && !read.is_marked("32.0.1", "unpin"));
    assert_eq!(read.marks["29.0.6"]["schema"].chars().count(), 2000);
}
