//! A real Kubernetes control plane on this machine: etcd, API server, controllers and scheduler, with
//! RBAC on, in the namespaces of a sandbox.
//!
//! Nothing of it listens outside the sandbox. Nodes are not part of it.

mod certificates;
pub mod definitions;
pub mod go;
pub mod helm;
pub mod krew;
mod objects;
pub mod servers;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::command::{last_lines, output, run};
use crate::sandbox::Sandbox;
use certificates::Certificates;
use servers::Servers;

/// Where the API server listens, inside the sandbox.
pub const ADDRESS: &str = "https://127.0.0.1:6443";
/// The sandbox to pods with a network of their own, on the bridge that the node agent makes: there they reach the API
/// server.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);

const API_SERVER: &str = "kube-apiserver";
/// How long a part of it may take to be ready, on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

/// A running control plane. It ends with its sandbox.
#[derive(Debug)]
pub struct Plane {
    folder: PathBuf,
    servers: Servers,
    prefix: Vec<String>,
    children: Mutex<Vec<(&'static str, Child)>>,
}

impl Plane {
    /// Starts one inside `sandbox`, with its files in the folder `kubernetes` of the sandbox's own.
    ///
    /// # Errors
    /// A program cannot be built or started, or is not ready in time; the ends of the logs are told.
    pub fn start(sandbox: &Sandbox) -> Result<Self> {
        Self::start_audited(sandbox, None)
    }

    /// Starts one that writes down what a user asks of it, in [`Plane::audit`].
    ///
    /// # Errors
    /// As of [`Plane::start`].
    pub fn start_audited(sandbox: &Sandbox, user: Option<&str>) -> Result<Self> {
        let servers = Servers::get()?;
        let folder = sandbox.dir().join("kubernetes");
        fs::create_dir_all(folder.join("log")).with_context(|| format!("making {}", folder.display()))?;
        Certificates::new()?.write(&folder)?;
        let token = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
        let token = token.trim();
        fs::write(
            folder.join("tokens.csv"),
            format!("{token},admin,admin,\"system:masters\"\n"),
        )
        .context("writing the token of the administrator")?;
        fs::write(
            folder.join("kubeconfig"),
            kubeconfig(&folder, "admin", "default", token),
        )
        .context("writing the kubeconfig")?;
        let plane = Self {
            folder,
            servers,
            prefix: sandbox.prefix(),
            children: Mutex::default(),
        };
        plane.boot(user).with_context(|| {
            format!(
                "starting Kubernetes in {}; the ends of its logs:\n{}",
                plane.folder.display(),
                plane.logs_tail()
            )
        })?;
        Ok(plane)
    }

    fn boot(&self, audited: Option<&str>) -> Result<()> {
        self.etcd()?;
        self.api_server(audited)?;
        let config = format!("--kubeconfig={}", self.folder.join("kubeconfig").display());
        let key = format!(
            "--service-account-private-key-file={}",
            self.folder.join("accounts.key").display()
        );
        let ca = format!("--root-ca-file={}", self.folder.join("ca.crt").display());
        let alone = "--leader-elect=false".to_owned();
        let nodes = [
            "--node-monitor-period=2s".to_owned(),
            "--node-monitor-grace-period=20s".to_owned(),
        ];
        // A wave of a large cluster is many changes at once.
        let rate = [
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        let controllers = [&[config.clone(), key, ca, alone.clone()][..], &nodes, &rate].concat();
        self.spawn("kube-controller-manager", &controllers)?;
        self.spawn("kube-scheduler", &[&[config, alone][..], &rate].concat())?;
        self.wait("the controllers are at work", |plane| {
            let account = ["get", "serviceaccount", "default", "-n", "default"];
            Ok(output(plane.kubectl().args(account))?.status.success())
        })
    }

    fn etcd(&self) -> Result<()> {
        let data = format!("--data-dir={}", self.folder.join("etcd").display());
        let words = [
            data.as_str(),
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            // It is thrown away in any case.
            "--unsafe-no-fsync",
        ];
        self.spawn("etcd", &words.map(str::to_owned))
    }

    /// Starts it, and waits until it is ready.
    fn api_server(&self, audited: Option<&str>) -> Result<()> {
        let file = |option: &str, name: &str| format!("--{option}={}", self.folder.join(name).display());
        let mut words = vec![
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            // Pods with a network of their own reach it by the sandbox's address in that.
            "--bind-address=0.0.0.0".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--secure-port=6443".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // A webhook's Service is where its EndpointSlices say: there is no proxy.
            "--enable-aggregator-routing=true".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            file("token-auth-file", "tokens.csv"),
            file("service-account-key-file", "accounts.pub"),
            file("service-account-signing-key-file", "accounts.key"),
            file("tls-cert-file", "server.crt"),
            file("tls-private-key-file", "server.key"),
            file("cert-dir", "certificates"),
        ];
        if let Some(user) = audited {
            let policy = json!({
                "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
                "rules": [{ "level": "Metadata", "users": [user] }, { "level": "None" }],
            });
            fs::write(self.folder.join("audit-policy.json"), policy.to_string())
                .context("writing what is to be audited")?;
            words.push(file("audit-policy-file", "audit-policy.json"));
            words.push(format!("--audit-log-path={}", self.audit().display()));
        }
        self.spawn(API_SERVER, &words)?;
        self.wait("the API server is ready", |plane| {
            Ok(output(plane.kubectl().args(["get", "--raw", "/readyz"]))?
                .status
                .success())
        })
    }

    /// Kills the API server, as a machine without power would, and starts it again after a while.
    ///
    /// # Errors
    /// It cannot be killed, or is not ready again in time.
    pub fn restart_api_server(&self, after: Duration) -> Result<()> {
        let pid = fs::read_to_string(self.pid(API_SERVER)).context("reading the API server's number")?;
        run(self.inside(Path::new("kill")).args(["-KILL", pid.trim()]))?;
        {
            let mut children = self.children();
            let at = children.iter().position(|(name, _)| *name == API_SERVER);
            let (_, mut child) = children.remove(at.context("there is no API server")?);
            child.wait().context("waiting for the API server")?;
        }
        std::thread::sleep(after);
        self.api_server(None)
    }

    /// The programs that run, in the order of their start.
    fn children(&self) -> MutexGuard<'_, Vec<(&'static str, Child)>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a program's number inside is noted: what is started from outside is its parent.
    fn pid(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pid"))
    }

