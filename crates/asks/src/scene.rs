//! What is down and what is claimed, budget by budget: whether a set fits is told from the budgets that it touches alone.
//!
//! It says no sooner than the constraint predicate of the core, and never yes where that says no: whoever is told yes here
//! is judged by that before anything is granted.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{BudgetViolation, Ix, Snapshot, UnitState};

/// What is down and what is claimed. Copies share the budgets.
#[derive(Debug, Clone)]
pub struct Scene<'a> {
    snapshot: &'a Snapshot,
    /// Of each unit, the budgets in which it has a cost: `budgets[offsets[u]..offsets[u + 1]]`.
    index: std::sync::Arc<UnitIndex>,
    /// Units that do not serve, whoever took them down.
    broken: Vec<bool>,
    /// By how many claims each unit is claimed.
    claimed: Vec<u32>,
    /// Of each budget, the cost of what is down or claimed.
    load: Vec<u64>,
    /// Of each budget, the cost of what is down and not claimed by anybody.
    base: Vec<u64>,
    /// Of each budget, what each claim costs, by its fence.
    costs: BTreeMap<u32, Vec<(u64, u64)>>,
    /// Of each budget, what has to stay free for one who has waited long enough.
    kept_free: BTreeMap<u32, u64>,
    /// The units of those.
    kept_units: BTreeSet<u32>,
}

#[derive(Debug)]
struct UnitIndex {
    offsets: Vec<u32>,
    budgets: Vec<(u32, u32)>,
}

impl UnitIndex {
    fn of(snapshot: &Snapshot) -> Self {
        let budgets = snapshot.budgets();
        let units = snapshot.units().len();
        let mut offsets = vec![0_u32; units + 1];
        for budget in 0..budgets.len() {
            for (unit, _) in budgets.members(budget) {
                offsets[unit.at() + 1] += 1;
            }
        }
        for at in 0..units {
            offsets[at + 1] += offsets[at];
        }
        let mut next = offsets.clone();
        let mut all = vec![(0, 0); budgets.seats()];
        for budget in 0..budgets.len() {
            for (unit, cost) in budgets.members(budget) {
                let place = &mut next[unit.at()];
                all[*place as usize] = (budget as u32, cost);
                *place += 1;
            }
        }
        Self {
            offsets,
            budgets: all,
        }
    }

    fn of_unit(&self, unit: Ix) -> &[(u32, u32)] {
        &self.budgets[self.offsets[unit.at()] as usize..self.offsets[unit.at() + 1] as usize]
    }
}

/// Why a set has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// Another has claimed a unit of it already.
    Claimed(Ix),
    /// Whether this unit serves is unknown.
    Unknown(Ix),
    /// This budget would be exceeded.
    Budget(BudgetViolation),
    /// It would keep out one that has waited long enough, by this budget.
    KeptFree(usize),
    /// One that has waited long enough wants this unit too.
    KeptUnit(Ix),
}

impl<'a> Scene<'a> {
    /// Of what was observed, with these claims: of each its fence and its units.
    pub fn new(snapshot: &'a Snapshot, claims: &[(u64, Vec<Ix>)]) -> Self {
        let broken: Vec<bool> = snapshot
            .units()
            .iter()
            .map(|unit| unit.state != UnitState::Serving)
            .collect();
        let budgets = snapshot.budgets().len();
        let mut scene = Self {
            snapshot,
            index: std::sync::Arc::new(UnitIndex::of(snapshot)),
            claimed: vec![0; broken.len()],
            broken,
            load: vec![0; budgets],
            base: vec![0; budgets],
            costs: BTreeMap::new(),
            kept_free: BTreeMap::new(),
            kept_units: BTreeSet::new(),
        };
        let index = std::sync::Arc::clone(&scene.index);
        for at in 0..scene.broken.len() {
            if scene.broken[at] {
                for (budget, cost) in index.of_unit(Ix(at as u32)) {
                    scene.load[*budget as usize] += u64::from(*cost);
                    scene.base[*budget as usize] += u64::from(*cost);
                }
            }
        }
        for (fence, units) in claims {
            scene.claim(*fence, units);
        }
        scene
    }

    /// What was observed.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// These count as down from here on.
    pub fn claim(&mut self, fence: u64, units: &[Ix]) {
        let index = std::sync::Arc::clone(&self.index);
        for unit in units {
            let at = unit.at();
            self.claimed[at] += 1;
            if self.claimed[at] > 1 {
                continue;
            }
            for (budget, cost) in index.of_unit(*unit) {
                let (place, cost) = (*budget as usize, u64::from(*cost));
                if self.broken[at] {
                    // It is down because of this claim, as far as anybody can tell.
                    self.base[place] -= cost;
                } else {
                    self.load[place] += cost;
                }
                self.costs.entry(*budget).or_default().push((fence, cost));
                if let Some(kept) = self.kept_free.get_mut(budget)
                    && !self.broken[at]
                {
                    *kept += cost;
                }
            }
        }
    }

    /// These are back.
    pub fn release(&mut self, fence: u64, units: &[Ix]) {
        let index = std::sync::Arc::clone(&self.index);
        for unit in units {
            let at = unit.at();
            self.claimed[at] = self.claimed[at].saturating_sub(1);
            if self.claimed[at] > 0 {
                continue;
            }
            self.broken[at] = false;
            for (budget, cost) in index.of_unit(*unit) {
                let (place, cost) = (*budget as usize, u64::from(*cost));
                self.load[place] = self.load[place].saturating_sub(cost);
                if let Some(costs) = self.costs.get_mut(budget)
                    && let Some(found) = costs.iter().position(|known| *known == (fence, cost))
                {
                    costs.swap_remove(found);
                }
            }
        }
    }

