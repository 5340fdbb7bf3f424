//! Debian's Chromium and Node.js in a root of their own in the cache, with what drives and judges a page, from npm.
//!
//! It is named after the exact version of Chromium and after the recipe:
//! `<cache>/browser-roots/<Debian version of chromium>-<digest>/`. One that is there is used without any network.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::command::run;
use crate::roots::build::{Builder, Recipe, digest, find_or_build, newest};
use crate::sandbox::Sandbox;
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha512};

/// The Debian release that has both.
const SUITE: &str = "trixie";

/// The browser, what runs the script that drives it, and letters for every mark that a page draws.
const PACKAGES: [&str; 5] = [
    "chromium",
    "nodejs",
    "fonts-dejavu-core",
    "fonts-liberation",
    "ca-certificates",
];

/// A package of npm.
struct Pinned {
    name: &'static str,
    version: &'static str,
    /// Of its archive, in hexadecimal digits.
    sha512: &'static str,
}

/// Where programs in the root find them.
const MODULES: &str = "opt/stagger/node_modules";

const PINNED: [Pinned; 2] = [
    Pinned {
        name: "playwright-core",
        version: "1.65.1",
        sha512: "86a3e9cfb6e548c3f1595768784d728814b35ec2a254e77693e9230af994cb00f618f3b60ddf477dc5a7abd34dd061db3590c5819f497c116bf97e7f04ba34ab",
    },
    Pinned {
        name: "axe-core",
        version: "4.14.1",
        sha512: "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5",
    },
];

/// What scripts share that drive it: a browser, and a way to a socket that can be cut. They find it as `./browser.js`.
pub const SHARED: &str = include_str!("browser/browser.js");

/// The script of the pictures in the README and the guides.
pub const PICTURES: &str = include_str!("browser/pictures.js");

/// A root with a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Browser {
    /// Where it is.
    pub path: PathBuf,
    /// Debian's version of Chromium in it.
    pub version: String,
}

impl Browser {
    /// `node` with that script, in the root, in a sandbox that was started with it. The script finds its folder in `PLACE`.
    pub fn node(&self, sandbox: &Sandbox, place: &Path, script: &str) -> Command {
        let mut node = sandbox.command_in(&self.path, "node");
        node.arg(place.join(script));
        node.env("NODE_PATH", format!("/{MODULES}"))
            .env("HOME", "/tmp")
            .env("PLACE", place);
        node.env_remove("TMPDIR");
        node
    }

    /// Gives the one in the cache, built if it is not there yet, which takes minutes.
    ///
    /// # Errors
    /// A step of the build fails; with its last words.
    pub fn ensure() -> Result<Self> {
        let base = cache::dir()?.join("browser-roots");
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        let changes = changes()?;
        let recipe = Recipe {
            what: "a browser",
            key: SUITE,
            suite: SUITE,
            packages: &PACKAGES,
            named_by: "chromium",
            finish: &finish,
            name: &|version| Ok(format!("{version}-{changes}")),
        };
        let found = || Ok(newest(&base, &changes)?.map(|(version, path)| Self { path, version }));
        find_or_build(&base, &recipe, found)
    }
}

/// What the recipe comes to, in a few letters.
fn changes() -> Result<String> {
    let mut texts = vec![SUITE.to_owned(), PACKAGES.join(" ")];
    texts.extend(PINNED.map(|Pinned { name, sha512, .. }| format!("{name} {sha512}")));
    digest(texts.iter().map(String::as_str))
}

fn finish(builder: &Builder<'_>) -> Result<()> {
    for pinned in &PINNED {
        unpack(pinned, &builder.root.join(MODULES).join(pinned.name))
            .with_context(|| format!("fetching {} {} by npm", pinned.name, pinned.version))?;
    }
    // Nobody outside is asked for a name.
    builder.write("etc/hosts", "127.0.0.1 localhost\n")?;
    builder.write("etc/resolv.conf", "")
}

/// Fetches a package from the registry that the machine's npm is set to, and lays it out if it is the one expected.
fn unpack(pinned: &Pinned, to: &Path) -> Result<()> {
    let Pinned {
        name,
        version,
        sha512,
    } = pinned;
    let folder = tempfile::tempdir().context("making a folder")?;
    let archive = run(Command::new("npm")
        .args([
            "pack",
            "--silent",
            &format!("{name}@{version}"),
            "--pack-destination",
        ])
        .arg(folder.path())
        .current_dir(folder.path()))
    .context("is npm on this machine? `apt-get install npm`")?;
    let archive = folder.path().join(archive.trim());
    let bytes = fs::read(&archive).with_context(|| format!("reading {}", archive.display()))?;
    let mut sum = String::new();
    for byte in Sha512::digest(&bytes) {
        write!(sum, "{byte:02x}")?;
    }
    ensure!(
        sum == *sha512,
        "{name} {version} has the checksum {sum}, and {sha512} is expected"
    );
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    run(Command::new("tar")
        .args(["--extract", "--gzip", "--strip-components=1", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(to))?;
    Ok(())
}
