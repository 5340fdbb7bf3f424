//! The rules in the search's form: impossible units left out, irrelevant costs dropped, and budgets that only
//! say "no two of these" turned into pairs, as in graph colouring.

use super::flat::{neighbours, slice};
use super::problem::{Problem, Rule};

/// A budget is written as pairs only up to this many; beyond, a pair for each two members would need
/// far more memory than the budget itself.
const PAIRS_A_BUDGET: usize = 120;
/// One of which no two members may go together says nothing but its pairs, and searches know better what to do with
/// these: it may have so many,
const PAIRS_ALONE: usize = 5_000;
/// as long as all budgets together have no more than this.
const PAIRS_IN_ALL: usize = 4_000_000;

/// What a pair weighs where units are ordered by how hard they are to place. A clause, in which
/// several may be down together, weighs less.
pub(super) const PAIR_WEIGHT: u32 = 16;

/// The domain of a unit that lies in one already touched.
pub(super) const FREE: u32 = u32::MAX;

/// The rules over placeable units, which are renumbered `0..units()`.
#[derive(Debug)]
pub(super) struct ConflictGraph {
    /// What the problem calls each unit. Ascending.
    original: Vec<u32>,
    pair_ends: Vec<u32>,
    pair_units: Vec<u32>,
    pub(super) clauses: Vec<Clause>,
    seats: Vec<Member>,
    joined_ends: Vec<u32>,
    joined: Vec<Joined>,
    pub(super) wide: Vec<WideTie>,
    pub(super) domains: Vec<DomainTie>,
    pub(super) levels: Vec<DomainLevel>,
    pub(super) caps: Vec<u32>,
}

/// A budget that is more than pairs: several members may be down together, but not all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clause {
    seats_start: u32,
    seats_end: u32,
    pub(super) limit: u32,
    /// The largest cost of a member.
    pub(super) largest: u32,
    /// How much it binds two of its members, where a pair binds `PAIR_WEIGHT`.
    pub(super) weight: u32,
    /// Its index among the budgets of the problem.
    pub(super) budget: u32,
}

/// A member of a clause, and its cost there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) unit: u32,
    pub(super) cost: u32,
}

/// A clause that a unit belongs to, and the unit's cost there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joined {
    pub(super) clause: u32,
    pub(super) cost: u32,
}

#[derive(Debug)]
pub(super) struct WideTie {
    pub(super) costs: Vec<u32>,
    pub(super) limit: u64,
    pub(super) largest: u32,
    pub(super) rule: Rule,
}

#[derive(Debug)]
pub(super) struct DomainTie {
    /// `FREE` where the unit's domain is touched already.
    pub(super) of: Vec<u32>,
    /// How many domains a wave may touch that are not touched already.
    pub(super) limit: u32,
    pub(super) index: u32,
}

/// The failure domains of one level, each with its units. Ascending.
#[derive(Debug)]
pub(super) struct DomainLevel {
    of: Vec<u32>,
    ends: Vec<u32>,
    units: Vec<u32>,
}

impl ConflictGraph {
    pub(super) fn new(problem: &Problem, placeable: Vec<u32>) -> Self {
        let mut renumbered = vec![None; problem.units as usize];
        for (unit, &original) in (0_u32..).zip(&placeable) {
            renumbered[original as usize] = Some(unit);
        }
        // Three copies of which two must stay make three pairs: as many as they have members.
        let mut edges: Vec<(u32, u32)> = Vec::with_capacity(problem.budgets.seats().min(PAIRS_IN_ALL));
        let mut clauses = Vec::new();
        let mut seats = Vec::new();
        let mut wide = wide(problem, &placeable);
        let mut members: Vec<Member> = Vec::new();
        for (index, budget) in (0_u32..).zip(problem.budgets.iter()) {
            members.clear();
            members.extend(budget.iter().filter_map(|(original, cost)| {
                let unit = renumbered[original as usize]?;
                (cost > 0).then_some(Member { unit, cost })
            }));
            merge_repeated(&mut members);
            let total: u64 = members.iter().map(|seat| u64::from(seat.cost)).sum();
            if total <= u64::from(budget.limit) {
                continue;
            }
            members.sort_unstable_by(|a, b| b.cost.cmp(&a.cost).then(a.unit.cmp(&b.unit)));
            if total > u64::from(u32::MAX) {
                wide.push(summed_in_u64(&members, budget.limit, index, placeable.len()));
                continue;
            }
            let (few_pairs, only_pairs) = push_pairs(&members, budget.limit, &mut edges);
            if few_pairs && only_pairs {
                continue;
            }
            let seats_start = seats.len() as u32;
            let largest = members[0].cost;
            let smallest = members[members.len() - 1].cost;
            let together = (budget.limit / smallest).max(1);
            members.sort_unstable();
            seats.extend_from_slice(&members);
            clauses.push(Clause {
                seats_start,
                seats_end: seats.len() as u32,
                limit: budget.limit,
                largest,
                weight: (PAIR_WEIGHT / together).max(1),
                budget: index,
            });
        }
        drop_repeated(&mut clauses, &seats);
        let (pair_ends, pair_units) = neighbours(placeable.len(), edges);
        let (joined_ends, joined) = joined(placeable.len(), &clauses, &seats);
        Self {
            pair_ends,
            pair_units,
            clauses,
            seats,
            joined_ends,
            joined,
            wide,
            domains: domains(problem, &placeable),
            levels: problem
                .levels
                .iter()
                .map(|level| DomainLevel::new(&pick(level, &placeable)))
                .collect(),
            caps: problem.caps.clone(),
            original: placeable,
        }
    }