    /// What a set costs in each budget that it touches. A unit that is down costs nothing more.
    fn cost_of(&self, set: &[Ix]) -> BTreeMap<u32, u64> {
        let mut adds = BTreeMap::new();
        for unit in set {
            if self.broken[unit.at()] || self.claimed[unit.at()] > 0 {
                continue;
            }
            for (budget, cost) in self.index.of_unit(*unit) {
                *adds.entry(*budget).or_insert(0) += u64::from(*cost);
            }
        }
        adds.retain(|_, cost| *cost > 0);
        adds
    }

    /// Whether a set may go down beside all that is down and claimed, and keeps nobody out.
    ///
    /// # Errors
    /// Why it has to wait.
    pub fn fits(&self, set: &[Ix]) -> Result<(), Blocked> {
        for unit in set {
            if self.claimed[unit.at()] > 0 {
                return Err(Blocked::Claimed(*unit));
            }
            if self.snapshot.unit(*unit).state == UnitState::Unknown {
                return Err(Blocked::Unknown(*unit));
            }
            if self.kept_units.contains(&unit.0) {
                return Err(Blocked::KeptUnit(*unit));
            }
        }
        let budgets = self.snapshot.budgets();
        let adds = self.cost_of(set);
        for (budget, adds) in &adds {
            let place = *budget as usize;
            let limit = budgets.limit(place);
            if self.load[place] + adds > u64::from(limit) {
                return Err(Blocked::Budget(BudgetViolation {
                    budget: place,
                    down: self.load[place],
                    adds: *adds,
                    limit,
                }));
            }
        }
        for (budget, adds) in &adds {
            let place = *budget as usize;
            let kept = self.kept_free.get(budget).copied().unwrap_or(0);
            if kept > 0 && self.base[place] + kept + adds > u64::from(budgets.limit(place)) {
                return Err(Blocked::KeptFree(place));
            }
        }
        Ok(())
    }

    /// Whether a set fits once everything that is claimed is back: what keeps it out is waited for.
    pub fn fits_once_released(&self, set: &[Ix]) -> bool {
        let budgets = self.snapshot.budgets();
        let unclaimed = |unit: &Ix| !self.broken[unit.at()] || self.claimed[unit.at()] > 0;
        let mut adds: BTreeMap<u32, u64> = BTreeMap::new();
        for unit in set.iter().filter(|unit| unclaimed(unit)) {
            for (budget, cost) in self.index.of_unit(*unit) {
                *adds.entry(*budget).or_insert(0) += u64::from(*cost);
            }
        }
        adds.iter().all(|(budget, adds)| {
            let place = *budget as usize;
            *adds == 0 || self.base[place] + adds <= u64::from(budgets.limit(place))
        })
    }

    /// Whether a set could ever fit, where all is well.
    pub fn could_fit(&self, set: &[Ix]) -> bool {
        let budgets = self.snapshot.budgets();
        let mut adds: BTreeMap<u32, u64> = BTreeMap::new();
        for unit in set {
            for (budget, cost) in self.index.of_unit(*unit) {
                *adds.entry(*budget).or_insert(0) += u64::from(*cost);
            }
        }
        adds.iter()
            .all(|(budget, adds)| *adds <= u64::from(budgets.limit(*budget as usize)))
    }

    /// From here on no set fits that would keep this one out, once those that were claimed before that fence are back.
    pub fn keep_free(&mut self, set: &[Ix], since: u64) {
        self.kept_units.extend(set.iter().map(|unit| unit.0));
        let mut wants: BTreeMap<u32, u64> = BTreeMap::new();
        for unit in set {
            if self.broken[unit.at()] && self.claimed[unit.at()] == 0 {
                continue;
            }
            for (budget, cost) in self.index.of_unit(*unit) {
                *wants.entry(*budget).or_insert(0) += u64::from(*cost);
            }
        }
        for (budget, wants) in wants {
            let later: u64 = self
                .costs
                .get(&budget)
                .into_iter()
                .flatten()
                .filter(|(fence, _)| *fence > since)
                .map(|(_, cost)| cost)
                .sum();
            let kept = self.kept_free.entry(budget).or_insert(0);
            *kept = (*kept).max(wants + later);
        }
    }

    /// Nothing is kept free any more.
    pub fn forget_kept_free(&mut self) {
        self.kept_free.clear();
        self.kept_units.clear();
    }

    /// In words, why a set has to wait.
    pub fn words(&self, blocked: &Blocked) -> String {
        let budgets = self.snapshot.budgets();
        match blocked {
            Blocked::Claimed(unit) => {
                format!(
                    "{} is taken down by another already",
                    self.snapshot.unit(*unit).id
                )
            }
            Blocked::Unknown(unit) => {
                format!("whether {} serves is unknown", self.snapshot.unit(*unit).id)
            }
            Blocked::Budget(violation) => self.snapshot.describe_violation(budgets, violation),
            Blocked::KeptUnit(unit) => format!(
                "one that has waited longer wants {} too",
                self.snapshot.unit(*unit).id
            ),
            Blocked::KeptFree(budget) => format!(
                "one that has waited longer needs it: {}",
                self.snapshot.describe_budget(budgets, *budget)
            ),
        }
    }
}
