//! Objects that say what they should not, and a Ceph that does not answer: each is named with its cure, by a
//! condition and an Event, and the rest goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::{ASKED_ABOUT_EVICTIONS, rights_to_provision, webhook};
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::node::{Agent, Image, Node, Settings};
use stagger_e2e::sandbox::Sandbox;

use crate::{NAMESPACE, Operator, World};

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");
/// The machine's own files, with a `ceph` that is none.
pub(crate) const IMAGE: &str = "machine:test";

/// What the status says is wrong.
pub(crate) const DEGRADED: &str = r#"{.status.conditions[?(@.type=="Degraded")].message}"#;
/// Why the cluster is not seen to.
const AWAY: &str = r#"{.status.conditions[?(@.type=="Available")].message}"#;

/// A `ceph` that knows its version, and once a file `answers` is beside it how it is, and what is asked about pools.
const CEPH: &str = r#"#!/bin/sh
case "$*" in
*--version*) echo 'ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)'; exit ;;
esac
if test -e "${0%/*}/answers"; then
    case "$*" in
    *'crush rule dump'*)
        echo '[{"rule_id": 0, "steps": [{"op": "chooseleaf_firstn", "type": "rack"}, {"op": "emit"}]}]'; exit ;;
    *'osd dump'*) echo '{"pools": [{"pool_name": "p", "crush_rule": 0}]}'; exit ;;
    *status*)
        echo '{"quorum_names": [], "osdmap": {"epoch": 1, "num_osds": 4, "num_up_osds": 4}, "pgmap": {"pgs_by_state": []}}'
        exit ;;
    esac
fi
echo 'nobody is there' >&2
exit 1
"#;

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn bad_input_is_named_with_its_cure() -> Result<()> {
    let folder = Folder::make("bad-input-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let world = World { sandbox, plane };
    let programs = world.sandbox.dir().join("programs");
    fs::create_dir(&programs)?;
    let ceph = programs.join("ceph");
    fs::write(&ceph, CEPH)?;
    fs::set_permissions(&ceph, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let settings = Settings {
        kubeconfig: world.plane.kubeconfig(),
        folder: world.sandbox.dir().join("nodes"),
        nodes: [("n0".to_owned(), Node::default())].into(),
        images: [IMAGE, "machine:other"]
            .map(|name| {
                let image = Image {
                    env: [("PATH".to_owned(), path.clone())].into(),
                    ..Image::default()
                };
                (name.to_owned(), image)
            })
            .into(),
        pod_networks: false,
    };
    let _agent = Agent::start(&world.sandbox, &world.plane, Path::new(AGENT), &settings)?;
    let mut cluster = cluster();
    world.begin(&cluster)?;
    cluster["spec"]["dataDirHostPath"] = json!("/var/lib/rook");
    for object in objects() {
        world.apply(&object)?;
    }
    rights_to_provision(&world.plane)?;
    let config = world.kubeconfig()?;
    let ceph = ceph.display().to_string();
    let more = [
        "--ceph",
        &ceph,
        "--python",
        "",
        "--poll",
        "1",
        "--lock-expires",
        "6",
    ];
    let more = [&more[..], &ASKED_ABOUT_EVICTIONS].concat();
    webhook(&world.plane)?;
    let mut operator = Operator::start(&world, "one", &config, &more)?;
    let named = world.all_is_named(&programs, &cluster);
    let named = named.and_then(|()| world.an_eviction_is_refused_by(&["nobody is there"]));
    let named = named.and_then(|()| world.budgets_have_owners());
    let named = named.and_then(|()| world.provisioning_waits_for_rook(cluster));
    named.with_context(|| format!("the operator's log:\n{}", operator.log()))?;
    // Nobody answers for it, and what it had closed stays closed.
    operator.kill(&world)?;
    world.an_eviction_is_refused_by(&["disruption budget"])?;
    let mut operator = Operator::start(&world, "two", &config, &more)?;
    let given_back = world.what_was_closed_is_given_back();
    given_back.with_context(|| format!("the operator's log:\n{}", operator.log()))?;
    operator.stop(&world)
}

/// One whose monitors' data would not survive.
fn cluster() -> Value {
    json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "my-cluster", "namespace": NAMESPACE },
        "spec": {
            "cephVersion": { "image": "machine:other" },
            "disruptionManagement": { "managePodBudgets": true },
        },
    })
}

/// The monitors' addresses.
fn endpoints(data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "rook-ceph-mon-endpoints", "namespace": NAMESPACE },
        "data": { "data": data },
    })
}

/// An OSD whose pod sleeps; `labels`: which of it are as they should not be.
pub(crate) fn osd(id: u32, labels: &Value) -> Value {
    let name = format!("rook-ceph-osd-{id}");
    let mut all = json!({
        "app": "rook-ceph-osd", "rook_cluster": NAMESPACE, "ceph_daemon_type": "osd",
        "ceph_daemon_id": id.to_string(), "topology-location-host": "n0", "topology-location-rack": "r0",
    });
    let mut of_pod = all.clone();
    of_pod["own"] = json!(name);
    if let (Some(all), Some(labels)) = (all.as_object_mut(), labels.as_object()) {
        all.extend(labels.clone());
        all.retain(|_, value| !value.is_null());
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": all },
        "spec": {
            "selector": { "matchLabels": { "own": name } },
            "template": { "metadata": { "labels": of_pod }, "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "osd", "image": IMAGE, "command": ["sleep", "86400"] }],
            } },
        },
    })
}

