//! Disk templates.

use std::fmt;

use stagger_core::model::Storage;

words!(
    /// How the disks of an instance are stored.
    Template {
        /// It has none.
        Diskless = "diskless",
        /// Files on its node.
        File = "file",
        /// Files on storage that all nodes share.
        SharedFile = "sharedfile",
        /// Logical volumes of its node.
        Plain = "plain",
        /// Block devices that all nodes share.
        BlockDev = "blockdev",
        /// Logical volumes of two nodes.
        Drbd = "drbd",
        /// Images in a Ceph pool.
        Rbd = "rbd",
        /// A provider of others.
        Ext = "ext",
        /// Files on Gluster.
        Gluster = "gluster",
    }
);

impl Template {
    /// Where disks of this template are.
    pub fn storage(self, has_secondary: bool) -> Storage {
        match self {
            Self::Drbd if has_secondary => Storage::Copied,
            Self::Drbd | Self::Plain | Self::File => Storage::Local,
            Self::Diskless | Self::SharedFile | Self::BlockDev | Self::Rbd | Self::Ext | Self::Gluster => {
                Storage::Shared
            }
        }
    }
}
