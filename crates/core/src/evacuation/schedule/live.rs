//! The units that are down while a schedule proceeds, and whether one more may join.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{
    Amounts, Capacity, Demand, Down, EvacuationPolicy, Ix, Move, MoveKind, PlannedStage, PlanningInput,
    Resource, SharedGuests, Spare, StageSpec, Standbys, Storage, UnitState, largest_met_demand,
};

/// What one unit brings with it when it goes down.
#[derive(Debug, Default)]
struct Brings {
    /// Host, what comes to it, whether it is from the failure that N+1 foresees.
    comes: Vec<(u32, Amounts, bool)>,
    /// Host, whose failure it would have to bear, memory.
    wanted: Vec<(u32, u32, i64)>,
    /// Host, and tags of what comes.
    tags: Vec<(u32, u32)>,
    /// Hosts that are standbys of its guests.
    standbys: Vec<u32>,
    /// Whether some of its guests may go anywhere.
    floats: bool,
}

/// The units that are down, with their guests on other hosts.
pub(super) struct Live<'a> {
    ask: &'a PlanningInput<'a>,
    parallel: usize,
    /// The budgets of each unit, and how much of each is down.
    budgets_of: Vec<Vec<(u32, u32)>>,
    loads: Vec<u64>,
    down: Down,
    begun: BTreeSet<Ix>,
    one_at_a_time: Vec<Vec<Ix>>,
    guests: Option<Guests<'a>>,
}

struct Guests<'a> {
    capacity: &'a Capacity,
    moving: &'a EvacuationPolicy,
    brings: BTreeMap<u32, Brings>,
    /// Hosts that did not serve before.
    down: Vec<bool>,
    /// These, and those whose turn it is.
    out: Vec<bool>,
    comes: Vec<Amounts>,
    /// How many units send guests to their standby there, and how many anything else.
    senders: Vec<(u32, u32)>,
    wanted: BTreeMap<(u32, u32), i64>,
    demands: Vec<Vec<Demand>>,
    tags: BTreeMap<(u32, u32), u32>,
    /// How many of those that are down have a guest whose standby this is.
    shared: Vec<u32>,
    /// How many of each pool are down that have guests that may go anywhere.
    floating: Vec<u32>,
}

impl<'a> Live<'a> {
    pub(super) fn new(ask: &'a PlanningInput<'a>, stage: &'a StageSpec, planned: &PlannedStage) -> Self {
        let snapshot = ask.snapshot;
        let down = snapshot.down();
        let budgets = snapshot.budgets_once_recovered();
        let mut budgets_of = vec![Vec::new(); snapshot.units().len()];
        let mut loads = vec![0_u64; budgets.len()];
        for (budget, load) in loads.iter_mut().enumerate() {
            for (unit, cost) in budgets.members(budget) {
                if down.has(unit) {
                    *load += u64::from(cost);
                } else {
                    budgets_of[unit.at()].push((budget as u32, cost));
                }
            }
        }
        let of_kind = snapshot.of_kind(&stage.kind);
        let already = of_kind
            .filter(|(_, unit)| unit.state != UnitState::Serving)
            .count();
        let one_at_a_time = stage.maintenance.iter().flat_map(|maintenance| {
            maintenance.one_at_a_time.iter().map(|one| {
                let mut units: Vec<Ix> = one.units.iter().filter_map(|unit| snapshot.find(unit)).collect();
                units.sort_unstable();
                units
            })
        });
        let guests = stage.maintenance.as_ref().zip(snapshot.capacity());
        Self {
            ask,
            parallel: (planned.parallel as usize).saturating_sub(already),
            budgets_of,
            loads,
            down,
            begun: BTreeSet::new(),
            one_at_a_time: one_at_a_time.collect(),
            guests: guests
                .map(|(maintenance, capacity)| Guests::new(ask, capacity, &maintenance.moving, planned)),
        }
    }

    /// Takes a unit down if the constraints permit it beside those that are down.
    pub(super) fn start(&mut self, unit: Ix, host: Option<u32>) -> bool {
        if self.begun.len() >= self.parallel.max(1) || !self.permits(unit) {
            return false;
        }
        if let (Some(guests), Some(host)) = (&mut self.guests, host)
            && !guests.start(host)
        {
            return false;
        }
        for (budget, cost) in &self.budgets_of[unit.at()] {
            self.loads[*budget as usize] += u64::from(*cost);
        }
        self.begun.insert(unit);
        true
    }

    /// Gives a unit back.
    pub(super) fn end(&mut self, unit: Ix, host: Option<u32>) {
        for (budget, cost) in &self.budgets_of[unit.at()] {
            self.loads[*budget as usize] -= u64::from(*cost);
        }
        self.begun.remove(&unit);
        if let (Some(guests), Some(host)) = (&mut self.guests, host) {
            guests.end(host);
        }
    }

