//! Which units may be down together.
//!
//! A budget limits the total cost of its members that are down: a placement group (members: its OSDs; limit:
//! how many may go before it falls under `min_size`), the quorum of the monitors, a DRBD pair. All budgets of
//! a cluster are kept in flat columns, since a million of them are normal input.
//!
//! Only sets that touch a budget are tested against it. A budget that is already exceeded blocks its own
//! members and nothing else. That keeps the predicate monotone: a subset of a permitted set is permitted.

use serde::{Deserialize, Serialize};

use super::Ix;

/// The units that are down, as a bitmap over a snapshot's units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down(Vec<bool>);

impl Down {
    /// From one flag a unit, in the snapshot's order.
    pub fn of(flags: impl IntoIterator<Item = bool>) -> Self {
        Self(flags.into_iter().collect())
    }

    /// Whether that unit is down.
    pub fn has(&self, unit: Ix) -> bool {
        self.0.get(unit.at()).copied().unwrap_or(false)
    }

    /// The same with these units down too.
    #[must_use]
    pub fn with(&self, units: &[Ix]) -> Self {
        let mut down = self.clone();
        for unit in units {
            down.0[unit.at()] = true;
        }
        down
    }

    /// The units that are down.
    pub fn iter(&self) -> impl Iterator<Item = Ix> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, down)| **down)
            .map(|(at, _)| Ix(at as u32))
    }
}

/// All budgets of a cluster, in columns: budget `b` has the members `members[offsets[b]..offsets[b+1]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    offsets: Vec<u32>,
    members: Vec<Ix>,
    /// One a member; empty when all are 1.
    costs: Vec<u32>,
    limits: Vec<u32>,
    /// How many placement groups each stands for; empty when each stands for one.
    shares: Vec<u32>,
    /// Which of `groups` each belongs to.
    group: Vec<u16>,
    groups: Vec<String>,
    /// All names one after another; budget `b` is `names[name_ends[b-1]..name_ends[b]]`.
    names: String,
    name_ends: Vec<u32>,
}

/// Columns that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A member beyond the units.
    #[error("budget {budget} has a member with index {member}, and there are {units} units")]
    Member {
        /// The budget's name.
        budget: String,
        /// The index.
        member: u32,
        /// How many units there are.
        units: usize,
    },
    /// A column of another length than the others, or offsets that go back.
    #[error("the budget columns do not fit together: {0}")]
    Columns(&'static str),
}

/// The columns as stored in documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetColumns {
    groups: Vec<String>,
    /// One row a budget: its group, name, limit and members, as indices into the units.
    group: Vec<u16>,
    name: Vec<String>,
    limit: Vec<u32>,
    members: Vec<Vec<Ix>>,
    /// Costs beside `members`; empty when all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    costs: Vec<Vec<u32>>,
    /// How many placement groups each stands for; empty when each stands for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shares: Vec<u32>,
}

/// Builds budgets one at a time.
#[derive(Debug, Default)]
pub struct BudgetsBuilder {
    budgets: Budgets,
    any_cost: bool,
    any_share: bool,
}

impl From<Budgets> for BudgetsBuilder {
    /// Extends existing budgets.
    fn from(mut budgets: Budgets) -> Self {
        let any_cost = !budgets.costs.is_empty();
        let any_share = !budgets.shares.is_empty();
        budgets.costs.resize(budgets.members.len(), 1);
        budgets.shares.resize(budgets.limits.len(), 1);
        Self {
            budgets,
            any_cost,
            any_share,
        }
    }
}

impl BudgetsBuilder {
    /// Adds one. `group` says what it stands for and is shared by many: `placement group of pool rbd`.
    /// Of a unit listed twice the costs are added.
    pub fn add(&mut self, group: &str, name: &str, limit: u32, members: &[(Ix, u32)]) {
        self.add_for(1, group, name, limit, members);
    }

