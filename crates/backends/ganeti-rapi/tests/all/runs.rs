//! Whole runs, through the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, Reason, RunId, Snapshot, UnitId};
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Seq};
use stagger_engine::backend::{Backend, BackendError, Call, Claim, LockError, Rail};
use stagger_engine::clock::Clock as _;
use stagger_engine::driver::{Parts, Step};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{Listed, Store, StoreError};
use stagger_engine::supervisor::{self, Identity};
use stagger_ganeti_rapi::backend::GanetiBackend;
use stagger_ganeti_rapi::config::NonRedundant;
use stagger_ganeti_rapi::fence;
use stagger_ganeti_rapi::target::target;
use stagger_ganeti_rapi::translate::Memory;
use stagger_ganeti_rapi::visit::Places;

use crate::common::{Hasty, Setup, Talk, artifacts, policy, rebooted, setup};
use crate::double::queue::Op;
use crate::double::{Dies, Fault, Then, World};

/// Five nodes, mirrored instances in a ring, a shared one, one that is down.
pub fn mixed() -> World {
    let mut world = World::with_nodes(5);
    world.now.nodes.get_mut("n5").unwrap().role = "R";
    for (name, pnode, snode) in [
        ("a", "n1", "n2"),
        ("b", "n2", "n3"),
        ("c", "n3", "n4"),
        ("d", "n4", "n5"),
        ("e", "n5", "n1"),
        ("e2", "n5", "n1"),
    ] {
        world.add(name, "drbd", pnode, Some(snode));
    }
    world.add("s", "sharedfile", "n2", None);
    world.add_down("down", "drbd", "n3", Some("n1"));
    world
}

pub fn places() -> Places {
    Places {
        guests: [("n2".to_owned(), [("s".to_owned(), "n5".to_owned())].into())].into(),
        ..Places::default()
    }
}

/// Another master by a command that leaves a word for the double.
pub fn with_failover(setup: &mut Setup) -> PathBuf {
    let file = setup.folder.path().join("new-master");
    setup.settings.cluster.visits.failover = Some(format!(
        "echo {{successor}} > {0}.new && mv {0}.new {0}",
        file.display()
    ));
    setup.world().new_master = Some(file.clone());
    file
}

#[derive(Debug)]
pub enum End {
    Over(Ending),
    Held(Reason),
    Killed,
}

/// One process after another on one journal.
pub struct Lives<'a> {
    pub setup: &'a Setup,
    pub memory: Memory,
    pub places: Places,
    pub journal: PathBuf,
    /// The next process dies at that touch of its journal; 0: it does not.
    pub dies_at_append: u64,
    /// Touches of its journal, of the last process.
    pub appends: u64,
    /// With the lock in the cluster, which takes its time where another held it.
    pub locks: bool,
    number: u32,
}

impl<'a> Lives<'a> {
    pub async fn new(setup: &'a Setup) -> Self {
        Self {
            memory: setup.memory().await,
            places: places(),
            journal: setup.folder.path().join("journal.db"),
            setup,
            dies_at_append: 0,
            appends: 0,
            locks: false,
            number: 0,
        }
    }

    fn parts(&self, fuse: &Arc<Fuse>) -> Parts {
        let clock = Arc::new(Hasty::default());
        let inner = self.setup.backend(Some(self.memory.clone()));
        inner.set_places(self.places.clone());
        Parts {
            backend: Arc::new(InHaste {
                inner,
                clock: Arc::clone(&clock),
                locks: self.locks,
            }),
            store: Box::new(FusedStore {
                store: SqliteStore::open(&self.journal).unwrap(),
                fuse: Arc::clone(fuse),
            }),
            clock,
            artifacts: artifacts(self.setup.folder.path()),
            listener: Box::new(Talk),
        }
    }

    /// One process: it starts the run, or carries it on.
    pub async fn live(&mut self) -> End {
        self.number += 1;
        let fuse = Arc::new(Fuse {
            at: self.dies_at_append,
            ..Fuse::default()
        });
        self.dies_at_append = 0;
        let killed = Arc::clone(&self.setup.world().killed);
        let end = tokio::select! {
            () = killed.notified() => End::Killed,
            end = self.one(&fuse) => end,
        };
        self.appends = fuse.passed.load(Ordering::SeqCst);
        end
    }

