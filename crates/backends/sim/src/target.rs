//! What is wanted of a simulated cluster: the same stages, steps, doors and gates as of a Ceph.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{
    ConditionName, Door, Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Part, PartName,
    Phase, Policy, Revision, StageSpec, StepSpec, Target, Width,
};

use crate::balanced;
use crate::guests;
use crate::spec::SimSpec;

/// Where a scenario leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// The release wanted.
    pub to: Revision,
    /// What a unit of a kind takes to go back; `restart` where nothing is said.
    #[serde(default)]
    pub going_back: BTreeMap<Kind, Back>,
}

/// What going back takes, in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Back {
    /// A restart.
    Restart,
    /// The unit's data made anew.
    Rebuild,
    /// It is not possible.
    Impossible,
}

impl Back {
    fn as_core(self) -> GoingBack {
        match self {
            Self::Restart => GoingBack::Restart,
            Self::Rebuild => GoingBack::Rebuild {
                cost: "a backfill from its peers".to_owned(),
            },
            Self::Impossible => GoingBack::Impossible {
                why: "the release before cannot read its data any more".to_owned(),
            },
        }
    }
}

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
        let back = want.going_back.get(&kind).copied().unwrap_or(Back::Restart);
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
            going_back: back.as_core(),
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
