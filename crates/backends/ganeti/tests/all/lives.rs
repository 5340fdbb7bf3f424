//! Worlds, and processes that carry a run out on them, through the engine.

use std::path::PathBuf;
use std::sync::Arc;

use stagger_conformance::hasty::{Hasty, Retake};
pub use stagger_conformance::process::End;
use stagger_conformance::process::{Processes, RunStart};
use stagger_core::model::{EvacuationPolicy, OnFailure, Policy, Revision};
use stagger_engine::cluster::LockError;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::goal::{GanetiRebootGoal, MaintenanceGoal, Task};
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::rapi::fence;
use stagger_ganeti::selection::NodeSelection;
use stagger_ganeti::target::{maintenance, with_guards_and_gates};
use stagger_ganeti::translate::MAINTAINED;

use crate::common::{Setup, policy, rebooted};
use crate::double::World;

/// Five nodes, mirrored instances in a ring, a shared one, one that is down.
pub fn mixed() -> World {
    let mut world = World::with_nodes(5);
    world.now.nodes.get_mut("n5").unwrap().role = "R";
    world.pool = 2;
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

/// One process after another on one journal.
pub struct Lives<'a> {
    pub setup: &'a Setup,
    pub moving: EvacuationPolicy,
    /// What is done to each node.
    pub task: Task,
    pub processes: Processes,
    begun: Option<(GanetiMemory, RunStart)>,
    /// With the lock in the cluster, which takes its time where another held it.
    pub locks: bool,
    /// What becomes of a wave that fails.
    pub on_failure: OnFailure,
}

impl<'a> Lives<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Self {
            moving: EvacuationPolicy::default(),
            task: Task::Reboot,
            processes: Processes::in_folder(setup.folder.path()),
            begun: None,
            setup,
            locks: false,
            on_failure: OnFailure::Stop,
        }
    }

    /// How things are before the run, and what is wanted of them.
    pub async fn begin(&mut self) {
        let (facts, cluster) = self.setup.rapi().observe().await.unwrap();
        let wanted = MaintenanceGoal {
            task: self.task.clone(),
            reboot: GanetiRebootGoal {
                selection: NodeSelection::default(),
                moving: self.moving,
                local_storage: Vec::new(),
            },
            ..MaintenanceGoal::default()
        };
        let after = match self.task {
            Task::Reboot => rebooted(),
            Task::Command(_) | Task::Hold => Revision::new(MAINTAINED).unwrap(),
        };
        let memory = GanetiMemory::of(&facts, after, wanted.evacuation());
        let policy = Policy {
            on_failure: self.on_failure,
            ..policy()
        };
        let visits = &self.setup.settings.cluster.visits;
        let target = with_guards_and_gates(
            maintenance(&cluster, &wanted).unwrap(),
            &self.task.visits(visits),
            &policy,
        )
        .unwrap();
        let start = RunStart {
            target,
            policy,
            memory: serde_json::to_value(&memory).unwrap(),
        };
        self.begun = Some((memory, start));
    }

    /// One process: it starts the run, or resumes it.
    pub async fn live(&mut self) -> End {
        if self.begun.is_none() {
            self.begin().await;
        }
        let (memory, start) = self.begun.clone().unwrap();
        let (setup, locks) = (self.setup, self.locks);
        let killed = Arc::clone(&setup.world().killed);
        let life = self.processes.live(
            &start,
            |clock| {
                Arc::new(Hasty {
                    inner: setup.backend(Some(memory)),
                    clock: Arc::clone(clock),
                    retake: (!locks).then(token_alone),
                })
            },
            killed.notified(),
        );
        life.await
    }
}

/// The lock is only a token, which each process raises: a dead one's need not be waited out.
fn token_alone() -> Retake<GanetiBackend> {
    Box::new(|backend, _, at_least| {
        Box::pin(async move {
            let rapi = backend.rapi();
            let filters = rapi
                .filters()
                .await
                .map_err(|error| LockError::Backend(error.of("lock", true)))?;
            let token = at_least.max(fence::newest(&filters)) + 1;
            fence::raise(rapi, token).await.map_err(LockError::Backend)?;
            Ok(token)
        })
    })
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
