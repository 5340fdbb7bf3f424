//! Hosts with guests that move, as a Ganeti's: who runs where, what is moved, and what is true of it.
//!
//! A node is taken out of service by moving its guests and draining it, and is rebooted then. It keeps notes of what was
//! moved away, from which whoever leaves it brings the guests back.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{
    BudgetsBuilder, Gate, GoingBack, GuardName, GuardScope, GuardSpec, Guest, Host, How, IdError, Ix, Kind,
    Maintenance, Moving, Part, PartName, Phase, Rooms, RoomsError, SharedGuests, StageSpec, Storage, Target,
    UnitId, Width,
};
use stagger_core::plan::Move;

use crate::spec::SimSpec;
use crate::target::TargetSpec;
use crate::world::World;

/// The kind of every host of guests.
pub(crate) const NODE: &str = "node";

/// What the gates of their stage ask for.
pub(crate) const GATES: [&str; 2] = ["nodes-answer", "guests-up"];

/// Hosts and guests, as a scenario file describes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestsSpec {
    /// MiB of memory of each node; they are called `node-0` and so on.
    pub memory: Vec<u32>,
    /// How many seconds it takes to move a guest.
    pub migrate: u32,
    /// What becomes of guests while their nodes are away.
    #[serde(default)]
    pub moving: Moving,
    /// The node whose turn is the last, as the master's is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u32>,
    /// The guests, called `guest-0` and so on.
    #[serde(default, rename = "guest")]
    pub guests: Vec<GuestSpec>,
}

/// A guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// The node that it is on.
    pub node: u32,
    /// The node of its second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<u32>,
    /// Where its disks are.
    pub storage: Storage,
    /// Whether it runs.
    pub runs: bool,
    /// MiB of memory that it takes.
    pub memory: u32,
    /// It cannot be moved, and that is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

/// The name of a node.
pub(crate) fn node_name(number: u32) -> Result<UnitId, IdError> {
    UnitId::new(format!("node-{number}"))
}

/// The name of a guest.
pub(crate) fn guest_name(number: usize) -> String {
    format!("guest-{number}")
}

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
            why: "nobody else starts guests of nodes that are away".to_owned(),
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

impl SimSpec {
    /// What is free on a node beside the guests that run there.
    fn free(&self, guests: &[GuestSpec], node: u32) -> i64 {
        let memory = self
            .guests
            .as_ref()
            .and_then(|spec| spec.memory.get(node as usize));
        let there = guests.iter().filter(|guest| guest.runs && guest.node == node);
        let taken: i64 = there.map(|guest| i64::from(guest.memory)).sum();
        memory.map_or(0, |memory| i64::from(*memory)) - taken
    }
}

/// What no guest asks for.
const PLENTY: i64 = 1 << 20;

impl World {
    /// What the nodes carry now, if it is a world of guests.
    pub(crate) fn rooms(&self) -> Result<Option<Rooms>, RoomsError> {
        let Some(spec) = &self.spec.guests else {
            return Ok(None);
        };
        let hosts = (0_u32..).zip(&spec.memory).map(|(node, memory)| {
            let daemon = &self.daemons[node as usize];
            Host {
                unit: daemon.id.clone(),
                pool: 0,
                takes: daemon.serves(),
                size: [i64::from(*memory), PLENTY, PLENTY, PLENTY],
                free: [self.spec.free(&self.guests, node), PLENTY, PLENTY, PLENTY],
            }
        });
        let guests = self.guests.iter().enumerate().map(|(number, guest)| Guest {
            name: guest_name(number),
            host: guest.node,
            standby: guest.standby,
            storage: guest.storage,
            runs: guest.runs,
            reserved: true,
            takes: [i64::from(guest.memory), 1, 0, 1],
            apart: Vec::new(),
            stuck: guest.stuck.then(|| "it is said to be so".to_owned()),
            elsewhere: false,
        });
        Rooms::new(
            hosts.collect(),
            guests.collect(),
            vec!["default".to_owned()],
            Vec::new(),
        )
        .map(Some)
    }

    /// No two nodes with the copies of one guest go together.
    pub(crate) fn pairs(&self, budgets: &mut BudgetsBuilder, place: &[Ix]) {
        for (number, guest) in self.guests.iter().enumerate() {
            if let Some(standby) = guest.standby {
                let pair = [(place[guest.node as usize], 1), (place[standby as usize], 1)];
                budgets.add("both copies of", &guest_name(number), 1, &pair);
            }
        }
    }

