//! The driver and calls that may still land: of its own whose answers are lost, and of a holder before
//! whose journal is elsewhere.

#![expect(clippy::unwrap_used, reason = "what is made here is made of valid names")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    BudgetsBuilder, ClusterName, Code, GoingBack, HostName, Kind, Part, PartName, Phase, Policy, Revision,
    RunId, Snapshot, StageSpec, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Action, Answer, Command, Ending, Event, Seq};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::backend::{Backend, BackendError, Call, Fencing, LockError, LockRecord};
use stagger_engine::clock::Clock;
use stagger_engine::driver::{Driver, Listener, Parts, Step};
use stagger_engine::lease::Lease;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::supervisor::{self, Identity};

/// One unit. The answer to the first enters is lost, and they land just before the next call.
#[derive(Debug)]
struct OneUnit {
    clock: Arc<Waiting>,
    cluster: ClusterName,
    /// How many answers are lost.
    lost: usize,
    /// How many tokens the cluster has given to others.
    others: u64,
    /// There is another unit, and the first takes no fence.
    deaf: bool,
    /// The first is not reached at all now.
    away: AtomicBool,
    /// Up, what it runs, and the calls made to it.
    unit: Mutex<(bool, &'static str, Vec<String>)>,
}

/// Time that passes when somebody waits.
#[derive(Debug)]
struct Waiting(Mutex<Timestamp>);

#[async_trait]
impl Clock for Waiting {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
    fn up(&self) -> Duration {
        self.now().duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
    }
    async fn sleep_until(&self, until: Timestamp) {
        *self.0.lock().unwrap() = until;
    }
}

struct Nobody;

impl Listener for Nobody {
    fn event(&mut self, _: &stagger_core::run::Entry, _: &stagger_core::run::Run) {}
}

#[async_trait]
impl Backend for OneUnit {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let (up, runs, _) = &*self.unit.lock().unwrap();
        let unit = Unit {
            id: UnitId::new("u.1").unwrap(),
            kind: Kind::new("u").unwrap(),
            state: if *up { UnitState::Serving } else { UnitState::Down },
            revision: Some(Revision::new(*runs).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        };
        let mut units = vec![unit];
        if self.deaf {
            let mut other = units[0].clone();
            other.id = UnitId::new("v.1").unwrap();
            other.kind = Kind::new("v").unwrap();
            units.push(other);
        }
        let (cluster, none) = (self.cluster.clone(), BudgetsBuilder::default().build());
        let at = self.clock.now();
        let snapshot = Snapshot::new(
            cluster,
            at,
            String::new(),
            units,
            none,
            Vec::new(),
            BTreeMap::new(),
        );
        snapshot.map_err(|error| BackendError::permanent("observe", error.to_string()))
    }

    async fn may_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
        Ok(Answer::NoOracle)
    }

    fn rail(&self, _: &Action) -> Fencing {
        Fencing::Fenced
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let Action::Visit { phase, .. } = action else {
            return Err(BackendError::permanent(
                format!("{action:?}"),
                "nothing here needs it",
            ));
        };
        let mut unit = self.unit.lock().unwrap();
        unit.2.push(format!("{phase:?} {}", call.seq));
        match phase {
            Phase::Prepare => {}
            Phase::Enter if unit.2.len() <= self.lost => {
                return Err(BackendError::transient("enter", "no answer").outcome_unknown());
            }
            Phase::Enter => unit.0 = false,
            Phase::Change => unit.1 = "2",
            Phase::Leave => unit.0 = true,
        }
        Ok(String::new())
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
        let is_away = self.deaf || self.away.load(Ordering::Relaxed);
        if is_away && names.contains(&"u.1") {
            return Err(BackendError::transient("raise the fence", "u.1 is away"));
        }
        let raised = format!("fence {fence} on {}", names.join(" "));
        self.unit.lock().unwrap().2.push(raised);
        Ok(())
    }