    /// Starts a program of the plane; what it says goes to `log/NAME`.
    fn spawn(&self, name: &'static str, words: &[String]) -> Result<()> {
        let path = self.folder.join("log").join(name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("making {}", path.display()))?;
        let mut command = self.inside(Path::new("sh"));
        command
            .args(["-c", "echo $$ >\"$0\"; exec \"$@\""])
            .arg(self.pid(name))
            .arg(self.servers.program(name))
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        self.children().push((name, child));
        Ok(())
    }

    /// Waits until something is so, or a program has ended, or the time is over.
    fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        loop {
            if done(self)? {
                return Ok(());
            }
            for (name, child) in self.children().iter_mut() {
                if let Some(status) = child.try_wait().context("looking after a program")? {
                    bail!("{name} ended with {status} before {what}");
                }
            }
            if begun.elapsed() > LIMIT {
                bail!("not within {} s: {what}", LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).arg(program);
        command
    }

    /// `kubectl` as the administrator, inside the sandbox.
    pub fn kubectl(&self) -> Command {
        let mut command = self.inside(&self.servers.program("kubectl"));
        // Before the name of a plugin no flag may stand.
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Runs `kubectl`, which must succeed, and gives what it printed.
    ///
    /// # Errors
    /// It failed; with its words.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        run(self.kubectl().args(words))
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// What the audited user has asked: a line of JSON (`audit.k8s.io/v1`, `Event`) for each stage of a request.
    pub fn audit(&self) -> PathBuf {
        self.folder.join("log").join("audit")
    }

    /// The text of a kubeconfig for somebody with that token.
    pub fn kubeconfig_for(&self, user: &str, namespace: &str, token: &str) -> String {
        kubeconfig(&self.folder, user, namespace, token)
    }

    /// The last lines of every log, for the message of a failed test.
    pub fn logs_tail(&self) -> String {
        let mut text = String::new();
        for (name, _) in self.children().iter() {
            let log = fs::read(self.folder.join("log").join(name)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let _ = writeln!(text, "--- {name}\n{}", last_lines(&log, 12));
        }
        text
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // The last first, so that nothing complains about those before it.
        for (_, child) in self.children().iter_mut().rev() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn kubeconfig(folder: &Path, user: &str, namespace: &str, token: &str) -> String {
    let ca = folder.join("ca.crt");
    let ca = ca.display();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n- name: test\n  cluster:\n    \
         server: {ADDRESS}\n    certificate-authority: {ca}\ncontexts:\n- name: test\n  context:\n    \
         cluster: test\n    user: {user}\n    namespace: {namespace}\nusers:\n- name: {user}\n  user:\n    \
         token: {token}\n"
    )
}
