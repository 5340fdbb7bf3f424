//! The container image of `stagger`, built as its guide says, by Debian's buildah from `deploy/Containerfile`.
//!
//! No registry is asked: the two images that it begins with are made of Debian's packages on this machine, one with a
//! compiler for C and this machine's own Rust, one with Ceph 20.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::command::{run, say};
use crate::node::Image;
use crate::roots::build::{Recipe, digest, find_or_build, newest};
use crate::roots::{self, Release};
use crate::sandbox::{Folder, Network, Sandbox};

/// As `deploy/operator/deployment.yaml` names it.
pub const NAME: &str = "localhost/stagger:0.1.0";

/// The images that it is made from.
const BUILDER: &str = "localhost/rust";
const CEPH: &str = "localhost/ceph";

/// Buildah, and what building the program takes beside Rust.
const PACKAGES: [&str; 6] = [
    "buildah",
    "ca-certificates",
    "gcc",
    "libc6-dev",
    "make",
    "netavark",
];
/// The Debian release with the Ceph of the image: a program that is built on it runs on it.
const SUITE: &str = "forky";
/// Any image is taken: all of them are made here.
const TRUST: &str = r#"{ "default": [{ "type": "insecureAcceptAnything" }] }"#;

/// The image, built from this checkout, or found in the cache, where it is kept by what it is made of.
///
/// # Errors
/// A step fails; with its last words.
pub fn ensure() -> Result<Image> {
    let base = cache::dir()?.join("stagger-images");
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    let path = base.join(".lock");
    let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    lock.lock()
        .with_context(|| format!("locking {}", path.display()))?;
    let root = root()?;
    let ceph = roots::ensure(&[Release::Tentacle])?
        .pop()
        .context("no root of Ceph 20")?;
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let wanted = base.join(sources(&checkout, &[&root, &ceph.path])?);
    if !wanted.join(BUILT).exists() {
        // Those before it: one is more than a gigabyte.
        for entry in fs::read_dir(&base).with_context(|| format!("reading {}", base.display()))? {
            let entry = entry?.path();
            if entry.is_dir() {
                fs::remove_dir_all(&entry).with_context(|| format!("removing {}", entry.display()))?;
            }
        }
        fs::create_dir(&wanted).with_context(|| format!("making {}", wanted.display()))?;
        let built = build(&wanted, &checkout, &root, &ceph.path).context("building the image")?;
        let path = wanted.join(BUILT);
        fs::write(&path, serde_json::to_vec(&built)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    // The lock is held until here.
    drop(lock);
    read(&wanted.join(BUILT))
}

/// What the program of the image is asked, with a word that its answer has.
const ASKED: [(&[&str], &str); 2] = [
    (&["--version"], "stagger "),
    (&["--state", "/tmp/state", "demo"], "Done: every unit"),
];

/// Builds the image and runs its program as a container would: with the image's files, as its user, and with nothing to write to
/// but `/tmp`.
///
/// # Errors
/// It does not build, or the program says something else.
pub fn try_image() -> Result<()> {
    let image = ensure()?;
    let root = image.root.as_deref().context("an image without a root")?;
    let scratch = tempfile::tempdir_in(cache::dir()?).context("making a folder")?;
    let merged = scratch.path().join("root");
    fs::create_dir(&merged).with_context(|| format!("making {}", merged.display()))?;
    let mut sandbox = Sandbox::start_with(scratch.path(), &[], Network::Own, Folder::Stays)?;
    let layers: Vec<String> = image
        .layers
        .iter()
        .map(PathBuf::as_path)
        .chain([root])
        .map(|folder| folder.display().to_string())
        .collect();
    let mount = |words: &[&str], place: PathBuf| run(sandbox.command("mount").args(words).arg(place));
    let lower = format!("lowerdir={}", layers.join(":"));
    mount(&["-t", "overlay", "overlay", "-o", &lower], merged.clone())?;
    mount(&["-t", "proc", "proc"], merged.join("proc"))?;
    mount(&["-t", "tmpfs", "tmpfs"], merged.join("tmp"))?;
    let user = image.user.context("an image without a user")?;
    for (words, word) in ASKED {
        let mut command = sandbox.command("chroot");
        command
            .arg(format!("--userspec={user}:{user}"))
            .arg(&merged)
            .args(&image.entrypoint)
            .args(words)
            .envs(&image.env)
            .env("HOME", "/tmp")
            .env_remove("TMPDIR")
            .env_remove("XDG_STATE_HOME");
        let said = run(&mut command)?;
        ensure!(
            said.contains(word),
            "{words:?} does not say {word:?}, but:\n{said}"
        );
        say(format!("image: {NAME} {}", words.join(" ")));
    }
    sandbox.stop()
}

/// What is in its folder once it is complete.
const BUILT: &str = "image.json";

/// What goes into it, in a few letters.
fn sources(checkout: &Path, roots: &[&Path]) -> Result<String> {
    let mut hasher = Sha256::new();
    for root in roots {
        hasher.update(root.display().to_string());
    }
    let mut left: Vec<PathBuf> = [
        ".cargo",
        "Cargo.lock",
        "Cargo.toml",
        "crates",
        "deploy/Containerfile",
        "docs/reference/reasons.md",
        "scenarios",
    ]
    .map(|path| checkout.join(path))
    .to_vec();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))?;
            let mut entries = entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<Vec<_>, _>>()?;
            entries.sort();
            left.extend(entries);
        } else {
            hasher.update(path.strip_prefix(checkout)?.display().to_string());
            hasher.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    let mut text = String::new();
    for byte in hasher.finalize().iter().take(8) {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

fn build(folder: &Path, checkout: &Path, root: &Path, ceph: &Path) -> Result<Image> {
    let sandbox = Sandbox::start_with(folder, &[root], Network::Host, Folder::Stays)?;
    let build = Build {
        root,
        sandbox: &sandbox,
    };
    let rust = run(Command::new("rustc").args(["--print", "sysroot"]))?;
    let cargo = cargo_home()?;
    for (name, path) in [
        ("checkout", checkout),
        ("rust", Path::new(rust.trim())),
        ("cargo", &cargo),
        ("ceph", ceph),
        ("builder", root),
    ] {
        build.show(name, path)?;
    }
    say("image: the two that it is made from");
    build.base(CEPH, "ceph", &[])?;
    let path = "PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    build.base(BUILDER, "builder", &[path, "CARGO_HOME=/usr/local/cargo"])?;
    say("image: from deploy/Containerfile, which takes minutes");
    let context = build.inside("checkout");
    let file = context.join("deploy/Containerfile");
    // Of open files and processes fewer than it would set by itself: nobody may set more than he has.
    let mut words = "build --isolation chroot --network host --layers=false --ulimit nofile=4096:4096 --ulimit nproc=16384:16384"
        .split(' ')
        .map(str::to_owned)
        .collect::<Vec<_>>();
    for (name, place) in [("rust", "/usr/local/rust:ro"), ("cargo", "/usr/local/cargo")] {
        words.extend([
            "--volume".to_owned(),
            format!("{}:{place}", build.inside(name).display()),
        ]);
    }
    for (name, value) in [("BUILDER", BUILDER), ("CEPH", CEPH)] {
        words.extend(["--build-arg".to_owned(), format!("{name}={value}")]);
    }
    words.extend(["--tag".to_owned(), NAME.to_owned()]);
    words.extend([
        "--file".to_owned(),
        file.display().to_string(),
        context.display().to_string(),
    ]);
    build.buildah(&words)?;
    build.buildah(&["rmi", BUILDER])?;
    build.unpacked()
}

/// The root with buildah, in the cache.
fn root() -> Result<PathBuf> {
    let base = cache::dir()?.join("buildah-roots");
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    let changes = digest(PACKAGES.into_iter().chain([SUITE, TRUST]))?;
    let find = || Ok(newest(&base, &changes)?.map(|(_, path)| path));
    let recipe = Recipe {
        what: "buildah",
        key: "buildah",
        suite: SUITE,
        packages: &PACKAGES,
        named_by: "buildah",
        finish: &|builder| builder.write("etc/containers/policy.json", TRUST),
        name: &|version| Ok(format!("{version}-{changes}")),
    };
    find_or_build(&base, &recipe, find)
}

/// Where Cargo keeps the sources of crates.
fn cargo_home() -> Result<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").filter(|set| !set.is_empty());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let home = set.map(PathBuf::from).or_else(home);
    home.context("neither CARGO_HOME nor HOME is set")
}

/// A build under way.
struct Build<'a> {
    root: &'a Path,
    sandbox: &'a Sandbox,
}

