//! What can be said on the command line.

mod by_word;
mod ganeti;
mod stores;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

pub(crate) use by_word::{Confirm, Ended, HostIs, Settle};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use ganeti::{Ganeti, Guards, Hroller, Nodes, NonDrbd, Reboot, SharedSecondary};
use stagger_core::model::{Limit, PartName, RunId, UnitId};
pub(crate) use stores::{Db, Lint, Migrations, OnlineDataMigrations};

/// Rolling upgrades and maintenance of stateful clusters: as many at once as is safe, never one more.
#[derive(Debug, Parser)]
#[command(name = "stagger", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The configuration file [default: stagger.toml, then /etc/stagger/stagger.toml].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder of journals and artifacts [default: ~/.local/state/stagger].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Print a versioned JSON document.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all that is known of the cluster now.
    Observe(Observe),
    /// Show what would be done, and what is left alone.
    Plan(Plan),
    /// Judge a plan by other means than those that made it.
    Check(Check),
    /// Carry out an upgrade, wave by wave.
    Run(Run),
    /// Carry on a run that was interrupted, held or paused.
    Resume(Asked),
    /// Show what a run is at.
    Status(Status),
    /// Show which daemon runs which release.
    Versions(Versions),
    /// List the runs, or show all that happened in one.
    History(SomeRun),
    /// Say why a unit is where it is in the plan, what holds it, and what would free it.
    Explain(Explain),
    /// Rehearse an upgrade on a copy of the cluster in memory, or carry out a scenario.
    Simulate(Simulate),
    /// Simulate scenarios/demo.toml: no root, no network, no cluster.
    Demo,
    /// Begin no new wave.
    Pause(Asked),
    /// Pass a one-way door.
    Approve(Approve),
    /// Finish the wave, give everything back, and end.
    Abort(Asked),
    /// Bring what was changed back to the release before, as far as that is possible.
    Rollback(Asked),
    /// Say that a host is off and that nothing goes on there: what is open on it counts as failed.
    Confirm(Confirm),
    /// Say how an effect ended of which nobody can tell.
    Settle(Settle),
    /// Show or pack what was gathered when something went wrong.
    Artifacts(Artifacts),
    /// Ceph's own questions.
    #[command(subcommand)]
    Ceph(Ceph),
    /// Reboot groups of a Ganeti, as its own hroller says them. Exit 0 and 1, as there.
    Hroller(Hroller),
    /// What runs hold in a Ganeti.
    #[command(subcommand)]
    Ganeti(Ganeti),
    /// What stagger has written down of an Ironic.
    #[command(subcommand)]
    Ironic(Ironic),
    /// The store of journals: its schema, and the versions of what is in it.
    #[command(subcommand)]
    Db(Db),
    /// Judge what other programs are made of.
    #[command(subcommand)]
    Lint(Lint),
    /// Print the JSON schema of a document, or the names of all documents.
    Schema {
        /// Which: plan, run, …
        document: Option<String>,
    },
    /// Print the definitions of the Kubernetes resources, as YAML.
    Crds,
    /// See to Ceph clusters that Rook laid out on Kubernetes, as an operator in the cluster.
    Operator(Operator),
    /// Run beside an operator on each node: list its devices, and keep the logs of containers that have ended.
    Agent(Agent),
    /// OSDs on the node that this runs on.
    #[command(subcommand)]
    Osd(Osd),
    /// Print completions for a shell.
    Completions {
        /// Which.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

/// `ironic`
#[derive(Debug, Subcommand)]
pub(crate) enum Ironic {
    /// Write down what a service runs, where a run that is over has left that open. What contradicts it is refused.
    Record {
        /// The service, as the configuration calls it.
        service: String,
        /// The release that it runs, with its patch: 29.0.6.
        #[arg(long)]
        release: String,
        /// The release that it is held to [default: none].
        #[arg(long)]
        pin: Option<String>,
    },
}

/// Where facts come from.
#[derive(Debug, Args, Default)]
pub(crate) struct From {
    /// Instead of the cluster: a file of `observe --save`, or a folder of answers as `ceph … -f json`
    /// prints them.
    #[arg(long, value_name = "PATH", conflicts_with = "OnKubernetes")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    /// Or a cluster of Rook.
    pub(crate) on: OnKubernetes,
}

/// A cluster that Rook laid out, of which nothing is in any configuration.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "To look at a cluster of Rook")]
pub(crate) struct OnKubernetes {
    /// The API server and the account [default: KUBECONFIG, ~/.kube/config, or those of the pod].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// One of its contexts [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephCluster [default: that of the context]. Monitors are asked from here, with the key in Rook's
    /// Secret.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Where monitors cannot be reached from here: ask them in Rook's toolbox, by `kubectl exec` [the Deployment
    /// rook-ceph-tools, or a pod or Deployment of another name]
    #[arg(long, value_name = "POD", num_args = 0..=1, require_equals = true, default_missing_value = TOOLBOX)]
    pub(crate) toolbox: Option<String>,
}

/// As Rook's own examples call it.
const TOOLBOX: &str = "deploy/rook-ceph-tools";

impl OnKubernetes {
    /// Whether one is meant.
    pub(crate) fn is_meant(&self) -> bool {
        let Self {
            kubeconfig,
            context,
            namespace,
            toolbox,
        } = self;
        kubeconfig.is_some() || context.is_some() || namespace.is_some() || toolbox.is_some()
    }

    /// What stands before a program that runs in the toolbox, if that is to be asked. `kubectl exec` hands its words on as they are.
    pub(crate) fn in_toolbox(&self, namespace: &str) -> Option<Vec<String>> {
        let toolbox = self.toolbox.as_deref()?;
        let mut words = vec!["kubectl".to_owned(), format!("--namespace={namespace}")];
        words.extend(
            self.kubeconfig
                .iter()
                .map(|file| format!("--kubeconfig={}", file.display())),
        );
        words.extend(self.context.iter().map(|context| format!("--context={context}")));
        words.extend(["exec", "--stdin", toolbox, "--"].map(str::to_owned));
        Some(words)
    }
}

/// `observe`
#[derive(Debug, Args)]
pub(crate) struct Observe {
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: From,
    /// Write the cluster's answers to this file as well; every --from reads it. It holds no keys.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

/// A cluster that an operator sees to, instead of a run in the folder of journals.
#[derive(Debug, Args)]
#[command(next_help_heading = "To ask an operator on Kubernetes")]
pub(crate) struct Kube {
    /// The API server and the account [default: KUBECONFIG, ~/.kube/config, or those of the pod].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// One of its contexts [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephMaintenance [default: that of the context].
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Which CephMaintenance; needed where there are several.
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) name: Option<String>,
    /// The namespace of the operator [default: that of the CephMaintenance].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: Option<String>,
}

impl Kube {
    /// Whether an operator is meant.
    pub(crate) fn is_meant(&self) -> bool {
        let Self {
            kubeconfig,
            context,
            namespace,
            name,
            operator_namespace,
        } = self;
        kubeconfig.is_some()
            || [context, namespace, name, operator_namespace]
                .iter()
                .any(|given| given.is_some())
    }
}

/// An operator that is asked for something.
#[derive(Debug, Args)]
#[command(next_help_heading = "To ask an operator on Kubernetes")]
pub(crate) struct Heard {
    #[command(flatten)]
    /// Which.
    pub(crate) kube: Kube,
    /// Do not wait until it has heard.
    #[arg(long, requires = "Kube")]
    pub(crate) no_wait: bool,
    /// Wait for it so many seconds at most [default: 60].
    #[arg(long, value_name = "SECONDS", requires = "Kube", conflicts_with = "no_wait")]
    pub(crate) timeout: Option<u64>,
}

/// `versions`
#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Instead of the cluster: a file of `observe --save`, or a folder of answers as `ceph … -f json`
    /// prints them.
    #[arg(long, value_name = "PATH", conflicts_with = "Kube")]
    pub(crate) from: Option<PathBuf>,
    /// A line for each daemon.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    /// Or who is asked instead.
    pub(crate) kube: Kube,
}

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

