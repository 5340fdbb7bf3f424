//! Building one root: Debian's base, then Ceph's packages in it.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{Release, Root, VERSIONS};
use crate::command::{last_lines, output, run, say, shown};
use crate::sandbox::{Folder, Network, Sandbox};

/// The daemons, and what the load's clients need.
const PACKAGES: [&str; 8] = [
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph-mds",
    "radosgw",
    "ceph-common",
    "python3-rados",
    "python3-cephfs",
];

/// Nothing is started inside a root by its packages.
const NO_SERVICES: &str = "#!/bin/sh\nexit 101\n";

/// A root is rebuilt, never repaired: no flushing to disk file by file, and nothing to read in it.
const DPKG: &str = "force-unsafe-io\n\
    path-exclude=/usr/share/doc/*\n\
    path-exclude=/usr/share/man/*\n\
    path-exclude=/usr/share/locale/*\n\
    path-exclude=/usr/share/info/*\n";

/// From Debian 13 on `python3-bcrypt` refuses to be loaded in a sub-interpreter, so every module of the
/// mgr fails. Nothing in a test needs it: the mgr finds this one first (see `daemonctl`).
const BCRYPT: &str = "def gensalt(*_args, **_kwargs):\n    return b''\n\n\
    def hashpw(*_args, **_kwargs):\n    return b''\n\n\
    def checkpw(*_args, **_kwargs):\n    return False\n";

/// Builds the root of a release below `base`. The caller holds its lock.
pub(super) fn build(base: &Path, release: Release) -> Result<Root> {
    let begun = Instant::now();
    let mirror = mirror()?;
    let place = base.join(format!(".building-{release}"));
    if place.exists() {
        // Its mounts went with the namespaces of the build that was killed.
        fs::remove_dir_all(&place)
            .with_context(|| format!("removing what a killed build left, {}", place.display()))?;
    }
    let root = place.join("root");
    let tmp = place.join("tmp");
    for dir in [&root, &tmp] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let mut sandbox = Sandbox::start_with(&place, &[], Network::Host, Folder::Stays)?;
    let builder = Builder {
        release,
        root: &root,
        log: base.join(format!("build-{release}.log")),
    };
    File::create(&builder.log).with_context(|| format!("creating {}", builder.log.display()))?;

    say(format!(
        "roots: Ceph {release}: Debian {} from {mirror}",
        release.suite()
    ));
    let scripts = Path::new("/usr/share/debootstrap/scripts");
    let known = scripts.join(release.suite());
    let script = if known.exists() {
        known
    } else {
        scripts.join("sid")
    };
    let mut base_system = sandbox.command("debootstrap");
    base_system.args([
        "--variant=minbase",
        "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    ]);
    base_system
        .arg(release.suite())
        .arg(&root)
        .arg(&mirror)
        .arg(script);
    // Others clean /tmp, and have removed files under a running installation.
    builder.step(base_system.env("TMPDIR", &tmp))?;

    builder.settings()?;
    say(format!(
        "roots: Ceph {release}: packages, after {} s",
        begun.elapsed().as_secs()
    ));
    // Some packages' scripts need it, and fail in ways that do not say so.
    builder.step(
        sandbox
            .command("mount")
            .args(["-t", "proc", "proc"])
            .arg(root.join("proc")),
    )?;
    let mut install = sandbox.command_in(&root, "apt-get");
    install.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]);
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(PACKAGES);
    builder.step(
        install
            .env_remove("TMPDIR")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C"),
    )?;
    builder.step(sandbox.command_in(&root, "apt-get").arg("clean"))?;

    let list = run(sandbox.command_in(&root, "dpkg-query").args([
        "-W",
        "-f",
        "${Package} ${Version} ${db:Status-Status}\n",
    ]))?;
    sandbox.stop()?;
    builder.trim()?;
    let version = builder.versions(&list)?;

    let path = base.join(&version);
    fs::rename(&root, &path).with_context(|| format!("renaming {} to {}", root.display(), path.display()))?;
    fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
    say(format!(
        "roots: Ceph {release}: {version} complete after {} s",
        begun.elapsed().as_secs()
    ));
    Ok(Root {
        release,
        path,
        version,
    })
}

struct Builder<'a> {
    release: Release,
    root: &'a Path,
    log: PathBuf,
}

impl Builder<'_> {
    /// Runs one step, its words going to the log.
    fn step(&self, command: &mut Command) -> Result<()> {
        let log = || -> Result<File> {
            File::options()
                .append(true)
                .open(&self.log)
                .with_context(|| format!("opening {}", self.log.display()))
        };
        let status = command
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .status()
            .with_context(|| format!("starting `{}`", shown(command)))?;
        if !status.success() {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!(
                "`{}` ended with {status}; the end of {}:\n{}",
                shown(command),
                self.log.display(),
                last_lines(&said, 15)
            );
        }
        Ok(())
    }

    fn settings(&self) -> Result<()> {
        self.write("usr/sbin/policy-rc.d", NO_SERVICES)?;
        let policy = self.root.join("usr/sbin/policy-rc.d");
        fs::set_permissions(&policy, Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", policy.display()))?;
        self.write("etc/dpkg/dpkg.cfg.d/stagger", DPKG)?;
        self.write("opt/stagger/bcrypt.py", BCRYPT)?;
        // However this machine reaches its packages, so does the root.
        let fetch = output(Command::new("apt-config").args([
            "dump",
            "--format",
            "%F \"%v\";%n",
            "Acquire::http",
            "Acquire::https",
        ]))?;
        self.write(
            "etc/apt/apt.conf.d/90machine",
            &String::from_utf8_lossy(&fetch.stdout),
        )?;
        if let Ok(resolver) = fs::read_to_string("/etc/resolv.conf") {
            self.write("etc/resolv.conf", &resolver)?;
        }
        Ok(())
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        // debootstrap may have left a link to a file that is not there.
        if path.is_symlink() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes what only installing needed, and the base's documents, which came before the settings.
    fn trim(&self) -> Result<()> {
        for dir in [
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
            "var/lib/apt/lists",
            "var/cache/apt",
        ] {
            let path = self.root.join(dir);
            if path.exists() {
                fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Writes down the versions of all packages, and gives that of Ceph.
    fn versions(&self, list: &str) -> Result<String> {
        let mut packages = BTreeMap::new();
        for line in list.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [package, version, status] = words[..] {
                packages.insert(package, version);
                ensure!(
                    status == "installed" || !PACKAGES.contains(&package),
                    "{package} is {status}, not installed; see {}",
                    self.log.display()
                );
            }
        }
        let version = packages
            .get("ceph-osd")
            .context("ceph-osd is not among the installed packages")?;
        ensure!(
            version.starts_with(&format!("{}.", self.release)),
            "Debian {} now has Ceph {version}, not {}: name another suite for it",
            self.release.suite(),
            self.release
        );
        let text = serde_json::to_string_pretty(&packages).context("writing package versions as JSON")?;
        self.write(VERSIONS, &text)?;
        Ok((*version).to_owned())
    }
}

/// The Debian mirror that this machine's apt uses.
fn mirror() -> Result<String> {
    let format = "$(CREATED_BY) $(COMPONENT) $(LABEL) $(REPO_URI)";
    let targets = run(Command::new("apt-get").args(["indextargets", "--format", format]))
        .context("asking apt for its mirror; roots are built from Debian's packages, on Debian")?;
    targets
        .lines()
        .find_map(|line| line.strip_prefix("Packages main Debian "))
        .map(|uri| uri.trim().trim_end_matches('/').to_owned())
        .context("apt has no source of Debian's component main, or no lists yet; try `apt-get update`")
}
