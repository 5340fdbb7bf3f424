//! What hosts of cephadm begin with: Debian 13 with systemd, sshd and podman; and what images of Ceph are made of: Debian's packages of
//! Ceph 20, cephadm's module of the manager among them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache;
use crate::roots::build::{Builder, Recipe, digest, find_or_build, newest};
use crate::roots::{Release, Root};

/// What makes a root a host of cephadm, and the registry beside the hosts.
const HOST: [&str; 16] = [
    "ca-certificates",
    "catatonit",
    "crun",
    "dbus",
    "docker-registry",
    "iproute2",
    "kmod",
    "lvm2",
    "openssh-client",
    "openssh-server",
    "podman",
    "procps",
    "python3",
    "sudo",
    "systemd-sysv",
    "util-linux",
];

/// What an image of Ceph has.
const CEPH: [&str; 11] = [
    "ceph-base",
    "ceph-common",
    "ceph-mds",
    "ceph-mgr",
    "ceph-mgr-cephadm",
    "ceph-mon",
    "ceph-osd",
    "ceph-volume",
    "lvm2",
    "radosgw",
    "udev",
];

/// Units that need hardware, a terminal or a network of the world.
const MASKED: [&str; 23] = [
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "blk-availability.service",
    "console-getty.service",
    "dm-event.socket",
    "docker-registry.service",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "lvm2-lvmpolld.socket",
    "lvm2-monitor.service",
    "podman-auto-update.timer",
    "podman-clean-transient.service",
    "podman-restart.service",
    "podman.socket",
    "sshd-keygen.service",
    "systemd-timesyncd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "systemd-udevd-varlink.socket",
];

/// cephadm looks for a unit that keeps the time; the kernel of the machine does.
const CHRONY: &str = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";

/// One key lets root in, and that of cephadm, whose manager has many sessions to a host at once.
const SSHD: &str = "AuthorizedKeysFile /etc/ssh/authorized_keys .ssh/authorized_keys\nHostKey /etc/ssh/ssh_host_ed25519_key\n\
                    MaxSessions 40\nMaxStartups 100\n";

/// The registry of the hosts has no certificate.
const REGISTRIES: &str = "[[registry]]\nlocation = \"10.88.0.254:5000\"\ninsecure = true\n";

const CONTAINERS: &str = "[engine]\nruntime = \"crun-without-pids\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
                          [engine.runtimes]\ncrun-without-pids = [\"/usr/local/bin/crun-without-pids\"]\n";

/// crun refuses a limit of processes, also none, where control groups have no controller for it, as here.
const CRUN: &str = include_str!("crun.py");

/// Python 3.14 starts processes of `multiprocessing` from a server of forks, which a manager's interpreters within one cannot have.
const FORK: &str = "import multiprocessing\ntry:\n    multiprocessing.set_start_method('fork', force=True)\nexcept RuntimeError:\n    pass\n";

/// The module of the manager that all others load first.
const MGR_MODULE: &str = "usr/share/ceph/mgr/mgr_module.py";

/// Both roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// That of the hosts.
    pub host: PathBuf,
    /// That of the images, which a client beside the hosts runs from too.
    pub ceph: Root,
    /// What both were asked to be.
    pub(super) asked: String,
}

impl Roots {
    /// Gives those of the cache, built if they are not there yet, which takes minutes.
    ///
    /// # Errors
    /// They cannot be built.
    pub fn ensure() -> Result<Self> {
        let base = cache::dir()?.join("cephadm-roots");
        fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
        // Side by side: most of the time is the mirror's.
        let (host, ceph) = std::thread::scope(|scope| {
            let host = scope.spawn(|| host(&base));
            let ceph = ceph(&base);
            (host.join(), ceph)
        });
        let host = match host {
            Ok(host) => host?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let ceph = ceph?;
        let names = [&host, &ceph.path].map(|path| path.display().to_string());
        let asked = digest(names.iter().map(String::as_str))?;
        Ok(Self { host, ceph, asked })
    }
}

fn host(base: &Path) -> Result<PathBuf> {
    let suite = Release::Reef.suite();
    let texts = [suite, CHRONY, SSHD, REGISTRIES, CONTAINERS, CRUN];
    let asked = digest(texts.into_iter().chain(HOST).chain(MASKED))?;
    let recipe = Recipe {
        what: "hosts of cephadm",
        key: "cephadm-hosts",
        suite,
        packages: &HOST,
        named_by: "podman",
        finish: &finish_host,
        name: &|version| Ok(format!("{version}-{asked}")),
    };
    find_or_build(base, &recipe, || Ok(newest(base, &asked)?.map(|(_, path)| path)))
}

fn finish_host(builder: &Builder<'_>) -> Result<()> {
    builder.step(builder.inside("systemctl").arg("mask").args(MASKED))?;
    builder.write("etc/systemd/system/chrony.service", CHRONY)?;
    builder.step(builder.inside("systemctl").args(["enable", "chrony"]))?;
    builder.write("etc/ssh/sshd_config.d/stagger.conf", SSHD)?;
    builder.write("etc/containers/registries.conf.d/stagger.conf", REGISTRIES)?;
    builder.write("etc/containers/containers.conf", CONTAINERS)?;
    builder.write_program("usr/local/bin/crun-without-pids", CRUN)?;
    // Each host has a key of its own. And on a host, services start.
    builder.step(builder.inside("sh").args(["-c", "rm -f /etc/ssh/ssh_host_*"]))?;
    let policy = builder.root.join("usr/sbin/policy-rc.d");
    fs::remove_file(&policy).with_context(|| format!("removing {}", policy.display()))
}

fn ceph(base: &Path) -> Result<Root> {
    let release = Release::Tentacle;
    let asked = digest([release.suite(), FORK, MGR_MODULE].into_iter().chain(CEPH))?;
    let recipe = Recipe {
        what: "images of Ceph",
        key: "cephadm-images",
        suite: release.suite(),
        packages: &CEPH,
        named_by: "ceph-osd",
        finish: &|builder| {
            let module = builder.root.join(MGR_MODULE);
            let text =
                fs::read_to_string(&module).with_context(|| format!("reading {}", module.display()))?;
            builder.write(MGR_MODULE, &format!("{FORK}{text}"))
        },
        name: &|version| Ok(format!("{version}-{asked}")),
    };
    find_or_build(base, &recipe, || {
        Ok(newest(base, &asked)?.map(|(version, path)| Root {
            release,
            path,
            version,
        }))
    })
}
