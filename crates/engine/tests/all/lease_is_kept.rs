//! How the lock is kept, when it counts as lost, and what its keeper tells: the store of who is at work, the cluster of where
//! the journal stands. Time is moved by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_conformance::store::start;
use stagger_core::model::{ClusterName, RunId, Snapshot, UnitId};
use stagger_core::run::{Action, Answer, Event, Seq};
use stagger_engine::clock::{Clock, Moment};
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord,
};
use stagger_engine::lease::Lease;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore, Presence};
use tokio::sync::watch;

const EXPIRES: u64 = 60;
const FENCE: u64 = 7;

/// A clock that stands still until it is moved.
struct Hands(watch::Sender<Duration>);

#[async_trait]
impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::try_from(*self.0.borrow()).unwrap()
    }
    async fn sleep_until(&self, _: Timestamp) {
        unreachable!("nothing waits for a time of the day")
    }
    fn moment(&self) -> Moment {
        let (up, wall) = (*self.0.borrow(), *self.0.borrow());
        Moment { up, wall }
    }
    async fn pause(&self, time: Duration) {
        let until = *self.0.borrow() + time;
        self.0.subscribe().wait_for(|now| *now >= until).await.unwrap();
    }
}

/// How the cluster answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Yes,
    Nothing,
    Later,
    Never,
    Lost,
}

#[derive(Debug)]
struct World {
    renews: Says,
    anchors: Says,
    /// At which second the lock was renewed.
    renewed: Vec<u64>,
    /// Of which places it was told.
    told: Vec<Seq>,
    given_back: bool,
}

struct Cluster {
    name: ClusterName,
    clock: Arc<Hands>,
    world: Mutex<World>,
}

async fn answer(says: Says) -> Result<(), LockError> {
    match says {
        Says::Yes => Ok(()),
        Says::Nothing => std::future::pending().await,
        Says::Later => Err(LockError::Backend(BackendError::transient("tell", "it restarts"))),
        Says::Never => Err(LockError::Backend(BackendError::permanent(
            "tell",
            "it is forbidden",
        ))),
        Says::Lost => Err(LockError::Lost("another has it".to_owned())),
    }
}

#[async_trait]
impl Executor for Cluster {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        unreachable!("only the lock is asked for")
    }

    async fn check_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
        unreachable!("only the lock is asked for")
    }

    fn fencing(&self, _: &Action) -> Fencing {
        Fencing::Fenced
    }

    async fn perform(&self, _: &Call, _: &Action) -> Result<String, BackendError> {
        unreachable!("only the lock is asked for")
    }

    async fn raise_fence(&self, _: u64, _: &[UnitId]) -> Result<(), BackendError> {
        unreachable!("only the lock is asked for")
    }

    async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        unreachable!("only the lock is asked for")
    }

    fn poll(&self) -> Duration {
        Duration::from_secs(EXPIRES)
    }
}

#[async_trait]
impl Lock for Cluster {
    fn cluster(&self) -> &ClusterName {
        &self.name
    }

    async fn lock(&self, _: &LockRecord, _: u64) -> Result<u64, LockError> {
        Ok(FENCE)
    }

    async fn renew(&self, _: &LockRecord, fence: u64) -> Result<(), LockError> {
        assert_eq!(fence, FENCE);
        let now = self.clock.moment().up.as_secs();
        let says = {
            let mut world = self.world.lock().unwrap();
            world.renewed.push(now);
            world.renews
        };
        answer(says).await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        let says = {
            let mut world = self.world.lock().unwrap();
            world.told.push(anchor.seq);
            world.anchors
        };
        answer(says).await
    }

    async fn unlock(&self, _: &LockRecord, fence: u64) -> Result<(), LockError> {
        assert_eq!(fence, FENCE);
        self.world.lock().unwrap().given_back = true;
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_secs(EXPIRES)
    }
}