    async fn one(&self, fuse: &Arc<Fuse>) -> End {
        let run = RunId::new("run-1").unwrap();
        let who = Identity {
            incarnation: format!("life-{}", self.number),
            host: "ops1".to_owned(),
            process: self.number,
        };
        let begun = !matches!(
            SqliteStore::open(&self.journal).unwrap().journal(&run),
            Err(StoreError::NoRun(_))
        );
        let parts = self.parts(fuse);
        let started = if begun {
            supervisor::resume(parts, &who, &run).await
        } else {
            let visits = &self.setup.settings.cluster.visits;
            let target = target(&rebooted(), visits, &policy()).unwrap();
            let memory = serde_json::to_value(&self.memory).unwrap();
            supervisor::start(parts, &who, run.clone(), target, policy(), memory).await
        };
        let (mut driver, _lease) = match started {
            Ok(both) => both,
            Err(_) if fuse.is_dead() => return End::Killed,
            Err(supervisor::SuperviseError::Over(_)) => {
                let store = SqliteStore::open(&self.journal).unwrap();
                let replayed = supervisor::replay(&store, &run).unwrap();
                return End::Over(replayed.ended().unwrap().clone());
            }
            Err(error) => panic!("{error:?}"),
        };
        match driver.drive(|| None).await {
            Ok(_) | Err(_) if fuse.is_dead() => End::Killed,
            Ok(Step::Over(ending)) => End::Over(ending),
            Ok(Step::Held(reason)) => End::Held(reason),
            Ok(other) => panic!("{other:?}"),
            Err(error) => panic!("{error:?}"),
        }
    }

    pub fn ask(&self, command: &Command) {
        let mut store = SqliteStore::open(&self.journal).unwrap();
        let run = RunId::new("run-1").unwrap();
        supervisor::ask(&mut store, &run, Timestamp::now(), command, "test").unwrap();
    }
}

/// The backend with the time of a clock that jumps. Unless it locks, the lock is only a token, which each
/// process raises: a dead one's need not be waited out.
struct InHaste {
    inner: GanetiBackend,
    clock: Arc<Hasty>,
    locks: bool,
}

#[async_trait]
impl Backend for InHaste {
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let at = self.clock.now();
        let mut document = serde_json::to_value(self.inner.observe().await?).unwrap();
        document["observed_at"] = serde_json::to_value(at).unwrap();
        Ok(serde_json::from_value(document).unwrap())
    }
    async fn may_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.inner.may_stop(units).await
    }
    fn rail(&self, action: &Action) -> Rail {
        self.inner.rail(action)
    }
    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        self.inner.perform(call, action).await
    }
    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.inner.raise_fence(fence, units).await
    }
    async fn collect(&self, call: &Call, units: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.inner.collect(call, units).await
    }
    async fn lock(&self, claim: &Claim, at_least: u64) -> Result<u64, LockError> {
        if self.locks {
            return self.inner.lock(claim, at_least).await;
        }
        let rapi = self.inner.rapi();
        let filters = rapi
            .filters()
            .await
            .map_err(|error| LockError::Backend(error.of("lock", true)))?;
        let token = at_least.max(fence::newest(&filters)) + 1;
        fence::raise(rapi, token).await.map_err(LockError::Backend)?;
        Ok(token)
    }
    async fn renew(&self, claim: &Claim, fence: u64) -> Result<(), LockError> {
        if self.locks {
            return self.inner.renew(claim, fence).await;
        }
        Ok(())
    }
    async fn unlock(&self, _: &Claim, _: u64) -> Result<(), LockError> {
        Ok(())
    }
    fn lock_expires(&self) -> Duration {
        if self.locks {
            return self.inner.lock_expires();
        }
        Duration::from_secs(3600 * 24 * 365)
    }
    fn poll(&self) -> Duration {
        self.inner.poll()
    }
}

#[derive(Debug, Default)]
pub struct Fuse {
    at: u64,
    passed: AtomicU64,
    dead: AtomicBool,
}

impl Fuse {
    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn pass(&self) -> Result<(), StoreError> {
        let point = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if point == self.at {
            self.dead.store(true, Ordering::SeqCst);
        }
        if self.is_dead() {
            return Err(StoreError::Failed {
                tried: "live".to_owned(),
                why: "killed".to_owned(),
            });
        }
        Ok(())
    }
}

struct FusedStore {
    store: SqliteStore,
    fuse: Arc<Fuse>,
}

impl Store for FusedStore {
    fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.store.fence(cluster)
    }
    fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        self.fuse.pass()?;
        self.store.raise(cluster, fence, holder)
    }
    fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.fuse.pass()?;
        let entry = self.store.begin(cluster, fence, at, start)?;
        self.fuse.pass()?;
        Ok(entry)
    }
    fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.fuse.pass()?;
        let entries = self.store.append(run, fence, after, at, events)?;
        self.fuse.pass()?;
        Ok(entries)
    }
    fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.store.journal(run)
    }
    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.store.runs()
    }
    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        self.store.ask(run, at, command, by)
    }
    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        self.store.asked(run)
    }
    fn taken(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.store.taken(run, up_to)
    }
}

