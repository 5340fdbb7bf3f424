//! Which pods may be evicted: [`drains`] decides, PodDisruptionBudgets enforce it.

pub(crate) mod budgets;
pub mod drains;
pub(crate) mod evictions;
pub(crate) mod state_map;