    fn permits(&self, ix: Ix) -> bool {
        let budgets = self.ask.snapshot.budgets_once_recovered();
        let within = self.budgets_of[ix.at()].iter().all(|(budget, cost)| {
            self.loads[*budget as usize] + u64::from(*cost) <= u64::from(budgets.limit(*budget as usize))
        });
        let alone = self.one_at_a_time.iter().all(|units| {
            let binds = |unit: &Ix| units.binary_search(unit).is_ok();
            !binds(&ix) || !self.begun.iter().any(binds)
        });
        within && alone && self.within_policy(ix)
    }

    /// Limits of the policy on failure domains and on the share that is degraded.
    fn within_policy(&self, ix: Ix) -> bool {
        let PlanningInput { snapshot, policy, .. } = *self.ask;
        if policy.max_domains.is_empty() && policy.max_reduced_redundancy.is_none() {
            return true;
        }
        let mut set: Vec<Ix> = self.begun.iter().copied().collect();
        set.push(ix);
        let domains = policy.max_domains.iter().all(|(level, limit)| {
            let domain = |ix: Ix| {
                let unit = snapshot.unit(ix);
                unit.domains.get(level).map_or(unit.id.as_str(), String::as_str)
            };
            let mut touched: Vec<&str> = set.iter().copied().chain(self.down.iter()).map(domain).collect();
            touched.sort_unstable();
            touched.dedup();
            touched.len() <= *limit as usize || set.len() == 1
        });
        // A share of all budgets is bound by waves; here only one at a time is sure.
        domains && (policy.max_reduced_redundancy.is_none() || set.len() == 1)
    }
}

impl<'a> Guests<'a> {
    fn new(
        ask: &PlanningInput<'_>,
        capacity: &'a Capacity,
        moving: &'a EvacuationPolicy,
        planned: &PlannedStage,
    ) -> Self {
        let hosts = capacity.hosts().len();
        let snapshot = ask.snapshot;
        let names: BTreeMap<&str, u32> = (0_u32..)
            .zip(capacity.guests())
            .map(|(at, guest)| (guest.name.as_str(), at))
            .collect();
        let mut brings: BTreeMap<u32, Brings> = BTreeMap::new();
        for wave in &planned.waves {
            let mut now_on: BTreeMap<u32, u32> = BTreeMap::new();
            for a_move in &wave.moves {
                let (Some(from), Some(to)) = (capacity.find(&a_move.from), capacity.find(&a_move.to)) else {
                    continue;
                };
                let Some(guest) = names.get(a_move.guest.as_str()) else {
                    continue;
                };
                if a_move.how != MoveKind::ReplaceStandby {
                    now_on.insert(*guest, to);
                }
                brings
                    .entry(from)
                    .or_default()
                    .add(capacity, a_move, *guest, to, now_on.get(guest).copied());
            }
        }
        let down: Vec<bool> = capacity
            .hosts()
            .iter()
            .map(|host| {
                let unit = snapshot.find(&host.unit);
                unit.is_none_or(|unit| snapshot.unit(unit).state != UnitState::Serving)
            })
            .collect();
        Self {
            moving,
            brings,
            out: down.clone(),
            down,
            comes: vec![[0; 4]; hosts],
            senders: vec![(0, 0); hosts],
            wanted: BTreeMap::new(),
            demands: (0..hosts as u32)
                .map(|host| capacity.demands(moving, host))
                .collect(),
            tags: resident_tags(capacity),
            shared: vec![0; hosts],
            floating: vec![0; capacity.pools()],
            capacity,
        }
    }

    fn start(&mut self, host: u32) -> bool {
        let (to_standby, else_too) = self.senders[host as usize];
        if to_standby + else_too > 0 {
            // Guests of others are there.
            return false;
        }
        let Some(brings) = self.brings.remove(&host) else {
            self.out[host as usize] = true;
            return true;
        };
        let pool = self.capacity.host(host).pool as usize;
        let standby_taken = self.moving.standbys == Standbys::Exclude
            && brings
                .standbys
                .iter()
                .any(|standby| self.shared[*standby as usize] > 0);
        let pool_taken = self.moving.shared == SharedGuests::One && brings.floats && self.floating[pool] > 0;
        self.out[host as usize] = true;
        self.change(host, &brings, 1);
        let holds = !standby_taken
            && !pool_taken
            && brings
                .comes
                .iter()
                .all(|(to, ..)| !self.out[*to as usize] && self.holds(*to));
        if !holds {
            self.change(host, &brings, -1);
            self.out[host as usize] = false;
        }
        self.brings.insert(host, brings);
        holds
    }

