//! Policies for instances.

use std::fmt;

use super::Template;

words!(
    /// A resource that a policy bounds for one instance, in the order of the text format.
    SpecKey {
        /// Memory in MiB.
        Memory = "memory-size",
        /// Virtual processors.
        Cpus = "cpu-count",
        /// A disk in MiB.
        DiskSize = "disk-size",
        /// Number of disks.
        DiskCount = "disk-count",
        /// Number of network interfaces.
        NicCount = "nic-count",
        /// Spindles.
        Spindles = "spindle-use",
    }
);

/// A size for each [`SpecKey`], in its order.
pub type Spec = [u64; 6];

/// What instances may be, and how full nodes may get.
#[derive(Debug, Clone, PartialEq)]
pub struct Ipolicy {
    /// The usual instance.
    pub standard: Spec,
    /// Ranges: an instance has to fit one of them.
    pub ranges: Vec<(Spec, Spec)>,
    /// The templates that may be used.
    pub templates: Vec<Template>,
    /// Virtual processors for each processor of a node.
    pub vcpu_ratio: f64,
    /// Instances' spindles for each spindle of a node.
    pub spindle_ratio: f64,
}

impl Ipolicy {
    /// What htools take where a cluster says nothing (Ganeti's `constants.py`, `IPOLICY_DEFAULTS`).
    pub fn of_ganeti() -> Self {
        let least = [128, 1, 1024, 1, 1, 1];
        Self {
            standard: least,
            ranges: vec![(least, [32_768, 8, 1_048_576, 16, 8, 12])],
            templates: vec![
                Template::Diskless,
                Template::File,
                Template::SharedFile,
                Template::Plain,
                Template::BlockDev,
                Template::Drbd,
                Template::Rbd,
                Template::Ext,
                Template::Gluster,
            ],
            vcpu_ratio: 4.0,
            spindle_ratio: 32.0,
        }
    }
}
