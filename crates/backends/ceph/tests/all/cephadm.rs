//! Daemons that cephadm manages: on a double of the questions that it answers, over a recorded cluster; and the script that changes
//! them, on files as cephadm writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::{CephAnswer, CephApi, CephApiError, QueryTarget};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephSettings, Reboot};
use stagger_ceph::facts::CephFacts;
use stagger_ceph::planner::CephPlanner;
use stagger_ceph::profile::SoftwareProfile;
use stagger_ceph::target::{PgGate, TargetPolicy, target};
use stagger_conformance::guards::{Guard, what_a_later_run_holds_is_left, what_is_taken_is_released};
use stagger_core::model::{Fact, Part, Phase, Policy, Verdict};
use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor as _};

use crate::cluster::{call, facts_of, fixture};
use crate::hosts::{on_hosts, settings};
use crate::reboots::{unit, visit};

const OLD: &str = "q/ceph@sha256:old";
const NEW: &str = "q/ceph@sha256:new";

/// What cephadm and Ceph's configuration hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    paused: bool,
    /// The answer to `orch upgrade status`, if an upgrade is not over.
    upgrade: Option<String>,
    /// What the tag of 18.2.8 is: its digest, and the version in it.
    tag: (String, String),
    /// The images of the configuration, by section.
    images: BTreeMap<String, String>,
    crash: String,
    keys: BTreeMap<String, String>,
    asked: Vec<String>,
}

struct Cephadm {
    recorded: Recorded,
    state: Arc<Mutex<State>>,
}

fn state() -> Arc<Mutex<State>> {
    Arc::new(Mutex::new(State {
        tag: (NEW.to_owned(), "18.2.8".to_owned()),
        images: BTreeMap::from([("global".to_owned(), OLD.to_owned())]),
        crash: OLD.to_owned(),
        ..State::default()
    }))
}

impl Cephadm {
    fn new(state: &Arc<Mutex<State>>) -> Self {
        Self {
            recorded: Recorded::new(fixture("18.2.7")),
            state: Arc::clone(state),
        }
    }
}

impl State {
    fn answer(&mut self, command: &Value) -> Option<String> {
        let text = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
        let prefix = text("prefix");
        let answer = match prefix.as_str() {
            "orch status" => {
                json!({ "available": true, "backend": "cephadm", "paused": self.paused }).to_string()
            }
            "orch upgrade status" => self
                .upgrade
                .clone()
                .unwrap_or_else(|| "There are no upgrades in progress currently.".to_owned()),
            "orch upgrade check" => json!({
                "target_name": text("image"),
                "target_digest": self.tag.0,
                "target_version": format!("ceph version {} (0) reef (stable)", self.tag.1),
            })
            .to_string(),
            "orch pause" | "orch resume" => {
                self.paused = prefix == "orch pause";
                String::new()
            }
            "orch ps" if text("daemon_type") == "crash" => {
                json!([{ "daemon_name": "crash.h1", "container_image_name": self.crash }]).to_string()
            }
            "orch ps" => "[]".to_owned(),
            "orch daemon redeploy" => {
                self.crash = self.images["global"].clone();
                String::new()
            }
            "config get" => {
                let own = self.images.get(&text("who"));
                own.unwrap_or(&self.images["global"]).clone()
            }
            "config set" => {
                self.images.insert(text("who"), text("value"));
                String::new()
            }
            "config rm" => {
                self.images.remove(&text("who"));
                String::new()
            }
            "config dump" => {
                let option =
                    |(who, image)| json!({ "section": who, "name": "container_image", "value": image });
                let mut all: Vec<Value> = self.images.iter().map(option).collect();
                all.push(json!({ "section": "osd", "name": "osd_memory_target", "value": "1" }));
                json!(all).to_string()
            }
            "config-key get" => self.keys.get(&text("key"))?.clone(),
            "config-key set" => json!(self.keys.insert(text("key"), text("val"))).to_string(),
            "config-key rm" => json!(self.keys.remove(&text("key"))).to_string(),
            "config-key dump" => json!(self.keys).to_string(),
            _ => return None,
        };
        self.asked.push(prefix);
        Some(answer)
    }
}

