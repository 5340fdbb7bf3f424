//! The facts half of the Ceph backend on recorded answers, on maps made at random, and on garbage.
#![expect(
    clippy::unwrap_used,
    clippy::cast_sign_loss,
    reason = "helpers of tests may fail by panicking, and shares of lengths are not negative"
)]

mod absent;
mod api;
mod but_for;
mod cephadm;
mod cluster;
mod executor;
mod facts;
mod garbage;
mod guards;
mod hosts;
mod interruptions;
mod keys;
mod laws;
mod oktostop;
mod planner;
mod reboot_commands;
mod reboots;
mod recovering;
mod saved;
mod stretch;
mod target;
mod translate;
