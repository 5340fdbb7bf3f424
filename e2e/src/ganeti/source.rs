//! Ganeti's own source, as Debian has it: unpacked in the cache, for tests of Ganeti's that are run at test time. Nothing of it
//! is in this checkout.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::command::{run, say};
use crate::roots::build::mirror;

/// What it is called in Debian's pool, and the digest in its description there (`ganeti_3.0.2-3.dsc`).
const ARCHIVE: &str = "ganeti_3.0.2.orig.tar.gz";
const SHA256: &str = "66864ffe105931b2344a562cedc7476a23e3dd2f3a20565388363e7f5aa95761";
/// The folder in it.
const FOLDER: &str = "ganeti-3.0.2";

/// Where it is, fetched if it is not there yet.
///
/// # Errors
/// It cannot be fetched, or is another one.
pub fn ensure() -> Result<PathBuf> {
    let base = cache::dir()?.join("ganeti-source");
    let unpacked = base.join(FOLDER);
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    let scratch = tempfile::tempdir_in(cache::dir()?).context("making a folder")?;
    let archive = scratch.path().join(ARCHIVE);
    let url = format!("{}/pool/main/g/ganeti/{ARCHIVE}", mirror()?);
    say(format!("source of Ganeti: {url}"));
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--fail",
        "--location",
        "--retry",
        "3",
        "--output",
    ]);
    run(curl.arg(&archive).arg(&url))?;
    let bytes = fs::read(&archive).with_context(|| format!("reading {}", archive.display()))?;
    let mut digest = String::new();
    for byte in Sha256::digest(&bytes) {
        write!(digest, "{byte:02x}")?;
    }
    ensure!(
        digest == SHA256,
        "{url} has the SHA-256 digest {digest}, and {SHA256} is expected"
    );
    run(Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(scratch.path()))?;
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    // Whole or not at all, however this ends. Another test may have been faster.
    if let Err(error) = fs::rename(scratch.path().join(FOLDER), &unpacked) {
        ensure!(unpacked.is_dir(), "making {}: {error}", unpacked.display());
    }
    Ok(unpacked)
}
