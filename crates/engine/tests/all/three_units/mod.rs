//! A cluster with three units under any names, and runs on it.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    BudgetsBuilder, ClusterId, ClusterName, GoingBack, Growth, Kind, Limit, Part, PartName, Phase, Policy,
    Revision, RunId, Snapshot, StageSpec, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Action, Answer, Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord,
};
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::{Driver, DriverParts, Listener, Notice};
use stagger_engine::lease::Lease;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore as _, Presence};
use stagger_engine::supervisor::{self, Identity, SuperviseError};

/// What is true of a cluster with three units, whoever looks.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    units: BTreeMap<String, (bool, String)>,
    pub(crate) fence: u64,
    holder: Option<LockRecord>,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) calls: Vec<String>,
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
pub(crate) struct Notices(pub(crate) Arc<Mutex<Vec<Notice>>>);

impl Listener for Notices {
    fn notice(&mut self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.clone());
    }
    fn event(&mut self, _: &Entry, _: &Run) {}
}

/// A world, a folder for stores, and what was noticed.
pub(crate) struct Setting {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) truth: Arc<Mutex<Truth>>,
    pub(crate) notices: Notices,
}

impl Setting {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.journal()).unwrap()
    }

    pub(crate) fn named(&self, name: &str, identity: &str) -> Arc<dyn Backend> {
        Arc::new(Named {
            name: ClusterName::new(name).unwrap(),
            identity: ClusterId::new(identity).unwrap(),
            truth: Arc::clone(&self.truth),
        })
    }

    pub(crate) fn parts(&self, backend: &Arc<dyn Backend>) -> DriverParts {
        DriverParts {
            backend: Arc::clone(backend),
            store: Box::new(self.store()),
            clock: Arc::new(SystemClock),
            artifacts: Artifacts::in_folder(self.folder.path().join("artifacts")),
            listener: Box::new(self.notices.clone()),
        }
    }

    pub(crate) async fn start(
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

    pub(crate) async fn resume(
        &self,
        backend: &Arc<dyn Backend>,
        run: &str,
    ) -> Result<(Driver, Lease), SuperviseError> {
        let (who, run) = (Identity::current_process(), RunId::new(run).unwrap());
        supervisor::resume(self.parts(backend), &who, &run).await
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.truth.lock().unwrap().calls)
    }

    pub(crate) async fn presence(&self, run: &str) -> Presence {
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
pub(crate) async fn to_the_end((mut driver, lease): (Driver, Lease), backend: &Arc<dyn Backend>) {
    let end = drive(&mut driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    drop(driver);
    lease.release(backend).await.unwrap();
}

/// So far that so many calls were made.
pub(crate) async fn so_far(driver: &mut Driver, setting: &Setting, calls: usize) {
    while setting.truth.lock().unwrap().calls.len() < calls {
        driver.step().await.unwrap();
    }
}
