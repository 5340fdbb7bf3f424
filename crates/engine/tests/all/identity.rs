//! One cluster, whatever it is called; and journals that are not what the world was told of.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    BudgetsBuilder, ClusterId, ClusterName, Code, GoingBack, Growth, Kind, Limit, Part, PartName, Phase,
    Policy, Revision, RunId, Snapshot, StageSpec, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Action, Answer, Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord,
};
use stagger_engine::database::StoreLocation;
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::{Driver, DriverParts, Listener, Notice};
use stagger_engine::lease::Lease;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore, Presence, StoreError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};

/// What is true of a cluster with three units, whoever looks.
#[derive(Debug, Default)]
struct Truth {
    units: BTreeMap<String, (bool, String)>,
    fence: u64,
    holder: Option<LockRecord>,
    anchor: Option<Anchor>,
    calls: Vec<String>,
}

/// The cluster under one name.
struct Named {
    name: ClusterName,
    identity: ClusterId,
    truth: Arc<Mutex<Truth>>,
}

#[async_trait]
impl Executor for Named {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let truth = self.truth.lock().unwrap();
        let units = truth.units.iter().map(|(name, (up, runs))| Unit {
            id: UnitId::new(name.clone()).unwrap(),
            kind: Kind::new("u").unwrap(),
            state: if *up { UnitState::Serving } else { UnitState::Down },
            revision: Some(Revision::new(runs.clone()).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let snapshot = Snapshot::new(
            self.name.clone(),
            Timestamp::now(),
            String::new(),
            units.collect(),
            BudgetsBuilder::default().build(),
            Vec::new(),
            BTreeMap::new(),
        );
        snapshot.map_err(|error| BackendError::permanent("observe", error.to_string()))
    }

    async fn check_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
        Ok(Answer::NoOracle)
    }

    fn fencing(&self, _: &Action) -> Fencing {
        Fencing::Fenced
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let mut truth = self.truth.lock().unwrap();
        if let Action::Visit {
            unit,
            phase,
            revision,
            ..
        } = action
        {
            let told = truth.anchor.as_ref().filter(|anchor| anchor.run == call.run);
            assert!(
                *phase == Phase::Prepare || told.is_some_and(|anchor| anchor.seq >= call.seq),
                "{phase:?} {unit} is begun, and the cluster knows of {told:?} only"
            );
            truth.calls.push(format!("{phase:?} {unit} {}", call.fence));
            let (up, runs) = truth.units.get_mut(unit.as_str()).unwrap();
            match phase {
                Phase::Leave => *up = true,
                Phase::Change => revision.as_str().clone_into(runs),
                _ => *up = false,
            }
        }
        Ok(String::new())
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
        let raised = format!("fence {fence} on {}", names.join(" "));
        self.truth.lock().unwrap().calls.push(raised);
        Ok(())
    }

    async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        Ok(Vec::new())
    }

    fn poll(&self) -> Duration {
        Duration::from_millis(10)
    }
}

#[async_trait]
impl Lock for Named {
    fn cluster(&self) -> &ClusterName {
        &self.name
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        Ok(self.identity.clone())
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let mut truth = self.truth.lock().unwrap();
        truth.fence = truth.fence.max(at_least) + 1;
        truth.holder = Some(claim.clone());
        Ok(truth.fence)
    }

    async fn renew(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        let claim = self.truth.lock().unwrap().holder.clone();
        let expires = self.lock_expires();
        Ok(claim.map(|claim| Holder { claim, expires }))
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.truth.lock().unwrap().anchor = Some(anchor.clone());
        Ok(())
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        Ok(self.truth.lock().unwrap().anchor.clone())
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        self.truth.lock().unwrap().holder = None;
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_mins(1)
    }
}

#[derive(Clone, Default)]
struct Notices(Arc<Mutex<Vec<Notice>>>);

impl Listener for Notices {
    fn notice(&mut self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.clone());
    }
    fn event(&mut self, _: &Entry, _: &Run) {}
}

/// A world, a folder for stores, and what was noticed.
struct Setting {
    folder: tempfile::TempDir,
    truth: Arc<Mutex<Truth>>,
    notices: Notices,
}

