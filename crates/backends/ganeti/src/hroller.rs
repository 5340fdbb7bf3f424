//! Answers as Ganeti's `hroller`, from stagger's plans.
//!
//! The options, the output and the exit codes are those of hroller 3.0. The plans differ where hroller's were
//! wrong: no moves for nodes that are not rebooted, none of instances that are down, and no disk of one node
//! is taken for one that can be migrated. [`HrollerOutput::differences`] says where and why.

mod differences;
pub mod strict;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use stagger_core::check::{Finding, check};
use stagger_core::model::{
    ClusterName, Evacuate, EvacuationPolicy, Growth, Limit, LocalGuests, MoveKind, Part, PartName, Policy,
    Reason, Search, SharedGuests, Snapshot, Spare, Standbys, Target, UnitId,
};
use stagger_core::plan::{LeftAlone, Plan, PlanningInput, Wave, plan_waves};

use crate::goal::GanetiRebootGoal;
use crate::model::{GanetiCluster, Instance, NodeIx, Template};
use crate::selection::{NodeSelection, SelectError};
use crate::target::{TargetError, stage};
use crate::translate::capacity::guests_by_name;
use crate::translate::{GanetiTranslateError, View, snapshot};

/// How many steps are searched for fewer groups where nobody says. A thousand nodes with ten DRBD instances each took
/// 42,000 to 310,000 for 27 groups, in 12 of 18 searches less than this.
const STEPS: u64 = 80_000;

/// What hroller is asked.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are the switches that hroller has"
)]
pub struct HrollerOptions {
    /// `-G`, `--node-tags`, `-O`, and what hroller does not have: patterns and names.
    pub selection: NodeSelection,
    /// `--skip-non-redundant`: leave out nodes with an instance of another template than drbd.
    pub skip_non_redundant: bool,
    /// `--ignore-non-redundant`: as if these instances were not there.
    pub ignore_non_redundant: bool,
    /// `--offline-maintenance`: as if no instance ran.
    pub offline_maintenance: bool,
    /// `--full-evacuation`: second copies leave the nodes too.
    pub full_evacuation: bool,
    /// `--move-non-redundant`, which hroller does not have: stop, copy and start instances of one node's disks.
    pub move_non_redundant: bool,
    /// `-f`: go on without a master.
    pub force: bool,
    /// Not in hroller: nodes may share a secondary that has room for the instances of both.
    pub shared_secondary: Standbys,
    /// Not in hroller: in what way nodes with instances on shared storage are taken.
    pub non_drbd: SharedGuests,
    /// How long to search for fewer groups.
    pub search: Search,
    /// `--compat`, which hroller does not have: find out where its answer differs.
    pub compat: bool,
}

impl Default for HrollerOptions {
    fn default() -> Self {
        Self {
            selection: NodeSelection::default(),
            skip_non_redundant: false,
            ignore_non_redundant: false,
            offline_maintenance: false,
            full_evacuation: false,
            move_non_redundant: false,
            force: false,
            shared_secondary: Standbys::Exclude,
            non_drbd: SharedGuests::default(),
            search: Search {
                steps: STEPS,
                ..Search::default()
            },
            compat: false,
        }
    }
}

/// Why there is no answer: hroller's own words, exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum HrollerError {
    /// No master, without `-f`.
    #[error("No master node found (maybe not supported by backend).")]
    NoMaster,
    /// Two masters.
    #[error("Found more than one master node: {0}")]
    Masters(String),
    /// `-G` names nothing.
    #[error("Cannot find target group.")]
    NoGroup,
    /// `-O` names nothing.
    #[error("wrong node name(s) set as offline: {0}")]
    WrongOffline(String),
    /// Nothing is left to be rebooted.
    #[error("Cannot create node graph")]
    NoGraph(Vec<String>),
    /// Instances have no place.
    #[error("Not enough capacity to move non-redundant instances")]
    NoCapacity(Vec<String>),
    /// A secondary has no room for an instance. Only [`strict`] has it: ours leaves such a node out.
    #[error("Failed to migrate instances off nodes")]
    MigrationFailed(Vec<String>),
    /// Second copies have no place.
    #[error("Not enough capacity to move secondaries")]
    NoCapacityForSecondaries(Vec<String>),
    /// A selection that hroller does not have fits nothing.
    #[error(transparent)]
    Select(SelectError),
    /// A cluster that makes no snapshot.
    #[error(transparent)]
    Translate(#[from] GanetiTranslateError),
    /// A target that cannot be.
    #[error(transparent)]
    Target(TargetError),
    /// The judge does not pass our own plan: a bug of ours.
    #[error("the plan is not sound: {0:?}")]
    Unsound(Box<Finding>),
}