impl Build<'_> {
    /// Where something is that was shown.
    fn inside(&self, name: &str) -> PathBuf {
        self.sandbox.dir().join(name)
    }

    /// Shows a folder of the machine to buildah.
    fn show(&self, name: &str, path: &Path) -> Result<()> {
        let place = self.inside(name);
        fs::create_dir(&place).with_context(|| format!("making {}", place.display()))?;
        let seen = format!("{}{}", self.root.display(), place.display());
        run(self.sandbox.command("mount").arg("--bind").arg(path).arg(seen)).map(drop)
    }

    fn buildah<S: AsRef<str>>(&self, words: &[S]) -> Result<String> {
        let mut command = self.sandbox.command_in(self.root, "buildah");
        command
            .arg("--root")
            .arg(self.inside("storage"))
            .args(["--runroot", "/run/containers", "--storage-driver", "overlay"])
            .args(words.iter().map(AsRef::as_ref))
            .env("HOME", self.sandbox.dir())
            .env("TMPDIR", self.sandbox.dir())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        run(&mut command)
    }

    /// Makes an image of a folder that was shown.
    fn base(&self, name: &str, of: &str, env: &[&str]) -> Result<()> {
        let container = self.buildah(&["from", "scratch"])?;
        let container = container.trim();
        let folder = self.inside(of).display().to_string();
        self.buildah(&["add", "--quiet", container, &folder, "/"])?;
        for variable in env {
            self.buildah(&["config", "--env", variable, container])?;
        }
        self.buildah(&["commit", "--quiet", "--rm", container, name])
            .map(drop)
    }

    /// What was built, for pods.
    fn unpacked(&self) -> Result<Image> {
        let storage = self.inside("storage");
        let images: Vec<Stored> = read(&storage.join("overlay-images/images.json"))?;
        let layers: Vec<Layer> = read(&storage.join("overlay-layers/layers.json"))?;
        let ours = images
            .iter()
            .find(|image| image.names.iter().any(|name| name == NAME));
        let mut id = ours.with_context(|| format!("no image {NAME}"))?.layer.as_str();
        let mut folders = Vec::new();
        while !id.is_empty() {
            folders.push(storage.join("overlay").join(id).join("diff"));
            let layer = layers.iter().find(|layer| layer.id == id);
            id = layer.with_context(|| format!("no layer {id}"))?.parent.as_str();
        }
        let root = folders.pop().context("an image without layers")?;
        let told: Told = serde_json::from_str(&self.buildah(&["inspect", "--type", "image", NAME])?)
            .context("reading what buildah says of the image")?;
        let config = told.oci.config;
        let user = config.user.split(':').next().unwrap_or_default();
        ensure!(config.cmd == ["operator"], "it runs {:?}", config.cmd);
        Ok(Image {
            root: Some(root),
            layers: folders,
            entrypoint: config.entrypoint,
            env: variables(&config.env),
            user: Some(user.parse().with_context(|| format!("its user is {user:?}"))?),
            ..Image::default()
        })
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

fn variables(lines: &[String]) -> BTreeMap<String, String> {
    let pairs = lines.iter().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// An image, as the storage library of buildah and podman keeps it.
#[derive(Debug, Deserialize)]
struct Stored {
    #[serde(default)]
    names: Vec<String>,
    /// The topmost.
    layer: String,
}

#[derive(Debug, Deserialize)]
struct Layer {
    id: String,
    /// Empty: it is the lowest.
    #[serde(default)]
    parent: String,
}

/// What `buildah inspect` prints.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(rename = "OCIv1")]
    oci: Oci,
}

#[derive(Debug, Deserialize)]
struct Oci {
    config: Config,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    user: String,
    #[serde(default)]
    env: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs have compiled in from outside of their crates, tests left out.
    fn compiled_in(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                if name != "tests" {
                    compiled_in(&path, found)?;
                }
                continue;
            }
            if path.extension().is_none_or(|found| found != "rs") || name == "tests.rs" {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.starts_with("#[doc = "));
            for line in lines {
                if let Some((_, rest)) = line.split_once("include_str!(\"../") {
                    let named = rest.split('"').next().unwrap_or_default();
                    let from = path.parent().context("a folder")?.join("..").join(named);
                    found.push(fs::canonicalize(&from).with_context(|| from.display().to_string())?);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_compiled_in_is_copied_to_where_the_image_is_built() -> Result<()> {
        let checkout = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
        let file = fs::read_to_string(checkout.join("deploy/Containerfile"))?;
        let copied: Vec<&str> = file
            .lines()
            .filter_map(|line| line.strip_prefix("COPY "))
            .filter(|words| !words.starts_with("--from"))
            .flat_map(|words| words.rsplit_once(' ').map_or("", |(from, _)| from).split(' '))
            .collect();
        let mut found = Vec::new();
        for krate in [
            "cli",
            "core",
            "engine",
            "report",
            "serve",
            "versioned",
            "backends",
        ] {
            compiled_in(&checkout.join("crates").join(krate), &mut found)?;
        }
        let outside: Vec<&Path> = found
            .iter()
            .map(|path| path.strip_prefix(&checkout))
            .collect::<Result<_, _>>()?;
        ensure!(
            outside.iter().any(|path| path.starts_with("scenarios")),
            "{outside:?}"
        );
        for path in outside {
            ensure!(
                copied.iter().any(|from| path.starts_with(from)),
                "{} is compiled in, and deploy/Containerfile copies only {copied:?}",
                path.display()
            );
        }
        let workspace: toml::Table = fs::read_to_string(checkout.join("Cargo.toml"))?.parse()?;
        let members = workspace["workspace"]["members"]
            .as_array()
            .context("no members")?;
        for member in members.iter().filter_map(toml::Value::as_str) {
            ensure!(
                copied.iter().any(|from| Path::new(member).starts_with(from)),
                "{member} is a member of the workspace, and deploy/Containerfile copies only {copied:?}"
            );
        }
        Ok(())
    }
}