impl Setting {
    fn new() -> Self {
        let units = (0..3).map(|nth| (format!("u.{nth}"), (true, "1".to_owned())));
        let truth = Truth {
            units: units.collect(),
            ..Truth::default()
        };
        Self {
            folder: tempfile::tempdir().unwrap(),
            truth: Arc::new(Mutex::new(truth)),
            notices: Notices::default(),
        }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.journal()).unwrap()
    }

    fn named(&self, name: &str, identity: &str) -> Arc<dyn Backend> {
        Arc::new(Named {
            name: ClusterName::new(name).unwrap(),
            identity: ClusterId::new(identity).unwrap(),
            truth: Arc::clone(&self.truth),
        })
    }

    fn parts(&self, backend: &Arc<dyn Backend>) -> DriverParts {
        DriverParts {
            backend: Arc::clone(backend),
            store: Box::new(self.store()),
            clock: Arc::new(SystemClock),
            artifacts: Artifacts::in_folder(self.folder.path().join("artifacts")),
            listener: Box::new(self.notices.clone()),
        }
    }

    async fn start(
        &self,
        backend: &Arc<dyn Backend>,
        run: &str,
        to: &str,
    ) -> Result<(Driver, Lease), SuperviseError> {
        let (who, run) = (Identity::current_process(), RunId::new(run).unwrap());
        let policy = Policy {
            max_in_parallel: Limit::Count(1),
            growth: Growth::None,
            canary_soak: 0,
            gate_hold: 0,
            ..Policy::default()
        };
        supervisor::start(
            self.parts(backend),
            &who,
            run,
            target(to),
            policy,
            serde_json::Value::Null,
            stagger_core::model::Topology::default(),
        )
        .await
    }

    async fn resume(&self, backend: &Arc<dyn Backend>, run: &str) -> Result<(Driver, Lease), SuperviseError> {
        let (who, run) = (Identity::current_process(), RunId::new(run).unwrap());
        supervisor::resume(self.parts(backend), &who, &run).await
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.truth.lock().unwrap().calls)
    }

    async fn presence(&self, run: &str) -> Presence {
        let run = RunId::new(run).unwrap();
        self.store().presence(&run).await.unwrap().unwrap()
    }
}

fn target(to: &str) -> Target {
    Target {
        title: format!("to {to}"),
        parts: vec![Part::Stage(StageSpec {
            name: PartName::new("units").unwrap(),
            kind: Kind::new("u").unwrap(),
            revision: Revision::new(to).unwrap(),
            width: Width::Policy,
            phases: Phase::all(),
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        })],
        only: None,
    }
}

/// To the end of a run, and away.
async fn to_the_end((mut driver, lease): (Driver, Lease), backend: &Arc<dyn Backend>) {
    let end = drive(&mut driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    drop(driver);
    lease.release(backend).await.unwrap();
}

/// So far that so many calls were made.
async fn so_far(driver: &mut Driver, setting: &Setting, calls: usize) {
    while setting.truth.lock().unwrap().calls.len() < calls {
        driver.step().await.unwrap();
    }
}

#[tokio::test]
async fn whether_somebody_is_at_work_is_a_fact_in_the_store() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    let there = setting.presence("r1").await;
    assert_eq!(there.fence, 1);
    assert_eq!(there.claim.as_ref(), Some(lease.claim()));
    assert_eq!(there.interruption_reason(), None);

    drop(driver);
    lease.release(&backend).await.unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.starts_with("it was stopped"), "{why}");

    let (driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    // Who was followed by another says nothing more.
    setting
        .store()
        .clear_presence(&RunId::new("r1").unwrap(), 1)
        .await
        .unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    drop(driver);
    lease.leave().await;
    assert!(setting.presence("r1").await.interruption_reason().is_some());
}

