//! Scenarios and random worlds, played by the real driver.

mod crash;
mod determinism;
mod laws;
mod playing;
mod rehearse;
mod scenarios;
mod truth;