    async fn collect(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        Ok(Vec::new())
    }

    async fn lock(&self, _: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        Ok(at_least + 1 + self.others)
    }

    async fn renew(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_mins(1)
    }

    fn poll(&self) -> Duration {
        Duration::from_secs(1)
    }
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

/// The world, a driver that has begun, and the folder with its journal.
struct Begun {
    world: Arc<OneUnit>,
    driver: Driver,
    _lease: Lease,
    folder: tempfile::TempDir,
}

impl Begun {
    async fn with(lost: usize, others: u64) -> Self {
        Self::new(lost, others, false).await
    }

    async fn new(lost: usize, others: u64, deaf: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Waiting(Mutex::new(Timestamp::UNIX_EPOCH)));
        let world = Arc::new(OneUnit {
            clock: Arc::clone(&clock),
            cluster: ClusterName::new("c").unwrap(),
            lost,
            others,
            deaf,
            away: AtomicBool::new(false),
            unit: Mutex::new((true, "1", Vec::new())),
        });
        let parts = parts(&world, &folder);
        let run = RunId::new("r1").unwrap();
        let who = Identity::of_this_process();
        let (driver, lease) = supervisor::start(
            parts,
            &who,
            run,
            target(),
            Policy::default(),
            serde_json::Value::Null,
            stagger_core::model::Topology::default(),
        )
        .await
        .unwrap();
        Self {
            world,
            driver,
            _lease: lease,
            folder,
        }
    }

    /// Another process takes it over.
    async fn taken_over(self) -> Self {
        let Self {
            world,
            driver,
            _lease: lease,
            folder,
        } = self;
        let run = driver.run().start().run.clone();
        drop((driver, lease));
        world.unit.lock().unwrap().2.clear();
        let who = Identity::of_this_process();
        let (driver, lease) = supervisor::resume(parts(&world, &folder), &who, &run)
            .await
            .unwrap();
        Self {
            world,
            driver,
            _lease: lease,
            folder,
        }
    }

    fn calls(&self) -> Vec<String> {
        self.world.unit.lock().unwrap().2.clone()
    }
}

fn parts(world: &Arc<OneUnit>, folder: &tempfile::TempDir) -> Parts {
    Parts {
        backend: Arc::clone(world) as Arc<dyn Backend>,
        store: Box::new(SqliteStore::open(&folder.path().join("journal.db")).unwrap()),
        clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
        artifacts: Artifacts::in_folder(folder.path().join("artifacts")),
        listener: Box::new(Nobody),
    }
}

#[tokio::test]
async fn a_lost_answer_settles_nothing_and_the_call_is_made_again_with_the_same_key() {
    let mut begun = Begun::with(1, 0).await;
    let end = begun.driver.drive(|| None).await.unwrap();
    assert_eq!(end, Step::Over(Ending::Done));
    let calls = begun.calls();
    assert_eq!(calls[0], calls[1], "the same key: {calls:?}");
    assert_eq!(
        calls.len(),
        4,
        "nothing is done behind the back of the late call: {calls:?}"
    );
    let waited = begun.driver.run().started_at() + SignedDuration::from_secs(1);
    let journal = SqliteStore::open(&begun.folder.path().join("journal.db")).unwrap();
    let journal = stagger_engine::store::Store::journal(&journal, &begun.driver.run().start().run).unwrap();
    let first = journal
        .iter()
        .find(|entry| matches!(entry.event, Event::Settled { .. }))
        .unwrap();
    assert!(first.at >= waited, "the first answer settled nothing");
}

