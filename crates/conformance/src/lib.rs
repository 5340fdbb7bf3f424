//! What every backend and every store of journals has to pass.
//!
//! A new backend is written against this: [`lock`] has the laws of [`Lock`](stagger_engine::cluster::Lock), [`source`] that of
//! [`Source`](stagger_engine::cluster::Source), [`planner`] those of [`Planner`](stagger_engine::cluster::Planner), [`executor`] those
//! of [`Executor`](stagger_engine::cluster::Executor), [`guards`] those of what a run takes from a cluster for a time, [`store`]
//! those of [`JournalStore`](stagger_engine::store::JournalStore), and [`process`] carries a run out by one process after another,
//! of which each may die at any touch of its journal ([`fuse`]). A backend brings what is its own: a double of its cluster, and
//! what is well at the end.
//!
//! Time does not pass by waiting ([`clock`], [`hasty`]): a gate that holds for minutes takes milliseconds here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "it is part of tests, and a test fails by a panic"
)]

pub mod clock;
pub mod executor;
pub mod fuse;
pub mod guards;
pub mod hasty;
pub mod listener;
pub mod lock;
pub mod planner;
pub mod process;
pub mod source;
pub mod store;
