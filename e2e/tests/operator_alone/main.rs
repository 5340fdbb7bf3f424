//! The operator on a real API server without Ceph: what it says when it may not, cannot or need not do anything, and
//! its agents.

mod agents;
mod bad_input;
mod beside_rook;
mod lock;
mod rights;
mod told;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::{last_lines, output};
use stagger_e2e::kubernetes::{Plane, definitions};
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::binary;

const NAMESPACE: &str = "rook-ceph";
/// Where the operator serves metrics and health, inside the sandbox.
const PORT: &str = "18080";
/// How long anything may take; a watch that was forbidden is tried again after half a minute at most.
const LIMIT: Duration = Duration::from_mins(1);

struct World {
    sandbox: Sandbox,
    plane: Plane,
}

impl World {
    /// Makes the namespace, the definitions and a cluster.
    fn begin(&self, cluster: &Value) -> Result<()> {
        self.plane.ask(&["create", "namespace", NAMESPACE])?;
        definitions::ours(&self.plane)?;
        definitions::of_rook(&self.plane)?;
        self.apply(cluster)?;
        self.apply(&ours())
    }

    /// Makes an object, or makes it so.
    fn apply(&self, object: &Value) -> Result<()> {
        self.apply_text(&object.to_string())
    }

    /// The same of objects as they stand in a file.
    fn apply_text(&self, text: &str) -> Result<()> {
        let path = self.sandbox.dir().join("objects");
        fs::write(&path, text).context("writing objects")?;
        let path = path.display().to_string();
        self.plane
            .ask(&["apply", "--server-side", "--force-conflicts", "-f", &path])
            .map(drop)
    }

    /// A kubeconfig for the operator's account.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let words = ["create", "token", "stagger-operator", "-n", NAMESPACE];
        let token = self.plane.ask(&words)?;
        let config = self
            .plane
            .kubeconfig_for("stagger-operator", NAMESPACE, token.trim());
        let path = self.sandbox.dir().join("operator.kubeconfig");
        fs::write(&path, config).context("writing a kubeconfig")?;
        Ok(path)
    }

    /// Something of the CephMaintenance.
    fn status(&self, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        let words = [
            "get",
            "cephmaintenance",
            "my-cluster",
            "-n",
            NAMESPACE,
            "-o",
            &path,
        ];
        self.plane.ask(&words)
    }

    /// Reason and note of each Event of the CephMaintenance.
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
    /// Starts one with some words more.
    fn start(world: &World, name: &str, config: &Path, more: &[&str]) -> Result<Self> {
        let folder = world.sandbox.dir().join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let log = File::create(folder.join("log")).context("making a log")?;
        let mut command = world.sandbox.command("sh");
        command
            .args(["-c", "echo $$ >\"$0\"; exec \"$@\""])
            .arg(folder.join("pid"))
            .arg(binary()?)
            .args([
                "operator",
                "--plain-logs",
                "--identity",
                name,
                "--watch-namespace",
                NAMESPACE,
                "--metrics",
            ])
            .arg(format!("127.0.0.1:{PORT}"))
            .arg("--state")
            .arg(&folder)
            .args(more)
            .env("KUBECONFIG", config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log);
        let child = command.spawn().context("starting the operator")?;
        let operator = Self { child, folder };
        Ok(operator)
    }

    /// Ends it at once.
    fn kill(&mut self, world: &World) -> Result<()> {
        self.signal(world, "-KILL")?;
        self.ends().map(drop)
    }

    fn signal(&self, world: &World, signal: &str) -> Result<()> {
        let pid = fs::read_to_string(self.folder.join("pid")).context("reading the operator's number")?;
        let sent = output(world.sandbox.command("kill").args([signal, pid.trim()]))?;
        ensure!(sent.status.success(), "it cannot be sent {signal}");
        Ok(())
    }

    /// Tells it to stop, and waits until it has, well.
    fn stop(&mut self, world: &World) -> Result<()> {
        self.signal(world, "-TERM")?;
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

/// What the operator may do for the cluster: everything.
fn ours() -> Value {
    json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": "my-cluster", "namespace": NAMESPACE },
        "spec": { "cephCluster": "my-cluster", "manage": ["drains", "updates", "provisioning"] },
    })
}

/// A file that is deployed.
fn deployed(name: &str) -> String {
    format!("{}/../deploy/{name}", env!("CARGO_MANIFEST_DIR"))
}
