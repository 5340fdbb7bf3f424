//! What is to be done to a cluster, to which of its units, and by which policy.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stagger_core::model::{Kind, Limit, UnitId};
use stagger_core::plan::Selection;

use super::{ExecArgs, RebootArgs, VisitArgs};

/// A goal as a subcommand, with the flags that a command has beside it.
#[derive(Debug, Subcommand)]
pub(crate) enum GoalWith<T: Args> {
    /// Upgrade a Ceph or Ironic cluster to a release.
    Upgrade {
        #[command(flatten)]
        /// The release.
        upgrade: UpgradeArgs,
        #[command(flatten)]
        /// What every goal has.
        flags: GoalFlags<T>,
    },
    /// Reboot Ceph hosts, or Ganeti nodes with their instances evacuated.
    Reboot {
        #[command(flatten)]
        /// Which nodes, and how.
        reboot: Box<RebootArgs>,
        #[command(flatten)]
        /// What every goal has.
        flags: GoalFlags<T>,
    },
    /// Install pending packages on Ceph hosts, and reboot them.
    Patch {
        #[command(flatten)]
        /// Which hosts.
        reboot: Box<RebootArgs>,
        #[command(flatten)]
        /// What every goal has.
        flags: GoalFlags<T>,
    },
    /// Restart the daemons of each Ceph host.
    Restart {
        #[command(flatten)]
        /// Which daemons.
        restart: Restart,
        #[command(flatten)]
        /// What every goal has.
        flags: GoalFlags<T>,
    },
    /// Run a command on each Ceph host, or for each evacuated Ganeti node.
    Exec {
        #[command(flatten)]
        /// The command, for which nodes, and how.
        exec: Box<ExecArgs>,
        #[command(flatten)]
        /// What every goal has.
        flags: GoalFlags<T>,
    },
}

/// What every goal has on a command line.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct GoalFlags<T: Args> {
    #[command(flatten)]
    /// The flags of the command.
    with: T,
    #[command(flatten)]
    /// By which policy.
    policy: PolicyFlags,
    #[command(flatten)]
    /// Of which units.
    select: Select,
}

impl<T: Args> GoalWith<T> {
    /// The goal.
    pub(crate) fn goal(&self) -> GoalArgs {
        let (action, flags) = match self {
            Self::Upgrade { upgrade, flags } => (GoalAction::Upgrade(upgrade.clone()), flags),
            Self::Reboot { reboot, flags } => (GoalAction::Reboot(reboot.clone()), flags),
            Self::Patch { reboot, flags } => (GoalAction::Reboot(Box::new(reboot.with_patches())), flags),
            Self::Restart { restart, flags } => (GoalAction::Restart(restart.clone()), flags),
            Self::Exec { exec, flags } => (GoalAction::Exec(exec.clone()), flags),
        };
        GoalArgs {
            action,
            policy: flags.policy.clone(),
            select: flags.select.clone(),
        }
    }

    /// The flags of the command.
    pub(crate) fn with(&self) -> &T {
        match self {
            Self::Upgrade { flags, .. }
            | Self::Reboot { flags, .. }
            | Self::Patch { flags, .. }
            | Self::Restart { flags, .. }
            | Self::Exec { flags, .. } => &flags.with,
        }
    }
}

/// What is to be done to a cluster.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) struct GoalArgs {
    /// What is done to each unit.
    pub(crate) action: GoalAction,
    /// By which policy.
    pub(crate) policy: PolicyFlags,
    /// To which units.
    pub(crate) select: Select,
}

/// What is done to each unit.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) enum GoalAction {
    /// It gets another release.
    Upgrade(UpgradeArgs),
    /// It is rebooted, what is pending installed first or not.
    Reboot(Box<RebootArgs>),
    /// Its daemons are restarted.
    Restart(Restart),
    /// A command is run for it.
    Exec(Box<ExecArgs>),
}

impl GoalArgs {
    /// An upgrade to that release.
    pub(crate) fn upgrade_to(release: &str) -> Self {
        Self {
            action: GoalAction::Upgrade(UpgradeArgs::to(release)),
            policy: PolicyFlags::default(),
            select: Select::default(),
        }
    }

    /// Whether every move is shown.
    pub(crate) fn print_moves(&self) -> bool {
        self.visit().is_some_and(|visit| visit.print_moves)
    }

    /// Which nodes of a Ganeti are visited, and how; `None`: the goal is of another kind of cluster.
    fn visit(&self) -> Option<&VisitArgs> {
        match &self.action {
            GoalAction::Upgrade(_) | GoalAction::Restart(_) => None,
            GoalAction::Reboot(reboot) => Some(&reboot.visit),
            GoalAction::Exec(exec) => Some(&exec.visit),
        }
    }

    /// The words that say the same on a command line.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let action = match &self.action {
            GoalAction::Upgrade(upgrade) => upgrade.to_args(),
            GoalAction::Reboot(reboot) => reboot.to_args(),
            GoalAction::Restart(restart) => restart.to_args(),
            GoalAction::Exec(exec) => exec.to_args(),
        };
        [action, self.policy.to_args(), self.select.to_args()].concat()
    }
}

/// `upgrade`
#[derive(Debug, Args, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
pub(crate) struct UpgradeArgs {
    /// The release to go to: 18.2.7.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) to: String,
    #[command(flatten)]
    /// Which known risks are heeded.
    pub(crate) risks: RiskFlags,
}

impl UpgradeArgs {
    /// To that release, with no flags.
    pub(crate) fn to(release: &str) -> Self {
        Self {
            to: release.to_owned(),
            risks: RiskFlags::default(),
        }
    }

