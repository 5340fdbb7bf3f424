//! What a rolling reboot takes beside its plan: guards while it runs, gates after each wave.

use jiff::SignedDuration;
use stagger_core::model::{
    ConditionName, Gate, GuardName, GuardScope, GuardSpec, IdError, Part, Policy, Target,
};

use crate::config::Visits;
use crate::guards::{DRAIN, WATCHER};
use crate::translate::{INSTANCES_UP, NODES_ANSWER};

/// The target with what its stages take to be carried out.
///
/// # Errors
/// A name that is not valid.
pub fn carried_out(mut target: Target, visits: &Visits, policy: &Policy) -> Result<Target, IdError> {
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
