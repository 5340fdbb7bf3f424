//! The constraint predicate: whether moved guests fit at their destinations. It is simple and slow on
//! purpose, as the reference for everything else.

use std::collections::{BTreeMap, BTreeSet};

use super::super::MoveKind;
use super::super::evacuation::{EvacuationPolicy, Spare};
use super::{Amounts, Capacity, Migration, Resource, Storage};

/// Why moves do not fit, by places of hosts and guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityViolation {
    /// A guest is moved to a host that is down then.
    Gone {
        /// Which guest.
        guest: u32,
        /// Which host.
        host: u32,
    },
    /// More comes to a host than it has free.
    Full {
        /// Which host.
        host: u32,
        /// Of what.
        resource: Resource,
        /// How much comes.
        comes: i64,
        /// How much is free.
        free: i64,
    },
    /// A host could no longer take over the guests of another, and could before.
    NPlusOne {
        /// Which host.
        host: u32,
        /// Whose guests.
        of: u32,
        /// How much memory they want.
        demand: i64,
        /// How much is free then.
        free: i64,
    },
    /// Two guests that are to be kept apart meet.
    Together {
        /// On which host.
        host: u32,
        /// Because of which tag.
        tag: u32,
    },
}

/// What comes to one host.
#[derive(Debug, Default)]
struct Coming {
    amounts: Amounts,
    /// The hosts from which guests come to their standby.
    to_standby: BTreeSet<u32>,
    /// Whether anything else comes.
    else_too: bool,
    guests: Vec<u32>,
    /// Memory newly wanted for the failure of another host.
    demands: BTreeMap<u32, i64>,
    /// Memory no longer reserved for the failure of another host, since its guests have arrived.
    arrived: BTreeMap<u32, i64>,
}

impl Coming {
    /// Whether all that comes is what the failure of one host would bring.
    fn is_single_failure(&self) -> bool {
        !self.else_too && self.to_standby.len() <= 1
    }
}

impl Capacity {
    /// **The constraint predicate** of moves: whether the hosts of `set` may go down beside those that are
    /// down, with these moves of their guests.
    ///
    /// Memory and disk bind always. Processors, spindles and what keeps guests apart bind too, but for guests
    /// of one host alone that go to their standby: they would go there if that host failed. No host may lose
    /// N+1 for another that it had before, unless [`Spare::Spend`] lets the guests of one host use it up on
    /// their standby. Hosts that are down count there with the guests that are still theirs, so that each part of
    /// what is permitted is permitted too.
    ///
    /// The moves themselves are not judged: that is for [`check`](crate::check).
    ///
    /// # Errors
    /// The first host, in order, on which something does not fit.
    pub fn permit(
        &self,
        moving: &EvacuationPolicy,
        down: &[u32],
        set: &[u32],
        migrations: &[Migration],
    ) -> Result<(), CapacityViolation> {
        let out: BTreeSet<u32> = down.iter().chain(set).copied().collect();
        if let Some(migration) = migrations.iter().find(|migration| out.contains(&migration.to)) {
            return Err(CapacityViolation::Gone {
                guest: migration.guest,
                host: migration.to,
            });
        }
        for (host, coming) in self.incoming(migrations) {
            self.fits(host, &coming)?;
            self.keeps_n_plus_one(*moving, host, &coming)?;
            self.stay_apart(host, &coming)?;
        }
        Ok(())
    }

