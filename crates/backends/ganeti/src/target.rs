//! The target: nodes are rebooted in turn, with their instances on other nodes meanwhile.

use jiff::SignedDuration;
use stagger_core::model::{
    ConditionName, Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Maintenance, OneAtATime,
    Part, PartName, Phase, Policy, SharedGuests, StageSpec, Target, UnitId, Width,
};

use crate::config::Visits;
use crate::goal::{GanetiRebootGoal, MaintenanceGoal, Task};
use crate::model::{GanetiCluster, GroupIx, Template};
use crate::selection::SelectError;
use crate::translate::live::{INSTANCES_UP, NODES_ANSWER};
use crate::translate::{KIND, MAINTAINED, REBOOTED};

/// The guard by which only jobs of this maintenance run. Those of others wait; they are not refused, for that would
/// cancel them.
pub const DRAIN: &str = "drain";

/// The guard by which Ganeti's watcher repairs nothing meanwhile.
pub const WATCHER: &str = "watcher-pause";

/// A goal that cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nothing is meant, or what there is not.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// Two masters, or none.
    #[error("there are {count} masters in this cluster: {names}; it has one when it is well")]
    Masters {
        /// How many.
        count: usize,
        /// Which.
        names: String,
    },
    /// A template that no instance has.
    #[error("no instance has the disk template {0}, so that no node has its storage")]
    NoSuchStorage(Template),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] IdError),
}

/// The one stage that reboots the nodes that are meant; the master's wave is the last.
///
/// # Errors
/// A selection that fits nothing, more or less than one master, storage that there is not.
pub fn reboot(cluster: &GanetiCluster, goal: &GanetiRebootGoal) -> Result<Target, TargetError> {
    let masters: Vec<&str> = cluster.masters().map(|node| node.name.as_str()).collect();
    let [master] = masters.as_slice() else {
        return Err(TargetError::Masters {
            count: masters.len(),
            names: if masters.is_empty() {
                "none".to_owned()
            } else {
                masters.join(", ")
            },
        });
    };
    let stage = stage(cluster, goal, Some(master))?;
    Ok(Target {
        title: format!("reboot {}", goal.selection),
        parts: vec![Part::Stage(stage)],
        only: None,
    })
}

/// The one stage that maintains the nodes that are meant: by a reboot, by a command, or by a person.
///
/// # Errors
/// As of [`reboot`].
pub fn maintenance(cluster: &GanetiCluster, goal: &MaintenanceGoal) -> Result<Target, TargetError> {
    let mut target = reboot(cluster, &goal.reboot)?;
    let (title, why) = match &goal.task {
        Task::Reboot => return Ok(target),
        Task::Command(command) => (
            format!("run `{command}`"),
            "what a command has done to a node is not known",
        ),
        Task::Hold => ("empty and hold".to_owned(), "what you did to a node is unknown"),
    };
    target.title = format!("{title}: {}", goal.reboot.selection);
    for part in &mut target.parts {
        let Part::Stage(stage) = part else { continue };
        stage.name = PartName::new("maintenance")?;
        stage.revision = MAINTAINED.parse()?;
        stage.going_back = GoingBack::Impossible { why: why.to_owned() };
    }
    Ok(target)
}

/// The stage alone, for whoever has its own mind about masters.
///
/// # Errors
/// As for [`reboot`], but for masters.
pub fn stage(
    cluster: &GanetiCluster,
    goal: &GanetiRebootGoal,
    master: Option<&str>,
) -> Result<StageSpec, TargetError> {
    let meant = goal.selection.of(cluster)?;
    let last = master.map(UnitId::new).transpose()?;
    let one_at_a_time = goal
        .local_storage
        .iter()
        .map(|template| nodes_with(cluster, *template))
        .collect::<Result<_, _>>()?;
    Ok(StageSpec {
        name: PartName::new("reboot")?,
        kind: Kind::new(KIND)?,
        revision: REBOOTED.parse()?,
        width: Width::Policy,
        phases: Phase::all(),
        guards: Vec::new(),
        gates: Vec::new(),
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Impossible {
            why: "a node that has rebooted has rebooted".to_owned(),
        },
        maintenance: Some(Maintenance {
            last: last.filter(|last| meant.contains(last)),
            only: (meant.len() < cluster.nodes.len()).then_some(meant),
            one_at_a_time,
            moving: goal.moving,
            flowing: goal.moving.shared == SharedGuests::Rolling,
        }),
    })
}

/// All nodes of the groups in which an instance has this template: its pool may be on any of them.
fn nodes_with(cluster: &GanetiCluster, template: Template) -> Result<OneAtATime, TargetError> {
    let mut groups: Vec<GroupIx> = cluster
        .instances
        .iter()
        .filter(|instance| instance.template == template)
        .map(|instance| cluster.node(instance.primary).group)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.is_empty() {
        return Err(TargetError::NoSuchStorage(template));
    }
    let mut units = cluster
        .nodes
        .iter()
        .filter(|node| groups.contains(&node.group))
        .map(|node| UnitId::new(node.name.as_str()))
        .collect::<Result<Vec<_>, _>>()?;
    units.sort();
    Ok(OneAtATime {
        why: format!("the storage of template {template} is on the nodes' own disks"),
        units,
    })
}

/// The target with what its stages take to be carried out.
///
/// # Errors
/// A name that is not valid.
pub fn with_guards_and_gates(
    mut target: Target,
    visits: &Visits,
    policy: &Policy,
) -> Result<Target, IdError> {
    let gate = |name: &str| -> Result<Gate, IdError> {
        Ok(Gate {
            condition: ConditionName::new(name)?,
            hold: SignedDuration::from_secs(i64::from(policy.gate_hold)),
            timeout: SignedDuration::from_secs(i64::from(policy.gate_timeout)),
        })
    };
    let guard = |name: &str, why: &str| -> Result<GuardSpec, IdError> {
        Ok(GuardSpec {
            name: GuardName::new(name)?,
            scope: GuardScope::WorkingWave,
            expiry: SignedDuration::from_secs(i64::from(visits.guards_expire)),
            why: why.to_owned(),
        })
    };
    for part in &mut target.parts {
        let Part::Stage(stage) = part else { continue };
        if visits.watcher.is_some() {
            stage.guards.push(guard(
                WATCHER,
                "Ganeti's watcher neither starts instances nor activates disks of nodes that are away",
            )?);
        }
        if visits.drain {
            stage
                .guards
                .push(guard(DRAIN, "jobs of others wait until the nodes are back")?);
        }
        stage.gates = vec![gate(NODES_ANSWER)?, gate(INSTANCES_UP)?];
    }
    Ok(target)
}
