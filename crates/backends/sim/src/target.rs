//! What is wanted of a simulated cluster: the same stages, steps, doors and gates as of a Ceph.

mod balanced;
mod guests;

use jiff::SignedDuration;
use stagger_core::model::{
    ConditionName, Door, Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Part, PartName,
    Phase, Policy, Revision, StageSpec, StepSpec, Target, Width,
};

pub(crate) use self::balanced::{UNPIN, UNPINNED};
use crate::scenario::{RollbackSupport, SimSpec, TargetSpec};

/// All conditions that the gates of a stage ask for.
pub const GATES: [&str; 8] = [
    "quorum",
    "daemons-running",
    "osds-up-in",
    "pgs-known",
    "pgs-clean",
    "mgr-active",
    "mds-active",
    "health",
];

/// The condition that the step at the end leads to.
pub fn require_condition(to: &Revision) -> String {
    let major = to.as_str().split('.').next().unwrap_or_default();
    format!("require-osd-release-{major}")
}

/// The procedure for a simulated cluster.
///
/// # Errors
/// A name made from the release is not valid.
pub fn target(spec: &SimSpec, want: &TargetSpec, policy: &Policy) -> Result<Target, IdError> {
    let gates_of = |names: &[&str]| -> Result<Vec<Gate>, IdError> {
        names
            .iter()
            .map(|name| {
                Ok(Gate {
                    condition: ConditionName::new(*name)?,
                    hold: SignedDuration::from_secs(i64::from(policy.gate_hold)),
                    timeout: SignedDuration::from_secs(i64::from(policy.gate_timeout)),
                })
            })
            .collect()
    };
    let gates = || gates_of(&GATES);
    let mut phases = Phase::all();
    if spec.seconds.install > 0 {
        phases.insert(0, Phase::Prepare);
    }
    if let Some(nodes) = &spec.guests {
        return guests::target(nodes, want, gates_of);
    }
    if let Some(services) = &spec.balanced {
        return balanced::target(services, want, &phases, gates_of);
    }
    let stage = |name: &str| -> Result<StageSpec, IdError> {
        let kind = Kind::new(name)?;
        let back = want
            .going_back
            .get(&kind)
            .copied()
            .unwrap_or(RollbackSupport::Restart);
        Ok(StageSpec {
            name: PartName::new(name)?,
            kind,
            revision: want.to.clone(),
            width: Width::Policy,
            phases: phases.clone(),
            guards: Vec::new(),
            gates: gates()?,
            door_before_last: None,
            // As Ceph permits it: nothing comes before the monitors and managers.
            may_be_left: !matches!(name, "mon" | "mgr"),
            going_back: rollback_support(back),
            maintenance: None,
        })
    };
    let mons = StageSpec {
        width: Width::Single,
        door_before_last: Some(Door {
            name: PartName::new("last-mon")?,
            why: format!("with the last monitor the monitors' store moves to {}", want.to),
        }),
        ..stage("mon")?
    };
    let osds = StageSpec {
        guards: vec![
            GuardSpec {
                name: GuardName::new("no-balancer")?,
                scope: GuardScope::Stage,
                expiry: SignedDuration::from_secs(3600),
                why: "nothing moves data while OSDs restart".to_owned(),
            },
            GuardSpec {
                name: GuardName::new("noout")?,
                scope: GuardScope::Wave,
                expiry: SignedDuration::from_secs(3600),
                why: "the wave's OSDs are not marked out while they restart".to_owned(),
            },
        ],
        ..stage("osd")?
    };
    let require = StepSpec {
        name: PartName::new("require-osd-release")?,
        done_when: ConditionName::new(require_condition(&want.to))?,
        before: gates()?,
        door: Some(Door {
            name: PartName::new("require-osd-release")?,
            why: format!("no OSD older than {} may join any more", want.to),
        }),
        why: format!("lets the OSDs use what {} brings", want.to),
    };
    Ok(Target {
        title: format!("ceph {} to {}", spec.release, want.to),
        parts: vec![
            Part::Stage(mons),
            Part::Stage(stage("mgr")?),
            Part::Stage(osds),
            Part::Stage(stage("mds")?),
            Part::Stage(stage("rgw")?),
            Part::Step(require),
        ],
        only: None,
    })
}

/// What a scenario calls so, in the terms of a plan.
fn rollback_support(back: RollbackSupport) -> GoingBack {
    match back {
        RollbackSupport::Restart => GoingBack::Restart,
        RollbackSupport::Rebuild => GoingBack::Rebuild {
            cost: "a backfill from its peers".to_owned(),
        },
        RollbackSupport::Impossible => GoingBack::Impossible {
            why: "the release before cannot read its data any more".to_owned(),
        },
    }
}
