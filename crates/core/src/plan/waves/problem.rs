//! The problem: units, what may be down together, and the reference definition of a permitted wave.

/// One stage's units `0..units`, to be split into the fewest waves such that each is permitted.
///
/// All rules are monotone: what permits a wave permits each subset of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// How many units there are; they are called `0..units`.
    pub units: u32,
    /// Narrow budgets: each binds a few units (a placement group, a DRBD pair, a quorum).
    pub budgets: NarrowBudgets,
    /// Wide budgets: each binds every unit (units in parallel, share of degraded placement groups).
    pub wide: Vec<Wide>,
    /// How many failure domains a wave may touch.
    pub domains: Vec<DomainRule>,
    /// Where the units stand: one entry a level of the failure domains (host, rack, row), with the domain of
    /// each unit there. They forbid nothing; waves along them are among those that are tried, since operators
    /// and other programs walk along them.
    pub levels: Vec<Vec<u32>>,
    /// Growth: the `i`-th wave holds at most `caps[i]` units, waves past the end as many as the last
    /// says. Empty: no cap. A cap of 0 counts as 1, for a wave of nothing would prove nothing.
    pub caps: Vec<u32>,
}

/// Narrow budgets in flat arrays: a million of them are normal input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NarrowBudgets {
    /// `ends[i]` is where the members of budget `i` end, and those of `i + 1` begin.
    ends: Vec<u32>,
    members: Vec<u32>,
    /// Parallel to `members`; empty as long as every cost is 1.
    costs: Vec<u32>,
    limits: Vec<u32>,
}

/// One narrow budget: the costs of those members that are down add up to at most the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NarrowBudget<'a> {
    /// The units that it binds.
    pub members: &'a [u32],
    /// What each member costs, parallel to `members`; `None` where each costs 1.
    pub costs: Option<&'a [u32]>,
    /// The cost that may still go down: the cost of units that are already down is subtracted.
    pub limit: u32,
}

/// A budget in which every unit has a cost, which may be 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wide {
    /// What each unit costs.
    pub costs: Vec<u32>,
    /// What a wave may cost.
    pub limit: u64,
}

/// At most so many distinct failure domains are touched at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainRule {
    /// The domain in which each unit lies.
    pub of: Vec<u32>,
    /// How many domains may be touched, those of `already` included.
    pub limit: u32,
    /// Domains that units already down touch. They count towards the limit, and a unit in one of them is
    /// free. Where they alone exceed the limit, only units in them are permitted.
    pub already: Vec<u32>,
}

/// Names one rule of a problem, by its index among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A narrow budget.
    Budget(u32),
    /// A wide budget.
    Wide(u32),
    /// A limit on failure domains.
    Domains(u32),
}

/// Why a wave is not permitted: the first rule that it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaveViolation {
    /// The rule that is broken.
    pub rule: Rule,
    /// What the wave takes.
    pub used: u64,
    /// What it may take.
    pub limit: u64,
}

/// A unit that fits in no wave, and a rule that forbids it even alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impossible {
    /// The unit.
    pub unit: u32,
    /// The first rule that forbids it.
    pub rule: Rule,
}

impl Problem {
    /// Whether these units may be down together. The definition, slow and plain; all else in this
    /// module is measured against it. Growth is not asked about: it depends on the place of the wave.
    pub fn permits(&self, wave: &[u32]) -> Result<(), WaveViolation> {
        let mut times = vec![0_u64; self.units as usize];
        for &unit in wave {
            times[unit as usize] += 1;
        }
        for (index, budget) in (0_u32..).zip(self.budgets.iter()) {
            let used = budget
                .iter()
                .map(|(unit, cost)| times[unit as usize] * u64::from(cost))
                .sum();
            check_limit(Rule::Budget(index), used, u64::from(budget.limit))?;
        }
        for (index, wide) in (0_u32..).zip(&self.wide) {
            let used = wave
                .iter()
                .map(|&unit| u64::from(wide.costs[unit as usize]))
                .sum();
            check_limit(Rule::Wide(index), used, wide.limit)?;
        }
        for (index, rule) in (0_u32..).zip(&self.domains) {
            let mut touched: Vec<u32> = wave
                .iter()
                .map(|&unit| rule.of[unit as usize])
                .filter(|domain| !rule.already.contains(domain))
                .collect();
            touched.sort_unstable();
            touched.dedup();
            check_limit(
                Rule::Domains(index),
                touched.len() as u64,
                u64::from(rule.domains_left()),
            )?;
        }
        Ok(())
    }

    /// Each unit that is forbidden even alone, with the first rule that forbids it. Ascending.
    pub fn impossible(&self) -> Vec<Impossible> {
        let mut why: Vec<Option<Rule>> = vec![None; self.units as usize];
        // A unit may be listed twice in one budget; then it costs the sum.
        let mut cost_here = vec![0_u64; self.units as usize];
        for (index, budget) in (0_u32..).zip(self.budgets.iter()) {
            for (unit, cost) in budget.iter() {
                cost_here[unit as usize] += u64::from(cost);
                if cost_here[unit as usize] > u64::from(budget.limit) {
                    why[unit as usize].get_or_insert(Rule::Budget(index));
                }
            }
            for &unit in budget.members {
                cost_here[unit as usize] = 0;
            }
        }
        for (index, wide) in (0_u32..).zip(&self.wide) {
            for (why, &cost) in why.iter_mut().zip(&wide.costs) {
                if u64::from(cost) > wide.limit {
                    why.get_or_insert(Rule::Wide(index));
                }
            }
        }
        for (index, rule) in (0_u32..).zip(&self.domains) {
            if rule.domains_left() == 0 {
                for (why, domain) in why.iter_mut().zip(&rule.of) {
                    if !rule.already.contains(domain) {
                        why.get_or_insert(Rule::Domains(index));
                    }
                }
            }
        }
        (0_u32..)
            .zip(why)
            .filter_map(|(unit, rule)| rule.map(|rule| Impossible { unit, rule }))
            .collect()
    }