#[async_trait]
impl CephApi for Cephadm {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        if let Some(out) = self.state.lock().unwrap().answer(&command) {
            let (out, err) = (out.into_bytes(), String::new());
            return Ok(CephAnswer { rc: 0, out, err });
        }
        if command["prefix"] == "config-key get" {
            let (out, err) = (Vec::new(), "Error ENOENT: no such key".to_owned());
            return Ok(CephAnswer { rc: 2, out, err });
        }
        let mut answer = self.recorded.command(whom, command.clone()).await?;
        let mut document: Value = serde_json::from_slice(&answer.out).unwrap();
        match command["prefix"].as_str().unwrap() {
            "mgr dump" => document["modules"].as_array_mut().unwrap().push("cephadm".into()),
            "mon metadata" | "mgr metadata" | "osd metadata" => {
                for daemon in document.as_array_mut().unwrap() {
                    daemon["container_image"] = OLD.into();
                }
            }
            _ => return Ok(answer),
        }
        answer.out = document.to_string().into_bytes();
        Ok(answer)
    }
}

fn facts(state: &Arc<Mutex<State>>) -> CephFacts {
    facts_of(&Cephadm::new(state)).unwrap()
}

/// As the planner makes it of `profile = "cephadm"`.
fn policy() -> TargetPolicy {
    TargetPolicy {
        cephadm: true,
        ..TargetPolicy::default()
    }
}

fn refused(facts: &CephFacts, policy: &TargetPolicy) -> String {
    let refusal = target(facts, "18.2.8", policy).unwrap_err();
    let reasons: Vec<String> = refusal.0.iter().map(ToString::to_string).collect();
    reasons.join("\n")
}

#[test]
fn cephadm_is_paused_for_each_stage_and_has_the_last_word() {
    let target = target(&facts(&state()), "18.2.8", &policy()).unwrap();
    for stage in target.stages() {
        let guards: BTreeSet<&str> = stage.guards.iter().map(|guard| guard.name.as_str()).collect();
        assert!(guards.contains("no-orchestrator"), "{}", stage.name);
        let gates: BTreeSet<&str> = stage.gates.iter().map(|gate| gate.condition.as_str()).collect();
        assert!(gates.contains("no-other-upgrade"), "{}", stage.name);
    }
    let Some(Part::Step(last)) = target.parts.last() else {
        panic!("no step at the end: {:?}", target.parts)
    };
    assert_eq!(last.name.as_str(), "container-image-18.2.8");
    assert!(last.door.is_none(), "cephadm can be given another image");
}

#[test]
fn nothing_is_begun_beside_an_upgrade_of_cephadm_or_where_there_is_none() {
    let state = state();
    let without = refused(&facts(&state), &TargetPolicy::default());
    assert!(
        without.contains("set profile = \"cephadm\" in [software]"),
        "{without}"
    );

    let status = json!({ "in_progress": true, "target_image": "q/ceph:v19", "is_paused": true });
    state.lock().unwrap().upgrade = Some(status.to_string());
    let beside = refused(&facts(&state), &policy());
    assert!(
        beside.contains("to q/ceph:v19, paused; wait for its end"),
        "{beside}"
    );

    state.lock().unwrap().upgrade = Some("what?".to_owned());
    let unknown = refused(&facts(&state), &policy());
    assert!(unknown.contains("what cephadm is about is unknown"), "{unknown}");

    let plain = refused(&crate::cluster::recorded("18.2.7"), &policy());
    assert!(
        plain.contains("cephadm does not manage this cluster's daemons"),
        "{plain}"
    );
}

