//! What one wave uses of the rules for all units: wide budgets, domains, its cap.

use super::conflict_graph::{ConflictGraph, FREE};

/// The wide loads of one wave.
#[derive(Debug, Clone)]
pub(super) struct Room {
    cap: u32,
    units: u32,
    /// One load for each wide budget.
    wide: Vec<u64>,
    /// For each rule on domains the domains touched, ascending, with how many units lie in each.
    touched: Vec<Vec<(u32, u32)>>,
}

impl Room {
    pub(super) fn new(ties: &ConflictGraph, cap: u32) -> Self {
        Self {
            cap,
            units: 0,
            wide: vec![0; ties.wide.len()],
            touched: vec![Vec::new(); ties.domains.len()],
        }
    }

    /// Whether one more unit breaks none of these rules.
    pub(super) fn fits(&self, ties: &ConflictGraph, unit: u32) -> bool {
        if self.units >= self.cap {
            return false;
        }
        for (load, wide) in self.wide.iter().zip(&ties.wide) {
            if load + u64::from(wide.costs[unit as usize]) > wide.limit {
                return false;
            }
        }
        for (touched, rule) in self.touched.iter().zip(&ties.domains) {
            let domain = rule.of[unit as usize];
            if domain != FREE && touched.len() >= rule.limit as usize && find(touched, domain).is_err() {
                return false;
            }
        }
        true
    }

    pub(super) fn add(&mut self, ties: &ConflictGraph, unit: u32) {
        self.units += 1;
        for (load, wide) in self.wide.iter_mut().zip(&ties.wide) {
            *load += u64::from(wide.costs[unit as usize]);
        }
        for (touched, rule) in self.touched.iter_mut().zip(&ties.domains) {
            let domain = rule.of[unit as usize];
            if domain != FREE {
                match find(touched, domain) {
                    Ok(at) => touched[at].1 += 1,
                    Err(at) => touched.insert(at, (domain, 1)),
                }
            }
        }
    }

    /// Takes out a unit that was added.
    pub(super) fn take(&mut self, ties: &ConflictGraph, unit: u32) {
        self.units -= 1;
        for (load, wide) in self.wide.iter_mut().zip(&ties.wide) {
            *load -= u64::from(wide.costs[unit as usize]);
        }
        for (touched, rule) in self.touched.iter_mut().zip(&ties.domains) {
            if let Ok(at) = find(touched, rule.of[unit as usize]) {
                touched[at].1 -= 1;
                if touched[at].1 == 0 {
                    touched.remove(at);
                }
            }
        }
    }

    /// By how much the rules are broken: units over the cap, wide loads over their limits (in units of the
    /// largest cost, so that a budget in bytes does not dominate), too many domains.
    pub(super) fn excess(&self, ties: &ConflictGraph) -> u64 {
        let mut excess = u64::from(self.units.saturating_sub(self.cap));
        for (&load, wide) in self.wide.iter().zip(&ties.wide) {
            excess += over(load, wide.limit, wide.largest);
        }
        for (touched, rule) in self.touched.iter().zip(&ties.domains) {
            excess += (touched.len() as u64).saturating_sub(u64::from(rule.limit));
        }
        excess
    }

    /// What one more unit would add to the excess.
    pub(super) fn added_excess(&self, ties: &ConflictGraph, unit: u32) -> u64 {
        let mut pain = u64::from(self.units >= self.cap);
        for (&load, wide) in self.wide.iter().zip(&ties.wide) {
            let with = load + u64::from(wide.costs[unit as usize]);
            pain += over(with, wide.limit, wide.largest) - over(load, wide.limit, wide.largest);
        }
        for (touched, rule) in self.touched.iter().zip(&ties.domains) {
            let domain = rule.of[unit as usize];
            pain += u64::from(
                domain != FREE && touched.len() >= rule.limit as usize && find(touched, domain).is_err(),
            );
        }
        pain
    }

    /// What taking out a unit that was added would take off the excess.
    pub(super) fn removed_excess(&self, ties: &ConflictGraph, unit: u32) -> u64 {
        let mut relief = u64::from(self.units > self.cap);
        for (&load, wide) in self.wide.iter().zip(&ties.wide) {
            let without = load - u64::from(wide.costs[unit as usize]);
            relief += over(load, wide.limit, wide.largest) - over(without, wide.limit, wide.largest);
        }
        for (touched, rule) in self.touched.iter().zip(&ties.domains) {
            let alone = find(touched, rule.of[unit as usize]).is_ok_and(|at| touched[at].1 == 1);
            relief += u64::from(alone && touched.len() > rule.limit as usize);
        }
        relief
    }
}

fn over(load: u64, limit: u64, largest: u32) -> u64 {
    load.saturating_sub(limit).div_ceil(u64::from(largest))
}

fn find(touched: &[(u32, u32)], domain: u32) -> Result<usize, usize> {
    touched.binary_search_by_key(&domain, |&(domain, _)| domain)
}