    /// The problem of these units alone, ascending; they are renumbered in this order.
    #[must_use]
    pub fn restricted_to(&self, units: &[u32]) -> Self {
        if units.len() == self.units as usize {
            return self.clone();
        }
        let mut place = vec![None; self.units as usize];
        for (at, unit) in (0_u32..).zip(units) {
            place[*unit as usize] = Some(at);
        }
        let mut budgets = NarrowBudgets::default();
        for budget in self.budgets.iter() {
            let members: Vec<(u32, u32)> = budget
                .iter()
                .filter_map(|(unit, cost)| Some((place[unit as usize]?, cost)))
                .collect();
            budgets.push_with_costs(&members, budget.limit);
        }
        let of = |all: &[u32]| units.iter().map(|unit| all[*unit as usize]).collect();
        Self {
            units: units.len() as u32,
            budgets,
            wide: self
                .wide
                .iter()
                .map(|wide| Wide {
                    costs: of(&wide.costs),
                    limit: wide.limit,
                })
                .collect(),
            domains: self
                .domains
                .iter()
                .map(|rule| DomainRule {
                    of: of(&rule.of),
                    ..rule.clone()
                })
                .collect(),
            levels: self.levels.iter().map(|level| of(level)).collect(),
            caps: self.caps.clone(),
        }
    }

    /// How many units the wave at this place may hold.
    pub fn cap(&self, place: usize) -> u32 {
        cap_at(&self.caps, place)
    }

    /// The shapes that the solver relies on; a caller that breaks one has mixed up its indices.
    pub(super) fn assert_well_formed(&self) {
        let units = self.units as usize;
        assert!(
            self.budgets.members.iter().all(|&unit| unit < self.units),
            "a budget names a unit that the problem does not have"
        );
        assert!(
            self.wide.iter().all(|wide| wide.costs.len() == units),
            "a wide budget must have one cost for each unit"
        );
        assert!(
            self.domains.iter().all(|rule| rule.of.len() == units),
            "a rule on domains must have one domain for each unit"
        );
        assert!(
            self.levels.iter().all(|level| level.len() == units),
            "a level must have one domain for each unit"
        );
    }
}

impl NarrowBudgets {
    /// Adds a budget in which each member costs 1.
    pub fn push(&mut self, members: &[u32], limit: u32) {
        self.members.extend_from_slice(members);
        if !self.costs.is_empty() {
            self.costs.resize(self.members.len(), 1);
        }
        self.close(limit);
    }

    /// Adds a budget of (unit, cost).
    pub fn push_with_costs(&mut self, members: &[(u32, u32)], limit: u32) {
        let all_one = members.iter().all(|(_, cost)| *cost == 1);
        if !(all_one && self.costs.is_empty()) {
            self.costs.resize(self.members.len(), 1);
            self.costs.extend(members.iter().map(|(_, cost)| cost));
        }
        self.members.extend(members.iter().map(|(unit, _)| unit));
        self.close(limit);
    }

    /// How many members all of them have together.
    pub fn seats(&self) -> usize {
        self.members.len()
    }

    /// Makes room for so many budgets with so many members in all.
    pub fn reserve(&mut self, budgets: usize, members: usize) {
        self.ends.reserve(budgets);
        self.limits.reserve(budgets);
        self.members.reserve(members);
    }

    fn close(&mut self, limit: u32) {
        self.ends.push(self.members.len() as u32);
        self.limits.push(limit);
    }

    /// How many budgets there are.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// The budget with this index.
    pub fn get(&self, index: usize) -> NarrowBudget<'_> {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        let end = self.ends[index] as usize;
        NarrowBudget {
            members: &self.members[start..end],
            costs: (!self.costs.is_empty()).then(|| &self.costs[start..end]),
            limit: self.limits[index],
        }
    }

    /// All budgets in order.
    pub fn iter(&self) -> impl Iterator<Item = NarrowBudget<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl<'a> NarrowBudget<'a> {
    /// (unit, cost) of each member.
    pub fn iter(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.members.iter().enumerate().map(move |(at, &unit)| {
            let cost = self.costs.map_or(1, |costs| costs[at]);
            (unit, cost)
        })
    }
}

impl DomainRule {
    /// How many domains may still be touched beside those of `already`.
    pub fn domains_left(&self) -> u32 {
        let mut already = self.already.clone();
        already.sort_unstable();
        already.dedup();
        self.limit.saturating_sub(already.len() as u32)
    }
}

/// How many units the wave at this place may hold, under these caps.
pub(super) fn cap_at(caps: &[u32], place: usize) -> u32 {
    caps.get(place)
        .or(caps.last())
        .map_or(u32::MAX, |&cap| cap.max(1))
}

fn check_limit(rule: Rule, used: u64, limit: u64) -> Result<(), WaveViolation> {
    if used > limit {
        return Err(WaveViolation { rule, used, limit });
    }
    Ok(())
}
