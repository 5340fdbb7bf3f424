//! Debian's own Ceph packages of several releases, each in a root (a chroot) of its own in the cache.
//!
//! A root is named after the exact version in it, and what was asked to be in it:
//! `<cache>/ceph-roots/<Debian version of ceph-osd>-<digest of what was asked>/`.
//! One that is there is used without any network. A missing one is built in a folder beside it and
//! renamed when complete; a build that was killed leaves only such a folder, which the next one removes.

pub(crate) mod build;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use anyhow::{Context, Error, Result, anyhow, ensure};

use crate::cache;
use crate::machine::Needed;
use build::{Recipe, digest, find_or_build, newest};

/// A release of Ceph that Debian has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 16, from Debian 12 (bookworm).
    Pacific,
    /// 18, from Debian 13 (trixie).
    Reef,
    /// 20, from Debian 14 (forky).
    Tentacle,
}

impl Release {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::Pacific, Self::Reef, Self::Tentacle];

    /// The major version, by which Ceph's packages name it.
    pub fn major(self) -> u8 {
        match self {
            Self::Pacific => 16,
            Self::Reef => 18,
            Self::Tentacle => 20,
        }
    }

    /// Ceph's own name, as `require-osd-release` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pacific => "pacific",
            Self::Reef => "reef",
            Self::Tentacle => "tentacle",
        }
    }

    /// The health checks that a cluster raises on it however healthy it is.
    ///
    /// Once all mons are on 20, they find fault with keys of the type that every older release and
    /// client needs. No setting turns that off; `ceph health mute` would, for as long as it lasts.
    pub fn unavoidable_health_codes(self) -> &'static [&'static str] {
        match self {
            Self::Pacific | Self::Reef => &[],
            Self::Tentacle => &[
                "AUTH_INSECURE_CLIENT_KEY_TYPE",
                "AUTH_INSECURE_KEYS_ALLOWED",
                "AUTH_INSECURE_KEYS_CREATABLE",
                "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE",
                "AUTH_INSECURE_SERVICE_KEY_TYPE",
                "AUTH_INSECURE_SERVICE_TICKETS",
            ],
        }
    }

    /// The Debian release that has it.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Pacific => "bookworm",
            Self::Reef => "trixie",
            Self::Tentacle => "forky",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.major().fmt(f)
    }
}

impl FromStr for Release {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL
            .into_iter()
            .find(|release| release.to_string() == text || release.name() == text);
        found.with_context(|| format!("no Ceph release `{text}` here: there are 16, 18 and 20"))
    }
}

/// A root with one release of Ceph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The release in it.
    pub release: Release,
    /// Where it is.
    pub path: PathBuf,
    /// Debian's version of `ceph-osd` in it.
    pub version: String,
}

impl Root {
    /// Ceph's own version, without Debian's suffix: what `ceph versions` calls it.
    pub fn ceph_version(&self) -> &str {
        self.version.split(['+', '-']).next().unwrap_or(&self.version)
    }

    /// The versions of all packages in it.
    pub fn packages(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path.join(VERSIONS);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no map of packages", path.display()))
    }
}

/// The last file written in a build: package versions.
pub(crate) const VERSIONS: &str = "versions.json";

/// The daemons, what the load's clients need, and what a probe of Rook's reads answers with: without `jq` it
/// finds each metadata server missing, and has it started anew every three minutes.
const PACKAGES: [&str; 9] = [
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph-mds",
    "radosgw",
    "ceph-common",
    "python3-rados",
    "python3-cephfs",
    "jq",
];

/// From Debian 13 on `python3-bcrypt` refuses to be loaded in a sub-interpreter, so every module of the
/// mgr fails. Nothing in a test needs it: the mgr finds this one first (see `daemonctl`).
pub(crate) const BCRYPT: &str = "def gensalt(*_args, **_kwargs):\n    return b''\n\n\
    def hashpw(*_args, **_kwargs):\n    return b''\n\n\
    def checkpw(*_args, **_kwargs):\n    return False\n";

/// Gives the roots of `releases`, building those that are missing, all at the same time.
pub fn ensure(releases: &[Release]) -> Result<Vec<Root>> {
    let base = cache::dir()?.join("ceph-roots");
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    if releases
        .iter()
        .any(|&release| matches!(find(&base, release), Ok(None)))
    {
        // Once, before the threads part.
        Needed::Debootstrap.ensure()?;
    }
    thread::scope(|scope| {
        let builds: Vec<_> = releases
            .iter()
            .map(|&release| {
                scope.spawn({
                    let base = &base;
                    move || one(base, release)
                })
            })
            .collect();
        builds
            .into_iter()
            .map(|build| build.join().map_err(|_| anyhow!("building a root panicked"))?)
            .collect()
    })
}

/// Finds or builds one root.
fn one(base: &Path, release: Release) -> Result<Root> {
    let asked = asked(release)?;
    let recipe = Recipe {
        what: &format!("Ceph {release}"),
        key: &release.to_string(),
        suite: release.suite(),
        packages: &PACKAGES,
        named_by: "ceph-osd",
        finish: &|builder| builder.write("opt/stagger/bcrypt.py", BCRYPT),
        name: &|version| {
            ensure!(
                version.starts_with(&format!("{release}.")),
                "Debian {} now has Ceph {version}, not {release}: name another suite for it",
                release.suite(),
            );
            Ok(format!("{version}-{asked}"))
        },
    };
    find_or_build(base, &recipe, || find(base, release))
}

fn asked(release: Release) -> Result<String> {
    let suite = [release.suite(), BCRYPT];
    digest(suite.into_iter().chain(PACKAGES))
}

/// The newest complete root of a release, if there is one.
fn find(base: &Path, release: Release) -> Result<Option<Root>> {
    let found = newest(base, &asked(release)?)?;
    Ok(found.map(|(version, path)| Root {
        release,
        path,
        version,
    }))
}
