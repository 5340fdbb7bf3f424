//! What can be said on the command line.

mod asks;
mod ganeti;
mod goal;
mod help;
mod kube;
mod operator;
mod outcome;
mod serve;
mod stores;

use std::path::PathBuf;

pub(crate) use asks::{AskArgs, AskCommand, AskDoorArgs, GateArgs, HoldRebootsArgs, PutAskArgs, ask_id};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use ganeti::{
    Compat, ExecArgs, GanetiCommand, GanetiGuardsArgs, GanetiInitArgs, GuardsArgs, HrollerArgs, Nodes,
    NonDrbd, RebootArgs, RecoverArgs, SharedSecondary, VisitArgs,
};
pub(crate) use goal::{GoalAction, GoalArgs, GoalWith, PolicyFlags, RiskFlags, Select, UpgradeArgs};
pub(crate) use help::{command, command_here};
pub(crate) use kube::{OperatorCluster, OperatorRequest, RookCluster};
pub(crate) use operator::{AgentArgs, OperatorArgs, PrepareArgs, Switch};
pub(crate) use outcome::{CallOutcome, ConfirmArgs, HostState, SettleArgs};
pub(crate) use serve::{AddTokenArgs, ServeArgs, Site, TokenCommand};
use stagger_core::model::{PartName, RunId, UnitId};
pub(crate) use stores::{DbCommand, LintCommand, MigrationsArgs, OnlineDataMigrationsArgs, ReportFormat};

/// Where the flags of every command stand: behind its own, before `--help`.
const LAST: usize = 900;

