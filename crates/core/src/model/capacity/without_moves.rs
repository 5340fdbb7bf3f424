//! Capacity as if moves had not been made.

use std::collections::BTreeMap;

use super::super::{Move, MoveKind};
use super::{Capacity, Guest, Storage};

impl Capacity {
    /// The same capacity with these moves undone, the last first. A move that does not match the current
    /// placement is skipped: something else has moved that guest.
    #[must_use]
    pub(crate) fn undone(&self, moves: &[Move]) -> Self {
        let mut hosts = self.hosts.clone();
        let mut guests = self.guests.clone();
        let by_name: BTreeMap<&str, usize> = self
            .guests
            .iter()
            .enumerate()
            .map(|(at, guest)| (guest.name.as_str(), at))
            .collect();
        for a_move in moves.iter().rev() {
            let places = self.find(&a_move.from).zip(self.find(&a_move.to));
            let guest = by_name.get(a_move.guest.as_str());
            let (Some((from, to)), Some(guest)) = (places, guest) else {
                continue;
            };
            let guest = &mut guests[*guest];
            if !undo_move(guest, a_move.how, from, to) {
                continue;
            }
            let [memory, cpus, spindles, disk] = guest.takes;
            let amounts = match a_move.how {
                MoveKind::Migrate => [memory, cpus, spindles, 0],
                MoveKind::Relocate => guest.takes,
                MoveKind::ReplaceStandby => [0, 0, 0, disk],
            };
            for (resource, amount) in amounts.into_iter().enumerate() {
                hosts[to as usize].free[resource] += amount;
                hosts[from as usize].free[resource] -= amount;
            }
        }
        let (pools, tags) = (self.pools.clone(), self.tags.clone());
        Self::new(hosts, guests, pools, tags).unwrap_or_else(|_| self.clone())
    }
}

/// Whether that guest was where the move had brought it.
fn undo_move(guest: &mut Guest, how: MoveKind, from: u32, to: u32) -> bool {
    match how {
        MoveKind::Migrate | MoveKind::Relocate if guest.host == to => {
            guest.host = from;
            if guest.storage == Storage::Copied {
                guest.standby = Some(to);
            }
            true
        }
        MoveKind::ReplaceStandby if guest.standby == Some(to) => {
            guest.standby = Some(from);
            true
        }
        MoveKind::Migrate | MoveKind::Relocate | MoveKind::ReplaceStandby => false,
    }
}