    fn to_args(&self) -> Vec<String> {
        let Self { to, risks } = self;
        let RiskFlags { accept_risk, risks } = risks;
        let mut words = FlagList(vec!["upgrade".to_owned()]);
        words.value("--to", Some(to));
        words.values("--accept-risk", accept_risk);
        words.values("--risks", risks.iter().map(|file| file.display()));
        words.0
    }
}

/// `restart`
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
pub(crate) struct Restart {
    /// Restart the daemons of this kind alone: osd, mds. May be repeated. Hosts are judged as if all of theirs went down.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) daemons: Vec<Kind>,
}

impl Restart {
    fn to_args(&self) -> Vec<String> {
        let Self { daemons } = self;
        let mut words = FlagList(vec!["restart".to_owned()]);
        words.values("--daemons", daemons);
        words.0
    }
}

/// Known risks of the way to a release.
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[group(skip)]
pub(crate) struct RiskFlags {
    /// Run although this known risk applies. May be repeated.
    #[arg(long, value_name = "ID")]
    pub(crate) accept_risk: Vec<String>,
    /// Also heed the known risks of this file. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) risks: Vec<PathBuf>,
}

/// The policy of the configuration, changed for one plan.
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyFlags {
    /// Units of a kind that may be down at once: a count or a percentage.
    #[arg(long, value_name = "LIMIT")]
    pub(crate) max_in_parallel: Option<Limit>,
    /// Start with full waves instead of 1, 2, 4 …
    #[arg(long)]
    pub(crate) no_growth: bool,
    /// Continuous: start units as soon as constraints permit, without a barrier between waves.
    #[arg(long)]
    pub(crate) no_barriers: bool,
    /// Permit an interruption that the plan names, or all of a sort: mds.a, pool.rbd, mgr. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) interrupt: Vec<String>,
    /// Run a plan that does not reach the target; without it such a plan is refused.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Time to search for fewer waves: 10s.
    #[arg(long, value_name = "TIME")]
    pub(crate) improve: Option<String>,
}

impl PolicyFlags {
    fn to_args(&self) -> Vec<String> {
        let Self {
            max_in_parallel,
            no_growth,
            no_barriers,
            interrupt,
            partial,
            improve,
        } = self;
        let mut words = FlagList::default();
        words.value("--max-in-parallel", max_in_parallel.as_ref());
        words.switch("--no-growth", *no_growth);
        words.switch("--no-barriers", *no_barriers);
        words.values("--interrupt", interrupt);
        words.switch("--partial", *partial);
        words.value("--improve", improve.as_ref());
        words.0
    }
}

/// Some units; the others are left for another run.
#[derive(Debug, Args, Default, Clone)]
#[cfg_attr(test, derive(PartialEq))]
#[command(next_help_heading = "Selection; a later run does the others")]
pub(crate) struct Select {
    /// Units of this kind: mon, osd, node. May be repeated.
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Units on this host. May be repeated.
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Units in this failure domain: rack=r3. May be repeated.
    #[arg(long = "domain", value_name = "LEVEL=NAME", value_delimiter = ',', value_parser = domain)]
    domains: Vec<(String, String)>,
    /// This unit. May be repeated.
    #[arg(long = "unit", value_name = "UNIT", value_delimiter = ',')]
    units: Vec<UnitId>,
    /// At most so many units, the first of the plan.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// The level of failure domains that hosts are.
const HOST: &str = "host";

fn domain(text: &str) -> Result<(String, String), String> {
    let parts = text
        .split_once('=')
        .filter(|(level, name)| !level.is_empty() && !name.is_empty());
    let (level, name) = parts.ok_or("give a level and a name: rack=r3")?;
    Ok((level.to_owned(), name.to_owned()))
}

impl Select {
    /// The hosts that were named.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// What was selected.
    pub(crate) fn selection(&self) -> Selection {
        let hosts = self.hosts.iter().map(|host| (HOST.to_owned(), host.clone()));
        Selection {
            kinds: self.kinds.clone(),
            units: self.units.clone(),
            domains: hosts.chain(self.domains.iter().cloned()).collect(),
            limit: self.limit.unwrap_or_default(),
        }
    }

    fn to_args(&self) -> Vec<String> {
        let Self {
            kinds,
            hosts,
            domains,
            units,
            limit,
        } = self;
        let mut words = FlagList::default();
        words.values("--kind", kinds);
        words.values("--host", hosts);
        let domains = domains.iter().map(|(level, name)| format!("{level}={name}"));
        words.values("--domain", domains);
        words.values("--unit", units);
        words.value("--limit", limit.as_ref());
        words.0
    }
}

/// Flags as they are written on a command line.
#[derive(Default)]
pub(super) struct FlagList(pub(super) Vec<String>);

impl FlagList {
    pub(super) fn switch(&mut self, flag: &str, given: bool) {
        self.0.extend(given.then(|| flag.to_owned()));
    }

    pub(super) fn value(&mut self, flag: &str, value: Option<impl std::fmt::Display>) {
        let Some(value) = value.map(|value| value.to_string()) else {
            return;
        };
        // In one word with its flag where it would be taken for another.
        if value.starts_with('-') {
            self.0.push(format!("{flag}={value}"));
        } else {
            self.0.extend([flag.to_owned(), value]);
        }
    }

    pub(super) fn values<T: std::fmt::Display>(&mut self, flag: &str, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.value(flag, Some(value));
        }
    }
}