/// Every node was rebooted once, everything is where it was and runs, and nothing is left behind.
pub fn all_is_well(world: &World, before: &World, which: &[&str]) {
    assert_eq!(world.violations, [""; 0]);
    let once = which.iter().map(|name| ((*name).to_owned(), 1)).collect();
    assert_eq!(world.powercycles, once);
    assert_eq!(world.layout(), before.layout());
    assert_eq!(world.left_behind(), [""; 0]);
    for (name, of) in &world.now.instances {
        assert!(
            !of.running || (!of.degraded && of.resync == 0),
            "{name} is degraded"
        );
    }
    let drained: Vec<_> = world
        .now
        .nodes
        .iter()
        .filter(|(_, node)| node.role == "D")
        .collect();
    assert!(drained.is_empty(), "{drained:?}");
}

#[tokio::test]
async fn every_node_is_rebooted_once_the_master_last_and_all_is_as_before() {
    for lag in [0, 3] {
        let mut setup = setup(mixed()).await;
        with_failover(&mut setup);
        setup.world().lag = lag;
        let mut lives = Lives::new(&setup).await;
        let end = lives.live().await;
        assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
        let world = setup.world();
        all_is_well(&world, &mixed(), &["n1", "n2", "n3", "n4", "n5"]);
        assert_ne!(world.now.master, "n1");
        assert_eq!(world.now.nodes["n1"].role, "C");
        assert_eq!(world.now.nodes["n5"].role, "R");
        assert!(
            world.most_migrations.values().all(|most| *most == 1),
            "{:?}",
            world.most_migrations
        );
        let untagged = world.now.nodes.values().all(|node| node.tags.len() == 1);
        assert!(untagged, "others' tags stay");
        let last = world
            .jobs
            .iter()
            .rev()
            .find(|job| matches!(job.op, Op::Powercycle { .. }))
            .unwrap();
        assert_eq!(
            last.op,
            Op::Powercycle {
                node: "n1".to_owned()
            }
        );
    }
}

#[tokio::test]
async fn without_a_command_for_it_the_master_is_left_alone() {
    let setup = setup(mixed()).await;
    let end = Lives::new(&setup).await.live().await;
    let End::Over(Ending::Incomplete { left }) = end else {
        panic!("{end:?}")
    };
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].0.as_str(), left[0].1.slug.as_str()),
        ("n1", "master-cannot-move")
    );
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn what_is_on_one_node_only_is_stopped_and_started_where_that_is_allowed() {
    let make = || {
        let mut world = World::with_nodes(3);
        world.add("log", "plain", "n2", None);
        world.add("web", "drbd", "n2", Some("n3"));
        world
    };
    let mut setup = setup(make()).await;
    setup.settings.cluster.visits.non_redundant = NonRedundant::Stop;
    let end = Lives::new(&setup).await.live().await;
    assert!(
        matches!(end, End::Over(Ending::Incomplete { .. })),
        "the master: {end:?}"
    );
    all_is_well(&setup.world(), &make(), &["n2", "n3"]);
}

#[tokio::test]
async fn by_default_a_node_with_what_cannot_move_is_left_alone() {
    let make = || {
        let mut world = World::with_nodes(3);
        world.add("log", "plain", "n2", None);
        world
    };
    let setup = setup(make()).await;
    let end = Lives::new(&setup).await.live().await;
    let End::Over(Ending::Incomplete { left }) = end else {
        panic!("{end:?}")
    };
    let slugs: Vec<_> = left.iter().map(|(_, reason)| reason.slug.as_str()).collect();
    assert_eq!(slugs, ["master-cannot-move", "non-redundant-instance"]);
    all_is_well(&setup.world(), &make(), &["n3"]);
}

#[tokio::test]
async fn a_node_that_never_comes_back_stays_out_and_the_run_holds() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup).await;
    let end = lives.live().await;
    let End::Held(reason) = end else { panic!("{end:?}") };
    assert!(reason.detail.contains("n3"), "{reason}");
    {
        let world = setup.world();
        assert_eq!(world.now.nodes["n3"].role, "D", "nothing new is put on it");
        assert_eq!(world.now.instances["c"].pnode, "n4", "it stays where it is safe");
        assert!(
            world
                .layout()
                .iter()
                .all(|(name, (.., runs))| *runs || name == "down")
        );
        assert_eq!(world.violations, [""; 0]);
        assert_eq!(world.powercycles["n3"], 1);
    }
    // A person sees to it, and the run goes on.
    {
        let mut world = setup.world();
        world.never_returns.clear();
        for _ in 0..20 {
            world.tick();
        }
    }
    lives.ask(&Command::Abort);
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Aborted)), "{end:?}");
    let guards: Vec<_> = setup
        .world()
        .left_behind()
        .into_iter()
        .filter(|what| what.starts_with("filter"))
        .collect();
    assert_eq!(guards, [""; 0], "abort gives guards back");
}

