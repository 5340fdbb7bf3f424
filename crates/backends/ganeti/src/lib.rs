//! Ganeti clusters: what they are, how their maintenance is planned, and how it is carried out.
//!
//! One half looks ([`source`], [`planner`]). A [`model::GanetiCluster`] is read by one of the [`loaders`]; what a cluster that
//! answers tells beside that are its [`facts`]. From there a snapshot ([`translate`](fn@translate::snapshot)), which nodes are
//! meant ([`selection`]) and the way to the [`goal`] ([`target`](fn@target::reboot)) are pure functions.
//!
//! The other half acts ([`backend`]), over Ganeti's remote API ([`rapi`]). A reboot is a visit: a node is entered (its
//! instances go to where they are safe), changed (it comes back with another boot id), and left (its disks are in sync again,
//! its instances are back). What is to be done next is always a pure function of what was observed, and is carried out by jobs
//! ([`visit`]). Job filters do three things here ([`rapi::filters`]). They keep other people's jobs waiting while nodes are away
//! ([`guards`]), they refuse jobs of a process that is no longer the one writer ([`rapi::fence`]), and they are where that one
//! writer's lock is kept ([`lock`]). What runs have left in a cluster is told and given back by [`recovery`], without any
//! journal.
//!
//! [`hroller`] speaks as Ganeti's own tool of that name does. The feature `generated` adds clusters from a seed.
//!
//! Start reading at [`source::ClusterFacts`], then [`planner`], then [`backend`], then [`visit`].

pub mod backend;
pub mod commands;
pub mod config;
pub mod downtime;
pub mod drain_scope;
pub mod facts;
pub mod goal;
pub mod guards;
pub mod hold;
pub mod hroller;
pub mod ignored_tags;
pub mod loaders;
pub mod lock;
pub mod memory;
pub mod model;
pub mod planner;
pub mod preflight;
pub mod rapi;
pub mod recovery;
pub mod release;
pub mod selection;
pub mod source;
pub mod takeover;
pub mod target;
pub mod translate;
pub mod visit;