#[tokio::test]
async fn of_one_who_was_killed_the_store_knows_no_end_and_its_machine_does() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let mut claim = lease.claim().clone();
    drop((driver, lease));
    let (run, long) = (RunId::new("r1").unwrap(), Duration::from_hours(1));
    // This process with another time of start: what a killed one leaves whose number was given away.
    claim.life.as_mut().unwrap().begun += 1;
    setting.store().beat(&run, 1, &claim, long).await.unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.ends_with("is gone"), "{why}");
    // From another machine only the time tells.
    claim.host.push_str("-2");
    setting.store().beat(&run, 1, &claim, long).await.unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    setting
        .store()
        .beat(&run, 1, &claim, Duration::ZERO)
        .await
        .unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.contains("has not renewed its lock"), "{why}");
}

#[tokio::test]
async fn who_waits_for_the_lock_is_told_at_once_whose_it_is() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let claim = lease.claim().clone();
    drop((driver, lease));
    let before = Timestamp::now();
    drop(setting.resume(&backend, "r1").await.unwrap());
    let noticed = setting.notices.0.lock().unwrap().clone();
    let [Notice::Locked { holder, until }] = &noticed[..] else {
        panic!("{noticed:?}")
    };
    assert_eq!(*holder, claim);
    assert!(*until >= before + Duration::from_mins(1), "{until}");
}

#[tokio::test]
async fn one_cluster_under_two_names_has_one_run_at_a_time() {
    let setting = Setting::new();
    let (a, b) = (setting.named("prod", "id-1"), setting.named("production", "id-1"));
    let (mut driver, lease) = setting.start(&a, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));

    let refused = setting.start(&b, "r2", "2").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::Unfinished(run) if run.as_str() == "r1"),
        "{refused:?}"
    );
    // It is the same run under either name, with one fence.
    to_the_end(setting.resume(&b, "r1").await.unwrap(), &b).await;
    let store = setting.store();
    for name in ["prod", "production"] {
        let name = ClusterName::new(name).unwrap();
        assert_eq!(store.fence(&name).await.unwrap(), 2);
    }
    setting.calls();
    to_the_end(setting.start(&b, "r2", "3").await.unwrap(), &b).await;
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("fence")),
        "no stranger: {calls:?}"
    );
    let listed = store.runs().await.unwrap();
    assert!(
        listed
            .iter()
            .all(|run| run.identity.as_ref().unwrap().as_str() == "id-1")
    );
}

#[tokio::test]
async fn a_name_that_was_another_clusters_is_refused() {
    let setting = Setting::new();
    let one = setting.named("lab", "id-1");
    to_the_end(setting.start(&one, "r1", "2").await.unwrap(), &one).await;
    let other = setting.named("lab", "id-2");
    let refused = setting.start(&other, "r2", "3").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::NameOfAnother { was, is, .. }
            if was.as_str() == "id-1" && is.as_str() == "id-2"),
        "{refused:?}"
    );
    // Another name is the way out.
    let renamed = setting.named("lab2", "id-2");
    to_the_end(setting.start(&renamed, "r2", "3").await.unwrap(), &renamed).await;
}

#[tokio::test]
async fn a_run_of_another_cluster_is_not_carried_on() {
    let setting = Setting::new();
    let one = setting.named("lab", "id-1");
    drop(setting.start(&one, "r1", "2").await.unwrap());
    let other = setting.named("other", "id-2");
    let refused = setting.resume(&other, "r1").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::OfAnotherCluster { .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("lab (id-1)") && text.contains("other (id-2)"),
        "{text}"
    );
}

/// As a disk does that fails: what it changes, no program of ours would.
fn damage(journal: &Path, run: &str) {
    let raw = rusqlite::Connection::open(journal).unwrap();
    raw.execute_batch("drop trigger journal_is_append_only_1")
        .unwrap();
    let changed = raw.execute("update journal set body = 'x' where run = ?1 and seq > 2", [run]);
    assert!(changed.unwrap() > 3);
}

