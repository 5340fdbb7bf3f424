//! Room on the disk, looked at before anything begins: a cluster on a full disk stands still, and says so in a place where nobody looks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::sys::statvfs::statvfs;

use crate::report::{cache, target_folder};

const GB: u64 = 1 << 30;

/// For a build, of which 7.6 GB were measured, and for its lints and pages, which are built beside it.
const BUILT: u64 = 16 * GB;
/// For two clusters side by side, and roots that are built meanwhile. Of both together 29 GB were once too little.
const CLUSTERS: u64 = 20 * GB;

/// Refuses to begin tests on real clusters where they would not come to their end.
pub(crate) fn ensure_room() -> Result<()> {
    let (target, cache) = (target_folder(), cache()?);
    for folder in [&target, &cache] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let to_build = BUILT.saturating_sub(size(&target.join("debug/deps")));
    let (of_target, of_cache) = (Disk::of(&target)?, Disk::of(&cache)?);
    if of_target.id == of_cache.id {
        return of_target.has(to_build + CLUSTERS, &[target, cache]);
    }
    of_target.has(to_build, &[target])?;
    of_cache.has(CLUSTERS, &[cache])
}

/// The file system of a folder.
struct Disk {
    /// What tells it from another.
    id: u64,
    /// The bytes on it that are free.
    free: u64,
}

impl Disk {
    fn of(folder: &Path) -> Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let tried = || format!("ask how much room there is in {}", folder.display());
        let found = statvfs(folder).with_context(tried)?;
        Ok(Self {
            id: fs::metadata(folder).with_context(tried)?.dev(),
            free: found.blocks_available() * found.fragment_size(),
        })
    }

    fn has(&self, needed: u64, folders: &[PathBuf]) -> Result<()> {
        if self.free >= needed {
            return Ok(());
        }
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        bail!(
            "the tests need {} GiB on the disk of {}, and {} GiB are free: remove what older builds have left (`cargo clean`), or \
             set CARGO_TARGET_DIR or STAGGER_CACHE to another disk",
            needed.div_ceil(GB),
            folders.join(" and "),
            self.free / GB
        )
    }
}

/// The bytes of the files in a folder; none, where it cannot be read.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_refused_with_what_is_needed_and_what_there_is() {
        let disk = Disk { id: 1, free: 5 * GB };
        disk.has(5 * GB, &[PathBuf::from("/a")]).unwrap();
        let refused = disk
            .has(5 * GB + 1, &[PathBuf::from("/a"), PathBuf::from("/b")])
            .unwrap_err();
        let told = refused.to_string();
        assert!(
            told.starts_with("the tests need 6 GiB on the disk of /a and /b, and 5 GiB are free"),
            "{told}"
        );
    }

    #[test]
    fn room_is_asked_of_folders_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), [0; 1000]).unwrap();
        assert_eq!(size(folder.path()), 1000);
        assert!(Disk::of(folder.path()).unwrap().free > 0);
        assert!(Disk::of(&folder.path().join("not")).is_err());
    }
}