    pub(super) fn units(&self) -> u32 {
        self.original.len() as u32
    }

    /// What the problem calls this unit.
    pub(super) fn original(&self, unit: u32) -> u32 {
        self.original[unit as usize]
    }

    /// What the problem calls these units.
    pub(super) fn originals(&self, units: &[u32]) -> Vec<u32> {
        units.iter().map(|&unit| self.original(unit)).collect()
    }

    /// The number here of a unit of the problem, if it can be placed at all.
    pub(super) fn renumbered(&self, original: u32) -> Option<u32> {
        self.original.binary_search(&original).ok().map(|at| at as u32)
    }

    /// The units that may never share a wave with this one. Ascending.
    pub(super) fn pairs(&self, unit: u32) -> &[u32] {
        slice(&self.pair_ends, &self.pair_units, unit)
    }

    /// The clauses of a unit.
    pub(super) fn clauses_of(&self, unit: u32) -> &[Joined] {
        slice(&self.joined_ends, &self.joined, unit)
    }

    /// The members of a clause. Ascending.
    pub(super) fn seats(&self, clause: u32) -> &[Member] {
        self.clauses[clause as usize].seats_in(&self.seats)
    }

    /// The most that any wave may hold.
    pub(super) fn steady_cap(&self) -> u32 {
        self.caps.iter().max().map_or(u32::MAX, |&cap| cap.max(1))
    }

    /// How strongly clauses tie this unit to others.
    pub(super) fn clause_pressure(&self, unit: u32) -> u32 {
        self.clauses_of(unit).iter().fold(0, |sum, joined| {
            let clause = &self.clauses[joined.clause as usize];
            sum.saturating_add((clause.len() - 1).saturating_mul(clause.weight))
        })
    }
}

impl DomainLevel {
    fn new(domains: &[u32]) -> Self {
        let mut units: Vec<u32> = (0..domains.len() as u32).collect();
        units.sort_by_key(|&unit| domains[unit as usize]);
        let (mut of, mut ends) = (vec![0; units.len()], Vec::new());
        let mut end = 0;
        for domain in units.chunk_by(|&a, &b| domains[a as usize] == domains[b as usize]) {
            for &unit in domain {
                of[unit as usize] = ends.len() as u32;
            }
            end += domain.len() as u32;
            ends.push(end);
        }
        Self { of, ends, units }
    }

    /// The domains in order.
    pub(super) fn domains(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.ends.len() as u32).map(|domain| slice(&self.ends, &self.units, domain))
    }

    /// The domain of a unit.
    pub(super) fn domain_of(&self, unit: u32) -> &[u32] {
        slice(&self.ends, &self.units, self.of[unit as usize])
    }
}

impl Clause {
    fn seats_in(self, seats: &[Member]) -> &[Member] {
        &seats[self.seats_start as usize..self.seats_end as usize]
    }

    fn len(self) -> u32 {
        self.seats_end - self.seats_start
    }
}

/// A unit listed twice in one budget costs the sum of both.
fn merge_repeated(members: &mut Vec<Member>) {
    members.sort_unstable();
    members.dedup_by(|later, first| {
        let same = later.unit == first.unit;
        if same {
            first.cost = first.cost.saturating_add(later.cost);
        }
        same
    });
}

