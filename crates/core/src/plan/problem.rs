//! Step 3: the constraints of a snapshot and a policy, in the solver's form.

use std::collections::{BTreeMap, BTreeSet};

use super::waves::{DomainRule, NarrowBudgets, Problem, Wide};
use crate::evacuation::HostBudget;
use crate::model::{Code, Down, Growth, Ix, Policy, Reason, Snapshot};

/// One group of a stage as the solver takes it, and how to say its answers in words.
pub(super) struct Posed<'a> {
    pub(super) problem: Problem,
    snapshot: &'a Snapshot,
    /// The origin of each of the problem's budgets.
    budgets: Vec<BudgetOrigin>,
    wide: Vec<&'static str>,
    levels: Vec<String>,
}

/// What a budget of the problem stands for.
#[derive(Debug, Clone)]
enum BudgetOrigin {
    /// That budget of the snapshot.
    Budget(usize),
    /// What guests ask of hosts; its place among those limits.
    Guests(usize, Box<Reason>),
}

/// What all groups of a stage have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// How many of the kind may be down at once.
    pub(super) parallel: u32,
    /// How many of the kind do not serve now.
    pub(super) down: u32,
    /// How many waves of this stage have passed their gates, or are planned before this group.
    pub(super) earned: u32,
}

pub(super) fn build<'a>(
    snapshot: &'a Snapshot,
    down: &Down,
    policy: &Policy,
    frame: Frame,
    units: &[Ix],
    guests: &[HostBudget],
) -> Posed<'a> {
    let mut local = vec![None; snapshot.units().len()];
    for (at, unit) in units.iter().enumerate() {
        local[unit.at()] = Some(at as u32);
    }
    let all = snapshot.budgets_once_recovered();
    let mut narrow = NarrowBudgets::default();
    let mut names = Vec::with_capacity(all.len() + guests.len());
    narrow.reserve(all.len() + guests.len(), all.seats());
    let mut touched_by = vec![0_u32; units.len()];
    let mut members = Vec::new();
    for budget in 0..all.len() {
        members.clear();
        let (mut was, mut could) = (0_u64, 0_u64);
        for (unit, cost) in all.members(budget) {
            if down.has(unit) {
                was += u64::from(cost);
            } else if let Some(at) = local[unit.at()] {
                members.push((at, cost));
                could += u64::from(cost);
                touched_by[at as usize] += all.share(budget);
            }
        }
        let left = u64::from(all.limit(budget)).saturating_sub(was);
        if could > left {
            narrow.push_with_costs(&members, left as u32);
            names.push(BudgetOrigin::Budget(budget));
        }
    }

    for (at, limit) in guests.iter().enumerate() {
        narrow.push_with_costs(&limit.members, limit.most);
        names.push(BudgetOrigin::Guests(at, Box::new(limit.why.clone())));
    }

    let mut wide = vec![Wide {
        costs: vec![1; units.len()],
        limit: u64::from(frame.parallel.saturating_sub(frame.down)),
    }];
    let mut wide_names = vec!["max-in-parallel"];
    if let Some(percent) = policy.max_reduced_redundancy {
        let share = all.shares() * u64::from(percent) / 100;
        // One unit alone is always let through, as with a percentage of units: as wide as the widest
        // of the kind, whether or not it is still to be visited, so that the limit stays as waves pass.
        let largest = largest_touch(snapshot, units);
        wide.push(Wide {
            costs: touched_by,
            limit: share.max(u64::from(largest)),
        });
        wide_names.push("max-reduced-redundancy");
    }

    let mut domains = Vec::new();
    let mut levels = Vec::new();
    for (level, limit) in &policy.max_domains {
        domains.push(domain_rule(snapshot, down, level, *limit, units));
        levels.push(level.clone());
    }

    let caps = match policy.growth {
        Growth::None => Vec::new(),
        Growth::Double => growth_caps(frame),
    };
    let problem = Problem {
        units: units.len() as u32,
        budgets: narrow,
        wide,
        domains,
        levels: all_levels(snapshot, units),
        caps,
    };
    Posed {
        problem,
        snapshot,
        budgets: names,
        wide: wide_names,
        levels,
    }
}

/// How many placement groups the widest unit of that kind touches, whether it serves or not.
fn largest_touch(snapshot: &Snapshot, units: &[Ix]) -> u32 {
    let Some(kind) = units.first().map(|unit| &snapshot.unit(*unit).kind) else {
        return 0;
    };
    let budgets = snapshot.budgets_once_recovered();
    let mut touches = vec![0_u32; snapshot.units().len()];
    for budget in 0..budgets.len() {
        for (unit, _) in budgets.members(budget) {
            touches[unit.at()] += budgets.share(budget);
        }
    }
    snapshot
        .of_kind(kind)
        .map(|(unit, _)| touches[unit.at()])
        .max()
        .unwrap_or(0)
}

fn growth_caps(frame: Frame) -> Vec<u32> {
    let mut caps = Vec::new();
    for earned in frame.earned.. {
        let cap = Growth::Double.cap(earned, frame.parallel);
        caps.push(cap);
        if cap >= frame.parallel {
            break;
        }
    }
    caps
}

