//! The operator on a real API server without Ceph: what it says when it may not, cannot or need not do anything, and its
//! agents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::{last_lines, output, run};
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::node::{Agent, Image, Settings};
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::binary;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");
const NAMESPACE: &str = "rook-ceph";
/// Where the operator serves metrics and health, inside the sandbox.
const PORT: &str = "18080";
/// How long anything may take; a watch that was forbidden is tried again after half a minute at most.
const LIMIT: Duration = Duration::from_mins(1);

/// A cluster whose spec says nothing of an image, and something deprecated.
const CLUSTER: &str = r#"{
    "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
    "metadata": { "name": "my-cluster", "namespace": "rook-ceph" },
    "spec": { "dataDirHostPath": "/var/lib/rook", "skipUpgradeChecks": true }
}"#;

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn events_metrics_health_missing_rights_and_agents() -> Result<()> {
    let folder = Folder::make("operator-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let world = World { sandbox, plane };
    let config = world.prepare()?;
    world.a_locked_wish_is_not_changed()?;
    let metrics = ["--metrics".to_owned(), format!("127.0.0.1:{PORT}")];
    let mut operator = Operator::start(&world, "one", &config, &metrics)?;
    let told = world.rights_are_missed_and_given();
    let told = told.and_then(|()| world.all_is_told());
    told.with_context(|| format!("the operator's log:\n{}", operator.log()))?;
    // A second one cannot take the same port, and says so.
    let mut second = Operator::start(&world, "two", &config, &metrics)?;
    let ended = second.ends()?;
    let log = second.log();
    ensure!(
        ended == Some(2) && log.contains(PORT) && log.contains("--metrics"),
        "the second ended with {ended:?}: {log}"
    );
    operator.stop(&world)?;
    world.agents_follow_the_operator(&config)
}

struct World {
    sandbox: Sandbox,
    plane: Plane,
}

impl World {
    /// Definitions, a cluster, and an account that may not watch nodes; its kubeconfig.
    fn prepare(&self) -> Result<PathBuf> {
        self.plane.ask(&["create", "namespace", NAMESPACE])?;
        self.plane
            .ask(&["apply", "--server-side", "-f", &deployed("crds.yaml")])?;
        self.plane.ask(&[
            "wait",
            "crd/cephclusters.ceph.rook.io",
            "--for=condition=Established",
            "--timeout=30s",
        ])?;
        let path = self.sandbox.dir().join("cluster.json");
        fs::write(&path, CLUSTER).context("writing the cluster")?;
        self.plane.ask(&["create", "-f", &path.display().to_string()])?;
        let role = deployed("operator/rbac.yaml");
        let text = fs::read_to_string(&role).context("reading the role")?;
        let less = text.replace("resources: [pods, nodes]", "resources: [pods]");
        ensure!(less != text, "the role gives no right to nodes");
        let path = self.sandbox.dir().join("less.yaml");
        fs::write(&path, less).context("writing a lesser role")?;
        self.plane
            .ask(&["apply", "--server-side", "-f", &path.display().to_string()])?;
        let words = ["create", "token", "stagger-operator", "-n", NAMESPACE];
        let token = self.plane.ask(&words)?;
        let config = self
            .plane
            .kubeconfig_for("stagger-operator", NAMESPACE, token.trim());
        let path = self.sandbox.dir().join("operator.kubeconfig");
        fs::write(&path, config).context("writing a kubeconfig")?;
        Ok(path)
    }

    /// What the resource definition refuses while a run is under way, and what it does not.
    fn a_locked_wish_is_not_changed(&self) -> Result<()> {
        let patch = |of: &[&str], patch: Value| {
            let patch = patch.to_string();
            let words = [
                "patch",
                "cephcluster",
                "my-cluster",
                "-n",
                NAMESPACE,
                "--type=merge",
                "-p",
                &patch,
            ];
            self.plane.ask(&[&words, of].concat())
        };
        let image = || json!({ "spec": { "cephVersion": { "image": "ceph:v20" } } });
        let policy = |policy: Value| json!({ "spec": { "updatePolicy": policy } });
        let under_way = |is: Value| {
            let status = json!({ "status": { "upgrade": { "underWay": is } } });
            patch(&["--subresource=status"], status)
        };
        patch(&[], policy(json!({ "onSpecChange": "lock" })))?;
        patch(&[], image()).context("the lock without a run")?;
        under_way(json!(true))?;
        for refused in [
            json!({ "spec": { "cephVersion": { "image": "ceph:v21" } } }),
            json!({ "spec": { "cephVersion": null } }),
            json!({ "spec": { "resources": { "osd": { "limits": { "memory": "1Gi" } } } } }),
            policy(json!({ "osds": { "maxInParallelPerCluster": 2 } })),
            policy(json!({ "skipUpgradeChecks": true })),
            policy(json!({ "windows": [{ "from": "01:00", "until": "02:00", "zone": "UTC" }] })),
        ] {
            let Err(error) = patch(&[], refused.clone()) else {
                bail!("changed in spite of the lock: {refused}");
            };
            ensure!(format!("{error:#}").contains("onSpecChange is lock"), "{error:#}");
        }
        patch(&[], policy(json!({ "pause": true }))).context("a pause is no change")?;
        let disks =
            json!({ "spec": { "storage": { "nodes": [{ "name": "n", "devices": [{ "name": "sdb" }] }] } } });
        patch(&[], disks).context("growth is no change")?;
        patch(
            &[],
            policy(json!({ "onSpecChange": "interrupt", "osds": { "grow": false } })),
        )
        .context("the lock can be opened")?;
        // As it was.
        under_way(Value::Null)?;
        let path = self.sandbox.dir().join("cluster.json").display().to_string();
        self.plane.ask(&["replace", "-f", &path]).map(drop)
    }

    fn rights_are_missed_and_given(&self) -> Result<()> {
        self.wait("the missing right is in the status", || {
            let message = self.status("{.status.message}")?;
            Ok(message.contains("cannot list resource \"nodes\"")
                && message.contains("deploy/operator/rbac.yaml"))
        })?;
        let reason = self.status("{.status.upgrade.conditions[0].reason}")?;
        ensure!(reason == "MissingRights", "the reason is {reason}");
        let ready = self.get("/readyz")?;
        ensure!(
            ready.contains(" 503 ") && ready.contains("rook-ceph/my-cluster"),
            "{ready}"
        );
        self.plane
            .ask(&["apply", "--server-side", "-f", &deployed("operator/rbac.yaml")])?;
        self.wait("it is ready once the right is there", || {
            Ok(self.get("/readyz")?.contains(" 200 "))
        })?;
        self.wait("something else is in the status then", || {
            Ok(self
                .status("{.status.message}")?
                .contains("spec.cephVersion.image"))
        })
    }

    fn all_is_told(&self) -> Result<()> {
        self.wait("Events tell of it", || {
            let events = self.events()?;
            let told = |reason: &str, note: &str| {
                events
                    .iter()
                    .filter(|(found, text)| found == reason && text.contains(note))
                    .count()
            };
            Ok(told("Blocked", "MissingRights: nodes is forbidden") == 1
                && told("Blocked", "NoImage: spec.cephVersion.image is not set") == 1
                && told("ChecksAreSkipped", "skipUpgradeChecks is set") == 1
                && told("FieldRemarked", "spec.skipUpgradeChecks: it is deprecated") == 1)
        })
        .with_context(|| format!("{:?}", self.events()))?;
        let health = self.get("/healthz")?;
        ensure!(health.contains(" 200 "), "{health}");
        let metrics = self.get("/metrics")?;
        let of = "namespace=\"rook-ceph\",name=\"my-cluster\"";
        for line in [
            "stagger_leader 1.0".to_owned(),
            format!("stagger_cluster_blocked{{{of},reason=\"NoImage\"}} 1.0"),
            "stagger_api_requests_total{verb=\"list\",code=\"403\"}".to_owned(),
            "stagger_api_requests_total{verb=\"create\",code=\"201\"}".to_owned(),
        ] {
            ensure!(metrics.contains(&line), "no {line} in\n{metrics}");
        }
        Ok(())
    }

    /// Two nodes get an agent each, of the operator's image, and of the next operator's, one after the other. An
    /// operator that is older than the last that ran upgrades touches nothing.
    fn agents_follow_the_operator(&self, config: &Path) -> Result<()> {
        let images = ["stagger:one", "stagger:two"];
        let settings = Settings {
            kubeconfig: self.plane.kubeconfig(),
            folder: self.sandbox.dir().join("nodes"),
            nodes: ["n0", "n1"].map(|name| (name.to_owned(), BTreeMap::new())).into(),
            images: images.map(|name| (name.to_owned(), Image::default())).into(),
        };
        let _nodes = Agent::start(&self.sandbox, &self.plane, Path::new(AGENT), &settings)?;
        let words = |image: &str, release: &str| {
            let program = binary()?.display().to_string();
            Ok::<_, anyhow::Error>([
                "--metrics".to_owned(),
                "off".to_owned(),
                format!("--image={image}"),
                format!("--program={program}"),
                format!("--version-as={release}"),
            ])
        };
        for (name, release, image) in [("three", "98.0.0", images[0]), ("four", "99.0.0", images[1])] {
            let mut operator = Operator::start(self, name, config, &words(image, release)?)?;
            let brought = self.wait("every node has an agent of its image", || {
                let agents = self.ready_agents()?;
                ensure!(
                    image == images[0] || !agents.is_empty(),
                    "both agents went at once"
                );
                Ok(agents.len() == 2 && agents.iter().all(|found| found == image))
            });
            brought.with_context(|| operator.log())?;
            ensure!(self.lists_devices("n0")? && self.lists_devices("n1")?);
            if image == images[1] {
                self.plane.ask(&["delete", "node", "n0"])?;
                self.wait("the list of a node that is gone goes too", || {
                    Ok(!self.lists_devices("n0")? && self.lists_devices("n1")?)
                })?;
            }
            operator.stop(self)?;
        }
        self.plane.ask(&[
            "create",
            "configmap",
            "stagger-my-cluster",
            "-n",
            NAMESPACE,
            "--from-literal=operator=99.0.0",
        ])?;
        let mut operator = Operator::start(self, "five", config, &words(images[0], "98.0.0")?)?;
        let told = self.wait("an older operator says so", || {
            let reason = self.status("{.status.upgrade.conditions[0].reason}")?;
            let message = self.status("{.status.message}")?;
            Ok(reason == "OperatorTooOld" && message.contains("99.0.0") && message.contains("98.0.0"))
        });
        told.with_context(|| operator.log())?;
        let agents = self.ready_agents()?;
        ensure!(
            !agents.is_empty() && agents.iter().all(|image| image == images[1]),
            "{agents:?}"
        );
        operator.stop(self)
    }

    /// Whether there is a list of the devices of a node.
    fn lists_devices(&self, node: &str) -> Result<bool> {
        let name = format!("configmap/stagger-devices-{node}");
        let found = ["get", &name, "-n", NAMESPACE, "--ignore-not-found", "-o", "json"];
        let found = self.plane.ask(&found)?;
        Ok(found.contains("devices.json") && found.contains(node))
    }

    /// The images of the agents that are ready and not ending.
    fn ready_agents(&self) -> Result<Vec<String>> {
        let words = [
            "get",
            "pods",
            "-n",
            NAMESPACE,
            "-l",
            "app=stagger-agent",
            "-o",
            "json",
        ];
        let list: Value = serde_json::from_str(&self.plane.ask(&words)?)?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned);
        let pods = list["items"].as_array().context("no list of pods")?;
        Ok(pods.iter().filter(is_ready).filter_map(image).collect())
    }

    /// Something of the CephCluster.
    fn status(&self, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        let words = ["get", "cephcluster", "my-cluster", "-n", NAMESPACE, "-o", &path];
        self.plane.ask(&words)
    }

    /// Reason and note of each Event of the CephCluster.
    fn events(&self) -> Result<Vec<(String, String)>> {
        let list = self
            .plane
            .ask(&["get", "events", "-n", NAMESPACE, "-o", "json"])?;
        let list: Value = serde_json::from_str(&list)?;
        let items = list["items"].as_array().context("no list of Events")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(items
            .iter()
            .filter(|event| event["reportingComponent"] == "stagger.dev/operator")
            .map(|event| (text(&event["reason"]), text(&event["message"])))
            .collect())
    }

    /// The answer to a question to the operator, head and body.
    fn get(&self, path: &str) -> Result<String> {
        let ask = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{PORT}; \
             printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
        );
        run(self.sandbox.command("bash").args(["-c", &ask]))
    }

    fn wait(&self, what: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !done()? {
            if begun.elapsed() > LIMIT {
                bail!(
                    "not within {} s: {what}; the status: {}",
                    LIMIT.as_secs(),
                    self.status("{.status}")?
                );
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// An operator inside the sandbox, with which it ends.
struct Operator {
    child: Child,
    folder: PathBuf,
}

impl Operator {
    fn start(world: &World, name: &str, config: &Path, words: &[String]) -> Result<Self> {
        let folder = world.sandbox.dir().join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let log = File::create(folder.join("log")).context("making a log")?;
        let mut command = world.sandbox.command("sh");
        command
            .args(["-c", "echo $$ >\"$0\"; exec \"$@\""])
            .arg(folder.join("pid"))
            .arg(binary()?)
            .args(["operator", "--plain-logs", "--identity", name, "--state"])
            .arg(&folder)
            .args(words)
            .env("KUBECONFIG", config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log);
        let child = command.spawn().context("starting the operator")?;
        let operator = Self { child, folder };
        Ok(operator)
    }

    /// Tells it to stop, and waits until it has, well.
    fn stop(&mut self, world: &World) -> Result<()> {
        let pid = fs::read_to_string(self.folder.join("pid")).context("reading the operator's number")?;
        let ended = output(world.sandbox.command("kill").args(["-TERM", pid.trim()]))?;
        ensure!(ended.status.success(), "it cannot be told to stop");
        let ended = self.ends()?;
        ensure!(ended == Some(0), "it ended with {ended:?}: {}", self.log());
        Ok(())
    }

    /// With which code it ends.
    fn ends(&mut self) -> Result<Option<i32>> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait().context("looking after the operator")? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("it goes on: {}", self.log())
    }

    fn log(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&log), 40)
    }
}

/// A file that is deployed.
fn deployed(name: &str) -> String {
    format!("{}/../deploy/{name}", env!("CARGO_MANIFEST_DIR"))
}
