//! Scenarios and random worlds, played by the real driver.

mod crash;
mod determinism;
mod playing;
mod rehearse;
mod scenarios;
mod truth;