/// Adds the pairs whose costs together break the limit, unless they are many. Members come dearest
/// first. Answers whether they are few enough to have been added, and whether they say all.
fn push_pairs(members: &[Member], limit: u32, edges: &mut Vec<(u32, u32)>) -> (bool, bool) {
    let breaks = |a: Member, b: Member| u64::from(a.cost) + u64::from(b.cost) > u64::from(limit);
    let alone = match members {
        [.., a, b] => breaks(*a, *b),
        _ => true,
    };
    let most = if alone && edges.len() < PAIRS_IN_ALL {
        PAIRS_ALONE
    } else {
        PAIRS_A_BUDGET
    };
    let mut pairs = 0;
    for (at, &a) in members.iter().enumerate() {
        pairs += members[at + 1..].partition_point(|&b| breaks(a, b));
        if pairs > most {
            return (false, false);
        }
    }
    for (at, &a) in members.iter().enumerate() {
        for &b in members[at + 1..].iter().take_while(|&&b| breaks(a, b)) {
            edges.push((a.unit, b.unit));
        }
    }
    (true, pairs == members.len() * (members.len() - 1) / 2)
}

/// Of clauses that say the same, keeps the first: where a few hosts carry a million placement groups,
/// most do.
fn drop_repeated(clauses: &mut Vec<Clause>, seats: &[Member]) {
    let mut order: Vec<u32> = (0..clauses.len() as u32).collect();
    let key = |&index: &u32| {
        let clause = clauses[index as usize];
        (clause.limit, clause.seats_in(seats))
    };
    order.sort_by(|a, b| key(a).cmp(&key(b)));
    let mut repeated = vec![false; clauses.len()];
    for two in order.windows(2) {
        repeated[two[1] as usize] = key(&two[0]) == key(&two[1]);
    }
    let mut index = 0;
    clauses.retain(|_| {
        index += 1;
        !repeated[index - 1]
    });
}

fn joined(units: usize, clauses: &[Clause], seats: &[Member]) -> (Vec<u32>, Vec<Joined>) {
    let mut starts = vec![0_u32; units + 1];
    for seat in clauses.iter().flat_map(|clause| clause.seats_in(seats)) {
        starts[seat.unit as usize + 1] += 1;
    }
    for unit in 0..units {
        starts[unit + 1] += starts[unit];
    }
    let mut next = starts.clone();
    let mut flat = vec![Joined { clause: 0, cost: 0 }; starts[units] as usize];
    for (clause, of) in (0_u32..).zip(clauses) {
        for seat in of.seats_in(seats) {
            let place = &mut next[seat.unit as usize];
            flat[*place as usize] = Joined {
                clause,
                cost: seat.cost,
            };
            *place += 1;
        }
    }
    starts.remove(0);
    (starts, flat)
}

/// Loads of clauses are u32. The rare budget that needs more (in bytes, say) is treated as one that applies
/// to every unit, at a cost of 0 for most.
fn summed_in_u64(members: &[Member], limit: u32, budget: u32, units: usize) -> WideTie {
    let mut costs = vec![0; units];
    for seat in members {
        costs[seat.unit as usize] = seat.cost;
    }
    WideTie {
        largest: members.iter().map(|seat| seat.cost).max().unwrap_or(1),
        costs,
        limit: u64::from(limit),
        rule: Rule::Budget(budget),
    }
}

fn wide(problem: &Problem, placeable: &[u32]) -> Vec<WideTie> {
    let mut ties = Vec::new();
    for (index, wide) in (0_u32..).zip(&problem.wide) {
        let costs: Vec<u32> = pick(&wide.costs, placeable);
        let total: u64 = costs.iter().map(|&cost| u64::from(cost)).sum();
        if total > wide.limit {
            let largest = costs.iter().copied().max().unwrap_or(1);
            ties.push(WideTie {
                costs,
                limit: wide.limit,
                largest,
                rule: Rule::Wide(index),
            });
        }
    }
    ties
}

fn domains(problem: &Problem, placeable: &[u32]) -> Vec<DomainTie> {
    let mut ties = Vec::new();
    for (index, rule) in (0_u32..).zip(&problem.domains) {
        let mut already = rule.already.clone();
        already.sort_unstable();
        let mut of = pick(&rule.of, placeable);
        for domain in &mut of {
            if already.binary_search(domain).is_ok() {
                *domain = FREE;
            }
        }
        ties.push(DomainTie {
            of,
            limit: rule.domains_left(),
            index,
        });
    }
    ties
}

fn pick(all: &[u32], placeable: &[u32]) -> Vec<u32> {
    placeable.iter().map(|&unit| all[unit as usize]).collect()
}

#[cfg(test)]
mod tests;
