//! Ceph clusters on plain hosts.
//!
//! One half observes ([`source`], [`planner`]): it queries a cluster ([`api`]), parses the answers
//! ([`facts`]), translates them into a snapshot ([`translate`](fn@translate::translate)), compiles an upgrade
//! into a target ([`target`](fn@target::target)), and answers whether a set of OSDs may stop ([`oktostop`]).
//! Everything there but [`api`] and [`facts::collect`](fn@facts::collect) is a pure function of facts.
//!
//! The other half acts ([`backend`]): daemons on hosts (`effects`), guards, and the lock in the cluster, all
//! as [`config`] says.
//!
//! Start reading at [`facts::CephFacts`], then [`translate`], then [`backend`].

pub mod api;
pub mod backend;
pub mod config;
mod conversion;
mod effects;
pub mod facts;
pub mod guards;
pub mod health_codes;
mod host_daemons;
pub mod host_task;
mod images;
mod lock;
pub mod memory;
mod mon_release;
pub mod offered;
pub mod oktostop;
pub mod oracle;
mod oracle_override;
pub mod planner;
pub mod preflight;
pub mod profile;
pub mod reboot;
mod restart;
pub mod risks;
pub mod rollback_table;
pub mod software;
pub mod software_remarks;
pub mod source;
pub mod target;
pub mod translate;
