//! Throwaway real clusters on one machine.
//!
//! A test cluster here is the real software: Debian's own packages of it, several releases side by
//! side, in [`roots`] kept in a [`cache`] outside the checkout. Each cluster lives in a [`sandbox`] of
//! namespaces that ends with the process that made it, however that one ends. Nothing listens outside,
//! nothing is left behind, and several clusters run at once because each has its own loopback.
//!
//! Tests that need root or Ceph are ignored by default, and `cargo xtask test` runs them.
//!
//! Start reading at [`ceph::Cluster::boot`], [`ganeti::Cluster::boot`] or [`ironic::Cluster::boot`]; hold one open by
//! hand with the binaries `ceph-lab`, `ganeti-lab` and `ironic-lab`.

pub mod browser;
pub mod cache;
pub mod case;
pub mod ceph;
pub mod ceph_in_pods;
pub mod cephadm_hosts;
mod certificates;
pub mod command;
pub mod debian;
pub mod fake_ceph;
mod files;
pub mod folder;
pub mod ganeti;
pub mod hosts;
pub mod ironic;
pub mod kubernetes;
pub mod load;
pub mod loop_devices;
mod machine;
pub mod node;
pub mod oracle;
pub mod package_hosts;
pub mod rados;
pub mod rook;
pub mod rook_cluster;
pub mod rook_program;
pub mod roots;
pub mod sandbox;
pub mod second_build;
pub mod stagger;
pub mod stagger_image;
pub mod terminal;
pub mod verify;
