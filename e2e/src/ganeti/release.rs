//! The releases of Ganeti that are run here, and which packages of Debian have them.

/// A release of Ganeti that is run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 3.0, of Debian 12.
    V3_0,
    /// 3.1, of Debian 13.
    V3_1,
}

impl Release {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::V3_0, Self::V3_1];

    /// Its number: `3.0`.
    pub fn number(self) -> &'static str {
        match self {
            Self::V3_0 => "3.0",
            Self::V3_1 => "3.1",
        }
    }

    /// The Debian release that has it.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::V3_0 => "bookworm",
            Self::V3_1 => "trixie",
        }
    }

    /// Ganeti itself, its htools, and what nodes need.
    pub(super) fn packages(self) -> Vec<&'static str> {
        let own = match self {
            Self::V3_0 => ["ganeti-3.0", "ganeti-htools-3.0"],
            Self::V3_1 => ["ganeti-3.1", "ganeti-htools-3.1"],
        };
        let mut packages = vec!["ganeti"];
        packages.extend(own);
        packages.extend(NEEDED);
        packages
    }

    /// The package whose version is the root's.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::V3_0 => "ganeti-3.0",
            Self::V3_1 => "ganeti-3.1",
        }
    }
}

/// What its nodes need of a machine: ssh between them, and the tools that move the cluster's address.
const NEEDED: [&str; 5] = ["openssh-server", "iproute2", "iputils-arping", "fping", "curl"];
