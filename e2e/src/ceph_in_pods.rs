//! A real Ceph cluster on a real Kubernetes, laid out as Rook does: its names, its labels, its objects.
//!
//! The Ceph cluster is made as any other of the harness, then its daemons are ended, and from then on pods
//! run them: a Deployment for each, on the node that has the same name as its CRUSH host.

mod as_rook;
mod case;
mod conf;
mod deployments;
mod disks;
mod drained;
mod gateways;
mod operator;
mod waits;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub use case::{in_pods, in_pods_of};
pub use deployments::{imitation, told_of};
pub use operator::{ASKED_ABOUT_EVICTIONS, Operator, Place, rights_in, rights_to_provision, webhook};

use crate::ceph::spec::FS;
use crate::ceph::{CephSpec, Cluster, Daemon, Kind};
use crate::command::{last_lines, output};
use crate::kubernetes::{Plane, definitions};
use crate::node::{self, Agent, Broken, Image, Node};
use crate::rados::Target;
use crate::roots::Release;

/// The namespace of the cluster, and of the operators.
pub const NAMESPACE: &str = "rook-ceph";
/// The image in which `stagger` itself runs.
pub const STAGGER_IMAGE: &str = "stagger:test";
/// The same by another name: what an operator is upgraded to.
pub const NEXT_STAGGER_IMAGE: &str = "stagger:next";

/// A cluster laid out. Dropping it ends all of it.
#[derive(Debug)]
pub struct CephInPods {
    // In this order they end: the agent and the plane before the sandbox that they run in.
    /// The kubelets.
    pub agent: Agent,
    /// The control plane.
    pub plane: Plane,
    /// The Ceph cluster.
    pub ceph: Cluster,
}

impl CephInPods {
    /// Makes one on `release`; `releases` are at hand as images.
    ///
    /// # Errors
    /// A part of it does not start; the ends of its logs are told.
    pub fn start(release: Release, spec: CephSpec, releases: &[Release], agent: &Path) -> Result<Self> {
        let ceph = Cluster::boot_with(release, spec, releases)?;
        let plane = Plane::start(ceph.sandbox())?;
        let settings = settings(&ceph, &plane, releases)?;
        let agent = Agent::start(ceph.sandbox(), &plane, agent, &settings)?;
        let this = Self { agent, plane, ceph };
        this.objects(release)?;
        this.hand_over(release)?;
        Ok(this)
    }

    /// The name of an image with that release of Ceph.
    ///
    /// # Errors
    /// The release is not at hand.
    pub fn image(&self, release: Release) -> Result<String> {
        image(&self.ceph, release)
    }

    /// Applies objects as somebody of that name, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// The server refuses one.
    pub fn apply(&self, manager: &str, objects: &[Value]) -> Result<()> {
        self.plane.apply(manager, objects)
    }

    /// Writes an object as a whole as somebody of that name, as a program does that has read and changed it.
    ///
    /// # Errors
    /// The server refuses it, as it does where somebody has written to it meanwhile.
    pub fn replace(&self, manager: &str, object: &Value) -> Result<()> {
        self.plane.replace(manager, object)
    }