/// Whoever else has something to do does it.
async fn others() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// A lock just taken, and a store with a journal of one event.
struct Setting {
    clock: Arc<Hands>,
    cluster: Arc<Cluster>,
    backend: Arc<dyn Backend>,
    folder: tempfile::TempDir,
}

fn run() -> RunId {
    "r1".parse().unwrap()
}

fn lab() -> ClusterName {
    "lab".parse().unwrap()
}

impl Setting {
    async fn taken() -> (Self, Lease) {
        let clock = Arc::new(Hands(watch::channel(Duration::ZERO).0));
        let world = World {
            renews: Says::Yes,
            anchors: Says::Yes,
            renewed: Vec::new(),
            told: Vec::new(),
            given_back: false,
        };
        let cluster = Arc::new(Cluster {
            name: lab(),
            clock: Arc::clone(&clock),
            world: Mutex::new(world),
        });
        let backend: Arc<dyn Backend> = cluster.clone();
        let claim = LockRecord {
            incarnation: "1".to_owned(),
            run: run(),
            host: "h".to_owned(),
            process: 1,
            since: Timestamp::UNIX_EPOCH,
            life: None,
        };
        let of_engine: Arc<dyn Clock> = clock.clone();
        let lease = Lease::take(&backend, &of_engine, claim, 0).await.unwrap();
        let setting = Self {
            clock,
            cluster,
            backend,
            folder: tempfile::tempdir().unwrap(),
        };
        let mut store = setting.store();
        store.raise(&lab(), FENCE, "h").await.unwrap();
        let start = start(&lab(), &run());
        store
            .begin(&lab(), FENCE, Timestamp::UNIX_EPOCH, start)
            .await
            .unwrap();
        (setting, lease)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).unwrap()
    }

    async fn presence(&self) -> Option<Presence> {
        self.store().presence(&run()).await.unwrap()
    }

    /// One event more; its place.
    async fn append(&self, after: Seq) {
        let event = Event::Released;
        let mut store = self.store();
        let appended = store
            .append(&run(), FENCE, after, Timestamp::UNIX_EPOCH, vec![event])
            .await;
        appended.unwrap();
    }

    /// Half a second after another until then, or all at once.
    async fn moves(&self, to: u64, at_once: bool) {
        let to = Duration::from_secs(to);
        others().await;
        while *self.clock.0.borrow() < to {
            let step = if at_once { to } else { Duration::from_millis(500) };
            self.clock.0.send_modify(|now| *now = to.min(*now + step));
            others().await;
        }
    }

    fn says(&self, renews: Says, anchors: Says) {
        let mut world = self.cluster.world.lock().unwrap();
        (world.renews, world.anchors) = (renews, anchors);
    }

    fn renewed(&self) -> Vec<u64> {
        self.cluster.world.lock().unwrap().renewed.clone()
    }

    fn told(&self) -> Vec<Seq> {
        self.cluster.world.lock().unwrap().told.clone()
    }
}

#[tokio::test]
async fn it_is_renewed_at_each_third_of_its_time_until_it_is_let_go() {
    let (setting, lease) = Setting::taken().await;
    assert_eq!(lease.fence(), FENCE);
    setting.moves(90, false).await;
    assert_eq!(setting.renewed(), [0, 20, 40, 60, 80]);
    assert_eq!(lease.lost_reason(), None);
    drop(lease);
    setting.moves(200, false).await;
    assert_eq!(setting.renewed().len(), 5);
    assert!(!setting.cluster.world.lock().unwrap().given_back);
}

#[tokio::test]
async fn without_an_answer_it_is_asked_again_soon_and_lost_a_sixth_before_another_may_have_it() {
    let (setting, lease) = Setting::taken().await;
    setting.says(Says::Nothing, Says::Yes);
    setting.moves(49, false).await;
    assert_eq!(setting.renewed(), [0, 20, 30, 41], "each waits for ten seconds");
    assert_eq!(lease.lost_reason(), None);
    setting.moves(50, false).await;
    assert_eq!(
        lease.lost_reason().as_deref(),
        Some("it was not renewed for 50 s")
    );
    setting.moves(52, false).await;
    assert_eq!(
        lease.lost_reason().as_deref(),
        Some("it could not be renewed for 51 s")
    );
    setting.moves(200, false).await;
    assert_eq!(setting.renewed().len(), 4, "nobody asks any more");
}

