//! Installs a Debian package of stagger in a Debian of its own, tries it, and removes it: `try-package FILE`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let file: PathBuf = std::env::args_os().nth(1).context("try-package FILE")?.into();
    stagger_e2e::debian::try_package(&file)
}
