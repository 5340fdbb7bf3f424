//! What runs in pods: the operator, its agents, and the Jobs that prepare devices.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `operator`
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// The operator's own namespace, where its Lease is [default: its pod's].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The holder identity in its Lease [default: host name and a random suffix].
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Manage clusters in these namespaces only, comma-separated; empty: in all.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespace: Vec<String>,
    /// The `ceph` command.
    #[arg(long, default_value = "ceph", value_name = "COMMAND")]
    pub(crate) ceph: String,
    /// The Python command with the `rados` module; empty: start `ceph` for each question.
    #[arg(long, default_value = "/usr/bin/python3", value_name = "COMMAND")]
    pub(crate) python: String,
    /// The operator's image [default: its pod's]. Agents run from it too, and prepare Jobs copy `stagger` from it.
    #[arg(long, value_name = "IMAGE", env = "STAGGER_IMAGE", hide_env_values = true)]
    pub(crate) image: Option<String>,
    /// The path of `stagger` in that image.
    #[arg(long, default_value = "/usr/local/bin/stagger", value_name = "PATH")]
    pub(crate) program: String,
    /// Seconds without progress after which a prepare Job is reported. The default is Rook's.
    #[arg(long, default_value_t = 1200, value_name = "SECONDS")]
    pub(crate) prepare_timeout: u32,
    /// Seconds without renewal after which a lock or Lease may be taken over.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub(crate) lock_expires: u32,
    /// Seconds between two observations while something is waited for.
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    pub(crate) poll: u64,
    /// Address of /metrics, /healthz and /readyz; `off`: none.
    #[arg(
        long,
        default_value = "0.0.0.0:8080",
        value_name = "ADDRESS",
        overrides_with = "metrics"
    )]
    pub(crate) metrics: ListenAddress,
    /// Address of the admission webhook on pods/eviction; `off`: none, budgets alone hold.
    #[arg(
        long,
        default_value = "off",
        value_name = "ADDRESS",
        overrides_with = "webhook"
    )]
    pub(crate) webhook: ListenAddress,
    /// Name or address by which the API server reaches the webhook, for an operator outside the cluster [default: the
    /// Service].
    #[arg(long, value_name = "HOST")]
    pub(crate) webhook_host: Option<String>,
    /// The address of this pod.
    #[arg(long, value_name = "ADDRESS", env = "POD_IP", hide_env_values = true)]
    pub(crate) pod_ip: Option<IpAddr>,
    /// Whether each node runs an agent. Clusters are upgraded only once all agents are of the operator's release.
    #[arg(long, default_value = "on", value_name = "WISH", overrides_with = "agents")]
    pub(crate) agents: Switch,
    /// A file with what updates wait for beside Ceph itself: `prometheus`, `metric`, `alertmanager` and `alert` as in the section
    /// `gates` of a configuration. None, if there is no such file.
    #[arg(long, value_name = "FILE", overrides_with = "gates")]
    pub(crate) gates: Option<PathBuf>,
    /// Log plain lines instead of JSON.
    #[arg(long)]
    pub(crate) plain_logs: bool,
    /// Only say, by the exit code, whether the operator may be uninstalled: 1 while a CephMaintenance may hold something that
    /// only the operator clears.
    #[arg(long)]
    pub(crate) may_be_uninstalled: bool,
    /// Be taken for another release: for tests.
    #[arg(long, hide = true, default_value = env!("CARGO_PKG_VERSION"))]
    pub(crate) version_as: semver::Version,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// `agent`
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
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
    /// Log plain lines instead of JSON.
    #[arg(long)]
    pub(crate) plain_logs: bool,
}

/// An address to listen at, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) Option<SocketAddr>);

impl std::str::FromStr for ListenAddress {
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
pub(crate) struct PrepareArgs {
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
    /// A device, or a file in its place. May be repeated.
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
