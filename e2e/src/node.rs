//! A node agent: it plays the kubelet for the nodes of a test cluster.
//!
//! Pods that the scheduler has bound to one of its nodes become processes on this machine: an image's tag
//! names a root, and each container is a process in it. Restart policy, back-off, probes, grace periods,
//! termination messages, volumes, variables, tokens of accounts, users and `kubectl logs` are as with the kubelet;
//! cgroups are not, and networks only where that is asked for: else all pods share that of the sandbox that the agent
//! runs in. A container without volumes shares the root of its image too; one with volumes has a root of its own.
//! Of an image that is only played no process is started: so a thousand pods take no more than their objects.
//!
//! It runs as a program of its own inside the sandbox (`node-agent SETTINGS.json`); the harness's side is
//! [`Agent`].

mod container;
mod content;
mod devices;
mod fake_pods;
mod fields;
mod keys;
mod logs;
mod mounts;
mod network;
mod nodes;
mod place;
mod pod;
mod pod_logs;
mod probe;
mod process;
mod resources;
mod status;
mod tokens;
mod user;
mod variables;
mod volumes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::kubernetes::Plane;
use crate::sandbox::Sandbox;

/// What the agent is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How to reach the API server.
    pub kubeconfig: PathBuf,
    /// Where logs and volumes of pods are kept, in `pods/UID`, and the files of each node, in `hosts/NAME`. The
    /// folder that it is in is seen at the same path in all containers.
    pub folder: PathBuf,
    /// The nodes that it is.
    pub nodes: BTreeMap<String, Node>,
    /// What the images hold, by name with tag.
    pub images: BTreeMap<String, Image>,
    /// Whether pods that do not ask for their node's network have one of their own, with an address of their own.
    #[serde(default)]
    pub pod_networks: bool,
}

/// A node that the agent is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its address and that of all its pods, put on the sandbox's loopback; none: `127.0.0.1`.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Its block devices. Pods see them and no others in `/dev`, and udev's records of them in
    /// `/run/udev/data`; none: the machine's `/dev` is the node's.
    #[serde(default)]
    pub devices: Option<Vec<PathBuf>>,
}

impl Node {
    fn address(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// What an image holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Image {
    /// The root that its processes run in; none: the machine's own.
    pub root: Option<PathBuf>,
    /// Folders laid over the root, the topmost first: files added or replaced without a copy of the root. None of
    /// them may lie in the root.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// What a container without a command runs, before its arguments.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Variables that all its processes have.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whom its processes run as if the pod does not say.
    #[serde(default)]
    pub user: Option<u32>,
    /// Programs of it that are broken, by name.
    #[serde(default)]
    pub broken: BTreeMap<String, Broken>,
    /// Its pods are only played: each is ready at once, or has ended, if it was to end, with this as its last
    /// words.
    #[serde(default)]
    pub played: Option<String>,
}

/// How a program of an image is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// It ends with 1 before it has done anything.
    AtOnce,
    /// It is killed so many seconds after its start.
    After(u64),
}

/// What all pods of an agent share.
struct Shared {
    client: Client,
    settings: Settings,
    /// The variables by which a program in a pod finds the API server.
    service: BTreeMap<String, String>,
    /// Where logs are asked for, on all nodes.
    log_port: u16,
}

impl Shared {
    /// Where the logs and volumes of a pod are.
    fn folder(&self, pod: &Pod) -> PathBuf {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.settings.folder.join("pods").join(uid)
    }

    /// Where the files of each node are.
    fn hosts(&self) -> PathBuf {
        self.settings.folder.join("hosts")
    }

    /// Whether a pod's node has devices of its own.
    fn own_devices(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let node = node.and_then(|name| self.settings.nodes.get(name));
        node.is_some_and(|node| node.devices.is_some())
    }

    /// The `/dev` that a pod sees.
    fn devices(&self, pod: &Pod) -> PathBuf {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if self.own_devices(pod) {
            self.hosts().join(node.unwrap_or_default()).join("dev")
        } else {
            PathBuf::from("/dev")
        }
    }
}

/// Runs the agent until its process ends.
///
/// # Errors
/// The API server cannot be reached, or the nodes cannot be made.
pub async fn run(settings: Settings) -> Result<()> {
    let file = Kubeconfig::read_from(&settings.kubeconfig).context("reading the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("using the kubeconfig")?;
    let service = service(&config)?;
    let logs = logs::Endpoint::open().await?;
    let client = Client::try_from(config).context("connecting to the API server")?;
    let shared = Arc::new(Shared {
        client,
        settings,
        service,
        log_port: logs.port()?,
    });
    tokio::spawn(logs.serve(Arc::clone(&shared)));
    if shared.settings.pod_networks {
        network::bridge().await.map_err(anyhow::Error::msg)?;
    }
    for (name, node) in &shared.settings.nodes {
        devices::make(&shared.hosts().join(name), node)?;
        nodes::register(&shared, name).await?;
        tokio::spawn(nodes::keep_alive(Arc::clone(&shared), name.clone()));
    }
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let mut events = watcher(pods, watcher::Config::default()).boxed();
    let mut known = Known::default();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                see(&shared, &mut known, pod);
            }
            // Its processes were ended before it could go; one removed by force is told here.
            Ok(Some(watcher::Event::Delete(mut pod))) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                if let Some((told, _)) = known.pods.remove(&uid) {
                    pod.metadata.deletion_grace_period_seconds = Some(0);
                    pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
                    told.send(pod).ok();
                }
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
            Ok(None) => return Ok(()),
            // The server restarts; the watcher tries again by itself.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(500)).await,
        }
    }
}