/// The domains of one level, numbered as they are met.
struct Numbered<'a> {
    snapshot: &'a Snapshot,
    level: &'a str,
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a> Numbered<'a> {
    fn new(snapshot: &'a Snapshot, level: &'a str) -> Self {
        Self {
            snapshot,
            level,
            numbers: BTreeMap::new(),
        }
    }

    fn of(&mut self, unit: Ix) -> u32 {
        let unit = self.snapshot.unit(unit);
        // A unit without a label of that level is a domain of its own.
        let domain = unit
            .domains
            .get(self.level)
            .map_or(unit.id.as_str(), String::as_str);
        let next = self.numbers.len() as u32;
        *self.numbers.entry(domain).or_insert(next)
    }
}

/// Every level of the failure domains on which these units stand.
fn all_levels(snapshot: &Snapshot, units: &[Ix]) -> Vec<Vec<u32>> {
    let named = units.iter().flat_map(|unit| snapshot.unit(*unit).domains.keys());
    let levels: BTreeSet<&String> = named.collect();
    levels
        .into_iter()
        .map(|level| {
            let mut numbered = Numbered::new(snapshot, level);
            units.iter().map(|unit| numbered.of(*unit)).collect()
        })
        .collect()
}

fn domain_rule(snapshot: &Snapshot, down: &Down, level: &str, limit: u32, units: &[Ix]) -> DomainRule {
    let mut numbered = Numbered::new(snapshot, level);
    let of = units.iter().map(|unit| numbered.of(*unit)).collect();
    let mut already: Vec<u32> = down.iter().map(|unit| numbered.of(unit)).collect();
    already.sort_unstable();
    already.dedup();
    DomainRule { of, limit, already }
}

impl Posed<'_> {
    /// The same problem with what guests ask loosened, so that nothing that is possible breaks it.
    pub(super) fn relaxed(&self, guests: &[HostBudget]) -> Problem {
        let mut budgets = NarrowBudgets::default();
        for (budget, behind) in self.problem.budgets.iter().zip(&self.budgets) {
            match behind {
                BudgetOrigin::Guests(at, _) if guests[*at].loose.is_some() => {
                    if let Some((members, limit)) = &guests[*at].loose {
                        budgets.push_with_costs(members, *limit);
                    }
                }
                BudgetOrigin::Guests(..) | BudgetOrigin::Budget(_) => {
                    let members: Vec<(u32, u32)> = budget.iter().collect();
                    budgets.push_with_costs(&members, budget.limit);
                }
            }
        }
        Problem {
            budgets,
            ..self.problem.clone()
        }
    }

    fn budget(&self, at: usize) -> String {
        self.snapshot
            .describe_budget(self.snapshot.budgets_once_recovered(), at)
    }

    /// Why a unit may not even go down alone.
    pub(super) fn reason(&self, rule: super::waves::Rule) -> Reason {
        use super::waves::Rule;
        match rule {
            Rule::Budget(at) => match &self.budgets[at as usize] {
                BudgetOrigin::Budget(budget) => Reason::new(Code::NeverOkToStop, self.budget(*budget)),
                BudgetOrigin::Guests(_, why) => (**why).clone(),
            },
            Rule::Wide(at) => Reason::new(
                Code::MaxInParallelUsedUp,
                format!(
                    "the units that are already down exhaust {}",
                    self.wide[at as usize]
                ),
            ),
            Rule::Domains(at) => Reason::new(
                Code::MaxDomainsUsedUp,
                format!(
                    "the units that are already down are in as many of level {} as permitted",
                    self.levels[at as usize]
                ),
            ),
        }
    }

    /// Why no plan can have fewer waves, in words.
    pub(super) fn bound(&self, why: &super::waves::BoundReason, units: &[Ix]) -> String {
        use super::waves::BoundReason;
        let name = |at: u32| self.snapshot.unit(units[at as usize]).id.to_string();
        match why {
            BoundReason::NothingToPlace => "nothing to do".to_owned(),
            BoundReason::Clique { units: clique } => {
                let names: Vec<_> = clique.iter().take(6).map(|at| name(*at)).collect();
                let more = if clique.len() > 6 { " …" } else { "" };
                if let [only] = names.as_slice() {
                    return format!("one {} alone: {only}", self.snapshot.terms().unit);
                }
                format!(
                    "{} {}s that pairwise exclude each other: {}{more}",
                    clique.len(),
                    self.snapshot.terms().unit,
                    names.join(" ")
                )
            }
            BoundReason::Budget { index } => match &self.budgets[*index as usize] {
                BudgetOrigin::Budget(budget) => self.budget(*budget),
                BudgetOrigin::Guests(_, why) => why.detail.clone(),
            },
            BoundReason::Wide { index } => format!("{} in each wave", self.wide[*index as usize]),
            BoundReason::Domains { index } => {
                format!("max-domains of level {}", self.levels[*index as usize])
            }
            BoundReason::Eigenvalues { units } => format!(
                "Hoffman's bound on {units} {}s and the pairs of them that may not be down together",
                self.snapshot.terms().unit
            ),
            BoundReason::Exact => "all ways were tried".to_owned(),
            BoundReason::Growth => "waves grow 1, 2, 4 … up to the maximum".to_owned(),
        }
    }
}
