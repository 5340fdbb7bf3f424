//! PodDisruptionBudgets over OSDs, and the order in which they change.

use std::collections::{BTreeMap, BTreeSet};

use crate::names;

/// Which OSDs a budget is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selects {
    /// All but these, which are down and hold nothing that others would miss.
    AllBut(BTreeSet<u32>),
    /// Those of one failure domain.
    Domain(String),
    /// Those whose Deployment says nothing of its failure domain.
    Unplaced,
}

/// A PodDisruptionBudget that there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// The level of failure domains that it is about.
    pub level: String,
    /// Which OSDs.
    pub selects: Selects,
    /// How many of them may be unavailable.
    pub max_unavailable: u32,
}

impl Budget {
    /// The default one: one OSD may go, anywhere.
    pub(super) fn over_all(without: BTreeSet<u32>) -> Self {
        Self {
            name: names::DEFAULT_BUDGET.to_owned(),
            level: String::new(),
            selects: Selects::AllBut(without),
            max_unavailable: 1,
        }
    }

    /// The default one, closed: nothing may go, anywhere.
    pub(super) fn closed() -> Self {
        Self {
            max_unavailable: 0,
            ..Self::over_all(BTreeSet::new())
        }
    }

    /// One that lets nothing go.
    pub(super) fn blocking(level: &str, selects: Selects) -> Self {
        let name = match &selects {
            Selects::Domain(domain) => names::blocking_budget(level, domain),
            // No domain of CRUSH has an empty name.
            Selects::Unplaced | Selects::AllBut(_) => names::blocking_budget(level, ""),
        };
        Self {
            name,
            level: level.to_owned(),
            selects,
            max_unavailable: 0,
        }
    }

    /// Whether it is over that OSD, in that failure domain of its level.
    pub fn covers(&self, osd: u32, domain: Option<&str>) -> bool {
        match &self.selects {
            Selects::AllBut(without) => !without.contains(&osd),
            Selects::Domain(own) => domain == Some(own),
            Selects::Unplaced => domain.is_none(),
        }
    }
}

/// One change of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is made, or made as it should be.
    Apply(Budget),
    /// It is removed.
    Delete(String),
}

/// What brings the budgets that `there` are to those `wanted`: first all that are missing or differ, then
/// away with the rest. So the blocking ones exist before the default one goes, and it before they go.
pub fn steps(there: &BTreeMap<String, Budget>, wanted: &[Budget]) -> Vec<Step> {
    let apply = wanted
        .iter()
        .filter(|budget| there.get(&budget.name) != Some(budget))
        .cloned()
        .map(Step::Apply);
    let names: BTreeSet<&String> = wanted.iter().map(|budget| &budget.name).collect();
    let delete = there
        .keys()
        .filter(|name| !names.contains(name))
        .cloned()
        .map(Step::Delete);
    apply.chain(delete).collect()
}
