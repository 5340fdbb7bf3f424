//! What a host's turn does to a cluster and to the host, and what it does not do twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::{CephAnswer as Said, CephApi, CephApiError, QueryTarget};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::Reboot;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::memory::CephMemory;
use stagger_ceph::planner::{CephGoal, CephPlanner};
use stagger_ceph::reboot::{CephRebootGoal, HostTask, REBOOTED};
use stagger_ceph::target::PgGate;
use stagger_core::model::{Fact, GuardName, Phase, Policy, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::clock::{Steady, SystemClock};
use stagger_engine::cluster::{BackendError, Call, Executor as _, Planner as _, Retryability};
use stagger_engine::deadline::Deadline;

use crate::cluster::{call, fixture};
use crate::hosts::{on_hosts, settings};

/// The recorded cluster on hosts of their own, with managers that hand over, keys, and flags of OSDs.
pub(crate) struct World {
    recorded: Recorded,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, String>,
    /// The managers in the order of the monitors' choice: the first is active.
    managers: Vec<String>,
    asked: Vec<String>,
    /// So many questions are answered; then the process that asks is gone.
    fuse: Option<u32>,
}

#[async_trait]
impl CephApi for World {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<Said, CephApiError> {
        let word = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
        let prefix = word("prefix");
        let recorded = match prefix.as_str() {
            "osd dump" | "quorum_status" | "osd metadata" | "mon metadata" | "mgr metadata" | "mgr dump"
            | "fs dump" | "mds metadata" | "health" | "versions" | "osd tree" | "pg dump" | "status"
            | "crash ls-new" | "service dump" => self.recorded.command(whom, command.clone()).await.ok(),
            _ => None,
        };
        let mut state = self.state.lock().unwrap();
        if let Some(fuse) = &mut state.fuse {
            if *fuse == 0 {
                return Err(CephApiError::TimedOut {
                    command: prefix,
                    via: "a process that is gone".to_owned(),
                    seconds: 1,
                });
            }
            *fuse -= 1;
        }
        let changes = [
            "osd set-group",
            "osd unset-group",
            "mgr fail",
            "osd ok-to-stop",
            "mon ok-to-stop",
        ];
        if changes.contains(&prefix.as_str()) {
            let words = ["ids", "who"].map(|name| &command[name]);
            let words = words.into_iter().find(|word| !word.is_null()).cloned();
            state
                .asked
                .push(format!("{prefix} {}", words.unwrap_or_default()));
        }
        let read = |said: Option<Said>| -> Value { serde_json::from_slice(&said.unwrap().out).unwrap() };
        let out = match prefix.as_str() {
            "mgr dump" => {
                let mut dump = read(recorded);
                dump["active_name"] = json!(state.managers[0]);
                let standbys = state.managers[1..].iter().map(|name| json!({ "name": name }));
                dump["standbys"] = standbys.collect();
                dump
            }
            "mgr fail" => {
                // It starts itself anew, and stands behind all others then.
                assert_eq!(word("who"), state.managers[0]);
                state.managers.rotate_left(1);
                json!({})
            }
            "fs dump" => recorded.map_or(json!({}), |said| serde_json::from_slice(&said.out).unwrap()),
            "config-key dump" => {
                let below = state.keys.iter().filter(|(key, _)| key.starts_with(&word("key")));
                let below = below.map(|(key, value)| (key.clone(), json!(value)));
                below.collect::<serde_json::Map<_, _>>().into()
            }
            "config-key set" => json!(state.keys.insert(word("key"), word("val"))),
            "config-key rm" => json!(state.keys.remove(&word("key"))),
            "osd set-group" | "osd unset-group" => json!({}),
            "osd ok-to-stop" | "mon ok-to-stop" => json!({ "ok_to_stop": true }),
            _ => match recorded {
                Some(said) => return Ok(said),
                None => panic!("nobody should ask {prefix:?}"),
            },
        };
        Ok(Said {
            rc: 0,
            out: out.to_string().into_bytes(),
            err: String::new(),
        })
    }
}

impl World {
    /// The managers in the order of the monitors' choice, and the keys.
    pub(crate) fn told(&self) -> (Vec<String>, BTreeMap<String, String>) {
        let state = self.state.lock().unwrap();
        (state.managers.clone(), state.keys.clone())
    }
}

/// A folder that stands for the hosts: the boot of each, and a line for each reboot.
pub(crate) struct Machines(tempfile::TempDir);

impl Machines {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..6 {
            std::fs::write(folder.path().join(format!("host{at}.boot")), "b1\n").unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// `after`: what follows the line in the list of reboots.
    pub(crate) fn reboot(&self, after: &str) -> Reboot {
        let folder = self.path().display();
        Reboot {
            command: Some(format!("echo {{host}} >>{folder}/reboots; {after}")),
            boot_id: Some(format!("cat {folder}/{{host}}.boot")),
            timeout: 1,
            ..Reboot::default()
        }
    }

    pub(crate) fn boots(&self) -> String {
        format!("echo b2 >{}/{{host}}.boot", self.path().display())
    }

    pub(crate) fn reboots(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("reboots")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

pub(crate) fn world(managers: &[&str]) -> Arc<World> {
    Arc::new(World {
        recorded: Recorded::new(recorded_on_hosts()),
        state: Mutex::new(State {
            managers: managers.iter().map(|name| (*name).to_owned()).collect(),
            ..State::default()
        }),
    })
}

/// What is learnt of the recorded cluster. Its answers are read by a runtime of their own.
fn facts() -> CephFacts {
    std::thread::spawn(|| on_hosts("18.2.7")).join().unwrap()
}

/// The recorded answers, with the hosts that [`on_hosts`] has.
fn recorded_on_hosts() -> PathBuf {
    use std::sync::OnceLock;
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(fixture("18.2.7")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let facts = facts();
        let lists = [("mon", &facts.mon_metadata), ("mgr", &facts.mgr_metadata)];
        let named =
            lists.map(|(kind, list)| (kind, list.iter().map(|one| one.host.clone()).collect::<Vec<_>>()));
        let osds = facts.osd_metadata.iter().map(|osd| osd.host.clone()).collect();
        for (kind, hosts) in named.into_iter().chain([("osd", osds)]) {
            let path = folder.path().join(format!("{kind}_metadata.json"));
            let mut list: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            list.sort_by_key(|one| (one["id"].as_u64(), one["name"].as_str().map(str::to_owned)));
            for (one, host) in list.iter_mut().zip(hosts) {
                one["hostname"] = json!(host);
            }
            std::fs::write(&path, json!(list).to_string()).unwrap();
        }
        folder
    });
    made.path().to_owned()
}

pub(crate) fn unit(name: &str) -> UnitId {
    UnitId::new(name).unwrap()
}

/// A process that carries a reboot of all hosts on.
fn process(world: &Arc<World>, reboot: &Reboot, machines: &Machines) -> CephBackend {
    process_that(world, reboot, machines, HostTask::Reboot)
}

/// The same for another task.
pub(crate) fn process_that(
    world: &Arc<World>,
    reboot: &Reboot,
    machines: &Machines,
    task: HostTask,
) -> CephBackend {
    let reboot = reboot.clone();
    let mut settings = std::thread::spawn(|| settings(reboot)).join().unwrap();
    settings.hosts.folder = machines.path().join("stagger");
    settings.hosts.timeout = 20;
    settings.cluster.poll = 1;
    settings.software.all.restart = Some(format!(
        "echo {{kind}}.{{id}} on {{host}} >>{}/reboots",
        machines.path().display()
    ));
    let facts = facts();
    // What a host tells whose command has not been run.
    let before = match task {
        HostTask::Command { .. } | HostTask::Restart { .. } => "before",
        HostTask::Reboot | HostTask::Patch => "b1",
    };
    let boots = (0..6).map(|at| (format!("host{at}"), Fact::Yes(before.to_owned())));
    let goal = CephGoal::Reboot(CephRebootGoal {
        only: None,
        boots: Some(boots.collect()),
        task,
    });
    let planner = CephPlanner::new(settings.clone(), PgGate::Clean);
    let memory: CephMemory = planner.plan(&facts, &goal, &Policy::default()).unwrap().memory;
    CephBackend::new(Arc::clone(world) as Arc<dyn CephApi>, settings, Some(memory))
}

pub(crate) fn change(host: &str) -> Action {
    visit(host, Phase::Change, REBOOTED)
}

/// A phase of a unit's visit, which is to have this revision after it.
pub(crate) fn visit(name: &str, phase: Phase, revision: &str) -> Action {
    Action::Visit {
        unit: unit(name),
        phase,
        revision: revision.parse().unwrap(),
        moves: Vec::new(),
    }
}

fn noout(hosts: &[&str]) -> Action {
    Action::TakeGuard {
        guard: GuardName::new("noout").unwrap(),
        units: hosts.iter().map(|host| unit(host)).collect(),
        expires: 600,
    }
}

/// x1 is active on host1, x0 stands by on host0.
#[tokio::test]
async fn a_visit_hands_over_what_is_active_and_reboots_once() {
    let (world, machines) = (world(&["x1", "x0"]), Machines::new());
    let reboot = machines.reboot(&machines.boots());
    let backend = process(&world, &reboot, &machines);
    let before = backend.observe().await.unwrap();
    let host1 = unit("host.host1");
    let found = before.unit(before.find(&host1).unwrap());
    assert_eq!(found.revision.as_ref().unwrap().as_str(), "boot-b1");
    backend.perform(&call(), &noout(&["host.host1"])).await.unwrap();
    let told = backend.perform(&call(), &change("host.host1")).await.unwrap();
    assert!(told.starts_with("back after"), "{told}");
    assert_eq!(world.state.lock().unwrap().managers, ["x0", "x1"], "handed over");
    let after = backend.observe().await.unwrap();
    let found = after.unit(after.find(&host1).unwrap());
    assert_eq!(found.revision.as_ref().unwrap().as_str(), REBOOTED);
    // Whoever carries it on finds it done.
    let told = backend.perform(&call(), &change("host.host1")).await.unwrap();
    assert_eq!(told, "it has booted already");
    assert_eq!(machines.reboots(), ["host1"]);
    assert_eq!(backend.host_of(&host1).as_deref(), Some("host1"));
}

/// Where the only standby goes down with the same wave, nothing is handed over to it and back.
#[tokio::test]
async fn nothing_is_handed_over_within_a_wave() {
    let (world, machines) = (world(&["x1", "x0"]), Machines::new());
    let reboot = machines.reboot(&machines.boots());
    let backend = process(&world, &reboot, &machines);
    let wave = ["host.host0", "host.host1"];
    backend.perform(&call(), &noout(&wave)).await.unwrap();
    backend.perform(&call(), &change("host.host1")).await.unwrap();
    assert_eq!(world.state.lock().unwrap().managers, ["x1", "x0"]);
}

/// Both judges are asked about a wave as a whole: all OSDs of all its hosts in one question.
#[tokio::test]
async fn the_oracle_is_asked_about_all_daemons_of_a_wave_at_once_and_noout_is_on_all_its_osds() {
    let (world, machines) = (world(&["x1", "x0"]), Machines::new());
    let reboot = machines.reboot(&machines.boots());
    let backend = process(&world, &reboot, &machines);
    let wave = ["host.host1", "host.host4"];
    let answer = backend.check_stop(&wave.map(unit)).await.unwrap();
    assert_eq!(answer, Answer::Yes);
    backend.perform(&call(), &noout(&wave)).await.unwrap();
    let give = Action::DropGuard {
        guard: GuardName::new("noout").unwrap(),
        units: wave.iter().map(|host| unit(host)).collect(),
    };
    backend.perform(&call(), &give).await.unwrap();
    let state = world.state.lock().unwrap();
    assert_eq!(
        state.asked,
        [
            r#"mon ok-to-stop ["m1"]"#,
            r#"osd ok-to-stop ["2","3","8","9"]"#,
            r#"osd set-group ["osd.2","osd.3","osd.8","osd.9"]"#,
            r#"osd unset-group ["osd.2","osd.3","osd.8","osd.9"]"#,
        ]
    );
    assert!(state.keys.is_empty(), "{:?}", state.keys);
}

fn late() -> Call {
    let clock = Arc::new(Steady::new(Arc::new(SystemClock)));
    let before = Timestamp::now() - SignedDuration::from_secs(60);
    Call {
        deadline: Some(Deadline::new(before, clock)),
        ..call()
    }
}

#[tokio::test]
async fn nothing_is_rebooted_on_a_word_that_is_too_old() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let reboot = machines.reboot(&machines.boots());
    let backend = process(&world, &reboot, &machines);
    let error = backend.perform(&late(), &change("host.host3")).await.unwrap_err();
    assert_eq!(error.retryability, Retryability::Expired, "{error}");
    assert_eq!(machines.reboots(), [""; 0]);
}

/// It is named, and nothing is sent to it again: neither by the corrective step while its daemons are away, nor on the way
/// back.
#[tokio::test]
async fn a_host_that_does_not_come_back_is_named_and_left_alone() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let reboot = machines.reboot(&format!("rm {}/{{host}}.boot", machines.path().display()));
    let backend = process(&world, &reboot, &machines);
    let error = backend.perform(&call(), &change("host.host3")).await.unwrap_err();
    let said = |error: &BackendError| format!("{error}; {}", error.hint.clone().unwrap_or_default());
    assert_eq!(error.retryability, Retryability::Permanent);
    assert!(
        error.why.contains("host3 is not back after") && said(&error).contains("[reboot] timeout"),
        "{}",
        said(&error)
    );
    let back = Action::GoBack {
        unit: unit("host.host3"),
        revision: "boot-b1".parse().unwrap(),
        rebuild: false,
    };
    backend.perform(&call(), &back).await.unwrap_err();
    assert_eq!(machines.reboots(), ["host3"]);
    // Once it is back the corrective step finds it so.
    std::fs::write(machines.path().join("host3.boot"), "b3").unwrap();
    let again = Action::Restart {
        unit: unit("host.host3"),
    };
    let next = Call { seq: 2, ..call() };
    assert_eq!(
        backend.perform(&next, &again).await.unwrap(),
        "it has booted already"
    );
    assert_eq!(machines.reboots(), ["host3"]);
}

/// The command failed: the host serves as before, and says why.
#[tokio::test]
async fn a_command_that_fails_is_told_with_its_words() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let reboot = machines.reboot("echo Interactive authentication required; exit 4");
    let backend = process(&world, &reboot, &machines);
    let error = backend.perform(&call(), &change("host.host3")).await.unwrap_err();
    assert!(
        error
            .why
            .contains("ended with 4: Interactive authentication required"),
        "{error}"
    );
}