/// The variable that says where the API server is.
const API_SERVER: &str = "KUBERNETES_SERVICE_HOST";

/// Where the API server is, as the variables of a Service.
fn service(config: &Config) -> Result<BTreeMap<String, String>> {
    let url = &config.cluster_url;
    let host = url
        .host()
        .with_context(|| format!("the server {url} of the kubeconfig has no host"))?;
    let port = url.port_u16().unwrap_or(443);
    Ok(BTreeMap::from([
        (API_SERVER.to_owned(), host.to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), port.to_string()),
    ]))
}

/// The pods that are under way.
#[derive(Debug, Default)]
struct Known {
    /// How each is told what is new of it, and its address if that is its own, by its uid.
    pods: BTreeMap<String, (watch::Sender<Pod>, Option<Ipv4Addr>)>,
    /// So many addresses have been given out.
    addresses: u16,
}

fn see(shared: &Arc<Shared>, known: &mut Known, mut pod: Pod) {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let Some(node) = node.and_then(|node| shared.settings.nodes.get(node)) else {
        return;
    };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    known.pods.retain(|_, (told, _)| !told.is_closed());
    let own = match known.pods.get(&uid) {
        Some((_, own)) => *own,
        None if shared.settings.pod_networks && network::is_own(&pod) => {
            known.addresses += 1;
            Some(network::address(known.addresses))
        }
        None => None,
    };
    // The kubelet knows them before the first container runs, and the API server only after its first report.
    let status = pod.status.get_or_insert_default();
    status.host_ip = Some(node.address().to_string());
    status.pod_ip = own.map(|own| own.to_string()).or_else(|| status.host_ip.clone());
    if let Some(words) = fake_pods::is_fake(&shared.settings.images, &pod) {
        let words = words.to_owned();
        tokio::spawn(fake_pods::serve(Arc::clone(shared), pod, words));
        return;
    }
    if let Some((told, _)) = known.pods.get(&uid) {
        told.send(pod).ok();
        return;
    }
    let over = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(over, Some("Succeeded" | "Failed")) && pod.metadata.deletion_timestamp.is_none() {
        return;
    }
    let (told, seen) = watch::channel(pod);
    known.pods.insert(uid, (told, own));
    tokio::spawn(pod::run(Arc::clone(shared), seen, own));
}

/// The agent as the harness sees it. It ends with its sandbox.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    folder: PathBuf,
}

impl Agent {
    /// Starts `program`, the `node-agent`, inside the sandbox, and waits until its nodes are ready.
    ///
    /// # Errors
    /// It cannot be started, or the nodes are not ready in time.
    pub fn start(sandbox: &Sandbox, plane: &Plane, program: &Path, settings: &Settings) -> Result<Self> {
        let folder = settings.folder.clone();
        fs::create_dir_all(folder.join("lost")).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join("settings.json");
        let text = serde_json::to_vec_pretty(settings).context("writing down settings")?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        let log = File::create(folder.join("agent.log")).context("making the agent's log")?;
        let mut command: Command = sandbox.command(program);
        command
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let agent = Self { child, folder };
        for name in settings.nodes.keys() {
            // `kubectl wait` gives up at once where there is no such node yet.
            let node = format!("node/{name}");
            let mut tries = 0;
            while let Err(error) = plane.ask(&["wait", &node, "--for=condition=Ready", "--timeout=30s"]) {
                tries += 1;
                if tries == 50 {
                    return Err(error.context(format!("the node {name} is not ready")));
                }
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
        }
        Ok(agent)
    }

    /// Loses a node: its processes are killed, and nobody speaks for it any more.
    ///
    /// # Errors
    /// The agent cannot be told.
    pub fn lose(&self, node: &str) -> Result<()> {
        let mark = self.folder.join("lost").join(node);
        fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))
    }

    /// The node is there again, with nothing running on it.
    ///
    /// # Errors
    /// The agent cannot be told.
    pub fn find(&self, node: &str) -> Result<()> {
        let mark = self.folder.join("lost").join(node);
        fs::remove_file(&mark).with_context(|| format!("removing {}", mark.display()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