#[tokio::test]
async fn a_cluster_that_answers_again_in_time_has_lost_nothing() {
    let (setting, lease) = Setting::taken().await;
    setting.says(Says::Later, Says::Yes);
    setting.moves(45, false).await;
    assert_eq!(lease.lost_reason(), None);
    setting.says(Says::Yes, Says::Yes);
    setting.moves(100, false).await;
    assert_eq!(lease.lost_reason(), None);
}

#[tokio::test]
async fn while_it_is_asked_again_and_again_it_is_given_up_in_time() {
    let (setting, lease) = Setting::taken().await;
    setting.says(Says::Later, Says::Yes);
    setting.moves(60, false).await;
    let renewed = setting.renewed();
    // Each half second from 20 s on, and the last time when a sixth is left.
    assert_eq!(renewed.iter().filter(|second| **second == 49).count(), 2);
    assert_eq!(renewed.iter().filter(|second| **second >= 50).count(), 1);
    assert_eq!(
        lease.lost_reason().as_deref(),
        Some("it could not be renewed for 50 s")
    );
}

#[tokio::test]
async fn a_cluster_that_never_says_that_it_was_told_does_not_keep_the_lock_from_being_renewed() {
    let (setting, lease) = Setting::taken().await;
    lease.report_to(Box::new(setting.store())).await;
    lease.watch().compared(1);
    setting.says(Says::Yes, Says::Nothing);
    setting.moves(100, false).await;
    assert_eq!(setting.renewed(), [0, 20, 50, 80]);
    assert_eq!(lease.lost_reason(), None);
}

#[tokio::test]
async fn who_is_told_that_another_has_it_believes_it() {
    let (setting, lease) = Setting::taken().await;
    setting.says(Says::Lost, Says::Yes);
    setting.moves(20, false).await;
    assert!(
        lease
            .lost_reason()
            .is_some_and(|why| why.contains("another has it"))
    );
    assert!(lease.watch().lost_reason().is_some());
}

#[tokio::test]
async fn a_renewal_after_too_long_a_pause_proves_nothing() {
    for (paused, is_lost) in [(49, false), (50, true), (300, true)] {
        let (setting, lease) = Setting::taken().await;
        setting.moves(paused, true).await;
        assert_eq!(setting.renewed(), [0, paused]);
        assert_eq!(
            lease.lost_reason().is_some(),
            is_lost,
            "after {paused} s: {:?}",
            lease.lost_reason()
        );
    }
}

#[tokio::test]
async fn who_is_at_work_stands_in_the_store_until_they_stop() {
    for gives_back in [true, false] {
        let (setting, lease) = Setting::taken().await;
        assert_eq!(setting.presence().await, None);
        lease.report_to(Box::new(setting.store())).await;
        let Presence {
            fence,
            claim,
            expires,
            ..
        } = setting.presence().await.unwrap();
        assert_eq!((fence, claim.as_ref()), (FENCE, Some(lease.claim())));
        assert_eq!(expires, Duration::from_secs(EXPIRES));
        if gives_back {
            lease.release(&setting.backend).await.unwrap();
        } else {
            lease.leave().await;
        }
        assert_eq!(setting.presence().await.unwrap().claim, None);
        assert_eq!(setting.cluster.world.lock().unwrap().given_back, gives_back);
    }
}

#[tokio::test]
async fn a_store_in_a_file_can_be_had_once_more_and_one_in_memory_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&folder.path().join("journal.db")).unwrap();
    let beside = store.beside().await.unwrap().unwrap();
    store.raise(&lab(), FENCE, "h").await.unwrap();
    assert_eq!(beside.fence(&lab()).await.unwrap(), FENCE);
    let in_memory = SqliteStore::in_memory().unwrap();
    assert!(in_memory.beside().await.unwrap().is_none());
}