#[tokio::test]
async fn a_host_that_is_gone_for_good_ends_in_a_hold_and_a_person_lets_it_go_on() {
    let mut begun = Begun::with(8, 0).await;
    let end = begun.driver.drive(|| None).await.unwrap();
    let Step::Held(reason) = end else {
        panic!("{end:?}")
    };
    assert_eq!(reason.code, Code::OutcomeUnknown);
    assert!(reason.detail.contains("no answer"), "{reason}");
    let held = begun.driver.run().held().map(|(held, _)| held.code.clone());
    assert_eq!(held, Some(Code::OutcomeUnknown), "the journal says so");
    let calls = begun.calls();
    assert_eq!(calls.len(), 8, "{calls:?}");
    assert!(
        calls.iter().all(|call| *call == calls[0]),
        "nothing else: {calls:?}"
    );

    begun.driver.ask(Command::Resume, "a person").unwrap();
    let end = begun.driver.drive(|| None).await.unwrap();
    assert_eq!(end, Step::Over(Ending::Done));
    assert!(begun.driver.run().held().is_none());
}

#[tokio::test]
async fn where_a_holder_before_kept_its_journal_elsewhere_the_fence_is_raised_on_every_unit_first() {
    let mut begun = Begun::with(0, 3).await;
    begun.driver.drive(|| None).await.unwrap();
    assert_eq!(begun.calls()[0], "fence 4 on u.1");
    assert_eq!(begun.calls().len(), 4, "once: {:?}", begun.calls());

    let mut alone = Begun::with(0, 0).await;
    alone.driver.drive(|| None).await.unwrap();
    assert!(
        alone.calls().iter().all(|call| !call.contains("fence")),
        "{:?}",
        alone.calls()
    );
}

impl Begun {
    /// The one intent that is open.
    fn open(&self) -> Seq {
        let open: Vec<_> = self.driver.run().open().map(|(seq, _)| seq).collect();
        assert_eq!(open.len(), 1, "{open:?}");
        open[0]
    }

    fn journal(&self) -> Vec<Event> {
        let journal = SqliteStore::open(&self.folder.path().join("journal.db")).unwrap();
        let journal =
            stagger_engine::store::Store::journal(&journal, &self.driver.run().start().run).unwrap();
        journal.into_iter().map(|entry| entry.event).collect()
    }
}

fn off() -> Command {
    Command::Confirm {
        host: HostName::new("u.1").unwrap(),
        ended: Vec::new(),
    }
}

#[tokio::test]
async fn what_is_open_on_a_host_that_is_off_by_a_person_s_word_has_failed() {
    let mut begun = Begun::with(8, 0).await;
    let Step::Held(reason) = begun.driver.drive(|| None).await.unwrap() else {
        panic!("it is not held")
    };
    assert!(reason.detail.contains("stagger confirm HOST is-off"), "{reason}");
    let intent = begun.open();
    assert!(
        reason.detail.contains(&format!("stagger settle {intent} done")),
        "{reason}"
    );
    let elsewhere = Command::Confirm {
        host: HostName::new("u.2").unwrap(),
        ended: vec![],
    };
    begun.driver.ask(elsewhere, "anna@ops1").unwrap();
    assert_eq!(begun.open(), intent, "another host is another matter");
    begun.driver.ask(off(), "anna@ops1").unwrap();
    assert_eq!(begun.driver.run().open().count(), 0);
    assert!(begun.driver.run().held().is_none());
    let end = begun.driver.drive(|| None).await.unwrap();
    assert!(matches!(end, Step::Over(_)), "{end:?}");
    let journal = begun.journal();
    let told = journal.iter().any(|event| {
        matches!(event, Event::Asked { command: Command::Confirm { host, ended }, by }
            if host.as_str() == "u.1" && *ended == [intent] && by == "anna@ops1")
    });
    assert!(told, "who said it and what it settled stands in the journal");
    let settled = |event: &Event| matches!(event, Event::Settled { intent: of, .. } if *of == intent);
    assert!(!journal.iter().any(settled), "it is settled once");
}

