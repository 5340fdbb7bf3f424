//! The real Rook, of exactly one release of each minor: its operator's program and its manifests. Nothing of it is part
//! of this project, and where it cannot be had the cases beside it are skipped.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::command::{run, say};
use crate::kubernetes::go;

/// Where its program is in that image.
pub const PROGRAM: &str = "/usr/local/bin/rook";

const MODULE: &str = "github.com/rook/rook";
/// Its manifests in the sources.
const MANIFESTS: &str = "deploy/examples";

/// A release of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RookRelease {
    /// As it is tagged: `v1.20.6`.
    pub tag: &'static str,
    /// The commit of the tag, by which the module inside that one goes: it has no versions of its own.
    commit: &'static str,
}

impl RookRelease {
    /// The newest.
    pub const V1_20: Self = Self {
        tag: "v1.20.6",
        commit: "4e1b7a626891a215949ab42a6957a0ef1e1a25e6",
    };
    /// The last of 1.19.
    pub const V1_19: Self = Self {
        tag: "v1.19.10",
        commit: "2c3d5c078e1eafcca10821ccf2e95879adc2d8cb",
    };
    /// The last of 1.18.
    pub const V1_18: Self = Self {
        tag: "v1.18.11",
        commit: "8059413c805f8ed3a0992af0113c002b0250805e",
    };
    /// The last of 1.17, which takes no Ceph 20 yet.
    pub const V1_17: Self = Self {
        tag: "v1.17.9",
        commit: "d1d0811a7686bf06a130e4a99ccc1cdeff55cd2f",
    };
    /// The last of 1.16, which takes no Ceph 20 yet.
    pub const V1_16: Self = Self {
        tag: "v1.16.9",
        commit: "8c81f20f15b501d603acc2bcfc211e948c879a11",
    };

    /// The image that its manifests name.
    pub fn image(self) -> String {
        format!("docker.io/rook/ceph:{}", self.tag)
    }
}

/// Rook, ready to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rook {
    /// Which.
    pub release: RookRelease,
    /// A folder to lay over a root with Ceph: the program, at its place.
    pub layer: PathBuf,
    manifests: PathBuf,
}

/// Whether there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// Yes.
    Here(Rook),
    /// No, and why not.
    Missing(String),
}

