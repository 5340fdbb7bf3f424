//! What a rolling reboot takes: one stage, the master last in it.

use jiff::SignedDuration;
use stagger_core::model::{
    ConditionName, Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Part, PartName, Phase,
    Policy, Revision, StageSpec, Target, Width,
};

use crate::config::Visits;
use crate::guards::{DRAIN, WATCHER};
use crate::translate::{INSTANCES_UP, NODE, NODES_ANSWER};

/// The procedure by which every node is rebooted once.
///
/// # Errors
/// A name that is not valid.
pub fn target(rebooted: &Revision, visits: &Visits, policy: &Policy) -> Result<Target, IdError> {
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
            scope: GuardScope::Stage,
            expiry: SignedDuration::from_secs(i64::from(visits.guards_expire)),
            why: why.to_owned(),
        })
    };
    let mut guards = Vec::new();
    if visits.watcher.is_some() {
        guards.push(guard(
            WATCHER,
            "Ganeti's watcher neither starts instances nor activates disks of nodes that are away",
        )?);
    }
    if visits.drain {
        guards.push(guard(DRAIN, "jobs of others wait until the nodes are back")?);
    }
    Ok(Target {
        title: "reboot every node".to_owned(),
        parts: vec![Part::Stage(StageSpec {
            maintenance: None,
            name: PartName::new("reboot")?,
            kind: Kind::new(NODE)?,
            revision: rebooted.clone(),
            width: Width::Policy,
            phases: Phase::all(),
            guards,
            gates: vec![gate(NODES_ANSWER)?, gate(INSTANCES_UP)?],
            door_before_last: None,
            going_back: GoingBack::Impossible {
                why: "a reboot cannot be undone".to_owned(),
            },
        })],
    })
}
