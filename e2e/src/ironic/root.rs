//! Ironic of several releases, from PyPI, and what it runs on, from Debian, in a root (a chroot) of its own in the cache.
//!
//! It is named after MariaDB's version in it and after the recipe, all versions from PyPI included:
//! `<cache>/ironic-roots/<Debian version of mariadb-server>-<digest>/`. One that is there is used without any network.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};

use super::spec::Release;
use crate::cache;
use crate::roots::VERSIONS;
use crate::roots::build::{Builder, Recipe, digest, find_or_build, newest};

/// The Debian release that what it runs on is from.
const SUITE: &str = "bookworm";

/// Database, balancer and Python; PostgreSQL and RabbitMQ, which Ironic knows too; and what the cluster's programs ask with.
const PACKAGES: [&str; 8] = [
    "mariadb-server",
    "haproxy",
    "postgresql",
    "rabbitmq-server",
    "python3",
    "python3-venv",
    "curl",
    "socat",
];

/// Where each release has its virtual environment.
const CODE: &str = "opt/ironic";

/// Where Keystone has its own: it asks for a token where Ironic wants to know who asks.
pub(super) const KEYSTONE_CODE: &str = "opt/keystone";
/// Its exact version, and that of everything with it.
const KEYSTONE: &str = include_str!("constraints/keystone-29.0.0.txt");

/// How a virtual environment is made. Wheels only: nothing is compiled, and no code of a package runs to install it.
const INSTALL: [&str; 5] = [
    "install",
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--requirement",
];

/// Variables that may name a file of certificates by which this machine knows who it speaks to.
const CERTIFICATES: [&str; 4] = [
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
];
/// Where Debian has it.
const DEBIAN_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The machine's own settings of `pip`, which has them at the same place in the root.
const PIP_SETTINGS: &str = "/etc/pip.conf";
/// What is lent to the root while `pip` works, below it.
const LENT_CERTIFICATES: &str = "opt/ironic/certificates.pem";
const LENT_SETTINGS: &str = "etc/pip.conf";

/// A root with Ironic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// Debian's version of MariaDB in it, and a digest of everything that is in it from elsewhere.
    pub version: String,
}

impl Root {
    /// Gives the one with these releases in the cache, built if it is not there yet, which takes minutes.
    pub fn ensure(releases: &[Release]) -> Result<Self> {
        let base = cache::dir()?.join("ironic-roots");
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        let recipe_digest = recipe_digest(releases)?;
        let recipe = Recipe {
            what: "Ironic",
            key: if releases == Release::USUAL {
                "ironic"
            } else {
                "ironic-later"
            },
            suite: SUITE,
            packages: &PACKAGES,
            named_by: "mariadb-server",
            finish: &|builder| finish(builder, releases),
            name: &|version| {
                // Without the epoch: a colon in a path is something else to too many programs.
                let version = version.rsplit(':').next().unwrap_or(version);
                Ok(format!("{version}-{recipe_digest}"))
            },
        };
        find_or_build(&base, &recipe, || find(&base, &recipe_digest))
    }

    /// The versions of all packages of Debian in it.
    pub fn packages(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path.join(VERSIONS);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no map of packages", path.display()))
    }

    /// Where a release is, as programs in the root see it.
    pub fn code(release: Release) -> PathBuf {
        Path::new("/").join(CODE).join(release.version())
    }
}

/// The newest complete root of this recipe, if there is one.
fn find(base: &Path, recipe_digest: &str) -> Result<Option<Root>> {
    Ok(newest(base, recipe_digest)?.map(|(version, path)| Root { path, version }))
}

/// What the recipe comes to, in a few letters.
fn recipe_digest(releases: &[Release]) -> Result<String> {
    let mut texts = vec![PACKAGES.join(" "), INSTALL.join(" ")];
    texts.extend(releases.iter().map(|release| release.requirements().to_owned()));
    texts.push(KEYSTONE.to_owned());
    digest(texts.iter().map(String::as_str))
}

fn finish(builder: &Builder<'_>, releases: &[Release]) -> Result<()> {
    lend(builder)?;
    // What is slow is one program in each, and most machines have more than one core.
    thread::scope(|scope| {
        let begin = |release: &Release| {
            let release = *release;
            scope.spawn(move || install(builder, release))
        };
        let keystone = scope.spawn(|| {
            install_at(builder, Path::new(KEYSTONE_CODE), KEYSTONE).context("installing Keystone from PyPI")
        });
        let installs: Vec<_> = releases.iter().map(begin).chain([keystone]).collect();
        installs.into_iter().try_for_each(|install| {
            install
                .join()
                .map_err(|_| anyhow!("installing a release panicked"))?
        })
    })?;
    for path in [LENT_CERTIFICATES, LENT_SETTINGS] {
        let path = builder.root.join(path);
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    // Nobody outside is asked for a name.
    builder.write("etc/hosts", "127.0.0.1 localhost\n")?;
    builder.write("etc/resolv.conf", "")
}

/// However this machine reaches PyPI, so does the root: variables of the environment are handed down, and files are
/// there for as long as it takes.
fn lend(builder: &Builder<'_>) -> Result<()> {
    if let Some(certificates) = certificates() {
        let text = fs::read_to_string(&certificates)
            .with_context(|| format!("reading {}", certificates.display()))?;
        builder.write(LENT_CERTIFICATES, &text)?;
    }
    if let Ok(settings) = fs::read_to_string(PIP_SETTINGS) {
        builder.write(LENT_SETTINGS, &settings)?;
    }
    Ok(())
}

/// The certificates by which this machine knows who it speaks to, if it has any but those that `pip` brings.
fn certificates() -> Option<PathBuf> {
    let named = CERTIFICATES.iter().filter_map(env::var_os).map(PathBuf::from);
    named
        .chain([PathBuf::from(DEBIAN_CERTIFICATES)])
        .find(|path| path.is_file())
}

fn install(builder: &Builder<'_>, release: Release) -> Result<()> {
    let code = Path::new(CODE).join(release.version());
    install_at(builder, &code, release.requirements())
        .with_context(|| format!("installing Ironic {release} from PyPI"))
}

/// A virtual environment at that place in the root, with exactly these.
fn install_at(builder: &Builder<'_>, place: &Path, requirements: &str) -> Result<()> {
    let list = format!("{}.txt", place.display());
    builder.write(&list, requirements)?;
    let code = Path::new("/").join(place);
    builder.step(builder.inside("python3").args(["-m", "venv"]).arg(&code))?;
    let mut pip = builder.inside(code.join("bin/pip"));
    if builder.root.join(LENT_CERTIFICATES).exists() {
        // Not only pip's own: what stands in the others goes before it.
        let lent = Path::new("/").join(LENT_CERTIFICATES);
        pip.envs(CERTIFICATES.map(|name| (name, &lent)));
    }
    builder.step(pip.args(INSTALL).arg(Path::new("/").join(&list)))?;
    // The list is complete, and what is in it goes together.
    builder.step(builder.inside(code.join("bin/pip")).arg("check"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_of_anything_is_another_root() {
        let one = recipe_digest(&Release::USUAL).unwrap();
        assert_ne!(one, recipe_digest(&Release::LATER).unwrap());
        assert_eq!(one.len(), 8);
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("10.11.1-ffffffff")).unwrap();
        assert_eq!(find(base.path(), &one).unwrap(), None);
    }
}
