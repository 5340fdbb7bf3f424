//! Several processes share one store: the one that carries a run out is killed, or stopped and woken up later, and
//! another carries on. The world is a folder, the lock is in the store.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    BudgetsBuilder, ClusterName, GoingBack, Growth, Kind, Limit, Part, PartName, Phase, Policy, Revision,
    Snapshot, StageSpec, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Action, Answer, Ending, Entry, Event, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::{Backend, BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};
use stagger_engine::database::StoreLocation;
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::{Driver, DriverParts, Listener};
use stagger_engine::lease::Lease;
use stagger_engine::postgres::{self, DatabaseAddress, PostgresLocks};
use stagger_engine::sqlite::SqliteLocks;
use stagger_engine::store::Locks;
use stagger_engine::supervisor::{self, Identity, SuperviseError};

#[path = "../../versioned/tests/all/server.rs"]
mod server;
use server::Server;

const UNITS: usize = 6;
/// What a phase of a visit takes.
const PHASE: Duration = Duration::from_millis(300);

/// Where this process finds the world and its store.
#[derive(Debug, Clone)]
struct Setting {
    folder: PathBuf,
    place: StoreLocation,
    expires: Duration,
}

/// Units are files: up or down, what they run, and the token that they have seen.
struct Folder {
    cluster: ClusterName,
    setting: Setting,
    locks: Box<dyn Locks>,
}

impl Setting {
    fn unit(&self, unit: &str) -> PathBuf {
        self.folder.join(unit)
    }

    fn read(&self, unit: &str) -> (bool, String, u64) {
        let text = fs::read_to_string(self.unit(unit)).unwrap();
        let parts: Vec<&str> = text.split(' ').collect();
        (parts[0] == "up", parts[1].to_owned(), parts[2].parse().unwrap())
    }