#[tokio::test]
async fn a_damaged_row_of_a_run_that_is_over_stops_nothing() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    to_the_end(setting.start(&backend, "r1", "2").await.unwrap(), &backend).await;
    damage(&setting.journal(), "r1");
    setting.calls();
    let (mut driver, lease) = setting.start(&backend, "r2", "3").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("fence")),
        "no stranger: {calls:?}"
    );
    drop((driver, lease));
    to_the_end(setting.resume(&backend, "r2").await.unwrap(), &backend).await;

    // Of one that is not over, nobody knows what it has under way.
    setting.calls();
    let (mut driver, lease) = setting.start(&backend, "r3", "4").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    drop((driver, lease));
    let raw = rusqlite::Connection::open(setting.journal()).unwrap();
    raw.execute("update journal set body = 'x' where run = 'r3' and seq > 2", [])
        .unwrap();
    let refused = setting.start(&backend, "r4", "4").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::Store(StoreError::Damaged { run, .. }) if run.as_str() == "r3"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_journal_that_is_older_than_the_world_is_a_strangers() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    let backup = setting.folder.path().join("backup.db");
    StoreLocation::File(setting.journal()).copy(&backup).unwrap();
    // A unit more, of which the backup knows nothing.
    so_far(&mut driver, &setting, 6).await;
    drop(driver);
    lease.release(&backend).await.unwrap();

    for file in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(setting.folder.path().join(file)).ok();
    }
    std::fs::rename(&backup, setting.journal()).unwrap();
    setting.calls();
    let taken = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(
        matches!(&noticed[..], [Notice::Behind(anchor)] if anchor.run.as_str() == "r1"),
        "{noticed:?}"
    );
    to_the_end(taken, &backend).await;
    let calls = setting.calls();
    let (first, then) = calls.split_first().unwrap();
    assert!(first.starts_with("fence 2 on "), "{calls:?}");
    assert!(
        calls.iter().any(|call| call == "fence 2 on u.0 u.1 u.2"),
        "of every unit, as its intents are unknown: {calls:?}"
    );
    assert!(then.iter().any(|call| call.starts_with("Enter")), "{calls:?}");
}

#[tokio::test]
async fn who_cannot_write_to_the_journal_takes_no_lock_and_whoever_follows_knows_of_no_stranger() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));

    let raw = rusqlite::Connection::open(setting.journal()).unwrap();
    let full = "create trigger full before update on cluster begin select raise(abort, 'no space left'); end";
    raw.execute_batch(full).unwrap();
    for _ in 0..3 {
        let refused = setting.resume(&backend, "r1").await.map(drop).unwrap_err();
        assert!(matches!(&refused, SuperviseError::Store(_)), "{refused:?}");
    }
    assert_eq!(setting.truth.lock().unwrap().fence, 1, "the lock is as it was");

    raw.execute_batch("drop trigger full").unwrap();
    setting.calls();
    to_the_end(setting.resume(&backend, "r1").await.unwrap(), &backend).await;
    let calls = setting.calls();
    assert!(
        !calls.iter().any(|call| call.contains("u.0 u.1 u.2")),
        "only on whose command was open: {calls:?}"
    );
}

/// Two in a row are killed as soon as they have the lock, and have written that they have it. Between them and whoever follows
/// nobody is unknown, until the cluster has given out a token of which no journal says anything.
#[tokio::test]
async fn who_only_took_the_lock_is_no_stranger() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));
    for unknown in [false, true] {
        for _ in 0..2 {
            drop(setting.resume(&backend, "r1").await.unwrap());
        }
        setting.truth.lock().unwrap().fence += u64::from(unknown);
        setting.calls();
        let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
        while driver.run().ruled_out() < lease.fence() {
            driver.step().await.unwrap();
        }
        drop((driver, lease));
        let calls = setting.calls();
        let on_all = calls.iter().any(|call| call.ends_with("on u.0 u.1 u.2"));
        assert_eq!(on_all, unknown, "{calls:?}");
    }
}

