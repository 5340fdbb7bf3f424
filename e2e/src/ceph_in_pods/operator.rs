//! The operator, as a process inside the sandbox.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::{CephInPods, NAMESPACE, STAGGER_IMAGE};
use crate::command::{last_lines, run};
use crate::kubernetes::Plane;
use crate::roots::Release;
use crate::sandbox::Sandbox;
use crate::stagger::binary;

/// One `stagger operator`. Dropping it kills it, without a word.
#[derive(Debug)]
pub struct Operator {
    name: String,
    child: Child,
    log: PathBuf,
    pid: PathBuf,
    prefix: Vec<String>,
}

impl Operator {
    /// Starts one; `name` tells its files from another's. It speaks to Ceph by the programs of `release`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(cluster: &CephInPods, name: &str, release: Release) -> Result<Self> {
        Self::start_with(cluster, name, release, &[])
    }

    /// Starts one with some words more; where they do not say otherwise, it has no agents.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_with(cluster: &CephInPods, name: &str, release: Release, more: &[&str]) -> Result<Self> {
        let place = Place {
            sandbox: cluster.ceph.sandbox(),
            plane: &cluster.plane,
            root: &cluster.ceph.root(release)?.path,
            provisions: true,
        };
        let mut more = more.to_vec();
        if !more.contains(&"--image") {
            more.extend(["--image", STAGGER_IMAGE]);
        }
        place.start(name, &more)
    }

    /// Kills it, as a machine without power would.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.end().context("killing the operator")
    }

    /// What it has kept of what went wrong: texts by their paths.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn artifacts(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let folder = self.log.with_file_name("operator").join("artifacts");
        let mut left = vec![folder];
        while let Some(path) = left.pop() {
            if path.is_dir() {
                for entry in fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
                    left.push(entry?.path());
                }
            } else {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                found.insert(path.display().to_string(), text);
            }
        }
        Ok(found)
    }

    /// Whether it still is the process that was started.
    ///
    /// # Errors
    /// It cannot be looked after.
    pub fn runs(&mut self) -> Result<bool> {
        let ended = self.child.try_wait().context("looking after the operator")?;
        Ok(ended.is_none())
    }

    fn end(&mut self) -> Result<()> {
        let pid = fs::read_to_string(&self.pid).context("reading the operator's number")?;
        let mut kill = Command::new(&self.prefix[0]);
        kill.args(&self.prefix[1..]).args(["kill", "-KILL", pid.trim()]);
        run(&mut kill)?;
        self.child.wait().context("waiting for the operator")?;
        Ok(())
    }

    /// Which of these leads, by the Lease.
    ///
    /// # Errors
    /// None of them does.
    pub fn leader(cluster: &CephInPods, of: &[Self]) -> Result<usize> {
        let lease = cluster.get("lease", "stagger-operator")?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        of.iter()
            .position(|one| one.name == holder)
            .with_context(|| format!("the Lease is held by {holder:?}"))
    }

    /// Applies the manifests of rights, as at each start of an operator.
    ///
    /// # Errors
    /// The server refuses one.
    pub fn rights(cluster: &CephInPods) -> Result<()> {
        rights_to_provision(&cluster.plane)
    }

    /// The memory of its own process, in kB (resident).
    ///
    /// # Errors
    /// It is not there.
    pub fn memory(&self) -> Result<u64> {
        let pid = fs::read_to_string(&self.pid).context("reading the operator's number")?;
        let mut ask = Command::new(&self.prefix[0]);
        ask.args(&self.prefix[1..])
            .args(["ps", "-o", "rss=", "-p", pid.trim()]);
        let said = run(&mut ask)?;
        said.trim()
            .parse()
            .with_context(|| format!("`ps` printed {said:?}"))
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        tail(&self.log)
    }
}

/// Where an operator is started.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// In this.
    pub sandbox: &'a Sandbox,
    /// For this API server.
    pub plane: &'a Plane,
    /// It speaks to Ceph by the programs in this root.
    pub root: &'a Path,
    /// Whether it may make OSDs, which beside a Rook that runs is not its to do.
    pub provisions: bool,
}