#[test]
fn what_cephadm_is_about_is_a_condition() {
    let state = state();
    let of = |state: &Arc<Mutex<State>>, name: &str| {
        let facts = facts(state);
        let planner = CephPlanner::new(of_cephadm(Path::new("/nowhere")), PgGate::Clean);
        let snapshot = stagger_engine::cluster::Planner::snapshot(&planner, &facts).unwrap();
        let found = snapshot.conditions().find(|found| found.name.as_str() == name);
        found.map(|found| (found.verdict, found.why.clone()))
    };
    assert_eq!(of(&state, "no-other-upgrade").unwrap().0, Verdict::Yes);
    assert_eq!(of(&state, "container-image-18.2.7").unwrap().0, Verdict::Yes);
    assert_eq!(of(&state, "container-image-18.2.8"), None, "nothing runs it");
    state
        .lock()
        .unwrap()
        .images
        .insert("osd".to_owned(), NEW.to_owned());
    let (verdict, why) = of(&state, "container-image-18.2.7").unwrap();
    assert_eq!(
        (verdict, why.as_str()),
        (Verdict::No, "cephadm starts daemons from several images")
    );
    state.lock().unwrap().images.remove("osd");
    state.lock().unwrap().crash = NEW.to_owned();
    let (verdict, why) = of(&state, "container-image-18.2.7").unwrap();
    assert_eq!(
        (verdict, why.as_str()),
        (Verdict::No, "not from q/ceph@sha256:old yet: crash.h1")
    );
}

/// Daemons of cephadm, with commands that leave a line in a file.
fn of_cephadm(folder: &Path) -> CephSettings {
    let mut settings = std::thread::spawn(|| settings(Reboot::default())).join().unwrap();
    let says = |word: &str| {
        format!(
            "echo {word} {{kind}}.{{id}} {{image}} >>{}/done",
            folder.display()
        )
    };
    settings.software = serde_json::from_value(json!({
        "profile": "cephadm",
        "image": "q/ceph:v{release}",
        "all": { "upgrade": says("pull"), "restart": says("restart") },
    }))
    .unwrap();
    settings.hosts.folder = folder.join("stagger");
    settings.hosts.timeout = 20;
    settings
}

fn backend(state: &Arc<Mutex<State>>, folder: &Path) -> CephBackend {
    let settings = of_cephadm(folder);
    let made = settings.clone();
    let memory = std::thread::spawn(move || {
        let planner = CephPlanner::new(made, PgGate::Clean);
        planner.memory(&on_hosts("18.2.7"), &Policy::default()).unwrap()
    });
    CephBackend::new(
        Arc::new(Cephadm::new(state)),
        settings,
        Some(memory.join().unwrap()),
    )
}

fn done(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn at(seq: u64) -> Call {
    Call { seq, ..call() }
}

#[tokio::test]
async fn its_pause_has_the_laws_of_every_guard() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let backend = backend(&state, folder.path());
    let guard = Guard::new(&backend, "no-orchestrator", &[]);
    let now = || state.lock().unwrap().paused;
    what_is_taken_is_released(&guard, &call(), now).await;
    what_a_later_run_holds_is_left(&guard, &call(), now).await;
}

#[tokio::test]
async fn the_image_of_a_run_is_found_once_and_a_tag_that_moves_changes_nothing() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let first = backend(&state, folder.path());
    first
        .perform(&at(1), &visit("osd.1", Phase::Prepare, "18.2.8"))
        .await
        .unwrap();
    state.lock().unwrap().tag.0 = "q/ceph@sha256:moved".to_owned();
    // Another process goes on.
    let next = backend(&state, folder.path());
    next.perform(&at(2), &visit("osd.1", Phase::Change, "18.2.8"))
        .await
        .unwrap();
    let back = Action::GoBack {
        unit: unit("osd.0"),
        revision: "18.2.6".parse().unwrap(),
        rebuild: false,
    };
    state.lock().unwrap().tag = ("q/ceph@sha256:older".to_owned(), "18.2.6".to_owned());
    next.perform(&at(3), &back).await.unwrap();
    let wanted = [
        format!("pull osd.1 {NEW}"),
        format!("restart osd.1 {NEW}"),
        "pull osd.0 q/ceph@sha256:older".to_owned(),
        "restart osd.0 q/ceph@sha256:older".to_owned(),
    ];
    assert_eq!(done(folder.path()), wanted);
    let state = state.lock().unwrap();
    assert_eq!(state.images["osd.1"], NEW, "cephadm would not take it back");
    assert_eq!(
        state
            .asked
            .iter()
            .filter(|asked| *asked == "orch upgrade check")
            .count(),
        2
    );
}