fn objects() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "rook-ceph-mon", "namespace": NAMESPACE },
            "stringData": { "fsid": "f", "ceph-username": "client.admin", "ceph-secret": "k" },
        }),
        endpoints("nonsense"),
        osd(1, &json!({})),
        osd(3, &json!({ "topology-location-rack": null })),
        osd(7, &json!({ "ceph_daemon_id": null })),
        osd(8, &json!({ "ceph_daemon_id": "eight" })),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "rook-ceph-osd-n0-status", "namespace": NAMESPACE,
                "labels": { "app": "rook-ceph-osd", "status": "provisioning", "node": "n0" },
            },
            "data": { "status": "{ osds" },
        }),
    ]
}

impl World {
    /// Whether the condition that something is wrong says all of this, and an Event of the same reason each of it.
    pub(crate) fn is_told(&self, reason: &str, words: &[&str]) -> Result<bool> {
        let message = self.status(DEGRADED)?;
        Ok(words.iter().all(|word| message.contains(word)) && self.is_in_events(reason, words)?)
    }

    fn is_in_events(&self, reason: &str, words: &[&str]) -> Result<bool> {
        let events = self.events()?;
        Ok(words.iter().all(|word| {
            let mut of_reason = events.iter().filter(|(found, _)| found == reason);
            of_reason.any(|(_, note)| note.contains(word))
        }))
    }

    /// An OSD's pod is not evicted, and whoever asks is told all of this.
    fn an_eviction_is_refused_by(&self, words: &[&str]) -> Result<()> {
        let name = self.plane.ask(&[
            "get",
            "pods",
            "-n",
            NAMESPACE,
            "-l",
            "own=rook-ceph-osd-1",
            "-o",
            "jsonpath={.items[0].metadata.name}",
        ])?;
        self.wait(&format!("its eviction is refused by {words:?}"), || {
            match self.plane.evict(NAMESPACE, &name)? {
                Some(why) => Ok(words.iter().all(|word| why.contains(word))),
                None => bail!("{name} was evicted"),
            }
        })
    }

    /// With the CephMaintenance goes what was closed for it: one OSD may be evicted, as Rook has it.
    fn what_was_closed_is_given_back(&self) -> Result<()> {
        let budget = |path: &str| {
            let path = format!("jsonpath={path}");
            let words = ["get", "pdb", "rook-ceph-osd", "-n", NAMESPACE, "-o", &path];
            self.plane.ask(&words)
        };
        ensure!(budget("{.spec.maxUnavailable}")? == "0", "{}", budget("{.spec}")?);
        let words = ["delete", "cephmaintenance", "my-cluster", "-n", NAMESPACE];
        self.plane.ask(&[&words[..], &["--timeout=60s"]].concat())?;
        ensure!(budget("{.spec.maxUnavailable}")? == "1", "{}", budget("{.spec}")?);
        let labels = budget("{.metadata.labels}")?;
        ensure!(!labels.contains("stagger"), "it is still ours: {labels}");
        Ok(())
    }

    fn all_is_named(&self, programs: &Path, cluster: &Value) -> Result<()> {
        self.wait("labels are named that are not as they should be", || {
            self.is_told(
                "DeploymentUnclear",
                &[
                    "Deployment rook-ceph-osd-7: there is no label ceph_daemon_id; set it",
                    "Deployment rook-ceph-osd-8: its label ceph_daemon_id is \"eight\"",
                ],
            )
        })?;
        self.wait("a report that is no JSON is named", || {
            let remark = self.status("{.status.provisioning.remarks[0].message}")?;
            let words = ["ConfigMap rook-ceph-osd-n0-status: its key status is no report"];
            Ok(remark.contains(words[0])
                && remark.contains("delete it")
                && self.is_in_events("StatusUnreadable", &words)?)
        })?;
        let data = ["spec.dataDirHostPath of the CephCluster is not set"];
        self.wait("monitors whose data would not survive are named", || {
            let message = self.status("{.status.message}")?;
            Ok(message.contains(data[0]) && self.is_in_events("Blocked", &data)?)
        })?;
        self.apply(cluster)?;
        let addresses = ["ConfigMap rook-ceph-mon-endpoints", "nonsense"];
        self.wait("addresses that are none are named", || {
            let message = self.status("{.status.message}")?;
            Ok(addresses.iter().all(|word| message.contains(word))
                && self.is_in_events("Blocked", &addresses)?
                && self.is_told("DrainsNotSeenTo", &addresses)?)
        })?;
        self.apply(&endpoints("a=127.0.0.1:3300"))?;
        let silent = ["nobody is there"];
        self.wait("a Ceph that does not answer is named", || {
            let message = self.status("{.status.message}")?;
            Ok(message.contains(silent[0])
                && self.is_in_events("Blocked", &silent)?
                && self.status(AWAY)?.contains(silent[0]))
        })?;
        fs::write(programs.join("answers"), "")?;
        self.wait("a place that is missing is named, once Ceph says which", || {
            let label = "Deployment rook-ceph-osd-3 has no label topology-location-rack";
            self.is_told("OsdUnplaced", &[label])
        })?;
        // What is right again is told no more.
        for right in [3, 7, 8] {
            self.apply(&osd(right, &json!({})))?;
        }
        self.wait("nothing is told once all is right", || {
            let wrong = self.status(DEGRADED)?;
            Ok(!wrong.contains("has no label") && !wrong.contains("ceph_daemon_id"))
        })?;
        let generations = self.plane.ask(&[
            "get",
            "deployments",
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.items[*].metadata.generation}",
        ])?;
        ensure!(generations == "1 1 1 1", "something was changed: {generations}");
        Ok(())
    }
}
