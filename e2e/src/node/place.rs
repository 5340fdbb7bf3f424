//! Where a volume is, and whether it may be written there.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Whether what is mounted may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Write,
    Read,
}

impl Access {
    pub(super) fn word(self) -> String {
        match self {
            Self::Write => "rw".to_owned(),
            Self::Read => "ro".to_owned(),
        }
    }
}

/// Where a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) access: Access,
}

/// Where the volumes of a pod are, by name.
pub(super) type Places = BTreeMap<String, Place>;
