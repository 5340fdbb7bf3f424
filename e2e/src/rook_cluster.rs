//! A Ceph cluster that the real, unmodified Rook lays out, on a real Kubernetes whose nodes are our node agent.
//!
//! Its operator runs in a pod and does all that it does elsewhere: it starts the monitors, finds the disks of the
//! nodes, prepares and starts OSDs, and goes on reconciling. Nothing of it is part of this project
//! ([`rook_program`](crate::rook_program)).

mod case;
mod images;
mod operator;
mod restarts;
mod spec;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

pub use case::beside_rook;
pub use operator::OPERATOR;
pub use restarts::{Incarnations, Restarts};
pub use spec::{FILE_SYSTEM, OBJECT_STORE, POOL, RookSpec};

use crate::ceph::is_clean;
use crate::ceph_in_pods::{Place, maintenance};
use crate::command::{output, run, say};
use crate::files::put;
use crate::folder::Folder;
use crate::kubernetes::{Plane, definitions};
use crate::load::Load;
use crate::loop_devices;
use crate::node::{Agent, Node, Settings};
use crate::rados::{self, Rados, Target};
use crate::rook_program::Rook;
use crate::roots::{self, Release, Root};
use crate::sandbox::Sandbox;
use crate::second_build::SecondBuild;

/// The namespace of the cluster and of its operator.
pub const NAMESPACE: &str = "rook-ceph";
/// The folder of `client.admin` in the cluster's own, and the configuration in it.
const ADMIN: &str = "admin";
const CONF: &str = "ceph.conf";

