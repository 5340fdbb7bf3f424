//! The lock and the records, in a database of ours.

use std::time::{Duration, Instant};

use stagger_conformance::lock::{self, claim};
use stagger_core::model::{ClusterName, RunId};
use stagger_engine::cluster::{Lock, LockError};
use stagger_engine::supervisor::Identity;
use stagger_ironic::records::{Record, RecordState, RecordStore};

use crate::common::{call, setup};

const EXPIRES: Duration = Duration::from_millis(300);

fn book(folder: &tempfile::TempDir) -> RecordStore {
    named(folder, "lab", "mysql://ironic@db1/ironic")
}

fn named(folder: &tempfile::TempDir, name: &str, ironic: &str) -> RecordStore {
    let url = format!("sqlite://{}/ours.db?mode=rwc", folder.path().display());
    let name = ClusterName::new(name).unwrap();
    RecordStore::open(&url, ironic, name, EXPIRES, Duration::from_secs(20)).unwrap()
}

#[tokio::test]
async fn one_ironic_under_two_names_has_one_lock_and_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let one = named(&folder, "lab", "mysql://ironic@db1/ironic");
    let same = named(
        &folder,
        "laboratory",
        "mariadb://reader:x@DB1/ironic?ssl-mode=required",
    );
    let other = named(&folder, "lab", "mysql://ironic@db2/ironic");
    let identity = one.identity().await.unwrap();
    assert_eq!(same.identity().await.unwrap(), identity);
    assert_ne!(
        other.identity().await.unwrap(),
        identity,
        "another database, though of one name"
    );

    let token = one.take(&claim("one"), 0).await.unwrap();
    one.note(&call(token, 1), "c1", &record("29.0.6", None))
        .await
        .unwrap();
    assert_eq!(same.read().await.unwrap(), one.read().await.unwrap());
    assert_eq!(other.read().await.unwrap().services.len(), 0);
    let holder = same.holder().await.unwrap().unwrap();
    assert_eq!(
        (holder.claim.incarnation.as_str(), holder.expires),
        ("one", EXPIRES)
    );
    assert!(other.holder().await.unwrap().is_none());
    assert!(other.take(&claim("two"), 0).await.is_ok());
    let three = claim("three");
    let theirs = same.take(&three, 0);
    let beats = async {
        for _ in 0..4 {
            tokio::time::sleep(EXPIRES / 10).await;
            one.renew(token).await.unwrap();
        }
    };
    let (refused, ()) = tokio::join!(theirs, beats);
    assert!(matches!(refused, Err(LockError::Held(by)) if by.incarnation == "one"));
}

#[tokio::test]
async fn whether_it_can_be_written_is_tried_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let ours = book(&folder);
    let token = ours.take(&claim("one"), 0).await.unwrap();
    ours.note(&call(token, 1), "c1", &record("29.0.6", None))
        .await
        .unwrap();
    let before = ours.read().await.unwrap();
    ours.try_writes().await.unwrap();
    // Rows of the first would be in the way of the second.
    ours.try_writes().await.unwrap();
    assert_eq!(ours.read().await.unwrap(), before);
    ours.renew(token).await.unwrap();

    // Who may read and not write: that is not found out by reading.
    let url = format!("sqlite://{}/ours.db?mode=ro", folder.path().display());
    let name = ClusterName::new("lab").unwrap();
    let reader = RecordStore::open(
        &url,
        "mysql://ironic@db1/ironic",
        name,
        EXPIRES,
        Duration::from_secs(20),
    )
    .unwrap();
    assert_eq!(reader.read().await.unwrap(), before);
    let error = reader.try_writes().await.unwrap_err();
    assert!(error.why.contains("readonly"), "{error}");
}

#[tokio::test]
async fn one_that_was_killed_on_this_machine_is_followed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (dead, heir) = (book(&folder), book(&folder));
    let who = Identity::current_process();
    let mut gone = who.claim(&RunId::new("run-1").unwrap(), jiff::Timestamp::UNIX_EPOCH);
    // This process at another time of start: what one leaves whose number was given away.
    gone.life.as_mut().unwrap().begun += 1;
    let token = dead.take(&gone, 0).await.unwrap();
    let begun = Instant::now();
    let newer = heir.take(&claim("heir"), 0).await.unwrap();
    assert!(
        newer > token && begun.elapsed() < EXPIRES,
        "{:?}",
        begun.elapsed()
    );
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
async fn its_lock_has_the_laws_of_every_lock() {
    let setup = setup("26.1.6");
    let (one, other) = (setup.backend(None), setup.backend(None));
    lock::the_anchor_outlives_the_lock(&one).await;
    lock::one_writer_at_a_time(&one, &other).await;
    lock::a_silent_holder_is_waited_out(&one, &other).await;
    let crowd: Vec<_> = (0..8).map(|_| setup.backend(None)).collect();
    let crowd: Vec<&dyn Lock> = crowd.iter().map(|backend| backend as &dyn Lock).collect();
    lock::of_a_crowd_one_has_it(&crowd, Duration::from_secs(20)).await;
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
