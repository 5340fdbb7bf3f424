//! Changes to daemons: Ceph's facts and guards as on plain hosts, daemons as Deployments.

pub mod backend;
pub mod beside;
pub(crate) mod diagnostics;
pub mod goal;
pub(crate) mod handback;
pub(crate) mod image_release;
pub mod managed_fields;
pub mod memory;
pub mod migrations;
pub mod rollout;
pub(crate) mod skip_checks;
pub mod snapshot;
pub mod wave_exposure;
