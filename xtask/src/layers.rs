//! Who may depend on whom, and that the core pulls in no clock, no file, no environment, no randomness.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::modules::{modules, paths};
use crate::report::{cargo, root};

/// Each package of ours with those of ours that it may depend on.
const LAYERS: [(&str, &[&str]); 24] = [
    ("stagger-versioned-derive", &[]),
    ("stagger-versioned", &["stagger-versioned-derive"]),
    ("stagger-versioned-rpc", &["stagger-versioned"]),
    ("inventory-one", &["stagger-versioned"]),
    ("inventory-two", &["stagger-versioned"]),
    ("inventory-three", &["stagger-versioned"]),
    (
        "inventory",
        &["inventory-one", "inventory-two", "inventory-three"],
    ),
    ("stagger-core", &["stagger-versioned"]),
    ("stagger-engine", &["stagger-core", "stagger-versioned"]),
    ("stagger-conformance", &["stagger-core", "stagger-engine"]),
    ("stagger-sim", &["stagger-core", "stagger-engine"]),
    (
        "stagger-ceph",
        &["stagger-core", "stagger-engine", "stagger-risks"],
    ),
    (
        "stagger-rook",
        &[
            "stagger-core",
            "stagger-engine",
            "stagger-ceph",
            "stagger-gates",
            "stagger-risks",
            "stagger-versioned",
        ],
    ),
    ("stagger-ganeti", &["stagger-core", "stagger-engine"]),
    (
        "stagger-ironic",
        &["stagger-core", "stagger-engine", "stagger-versioned"],
    ),
    ("stagger-asks", &["stagger-core", "stagger-engine"]),
    ("stagger-gates", &["stagger-core", "stagger-engine"]),
    ("stagger-report", &["stagger-core"]),
    ("stagger-risks", &[]),
    (
        "stagger-serve",
        &["stagger-asks", "stagger-core", "stagger-engine", "stagger-report"],
    ),
    (
        "stagger-cli",
        &[
            "stagger-asks",
            "stagger-core",
            "stagger-engine",
            "stagger-sim",
            "stagger-ceph",
            "stagger-rook",
            "stagger-ganeti",
            "stagger-gates",
            "stagger-ironic",
            "stagger-report",
            "stagger-risks",
            "stagger-serve",
            "stagger-versioned",
        ],
    ),
    (
        "stagger-e2e",
        &[
            "stagger-core",
            "stagger-engine",
            "stagger-conformance",
            "stagger-ceph",
            "stagger-rook",
        ],
    ),
    (
        "stagger-fuzz",
        &[
            "stagger-core",
            "stagger-engine",
            "stagger-sim",
            "stagger-ceph",
            "stagger-rook",
            "stagger-ganeti",
            "stagger-ironic",
        ],
    ),
    ("xtask", &[]),
];

/// Packages that the core must not reach, however far away.
const IMPURE: [&str; 9] = [
    "tokio",
    "mio",
    "async-std",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "chrono",
    "rusqlite",
];

/// What the core's code must not name, however it is imported or renamed.
const IMPURE_PATHS: [&[&str]; 14] = [
    &["std", "fs"],
    &["std", "env"],
    &["std", "net"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "os"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    // That of each process is another one.
    &["std", "hash", "RandomState"],
    &["std", "collections", "hash_map", "RandomState"],
    // That of the machine.
    &["jiff", "tz", "TimeZone", "system"],
];

/// Words that the core's sources must not say, its tests included.
const IMPURE_WORDS: [&str; 10] = [
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "::now(",
    "extern crate",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dep>,
}

#[derive(Deserialize)]
struct Dep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

/// Holds the rules; the first that is broken is the error.
pub(crate) fn layers() -> Result<()> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let names: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    // What a package is built from: dependencies of its tests are another matter.
    let needs: BTreeMap<&str, Vec<&str>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| {
            let normal = node
                .deps
                .iter()
                .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            (node.id.as_str(), normal.map(|dep| dep.pkg.as_str()).collect())
        })
        .collect();
    let ours: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_none())
        .collect();
    for package in &ours {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            bail!(
                "{} has no place in the layers: give it one in xtask/src/layers.rs",
                package.name
            );
        };
        for need in &needs[package.id.as_str()] {
            let need = names[need];
            if need.source.is_none() && !allowed.contains(&need.name.as_str()) {
                bail!(
                    "{} may not depend on {}; it may on: {}",
                    package.name,
                    need.name,
                    allowed.join(", ")
                );
            }
        }
    }
    // Built by itself: others ask for features of what it depends on.
    let tree = [
        "tree",
        "--package",
        "stagger-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--locked",
    ];
    let output = cargo(&tree).output().context("cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    let reached = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut reached = reached.lines().filter_map(|line| line.split_whitespace().next());
    if !reached.clone().any(|name| name == "stagger-core") {
        bail!("cargo tree does not tell of stagger-core");
    }
    if let Some(found) = reached.find(|name| IMPURE.contains(name)) {
        bail!("stagger-core reaches {found}: the core decides, and never asks the world");
    }
    words(&root().join("crates/core/src"))?;
    modules(root()).map(drop)
}