/// Rolling upgrades and maintenance of stateful clusters: as many at once as is safe, never one more.
#[derive(Debug, Parser)]
#[command(name = "stagger", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The configuration file [default: stagger.toml, then /etc/stagger/stagger.toml].
    #[arg(long, global = true, value_name = "FILE", display_order = LAST)]
    pub(crate) config: Option<PathBuf>,
    /// The folder of journals and artifacts [default: ~/.local/state/stagger].
    #[arg(long, global = true, value_name = "DIR", display_order = LAST, overrides_with = "state")]
    pub(crate) state: Option<PathBuf>,
    /// Print a versioned JSON document.
    #[arg(long, global = true, display_order = LAST)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Show current cluster state.
    #[command(after_help = "Example: stagger observe --save cluster.json")]
    Observe(ObserveArgs),
    /// Show what a run would change, wave by wave, and what it would skip.
    #[command(after_help = "Example: stagger plan upgrade --to 18.2.7 --max-in-parallel 10% --out plan.json")]
    Plan(PlanArgs),
    /// Verify a plan independently of the planner.
    #[command(after_help = "Example: stagger check plan.json")]
    Check(CheckArgs),
    /// Carry out an upgrade, a reboot or a maintenance, wave by wave.
    #[command(after_help = "Examples: stagger run plan.json\n          stagger run upgrade --to 18.2.7")]
    Run(RunArgs),
    /// Resume a run that was interrupted, held or paused.
    #[command(after_help = "Example: stagger resume")]
    Resume(RunRequest),
    /// Show the state of a run.
    #[command(after_help = "Example: stagger status")]
    Status(StatusArgs),
    /// Watch a run live, from any terminal: what is down, why, and what is waited for.
    #[command(after_help = "Examples: stagger watch\n          stagger watch --plain | tee run.log")]
    Watch(WatchArgs),
    /// Show which daemon runs which release.
    #[command(after_help = "Example: stagger versions --all")]
    Versions(VersionsArgs),
    /// List runs, or show the events of one.
    #[command(after_help = "Example: stagger history lab-20260101-000000")]
    History(HistoryArgs),
    /// Verify that a journal keeps the laws, independently of the engine that wrote it.
    #[command(after_help = "Examples: stagger verify\n          stagger verify --from journal.jsonl")]
    Verify(VerifyArgs),
    /// Make an HTML page of a run: verdict, laws, waves over time, what was waited for and decided.
    #[command(after_help = "Example: stagger report --out run.html")]
    Report(ReportArgs),
    /// Serve runs to a browser and to programs: over a socket of your own, or over TLS with tokens.
    #[command(
        after_help = "Examples: stagger serve\n          stagger serve --listen 0.0.0.0:8443 --certificate c.pem --key k.pem"
    )]
    Serve(ServeArgs),
    /// Manage the access tokens of `serve`.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Answer who asks to take hosts down: one process for a cluster, with its configuration.
    #[command(after_help = "Example: stagger gate")]
    Gate(GateArgs),
    /// Ask whether hosts may go down now, and if not, when. Granted, they count as down for every run and for all who ask.
    #[command(
        after_help = "Examples: stagger ask host7 --for 20m --wait && systemctl reboot\n          stagger ask done host7"
    )]
    Ask(AskArgs),
    /// Hold reboots of this host until they are granted: a logind inhibitor that is let go with the grant.
    #[command(
        after_help = "Example: stagger hold-reboots --url https://ops1:8443 --token-file /etc/stagger/token"
    )]
    HoldReboots(HoldRebootsArgs),
    /// Explain why a unit is in its wave, what blocks it, and what would free it.
    #[command(after_help = "Example: stagger explain osd.7 upgrade --to 18.2.7")]
    Explain(ExplainArgs),
    /// Rehearse an upgrade or a reboot on an in-memory copy of the cluster, or play a scenario.
    #[command(after_help = "Example: stagger simulate upgrade --to 18.2.7 --runs 20")]
    Simulate(Simulate),
    /// Show in half a minute what a run does: needs no root, no network and no cluster.
    Demo {
        /// Do not slow down for a viewer.
        #[arg(long)]
        fast: bool,
    },
    /// Pause: start no new wave.
    #[command(after_help = "Example: stagger pause")]
    Pause(RunRequest),
    /// Approve a point of no return.
    #[command(after_help = "Example: stagger approve last-mon")]
    Approve(ApproveArgs),
    /// Finish the current wave, clean up, and stop.
    #[command(after_help = "Example: stagger abort")]
    Abort(RunRequest),
    /// Roll back to the previous release where supported.
    #[command(after_help = "Example: stagger rollback")]
    Rollback(RunRequest),
    /// Confirm that a host is off: calls in doubt there count as failed.
    #[command(after_help = "Example: stagger confirm host3 is-off")]
    Confirm(ConfirmArgs),
    /// Settle a call whose outcome is unknown.
    #[command(after_help = "Example: stagger settle 17 done")]
    Settle(SettleArgs),
    /// Show or pack the diagnostics that were collected on failure.
    #[command(after_help = "Example: stagger artifacts --bundle run.tar.gz")]
    Artifacts(ArtifactsArgs),
    /// Explain the reason of a refusal or a hold, or list all reasons.
    #[command(after_help = "Example: stagger reason gates-shut")]
    Reason {
        /// The reason: gates-shut, snapshot-has-moved, …
        reason: Option<String>,
    },
    /// List known risks of releases, those that apply to this cluster first.
    #[command(after_help = "Example: stagger risks --to 20.2.4")]
    Risks(ListRisksArgs),
    /// Ceph-specific commands.
    #[command(subcommand)]
    Ceph(CephCommand),
    /// Compute the reboot groups of a Ganeti cluster (hroller-compatible). Exit 0 and 1, as hroller.
    Hroller(HrollerArgs),
    /// Configure a Ganeti cluster, and list drains, filters and locks that runs hold in it.
    #[command(subcommand)]
    Ganeti(GanetiCommand),
    /// Manage recorded releases and pins of an Ironic cluster.
    #[command(subcommand)]
    Ironic(IronicCommand),
    /// Check the configuration, or print it with its defaults.
    #[command(subcommand)]
    #[command(after_help = "Example: stagger config check --to 18.2.7")]
    Config(ConfigCommand),
    /// Manage the journal store: schema, versions, migrations.
    #[command(subcommand)]
    Db(DbCommand),
    /// Lint the database migrations of a program.
    #[command(subcommand)]
    Lint(LintCommand),
    /// Print the JSON schema of a document, or list all documents.
    Schema {
        /// The document: plan, run, …
        document: Option<String>,
        /// Forbid fields that this release does not have: for tests. Readers must permit them.
        #[arg(long, requires = "document")]
        strict: bool,
    },
    /// Print the custom resource definitions of Kubernetes as YAML.
    #[command(hide = true)]
    Crds,
    /// Run the Kubernetes operator for Rook-managed Ceph clusters.
    Operator(OperatorArgs),
    #[command(hide = true)]
    /// Run the node agent of an operator: list devices, keep the logs of ended containers.
    Agent(AgentArgs),
    /// Prepare OSDs on this node.
    #[command(subcommand, hide = true)]
    Osd(OsdCommand),
    /// Print the script by which a shell completes commands, flags, runs, units and reasons.
    #[command(after_help = "Example: source <(stagger completions bash)")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