    /// The guests that run on a node.
    pub(crate) fn running_on(&self, unit: usize) -> Vec<String> {
        let all = self.guests.iter().enumerate();
        all.filter(|(_, guest)| guest.runs && guest.node as usize == unit)
            .map(|(number, _)| guest_name(number))
            .collect()
    }

    /// A guest that somebody has started on a node while the run was at work. A visit looks at its node once more before it
    /// reboots it, as Ganeti's does, and refuses.
    pub(crate) fn has_come_to(&self, unit: usize) -> Option<String> {
        let here = |number: &&usize| {
            let guest = self.guests.get(**number);
            guest.is_some_and(|guest| guest.runs && guest.node as usize == unit)
        };
        let number = self.started_by_others.iter().find(here)?;
        self.daemons[unit].up.then(|| guest_name(*number))
    }

    /// The guests that should run and whose node is away.
    pub(crate) fn guests_down(&self) -> Vec<String> {
        let all = self.guests.iter().enumerate();
        all.filter(|(_, guest)| guest.runs && !self.daemons[guest.node as usize].up)
            .map(|(number, _)| guest_name(number))
            .collect()
    }

    fn guest(&mut self, name: &str) -> Option<&mut GuestSpec> {
        let number: usize = name.strip_prefix("guest-")?.parse().ok()?;
        self.guests.get_mut(number)
    }

    /// Carries out one move that empties a node, and keeps a note of it there.
    pub(crate) fn move_away(&mut self, unit: usize, a_move: &Move) {
        let places = (self.by_id.get(&a_move.from), self.by_id.get(&a_move.to));
        let (Some(from), Some(to)) = places else { return };
        let (from, to) = (*from as u32, *to as u32);
        let Some(guest) = self.guest(&a_move.guest) else {
            return;
        };
        let moved = match a_move.how {
            How::Migrate | How::Relocate if guest.runs && guest.node == from => {
                guest.node = to;
                if guest.storage == Storage::Copied {
                    guest.standby = Some(from);
                }
                true
            }
            How::ReplaceStandby if guest.standby == Some(from) && guest.node != to => {
                guest.standby = Some(to);
                true
            }
            How::Migrate | How::Relocate | How::ReplaceStandby => false,
        };
        if moved {
            self.daemons[unit].away.push(a_move.clone());
        }
    }

    /// Brings back what was moved away from a node, the last first.
    pub(crate) fn bring_back(&mut self, unit: usize) {
        for a_move in std::mem::take(&mut self.daemons[unit].away).into_iter().rev() {
            let places = (self.by_id.get(&a_move.from), self.by_id.get(&a_move.to));
            let (Some(from), Some(to)) = places else { continue };
            let (from, to) = (*from as u32, *to as u32);
            let Some(guest) = self.guest(&a_move.guest) else {
                continue;
            };
            match a_move.how {
                How::Migrate | How::Relocate if guest.node == to => {
                    guest.node = from;
                    if guest.storage == Storage::Copied {
                        guest.standby = Some(to);
                    }
                }
                How::ReplaceStandby if guest.standby == Some(to) => guest.standby = Some(from),
                How::Migrate | How::Relocate | How::ReplaceStandby => {}
            }
        }
    }

    /// The nodes among those to which something is moved that have more guests than memory.
    pub(crate) fn over_filled(&self, moves: &[Move]) -> Vec<usize> {
        let mut full: Vec<usize> = moves
            .iter()
            .filter(|a_move| a_move.how != How::ReplaceStandby)
            .filter_map(|a_move| self.by_id.get(&a_move.to).copied())
            .filter(|node| self.spec.free(&self.guests, *node as u32) < 0)
            .collect();
        full.sort_unstable();
        full.dedup();
        full
    }

    /// Somebody starts a guest that did not run: nothing is started on a node that is drained.
    pub(crate) fn start_guest(&mut self, number: usize) {
        let Some(guest) = self.guests.get(number) else {
            return;
        };
        let node = guest.node as usize;
        if guest.runs || !self.daemons[node].serves() {
            return;
        }
        self.guests[number].runs = true;
        self.started_by_others.insert(number);
        self.generation += 1;
        // What it takes there, nobody who judged before could know.
        let id = self.daemons[node].id.clone();
        self.truth.fault_hit(&id);
    }
}