impl HrollerError {
    /// Which nodes and instances stand in the way: what hroller's own words leave out.
    pub fn causes(&self) -> &[String] {
        match self {
            Self::NoGraph(causes)
            | Self::NoCapacity(causes)
            | Self::MigrationFailed(causes)
            | Self::NoCapacityForSecondaries(causes) => causes,
            Self::NoMaster
            | Self::Masters(_)
            | Self::NoGroup
            | Self::WrongOffline(_)
            | Self::Select(_)
            | Self::Translate(_)
            | Self::Target(_)
            | Self::Unsound(_) => &[],
        }
    }
}

/// What hroller would print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HrollerOutput {
    /// The groups in their order.
    pub groups: Vec<RebootGroup>,
    /// Nodes that are in no group, and why.
    pub left_out: Vec<LeftAlone>,
    /// For stderr, with `Warning: ` before.
    pub warnings: Vec<String>,
    /// Where hroller's answer differs, and why ours does; only if that was asked for.
    pub differences: Vec<String>,
}

/// Nodes that are rebooted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebootGroup {
    /// Their names; the master last.
    pub nodes: Vec<String>,
    /// As `--print-moves` has them: the instance and where it goes.
    pub moves: Vec<String>,
}

/// What hroller is asked, in the words of the core: what a plan is a function of, and what it is judged by.
#[derive(Debug)]
pub struct HrollerInput {
    snapshot: Snapshot,
    target: Target,
    policy: Policy,
    aside: BTreeMap<UnitId, Reason>,
    earned: BTreeMap<PartName, u32>,
    cluster: GanetiCluster,
    /// The places of the nodes that hroller would put into groups.
    selected: BTreeSet<u32>,
    master: Option<String>,
    warnings: Vec<String>,
}

impl HrollerInput {
    /// The question about a cluster.
    ///
    /// # Errors
    /// What hroller refuses before it looks for groups, in its words.
    pub fn new(cluster: &GanetiCluster, options: &HrollerOptions) -> Result<Self, HrollerError> {
        let mut warnings = Vec::new();
        let master = master(cluster, options, &mut warnings)?;
        warnings.extend(missing(cluster));
        let mut cluster = cluster.clone();
        let selected = selection(&cluster, options)?;
        let selection = NodeSelection {
            nodes: selected
                .iter()
                .map(|node| cluster.nodes[*node as usize].name.clone())
                .collect(),
            ..NodeSelection::default()
        };
        if options.ignore_non_redundant {
            cluster
                .instances
                .retain(|instance| instance.template == Template::Drbd);
        }
        let wish = GanetiRebootGoal {
            selection,
            moving: moving(options),
            local_storage: Vec::new(),
        };
        let view = View {
            name: ClusterName::new("ganeti").map_err(GanetiTranslateError::Name)?,
            at: Timestamp::UNIX_EPOCH,
            durations: BTreeMap::new(),
            ignore_ipolicy: true,
        };
        mark_offline(&mut cluster, options);
        if options.offline_maintenance {
            without_dead_partners(&mut cluster);
        }
        let snapshot = snapshot(&cluster, &view)?;
        let stage = stage(&cluster, &wish, master.as_deref()).map_err(|error| match error {
            TargetError::Select(error) => HrollerError::Select(error),
            other => HrollerError::Target(other),
        })?;
        Ok(Self {
            snapshot,
            target: Target {
                title: "hroller".to_owned(),
                parts: vec![Part::Stage(stage)],
                only: None,
            },
            policy: Policy {
                max_in_parallel: Limit::Percent(100),
                growth: Growth::None,
                search: options.search,
                ..Policy::default()
            },
            aside: BTreeMap::new(),
            earned: BTreeMap::new(),
            cluster,
            selected,
            master,
            warnings,
        })
    }