/// Nobody has renewed the lock since, and nobody has given it back.
#[tokio::test]
async fn a_backup_that_lacks_only_the_last_thing_is_noticed() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let backup = setting.folder.path().join("backup.db");
    StoreLocation::File(setting.journal()).copy(&backup).unwrap();
    let entered = || {
        let truth = setting.truth.lock().unwrap();
        truth.calls.iter().any(|call| call.starts_with("Enter"))
    };
    while !entered() {
        driver.step().await.unwrap();
    }
    drop((driver, lease));
    for file in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(setting.folder.path().join(file)).ok();
    }
    std::fs::rename(&backup, setting.journal()).unwrap();
    // One that dies before anything is ruled out leaves the next one to find the same.
    for _ in 0..2 {
        drop(setting.resume(&backend, "r1").await.unwrap());
        let noticed = std::mem::take(&mut *setting.notices.0.lock().unwrap());
        assert!(matches!(&noticed[..], [.., Notice::Behind(_)]), "{noticed:?}");
    }
    let taken = setting.resume(&backend, "r1").await.unwrap();
    let (mut driver, lease) = taken;
    let Stopped::Over(Ending::Incomplete { left }) = drive(&mut driver, &mut NoSignals).await.unwrap() else {
        panic!("u.0 is down, and nothing tells who has stopped it")
    };
    assert_eq!(left[0].1.code, Code::UnitDown, "{left:?}");
    drop(driver);
    lease.release(&backend).await.unwrap();
    let store = StoreLocation::File(setting.journal()).open().await.unwrap();
    let journal = store.journal(&RunId::new("r1").unwrap()).await.unwrap();
    let behind = |entry: &Entry| entry.event == stagger_core::run::Event::JournalBehind;
    assert!(journal.iter().any(behind), "it is written down");
}

/// What the cluster is told next is not that the journal has lost what was lost already.
#[tokio::test]
async fn a_journal_that_is_put_back_twice_is_noticed_twice() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 6).await;
    drop((driver, lease));
    let put_back = |events: u32| {
        let raw = rusqlite::Connection::open(setting.journal()).unwrap();
        for trigger in 1..=4 {
            raw.execute_batch(&format!(
                "drop trigger if exists journal_is_append_only_{trigger}"
            ))
            .unwrap();
        }
        raw.execute("delete from journal where seq > ?1", [events])
            .unwrap();
        raw.execute("update run set events = ?1", [events]).unwrap();
    };
    put_back(8);
    let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    while driver.run().ruled_out() < lease.fence() {
        driver.step().await.unwrap();
    }
    let of_this_run = setting.truth.lock().unwrap().anchor.clone().unwrap();
    put_back(3);
    lease.anchor(&backend).await.unwrap();
    let told = setting.truth.lock().unwrap().anchor.clone().unwrap();
    assert_eq!(told, of_this_run, "it is told of nothing older");
    drop((driver, lease));
    setting.notices.0.lock().unwrap().clear();
    let (driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(matches!(&noticed[..], [.., Notice::Behind(_)]), "{noticed:?}");
    drop((driver, lease));
}

/// A run is carried on, and the cluster was told of one that began since: the journal was put back from before that.
#[tokio::test]
async fn a_run_that_another_came_after_relies_on_nothing_that_it_had_in_hand() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));
    setting.truth.lock().unwrap().anchor = Some(Anchor {
        run: RunId::new("r2").unwrap(),
        seq: 12,
        sum: "0".to_owned(),
    });
    let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(
        matches!(&noticed[..], [.., Notice::Unheard(anchor)] if anchor.seq == 12),
        "{noticed:?}"
    );
    drive(&mut driver, &mut NoSignals).await.unwrap();
    drop((driver, lease));
    let journal = setting.store().journal(&RunId::new("r1").unwrap()).await.unwrap();
    let behind = |entry: &Entry| entry.event == stagger_core::run::Event::JournalBehind;
    assert!(journal.iter().any(behind), "it is written down");
}

#[tokio::test]
async fn a_journal_that_has_all_that_the_world_was_told_is_nobody_elses() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 3).await;
    drop(driver);
    lease.release(&backend).await.unwrap();
    setting.calls();
    to_the_end(setting.resume(&backend, "r1").await.unwrap(), &backend).await;
    assert_eq!(setting.notices.0.lock().unwrap().clone(), []);
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("u.0 u.1 u.2")),
        "only where an intent was open: {calls:?}"
    );
}