#[tokio::test]
async fn a_node_that_came_back_late_is_given_back_when_a_person_resumes() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.reboot = Duration::from_millis(300);
    setup.world().never_returns.insert("n3".to_owned());
    let mut lives = Lives::new(&setup).await;
    let end = lives.live().await;
    assert!(matches!(end, End::Held(_)), "{end:?}");
    // Resumed too soon, it holds again.
    lives.ask(&Command::Resume);
    let end = lives.live().await;
    assert!(matches!(end, End::Held(_)), "{end:?}");
    {
        let mut world = setup.world();
        world.never_returns.clear();
        for _ in 0..20 {
            world.tick();
        }
    }
    lives.ask(&Command::Resume);
    let end = lives.live().await;
    assert!(
        matches!(end, End::Over(Ending::Incomplete { .. })),
        "the master: {end:?}"
    );
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn a_migration_that_fails_puts_the_node_back_and_it_is_tried_again() {
    let setup = setup(mixed()).await;
    setup.world().fault("PUT /2/instances/b/migrate", Fault::FailJob);
    let end = Lives::new(&setup).await.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn an_instance_that_is_made_meanwhile_is_moved_too() {
    for at in [20, 60, 120, 200, 300] {
        let setup = setup(mixed()).await;
        let mut lives = Lives::new(&setup).await;
        setup
            .world()
            .then
            .push((at, Then::Create("new", "drbd", "n4", Some("n2"))));
        let end = lives.live().await;
        assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
        let world = setup.world();
        assert_eq!(world.violations, [""; 0], "made at request {at}");
        let layout = world.layout();
        assert_eq!(layout["new"], ("n4".to_owned(), Some("n2".to_owned()), true));
    }
}

#[tokio::test]
async fn jobs_of_others_that_were_begun_are_waited_for_and_later_ones_wait() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup).await;
    let early = setup.world().submit(Op::Other { ticks: 30 }, None);
    let watch = async {
        // Submitted once the drain is there.
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut world = setup.world();
            if world
                .shown
                .filters
                .values()
                .any(|filter| filter.action == "PAUSE")
            {
                break world.submit(Op::Other { ticks: 0 }, Some("nightly"));
            }
        }
    };
    let (end, late) = tokio::join!(lives.live(), watch);
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let mut world = setup.world();
    for _ in 0..10 {
        world.tick();
    }
    assert_eq!(world.jobs[early as usize - 1].status, "success");
    assert_eq!(
        world.jobs[late as usize - 1].status,
        "success",
        "it was not cancelled"
    );
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn lost_answers_and_full_queues_change_nothing_in_the_end() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup).await;
    for fault in [Fault::LoseAnswer, Fault::Late(5), Fault::LoseAnswer] {
        setup.world().fault("migrate", fault.clone());
        setup.world().fault("powercycle", fault.clone());
        setup.world().fault("PUT /2/nodes", fault.clone());
        setup.world().fault("GET /2/instances", Fault::LoseAnswer);
        setup.world().fault("GET /2/jobs", Fault::Status(503));
    }
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    for _ in 0..50 {
        setup.world().tick();
    }
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn with_its_real_lock_a_killed_run_is_carried_on() {
    let mut setup = setup(mixed()).await;
    setup.settings.pace.lock = Duration::from_secs(12);
    let mut lives = Lives::new(&setup).await;
    lives.locks = true;
    setup.world().kill = Some((250, Dies::After));
    let end = lives.live().await;
    assert!(matches!(end, End::Killed), "{end:?}");
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    all_is_well(&setup.world(), &mixed(), &["n2", "n3", "n4", "n5"]);
}

#[tokio::test]
async fn in_a_full_evacuation_second_copies_go_away_and_come_back() {
    let setup = setup(mixed()).await;
    let mut lives = Lives::new(&setup).await;
    // n3 has c itself, and the second copy of b.
    let copies = [
        ("b".to_owned(), "n4".to_owned()),
        ("c".to_owned(), "n5".to_owned()),
    ];
    lives.places.copies.insert("n3".to_owned(), copies.into());
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
    let replaced: Vec<_> = world
        .jobs
        .iter()
        .filter_map(|job| match &job.op {
            Op::Replace { instance, to } => Some((instance.as_str(), to.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(replaced.len(), 4, "{replaced:?}");
    assert!(
        world.degraded_by_reboot.iter().all(|(node, _)| node != "n3"),
        "nothing was left there"
    );
}

#[tokio::test]
async fn without_the_drain_jobs_of_others_never_wait() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.drain = false;
    let mut lives = Lives::new(&setup).await;
    let long = setup.world().submit(Op::Other { ticks: 1_000_000 }, None);
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    assert_eq!(
        world.jobs[long as usize - 1].status,
        "running",
        "nobody waited for it"
    );
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
}