    /// An object as JSON.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, what: &str, name: &str) -> Result<Value> {
        self.plane.object(NAMESPACE, what, name)
    }

    /// All objects of a kind in the namespace.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn all(&self, what: &str) -> Result<Vec<Value>> {
        self.plane.objects(NAMESPACE, what)
    }

    /// Changes what is wanted of the cluster as a person would: what is under `spec.updatePolicy`, `spec.manage` and
    /// `metadata` in the CephMaintenance, all else in the CephCluster.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn patch_cluster(&self, patch: &Value) -> Result<()> {
        let mut of_cluster = patch.clone();
        let mut of_maintenance = json!({});
        if let Some(metadata) = of_cluster.as_object_mut().and_then(|all| all.remove("metadata")) {
            of_maintenance["metadata"] = metadata;
        }
        if let Some(spec) = of_cluster["spec"].as_object_mut() {
            for field in ["updatePolicy", "manage"] {
                if let Some(value) = spec.remove(field) {
                    of_maintenance["spec"][field] = value;
                }
            }
        }
        let says_something = |patch: &Value| patch["spec"].as_object().is_some_and(|spec| !spec.is_empty());
        if says_something(&of_maintenance) || of_maintenance.get("metadata").is_some() {
            self.patch("cephmaintenance", &of_maintenance)?;
        }
        if says_something(&of_cluster) {
            self.patch("cephcluster", &of_cluster)?;
        }
        Ok(())
    }

    fn patch(&self, what: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        let words = [
            "patch",
            what,
            NAMESPACE,
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            &patch,
        ];
        self.plane.ask(&words).map(|_| ())
    }

    /// The ends of the operators' logs, for the message of a failed test.
    pub fn operators_tail(&self) -> String {
        let mut text = String::new();
        let folders = fs::read_dir(self.ceph.dir().join("operators"));
        for folder in folders.into_iter().flatten().flatten() {
            let log = fs::read(folder.path().join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).into_owned();
            let name = folder.file_name().to_string_lossy().into_owned();
            text.extend(["-- operator ", &name, "\n", &last_lines(&log, 25), "\n"]);
            let pid = fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
            text.push_str(&self.threads(pid.trim()));
        }
        text
    }

    /// What each thread of a process inside does: name, state, ticks taken, and what it waits for in the kernel.
    fn threads(&self, pid: &str) -> String {
        const ASK: &str = "cd /proc/$0/task 2>/dev/null || exit 0; for t in *; do \
             echo \"   thread $t $(cat $t/comm) $(sed 's/.*) //' $t/stat | cut -d' ' -f1,12,13) $(cat $t/wchan)\"; done";
        let said = output(self.ceph.sandbox().command("sh").args(["-c", ASK, pid]));
        said.map_or_else(
            |error| format!("   its threads are not told: {error}\n"),
            |said| String::from_utf8_lossy(&said.stdout).into_owned(),
        )
    }

    fn objects(&self, release: Release) -> Result<()> {
        definitions::ours(&self.plane)?;
        definitions::of_rook(&self.plane)?;
        let endpoints: Vec<String> = self
            .ceph
            .spec()
            .daemons(Kind::Mon)
            .iter()
            .map(|mon| {
                let path = self.ceph.dir().join("sw").join(format!("{mon}.addr"));
                let address =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                Ok(format!("{}={}", mon.id, address.trim()))
            })
            .collect::<Result<_>>()?;
        let addresses: Vec<String> = endpoints
            .iter()
            .filter_map(|endpoint| Some(format!("[v2:{}]", endpoint.split_once('=')?.1)))
            .collect();
        let keyring = self.ceph.dir().join("keyring/client.admin");
        let keyring =
            fs::read_to_string(&keyring).with_context(|| format!("reading {}", keyring.display()))?;
        let key = keyring
            .lines()
            .find_map(|line| line.trim().strip_prefix("key = "))
            .context("the keyring has no key")?;
        let fsid = self.ceph.rados().mon("fsid")?;
        let meta = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        self.apply(
            "rook",
            &[json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
            })],
        )?;
        self.apply(
            "rook",
            &[
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("rook-ceph-mon-endpoints"),
                    "data": { "data": endpoints.join(","), "maxMonId": "2", "mapping": "{}" },
                }),
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": meta("rook-ceph-mon"),
                    "type": "kubernetes.io/rook",
                    "stringData": {
                        "cluster-name": NAMESPACE, "fsid": fsid["fsid"],
                        "ceph-username": "client.admin", "ceph-secret": key,
                    },
                }),
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": meta("rook-ceph-config"),
                    "type": "kubernetes.io/rook",
                    "stringData": {
                        "mon_host": addresses.join(","), "mon_initial_members": "a,b,c",
                    },
                }),
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("rook-config-override"),
                    "data": { "config": conf::OVERRIDE },
                }),
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("rook-ceph-operator"),
                    "spec": {
                        "replicas": 0,
                        "selector": { "matchLabels": { "app": "rook-ceph-operator" } },
                        "template": {
                            "metadata": { "labels": { "app": "rook-ceph-operator" } },
                            "spec": { "containers": [{ "name": "operator", "image": "rook/ceph:v1.20.0" }] },
                        },
                    },
                }),
                json!({
                    "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": meta(NAMESPACE),
                    "spec": {
                        "cephVersion": { "image": self.image(release)? },
                        "dataDirHostPath": "/var/lib/rook",
                        "mon": { "count": self.ceph.spec().mons, "allowMultiplePerNode": false },
                        "mgr": { "count": self.ceph.spec().mgrs },
                        "disruptionManagement": { "managePodBudgets": true },
                        "storage": { "useAllNodes": true, "useAllDevices": false },
                    },
                }),
                maintenance(NAMESPACE, &json!(["drains", "updates", "provisioning"])),
            ],
        )
    }

    /// Ends the daemons where they are, and has pods run them.
    fn hand_over(&self, release: Release) -> Result<()> {
        let daemons = self.ceph.spec().all_daemons();
        let mut objects = Vec::new();
        for daemon in &daemons {
            objects.push(deployments::of(&self.ceph, daemon, &self.image(release)?)?);
        }
        let (mons, others): (Vec<_>, Vec<_>) = daemons.iter().partition(|daemon| daemon.kind == Kind::Mon);
        self.end(&others)?;
        // Else the monitors first wait whether the metadata server, which has ended, is only slow. Told before
        // its end, it would start itself anew.
        let fs = |prefix: &str, fields: Value| self.ceph.rados().command(Target::Mon, prefix, fields);
        fs("fs fail", json!({ "fs_name": FS }))?;
        fs(
            "fs set",
            json!({ "fs_name": FS, "var": "joinable", "val": "true" }),
        )?;
        self.end(&mons)?;
        self.apply("rook", &objects)?;
        let all = ["wait", "deployment", "--all", "-n", NAMESPACE];
        self.plane
            .ask(&[&all[..], &["--for=condition=Available", "--timeout=120s"]].concat())
            .context("a daemon does not run in its pod")?;
        self.ceph.wait_clean(Duration::from_mins(3)).with_context(|| {
            let pods = self.plane.ask(&["get", "pods", "-n", NAMESPACE, "-o", "wide"]);
            format!("pods do not serve: {}", pods.unwrap_or_default())
        })?;
        Ok(())
    }

    /// Ends daemons where they were started.
    fn end(&self, daemons: &[&Daemon]) -> Result<()> {
        std::thread::scope(|scope| {
            let ending: Vec<_> = daemons
                .iter()
                .map(|daemon| {
                    scope.spawn(|| {
                        self.ceph
                            .daemonctl(&["stop", &daemon.kind.to_string(), &daemon.id])
                    })
                })
                .collect();
            ending.into_iter().try_for_each(|one| match one.join() {
                Ok(ended) => ended.map(|_| ()),
                Err(_) => Err(anyhow::anyhow!("a daemon could not be ended")),
            })
        })
    }
}

