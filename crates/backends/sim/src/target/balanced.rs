//! Services behind a balancer, as an Ironic's: conductors in groups and API services, of each of which one has to serve.
//!
//! New code comes first, held to the release before; then, behind a point of no return, nothing is held any more. A
//! service is drained at the balancer, restarted, and given back, one at a time.

use stagger_core::model::{
    ConditionName, Door, Gate, GoingBack, IdError, Kind, Part, PartName, Phase, Revision, StageSpec,
    StepSpec, Target, Width,
};

use crate::scenario::{BalancedSpec, SERVICE_KINDS, TargetSpec};

/// What the gates of their stages ask for.
const GATES: [&str; 3] = ["conductors-serve", "apis-serve", "health"];

/// The step from which on nothing is held to the release before.
pub(crate) const UNPIN: &str = "unpin";

/// The condition that it leads to.
pub(crate) const UNPINNED: &str = "unpin-begun";

/// The procedure: conductors before API services, held first if that is asked for.
pub(crate) fn target(
    balanced: &BalancedSpec,
    want: &TargetSpec,
    phases: &[Phase],
    gates: impl Fn(&[&str]) -> Result<Vec<Gate>, IdError>,
) -> Result<Target, IdError> {
    let stage = |name: String, kind: &str, revision: &Revision, going_back: GoingBack| {
        Ok(Part::Stage(StageSpec {
            name: PartName::new(name)?,
            kind: Kind::new(kind)?,
            revision: revision.clone(),
            width: Width::Single,
            phases: phases.to_vec(),
            guards: Vec::new(),
            gates: gates(&GATES)?,
            door_before_last: None,
            may_be_left: false,
            going_back,
            maintenance: None,
        }))
    };
    let mut parts = Vec::new();
    if balanced.held {
        let held = Revision::new(format!("{}-held", want.to))?;
        for (kind, _) in SERVICE_KINDS {
            parts.push(stage(format!("{kind}s"), kind, &held, GoingBack::Restart)?);
        }
        let name = PartName::new(UNPIN)?;
        parts.push(Part::Step(StepSpec {
            name: name.clone(),
            done_when: ConditionName::new(UNPINNED)?,
            before: gates(&GATES)?,
            door: Some(Door {
                name,
                why: "rows are written that the release before cannot read".to_owned(),
            }),
            why: "from here on services write as the new release does".to_owned(),
        }));
        for (kind, _) in SERVICE_KINDS {
            let going_back = GoingBack::Impossible {
                why: "rows that the release before cannot read may have been written".to_owned(),
            };
            parts.push(stage(format!("unpin-{kind}s"), kind, &want.to, going_back)?);
        }
    } else {
        for (kind, _) in SERVICE_KINDS {
            parts.push(stage(format!("{kind}s"), kind, &want.to, GoingBack::Restart)?);
        }
    }
    Ok(Target {
        title: format!("services to {}", want.to),
        parts,
        only: None,
    })
}
