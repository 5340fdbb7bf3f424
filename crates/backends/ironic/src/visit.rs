//! Visits of services, and steps that are taken once for all of them.
//!
//! A visit takes a service out of service, changes it by the commands of the [`config`](crate::config), and gives it back
//! (`perform`, `drain`, `divert`, `restart`). Steps run Ironic's own tools and judge them by more than their exit codes ([`migrate`]).

pub(crate) mod divert;
mod drain;
pub mod migrate;
pub(crate) mod perform;
mod restart;
pub mod steps;
