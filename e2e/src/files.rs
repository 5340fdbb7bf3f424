//! Files that a test-bed writes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file.
pub(crate) fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Writes a program.
pub(crate) fn script(path: &Path, text: &str) -> Result<()> {
    put(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
        .with_context(|| format!("making {} executable", path.display()))
}
