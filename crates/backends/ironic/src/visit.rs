//! Visits of services, and steps that are done once for all of them.
//!
//! A visit drains a service, changes it by the commands of the [`config`](crate::config), and undrains it
//! (`perform`, `drain`, `divert`, `restart`). Steps run Ironic's own tools and evaluate more than their exit
//! codes ([`migrate`]).

pub(crate) mod divert;
mod drain;
pub mod migrate;
pub(crate) mod perform;
mod restart;
pub mod steps;
