//! A real run beside those who ask, in a simulated cluster: what is down, and what was granted, is never too much together.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use stagger_asks::ask::{AskEnd, AskState, NewAsk};
use stagger_asks::{AskGate, AskLedger, ClaimingBackend, GatePolicy};
use stagger_core::model::{ClusterId, Ix, RunId, Snapshot, Topology};
use stagger_core::run::{Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{Backend, Executor as _, Lock as _};
use stagger_engine::drive::{Signal, Signals, Stopped, drive};
use stagger_engine::driver::{DriverParts, Listener};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::supervisor::{self, Identity};
use stagger_sim::{ClockSpeed, Scenario, Sim, VirtualClock, target};

struct Nobody;

impl Listener for Nobody {
    fn event(&mut self, _entry: &Entry, _run: &Run) {}
}

#[async_trait]
impl Signals for Nobody {
    async fn next(&mut self) -> Signal {
        std::future::pending().await
    }

    fn stopping(&mut self) {}
}

fn wanted(cluster: &ClusterId, host: &str) -> NewAsk {
    NewAsk {
        cluster: cluster.clone(),
        asker: "anna@ops1".to_owned(),
        key: None,
        hosts: BTreeSet::from([host.to_owned()]),
        units: BTreeSet::new(),
        hold: 600,
        until: None,
        lapses: false,
        why: String::new(),
        run: None,
    }
}

/// What is down by the truth, with all that is claimed by a grant, against what may be down where all is well.
async fn too_much(sim: &Sim, ledger: &AskLedger, well: &Snapshot) -> Option<String> {
    let cluster = sim.identity().await.unwrap();
    let board = ledger.board(&cluster).await.unwrap();
    let granted: BTreeSet<String> = board
        .granted()
        .flat_map(|(ask, _)| ask.wanted.hosts.clone())
        .collect();
    let down: BTreeSet<String> = {
        let world = sim.world();
        let down = world.units().filter(|(_, _, up)| !up);
        down.map(|(unit, _, _)| unit.to_string()).collect()
    };
    let set: Vec<Ix> = (0_u32..)
        .zip(well.units())
        .filter(|(_, unit)| {
            down.contains(unit.id.as_str())
                || sim.host_of(&unit.id).is_some_and(|host| granted.contains(&host))
        })
        .map(|(at, _)| Ix(at))
        .collect();
    let found = well.budgets().permit(&well.down(), &set).err()?;
    Some(format!(
        "{granted:?} and {down:?}: {}",
        well.describe_violation(well.budgets(), &found)
    ))
}

/// One who asks for a host again and again.
async fn asks_for_ever(
    clock: &VirtualClock,
    ledger: &AskLedger,
    cluster: &ClusterId,
    host: &str,
    number: u64,
    granted: &RefCell<u32>,
) {
    let pause = Duration::from_secs(5 + 7 * (number % 5));
    loop {
        clock.pause(pause).await;
        let ask = ledger.place(&wanted(cluster, host)).await.unwrap();
        while matches!(ledger.ask(&ask.id).await.unwrap().state, AskState::Waiting(_)) {
            clock.pause(Duration::from_secs(1)).await;
        }
        *granted.borrow_mut() += 1;
        clock.pause(pause).await;
        ledger.end(&ask.id, AskEnd::Done, "").await.unwrap();
    }
}

#[test]
fn a_run_and_those_who_ask_are_never_too_many() {
    let scenario = include_str!("../../../scenarios/demo.toml");
    let scenario = Scenario::parse(scenario).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sim = Sim::new(scenario.cluster.clone(), Vec::new()).unwrap();
    let unsafe_moments: Rc<RefCell<Vec<String>>> = Rc::default();
    let (ended, granted) = sim
        .carry_out(ClockSpeed::Fast, async {
            let clock = sim.clock();
            let ledger =
                AskLedger::in_file_by(&folder.path().join("asks.db"), Arc::new(clock.clone())).unwrap();
            let cluster = sim.identity().await.unwrap();
            let well = sim.observe().await.unwrap();
            let hosts: BTreeSet<String> = well
                .units()
                .iter()
                .filter_map(|unit| sim.host_of(&unit.id))
                .collect();
            let policy = GatePolicy {
                patience: SignedDuration::from_secs(30),
                facts_age: Duration::from_secs(1),
                ..GatePolicy::default()
            };
            let backend: Arc<dyn Backend> = Arc::new(sim.clone());
            let taken = AskGate::take(
                Arc::clone(&backend),
                ledger.clone(),
                &cluster,
                sim.cluster(),
                "test",
                Arc::new(clock.clone()),
                policy,
            );
            let mut gate = taken.await.unwrap().unwrap();
            let answering = async {
                loop {
                    gate.step().await.unwrap();
                    let found = too_much(&sim, &ledger, &well).await;
                    unsafe_moments.borrow_mut().extend(found);
                    clock.pause(Duration::from_secs(1)).await;
                }
            };
            let granted = RefCell::new(0_u32);
            let askers = (0_u64..)
                .zip(&hosts)
                .map(|(number, host)| asks_for_ever(&clock, &ledger, &cluster, host, number, &granted));
            let asking = futures::future::join_all(askers);
            let run = RunId::new("r1").unwrap();
            let claiming = ClaimingBackend::new(
                backend,
                ledger.clone(),
                cluster.clone(),
                run.clone(),
                SignedDuration::from_secs(30),
                Arc::new(clock.clone()),
            );
            let parts = DriverParts {
                backend: Arc::new(claiming),
                store: Box::new(SqliteStore::in_memory().unwrap()),
                clock: Arc::new(clock.clone()),
                artifacts: Artifacts::in_folder(folder.path().join("artifacts")),
                listener: Box::new(Nobody),
            };
            let wanted = target(&scenario.cluster, &scenario.target, &scenario.policy).unwrap();
            let driving = async {
                let (mut driver, _lease) = supervisor::start(
                    parts,
                    &Identity::current_process(),
                    run,
                    wanted,
                    scenario.policy.clone(),
                    serde_json::Value::Null,
                    Topology::of(&well),
                )
                .await
                .unwrap();
                drive(&mut driver, &mut Nobody).await.unwrap()
            };
            let ended = tokio::select! {
                ended = driving => ended,
                _ = answering => unreachable!("it answers for ever"),
                _ = asking => unreachable!("they ask for ever"),
            };
            (ended, *granted.borrow())
        })
        .unwrap();
    assert_eq!(*unsafe_moments.borrow(), Vec::<String>::new());
    let world = sim.world();
    assert_eq!(world.truth().violations, Vec::<String>::new());
    assert!(granted > 5, "{granted} were granted");
    assert!(matches!(ended, Stopped::Over(Ending::Done)), "{ended:?}");
}
