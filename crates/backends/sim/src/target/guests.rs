//! The procedure for hosts of guests: each is emptied, rebooted, and filled again.

use jiff::SignedDuration;
use stagger_core::model::{
    Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Maintenance, Part, PartName, Phase,
    SharedGuests, StageSpec, Target, Width,
};

use crate::scenario::{GuestsSpec, NODE, TargetSpec, node_name};

/// What the gates of their stage ask for.
const GATES: [&str; 2] = ["nodes-answer", "guests-up"];

/// The procedure for rebooting the nodes, each with its guests elsewhere meanwhile.
pub(crate) fn target(
    guests: &GuestsSpec,
    want: &TargetSpec,
    gates: impl Fn(&[&str]) -> Result<Vec<Gate>, IdError>,
) -> Result<Target, IdError> {
    let stage = StageSpec {
        name: PartName::new("reboot")?,
        kind: Kind::new(NODE)?,
        revision: want.to.clone(),
        width: Width::Policy,
        phases: Phase::all(),
        guards: vec![GuardSpec {
            name: GuardName::new("watcher")?,
            scope: GuardScope::Stage,
            expiry: SignedDuration::from_secs(3600),
            why: "no other program starts guests of nodes that are away".to_owned(),
        }],
        gates: gates(&GATES)?,
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Impossible {
            why: "a node that has rebooted has rebooted".to_owned(),
        },
        maintenance: Some(Maintenance {
            last: guests.last.map(node_name).transpose()?,
            only: None,
            one_at_a_time: Vec::new(),
            moving: guests.moving,
            flowing: guests.moving.shared == SharedGuests::Rolling,
        }),
    };
    Ok(Target {
        title: "reboot all nodes".to_owned(),
        parts: vec![Part::Stage(stage)],
        only: None,
    })
}