/// As large as each disk, which takes only what is written to it.
const DISK: u64 = 6 << 30;
/// How much of the machine's disk a cluster may take.
const ROOM: u64 = 8_000_000_000;
/// How long the operator may take for a whole cluster.
const LIMIT: Duration = Duration::from_mins(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(400);

/// A cluster laid out by Rook. Dropping it ends all of it.
#[derive(Debug)]
pub struct RookCluster {
    // In this order they end: what runs in the sandbox before it, and its folder with it.
    rados: OnceLock<Mutex<Rados>>,
    /// The kubelets.
    pub agent: Agent,
    /// The control plane.
    pub plane: Plane,
    sandbox: Sandbox,
    _folder: Folder,
    root: Root,
    second: SecondBuild,
    /// The one that lays it out, and the one to upgrade to.
    rooks: Vec<Rook>,
    spec: RookSpec,
}

impl RookCluster {
    /// Starts the first Rook on empty nodes and waits until what it lays out is there and clean. The images of the others are
    /// there as well. `agent` is the `node-agent`.
    ///
    /// # Errors
    /// A part of it does not start, or not in time; what the operator said is told.
    pub fn start(rooks: Vec<Rook>, spec: RookSpec, agent: &Path) -> Result<Self> {
        let root = roots::ensure(&[spec.ceph])?
            .pop()
            .context("there is no root of that Ceph")?;
        let second = SecondBuild::of(&root)?;
        let folder = Folder::make("rook-", ROOM)?;
        let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
        let plane = Plane::start(&sandbox)?;
        let devices = disks(&sandbox, &spec)?;
        let nodes = nodes(&spec, &devices);
        let mut images = images::all(sandbox.dir(), &root, &second, &rooks)?;
        images.extend(spec.images.clone());
        let settings = Settings {
            kubeconfig: plane.kubeconfig(),
            folder: sandbox.dir().join("nodes"),
            nodes,
            images,
            pod_networks: spec.pod_networks,
        };
        let agent = Agent::start(&sandbox, &plane, agent, &settings)?;
        let this = Self {
            rados: OnceLock::new(),
            agent,
            plane,
            sandbox,
            _folder: folder,
            root,
            second,
            rooks,
            spec,
        };
        let ceph_in_pods = this.lay_out(&devices);
        ceph_in_pods.inspect_err(|_| say(this.tail()))?;
        Ok(this)
    }

    /// Installs a Rook, or upgrades to it, by its own manifests, as its guide says.
    fn install(&self, rook: &Rook) -> Result<()> {
        for manifest in ["crds.yaml", "common.yaml"] {
            self.plane.apply_over("kubectl", &rook.manifest(manifest)?)?;
        }
        self.plane.apply_over("kubectl", &rook.driver_definitions()?)?;
        let definitions = [
            "wait",
            "crd",
            "--all",
            "--for=condition=Established",
            "--timeout=60s",
        ];
        self.plane.ask(&definitions)?;
        let mut manifest = rook.manifest("operator.yaml")?;
        // The disks are files here, and nobody asks for volumes.
        let settings = [
            (
                "ROOK_CEPH_ALLOW_LOOP_DEVICES: \"false\"",
                "ROOK_CEPH_ALLOW_LOOP_DEVICES: \"true\"",
            ),
            (
                "ROOK_CSI_ENABLE_CEPHFS: \"true\"",
                "ROOK_CSI_ENABLE_CEPHFS: \"false\"",
            ),
            ("ROOK_CSI_ENABLE_RBD: \"true\"", "ROOK_CSI_ENABLE_RBD: \"false\""),
        ];
        let (loop_devices, _) = settings[0];
        ensure!(
            manifest.contains(loop_devices),
            "operator.yaml does not say {loop_devices}"
        );
        for (without, with) in settings {
            manifest = manifest.replace(without, with);
        }
        self.plane.apply_over("kubectl", &manifest)?;
        self.wait_for_operator()
    }

    /// Upgrades Rook to the last of those that the cluster was started with.
    ///
    /// # Errors
    /// Its manifests are refused, or it does not start.
    pub fn upgrade_rook(&self) -> Result<()> {
        self.install(self.rooks.last().context("there is no Rook to upgrade to")?)
    }

    /// Tells Rook what is wished, and waits until it is there.
    fn lay_out(&self, devices: &BTreeMap<String, Vec<PathBuf>>) -> Result<()> {
        let begun = Instant::now();
        let lap = |what: &str| say(format!("rook: {:6.1} s  {what}", begun.elapsed().as_secs_f64()));
        self.install(self.rooks.first().context("there is no Rook")?)?;
        lap("the operator runs");
        let devices: BTreeMap<String, Vec<String>> = devices
            .iter()
            .map(|(node, devices)| {
                let names = devices.iter().map(|one| one.display().to_string());
                (node.clone(), names.collect())
            })
            .collect();
        let cluster = self.spec.cluster(&self.image(), &devices);
        self.plane.apply("kubectl", &[cluster])?;
        self.plane.apply("kubectl", &self.spec.pools())?;
        self.wait_told("Rook has laid out the cluster", LIMIT, |status| {
            Ok(status["phase"] == "Ready")
        })?;
        lap("the CephCluster is ready");
        if self.spec.ceph != Release::Tentacle {
            // Of Debian's packages it does not find what it needs; newer releases have none.
            let restful = json!({ "module": "restful" });
            self.rados()?
                .command(Target::Mon, "mgr module disable", restful)?;
        }
        let mut made = vec![format!("cephblockpool/{POOL}")];
        if self.spec.file_system {
            made.push(format!("cephfilesystem/{FILE_SYSTEM}"));
        }
        if self.spec.object_store {
            made.push(format!("cephobjectstore/{OBJECT_STORE}"));
        }
        for one in made {
            let ready = ["--for=jsonpath={.status.phase}=Ready", "--timeout=300s"];
            self.plane
                .ask(&[&["wait", &one, "-n", NAMESPACE], &ready[..]].concat())?;
            lap(&format!("the {one} is ready"));
        }
        let available = ["--for=condition=Available", "--timeout=300s"];
        self.plane
            .ask(&[&["wait", "deployment", "--all", "-n", NAMESPACE], &available[..]].concat())?;
        lap("every daemon runs");
        self.wait_clean(LIMIT)?;
        lap("all placement groups are clean");
        // Pools begin larger than Ceph then makes them.
        let begun = Instant::now();
        while self.complaints()?.iter().any(|code| code == "TOO_MANY_PGS") {
            ensure!(begun.elapsed() < LIMIT, "there are too many placement groups");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The name of the image that the cluster began with.
    pub fn image(&self) -> String {
        images::name(self.root.ceph_version())
    }

    /// The name of the image that an update can go to: a second build of the same Ceph.
    pub fn next_image(&self) -> String {
        images::name(&self.second.version)
    }

    /// What was asked for.
    pub fn spec(&self) -> &RookSpec {
        &self.spec
    }

    /// The folder of the cluster: the same path outside, inside, and in every container.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// The namespaces that it runs in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Where a path of a node is; without the slash before it.
    pub fn on_node(&self, node: &str, path: &str) -> PathBuf {
        self.dir().join("nodes/hosts").join(node).join(path)
    }

    /// Where an operator of ours is started beside Rook's.
    pub fn operators(&self) -> Place<'_> {
        Place {
            sandbox: &self.sandbox,
            plane: &self.plane,
            root: &self.root.path,
            provisions: false,
        }
    }

    /// A lasting connection to Ceph as `client.admin`, with the monitors and the key that Rook keeps in its Secrets.
    ///
    /// # Errors
    /// Rook has not written them yet, or there is no quorum.
    pub fn rados(&self) -> Result<MutexGuard<'_, Rados>> {
        if self.rados.get().is_none() {
            let made = Mutex::new(self.connect()?);
            // Somebody else may have been quicker.
            self.rados.set(made).ok();
        }
        let rados = self.rados.get().context("the connection is there")?;
        Ok(rados.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn connect(&self) -> Result<Rados> {
        let secret = |name: &str, key: &str| -> Result<String> {
            let template = format!("go-template={{{{ index .data \"{key}\" | base64decode }}}}");
            let words = ["get", "secret", name, "-n", NAMESPACE, "-o", &template];
            self.plane.ask(&words)
        };
        let folder = self.dir().join(ADMIN);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let keyring = folder.join("keyring");
        put(&keyring, &secret("rook-ceph-admin-keyring", "keyring")?)?;
        let conf = folder.join(CONF);
        let monitors = secret("rook-ceph-config", "mon_host")?;
        put(
            &conf,
            &format!(
                "[global]\nmon_host = {monitors}\nkeyring = {}\n",
                keyring.display()
            ),
        )?;
        let program = folder.join("connection.py");
        put(&program, rados::PROGRAM)?;
        let mut command = self.sandbox.command_in(&self.root.path, "python3");
        Rados::connect(command.arg(program).arg(conf).arg("client.admin"))
    }

    /// Starts the load of the pool: clients that must not notice what is done to its OSDs.
    ///
    /// # Errors
    /// It cannot be started, or does nothing within a minute.
    pub fn load(&self) -> Result<Load> {
        // With it the configuration and the key are there.
        drop(self.rados()?);
        let folder = self.dir().join(ADMIN);
        let python = self.sandbox.command_in(&self.root.path, "python3");
        Load::of_pool(python, &folder, &folder.join(CONF), "client.admin", POOL)
    }

    /// Gives a node an empty disk in the place of that of its OSD, which is gone for good: as a person does whose disk has
    /// died. Rook makes a new OSD on it when it looks for disks the next time.
    ///
    /// # Errors
    /// The OSD is up, or somebody refuses a part of it.
    pub fn empty_disk(&self, node: &str, osd: u64) -> Result<()> {
        let gone = json!({ "id": osd, "yes_i_really_mean_it": true });
        self.rados()?.command(Target::Mon, "osd purge-actual", gone)?;
        let deployment = format!("deployment/rook-ceph-osd-{osd}");
        self.plane
            .ask(&["delete", &deployment, "-n", NAMESPACE, "--wait"])?;
        let cluster = self.plane.object(NAMESPACE, "cephcluster", NAMESPACE)?;
        let nodes = cluster["spec"]["storage"]["nodes"]
            .as_array()
            .context("no nodes")?;
        let of_node = nodes.iter().find(|one| one["name"] == node);
        let device = of_node.and_then(|one| one["devices"][0]["name"].as_str());
        let device = device.with_context(|| format!("{node} has no disk"))?;
        run(self.sandbox.command("blkdiscard").args(["--force", device])).map(drop)
    }

    /// Waits until every OSD is up and every placement group is active and clean.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_clean(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.rados()?.mon("status")?;
            if is_clean(&status, self.spec.osds()) {
                return Ok(());
            }
            if begun.elapsed() > limit {
                bail!("not clean within {} s: {status}", limit.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The codes of the health checks that are raised and that a healthy cluster of this release does not have.
    ///
    /// # Errors
    /// Ceph does not answer.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let health = self.rados()?.mon("health")?;
        let unavoidable = self.spec.ceph.unavoidable_health_codes();
        let checks = health["checks"]
            .as_object()
            .context("`health` without `checks`")?;
        let codes = checks.keys().filter(|code| !unavoidable.contains(&code.as_str()));
        Ok(codes.cloned().collect())
    }

    /// Waits until the CephCluster's status is as it should be, and gives it. Each new message is printed.
    ///
    /// # Errors
    /// It is not so in time, or `done` fails.
    pub fn wait_told(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Value) -> Result<bool>,
    ) -> Result<Value> {
        self.wait_status("cephcluster", what, limit, &mut done)
    }

    /// The same of the CephMaintenance.
    ///
    /// # Errors
    /// As of [`RookCluster::wait_told`].
    pub fn wait_ours(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Value) -> Result<bool>,
    ) -> Result<Value> {
        self.wait_status("cephmaintenance", what, limit, &mut done)
    }

    fn wait_status(
        &self,
        of: &str,
        what: &str,
        limit: Duration,
        done: &mut dyn FnMut(&Value) -> Result<bool>,
    ) -> Result<Value> {
        let begun = Instant::now();
        let mut last = String::new();
        loop {
            let status = self.plane.object(NAMESPACE, of, NAMESPACE)?["status"].take();
            let message = format!("{} {}", status["phase"], status["message"]);
            if message != last {
                say(format!(
                    "   {:6.1} s  {message:.160}",
                    begun.elapsed().as_secs_f64()
                ));
                last = message;
            }
            if done(&status)? {
                return Ok(status);
            }
            if begun.elapsed() > limit {
                bail!("not within {} s: {what}: {status:#}", limit.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Changes the CephCluster as a person would.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn patch_cluster(&self, patch: &Value) -> Result<()> {
        self.patch("cephcluster", patch)
    }

    /// The same of the CephMaintenance.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn patch_maintenance(&self, patch: &Value) -> Result<()> {
        self.patch("cephmaintenance", patch)
    }

    fn patch(&self, of: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        let what = ["patch", of, NAMESPACE, "-n", NAMESPACE];
        self.plane
            .ask(&[&what[..], &["--type=merge", "-p", &patch]].concat())
            .map(drop)
    }

    /// Lets an operator of ours do that for the cluster.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn maintain(&self, manage: &Value) -> Result<()> {
        definitions::ours(&self.plane)?;
        self.plane.apply("kubectl", &[maintenance(NAMESPACE, manage)])
    }

    /// Memory of all processes inside, in bytes: what each has for itself, and its part of what it shares.
    ///
    /// # Errors
    /// The sandbox does not tell its processes.
    pub fn memory(&self) -> Result<u64> {
        let ask = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ { sum += $2 } END { print sum }'";
        let said = run(self.sandbox.command("sh").args(["-c", ask]))?;
        let kilobytes: u64 = said
            .trim()
            .parse()
            .with_context(|| format!("awk said {said:?}"))?;
        Ok(kilobytes * 1024)
    }

    /// What there is and what the operator said last, for the message of a failed test.
    pub fn tail(&self) -> String {
        let mut text = String::new();
        for words in [
            &["get", "pods", "-A", "-o", "wide"][..],
            &["get", "cephcluster,cephmaintenance", "-A"],
            &[
                "logs",
                "deployment/rook-ceph-operator",
                "-n",
                NAMESPACE,
                "--tail=60",
            ],
            &[
                "logs",
                "-l",
                "app=rook-ceph-osd-prepare",
                "-n",
                NAMESPACE,
                "--tail=40",
            ],
        ] {
            let said = output(self.plane.kubectl().args(words));
            text.push_str(&said.map_or_else(
                |error| format!("{error:#}\n"),
                |said| String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned() + "\n",
            ));
        }
        text
    }

    /// Ends the cluster and waits until nothing of it is left.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(mut self) -> Result<()> {
        self.sandbox.stop()
    }
}

/// Gives each node its disks.
fn disks(sandbox: &Sandbox, spec: &RookSpec) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let per_node = usize::from(spec.osds_per_node);
    let files: Vec<PathBuf> = spec
        .nodes()
        .iter()
        .flat_map(|node| (0..per_node).map(move |disk| format!("disks/{node}-{disk}")))
        .map(|name| sandbox.dir().join(name))
        .collect();
    let devices = loop_devices::make(sandbox, &files, DISK)?;
    let mut devices = devices.into_iter();
    let of_node = |node| (node, devices.by_ref().take(per_node).collect());
    Ok(spec.nodes().into_iter().map(of_node).collect())
}

fn nodes(spec: &RookSpec, devices: &BTreeMap<String, Vec<PathBuf>>) -> BTreeMap<String, Node> {
    (0_u8..)
        .zip(spec.nodes())
        .map(|(number, name)| {
            let node = Node {
                labels: spec.labels(number),
                address: Some(RookSpec::address(number)),
                devices: Some(devices.get(&name).cloned().unwrap_or_default()),
            };
            (name, node)
        })
        .collect()
}