impl Place<'_> {
    /// Starts one; `name` tells its files from another's. Where `more` does not say otherwise, it has no agents.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, name: &str, more: &[&str]) -> Result<Operator> {
        let configured = ["get", "validatingwebhookconfiguration", "stagger-evictions"];
        // Once: an operator that is no pod has put its own address in the place of the Service.
        if more.contains(&ASKED_ABOUT_EVICTIONS[0]) && self.plane.ask(&configured).is_err() {
            webhook(self.plane)?;
        }
        let folder = self.sandbox.dir().join("operators").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join("log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("making {}", path.display()))?;
        let root = self.root.display();
        // Its number inside, by which it can be ended: what is started from outside is its parent.
        let pid = folder.join("pid");
        let mut command = self.sandbox.command("sh");
        command
            .args(["-c", "echo $$ >\"$0\"; exec \"$@\""])
            .arg(&pid)
            .arg(binary()?)
            .env("KUBECONFIG", self.kubeconfig(&folder)?)
            .args([
                "operator",
                "--namespace",
                NAMESPACE,
                "--lock-expires",
                "15",
                "--poll",
                "1",
            ])
            .args(["--identity", name, "--plain-logs", "--program"])
            .arg(binary()?)
            .arg("--ceph")
            .arg(format!("chroot {root} env PYTHONPATH=/opt/stagger ceph"))
            .arg("--python")
            .arg(format!("chroot {root} env PYTHONPATH=/opt/stagger python3"))
            .arg("--state")
            .arg(&folder)
            .args(more);
        // Several of them run in one network, and rights are those of one namespace.
        let usual = [
            ["--metrics", "off"],
            ["--agents", "off"],
            ["--watch-namespace", NAMESPACE],
        ];
        for words in usual.iter().filter(|words| !more.contains(&words[0])) {
            command.args(words);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log);
        let child = command.spawn().context("starting the operator")?;
        Ok(Operator {
            name: name.to_owned(),
            child,
            log: path,
            pid,
            prefix: self.sandbox.prefix(),
        })
    }

    /// The operator's own account, with the rights of its manifests and no others.
    fn kubeconfig(&self, folder: &Path) -> Result<PathBuf> {
        if self.provisions {
            rights_to_provision(self.plane)?;
        } else {
            rights(self.plane)?;
        }
        let words = [
            "create",
            "token",
            "stagger-operator",
            "-n",
            NAMESPACE,
            "--duration=8h",
        ];
        let token = self.plane.ask(&words)?;
        let path = folder.join("kubeconfig");
        let text = self
            .plane
            .kubeconfig_for("stagger-operator", NAMESPACE, token.trim());
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

impl Place<'_> {
    /// What `stagger` says of the cluster to somebody with a kubeconfig, and nothing of ours in the cluster.
    ///
    /// # Errors
    /// It cannot be started, or does not end well.
    pub fn asked(&self, words: &[&str]) -> Result<String> {
        let dir = self.sandbox.dir().join("asked");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let root = self.root.display();
        let inside = |program: &str| {
            format!("[\"chroot\", \"{root}\", \"env\", \"PYTHONPATH=/opt/stagger\", {program:?}]")
        };
        let config = format!(
            "[cluster]\nkind = \"ceph\"\nname = \"asked\"\nceph = {}\npython = {}\n",
            inside("ceph"),
            inside("python3")
        );
        let path = dir.join("stagger.toml");
        fs::write(&path, config).with_context(|| format!("writing {}", path.display()))?;
        let mut command = self.sandbox.command(binary()?);
        // Where the programs of the root see it too.
        command.env("TMPDIR", &dir).arg("--state").arg(dir.join("state"));
        command.arg("--config").arg(&path).args(words);
        command.arg("--kubeconfig").arg(self.plane.kubeconfig());
        run(command.args(["-n", NAMESPACE]))
    }
}

/// The manifests of rights, as they are applied: of the operator, and of a namespace with a cluster.
const RIGHTS: [&str; 2] = ["operator/rbac.yaml", "operator/rbac-namespace.yaml"];
/// That of rights for new OSDs.
const PROVISIONING: &str = "provisioning/rbac.yaml";

/// Words for an operator that is asked about evictions: it runs beside the API server.
pub const ASKED_ABOUT_EVICTIONS: [&str; 4] = ["--webhook", "127.0.0.1:9443", "--webhook-host", "127.0.0.1"];

/// Applies the manifests of rights, as at each start of an operator that makes no OSDs.
fn rights(plane: &Plane) -> Result<()> {
    RIGHTS.iter().try_for_each(|file| apply(plane, file))
}

/// Applies the manifests of rights, as at each start of an operator that makes OSDs, too.
///
/// # Errors
/// The server refuses one.
pub fn rights_to_provision(plane: &Plane) -> Result<()> {
    rights(plane)?;
    apply(plane, PROVISIONING)
}

/// Has the API server ask about evictions.
///
/// # Errors
/// The server refuses it.
pub fn webhook(plane: &Plane) -> Result<()> {
    apply(plane, "operator/webhook.yaml")
}

fn apply(plane: &Plane, file: &str) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    let words = ["apply", "--server-side", "-f", &file.display().to_string()];
    plane.ask(&words).map(|_| ())
}

/// Applies those of a namespace with a cluster to another one.
///
/// # Errors
/// The server refuses them.
pub fn rights_in(plane: &Plane, namespace: &str) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(RIGHTS[1]);
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let (own, there) = (
        "\n  namespace: rook-ceph\n",
        format!("\n  namespace: {namespace}\n"),
    );
    plane.apply_text("kubectl", &text.replace(own, &there))
}

fn tail(path: &Path) -> String {
    last_lines(&String::from_utf8_lossy(&fs::read(path).unwrap_or_default()), 30)
}

impl Drop for Operator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed; one that cannot be killed ends with the sandbox.
        self.end().ok();
    }
}
