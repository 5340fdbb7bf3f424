//! The programs of a Kubernetes control plane, built once from their sources and kept in the cache.
//!
//! They come as ordinary dependencies of two Go modules, `e2e/kubernetes/servers` and
//! `e2e/kubernetes/etcd`, whose `go.sum` pins every byte. The cache is keyed by what these files hold.

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
        let folder = cache::dir()?
            .join("kubernetes")
            .join(format!("{KUBERNETES}-{}", key(&sources)?));
        if !folder.join("complete").exists() {
            build(&sources, &folder)?;
        }
        Ok(Self { folder })
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// What the sources come to, in a few letters.
fn key(sources: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    for file in ["servers/go.mod", "servers/go.sum", "etcd/go.mod", "etcd/go.sum"] {
        let path = sources.join(file);
        hasher.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    let mut text = String::new();
    for byte in hasher.finalize().iter().take(8) {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// Builds all programs into `folder`, which is there only once all of them are.
fn build(sources: &Path, folder: &Path) -> Result<()> {
    let begun = Instant::now();
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("removing {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
    let mut packages: Vec<(String, &str)> = OF_KUBERNETES
        .iter()
        .map(|program| (format!("k8s.io/kubernetes/cmd/{program}"), "servers"))
        .collect();
    packages.insert(0, ("go.etcd.io/etcd/server/v3".to_owned(), "etcd"));
    let go = go::program()?;
    for (package, module) in &packages {
        let program = match *module {
            "etcd" => "etcd",
            _ => package.rsplit('/').next().unwrap_or(package),
        };
        say(format!(
            "building {program} ({} s so far; once for this version)",
            begun.elapsed().as_secs()
        ));
        run(Command::new(&go)
            .current_dir(sources.join(module))
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .args(["build", "-trimpath", "-tags", "providerless", "-ldflags"])
            .arg(version_flags())
            .arg("-o")
            .arg(new.join(program))
            .arg(package))
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
