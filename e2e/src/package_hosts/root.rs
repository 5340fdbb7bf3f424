//! What the hosts begin with: Debian 13 with Ceph 18 on it, and the packages of Ceph 18 and 20 to install from, with everything
//! that they depend on. Kept in the cache, so that a test needs no network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache;
use crate::command::run;
use crate::hosts::network::OUTSIDE;
use crate::roots::build::{Builder, Recipe, digest, find_or_build, mirror, newest};
use crate::roots::{BCRYPT, Release};

/// The release that the hosts begin with.
pub(super) const BEGUN: Release = Release::Reef;
/// The one that they can be given.
const NEXT: Release = Release::Tentacle;

/// A repository that the hosts can have as a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repository {
    /// What the hosts begin with, and everything else that is on them.
    Begun,
    /// The same release of Ceph with a higher version of its packages.
    Patched,
    /// The next release, with what it needs of the next Debian.
    Next,
}

impl Repository {
    const ALL: [Self; 3] = [Self::Begun, Self::Patched, Self::Next];

    /// What apt knows it by.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Begun => BEGUN.suite(),
            Self::Patched => "patched",
            Self::Next => NEXT.suite(),
        }
    }

    /// The line of `sources.list` that names it.
    pub fn source(self) -> String {
        format!("deb [trusted=yes] http://{OUTSIDE}:{SERVER}/{} ./", self.suite())
    }

    fn folder(self, root: &Path) -> PathBuf {
        root.join(PACKAGES_DIR.trim_start_matches('/')).join(self.suite())
    }
}

/// The port where the packages are served.
pub(super) const SERVER: &str = "8000";

/// Where the packages are in the root: a folder for each suite.
pub(super) const PACKAGES_DIR: &str = "/srv/packages";

/// Ceph's packages of a host that carries daemons of every kind.
const CEPH: [&str; 7] = [
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph-mds",
    "radosgw",
    "ceph-common",
    "python3-rados",
];

/// What makes a root a host.
const HOST: [&str; 6] = [
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "procps",
    "iproute2",
];

/// Units that need hardware, a terminal or a clock of their own.
const MASKED: [&str; 17] = [
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "blk-availability.service",
    "ceph-crash.service",
    "console-getty.service",
    "dm-event.socket",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "lvm2-lvmpolld.socket",
    "lvm2-monitor.service",
    "nvmefc-boot-connections.service",
    "nvmf-autoconnect.service",
    "rbdmap.service",
    "smartmontools.service",
    "sshd-keygen.service",
];

/// The index of a folder of packages.
const INDEX: &str = include_str!("index.sh");
/// Makes packages with a higher version.
const PATCHED: &str = include_str!("patched.sh");

/// The manager finds its stand-in for `bcrypt` first; see the roots of Ceph.
const MGR: &str = "[Service]\nEnvironment=PYTHONPATH=/opt/stagger\n";

/// One key lets root and `admin` in; the host has one key itself, made with it.
const SSHD: &str = "AuthorizedKeysFile /etc/ssh/authorized_keys\nHostKey /etc/ssh/ssh_host_ed25519_key\n";

/// A user who is not root and may become it.
const SUDO: &str = "admin ALL=(ALL) NOPASSWD: ALL\n";

/// Only what is needed: a host here is small.
const APT: &str = "APT::Install-Recommends \"false\";\n";

/// A root for hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
}

impl Root {
    /// Gives the one in the cache, built if it is not there yet, which takes minutes.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn ensure() -> Result<Self> {
        let base = cache::dir()?.join("host-roots");
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        let words = [
            BEGUN.suite(),
            NEXT.suite(),
            INDEX,
            PATCHED,
            MGR,
            SSHD,
            SUDO,
            APT,
            BCRYPT,
        ];
        let all = words.into_iter().chain(CEPH).chain(HOST).chain(MASKED);
        let asked = digest(all)?;
        let packages: Vec<&str> = HOST.into_iter().chain(CEPH).collect();
        let recipe = Recipe {
            what: "hosts",
            key: "hosts",
            suite: BEGUN.suite(),
            packages: &packages,
            named_by: "ceph-osd",
            finish: &finish,
            name: &|version| Ok(format!("{version}-{asked}")),
        };
        let path = find_or_build(
            &base,
            &recipe,
            || Ok(newest(&base, &asked)?.map(|(_, path)| path)),
        )?;
        Ok(Self { path })
    }

    /// The version of Ceph's packages in a repository.
    ///
    /// # Errors
    /// It has none.
    pub fn version(&self, repository: Repository) -> Result<String> {
        let index = repository.folder(&self.path).join("Packages");
        let text = fs::read_to_string(&index).with_context(|| format!("reading {}", index.display()))?;
        let entry = text
            .split("\n\n")
            .find(|entry| entry.lines().any(|line| line == "Package: ceph-osd"));
        let version = entry.and_then(|entry| entry.lines().find_map(|line| line.strip_prefix("Version: ")));
        let version = version.with_context(|| format!("{} has no ceph-osd", index.display()))?;
        Ok(version.to_owned())
    }
}

