//! Rolling upgrades of OpenStack Ironic.
//!
//! A service is observed from outside ([`facts`]): by its API, by plain SQL, at the balancer. That does not
//! show which release it runs, so stagger records that ([`records`]) and compares the record with the
//! observation ([`running_releases`]). From there a snapshot ([`translate`](fn@translate::translate)), and
//! the target for a release with all reasons against it ([`target`](fn@target::upgrade)), are pure functions.
//! The table of [`releases`] says what may follow what.
//!
//! The other half acts ([`backend`]): a [`visit`] drains a service, changes it by the commands of the
//! [`config`], and undrains it; steps run Ironic's own tools.
//!
//! Start reading at [`facts::IronicFacts`], then [`target`], then [`backend`].

pub mod backend;
pub mod balancer;
pub mod client;
pub mod commands;
pub mod conditions;
pub mod config;
pub mod credentials;
pub mod facts;
pub mod goal;
mod http;
pub mod in_flight;
mod lock;
pub mod observe;
pub mod offered;
mod operator_record;
pub mod planner;
pub mod preflight;
pub mod rabbitmq;
pub mod records;
mod refusal;
pub mod release_code;
pub mod releases;
mod rings;
mod routes;
pub mod running_releases;
pub mod services;
pub mod source;
mod sql;
pub mod target;
pub mod translate;
pub mod versions;
pub mod visit;
