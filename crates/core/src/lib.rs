//! stagger.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod plan;
