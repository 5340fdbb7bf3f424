//! Random hosts of guests.

use stagger_core::model::{Evacuate, EvacuationPolicy, LocalGuests, SharedGuests, Spare, Standbys, Storage};

use crate::SimSpec;
use crate::rng::Rng;
use crate::scenario::{FaultWindow, GuestSpec, GuestsSpec, InjectedFault};

/// Nodes with guests in the place of storage.
pub(super) fn guests(rng: &mut Rng, spec: SimSpec) -> SimSpec {
    let nodes = rng.between(2, 8) as u32;
    let usual = *rng.pick(&[Storage::Copied, Storage::Copied, Storage::Shared]);
    let count = rng.between(0, 3 * u64::from(nodes));
    let guests: Vec<GuestSpec> = (0..count).map(|_| guest(rng, nodes, usual)).collect();
    // Room for what runs, for what would come should another fail, or for next to nothing more.
    let spare = *rng.pick(&[0, 1_024, 4_096, 16_384]);
    let memory: Vec<u32> = (0..nodes)
        .map(|node| {
            let there = guests.iter().filter(|guest| guest.node == node && guest.runs);
            there.map(|guest| guest.memory).sum::<u32>() + spare + 512 * rng.below(5) as u32
        })
        .collect();
    let moving = EvacuationPolicy {
        as_if_down: false,
        local: *rng.pick(&[LocalGuests::Skip, LocalGuests::Accept, LocalGuests::Relocate]),
        shared: *rng.pick(&[SharedGuests::One, SharedGuests::Rolling, SharedGuests::Sets]),
        standbys: *rng.pick(&[Standbys::Capacity, Standbys::Capacity, Standbys::Exclude]),
        spare: *rng.pick(&[Spare::Keep, Spare::Spend]),
        evacuate: if rng.percent(20) {
            Evacuate::Everything
        } else {
            Evacuate::Guests
        },
    };
    let mut seconds = spec.seconds.clone();
    seconds.restart = rng.between(10, 40) as u32;
    seconds.install = 0;
    SimSpec {
        racks: 1,
        hosts_per_rack: nodes,
        guests: Some(GuestsSpec {
            memory,
            migrate: *rng.pick(&[0, 3, 15]),
            moving,
            last: rng.percent(50).then(|| rng.below(u64::from(nodes)) as u32),
            guests,
        }),
        seconds,
        ..spec
    }
}

fn guest(rng: &mut Rng, nodes: u32, usual: Storage) -> GuestSpec {
    let node = rng.below(u64::from(nodes)) as u32;
    let storage = match rng.below(20) {
        0 => Storage::Local,
        1 => Storage::Shared,
        2 => Storage::Copied,
        _ => usual,
    };
    let other = (node + rng.between(1, u64::from(nodes) - 1) as u32) % nodes;
    GuestSpec {
        node,
        standby: (storage == Storage::Copied).then_some(other),
        storage,
        runs: rng.percent(90),
        memory: 512 * rng.between(1, 4) as u32,
        stuck: rng.percent(2),
    }
}

/// A fault that only such a cluster has.
pub(super) fn fault(rng: &mut Rng, spec: &GuestsSpec, when: FaultWindow) -> InjectedFault {
    let number = rng.below(spec.guests.len() as u64);
    if rng.percent(60) {
        InjectedFault::MoveFails {
            guest: crate::scenario::guest_name(number as usize),
            times: rng.below(4) as u32,
        }
    } else {
        InjectedFault::GuestStarts {
            guest: number as u32,
            when,
        }
    }
}
