//! Ceph clusters on plain hosts.
//!
//! This half of the backend only looks: it asks a cluster ([`api`]), reads what it says ([`facts`]),
//! turns that into a snapshot ([`translate`](fn@translate::translate)), says what an upgrade takes
//! ([`target`](fn@target::target)), and answers whether a set of OSDs may stop ([`oktostop`]).
//!
//! Everything but [`api`] and [`facts::collect`](fn@facts::collect) is a pure function of facts.
//! Start reading at [`facts::Facts`], then [`translate`].

pub mod api;
pub mod facts;
pub mod going_back;
pub mod oktostop;
pub mod target;
pub mod translate;