/// `ironic`
#[derive(Debug, Subcommand)]
pub(crate) enum IronicCommand {
    /// Record what a service runs, where an ended run left that open. Contradictions are refused.
    Record {
        /// The service, as named in the configuration.
        service: String,
        /// The release that it runs: 29.0.6.
        #[arg(long)]
        release: String,
        /// The release that it is pinned to [default: none].
        #[arg(long)]
        pin: Option<String>,
    },
}

/// `config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check what a run needs: cluster, hosts, commands, rights, store. Changes nothing. Exit 0 if a run can start, 1 if not.
    Check {
        /// Also check whether the cluster can be upgraded to this release.
        #[arg(long, value_name = "RELEASE")]
        to: Option<String>,
        /// Also send a test to each receiver of notifications.
        #[arg(long)]
        notify: bool,
    },
    /// Print the effective configuration, without secrets.
    Show,
    /// Write a first configuration, filled in from the cluster.
    #[command(after_help = "Example: stagger config init ceph --out stagger.toml")]
    Init(InitArgs),
}

/// `config init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The kind of cluster. Ceph is queried through this machine's `ceph` command, Ironic through its API (with the token in
    /// `OS_TOKEN`, if it needs one).
    pub(crate) kind: InitKind,
    /// Address of the Ganeti RAPI or the Ironic API: `gnt.example.org`, `http://ironic.example.org:6385`.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
    /// Name of the cluster [default: from the cluster].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write to this new file [default: stdout].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// The kinds of clusters that have a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitKind {
    /// Ceph on hosts. For Rook see `stagger crds` and the guide.
    Ceph,
    /// Ganeti, by its RAPI.
    Ganeti,
    /// Ironic, by its API and its database.
    Ironic,
}

/// Where facts come from.
#[derive(Debug, Args, Default)]
pub(crate) struct FactsFrom {
    /// Read from an inventory of `observe --save`, a folder of `ceph … -f json` outputs, or a Ganeti text file.
    #[arg(long, value_name = "PATH", conflicts_with = "RookCluster")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    /// Or a cluster of Rook.
    pub(crate) on: RookCluster,
}

/// `observe`
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: FactsFrom,
    /// Also save the cluster's answers to this file, for --from. It holds no keys.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

/// `versions`
#[derive(Debug, Args)]
pub(crate) struct VersionsArgs {
    /// Read from an inventory of `observe --save`, a folder of `ceph … -f json` outputs, or a Ganeti text file.
    #[arg(long, value_name = "PATH", conflicts_with = "OperatorCluster")]
    pub(crate) from: Option<PathBuf>,
    /// One line per daemon.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    /// Or who is asked instead.
    pub(crate) kube: OperatorCluster,
}

/// `plan`
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "GOAL",
    subcommand_help_heading = "Goals",
    disable_help_subcommand = true
)]
pub(crate) struct PlanArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) goal: GoalWith<PlanFlags>,
}

/// What `plan` has beside a goal.
#[derive(Debug, Args)]
pub(crate) struct PlanFlags {
    /// Also write the plan to this file, for `run` and `check`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// List all units of every wave.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: FactsFrom,
}

/// `check`
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "GOAL",
    subcommand_help_heading = "Goals",
    disable_help_subcommand = true,
    override_usage = "stagger check [OPTIONS] <PLAN> [GOAL]"
)]
pub(crate) struct CheckArgs {
    /// A plan of `plan --out`.
    pub(crate) plan: PathBuf,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: FactsFrom,
    /// What to check it against [default: the goal it was made for].
    #[command(subcommand)]
    pub(crate) goal: Option<GoalWith<NoFlags>>,
}

/// A command that has no flags beside a goal.
#[derive(Debug, Args)]
pub(crate) struct NoFlags {}

/// `run`
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "GOAL",
    subcommand_help_heading = "Goals",
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    override_usage = "stagger run [OPTIONS] <PLAN>\n       stagger run [OPTIONS] <GOAL>"
)]
pub(crate) struct RunArgs {
    /// Run exactly this plan of `plan --out`, or refuse and say what has changed since.
    #[arg(value_name = "PLAN", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Start without asking. Required without a terminal, unless a plan is given.
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// In whose name it is begun: `serve` says so, and the journal tells it.
    #[arg(long, hide = true, value_name = "WHO", requires = "file")]
    pub(crate) asked_by: Option<String>,
    /// What is to be done, where no plan is given.
    #[command(subcommand)]
    pub(crate) goal: Option<GoalWith<RunFlags>>,
}

/// What `run` has beside a goal.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    /// Run only the plan of this id; refuse if planning now gives another one.
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
}

