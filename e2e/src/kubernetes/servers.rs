//! The programs of a Kubernetes control plane, built once from their sources and kept in the cache.
//!
//! They come as ordinary dependencies of two Go modules, `e2e/kubernetes/servers` and
//! `e2e/kubernetes/etcd`, whose `go.sum` pins every byte. The cache is keyed by what these files hold.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::go;
use crate::cache;
use crate::command::{run, say};

/// The release of Kubernetes, as in `e2e/kubernetes/servers/go.mod`.
pub const KUBERNETES: &str = "v1.36.4";

/// What is built of Kubernetes, by the last part of its package's path.
const OF_KUBERNETES: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
];

/// A folder with `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` and `kubectl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    folder: PathBuf,
}

impl Servers {
    /// The folder that `$KUBEBUILDER_ASSETS` names if it is set, as is the custom; else the one in the
    /// cache, filled if it is not yet.
    ///
    /// # Errors
    /// There is no Go and none can be fetched, a program does not build, or `$KUBEBUILDER_ASSETS` lacks one.
    pub fn get() -> Result<Self> {
        if let Some(given) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|given| !given.is_empty()) {
            let servers = Self { folder: given.into() };
            for program in OF_KUBERNETES.into_iter().chain(["etcd"]) {
                let path = servers.program(program);
                ensure!(
                    path.is_file(),
                    "KUBEBUILDER_ASSETS has no {program}: {} is missing; unset it, and it is built",
                    path.display()
                );
            }
            return Ok(servers);
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes");
        let flags = version_flags();
        let etcd = Source {
            program: "etcd",
            module: "etcd",
            package: "go.etcd.io/etcd/server/v3".to_owned(),
            flags: flags.clone(),
        };
        let others = OF_KUBERNETES.map(|program| Source {
            program,
            module: "servers",
            package: format!("k8s.io/kubernetes/cmd/{program}"),
            flags: flags.clone(),
        });
        let all: Vec<Source> = [etcd].into_iter().chain(others).collect();
        let folder = kept(&sources, "kubernetes", KUBERNETES, &all)?;
        Ok(Self { folder })
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A program and what it is built of.
pub(super) struct Source {
    /// Its name.
    pub(super) program: &'static str,
    /// The folder of its module, below `e2e/kubernetes`.
    pub(super) module: &'static str,
    /// Its package.
    pub(super) package: String,
    /// What its linker is told.
    pub(super) flags: String,
}

/// The folder below `place` in the cache that holds these programs, which are built if it is not there yet.
pub(super) fn kept(sources: &Path, place: &str, release: &str, programs: &[Source]) -> Result<PathBuf> {
    let folder = cache::dir()?
        .join(place)
        .join(format!("{release}-{}", key(sources, programs)?));
    if !folder.join("complete").exists() {
        build(sources, &folder, programs)?;
    }
    Ok(folder)
}

/// What the sources come to, in a few letters.
fn key(sources: &Path, programs: &[Source]) -> Result<String> {
    let modules: BTreeSet<&str> = programs.iter().map(|one| one.module).collect();
    let mut hasher = Sha256::new();
    // In the order of their names, backwards: so it was when the first folders were filled.
    for module in modules.into_iter().rev() {
        for file in ["go.mod", "go.sum"] {
            let path = sources.join(module).join(file);
            hasher.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    let mut text = String::new();
    for byte in hasher.finalize().iter().take(8) {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// Builds the programs into `folder`, which is there only once all of them are.
fn build(sources: &Path, folder: &Path, programs: &[Source]) -> Result<()> {
    let begun = Instant::now();
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("removing {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
    let go = go::program()?;
    for source in programs {
        let program = source.program;
        say(format!(
            "building {program} ({} s so far; once for this version)",
            begun.elapsed().as_secs()
        ));
        run(Command::new(&go)
            .current_dir(sources.join(source.module))
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .args(["build", "-trimpath", "-tags", "providerless", "-ldflags"])
            .arg(&source.flags)
            .arg("-o")
            .arg(new.join(program))
            .arg(&source.package))
        .with_context(|| format!("building {program}"))?;
    }
    fs::write(new.join("complete"), "").context("marking the folder as complete")?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::rename(&new, folder).with_context(|| format!("moving {} into place", new.display()))
}

/// What the programs say of themselves.
fn version_flags() -> String {
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let places = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];
    let set = |place: &str| {
        format!("-X {place}.gitVersion={KUBERNETES} -X {place}.gitMajor=1 -X {place}.gitMinor={minor}")
    };
    format!("-s -w {} {}", set(places[0]), set(places[1]))
}