#[tokio::test]
async fn one_effect_is_settled_by_a_person_s_word() {
    let mut begun = Begun::with(8, 0).await;
    begun.driver.drive(|| None).await.unwrap();
    let intent = begun.open();
    for of in [intent + 1000, intent] {
        let command = Command::Settle {
            intent: of,
            done: true,
        };
        begun.driver.ask(command, "anna@ops1").unwrap();
    }
    let end = begun.driver.drive(|| None).await.unwrap();
    assert_eq!(end, Step::Over(Ending::Done));
    let calls = begun.calls();
    assert_eq!(calls.len(), 10, "nobody enters it again: {calls:?}");
}

#[tokio::test]
async fn a_host_that_takes_no_fence_is_named_and_keeps_no_other_unguarded() {
    let mut begun = Begun::new(0, 3, true).await;
    let error = begun.driver.drive(|| None).await.unwrap_err().to_string();
    assert!(error.contains("under way on u.1 (u.1)"), "{error}");
    assert_eq!(begun.calls(), ["fence 4 on v.1"], "and nothing else is begun");
    begun.driver.ask(off(), "anna@ops1").unwrap();
    let end = begun.driver.drive(|| None).await.unwrap();
    assert_eq!(end, Step::Over(Ending::Done));
}

/// What is open there stays so, is tried again, and nothing is done to the unit before the fence is raised on it.
#[tokio::test]
async fn a_host_that_is_not_reached_by_who_takes_over_blocks_nobody_else() {
    let mut begun = Begun::with(8, 0).await;
    begun.driver.drive(|| None).await.unwrap();
    let intent = begun.open();
    begun.world.away.store(true, Ordering::Relaxed);
    let mut begun = begun.taken_over().await;
    assert_eq!(begun.open(), intent, "the run was taken over all the same");
    let Step::Held(reason) = begun.driver.drive(|| None).await.unwrap() else {
        panic!("it is not held")
    };
    assert_eq!(reason.code, Code::OutcomeUnknown);
    for words in ["u.1 is away", "stagger confirm HOST is-off"] {
        assert!(reason.detail.contains(words), "{reason}");
    }
    assert_eq!(begun.calls(), Vec::<String>::new(), "nothing was sent to it");
    begun.world.away.store(false, Ordering::Relaxed);
    begun.driver.ask(Command::Resume, "anna@ops1").unwrap();
    begun.driver.drive(|| None).await.unwrap();
    let calls = begun.calls();
    assert_eq!(
        calls[..2],
        ["fence 2 on u.1".to_owned(), format!("Enter {intent}")]
    );
    let fences = calls.iter().filter(|call| call.starts_with("fence")).count();
    assert_eq!(fences, 1, "{calls:?}");
}

/// Its fence can be raised by nobody: a person's word leads on.
#[tokio::test]
async fn a_host_that_is_not_reached_and_is_off_keeps_nobody_waiting() {
    let mut begun = Begun::with(8, 0).await;
    begun.driver.drive(|| None).await.unwrap();
    begun.world.away.store(true, Ordering::Relaxed);
    let mut begun = begun.taken_over().await;
    begun.driver.drive(|| None).await.unwrap();
    assert_eq!(begun.calls(), Vec::<String>::new());
    begun.driver.ask(off(), "anna@ops1").unwrap();
    assert_eq!(begun.driver.run().open().count(), 0);
    // Its unit has its turn again, and eight answers more are lost: a person is asked again, and nobody waits for a fence.
    let Step::Held(reason) = begun.driver.drive(|| None).await.unwrap() else {
        panic!("it is not held")
    };
    assert!(reason.detail.contains("enter: no answer"), "{reason}");
    begun.driver.ask(Command::Resume, "anna@ops1").unwrap();
    let end = begun.driver.drive(|| None).await.unwrap();
    assert_eq!(end, Step::Over(Ending::Done));
    let fences = begun.calls().into_iter().filter(|call| call.starts_with("fence"));
    assert_eq!(fences.count(), 0, "{:?}", begun.calls());
}
