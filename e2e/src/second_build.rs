//! A build of Ceph that calls itself by the next version, for an update to go to: Rook takes no older release than 19,
//! and of those here that leaves one.
//!
//! It is the same code, so nothing is migrated. Only the files that name their version are written anew, as a layer
//! over the root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cache;
use crate::command::{run, say};
use crate::roots::Root;

/// What the programs that a test asks say of themselves.
const ASKED: [&str; 3] = ["ceph-mon", "ceph-osd", "ceph"];

/// Shows the layer over its root and runs a program in it. Arguments: where to mount it, the layer, the root, the words.
const RUN: &str = r#"
set -eu
place=$1 layer=$2 root=$3; shift 3
mount -t overlay -o "lowerdir=$layer:$root" overlay "$place"
mount -t proc proc "$place/proc"
exec chroot "$place" "$@"
"#;

/// The second build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondBuild {
    /// What it calls itself: `20.2.5`.
    pub version: String,
    /// The folder to lay over the root.
    pub layer: PathBuf,
}

impl SecondBuild {
    /// That of a root, from the cache, where it is made once for each version.
    ///
    /// # Errors
    /// No file names the version, or the programs still call themselves by the old one.
    pub fn of(root: &Root) -> Result<Self> {
        let old = root.ceph_version();
        let new = next(old)?;
        let base = cache::dir()?.join("ceph-second-builds");
        let this = Self {
            layer: base.join(format!("{}-as-{new}", root.version)),
            version: new,
        };
        if this.layer.is_dir() {
            return Ok(this);
        }
        say(format!("making a Ceph {} of Ceph {old}", this.version));
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        let made = tempfile::tempdir_in(&base).context("making a folder for a second build")?;
        let layer = made.path().join("layer");
        fs::create_dir(&layer).context("making a layer")?;
        let mut count = 0;
        for path in files(root)? {
            let from = root.path.join(&path);
            // Documents were left out of the root.
            let meta = fs::symlink_metadata(&from).ok();
            let Some(meta) = meta.filter(fs::Metadata::is_file) else {
                continue;
            };
            let mut bytes = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
            if rename(&mut bytes, old, &this.version) == 0 {
                continue;
            }
            let to = layer.join(&path);
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
            }
            fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
            fs::set_permissions(&to, Permissions::from_mode(meta.permissions().mode()))
                .with_context(|| format!("giving {} its mode", to.display()))?;
            count += 1;
        }
        ensure!(count > 0, "no file of Ceph {old} names its version");
        let place = made.path().join("root");
        fs::create_dir(&place).context("making a place for the root")?;
        for program in ASKED {
            let said = run(Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c", RUN, "run"])
                .args([&place, &layer, &root.path])
                .args([program, "--version"]))?;
            ensure!(
                said.contains(&format!(" {} ", this.version)),
                "{program} of the second build says {said}"
            );
        }
        match fs::rename(&layer, &this.layer) {
            // Somebody else was quicker.
            Err(_) if this.layer.is_dir() => Ok(this),
            Err(error) => bail!("moving {} into place: {error}", this.layer.display()),
            Ok(()) => Ok(this),
        }
    }
}

/// The version after that, of the same length.
fn next(version: &str) -> Result<String> {
    let (start, last) = version
        .rsplit_once('.')
        .with_context(|| format!("{version} is no version"))?;
    match last.parse::<u8>() {
        Ok(last @ 0..9) => Ok(format!("{start}.{}", last + 1)),
        Ok(_) | Err(_) => bail!("there is no version after {version} that is as long"),
    }
}

/// The paths of all files of Ceph's packages, without the slash before them.
fn files(root: &Root) -> Result<Vec<PathBuf>> {
    let folder = root.path.join("var/lib/dpkg/info");
    let packages = root.packages()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.context("reading what dpkg knows")?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".list"));
        let package = name.and_then(|name| name.split(':').next());
        if package.and_then(|package| packages.get(package)) != Some(&root.version) {
            continue;
        }
        let list = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        files.extend(
            list.lines()
                .map(|line| Path::new(line.trim_start_matches('/')).to_owned()),
        );
    }
    Ok(files)
}

/// Writes the new version wherever the old one stands, also where a compiler has cut it into the operands of two
/// instructions; gives how often. Both are of the same length.
fn rename(bytes: &mut [u8], old: &str, new: &str) -> usize {
    /// The longest gap between two such operands.
    const GAP: usize = 14;
    let (old, new) = (old.as_bytes(), new.as_bytes());
    // `20.2` and `.4`: only the last digit is another.
    let (start, end) = old.split_at(old.len() - 2);
    let is_program = bytes.starts_with(b"\x7fELF");
    let mut count = 0;
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], start) {
        let after = at + found + start.len();
        at = after;
        let gap = if is_program { GAP } else { 0 };
        for skipped in 0..=gap {
            let place = after + skipped;
            if bytes[place.min(bytes.len())..].starts_with(end) {
                bytes[place + 1] = new[new.len() - 1];
                count += 1;
                break;
            }
            // A digit or the rest of another version: no operand of the same.
            let between = bytes.get(place);
            if between.is_none_or(|byte| byte.is_ascii_digit() || (skipped == 0 && *byte == b'.')) {
                break;
            }
        }
    }
    count
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(text: &[u8]) -> (Vec<u8>, usize) {
        let mut bytes = text.to_vec();
        let count = rename(&mut bytes, "20.2.4", "20.2.5");
        (bytes, count)
    }

    #[test]
    fn a_version_is_renamed_also_where_it_is_cut() {
        for (text, expected, count) in [
            (&b"x 20.2.4 and 20.2.4"[..], &b"x 20.2.5 and 20.2.5"[..], 2),
            (b"\x7fELF 20.2.4", b"\x7fELF 20.2.5", 1),
            (
                b"\x7fELF 20.2\xc7\x44\x24\x04.4",
                b"\x7fELF 20.2\xc7\x44\x24\x04.5",
                1,
            ),
            // Not in a text, not of another version, not too far away.
            (b"20.2\xc7\x44\x24\x04.4", b"20.2\xc7\x44\x24\x04.4", 0),
            (b"\x7fELF 20.2.3 .4", b"\x7fELF 20.2.3 .4", 0),
            (b"\x7fELF 20.2 9.4", b"\x7fELF 20.2 9.4", 0),
            (
                b"\x7fELF 20.2................4",
                b"\x7fELF 20.2................4",
                0,
            ),
            (b"20.2", b"20.2", 0),
        ] {
            let (bytes, times) = renamed(text);
            assert_eq!((&bytes[..], times), (expected, count), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_next_version_is_as_long() {
        assert_eq!(next("20.2.4").ok().as_deref(), Some("20.2.5"));
        assert!(next("20.2.9").is_err() && next("20.2.10").is_err() && next("20").is_err());
    }
}
