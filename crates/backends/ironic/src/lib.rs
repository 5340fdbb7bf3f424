//! OpenStack Ironic, carried from one release to the next while it serves.
//!
//! A service is looked at from outside ([`facts`]): by its API, by plain SQL, at the balancer. What it runs cannot be
//! seen so, and is written down by us ([`records`]) and held against what can ([`runs`]). From there a snapshot
//! ([`translate`](fn@translate::translate)), and the way to a release with all reasons against it
//! ([`target`](fn@target::upgrade)), are pure functions. The table of [`releases`] says what may follow what.
//!
//! The other half acts ([`backend`]): a [`visit`] drains a service, changes it by the commands of the [`config`], and gives it
//! back; steps run Ironic's own tools.
//!
//! Start reading at [`facts::IronicFacts`], then [`target`], then [`backend`].

pub mod backend;
pub mod balancer;
pub mod client;
pub mod code;
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
pub mod releases;
mod rings;
mod routes;
pub mod runs;
pub mod services;
pub mod source;
mod sql;
pub mod target;
pub mod translate;
pub mod versions;
pub mod visit;
