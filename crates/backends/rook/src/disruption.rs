//! Which pods may be evicted: decided by [`drains`], held by PodDisruptionBudgets.

pub(crate) mod budgets;
pub mod drains;
pub(crate) mod evictions;
pub(crate) mod state_map;