/// What to plan for, and how boldly.
#[derive(Debug, Args)]
pub(crate) struct Wish {
    /// The release to go to: 18.2.7.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) to: Option<String>,
    /// How many units of a kind may be down at once: a count or a percentage.
    #[arg(long, value_name = "LIMIT")]
    pub(crate) max_in_parallel: Option<Limit>,
    /// Begin with full waves instead of 1, 2, 4 …
    #[arg(long)]
    pub(crate) no_growth: bool,
    /// Units begin as soon as there is room for them, without waiting for the whole wave before.
    #[arg(long)]
    pub(crate) no_barriers: bool,
    /// Permit an interruption that the plan names, or each of a sort: mds.a, pool.rbd, mgr.
    #[arg(long, value_name = "NAME")]
    pub(crate) interrupt: Vec<String>,
    /// Do what can be done where the target cannot be reached. Otherwise nothing is begun.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Search for fewer waves for about so long: 10s.
    #[arg(long, value_name = "TIME")]
    pub(crate) improve: Option<String>,
}

impl Wish {
    /// The release, with the words that a run needs too.
    pub(crate) fn again(&self) -> String {
        let mut words: Vec<&str> = self.to.as_deref().into_iter().collect();
        words.extend(self.interrupt.iter().flat_map(|name| ["--interrupt", name]));
        words.extend(self.partial.then_some("--partial"));
        words.join(" ")
    }
}