/// Looks for a release: in the folder that `$STAGGER_ROOK` names; else in `shared/rook` beside the checkout; else in the
/// cache, where it is built from its sources if Go's module proxy has them. In such a folder is the newest; an older one is
/// in a folder in it that is called by its tag.
///
/// # Errors
/// `$STAGGER_ROOK` is set and lacks something, or what was found cannot be unpacked.
pub fn find(release: RookRelease) -> Result<Availability> {
    let is_newest = release == RookRelease::V1_20;
    let of_release = |folder: PathBuf| {
        if is_newest {
            folder
        } else {
            folder.join(release.tag)
        }
    };
    let given = std::env::var_os("STAGGER_ROOK").filter(|given| !given.is_empty());
    let given = given.map(|given| of_release(PathBuf::from(given)));
    if let Some(given) = given.filter(|given| is_newest || given.is_dir()) {
        return unpacked(release, &given)
            .context("STAGGER_ROOK does not name a folder with Rook")
            .map(Availability::Here);
    }
    let beside = of_release(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/rook"));
    if beside.is_dir() {
        return unpacked(release, &beside).map(Availability::Here);
    }
    Ok(match built(release) {
        Ok(rook) => Availability::Here(rook),
        Err(error) => Availability::Missing(format!(
            "STAGGER_ROOK names no folder with Rook {}, and it cannot be built: {error:#}",
            release.tag
        )),
    })
}

impl Rook {
    /// The text of a manifest as it was released.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn manifest(&self, name: &str) -> Result<String> {
        let path = self.manifests.join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// The definitions of the driver's objects, without the driver: the operator makes some of them.
    ///
    /// # Errors
    /// There are none.
    pub fn driver_definitions(&self) -> Result<String> {
        let text = self
            .manifest("csi-crds.yaml")
            .or_else(|_| self.manifest("csi-operator.yaml"))?;
        let definitions = text
            .split("\n---")
            .filter(|one| one.lines().any(|line| line == "kind: CustomResourceDefinition"));
        let text = definitions.collect::<Vec<_>>().join("\n---");
        ensure!(
            !text.is_empty(),
            "no definitions of the driver in Rook's manifests"
        );
        Ok(text)
    }
}

/// That of a folder with manifests and the program, compressed or not.
fn unpacked(release: RookRelease, folder: &Path) -> Result<Rook> {
    let tag = release.tag;
    let packed = folder.join(format!("rook-{tag}-linux-amd64.zst"));
    let source = if packed.is_file() {
        packed
    } else {
        folder.join("rook")
    };
    let bytes = fs::read(&source).with_context(|| format!("reading {}", source.display()))?;
    let mut name = format!("{tag}-");
    for byte in Sha256::digest(&bytes).iter().take(8) {
        write!(name, "{byte:02x}")?;
    }
    let base = cache::dir()?.join("rook");
    let rook = Rook {
        release,
        layer: base.join(name),
        manifests: folder.to_owned(),
    };
    if rook.layer.is_dir() {
        return Ok(rook);
    }
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    let new = tempfile::tempdir_in(&base).context("making a folder to unpack Rook in")?;
    let program = new.path().join(PROGRAM.trim_start_matches('/'));
    fs::create_dir_all(program.parent().context("a program has a folder")?).context("making its folder")?;
    let mut to = File::create(&program).with_context(|| format!("making {}", program.display()))?;
    if source.extension() == Some(OsStr::new("zst")) {
        let mut from = ruzstd::decoding::StreamingDecoder::new(&bytes[..])
            .with_context(|| format!("{} is not compressed by zstd", source.display()))?;
        io::copy(&mut from, &mut to).with_context(|| format!("unpacking {}", source.display()))?;
    } else {
        io::copy(&mut &bytes[..], &mut to).with_context(|| format!("copying {}", source.display()))?;
    }
    drop(to);
    fs::set_permissions(&program, Permissions::from_mode(0o755)).context("making it executable")?;
    let said = run(Command::new(&program).arg("version"))?;
    ensure!(said.contains(tag), "this Rook is not {tag}: {said}");
    // A folder for one's own is for its owner alone.
    fs::set_permissions(new.path(), Permissions::from_mode(0o755)).context("opening its folder")?;
    match fs::rename(new.path(), &rook.layer) {
        // Somebody else was quicker.
        Err(_) if rook.layer.is_dir() => {}
        Err(error) => bail!("moving {} into place: {error}", rook.layer.display()),
        Ok(()) => drop(new.keep()),
    }
    Ok(rook)
}

/// That of the sources, built once and kept in the cache.
fn built(release: RookRelease) -> Result<Rook> {
    let folder = cache::dir()?.join("rook/sources").join(release.tag);
    if !folder.join("rook").is_file() {
        say(format!("building Rook {}: once for this version", release.tag));
        build(release, &folder)?;
    }
    unpacked(release, &folder)
}

fn build(release: RookRelease, folder: &Path) -> Result<()> {
    let RookRelease { tag, commit } = release;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let go = go::program()?;
    let sources = tempfile::tempdir_in(folder).context("making a folder for Rook's sources")?;
    copy(&fetched(&go, MODULE, tag)?, sources.path())?;
    // Its `go.mod` looks for that one below it, and archives leave it out.
    copy(
        &fetched(&go, &format!("{MODULE}/pkg/apis"), commit)?,
        &sources.path().join("pkg/apis"),
    )?;
    let program = sources.path().join("rook");
    run(Command::new(&go)
        .current_dir(sources.path())
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-tags", "ceph_preview", "-ldflags"])
        .arg(format!("-s -w -X {MODULE}/pkg/version.Version={tag}"))
        .arg("-o")
        .arg(&program)
        .arg("./cmd/rook"))
    .context("building Rook")?;
    for name in ["crds.yaml", "common.yaml", "csi-operator.yaml", "operator.yaml"] {
        fs::copy(sources.path().join(MANIFESTS).join(name), folder.join(name))
            .with_context(|| format!("copying {name} of Rook"))?;
    }
    // The last: with it the folder is complete.
    fs::rename(&program, folder.join("rook")).context("moving Rook's program into place")
}

/// Where Go keeps a module.
fn fetched(go: &Path, module: &str, version: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Fetched {
        dir: PathBuf,
    }
    let said = run(Command::new(go)
        .current_dir("/")
        .args(["mod", "download", "-json"])
        .arg(format!("{module}@{version}")))
    .with_context(|| format!("fetching {module}"))?;
    let fetched: Fetched = serde_json::from_str(&said).context("reading what Go fetched")?;
    Ok(fetched.dir)
}

/// Go keeps its modules unwritable.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    run(Command::new("cp")
        .args(["-r", "--no-preserve=mode"])
        .arg(from.join("."))
        .arg(to))
    .map(drop)
}
