//! What can be said of a Ganeti.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::goal::FlagList;

/// `reboot`
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
pub(crate) struct RebootArgs {
    #[command(flatten)]
    /// Which nodes, and how.
    pub(crate) visit: VisitArgs,
    /// Skip nodes or hosts that need no reboot: COMMAND, run for each {node} or on each {host}, exits with 1 for them, and with
    /// 0 for those that do [default on Ceph hosts: whether there is /var/run/reboot-required].
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, default_missing_value = "")]
    pub(crate) needs_reboot: Option<String>,
    /// Skip nodes or hosts that have booted since a run of this cluster that started at TIME or later: 2026-11-20T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Timestamp>,
    /// Skip Ceph hosts that have been up for less than TIME: 30d, 12h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) up_for: Option<DurationArg>,
    /// Whether what is pending is installed first: of `patch`.
    #[arg(skip)]
    pub(crate) patches: bool,
}

/// A time of which days have 24 hours.
fn parse_duration(text: &str) -> Result<DurationArg, String> {
    let span: jiff::Span = text
        .parse()
        .map_err(|_| "give a number and a unit: 30d, 12h, 90m".to_owned())?;
    let time = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|error| error.to_string())?;
    match u64::try_from(time.as_secs()) {
        Ok(seconds) if seconds > 0 => Ok(DurationArg(seconds)),
        Ok(_) | Err(_) => Err("give more than nothing".to_owned()),
    }
}

/// A time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationArg(pub(crate) u64);

impl std::fmt::Display for DurationArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}s", self.0)
    }
}

impl RebootArgs {
    pub(crate) fn to_args(&self) -> Vec<String> {
        let Self {
            visit,
            needs_reboot,
            since,
            up_for,
            patches,
        } = self;
        let mut words = FlagList(vec![if *patches { "patch" } else { "reboot" }.to_owned()]);
        words.0.extend(visit.to_args());
        // Every word that follows is a flag.
        words.switch("--needs-reboot", needs_reboot.as_deref() == Some(""));
        words.value(
            "--needs-reboot",
            needs_reboot.as_ref().filter(|command| !command.is_empty()),
        );
        words.value("--since", since.as_ref());
        words.value("--up-for", up_for.as_ref());
        words.0
    }

    /// The same that installs what is pending first.
    pub(super) fn with_patches(&self) -> Self {
        Self {
            patches: true,
            ..self.clone()
        }
    }
}

/// `exec`
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
pub(crate) struct ExecArgs {
    /// The command. On Ceph it runs on each {host}; on Ganeti it runs here for each {node} once it is empty, with {master} and
    /// {reason} filled in too.
    #[arg(long, value_name = "COMMAND", required_unless_present = "hold")]
    pub(crate) command: Option<String>,
    /// Instead of a command: keep each node empty until `stagger ganeti done NODE` says that its maintenance is done.
    #[arg(long, conflicts_with = "command")]
    pub(crate) hold: bool,
    #[command(flatten)]
    /// Which nodes, and how.
    pub(crate) visit: VisitArgs,
}

impl ExecArgs {
    pub(crate) fn to_args(&self) -> Vec<String> {
        let Self { command, hold, visit } = self;
        let mut words = FlagList(vec!["exec".to_owned()]);
        words.value("--command", command.as_ref());
        words.switch("--hold", *hold);
        words.0.extend(visit.to_args());
        words.0
    }
}

/// What `reboot` and `exec` have: which nodes are visited, and how.
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch, under its own name"
)]
pub(crate) struct VisitArgs {
    #[command(flatten)]
    /// Which.
    pub(crate) nodes: Nodes,
    /// Also reboot nodes with non-redundant instances (plain, file), if none of these runs.
    #[arg(long, conflicts_with = "move_non_redundant")]
    pub(crate) accept_non_redundant: bool,
    /// Move non-redundant instances to other nodes (`gnt-instance move`): they are down while their disks are copied.
    #[arg(long)]
    pub(crate) move_non_redundant: bool,
    /// Treat all instances as stopped: nothing is moved, and what runs goes down with its node.
    #[arg(long)]
    pub(crate) assume_down: bool,
    /// How nodes with instances on shared storage are grouped.
    #[arg(long, value_name = "WAY", default_value = "sets")]
    pub(crate) non_drbd: NonDrbd,
    /// Whether nodes that share a secondary may be down together: if it has capacity for the instances of both, or never.
    #[arg(long, value_name = "RULE", default_value = "capacity")]
    pub(crate) shared_secondary: SharedSecondary,
    /// Let evacuated instances use N+1 memory: while they do, the failure of another node is not tolerated.
    #[arg(long)]
    pub(crate) spend_spare: bool,
    /// Also evacuate secondaries; requires --degraded-meanwhile.
    #[arg(long, requires = "degraded_meanwhile")]
    pub(crate) full_evacuation: bool,
    /// Accept that instances have a single disk copy while a new one is made.
    #[arg(long, requires = "full_evacuation")]
    pub(crate) degraded_meanwhile: bool,
    /// Disk template whose storage is on the nodes' own disks, such as Ceph on the nodes: nodes go one at a time. May be
    /// repeated.
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) local_storage: Vec<String>,
    /// Ignore instance policies when an instance moves to another node group.
    #[arg(long)]
    pub(crate) ignore_ipolicy: bool,
    /// Run also on a release of Ganeti that stagger is not tested with.
    #[arg(long)]
    pub(crate) accept_untested_release: bool,
    /// Show every planned move, for each node.
    #[arg(long)]
    pub(crate) print_moves: bool,
    /// Seconds that each operation takes, for the forecast: node=300,migrate=20,relocate=600,replace-standby=900.
    #[arg(long, value_name = "WHAT=SECONDS", value_delimiter = ',')]
    pub(crate) takes: Vec<String>,
}

