//! Go: the machine's own, or the toolchain from the module proxy, kept in the cache.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::command::{run, say};

/// What is fetched where the machine has none.
pub const RELEASE: &str = "1.26.8";
/// The oldest that builds what is wanted; from 1.21 on each fetches a newer one by itself.
const OLDEST: (u32, u32) = (1, 21);

/// Where modules come from, if `$GOPROXY` does not say so.
const PROXY: &str = "https://proxy.golang.org";
const SHA256: &str = "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7";

/// The program `go`, on the path or in the cache.
///
/// # Errors
/// There is none, and it cannot be fetched.
pub(crate) fn program() -> Result<PathBuf> {
    let own = Command::new("go").args(["env", "GOVERSION"]).output();
    let said = own.map(|own| String::from_utf8_lossy(&own.stdout).into_owned());
    if said.is_ok_and(|said| minor(&said).is_some_and(|own| own >= OLDEST)) {
        return Ok("go".into());
    }
    fetched(&cache::dir()?.join("go").join(RELEASE))
}

/// `(1, 26)` of `go1.26.8`.
fn minor(said: &str) -> Option<(u32, u32)> {
    let mut parts = said
        .trim()
        .strip_prefix("go")?
        .split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The one in that folder, which is there only once all of it is; else it is fetched.
///
/// # Errors
/// It cannot be fetched, or is not what is expected.
pub fn fetched(folder: &Path) -> Result<PathBuf> {
    let go = folder.join("bin/go");
    if go.is_file() {
        return Ok(go);
    }
    let name = format!("golang.org/toolchain@v0.0.1-go{RELEASE}.linux-amd64");
    let (module, version) = name.split_once('@').unwrap_or_default();
    let proxies = std::env::var("GOPROXY").unwrap_or_default();
    let proxy = proxies.split([',', '|']).find(|one| one.starts_with("http"));
    let url = format!("{}/{module}/@v/{version}.zip", proxy.unwrap_or(PROXY));
    say(format!("fetching Go {RELEASE}: the machine has none"));
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("removing {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
    let archive = new.join("toolchain.zip");
    // debootstrap brings it.
    run(Command::new("wget")
        .arg("--quiet")
        .arg("-O")
        .arg(&archive)
        .arg(&url))
    .with_context(|| format!("fetching {url}"))?;
    let bytes = fs::read(&archive).with_context(|| format!("reading {}", archive.display()))?;
    let mut sum = String::new();
    for byte in Sha256::digest(&bytes) {
        write!(sum, "{byte:02x}")?;
    }
    ensure!(
        sum == SHA256,
        "{url} has the checksum {sum}, and {SHA256} is expected"
    );
    let file = File::open(&archive).with_context(|| format!("opening {}", archive.display()))?;
    let mut zip = zip::ZipArchive::new(file).context("reading Go's archive")?;
    zip.extract(&new).context("unpacking Go's archive")?;
    let inner = new.join(&name);
    // Archives of modules keep no modes.
    for programs in ["bin", "pkg/tool/linux_amd64"] {
        let programs = inner.join(programs);
        for one in fs::read_dir(&programs).with_context(|| format!("reading {}", programs.display()))? {
            let path = one.context("reading a folder of Go's")?.path();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                .with_context(|| format!("making {} executable", path.display()))?;
        }
    }
    fs::rename(&inner, folder).with_context(|| format!("moving {} into place", inner.display()))?;
    fs::remove_dir_all(&new).with_context(|| format!("removing {}", new.display()))?;
    Ok(go)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_read() {
        assert_eq!(minor("go1.26.8\n"), Some((1, 26)));
        assert_eq!(minor("go1.27rc1"), Some((1, 27)));
        assert_eq!(minor("devel"), None);
    }
}