    fn incoming(&self, migrations: &[Migration]) -> BTreeMap<u32, Coming> {
        let mut coming: BTreeMap<u32, Coming> = BTreeMap::new();
        let mut host_of: BTreeMap<u32, u32> = BTreeMap::new();
        for migration in migrations {
            let guest = self.guest(migration.guest);
            let to = coming.entry(migration.to).or_default();
            let [memory, cpus, spindles, disk] = guest.takes;
            let more: Amounts = match migration.how {
                MoveKind::Migrate => [memory, cpus, spindles, 0],
                MoveKind::Relocate => guest.takes,
                MoveKind::ReplaceStandby => [0, 0, 0, disk],
            };
            for (sum, more) in to.amounts.iter_mut().zip(more) {
                *sum += more;
            }
            if migration.how == MoveKind::ReplaceStandby {
                to.else_too = true;
                continue;
            }
            host_of.insert(migration.guest, migration.to);
            to.guests.push(migration.guest);
            if guest.storage == Storage::Copied && guest.standby == Some(migration.to) {
                to.to_standby.insert(guest.host);
                if guest.reserved {
                    *to.arrived.entry(guest.host).or_default() += memory;
                }
            } else {
                to.else_too = true;
            }
        }
        for migration in migrations
            .iter()
            .filter(|migration| migration.how == MoveKind::ReplaceStandby)
        {
            let guest = self.guest(migration.guest);
            if guest.reserved {
                let host = host_of.get(&migration.guest).copied().unwrap_or(guest.host);
                let to = coming.entry(migration.to).or_default();
                *to.demands.entry(host).or_default() += guest.takes[0];
            }
        }
        coming
    }

    fn fits(&self, host: u32, coming: &Coming) -> Result<(), CapacityViolation> {
        for ((resource, comes), free) in Resource::ALL
            .into_iter()
            .zip(coming.amounts)
            .zip(self.host(host).free)
        {
            let lenient = match resource {
                Resource::Memory | Resource::Disk => false,
                Resource::Cpus | Resource::Spindles => coming.is_single_failure(),
            };
            if comes > 0 && comes > free && !lenient {
                return Err(CapacityViolation::Full {
                    host,
                    resource,
                    comes,
                    free,
                });
            }
        }
        Ok(())
    }

    fn keeps_n_plus_one(
        &self,
        moving: EvacuationPolicy,
        host: u32,
        coming: &Coming,
    ) -> Result<(), CapacityViolation> {
        if moving.spare == Spare::Spend && coming.is_single_failure() {
            return Ok(());
        }
        let was = self.host(host).free[0];
        let free = was - coming.amounts[0];
        let before = self.demands(&moving, host);
        let before: BTreeMap<u32, i64> = before.iter().map(|demand| (demand.of, demand.memory)).collect();
        let of: BTreeSet<u32> = before.keys().chain(coming.demands.keys()).copied().collect();
        let sum = |sums: &BTreeMap<u32, i64>, of: u32| sums.get(&of).copied().unwrap_or(0);
        for of in of {
            let old = sum(&before, of);
            let demand = old - sum(&coming.arrived, of) + sum(&coming.demands, of);
            let failed = Self::fails(old, was);
            if Self::fails(demand, free) && !(failed && demand <= old) {
                return Err(CapacityViolation::NPlusOne {
                    host,
                    of,
                    demand,
                    free,
                });
            }
        }
        Ok(())
    }

    fn stay_apart(&self, host: u32, coming: &Coming) -> Result<(), CapacityViolation> {
        if coming.is_single_failure() {
            return Ok(());
        }
        let there = self
            .guests_on(host)
            .iter()
            .copied()
            .filter(|guest| self.guest(*guest).runs);
        let mut tags: BTreeSet<u32> = there
            .flat_map(|guest| self.guest(guest).apart.iter().copied())
            .collect();
        for tag in coming
            .guests
            .iter()
            .flat_map(|guest| self.guest(*guest).apart.iter())
        {
            if !tags.insert(*tag) {
                return Err(CapacityViolation::Together { host, tag: *tag });
            }
        }
        Ok(())
    }