    /// As the core takes it.
    pub fn ask(&self) -> PlanningInput<'_> {
        PlanningInput {
            snapshot: &self.snapshot,
            target: &self.target,
            policy: &self.policy,
            aside: &self.aside,
            earned: &self.earned,
            parent: None,
        }
    }
}

/// The reboot groups of a cluster.
///
/// # Errors
/// What hroller refuses, in its words.
pub fn answer(cluster: &GanetiCluster, options: &HrollerOptions) -> Result<HrollerOutput, HrollerError> {
    let question = HrollerInput::new(cluster, options)?;
    let ask = question.ask();
    let made = plan_waves(&ask);
    if let Some(finding) = check(&ask, &made).into_iter().next() {
        return Err(HrollerError::Unsound(Box::new(finding)));
    }
    let groups = groups(&question.cluster, &made, question.master.as_deref());
    let differences = if options.compat {
        differences::differences(&question, options, &made, &groups)
    } else {
        Vec::new()
    };
    let mut warnings = question.warnings;
    let without_room = |slug: &str| -> Vec<String> {
        let left = made.left_alone.iter();
        left.filter(|left| left.reason.code.code() == slug)
            .map(|left| format!("node {}: {}", left.unit, left.reason))
            .collect()
    };
    let stuck = without_room("no-room-anywhere");
    if !stuck.is_empty() {
        return Err(HrollerError::NoCapacity(stuck));
    }
    let stuck = without_room("no-room-for-copies");
    if !stuck.is_empty() {
        return Err(HrollerError::NoCapacityForSecondaries(stuck));
    }
    let left_out = made.left_alone.iter();
    warnings.extend(left_out.map(|left| format!("node {} is left out: {}", left.unit, left.reason)));
    Ok(HrollerOutput {
        groups,
        left_out: made.left_alone,
        warnings,
        differences,
    })
}

fn master(
    cluster: &GanetiCluster,
    options: &HrollerOptions,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, HrollerError> {
    let names: Vec<&str> = cluster.masters().map(|node| node.name.as_str()).collect();
    match names.as_slice() {
        [] if options.force => {
            warnings.push(HrollerError::NoMaster.to_string());
            Ok(None)
        }
        [] => Err(HrollerError::NoMaster),
        [master] => Ok(Some((*master).to_owned())),
        several => Err(HrollerError::Masters(master_names(several))),
    }
}

/// Several masters, as hroller lists them.
fn master_names(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(","))
}

/// Nodes that `--skip-non-redundant` skips, each with the first instance that makes it so.
fn skipped_nodes(cluster: &GanetiCluster, with_others: &BTreeSet<u32>) -> Vec<String> {
    let on = |node: u32| {
        let mut others = cluster
            .instances
            .iter()
            .filter(|instance| instance.template != Template::Drbd && instance.primary.0 == node);
        others.next()
    };
    with_others
        .iter()
        .filter_map(|node| {
            let instance = on(*node)?;
            Some(format!(
                "--skip-non-redundant skips node {}: instance {} has the disk template {}",
                cluster.nodes[*node as usize].name, instance.name, instance.template
            ))
        })
        .collect()
}

/// Nodes whose numbers do not add up: one warning of several lines, the last node first, as hroller has it.
pub fn missing(cluster: &GanetiCluster) -> Option<String> {
    let missing = cluster.missing();
    let lines: Vec<String> = missing
        .iter()
        .rev()
        .map(|missing| {
            format!(
                "\n  - node {} is missing {} MB ram and {} GB disk",
                missing.node,
                missing.memory,
                missing.disk.div_euclid(1024)
            )
        })
        .collect();
    (!lines.is_empty()).then(|| format!("cluster has inconsistent data:{}", lines.concat()))
}

