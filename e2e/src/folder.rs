//! Folders of clusters in the cache. Each is locked by the program whose cluster it is, so that one
//! that a dead machine left behind is known by nobody holding its lock, and goes.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::command::{run, say};

/// A new folder for a cluster. The lock is held for as long as this lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes one, after the folders of ended clusters were removed. Whose name begins with `prefix`, and
    /// which may take so many bytes of the disk.
    ///
    /// # Errors
    /// The disk has less room than that, or the folder cannot be made.
    pub fn make(prefix: &str, needed: u64) -> Result<Self> {
        let clusters = cache::dir()?.join("clusters");
        fs::create_dir_all(&clusters).with_context(|| format!("making {}", clusters.display()))?;
        let made = Self::among(&clusters, prefix)?;
        let said = run(Command::new("df")
            .args(["--output=avail", "--block-size=1"])
            .arg(&clusters))?;
        let last = said.lines().last().unwrap_or_default().trim();
        let free: u64 = last.parse().with_context(|| format!("df printed {said:?}"))?;
        if free < needed {
            fs::remove_dir_all(&made.path).ok();
            bail!(
                "the disk of {} has {} MB left, and this cluster may take {}: \
                 make room, or set STAGGER_CACHE to a folder on another disk",
                clusters.display(),
                free / 1_000_000,
                needed / 1_000_000
            );
        }
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn among(clusters: &Path, prefix: &str) -> Result<Self> {
        // Nobody looks at a folder between its making and its locking.
        let all = File::open(clusters).with_context(|| format!("opening {}", clusters.display()))?;
        all.lock()
            .with_context(|| format!("locking {}", clusters.display()))?;
        sweep(clusters)?;
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(clusters)
            .context("making a cluster folder")?;
        let lock = File::open(folder.path()).context("opening the cluster folder")?;
        lock.lock().context("locking the cluster folder")?;
        let path = folder.keep(); // the sandbox removes it
        Ok(Self { path, _lock: lock })
    }
}

/// Removes folders that nobody holds and nobody asked to keep.
fn sweep(clusters: &Path) -> Result<()> {
    for entry in fs::read_dir(clusters).with_context(|| format!("reading {}", clusters.display()))? {
        let path = entry?.path();
        if path.join("keep").exists() {
            continue;
        }
        let Ok(folder) = File::open(&path) else {
            continue; // it went just now
        };
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error).context("looking at a lock"),
            Ok(()) => {}
        }
        say(format!("removing {}, which its owner did not", path.display()));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn what_nobody_holds_goes_and_the_rest_stays() -> Result<()> {
        let base = tempfile::tempdir()?;
        let held = Folder::among(base.path(), "a-")?;
        let left = Folder::among(base.path(), "a-")?.path; // its lock is gone with it
        let kept = Folder::among(base.path(), "a-")?.path;
        fs::write(kept.join("keep"), "")?;
        ensure!(!left.exists(), "the third sweeps the second away");
        let left = base.path().join("ceph-left");
        fs::create_dir(&left)?;
        fs::write(left.join("block"), "much")?;
        let next = Folder::among(base.path(), "a-")?;
        ensure!(!left.exists() && held.path.exists() && kept.exists() && next.path.exists());
        Ok(())
    }
}