#[tokio::test]
async fn the_cluster_is_told_once_of_each_place_and_of_none_before_journals_were_compared() {
    let (setting, lease) = Setting::taken().await;
    lease.report_to(Box::new(setting.store())).await;
    lease.anchor(&setting.backend).await.unwrap();
    setting.moves(20, false).await;
    assert_eq!(setting.told(), [0; 0]);
    lease.watch().compared(1);
    setting.moves(60, false).await;
    assert_eq!(setting.told(), [1], "by a renewal, and not by the next one again");
    setting.append(1).await;
    lease.watch().anchored(&*setting.backend, 2).await.unwrap();
    lease.watch().anchored(&*setting.backend, 2).await.unwrap();
    lease.watch().anchored(&*setting.backend, 1).await.unwrap();
    assert_eq!(setting.told(), [1, 2]);
    setting.append(2).await;
    lease.anchor(&setting.backend).await.unwrap();
    assert_eq!(setting.told(), [1, 2, 3]);
    setting.append(3).await;
    lease.release(&setting.backend).await.unwrap();
    assert_eq!(setting.told(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn of_a_journal_that_stands_before_what_was_compared_the_cluster_is_not_told() {
    let (setting, lease) = Setting::taken().await;
    lease.report_to(Box::new(setting.store())).await;
    lease.watch().compared(2);
    lease.anchor(&setting.backend).await.unwrap();
    assert_eq!(setting.told(), [0; 0]);
    let why = lease.watch().anchored(&*setting.backend, 2).await.unwrap_err();
    assert!(why.contains("has lost an event that was written to it"), "{why}");
    setting.append(1).await;
    lease.watch().anchored(&*setting.backend, 2).await.unwrap();
    assert_eq!(setting.told(), [2]);
}

#[tokio::test]
async fn without_a_store_beside_it_nothing_is_told_and_nothing_waits_for_it() {
    let (setting, lease) = Setting::taken().await;
    lease.watch().compared(1);
    lease.watch().anchored(&*setting.backend, 5).await.unwrap();
    assert_eq!(setting.told(), [0; 0]);
}

#[tokio::test]
async fn nothing_is_begun_before_the_cluster_knows_of_it_unless_it_never_can() {
    let (setting, lease) = Setting::taken().await;
    lease.report_to(Box::new(setting.store())).await;
    lease.watch().compared(1);
    setting.says(Says::Yes, Says::Never);
    let watch = lease.watch();
    let at_once = tokio::time::timeout(Duration::from_secs(10), watch.anchored(&*setting.backend, 1));
    at_once.await.unwrap().unwrap();
    setting.says(Says::Yes, Says::Lost);
    let why = lease.watch().anchored(&*setting.backend, 1).await.unwrap_err();
    assert!(why.contains("another has it"), "{why}");
    setting.says(Says::Yes, Says::Later);
    let (watch, backend) = (lease.watch(), Arc::clone(&setting.backend));
    let waits = tokio::spawn(async move { watch.anchored(&*backend, 1).await });
    setting.moves(2, false).await;
    assert!(!waits.is_finished());
    assert_eq!(setting.told().len(), 2 + 3, "once a second");
    setting.says(Says::Yes, Says::Yes);
    setting.moves(3, false).await;
    assert!(waits.is_finished());
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn whoever_has_lost_the_lock_begins_nothing() {
    let (setting, lease) = Setting::taken().await;
    lease.report_to(Box::new(setting.store())).await;
    lease.watch().compared(1);
    setting.says(Says::Lost, Says::Yes);
    setting.moves(20, false).await;
    let why = lease.watch().anchored(&*setting.backend, 1).await.unwrap_err();
    assert!(why.contains("another has it"), "{why}");
    assert_eq!(setting.told(), [0; 0]);
}