#[tokio::test]
async fn a_run_goes_back_to_the_image_that_ran_before_whatever_its_tag_is_now() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let backend = backend(&state, folder.path());
    backend
        .perform(&at(1), &visit("osd.1", Phase::Prepare, "18.2.8"))
        .await
        .unwrap();
    let record = &state.lock().unwrap().keys["stagger/images"].clone();
    let record: Value = serde_json::from_str(record).unwrap();
    assert_eq!(record["images"], json!({ "18.2.7": OLD, "18.2.8": NEW }));
}

#[tokio::test]
async fn an_image_with_another_release_in_it_is_refused_before_anything_is_done() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    state.lock().unwrap().tag.1 = "18.2.9".to_owned();
    let backend = backend(&state, folder.path());
    let error = backend
        .perform(&at(1), &visit("osd.1", Phase::Prepare, "18.2.8"))
        .await
        .unwrap_err();
    assert!(
        error.why.contains("q/ceph:v18.2.8 has Ceph \"18.2.9\" in it"),
        "{error:?}"
    );
    state.lock().unwrap().tag = ("q/ceph;reboot".to_owned(), "18.2.8".to_owned());
    backend
        .perform(&at(2), &visit("osd.1", Phase::Prepare, "18.2.8"))
        .await
        .unwrap_err();
    assert_eq!(done(folder.path()), [""; 0]);
}

#[tokio::test]
async fn at_the_end_cephadm_starts_everything_from_one_image() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    {
        let mut state = state.lock().unwrap();
        state.images.insert("osd.1".to_owned(), OLD.to_owned());
        state
            .images
            .insert("mon".to_owned(), "q/ceph:of-somebody".to_owned());
        state.crash = "q/ceph@sha256:older".to_owned();
    }
    let backend = backend(&state, folder.path());
    let step = Action::Step {
        step: "container-image-18.2.7".parse().unwrap(),
    };
    let said = backend.perform(&at(1), &step).await.unwrap();
    assert!(said.contains("1 daemons that are no units"), "{said}");
    let of_others = {
        let state = state.lock().unwrap();
        assert_eq!(
            state.images,
            BTreeMap::from([("global".to_owned(), OLD.to_owned())])
        );
        state.crash.clone()
    };
    assert_eq!(of_others, OLD);
    // Once more changes nothing.
    let again = backend.perform(&at(2), &step).await.unwrap();
    assert!(again.contains("0 daemons that are no units"), "{again}");
}

#[test]
fn where_the_manager_does_not_answer_it_is_unknown_and_not_absent() {
    let mut facts = facts(&state());
    facts.cephadm = Fact::No("the manager is silent".to_owned());
    assert!(refused(&facts, &policy()).contains("the manager is silent"));
}

/// The script on a folder as cephadm leaves it, with programs that note what they are asked.
struct OnHost {
    folder: tempfile::TempDir,
}

const FSID: &str = "368d0364-ecc7-11f1-857b-eac6076add1f";

