//! Budgets as text.

use super::{BudgetViolation, Budgets, Snapshot};

impl Snapshot {
    /// A budget in words: `placement group of pool rbd 2.1f (osd.0 osd.7 osd.9): 1 may be down`.
    /// It is one of `budgets`, over these units.
    pub fn describe_budget(&self, budgets: &Budgets, budget: usize) -> String {
        let mut members: Vec<_> = budgets.members(budget).map(|(unit, _)| unit).collect();
        members.sort_unstable();
        let (shown, rest) = members.split_at(members.len().min(12));
        let names: Vec<_> = shown.iter().map(|unit| self.unit(*unit).id.as_str()).collect();
        let more = if rest.is_empty() {
            String::new()
        } else {
            format!(" and {} more", rest.len())
        };
        let may = match budgets.limit(budget) {
            0 => "none may be down".to_owned(),
            limit => format!("{limit} may be down"),
        };
        let group = budgets.group(budget);
        let name = budgets.name(budget);
        let label = if name.is_empty() {
            group.to_owned()
        } else {
            format!("{group} {name}")
        };
        format!("{label} ({}{more}): {may}", names.join(" "))
    }

    /// In words, what breaks one of `budgets`.
    pub fn describe_violation(&self, budgets: &Budgets, violation: &BudgetViolation) -> String {
        let BudgetViolation {
            budget: at,
            down,
            adds,
            limit: _,
        } = violation;
        let already = if *down > 0 {
            format!(", {down} down already")
        } else {
            String::new()
        };
        format!(
            "{}{already}, and this would take down {adds} more",
            self.describe_budget(budgets, *at)
        )
    }
}