/// The process ends at each question that it asks the cluster; the next one carries the same effect on.
#[tokio::test]
async fn a_host_is_rebooted_once_wherever_the_process_ends() {
    let mut points = 0;
    loop {
        let (world, machines) = (world(&["x1", "x0"]), Machines::new());
        let reboot = machines.reboot(&machines.boots());
        let first = process(&world, &reboot, &machines);
        first.perform(&call(), &noout(&["host.host1"])).await.unwrap();
        world.state.lock().unwrap().fuse = Some(points);
        let came = first.perform(&call(), &change("host.host1")).await;
        let left = world.state.lock().unwrap().fuse.take().unwrap();
        drop(first);
        let second = process(&world, &reboot, &machines);
        second.perform(&call(), &change("host.host1")).await.unwrap();
        assert_eq!(machines.reboots(), ["host1"], "after {points} answers");
        assert_eq!(world.state.lock().unwrap().managers, ["x0", "x1"]);
        if came.is_ok() {
            assert!(points > 3 && left == 0, "{points} {left}");
            return;
        }
        points += 1;
    }
}

#[test]
fn commands_that_would_reboot_this_machine_are_refused() {
    use stagger_engine::hosts::Hosts;
    let here = Hosts::default();
    let there = Hosts {
        shell: vec!["ssh".to_owned(), "{host}".to_owned(), "sh".to_owned()],
        ..Hosts::default()
    };
    let given = Reboot {
        command: Some("systemctl reboot".to_owned()),
        ..Reboot::default()
    };
    let why = given.verify(&here).unwrap_err();
    assert!(
        why.contains("[reboot] command") && why.contains("{host}"),
        "{why}"
    );
    assert_eq!(given.verify(&there), Ok(()));
    let usual = Reboot::default();
    assert_eq!(usual.verify(&here), Ok(()));
    assert_eq!(
        usual.command(&here),
        "ssh -oBatchMode=yes {host} systemctl reboot"
    );
    assert_eq!(usual.command(&there), "systemctl reboot");
    let words: BTreeSet<String> = [usual.boot_id(&there), usual.reboot_check_command(&there)].into();
    assert!(words.iter().all(|command| !command.contains("ssh")), "{words:?}");
}