impl OnHost {
    fn new() -> Self {
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (name, text) in [
            (
                "unit.run",
                format!("podman run -e CONTAINER_IMAGE={OLD} {OLD} -n osd.3\n"),
            ),
            ("unit.poststop", format!("podman run {OLD} lvm deactivate 3\n")),
            ("unit.stop", "podman stop x\n".to_owned()),
            ("unit.image", format!("{OLD}\n")),
            (
                "unit.meta",
                json!({ "service_name": "osd.d", "deployed_by": [OLD] }).to_string(),
            ),
        ] {
            this.write(&format!("lib/{FSID}/osd.3/{name}"), &text);
        }
        this.write(
            "bin/podman",
            &format!("#!/bin/sh\necho '[\"{NEW}\", \"q/ceph@sha256:list\"]'\n"),
        );
        this.write("bin/systemctl", "#!/bin/sh\necho \"$*\" >>\"${0%/*}/asked\"\n");
        for program in ["podman", "systemctl"] {
            let path = this.folder.path().join("bin").join(program);
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode).unwrap();
        }
        this
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("lib/{FSID}/osd.3/{name}"))).unwrap()
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("bin/asked")).unwrap_or_default()
    }

    /// Runs the script with its folders here; says whether it ended well.
    fn restart(&self, image: &str) -> bool {
        let here = self.folder.path().display();
        let script = SoftwareProfile::Cephadm.software("osd").restart.unwrap();
        let script = script
            .replace("{fsid}", FSID)
            .replace("{kind}", "osd")
            .replace("{id}", "3")
            .replace("{image}", image)
            .replace("/var/lib/ceph/", &format!("{here}/lib/"))
            .replace("/run/cephadm", &format!("{here}/run"));
        let path = format!("{here}/bin:{}", std::env::var("PATH").unwrap());
        let out = Command::new("sh")
            .args(["-c", &script])
            .env("PATH", path)
            .output()
            .unwrap();
        out.status.success()
    }
}

#[test]
fn a_unit_is_written_anew_as_cephadm_would_and_restarted_once() {
    let host = OnHost::new();
    assert!(host.restart(NEW));
    assert_eq!(
        host.read("unit.run"),
        format!("podman run -e CONTAINER_IMAGE={NEW} {NEW} -n osd.3\n")
    );
    assert_eq!(
        host.read("unit.poststop"),
        format!("podman run {NEW} lvm deactivate 3\n")
    );
    assert_eq!(host.read("unit.image"), format!("{NEW}\n"));
    let meta: Value = serde_json::from_str(&host.read("unit.meta")).unwrap();
    assert_eq!(
        meta,
        json!({ "service_name": "osd.d", "deployed_by": [NEW, "q/ceph@sha256:list"] })
    );
    let once = format!("reset-failed ceph-{FSID}@osd.3.service\nrestart ceph-{FSID}@osd.3.service\n");
    assert_eq!(host.asked(), once);
}

#[test]
fn a_script_that_was_killed_between_two_files_is_run_again() {
    let whole = OnHost::new();
    assert!(whole.restart(NEW));
    // Files are written in this order, the record of the image last.
    for written in 0..=4 {
        let host = OnHost::new();
        for name in ["unit.run", "unit.stop", "unit.poststop", "unit.meta"]
            .iter()
            .take(written)
        {
            host.write(&format!("lib/{FSID}/osd.3/{name}"), &whole.read(name));
        }
        assert!(host.restart(NEW));
        for name in [
            "unit.run",
            "unit.stop",
            "unit.poststop",
            "unit.meta",
            "unit.image",
        ] {
            assert_eq!(host.read(name), whole.read(name), "{name} after {written} files");
        }
    }
}

#[test]
fn a_unit_that_names_its_image_otherwise_is_not_restarted() {
    let host = OnHost::new();
    host.write(
        &format!("lib/{FSID}/osd.3/unit.run"),
        "podman run ceph:latest -n osd.3\n",
    );
    assert!(!host.restart(NEW));
    assert_eq!(host.asked(), "", "it would be restarted as it is");
    assert_eq!(host.read("unit.image"), format!("{OLD}\n"));
}

#[test]
fn without_an_image_a_daemon_is_only_restarted_and_one_that_is_not_there_is_not() {
    let host = OnHost::new();
    assert!(host.restart(""));
    assert_eq!(host.read("unit.image"), format!("{OLD}\n"));
    assert!(host.asked().contains("restart ceph-"));
    let none = OnHost::new();
    std::fs::remove_dir_all(none.folder.path().join("lib")).unwrap();
    assert!(!none.restart(NEW));
    assert_eq!(none.asked(), "", "nothing is restarted");
}