    /// Adds one that stands for so many things whose share down at once a policy may bound
    /// ([`Policy::max_reduced_redundancy`](super::Policy)): the placement groups with these members, or none.
    pub fn add_for(&mut self, share: u32, group: &str, name: &str, limit: u32, members: &[(Ix, u32)]) {
        self.any_share |= share != 1;
        let budgets = &mut self.budgets;
        if budgets.offsets.is_empty() {
            budgets.offsets.push(0);
        }
        let start = budgets.members.len();
        for (unit, cost) in members {
            if let Some(at) = budgets.members[start..].iter().position(|m| m == unit) {
                budgets.costs[start + at] += cost;
                self.any_cost = true;
            } else {
                budgets.members.push(*unit);
                budgets.costs.push(*cost);
                self.any_cost |= *cost != 1;
            }
        }
        budgets.offsets.push(budgets.members.len() as u32);
        budgets.limits.push(limit);
        budgets.shares.push(share);
        let known = budgets.groups.iter().rposition(|g| g == group);
        let group = known.unwrap_or_else(|| {
            budgets.groups.push(group.to_owned());
            budgets.groups.len() - 1
        });
        budgets.group.push(group as u16);
        budgets.names.push_str(name);
        budgets.name_ends.push(budgets.names.len() as u32);
    }

    /// Reserves space for this many budgets with this many members in all. Without it, a million budgets are
    /// copied repeatedly.
    pub fn reserve(&mut self, budgets: usize, members: usize) {
        let all = &mut self.budgets;
        all.members.reserve(members);
        all.costs.reserve(members);
        all.offsets.reserve(budgets + 1);
        all.limits.reserve(budgets);
        all.shares.reserve(budgets);
        all.group.reserve(budgets);
        all.name_ends.reserve(budgets);
    }

    /// All that was added.
    pub fn build(mut self) -> Budgets {
        if !self.any_cost {
            self.budgets.costs = Vec::new();
        }
        if !self.any_share {
            self.budgets.shares = Vec::new();
        }
        if self.budgets.offsets.is_empty() {
            self.budgets.offsets.push(0);
        }
        // They are kept for as long as the snapshot, and one more than there was room for has doubled it.
        let all = &mut self.budgets;
        all.members.shrink_to_fit();
        all.costs.shrink_to_fit();
        all.offsets.shrink_to_fit();
        all.limits.shrink_to_fit();
        all.shares.shrink_to_fit();
        all.group.shrink_to_fit();
        all.names.shrink_to_fit();
        all.name_ends.shrink_to_fit();
        self.budgets
    }
}

/// Why a set may not go down: the budget, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetViolation {
    /// Which budget, for [`Budgets::name`] and its like.
    pub budget: usize,
    /// The cost of its members that are already down.
    pub down: u64,
    /// What the set would add.
    pub adds: u64,
    /// How much may be down.
    pub limit: u32,
}

impl Budgets {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// How many members all of them have together.
    pub fn seats(&self) -> usize {
        self.members.len()
    }

