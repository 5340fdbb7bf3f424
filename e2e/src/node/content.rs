//! What the files of a volume are to hold.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// What a file is to hold, and its mode if it has one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: Option<i32>,
}

impl Content {
    /// In a file with the mode of its volume.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, mode: None }
    }
}

/// What files are to hold, by their path in a volume.
pub(super) type Files = BTreeMap<String, Content>;

/// Writes files, with this mode where they have none of their own.
pub(super) fn write(folder: &Path, files: &Files, mode: u32) -> std::io::Result<()> {
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true).mode(0o755);
    folders.create(folder)?;
    for (path, content) in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            folders.create(parent)?;
        }
        let own = content.mode.and_then(|mode| u32::try_from(mode).ok());
        fs::write(&path, &content.bytes)?;
        // Whatever the mask of this process.
        fs::set_permissions(&path, Permissions::from_mode(own.unwrap_or(mode)))?;
    }
    Ok(())
}