/// A run that is asked for something.
#[derive(Debug, Args)]
pub(crate) struct RunRequest {
    /// The run [default: the newest].
    #[arg(conflicts_with = "OperatorCluster")]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: OperatorRequest,
}

/// A run or all.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The run [default: list all].
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    /// Or whose runs.
    pub(crate) kube: OperatorCluster,
}

/// Whose journal is read.
#[derive(Debug, Args)]
pub(crate) struct JournalOf {
    /// The run [default: the newest].
    pub(crate) run: Option<RunId>,
    /// Read the journal from a file with an event in each line: `journal.jsonl` of `artifacts --bundle`, or what `history RUN
    /// --json` prints.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "OperatorCluster"])]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) kube: OperatorCluster,
}

/// `verify`
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    /// Whose journal.
    pub(crate) of: JournalOf,
}

/// `watch`
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The run [default: the newest].
    pub(crate) run: Option<RunId>,
    /// Print a line for each event, as where there is no terminal.
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) kube: OperatorCluster,
}

/// `report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    /// Whose journal.
    pub(crate) of: JournalOf,
    /// Write the page to a file [default: stdout].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The run [default: the newest].
    #[arg(conflicts_with = "OperatorCluster")]
    pub(crate) run: Option<RunId>,
    /// Show the last completed steps and the current one.
    #[arg(long)]
    pub(crate) upgrade: bool,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) kube: OperatorCluster,
}

/// `explain`
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "GOAL",
    subcommand_help_heading = "Goals",
    disable_help_subcommand = true
)]
pub(crate) struct ExplainArgs {
    /// The unit: osd.3.
    pub(crate) unit: UnitId,
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) goal: GoalWith<FactsFrom>,
}

/// `simulate`
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "GOAL",
    subcommand_help_heading = "Goals",
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(crate) struct Simulate {
    /// A scenario file: a simulated cluster, and its faults.
    #[arg(required = true)]
    pub(crate) scenario: Option<PathBuf>,
    /// Do not slow down for a viewer.
    #[arg(long)]
    pub(crate) fast: bool,
    /// What to rehearse on a copy of the cluster, instead of a scenario.
    #[command(subcommand)]
    pub(crate) goal: Option<GoalWith<RehearsalFlags>>,
}

/// What a rehearsal has beside a goal.
#[derive(Debug, Args)]
pub(crate) struct RehearsalFlags {
    /// Further runs, each with one more failed OSD (Ceph) [default: 100; 10 above 200 OSDs, 3 above 1000].
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<u32>,
    /// Seed of these failures; the same seed gives the same result [default: 1].
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: FactsFrom,
}

/// `approve`
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct ApproveArgs {
    /// The run [default: the newest].
    #[arg(conflicts_with = "OperatorCluster")]
    pub(crate) run: Option<RunId>,
    /// The point of no return, or an interruption that the plan names: last-mon, mds.a.
    #[arg(value_name = "POINT")]
    pub(crate) door: PartName,
    #[command(flatten)]
    /// Or whose run.
    pub(crate) heard: OperatorRequest,
}

/// `risks`
#[derive(Debug, Args)]
pub(crate) struct ListRisksArgs {
    /// Only those on the way to this release [default: to any].
    #[arg(long, value_name = "RELEASE")]
    pub(crate) to: Option<String>,
    /// Also read the known risks of this file. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) risks: Vec<PathBuf>,
    #[command(flatten)]
    /// Where facts come from.
    pub(crate) from: FactsFrom,
}

/// `artifacts`
#[derive(Debug, Args)]
pub(crate) struct ArtifactsArgs {
    /// The run [default: the newest].
    pub(crate) run: Option<RunId>,
    /// Pack them with the journal into this file, without secrets.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}

/// `ceph`
#[derive(Debug, Subcommand)]
pub(crate) enum CephCommand {
    /// Check whether these OSDs may stop together, by stagger's own check. Exit 0 yes, 1 no, 2 unknown id.
    #[command(after_help = "Example: stagger ceph ok-to-stop 3 7")]
    OkToStop {
        /// OSD ids: 3, osd.3.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Add OSDs that may stop with them, up to this many in all.
        #[arg(long)]
        max: Option<usize>,
        #[command(flatten)]
        /// Where facts come from.
        from: FactsFrom,
    },
    /// List what runs hold in the cluster, as `noout`, and until when.
    Guards(GuardsArgs),
}

/// `osd`
#[derive(Debug, Subcommand)]
pub(crate) enum OsdCommand {
    /// Prepare OSDs on devices of this node and report them, as an operator's Job does.
    Prepare(PrepareArgs),
}

#[cfg(test)]
mod tests;