fn moving(options: &HrollerOptions) -> EvacuationPolicy {
    EvacuationPolicy {
        as_if_down: options.offline_maintenance,
        local: if options.move_non_redundant {
            LocalGuests::Relocate
        } else {
            LocalGuests::Accept
        },
        shared: options.non_drbd,
        standbys: options.shared_secondary,
        spare: Spare::Spend,
        evacuate: if options.full_evacuation {
            Evacuate::Everything
        } else {
            Evacuate::Guests
        },
    }
}

/// The places of the nodes that hroller would put into groups.
fn selection(cluster: &GanetiCluster, options: &HrollerOptions) -> Result<BTreeSet<u32>, HrollerError> {
    let asked = &options.selection;
    let exists = |name: &String| cluster.nodes.iter().any(|node| node.name == *name);
    // In its order: the last that was given first.
    let wrong: Vec<&str> = asked
        .leave_out
        .iter()
        .rev()
        .filter(|name| !exists(name))
        .map(String::as_str)
        .collect();
    if !wrong.is_empty() {
        return Err(HrollerError::WrongOffline(wrong.join(",")));
    }
    // A tag that no node has takes nobody in, and keeps nobody out.
    let has = |tag: &String| cluster.nodes.iter().any(|node| node.tags.contains(tag));
    let asked = NodeSelection {
        tags: if asked.tags.iter().any(has) {
            asked.tags.iter().filter(|tag| has(tag)).cloned().collect()
        } else {
            asked.tags.clone()
        },
        ..asked.clone()
    };
    let meant = asked.of(cluster).map_err(|error| match error {
        SelectError::Group { .. } => HrollerError::NoGroup,
        error @ (SelectError::Tag(_) | SelectError::Nothing(_)) => {
            HrollerError::NoGraph(vec![error.to_string()])
        }
        other => HrollerError::Select(other),
    })?;
    let meant: BTreeSet<&str> = meant.iter().map(UnitId::as_str).collect();
    let mut with_others: BTreeSet<u32> = BTreeSet::new();
    if options.skip_non_redundant {
        let others = cluster
            .instances
            .iter()
            .filter(|instance| instance.template != Template::Drbd);
        with_others.extend(others.map(|instance| instance.primary.0));
    }
    let nodes: BTreeSet<u32> = (0_u32..)
        .zip(&cluster.nodes)
        .filter(|(at, node)| {
            node.accepts_instances() && meant.contains(node.name.as_str()) && !with_others.contains(at)
        })
        .map(|(at, _)| at)
        .collect();
    if nodes.is_empty() {
        let mut causes = skipped_nodes(cluster, &with_others);
        causes.extend(
            cluster
                .nodes
                .iter()
                .filter(|node| meant.contains(node.name.as_str()) && !node.accepts_instances())
                .map(|node| format!("node {} is offline, drained or carries no instances", node.name)),
        );
        return Err(HrollerError::NoGraph(causes));
    }
    Ok(nodes)
}

/// What `-O` names takes no instances; where it is a secondary, it is one all the same. One that says nothing of itself
/// takes none anyway.
fn mark_offline(cluster: &mut GanetiCluster, options: &HrollerOptions) {
    for node in &mut cluster.nodes {
        if node.resources.is_some() && options.selection.leave_out.contains(&node.name) {
            node.vm_capable = false;
        }
    }
}

/// Where nothing runs, an instance whose other node is down already loses nothing when the first goes too.
fn without_dead_partners(cluster: &mut GanetiCluster) {
    let up: Vec<bool> = cluster
        .nodes
        .iter()
        .map(crate::model::GanetiNode::is_up)
        .collect();
    for instance in &mut cluster.instances {
        let down = |node: NodeIx| !up[node.0 as usize];
        if down(instance.primary) || instance.secondary.is_some_and(down) {
            instance.secondary = None;
        }
    }
}

