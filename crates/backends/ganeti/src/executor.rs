//! What talks to Ganeti's RAPI, and carries plans out.
//!
//! A reboot is a visit: a node is entered (its instances go to where they are safe), changed (it comes back
//! with another boot id), and left (its disks are in sync again, its instances are back). What is to be
//! done next is always a pure function of what was observed ([`visit`]); [`perform`] carries it out by jobs.
//!
//! Job filters do three things here ([`filters`]). They keep other people's jobs waiting while nodes are
//! away ([`guards`]), they refuse jobs of a process that is no longer the one writer ([`fence`]), and they
//! are where that one writer's lock is kept ([`lock`]).
//!
//! What runs have left in a cluster is told by [`leftovers`], and given back by [`recovery`], without any journal.
//!
//! Start reading at [`backend`], then [`visit`], then [`client`].

pub mod backend;
pub mod client;
pub mod commands;
pub mod fence;
pub mod filters;
pub mod fingerprint;
pub mod guards;
pub mod jobs;
pub mod leftovers;
pub mod limits;
pub mod lock;
pub mod master;
mod moves;
mod observe;
mod pacer;
pub mod perform;
pub mod reason;
pub mod recovery;
pub mod tls;
pub mod visit;
pub mod visitor;
pub mod wire;