impl VisitArgs {
    fn to_args(&self) -> Vec<String> {
        let Self {
            nodes,
            accept_non_redundant,
            move_non_redundant,
            assume_down,
            non_drbd,
            shared_secondary,
            spend_spare,
            full_evacuation,
            degraded_meanwhile,
            local_storage,
            ignore_ipolicy,
            accept_untested_release,
            print_moves,
            takes,
        } = self;
        let mut words = FlagList::default();
        words.0.extend(nodes.to_args());
        words.switch("--accept-non-redundant", *accept_non_redundant);
        words.switch("--move-non-redundant", *move_non_redundant);
        words.switch("--assume-down", *assume_down);
        words.value("--non-drbd", non_default(non_drbd));
        words.value("--shared-secondary", non_default(shared_secondary));
        words.switch("--spend-spare", *spend_spare);
        words.switch("--full-evacuation", *full_evacuation);
        words.switch("--degraded-meanwhile", *degraded_meanwhile);
        words.values("--local-storage", local_storage);
        words.switch("--ignore-ipolicy", *ignore_ipolicy);
        words.switch("--accept-untested-release", *accept_untested_release);
        words.switch("--print-moves", *print_moves);
        words.values("--takes", takes);
        words.0
    }
}

/// The word for a value that is not the default.
fn non_default<T: ValueEnum + PartialEq + Default>(value: &T) -> Option<String> {
    let value = (*value != T::default()).then(|| value.to_possible_value())??;
    Some(value.get_name().to_owned())
}

/// Which nodes of a Ganeti.
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[expect(clippy::struct_field_names, reason = "called as its flag")]
pub(crate) struct Nodes {
    /// Nodes of this group, by name or UUID. May be repeated.
    #[arg(short = 'G', long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Nodes with any of these tags.
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) node_tags: Vec<String>,
    /// Nodes whose name matches REGEX.
    #[arg(long, value_name = "REGEX")]
    pub(crate) matching: Option<String>,
    /// These nodes.
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub(crate) nodes: Vec<String>,
    /// Exclude this node. May be repeated.
    #[arg(
        short = 'O',
        long = "offline",
        visible_alias = "leave-out",
        value_name = "NODE"
    )]
    pub(crate) leave_out: Vec<String>,
}

impl Nodes {
    fn to_args(&self) -> Vec<String> {
        let Self {
            groups,
            node_tags,
            matching,
            nodes,
            leave_out,
        } = self;
        let mut words = FlagList::default();
        words.values("--group", groups);
        words.values("--node-tags", node_tags);
        words.value("--matching", matching.as_ref());
        words.values("--nodes", nodes);
        words.values("--offline", leave_out);
        words.0
    }
}

/// `--non-drbd`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum NonDrbd {
    /// One node of each group at a time.
    One,
    /// Rolling: the next as soon as there is capacity.
    Rolling,
    /// In sets that are planned ahead.
    #[default]
    Sets,
}

/// `--shared-secondary`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SharedSecondary {
    /// If it has capacity for the instances of both.
    #[default]
    Capacity,
    /// Never.
    Exclude,
}