fn groups(cluster: &GanetiCluster, made: &Plan, master: Option<&str>) -> Vec<RebootGroup> {
    let place: BTreeMap<&str, usize> = cluster
        .nodes
        .iter()
        .enumerate()
        .map(|(at, node)| (node.name.as_str(), at))
        .collect();
    // By the names of guests: of two instances of one name the second has another there.
    let instances: BTreeMap<String, &Instance> = guests_by_name(cluster).collect();
    let mut groups: Vec<RebootGroup> = made
        .stages()
        .flat_map(|stage| &stage.waves)
        .map(|wave| {
            let mut nodes: Vec<&str> = wave.units.iter().map(UnitId::as_str).collect();
            nodes.sort_by_key(|name| (Some(*name) == master, place.get(name).copied()));
            RebootGroup {
                nodes: nodes.into_iter().map(str::to_owned).collect(),
                moves: moves(cluster, &instances, wave),
            }
        })
        .collect();
    // The largest first, but that of the master last.
    let with_master =
        |group: &RebootGroup| master.is_some_and(|master| group.nodes.iter().any(|name| name == master));
    groups.sort_by_key(|group| (with_master(group), std::cmp::Reverse(group.nodes.len())));
    groups
}

/// As hroller prints them: an instance that changes its primary node only, and is no DRBD, with that; a DRBD
/// instance with both nodes, where more than their roles changes.
fn moves(cluster: &GanetiCluster, instances: &BTreeMap<String, &Instance>, wave: &Wave) -> Vec<String> {
    let mut lines = Vec::new();
    let runs_on: BTreeMap<&str, &UnitId> = wave
        .moves
        .iter()
        .filter(|a_move| a_move.how != MoveKind::ReplaceStandby)
        .map(|a_move| (a_move.guest.as_str(), &a_move.to))
        .collect();
    for a_move in &wave.moves {
        let guest = a_move.guest.as_str();
        let Some(instance) = instances.get(guest) else {
            continue;
        };
        let (name, to) = (&instance.name, &a_move.to);
        match a_move.how {
            MoveKind::ReplaceStandby => {
                let stays = cluster.node(instance.primary).name.as_str();
                let primary = runs_on.get(guest).map_or(stays, |unit| unit.as_str());
                lines.push(format!("{name} {primary} {to}"));
            }
            MoveKind::Relocate => lines.push(format!("{name} {to}")),
            MoveKind::Migrate if instance.template != Template::Drbd => lines.push(format!("{name} {to}")),
            MoveKind::Migrate => {}
        }
    }
    lines
}

impl HrollerOutput {
    /// What hroller prints, line by line.
    pub fn lines(&self, shown: OutputOptions) -> Vec<String> {
        lines(&self.groups, shown)
    }
}

/// Groups as hroller prints them, line by line.
pub fn lines(groups: &[RebootGroup], shown: OutputOptions) -> Vec<String> {
    let mut lines = Vec::new();
    if shown.one_step_only {
        if shown.headers {
            lines.push("'First Reboot Group'".to_owned());
        }
        if let Some(group) = groups.first() {
            lines.extend(group.nodes.iter().cloned());
            if shown.moves {
                lines.extend(group.moves.iter().map(|line| format!("  {line}")));
            }
        }
        return lines;
    }
    if shown.headers {
        lines.push("'Node Reboot Groups'".to_owned());
    }
    for group in groups {
        lines.push(group.nodes.join(","));
        if shown.moves {
            lines.extend(group.moves.iter().map(|line| format!("  {line}")));
        }
    }
    lines
}

/// What of an answer is shown.
#[derive(Debug, Clone, Copy)]
pub struct OutputOptions {
    /// Not with `--no-headers`.
    pub headers: bool,
    /// `--one-step-only`.
    pub one_step_only: bool,
    /// `--print-moves`.
    pub moves: bool,
}
