//! What runs in pods: the operator, its agents, and the Jobs that prepare devices.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `operator`
#[derive(Debug, Args)]
pub(crate) struct Operator {
    /// The namespace of the operator itself, where its Lease is [default: that of its pod].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// What its Lease says of its holder [default: the host's name and something random].
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// See to the clusters of these namespaces only, with commas between them; empty: of all.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespace: Vec<String>,
    /// The `ceph` program, with what stands before it.
    #[arg(long, default_value = "ceph", value_name = "COMMAND")]
    pub(crate) ceph: String,
    /// The Python that has the `rados` module, with what stands before it; empty: start `ceph` for each
    /// question.
    #[arg(long, default_value = "/usr/bin/python3", value_name = "COMMAND")]
    pub(crate) python: String,
    /// The image that this operator runs from [default: that of its pod]. Agents run from it too, and pods that
    /// prepare devices copy `stagger` from it.
    #[arg(long, value_name = "IMAGE", env = "STAGGER_IMAGE", hide_env_values = true)]
    pub(crate) image: Option<String>,
    /// The path of `stagger` in that image.
    #[arg(long, default_value = "/usr/local/bin/stagger", value_name = "PATH")]
    pub(crate) program: String,
    /// A Job that prepares devices and shows no progress for so many seconds is named. The default is Rook's.
    #[arg(long, default_value_t = 1200, value_name = "SECONDS")]
    pub(crate) prepare_timeout: u32,
    /// A lock or Lease that was not renewed for so many seconds may be taken over.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub(crate) lock_expires: u32,
    /// Seconds between two observations while something is waited for.
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    pub(crate) poll: u64,
    /// Where /metrics, /healthz and /readyz are served; `off`: nowhere.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub(crate) metrics: Listen,
    /// Where the API server asks whether a pod may be evicted now; `off`: nowhere, and budgets alone hold.
    #[arg(long, default_value = "off", value_name = "ADDRESS")]
    pub(crate) webhook: Listen,
    /// How it gets there, for an operator that is no pod: the name or address of this host [default: by the Service,
    /// which leads to this pod].
    #[arg(long, value_name = "HOST")]
    pub(crate) webhook_host: Option<String>,
    /// The address of this pod.
    #[arg(long, value_name = "ADDRESS", env = "POD_IP", hide_env_values = true)]
    pub(crate) pod_ip: Option<IpAddr>,
    /// Whether each node is to have an agent. Clusters are upgraded only once all agents are of the operator's
    /// release.
    #[arg(long, default_value = "on", value_name = "WISH")]
    pub(crate) agents: Switch,
    /// Lines for people instead of JSON.
    #[arg(long)]
    pub(crate) plain_logs: bool,
    /// Be taken for another release: for tests.
    #[arg(long, hide = true, default_value = env!("CARGO_PKG_VERSION"))]
    pub(crate) version_as: semver::Version,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is wished.
    On,
    /// It is not.
    Off,
}

/// `agent`
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// The namespace of the operator, where the devices are listed in a ConfigMap.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: String,
    /// The name of this node.
    #[arg(long, env = "NODE_NAME", hide_env_values = true, value_name = "NODE")]
    pub(crate) node: String,
    /// Keep logs of pods of this namespace only; several times for several.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) logs_of: Vec<String>,
    /// Where the kubelet has the logs.
    #[arg(long, default_value = "/var/log/pods", value_name = "DIR")]
    pub(crate) pod_logs: PathBuf,
    /// Where they are kept.
    #[arg(long, default_value = "/var/lib/stagger/logs", value_name = "DIR")]
    pub(crate) keep_logs: PathBuf,
    /// So many mebibytes of them, the newest.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub(crate) keep_mib: u32,
    /// Those that were written to within so many days.
    #[arg(long, default_value_t = 14, value_name = "DAYS")]
    pub(crate) keep_days: u32,
    /// The file that is written after each round that ended well.
    #[arg(long, default_value = "/run/stagger/ready", value_name = "FILE")]
    pub(crate) ready: PathBuf,
    /// Only say, by the exit code, whether the agent that writes that file is well.
    #[arg(long)]
    pub(crate) probe: bool,
    /// Lines for people instead of JSON.
    #[arg(long)]
    pub(crate) plain_logs: bool,
}

/// An address to listen at, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self(None));
        }
        let address = text
            .parse()
            .map_err(|_| "not an address with a port, as 127.0.0.1:8080 or [::]:8080, and not `off`")?;
        Ok(Self(Some(address)))
    }
}

/// `osd prepare`
#[derive(Debug, Args)]
pub(crate) struct Prepare {
    /// The namespace of the cluster.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: String,
    /// The name of this node.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: String,
    /// The PersistentVolumeClaim whose volume the device is, if it is none of the node's own.
    #[arg(long, value_name = "CLAIM")]
    pub(crate) pvc: Option<String>,
    /// Where it is in the CRUSH map: `root=default host=n1`.
    #[arg(long, value_name = "PLACE")]
    pub(crate) location: String,
    /// A device, or a file that stands for one; several times for several.
    #[arg(long, required = true, value_name = "PATH")]
    pub(crate) device: Vec<String>,
    /// The monitors, as `a=10.0.0.1:3300,b=10.0.0.2:3300`.
    #[arg(
        long,
        env = "ROOK_MON_ENDPOINTS",
        hide_env_values = true,
        value_name = "ENDPOINTS"
    )]
    pub(crate) endpoints: String,
    /// The user that may make OSDs. Its key is read from `ROOK_CEPH_SECRET`.
    #[arg(long, env = "ROOK_CEPH_USERNAME", hide_env_values = true, value_name = "USER")]
    pub(crate) user: String,
    /// The identity of the cluster.
    #[arg(long, env = "ROOK_FSID", hide_env_values = true, value_name = "UUID")]
    pub(crate) fsid: String,
}