    /// Changes a unit, as one who alone does so.
    fn change(
        &self,
        unit: &str,
        change: impl FnOnce(&mut (bool, String, u64)) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let lock = File::create(self.folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let mut now = self.read(unit);
        change(&mut now)?;
        let text = format!("{} {} {}", if now.0 { "up" } else { "down" }, now.1, now.2);
        fs::write(self.folder.join("new"), text).unwrap();
        fs::rename(self.folder.join("new"), self.unit(unit)).unwrap();
        let down = (0..UNITS).filter(|nth| !self.read(&format!("u.{nth}")).0).count();
        let mut log = File::options()
            .append(true)
            .create(true)
            .open(self.folder.join("log"))
            .unwrap();
        writeln!(log, "{down}").unwrap();
        Ok(())
    }

    /// How many units were down after each change.
    fn log(&self) -> Vec<usize> {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn world(&self) -> Arc<Folder> {
        let locks: Box<dyn Locks> = match &self.place {
            StoreLocation::File(path) => Box::new(SqliteLocks::open(path).unwrap()),
            StoreLocation::Server(address) => Box::new(PostgresLocks::new(address).unwrap()),
        };
        Arc::new(Folder {
            cluster: ClusterName::new("lab").unwrap(),
            setting: self.clone(),
            locks,
        })
    }
}

#[async_trait]
impl Executor for Folder {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let units = (0..UNITS).map(|nth| {
            let name = format!("u.{nth}");
            let (up, runs, _) = self.setting.read(&name);
            Unit {
                id: UnitId::new(name).unwrap(),
                kind: Kind::new("u").unwrap(),
                state: if up { UnitState::Serving } else { UnitState::Down },
                revision: Some(Revision::new(runs).unwrap()),
                domains: BTreeMap::new(),
                precedence: 0,
                untouchable: None,
            }
        });
        let snapshot = Snapshot::new(
            self.cluster.clone(),
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
        let Action::Visit { phase, unit, .. } = action else {
            return Err(BackendError::permanent(
                format!("{action:?}"),
                "nothing here needs it",
            ));
        };
        // What was announced takes its time, and is sent late by one who was stopped.
        tokio::time::sleep(PHASE).await;
        self.setting.change(unit.as_str(), |(up, runs, fence)| {
            if call.fence < *fence {
                return Err(BackendError::permanent(format!("{phase:?} {unit}"), "fenced out"));
            }
            match phase {
                Phase::Prepare => {}
                Phase::Enter => *up = false,
                Phase::Change => "2".clone_into(runs),
                Phase::Leave => *up = true,
            }
            Ok(())
        })?;
        Ok(String::new())
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        for unit in units {
            self.setting.change(unit.as_str(), |(_, _, seen)| {
                *seen = fence.max(*seen);
                Ok(())
            })?;
        }
        Ok(())
    }

    async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        Ok(Vec::new())
    }

    fn poll(&self) -> Duration {
        Duration::from_millis(50)
    }
}

#[async_trait]
impl Lock for Folder {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.locks
            .lock(&self.cluster, claim, at_least, self.setting.expires)
            .await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.locks
            .renew(&self.cluster, claim, fence, self.setting.expires)
            .await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.locks.unlock(&self.cluster, claim, fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.setting.expires
    }
}

struct Nobody;

impl Listener for Nobody {
    fn event(&mut self, _: &Entry, _: &Run) {}
}

fn target() -> Target {
    Target {
        title: "1 to 2".to_owned(),
        parts: vec![Part::Stage(StageSpec {
            name: PartName::new("units").unwrap(),
            kind: Kind::new("u").unwrap(),
            revision: Revision::new("2").unwrap(),
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

fn policy() -> Policy {
    Policy {
        max_in_parallel: Limit::Count(1),
        growth: Growth::None,
        canary_soak: 0,
        gate_hold: 0,
        ..Policy::default()
    }
}

/// Begins the run, or carries it on.
async fn taken(setting: &Setting, world: &Arc<Folder>) -> Result<(Driver, Lease), SuperviseError> {
    let parts = DriverParts {
        backend: Arc::clone(world) as Arc<dyn Backend>,
        store: setting.place.open().await?,
        clock: Arc::new(SystemClock),
        artifacts: Artifacts::in_folder(setting.folder.join("artifacts")),
        listener: Box::new(Nobody),
    };
    let who = Identity::current_process();
    if let Some(listed) = parts.store.runs().await?.first() {
        return supervisor::resume(parts, &who, &listed.run.clone()).await;
    }
    let run = supervisor::new_run_id(Timestamp::now());
    supervisor::start(
        parts,
        &who,
        run,
        target(),
        policy(),
        serde_json::Value::Null,
        stagger_core::model::Topology::default(),
    )
    .await
}

/// Waits for the lock, and carries the run out as far as it may.
async fn hold(setting: &Setting) -> Result<Stopped, String> {
    let world = setting.world();
    let begun = Instant::now();
    let (mut driver, lease) = loop {
        match taken(setting, &world).await {
            Ok(taken) => break taken,
            Err(SuperviseError::Lock(_)) if begun.elapsed() < Duration::from_secs(100) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(format!("{error:?}")),
        }
    };
    let end = drive(&mut driver, &mut NoSignals)
        .await
        .map_err(|error| format!("{error:?}"))?;
    let backend: Arc<dyn Backend> = world;
    lease.release(&backend).await.map_err(|error| error.to_string())?;
    Ok(end)
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn new_world(folder: &Path, place: StoreLocation, expires: Duration) -> Setting {
    let setting = Setting {
        folder: folder.to_owned(),
        place,
        expires,
    };
    for nth in 0..UNITS {
        fs::write(setting.unit(&format!("u.{nth}")), "up 1 0").unwrap();
    }
    setting
}

const FOLDER: &str = "HANDOVER_FOLDER";
const URL: &str = "HANDOVER_URL";
const EXPIRES: &str = "HANDOVER_EXPIRES_MS";

/// Alone it is a test of this world; the other tests start it as a process of its own, and its end is that process's.
#[test]
fn a_holder_carries_the_run_out() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        let place = match std::env::var(URL) {
            Ok(url) => StoreLocation::Server(DatabaseAddress::new(&url, None).unwrap()),
            Err(_) => StoreLocation::File(folder.join("journal.db")),
        };
        let expires = std::env::var(EXPIRES).unwrap().parse().unwrap();
        let setting = Setting {
            folder,
            place,
            expires: Duration::from_millis(expires),
        };
        let end = in_runtime(hold(&setting));
        assert_eq!(end, Ok(Stopped::Over(Ending::Done)));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = StoreLocation::File(folder.path().join("journal.db"));
    let setting = new_world(folder.path(), place, Duration::from_secs(5));
    assert_eq!(in_runtime(hold(&setting)), Ok(Stopped::Over(Ending::Done)));
    all_is_well(&setting, 1);
}

/// Every unit serves on the target, never were two down, and the journal tells of that many holders.
fn all_is_well(setting: &Setting, holders: usize) {
    for nth in 0..UNITS {
        let (up, runs, _) = setting.read(&format!("u.{nth}"));
        assert!(up && runs == "2", "u.{nth}: up {up}, runs {runs}");
    }
    let log = setting.log();
    assert!(log.iter().all(|down| *down <= 1), "units down: {log:?}");
    let entries = in_runtime(async {
        let store = setting.place.open().await.unwrap();
        let runs = store.runs().await.unwrap();
        assert_eq!(runs.len(), 1);
        store.journal(&runs[0].run).await.unwrap()
    });
    let fences: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match entry.event {
            Event::LeaseTaken { fence, .. } => Some(fence),
            _ => None,
        })
        .collect();
    assert!(
        fences.is_sorted() && fences.len() == holders,
        "holders: {fences:?}"
    );
    assert!(matches!(entries.last().unwrap().event, Event::Ended { .. }));
}

fn start(setting: &Setting, name: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let told = File::create(setting.folder.join(format!("{name}.txt"))).unwrap();
    command
        .args(["--exact", "a_holder_carries_the_run_out", "--nocapture"])
        .env(FOLDER, &setting.folder)
        .env(EXPIRES, setting.expires.as_millis().to_string())
        .stdout(Stdio::null())
        .stderr(told);
    if let StoreLocation::Server(address) = &setting.place {
        command.env(URL, address.to_string());
    }
    command.spawn().unwrap()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

fn the_holder_is_killed(setting: &Setting) {
    let mut first = start(setting, "first");
    until("a second unit down", || setting.log().len() >= 5);
    signal(&first, "-KILL");
    first.wait().unwrap();
    let mut second = start(setting, "second");
    let third = start(setting, "third");
    assert!(second.wait().unwrap().success() || third.wait_with_output().unwrap().status.success());
    all_is_well(setting, 2);
}

/// It wakes up when another has finished the run.
fn the_holder_is_stopped(setting: &Setting, stopped: Duration) {
    let mut first = start(setting, "first");
    until("a second unit down", || setting.log().len() >= 5);
    // Not while it writes to a file, which nobody else could write to as long as it is stopped.
    std::thread::sleep(PHASE / 3);
    signal(&first, "-STOP");
    let begun = Instant::now();
    let before = setting.log().len();
    let mut second = start(setting, "second");
    std::thread::sleep(setting.expires / 2);
    assert!(
        setting.log().len() <= before + 1,
        "the lock was taken from one who had it"
    );
    until("the other goes on", || setting.log().len() > before + 3);
    std::thread::sleep(stopped.saturating_sub(begun.elapsed()));
    signal(&first, "-CONT");
    assert!(second.wait().unwrap().success());
    assert!(!first.wait().unwrap().success(), "it went on");
    let told = fs::read_to_string(setting.folder.join("first.txt")).unwrap();
    assert!(told.contains("LeaseLost") || told.contains("FencedOut"), "{told}");
    all_is_well(setting, 2);
}

const SHORT: Duration = Duration::from_secs(2);

fn in_a_file(test: impl FnOnce(&Setting)) {
    let folder = tempfile::tempdir().unwrap();
    let place = StoreLocation::File(folder.path().join("journal.db"));
    test(&new_world(folder.path(), place, SHORT));
}

#[test]
fn a_killed_holder_is_followed_by_another() {
    in_a_file(the_holder_is_killed);
}

#[test]
fn a_stopped_holder_is_followed_by_another_and_does_nothing_when_it_wakes_up() {
    in_a_file(|setting| the_holder_is_stopped(setting, SHORT * 3));
}

fn on_postgres(expires: Duration, test: impl FnOnce(&Setting)) {
    let server = Server::start();
    let address = DatabaseAddress::new(&server.url("postgres"), None).unwrap();
    let upgraded = in_runtime(async {
        let mut upgraded = postgres::upgrade(&address).await;
        for _ in 0..100 {
            if upgraded.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            upgraded = postgres::upgrade(&address).await;
        }
        upgraded
    });
    assert_eq!(upgraded.unwrap(), 0);
    let folder = tempfile::tempdir().unwrap();
    test(&new_world(folder.path(), StoreLocation::Server(address), expires));
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn a_killed_holder_is_followed_on_postgres() {
    on_postgres(SHORT, the_holder_is_killed);
}

#[test]
#[ignore = "needs PostgreSQL, as the one above, and a minute"]
fn a_holder_stopped_for_a_minute_is_followed_on_postgres() {
    on_postgres(Duration::from_secs(6), |setting| {
        the_holder_is_stopped(setting, Duration::from_mins(1));
    });
}