    /// Its members with their costs.
    pub fn members(&self, budget: usize) -> impl Iterator<Item = (Ix, u32)> + '_ {
        let span = self.offsets[budget] as usize..self.offsets[budget + 1] as usize;
        span.map(|at| (self.members[at], self.costs.get(at).copied().unwrap_or(1)))
    }

    /// How much of it may be down.
    pub fn limit(&self, budget: usize) -> u32 {
        self.limits[budget]
    }

    /// How many placement groups it stands for.
    pub fn share(&self, budget: usize) -> u32 {
        self.shares.get(budget).copied().unwrap_or(1)
    }

    /// How many placement groups all of them stand for.
    pub fn shares(&self) -> u64 {
        (0..self.len()).map(|budget| u64::from(self.share(budget))).sum()
    }

    /// Its name within its group: `2.1f`.
    pub fn name(&self, budget: usize) -> &str {
        let start = if budget == 0 {
            0
        } else {
            self.name_ends[budget - 1] as usize
        };
        &self.names[start..self.name_ends[budget] as usize]
    }

    /// What it stands for: `placement group of pool rbd`.
    pub fn group(&self, budget: usize) -> &str {
        &self.groups[self.group[budget] as usize]
    }

    /// **The constraint predicate**: whether `set` may go down beside the units that are already down. A unit
    /// of `set` that is already down adds nothing.
    ///
    /// # Errors
    /// The first budget, in order, that the set would break.
    pub fn permit(&self, down: &Down, set: &[Ix]) -> Result<(), BudgetViolation> {
        let mut wanted = Down(vec![false; down.0.len()]);
        for unit in set {
            if !down.has(*unit) {
                wanted.0[unit.at()] = true;
            }
        }
        for budget in 0..self.len() {
            let (mut was, mut adds) = (0_u64, 0_u64);
            for (unit, cost) in self.members(budget) {
                if wanted.has(unit) {
                    adds += u64::from(cost);
                } else if down.has(unit) {
                    was += u64::from(cost);
                }
            }
            let limit = self.limits[budget];
            if adds > 0 && was + adds > u64::from(limit) {
                return Err(BudgetViolation {
                    budget,
                    down: was,
                    adds,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// [`Budgets::permit`] asked of each set alone, in one pass over the budgets where no unit stands in two sets.
    pub fn permit_each(&self, down: &Down, sets: &[Vec<Ix>]) -> Vec<Result<(), BudgetViolation>> {
        const NONE: u32 = u32::MAX;
        let mut set_of = vec![NONE; down.0.len()];
        for (at, set) in (0_u32..).zip(sets) {
            for unit in set {
                let known = std::mem::replace(&mut set_of[unit.at()], at);
                if known != NONE && known != at {
                    return sets.iter().map(|set| self.permit(down, set)).collect();
                }
            }
        }
        let mut answers = vec![Ok(()); sets.len()];
        let mut adds = vec![0_u64; sets.len()];
        let mut touched: Vec<u32> = Vec::new();
        for budget in 0..self.len() {
            let mut was = 0_u64;
            for (unit, cost) in self.members(budget) {
                let set = set_of[unit.at()];
                if down.has(unit) {
                    was += u64::from(cost);
                } else if set != NONE && cost > 0 {
                    if adds[set as usize] == 0 {
                        touched.push(set);
                    }
                    adds[set as usize] += u64::from(cost);
                }
            }
            let limit = self.limits[budget];
            for set in touched.drain(..) {
                let adds = std::mem::take(&mut adds[set as usize]);
                let answer = &mut answers[set as usize];
                if was + adds > u64::from(limit) && answer.is_ok() {
                    *answer = Err(BudgetViolation {
                        budget,
                        down: was,
                        adds,
                        limit,
                    });
                }
            }
        }
        answers
    }

    /// Whether every member is one of `units` units.
    pub(super) fn fit(&self, units: usize) -> Result<(), BudgetError> {
        for budget in 0..self.len() {
            if let Some((member, _)) = self.members(budget).find(|(m, _)| m.at() >= units) {
                return Err(BudgetError::Member {
                    budget: self.name(budget).to_owned(),
                    member: member.0,
                    units,
                });
            }
        }
        Ok(())
    }

    /// The same budgets where unit `i` is now at `place[i]`.
    pub(super) fn renumbered(mut self, place: &[u32]) -> Self {
        for member in &mut self.members {
            *member = Ix(place[member.at()]);
        }
        self
    }
}

impl TryFrom<BudgetColumns> for Budgets {
    type Error = BudgetError;
    fn try_from(columns: BudgetColumns) -> Result<Self, BudgetError> {
        let BudgetColumns {
            groups,
            group,
            name,
            limit,
            members,
            costs,
            shares,
        } = columns;
        let rows = name.len();
        if group.len() != rows || limit.len() != rows || members.len() != rows {
            return Err(BudgetError::Columns(
                "group, name, limit and members differ in length",
            ));
        }
        if !costs.is_empty() && costs.iter().map(Vec::len).ne(members.iter().map(Vec::len)) {
            return Err(BudgetError::Columns("costs and members differ in length"));
        }
        if !shares.is_empty() && shares.len() != rows {
            return Err(BudgetError::Columns("shares and name differ in length"));
        }
        if group.iter().any(|g| usize::from(*g) >= groups.len()) {
            return Err(BudgetError::Columns("a budget's group does not exist"));
        }
        let mut builder = BudgetsBuilder::default();
        for row in 0..rows {
            let cost = |at: usize| costs.get(row).map_or(1, |c| c[at]);
            let pairs: Vec<_> = members[row]
                .iter()
                .enumerate()
                .map(|(at, m)| (*m, cost(at)))
                .collect();
            let share = shares.get(row).copied().unwrap_or(1);
            builder.add_for(
                share,
                &groups[usize::from(group[row])],
                &name[row],
                limit[row],
                &pairs,
            );
        }
        Ok(builder.build())
    }
}

impl From<Budgets> for BudgetColumns {
    fn from(budgets: Budgets) -> Self {
        let rows = 0..budgets.len();
        Self {
            name: rows.clone().map(|b| budgets.name(b).to_owned()).collect(),
            members: rows
                .clone()
                .map(|b| budgets.members(b).map(|(m, _)| m).collect())
                .collect(),
            costs: if budgets.costs.is_empty() {
                Vec::new()
            } else {
                rows.map(|b| budgets.members(b).map(|(_, c)| c).collect())
                    .collect()
            },
            groups: budgets.groups,
            group: budgets.group,
            limit: budgets.limits,
            shares: budgets.shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(rows: &[(u32, &[(u32, u32)])]) -> Budgets {
        let mut builder = BudgetsBuilder::default();
        for (at, (limit, members)) in rows.iter().enumerate() {
            let members: Vec<_> = members.iter().map(|(m, c)| (Ix(*m), *c)).collect();
            builder.add("pair", &format!("p{at}"), *limit, &members);
        }
        builder.build()
    }

    #[test]
    fn what_is_down_already_counts_and_adds_nothing_twice() {
        let pairs = budgets(&[(1, &[(0, 1), (1, 1)])]);
        let nothing = Down::of([false, false]);
        assert!(pairs.permit(&nothing, &[Ix(0)]).is_ok());
        assert!(pairs.permit(&nothing, &[Ix(0), Ix(1)]).is_err());
        let first = Down::of([true, false]);
        let violation = pairs.permit(&first, &[Ix(1)]).unwrap_err();
        assert_eq!(
            violation,
            BudgetViolation {
                budget: 0,
                down: 1,
                adds: 1,
                limit: 1
            }
        );
        assert!(pairs.permit(&first, &[Ix(0)]).is_ok(), "it is down already");
    }

    #[test]
    fn a_budget_used_up_by_others_forbids_only_its_own_members() {
        let pairs = budgets(&[(0, &[(0, 1), (1, 1)])]);
        let first = Down::of([true, false, false]);
        assert!(pairs.permit(&first, &[Ix(2)]).is_ok());
        assert!(pairs.permit(&first, &[Ix(1)]).is_err());
    }

    #[test]
    fn sets_are_judged_together_as_each_alone() {
        let budgets = budgets(&[
            (1, &[(0, 1), (1, 1), (2, 2)]),
            (0, &[(3, 1), (4, 0)]),
            (2, &[(0, 1), (2, 1), (4, 1), (5, 1)]),
        ]);
        let units = 6_u32;
        // All ways to put each unit down, into one of two sets, into both, or nowhere.
        for way in 0..5_u32.pow(units) {
            let place = |unit: u32| way / 5_u32.pow(unit) % 5;
            let down = Down::of((0..units).map(|unit| place(unit) == 0));
            let set = |wanted: u32| -> Vec<Ix> {
                let stands = |unit: &u32| place(*unit) == wanted || place(*unit) == 3;
                (0..units).filter(stands).map(Ix).collect()
            };
            let sets = [set(1), set(2)];
            let alone: Vec<_> = sets.iter().map(|set| budgets.permit(&down, set)).collect();
            assert_eq!(budgets.permit_each(&down, &sets), alone);
        }
    }

    #[test]
    fn columns_come_back_as_they_went() {
        let before = budgets(&[(1, &[(0, 1), (1, 2)]), (3, &[(2, 1)])]);
        let json = serde_json::to_string(&BudgetColumns::from(before.clone())).unwrap();
        let after = Budgets::try_from(serde_json::from_str::<BudgetColumns>(&json).unwrap()).unwrap();
        assert_eq!(before, after);
        assert_eq!(after.name(1), "p1");
    }

    #[test]
    fn a_builder_goes_on_from_budgets() {
        let rows: [(u32, &[(u32, u32)]); 3] = [(1, &[(0, 1), (1, 1)]), (2, &[(2, 1)]), (0, &[(1, 3)])];
        let mut onwards = BudgetsBuilder::from(budgets(&rows[..2]));
        onwards.add("pair", "p2", 0, &[(Ix(1), 3)]);
        assert_eq!(onwards.build(), budgets(&rows));
        assert_eq!(BudgetsBuilder::from(budgets(&rows)).build(), budgets(&rows));
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let good = serde_json::to_value(BudgetColumns::from(budgets(&[(1, &[(0, 1)])]))).unwrap();
        for (key, value) in [
            ("limit", serde_json::json!([])),
            ("group", serde_json::json!([7])),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let columns: BudgetColumns = serde_json::from_value(bad).unwrap();
            assert!(Budgets::try_from(columns).is_err(), "{key}");
        }
    }
}