fn words(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            words(&path)?;
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        for (at, line) in text.lines().enumerate() {
            if let Some(word) = IMPURE_WORDS.iter().find(|word| line.contains(**word)) {
                bail!(
                    "{}:{} says {word}: the core decides, and never asks the world",
                    path.display(),
                    at + 1
                );
            }
        }
        let named = paths(&text).with_context(|| format!("read {}", path.display()))?;
        if let Some(impure) = named.iter().find(|named| is_impure(named)) {
            bail!(
                "{} names {}: the core decides, and never asks the world",
                path.display(),
                impure.join("::")
            );
        }
    }
    Ok(())
}

/// What is impure under whatever name of what is before it: a clock, and the time zone of the machine.
const IMPURE_ENDS: [&str; 2] = ["now", "system"];

/// Whether a path leads to the world: to what is impure or a part of it, to all around it, or to a clock under any name.
fn is_impure(path: &[String]) -> bool {
    let leads = |impure: &&[&str]| {
        let shorter = path.len().min(impure.len());
        path.iter().zip(impure.iter()).all(|(one, other)| one == other)
            && (shorter == impure.len() || path.first().is_some_and(|first| first == "std"))
    };
    let is_of_the_machine = path.len() > 1
        && path
            .last()
            .is_some_and(|last| IMPURE_ENDS.contains(&last.as_str()));
    is_of_the_machine || IMPURE_PATHS.iter().any(leads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_is_found_under_any_name() {
        for code in [
            "use std::{collections::BTreeMap, fs};",
            "use std::fs as files;",
            "use std as s;",
            "use std::{self as s};",
            "use std::time::*;",
            "use std::{time::{Duration, Instant as I}};",
            "fn f() { ::std::process::exit(1) }",
            "use jiff::Timestamp as T; fn f() -> T { T::now() }",
            "use std::io::*;",
            "use std::io::{self, Read};",
            "fn f() -> usize { ::std::io::stdin().lines().count() }",
            "use std::io::stderr as e;",
            "use std::os::unix::fs::MetadataExt as _;",
            "use std::collections::hash_map::{Entry, RandomState};",
            "use std::hash::{Hash, RandomState};",
            "fn f() -> jiff::tz::TimeZone { jiff::tz::TimeZone::system() }",
            "use jiff::tz::TimeZone as Z; fn f() -> Z { Z::system() }",
        ] {
            let named = paths(code).unwrap();
            assert!(named.iter().any(|path| is_impure(path)), "{code}: {named:?}");
        }
        for code in [
            "use std::time::Duration; use std::collections::{BTreeMap, BTreeSet};",
            "use jiff::Timestamp; fn f(now: Timestamp) -> Timestamp { now }",
            "use std::hash::{Hash, Hasher}; use std::collections::hash_map::Entry; use std::io::Write;",
            "use jiff::tz::TimeZone; fn f() -> TimeZone { TimeZone::UTC }",
        ] {
            let named = paths(code).unwrap();
            assert!(!named.iter().any(|path| is_impure(path)), "{code}: {named:?}");
        }
    }

    #[test]
    fn an_impure_word_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "let now = jiff::Timestamp::now();\n").unwrap();
        let error = words(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.rs:1 says Timestamp::now"), "{error}");
    }

    #[test]
    fn the_layers_hold() {
        layers().unwrap();
    }
}