/// Keeps the packages, and makes a host of what was installed from them.
fn finish(builder: &Builder<'_>) -> Result<()> {
    for repository in Repository::ALL {
        let folder = repository.folder(builder.root);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let installed = run(builder
        .inside("dpkg-query")
        .args(["-W", "-f", "${binary:Package}=${Version}\n"]))?;
    let begun = Repository::Begun;
    let mut download = in_folder(
        builder,
        begun,
        "apt-get -q -o APT::Sandbox::User=root download \"$@\"",
    );
    builder.step(download.args(installed.lines()))?;
    builder.step(in_folder(builder, Repository::Patched, PATCHED).arg(format!("../{}", begun.suite())))?;
    next_packages(builder)?;
    for repository in Repository::ALL {
        builder.step(in_folder(builder, repository, INDEX).arg(repository.suite()))?;
    }

    builder.step(builder.inside("systemctl").arg("mask").args(MASKED))?;
    builder.step(
        builder
            .inside("useradd")
            .args(["--create-home", "--shell", "/bin/sh", "admin"]),
    )?;
    builder.write("etc/sudoers.d/admin", SUDO)?;
    builder.write("etc/ssh/sshd_config.d/stagger.conf", SSHD)?;
    builder.write("etc/systemd/system/ceph-mgr@.service.d/bcrypt.conf", MGR)?;
    builder.write("opt/stagger/bcrypt.py", BCRYPT)?;
    builder.write("etc/apt/sources.list", &format!("{}\n", begun.source()))?;
    builder.write("etc/apt/apt.conf.d/90machine", APT)?;
    // Each host has a key of its own. And on a host, services start.
    builder.step(builder.inside("sh").args(["-c", "rm /etc/ssh/ssh_host_*"]))?;
    let policy = builder.root.join("usr/sbin/policy-rc.d");
    fs::remove_file(&policy).with_context(|| format!("removing {}", policy.display()))
}

/// Downloads what an upgrade to the next release brings.
fn next_packages(builder: &Builder<'_>) -> Result<()> {
    let suite = NEXT.suite();
    let source = "etc/apt/sources.list.d/next.list";
    builder.write(source, &format!("deb {} {suite} main\n", mirror()?))?;
    let options = [
        "-q",
        "-y",
        "-o",
        "APT::Sandbox::User=root",
        "-o",
        "Acquire::Retries=3",
        // A release that is not out yet may be older than it says it may be.
        "-o",
        "Acquire::Check-Valid-Until=false",
    ];
    builder.step(builder.inside("apt-get").args(options).arg("update"))?;
    let mut download = builder.inside("apt-get");
    download.args(options).args(["install", "--download-only"]);
    builder.step(download.args(["--no-install-recommends", "-t", suite]).args(CEPH))?;
    let folder = Repository::Next.folder(builder.root);
    let archives = builder.root.join("var/cache/apt/archives");
    let mut found = 0;
    for entry in fs::read_dir(&archives).with_context(|| format!("reading {}", archives.display()))? {
        let path = entry?.path();
        if let Some(name) = path
            .file_name()
            .filter(|_| path.extension() == Some("deb".as_ref()))
        {
            fs::rename(&path, folder.join(name)).with_context(|| format!("keeping {}", path.display()))?;
            found += 1;
        }
    }
    ensure!(found > 0, "nothing was downloaded of Debian {suite}");
    fs::remove_file(builder.root.join(source)).context("removing the source of the next release")
}

/// A shell's words in the folder of a repository; its arguments are still to come.
fn in_folder(builder: &Builder<'_>, repository: Repository, words: &str) -> Command {
    let mut command = builder.inside("sh");
    let words = format!("cd {PACKAGES_DIR}/{} && {words}", repository.suite());
    command.args(["-c", &words, "packages"]);
    command
}