    /// Why moves do not fit, in words.
    pub fn words(&self, violation: &CapacityViolation) -> String {
        let name = |host: u32| &self.host(host).unit;
        match *violation {
            CapacityViolation::Gone { guest, host } => {
                format!(
                    "{} would go to {}, which is down then",
                    self.guest(guest).name,
                    name(host)
                )
            }
            CapacityViolation::Full {
                host,
                resource,
                comes,
                free,
            } => format!(
                "{comes} {resource} would come to {}, which has {free} free",
                name(host)
            ),
            CapacityViolation::NPlusOne {
                host,
                of,
                demand,
                free,
            } => format!(
                "{} would have {free} MiB of memory free and could not take over the {demand} MiB of {} if that failed",
                name(host),
                name(of)
            ),
            CapacityViolation::Together { host, tag } => {
                format!("two with the tag {} would meet on {}", self.tag(tag), name(host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::evacuation::Spare;
    use super::super::{Guest, Host};
    use super::*;

    fn hosts(free: &[Amounts]) -> Vec<Host> {
        free.iter()
            .enumerate()
            .map(|(at, free)| Host {
                unit: format!("node{at}").parse().unwrap(),
                pool: 0,
                takes: true,
                size: [100; 4],
                free: *free,
            })
            .collect()
    }

    fn guest(host: u32, standby: Option<u32>, takes: Amounts) -> Guest {
        Guest {
            name: format!("web{host}-{}", standby.unwrap_or(9)),
            host,
            standby,
            storage: if standby.is_some() {
                Storage::Copied
            } else {
                Storage::Shared
            },
            runs: true,
            reserved: true,
            takes,
            apart: vec![0],
            stuck: None,
            elsewhere: false,
        }
    }

    fn capacity(free: &[Amounts], guests: Vec<Guest>) -> Capacity {
        Capacity::new(
            hosts(free),
            guests,
            vec!["default".to_owned()],
            vec!["dns".to_owned()],
        )
        .unwrap()
    }

    fn migrate(guest: u32, to: u32) -> Migration {
        Migration {
            guest,
            how: MoveKind::Migrate,
            to,
        }
    }

    const ROOMY: Amounts = [100, 10, 10, 10];

    #[test]
    fn memory_is_summed_over_the_set() {
        let copied = |host| Guest {
            apart: Vec::new(),
            ..guest(host, Some(2), [60, 1, 1, 1])
        };
        let capacity = capacity(&[ROOMY, ROOMY, ROOMY], vec![copied(0), copied(1)]);
        let keep = EvacuationPolicy::default();
        let spend = EvacuationPolicy {
            spare: Spare::Spend,
            ..keep
        };
        // Alone each fits, but node2 could then not take over the other's.
        let alone = capacity.permit(&keep, &[], &[0], &[migrate(0, 2)]);
        let lost = CapacityViolation::NPlusOne {
            host: 2,
            of: 1,
            demand: 60,
            free: 40,
        };
        assert_eq!(alone, Err(lost));
        assert_eq!(
            capacity.words(&lost),
            "node2 would have 40 MiB of memory free and could not take over the 60 MiB of node1 if that failed"
        );
        assert_eq!(capacity.permit(&spend, &[], &[0], &[migrate(0, 2)]), Ok(()));
        // Both do not fit in any way.
        let both = capacity.permit(&spend, &[], &[0, 1], &[migrate(0, 2), migrate(1, 2)]);
        let full = CapacityViolation::Full {
            host: 2,
            resource: Resource::Memory,
            comes: 120,
            free: 100,
        };
        assert_eq!(both, Err(full));
        // What failed before may fail; what had just room did not.
        let with = |memory: i64| {
            let other = Guest {
                takes: [memory, 1, 1, 1],
                ..copied(1)
            };
            let hosts = hosts(&[ROOMY, ROOMY, [70, 9, 9, 9]]);
            let capacity = Capacity::new(hosts, vec![copied(0), other], vec![String::new()], vec![]).unwrap();
            capacity.permit(&keep, &[], &[0], &[migrate(0, 2)])
        };
        assert_eq!(with(71), Ok(()));
        assert!(matches!(with(70), Err(CapacityViolation::NPlusOne { of: 1, .. })));
        assert_eq!(with(10), Ok(()), "to the last MiB, as Ganeti has it");
        assert!(with(11).is_err());
    }

    /// As `gnt-cluster verify` and `hcheck` count: somebody may start what is down, also while its host is away.
    #[test]
    fn memory_is_kept_for_what_does_not_run_and_for_what_stays_on_a_host_that_is_down() {
        let guest = |host, memory, runs| Guest {
            runs,
            apart: Vec::new(),
            ..guest(host, Some(2), [memory, 1, 1, 1])
        };
        let all = |other: Guest| capacity(&[ROOMY, ROOMY, ROOMY], vec![guest(0, 60, true), other]);
        let keep = EvacuationPolicy::default();
        let permit = |other: Guest, down: &[u32], set: &[u32]| {
            let found = all(other).permit(&keep, down, set, &[migrate(0, 2)]);
            found.map_err(|violation| matches!(violation, CapacityViolation::NPlusOne { of: 1, .. }))
        };
        let idle = || guest(1, 60, false);
        for (down, set) in [(&[][..], &[0][..]), (&[], &[0, 1]), (&[1], &[0])] {
            assert_eq!(permit(idle(), down, set), Err(true), "{down:?} {set:?}");
        }
        let mut unreserved = idle();
        unreserved.reserved = false;
        assert_eq!(permit(unreserved, &[], &[0]), Ok(()));
        let as_if_down = EvacuationPolicy {
            as_if_down: true,
            ..keep
        };
        assert!(all(idle()).demands(&as_if_down, 2).is_empty());
        let said: Vec<_> = all(idle()).demands(&keep, 2);
        let said: Vec<_> = said.iter().map(|d| (d.of, d.memory, d.stays)).collect();
        assert_eq!(said, [(0, 60, 0), (1, 60, 60)]);
    }

    #[test]
    fn processors_and_tags_bind_what_no_failure_would_bring() {
        let mut one = guest(0, Some(2), [1, 20, 1, 1]);
        let resident = guest(2, None, [1, 1, 1, 1]);
        let all = |one: &Guest| capacity(&[ROOMY, ROOMY, ROOMY], vec![one.clone(), resident.clone()]);
        let keep = EvacuationPolicy::default();
        assert_eq!(all(&one).permit(&keep, &[], &[0], &[migrate(0, 2)]), Ok(()));
        one.standby = None;
        one.storage = Storage::Shared;
        let full = all(&one).permit(&keep, &[], &[0], &[migrate(0, 2)]).unwrap_err();
        assert_eq!(
            all(&one).words(&full),
            "20 virtual processors would come to node2, which has 10 free"
        );
        one.takes[1] = 1;
        let met = all(&one).permit(&keep, &[], &[0], &[migrate(0, 2)]);
        assert_eq!(met, Err(CapacityViolation::Together { host: 2, tag: 0 }));
        assert_eq!(all(&one).permit(&keep, &[], &[0], &[migrate(0, 1)]), Ok(()));
        let gone = all(&one).permit(&keep, &[1], &[0], &[migrate(0, 1)]);
        assert_eq!(gone, Err(CapacityViolation::Gone { guest: 0, host: 1 }));
    }

    #[test]
    fn a_new_standby_needs_disk_and_memory_in_reserve() {
        let free: Amounts = [50, 10, 10, 10];
        let capacity = capacity(&[ROOMY, ROOMY, free], vec![guest(0, Some(1), [60, 1, 1, 4])]);
        let to = |to| Migration {
            guest: 0,
            how: MoveKind::ReplaceStandby,
            to,
        };
        let found = capacity.permit(&EvacuationPolicy::default(), &[], &[1], &[to(2)]);
        let lost = CapacityViolation::NPlusOne {
            host: 2,
            of: 0,
            demand: 60,
            free: 50,
        };
        assert_eq!(found, Err(lost));
    }
}