/// A CephMaintenance of the CephCluster of that name, which does that for it.
pub fn maintenance(name: &str, manage: &Value) -> Value {
    json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": name, "namespace": name },
        "spec": { "cephCluster": name, "manage": manage },
    })
}

fn image(ceph: &Cluster, release: Release) -> Result<String> {
    let version = ceph.root(release)?.ceph_version();
    Ok(format!("quay.io/ceph/ceph:v{version}"))
}

/// Nodes as the CRUSH hosts, and images: each release, and each with a broken program.
fn settings(ceph: &Cluster, plane: &Plane, releases: &[Release]) -> Result<node::Settings> {
    let mut nodes = BTreeMap::new();
    for osd in 0..ceph.spec().osds {
        let (rack, host) = ceph.spec().place(osd);
        let labels = BTreeMap::from([("topology.rook.io/rack".to_owned(), format!("rack{rack}"))]);
        let node = Node {
            labels,
            ..Node::default()
        };
        nodes.insert(format!("host{host}"), node);
    }
    let mut images: BTreeMap<String, Image> = [STAGGER_IMAGE, NEXT_STAGGER_IMAGE]
        .map(|name| (name.to_owned(), Image::default()))
        .into();
    for release in releases {
        let good = Image {
            root: Some(ceph.root(*release)?.path.clone()),
            env: BTreeMap::from([("PYTHONPATH".to_owned(), "/opt/stagger".to_owned())]),
            ..Image::default()
        };
        let name = image(ceph, *release)?;
        for program in ["ceph-mon", "ceph-osd"] {
            for (how, broken) in [("fails", Broken::AtOnce), ("crashes", Broken::After(10))] {
                let bad = Image {
                    broken: BTreeMap::from([(program.to_owned(), broken)]),
                    ..good.clone()
                };
                images.insert(format!("{name}-{program}-{how}"), bad);
            }
        }
        // The same once more, by another name.
        images.insert(format!("{name}-again"), good.clone());
        images.insert(name, good);
    }
    Ok(node::Settings {
        kubeconfig: plane.kubeconfig(),
        folder: node_folder(ceph),
        nodes,
        images,
        pod_networks: false,
    })
}

fn node_folder(ceph: &Cluster) -> PathBuf {
    ceph.dir().join("nodes")
}