/// `plan`
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    /// What to plan for.
    pub(crate) wish: Wish,
    #[command(flatten)]
    /// Or what to reboot.
    pub(crate) reboot: Reboot,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: From,
    /// Write the plan to this file as well.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// List the units of every wave.
    #[arg(long)]
    pub(crate) all: bool,
}

/// `check`
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The plan, as `plan --out` wrote it.
    pub(crate) plan: PathBuf,
    #[command(flatten)]
    /// What it was planned for.
    pub(crate) wish: Wish,
    #[command(flatten)]
    /// Or what it reboots.
    pub(crate) reboot: Reboot,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: From,
}

/// `run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    /// What to do.
    pub(crate) wish: Wish,
    #[command(flatten)]
    /// Or what to reboot.
    pub(crate) reboot: Reboot,
    /// Only carry out this plan; refuse if planning now gives another one.
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
}

/// A run that is asked for something.
#[derive(Debug, Args)]
pub(crate) struct Asked {
    /// Which; the newest, if not given.
    #[arg(conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// A run or all.
#[derive(Debug, Args)]
pub(crate) struct SomeRun {
    /// Which; all, if not given.
    pub(crate) run: Option<RunId>,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Which; the newest, if not given.
    #[arg(conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    /// Show the last completed steps and the current one.
    #[arg(long)]
    pub(crate) upgrade: bool,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) kube: Kube,
}

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Which unit: osd.3.
    pub(crate) unit: UnitId,
    #[command(flatten)]
    /// What to plan for.
    pub(crate) wish: Wish,
    #[command(flatten)]
    /// Or what to reboot.
    pub(crate) reboot: Reboot,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: From,
}

/// `simulate`
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// A scenario: a made-up cluster, and what goes wrong.
    #[arg(required_unless_present = "to", conflicts_with_all = ["to", "from", "runs", "seed"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Do not slow down for people to watch.
    #[arg(long, requires = "scenario")]
    pub(crate) fast: bool,
    #[command(flatten)]
    /// Instead of a scenario: what to rehearse on a copy of the cluster.
    pub(crate) wish: Wish,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: From,
    /// In so many further runs one more OSD dies [default: 100; 10 above 200 OSDs, 3 above 1000].
    #[arg(long, value_name = "N", requires = "to")]
    pub(crate) runs: Option<u32>,
    /// Draws which OSD dies when; the same seed gives the same answer [default: 1].
    #[arg(long, value_name = "S", requires = "to")]
    pub(crate) seed: Option<u64>,
}

/// `approve`
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Approve {
    /// Which run; the newest, if not given.
    #[arg(conflicts_with = "Kube")]
    pub(crate) run: Option<RunId>,
    /// Which door, or which interruption that the plan names: last-mon, mds.a.
    pub(crate) door: PartName,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: Heard,
}

/// `artifacts`
#[derive(Debug, Args)]
pub(crate) struct Artifacts {
    /// Which run; the newest, if not given.
    pub(crate) run: Option<RunId>,
    /// Pack them, with the journal, into this file, without secrets.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}

/// `ceph`
#[derive(Debug, Subcommand)]
pub(crate) enum Ceph {
    /// Whether these OSDs may stop together, by our own oracle. Exit 0 yes, 1 no, 2 an unknown id.
    OkToStop {
        /// Which: 3, osd.3.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Add as many more as may stop with them, up to so many in all.
        #[arg(long)]
        max: Option<usize>,
        #[command(flatten)]
        /// Where facts come from.
        from: From,
    },
    /// Show the guards that runs hold in the cluster, as `noout`, and until when.
    Guards(Guards),
}

/// `osd`
#[derive(Debug, Subcommand)]
pub(crate) enum Osd {
    /// Make OSDs on devices of this node and report them, as the Job of an operator does.
    Prepare(Prepare),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_of_every_command_fit_together() {
        super::Cli::command().debug_assert();
    }
}
