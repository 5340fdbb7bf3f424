//! Debian's own Ganeti, 3.0 or 3.1, with its htools, in a root (a chroot) of its own in the cache.
//!
//! It is named after the exact version in it and after what was changed in it:
//! `<cache>/ganeti-roots/<Debian version of ganeti-3.0>-<digest>/`, and the same for 3.1. One that is there is used without any network.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::release::Release;
use super::safety;
use super::spec::{self, MOST_NODES};
use crate::cache;
use crate::roots::VERSIONS;
use crate::roots::build::{Builder, Recipe, digest, find_or_build, newest};

/// Where the stand-ins for devices come into Ganeti: the module, and the function that is called at its end. They
/// themselves are in each cluster's folder, as they are in this checkout.
const HOOKS: [(&str, &str); 2] = [("storage/bdev.py", "storage"), ("backend.py", "node")];

/// Added to each of those modules. A Ganeti that is not on a virtual node stops here.
const HOOK: &str = r#"

# stagger's test-bed: what virtual nodes have instead of devices and memory.
import os as _os
import sys as _sys
_sys.path.insert(0, _os.path.join(_os.path.dirname(_os.environ["GANETI_ROOTDIR"]), "lib"))
import stand_ins as _stand_ins
_stand_ins.FUNCTION(_sys.modules[__name__])
"#;

/// An operating system for instances: none at all.
const OS: &str = "usr/share/ganeti/os/dummy";
const OS_SCRIPTS: [&str; 5] = ["create", "import", "export", "rename", "verify"];

/// Nodes are made anew with each cluster, at the same names.
const SSH: &str = "Host *\n\
    \x20 StrictHostKeyChecking no\n\
    \x20 UserKnownHostsFile /dev/null\n\
    \x20 LogLevel ERROR\n\
    \x20 ConnectTimeout 5\n\
    \x20 BatchMode yes\n";

/// A root with Ganeti.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// Debian's version of Ganeti in it.
    pub version: String,
}

impl Root {
    /// Gives that of Ganeti 3.0 in the cache, built if it is not there yet, which takes minutes.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn ensure() -> Result<Self> {
        Self::ensure_of(Release::V3_0)
    }

    /// The same for a release.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn ensure_of(release: Release) -> Result<Self> {
        let base = cache::dir()?.join("ganeti-roots");
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        let changes = changes(release)?;
        let (number, suite, packages) = (release.number(), release.suite(), release.packages());
        let recipe = Recipe {
            what: &format!("Ganeti {number}"),
            key: number,
            suite,
            packages: &packages,
            named_by: release.package(),
            finish: &finish,
            name: &|version| {
                ensure!(
                    version.starts_with(&format!("{number}.")),
                    "Debian {suite} now has Ganeti {version}, not {number}: name another suite for it"
                );
                Ok(format!("{version}-{changes}"))
            },
        };
        find_or_build(&base, &recipe, || find(&base, &changes))
    }

    /// The versions of all packages in it.
    pub fn packages(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path.join(VERSIONS);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no map of packages", path.display()))
    }
}

/// The newest complete root with these changes, if there is one.
fn find(base: &Path, changes: &str) -> Result<Option<Root>> {
    Ok(newest(base, changes)?.map(|(version, path)| Root { path, version }))
}

/// What this program changes in a root comes to, in a few letters.
fn changes(release: Release) -> Result<String> {
    digest([
        safety::BODY,
        HOOK,
        SSH,
        &hosts(),
        &release.packages().join(" "),
        &format!("{HOOKS:?}"),
    ])
}

fn finish(builder: &Builder<'_>) -> Result<()> {
    safety::patch(builder.root)?;
    let code = safety::code(builder.root)?;
    for (module, function) in HOOKS {
        let path = builder.root.join(code).join(module);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let text = text + &HOOK.replace("FUNCTION", function);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    // The root is read-only later, and compiling each time would make every command slow.
    let code = Path::new("/").join(code);
    builder.step(
        builder
            .inside("python3")
            .args(["-m", "compileall", "-q", "-f"])
            .arg(code),
    )?;
    safety::check(builder.root)?;

    for script in OS_SCRIPTS {
        builder.write_program(&format!("{OS}/{script}"), "#!/bin/sh\nexit 0\n")?;
    }
    builder.write(&format!("{OS}/ganeti_api_version"), "20\n15\n10\n")?;
    builder.write(&format!("{OS}/variants.list"), "default\n")?;
    builder.write(&format!("{OS}/parameters.list"), "")?;

    builder.write("etc/hosts", &hosts())?;
    // Nobody outside is asked for a name.
    builder.write("etc/resolv.conf", "")?;
    builder.write("etc/ssh/ssh_config.d/stagger.conf", SSH)?;
    let key = ["-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519"];
    // Debian 13 makes the folder itself.
    builder.step(builder.inside("mkdir").args(["-p", "-m", "700", "/root/.ssh"]))?;
    builder.step(builder.inside("ssh-keygen").args(key))?;
    builder.step(
        builder
            .inside("cp")
            .args(["/root/.ssh/id_ed25519.pub", "/root/.ssh/authorized_keys"]),
    )?;
    // Clusters live below it if the cache is in root's home, and not all daemons run as root.
    let home = builder.root.join("root");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o711))
        .with_context(|| format!("opening {}", home.display()))
}

/// Every node that a cluster may have, by name.
fn hosts() -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    let mut add = |address: &str, name: &str| text.extend([address, " ", name, "\n"]);
    add(spec::CLUSTER_ADDRESS, spec::CLUSTER);
    for number in 1..=MOST_NODES {
        add(&spec::address(number), &spec::name(number));
    }
    // After the name that an address has.
    add(&spec::address(1), spec::STRANGER);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_root_with_these_changes_is_found() {
        let base = tempfile::tempdir().unwrap();
        let find = || find(base.path(), "0a1b2c3d");
        assert_eq!(find().unwrap(), None);
        let other = base.path().join("3.0.2-3-ffffffff");
        fs::create_dir(&other).unwrap();
        assert_eq!(find().unwrap(), None, "it has other changes");
        let path = base.path().join("3.0.2-3-0a1b2c3d");
        fs::create_dir(&path).unwrap();
        assert!(find().is_err(), "it is not complete");
        fs::write(path.join(VERSIONS), r#"{"ganeti-3.0":"3.0.2-3"}"#).unwrap();
        let root = find().unwrap().unwrap();
        assert_eq!((root.version.as_str(), &root.path), ("3.0.2-3", &path));
        assert_eq!(root.packages().unwrap()["ganeti-3.0"], "3.0.2-3");
    }

    #[test]
    fn each_release_has_a_root_of_its_own() {
        let digests = Release::ALL.map(|release| changes(release).unwrap());
        assert_ne!(digests[0], digests[1]);
        for release in Release::ALL {
            assert!(release.packages().contains(&release.package()));
        }
    }

    #[test]
    fn names_and_addresses_are_known_inside() {
        let hosts = hosts();
        assert!(hosts.contains("198.51.100.1 cluster\n"));
        assert!(hosts.contains("198.51.100.11 node1\n"));
        assert!(hosts.contains("198.51.100.50 node40\n"));
    }
}