/// `hroller`
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are the switches that hroller has"
)]
pub(crate) struct HrollerArgs {
    /// Read the cluster from a file in htools text format.
    #[arg(short = 't', long, value_name = "FILE")]
    pub(crate) text_data: Option<PathBuf>,
    /// Read the cluster from its RAPI: `https://HOST:5080` or HOST; or from a folder of RAPI responses, `file:///FOLDER`:
    /// groups.json, nodes.json, instances.json, info.json.
    #[arg(short = 'm', long, value_name = "ADDRESS")]
    pub(crate) master: Option<String>,
    /// On the master: read the cluster from luxid's socket [default: /var/run/ganeti/socket/ganeti-query].
    #[arg(short = 'L', long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = "")]
    pub(crate) luxi: Option<String>,
    /// Read the cluster from an iallocator request in JSON. It does not name the master: -f.
    #[arg(short = 'I', long, value_name = "FILE")]
    pub(crate) ialloc_src: Option<PathBuf>,
    /// Memory in MiB that a KVM node reserves for itself; 0: what it reports. A file of -t has its own numbers.
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true)]
    pub(crate) static_kvm_node_memory: i64,
    #[command(flatten)]
    /// Which nodes.
    pub(crate) nodes: Nodes,
    /// Skip nodes with non-DRBD instances.
    #[arg(long)]
    pub(crate) skip_non_redundant: bool,
    /// Ignore non-DRBD instances.
    #[arg(long)]
    pub(crate) ignore_non_redundant: bool,
    /// Move non-redundant instances to other nodes. Not in Ganeti's hroller.
    #[arg(long)]
    pub(crate) move_non_redundant: bool,
    /// Treat all instances as stopped.
    #[arg(long)]
    pub(crate) offline_maintenance: bool,
    /// Also evacuate secondaries.
    #[arg(long)]
    pub(crate) full_evacuation: bool,
    /// Whether nodes that share a secondary may be rebooted together. Not in Ganeti's hroller, which never does.
    #[arg(long, value_name = "RULE", default_value = "exclude")]
    pub(crate) shared_secondary: SharedSecondary,
    /// How nodes with instances on shared storage are grouped. Not in Ganeti's hroller.
    #[arg(long, value_name = "WAY", default_value = "sets")]
    pub(crate) non_drbd: NonDrbd,
    /// Time to search for fewer groups: 10s. Not in Ganeti's hroller.
    #[arg(long, value_name = "TIME")]
    pub(crate) improve: Option<String>,
    /// Show the planned moves.
    #[arg(long)]
    pub(crate) print_moves: bool,
    /// Print only the first group, one node per line.
    #[arg(long)]
    pub(crate) one_step_only: bool,
    /// Print no headers.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Continue without a master.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Compare with Ganeti's hroller: `differences` reports on stderr where its answer differs, and why; `strict` gives its
    /// answer, also where that is unsafe.
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "differences"
    )]
    pub(crate) compat: Option<Compat>,
    /// With --compat=strict: do not report on stderr what is unsafe in the answer.
    #[arg(long)]
    pub(crate) no_warn: bool,
    /// With -m: accept any certificate, and send no password. A man in the middle may show another cluster. Prints the
    /// certificate's fingerprint.
    #[arg(long)]
    pub(crate) accept_any_certificate: bool,
    /// Save the cluster as it was read to FILE.original.
    #[arg(short = 'S', long = "save", value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// With --compat=strict: twice also prints the colourings, three times also the graph.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print no warnings.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print what a shell completes, as hroller does.
    #[arg(long, hide = true)]
    pub(crate) help_completion: bool,
    /// hroller takes no arguments.
    #[arg(hide = true)]
    pub(crate) arguments: Vec<String>,
}

/// `--compat`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compat {
    /// Report where hroller's answer differs.
    Differences,
    /// Give hroller's answer.
    Strict,
}

/// `ganeti`
#[derive(Debug, Subcommand)]
pub(crate) enum GanetiCommand {
    /// Write a first configuration, and check it: from the node that this machine is, or from an address.
    #[command(after_help = "Example: stagger ganeti init --out /etc/stagger/stagger.toml")]
    Init(GanetiInitArgs),
    /// List what runs hold in the cluster, as a drained job queue, and until when.
    Guards(GanetiGuardsArgs),
    /// Clean up what runs left in the cluster: drained nodes, instances elsewhere or shut down, filters. Needs no journal.
    Recover(RecoverArgs),
    /// Resume a run that was handed over to this node, or was interrupted, if this node is the master. For a timer on every
    /// node that may be master.
    Resume,
    /// Mark the maintenance of nodes that `exec --hold` keeps empty as done: their instances return.
    #[command(after_help = "Example: stagger ganeti done node3")]
    Done {
        /// The nodes.
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
}

/// `ganeti init`
#[derive(Debug, Args)]
pub(crate) struct GanetiInitArgs {
    /// Address of the cluster's RAPI [default: every master candidate, on a node].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
    /// Name of the cluster [default: from the cluster].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write to this new file [default: stagger.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// On the master: add a user `stagger` who may write to ganeti-rapi's file of users, where there is none.
    #[arg(long)]
    pub(crate) make_user: bool,
}

/// `guards`
#[derive(Debug, Args)]
pub(crate) struct GuardsArgs {
    /// Clear what is past its expiry.
    #[arg(long)]
    pub(crate) drop_expired: bool,
    /// Continue until stdin ends and no guard is left. Each run starts one of these beside itself, so that its guards go at
    /// their expiry even if it is killed.
    #[arg(long, hide = true)]
    pub(crate) watch: bool,
}

/// `ganeti guards`
#[derive(Debug, Args)]
pub(crate) struct GanetiGuardsArgs {
    #[command(flatten)]
    /// What a Ceph has too.
    pub(crate) guards: GuardsArgs,
    /// Clear all of them now, of every run: jobs of others continue at once. An active run takes them again with its next wave.
    #[arg(long, conflicts_with_all = ["drop_expired", "watch"])]
    pub(crate) drop: bool,
}

/// `ganeti recover`
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// Only what was taken from this node.
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// List what is to be cleaned up and how; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Begin without asking.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}