    fn end(&mut self, host: u32) {
        self.out[host as usize] = false;
        if let Some(brings) = self.brings.remove(&host) {
            self.change(host, &brings, -1);
            self.brings.insert(host, brings);
        }
    }

    fn change(&mut self, host: u32, brings: &Brings, by: i64) {
        let count = |number: u32| number.saturating_add_signed(by as i32);
        if brings.floats {
            let floating = &mut self.floating[self.capacity.host(host).pool as usize];
            *floating = count(*floating);
        }
        for (to, amounts, to_standby) in &brings.comes {
            for (sum, more) in self.comes[*to as usize].iter_mut().zip(amounts) {
                *sum += by * more;
            }
            let senders = &mut self.senders[*to as usize];
            if *to_standby {
                senders.0 = count(senders.0);
            } else {
                senders.1 = count(senders.1);
            }
        }
        for (to, of, memory) in &brings.wanted {
            *self.wanted.entry((*to, *of)).or_default() += by * memory;
        }
        for key in &brings.tags {
            let tags = self.tags.entry(*key).or_default();
            *tags = count(*tags);
        }
        for standby in &brings.standbys {
            self.shared[*standby as usize] = count(self.shared[*standby as usize]);
        }
    }

    /// As [`Capacity::permit`] for one host.
    fn holds(&self, host: u32) -> bool {
        let comes = self.comes[host as usize];
        let has = self.capacity.host(host).free;
        let (to_standby, else_too) = self.senders[host as usize];
        let alone = else_too == 0 && to_standby <= 1;
        let fits = Resource::ALL
            .into_iter()
            .zip(comes)
            .zip(has)
            .all(|((resource, comes), free)| {
                let lenient = alone && matches!(resource, Resource::Cpus | Resource::Spindles);
                comes <= 0 || comes <= free || lenient
            });
        let free = has[0] - comes[0];
        let kept = alone && self.moving.spare == Spare::Spend || {
            let demands = &self.demands[host as usize];
            let emptied = |of: u32| self.out[of as usize] && !self.down[of as usize];
            let old = largest_met_demand(demands, has[0], emptied).map_or(0, |(_, demand)| demand);
            let new = self
                .wanted
                .range((host, 0)..=(host, u32::MAX))
                .filter(|(_, memory)| **memory > 0)
                .map(|((_, of), memory)| {
                    let old = demands.iter().find(|demand| demand.of == *of);
                    memory + old.map_or(0, |demand| demand.memory)
                })
                .max()
                .unwrap_or(0);
            !Capacity::fails(old.max(new), free)
        };
        let apart = alone
            || self
                .tags
                .range((host, 0)..=(host, u32::MAX))
                .all(|(_, guests)| *guests <= 1);
        fits && kept && apart
    }
}

/// How many guests with each tag are on each host.
fn resident_tags(capacity: &Capacity) -> BTreeMap<(u32, u32), u32> {
    let mut tags: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for guest in capacity.guests().iter().filter(|guest| guest.runs) {
        for tag in &guest.apart {
            // Those that meet already are one.
            tags.insert((guest.host, *tag), 1);
        }
    }
    tags
}

impl Brings {
    fn add(&mut self, capacity: &Capacity, a_move: &Move, at: u32, to: u32, now_on: Option<u32>) {
        let guest = capacity.guest(at);
        let [memory, cpus, spindles, disk] = guest.takes;
        let to_standby = guest.storage == Storage::Copied && guest.standby == Some(to);
        let amounts = match a_move.how {
            MoveKind::Migrate => [memory, cpus, spindles, 0],
            MoveKind::Relocate => guest.takes,
            MoveKind::ReplaceStandby => [0, 0, 0, disk],
        };
        let foreseen = a_move.how == MoveKind::Migrate && to_standby;
        match self
            .comes
            .iter_mut()
            .find(|(host, _, standby)| *host == to && *standby == foreseen)
        {
            Some((_, sum, _)) => {
                for (sum, more) in sum.iter_mut().zip(amounts) {
                    *sum += more;
                }
            }
            None => self.comes.push((to, amounts, foreseen)),
        }
        if a_move.how == MoveKind::ReplaceStandby {
            if guest.reserved {
                self.wanted.push((to, now_on.unwrap_or(guest.host), memory));
            }
            return;
        }
        self.tags.extend(guest.apart.iter().map(|tag| (to, *tag)));
        self.floats |= !foreseen;
        if foreseen && !self.standbys.contains(&to) {
            self.standbys.push(to);
        }
    }
}
