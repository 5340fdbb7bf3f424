//! Building one root: Debian's base, then packages in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::VERSIONS;
use crate::command::{last_lines, output, run, say, shown};
use crate::machine::Needed;
use crate::sandbox::{Folder, Network, Sandbox};

/// Nothing is started inside a root by its packages.
const NO_SERVICES: &str = "#!/bin/sh\nexit 101\n";

/// A root is rebuilt, never repaired: no flushing to disk file by file, and nothing to read in it.
const DPKG: &str = "force-unsafe-io\n\
    path-exclude=/usr/share/doc/*\n\
    path-exclude=/usr/share/man/*\n\
    path-exclude=/usr/share/locale/*\n\
    path-exclude=/usr/share/info/*\n";

/// What goes into a root, and what it is called.
pub(crate) struct Recipe<'a> {
    /// What is in it, for people: `Ceph 16`.
    pub(crate) what: &'a str,
    /// What tells its build, log and lock from others': `16`.
    pub(crate) key: &'a str,
    /// The Debian release.
    pub(crate) suite: &'a str,
    /// The packages; what they depend on comes with them, what they recommend does not.
    pub(crate) packages: &'a [&'a str],
    /// The one of them whose version is the root's.
    pub(crate) named_by: &'a str,
    /// Does what is left to do once the packages are installed.
    pub(crate) finish: &'a dyn Fn(&Builder<'_>) -> Result<()>,
    /// The name of the root's folder by its version, or what is wrong with that version.
    pub(crate) name: &'a dyn Fn(&str) -> Result<String>,
}

impl fmt::Debug for Recipe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.what, self.suite, self.packages.join(" "))
    }
}

/// Gives what `find` finds, or else what is built by `recipe`. Two processes that want the same one take turns.
pub(crate) fn find_or_build<T>(
    base: &Path,
    recipe: &Recipe<'_>,
    find: impl Fn() -> Result<Option<T>>,
) -> Result<T> {
    if let Some(root) = find()? {
        return Ok(root);
    }
    Needed::Debootstrap.ensure()?;
    let path = base.join(format!(".lock-{}", recipe.key));
    let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    lock.lock()
        .with_context(|| format!("locking {}", path.display()))?;
    let root = if let Some(root) = find()? {
        root
    } else {
        let built = build(base, recipe).with_context(|| format!("building the root of {}", recipe.what))?;
        find()?.with_context(|| format!("{} was built, and is not found", built.display()))?
    };
    drop(lock); // held until here: the kernel gives it up also when this process is killed
    Ok(root)
}

/// The newest complete root below `base` that is called `<version>-<digest>`: its version, and where it is.
pub(crate) fn newest(base: &Path, digest: &str) -> Result<Option<(String, PathBuf)>> {
    let mut newest = None;
    for entry in fs::read_dir(base).with_context(|| format!("reading {}", base.display()))? {
        let path = entry
            .with_context(|| format!("reading {}", base.display()))?
            .path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(version) = name.and_then(|name| name.strip_suffix(digest)?.strip_suffix('-')) else {
            continue;
        };
        let Ok(built) = fs::metadata(path.join(VERSIONS)).and_then(|meta| meta.modified()) else {
            bail!(
                "{} has no {VERSIONS}: it was not made by a complete build; remove it",
                path.display()
            );
        };
        if newest.as_ref().is_none_or(|(other, _)| built > *other) {
            let version = version.to_owned();
            newest = Some((built, (version, path)));
        }
    }
    Ok(newest.map(|(_, root)| root))
}

/// What the texts of a recipe come to, in a few letters.
pub(crate) fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text);
        hasher.update([0]);
    }
    let mut digest = String::new();
    for byte in hasher.finalize().iter().take(4) {
        write!(digest, "{byte:02x}")?;
    }
    Ok(digest)
}

/// Builds a root below `base`, and says where it is. The caller holds its lock.
fn build(base: &Path, recipe: &Recipe<'_>) -> Result<PathBuf> {
    let begun = Instant::now();
    let Recipe { what, key, suite, .. } = recipe;
    let mirror = mirror()?;
    let place = base.join(format!(".building-{key}"));
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
    let log = base.join(format!("build-{key}.log"));
    File::create(&log).with_context(|| format!("creating {}", log.display()))?;

    say(format!("roots: {what}: Debian {suite} from {mirror}"));
    let scripts = Path::new("/usr/share/debootstrap/scripts");
    let known = scripts.join(suite);
    let script = if known.exists() {
        known
    } else {
        scripts.join("sid")
    };
    let builder = Builder {
        root: &root,
        log,
        sandbox: &sandbox,
    };
    let mut base_system = sandbox.command("debootstrap");
    base_system.args([
        "--variant=minbase",
        "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    ]);
    base_system.arg(suite).arg(&root).arg(&mirror).arg(script);
    // Others clean /tmp, and have removed files under a running installation.
    builder.step(base_system.env("TMPDIR", &tmp))?;

    builder.settings()?;
    say(format!(
        "roots: {what}: packages, after {} s",
        begun.elapsed().as_secs()
    ));
    // Some packages' scripts need it, and fail in ways that do not say so.
    builder.step(
        sandbox
            .command("mount")
            .args(["-t", "proc", "proc"])
            .arg(root.join("proc")),
    )?;
    let mut install = builder.inside("apt-get");
    install.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]);
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(recipe.packages);
    builder.step(&mut install)?;
    builder.step(builder.inside("apt-get").arg("clean"))?;
    (recipe.finish)(&builder)?;

    let list =
        run(builder
            .inside("dpkg-query")
            .args(["-W", "-f", "${Package} ${Version} ${db:Status-Status}\n"]))?;
    builder.trim()?;
    let name = (recipe.name)(&builder.versions(&list, recipe)?)?;
    sandbox.stop()?;

    let path = base.join(&name);
    fs::rename(&root, &path).with_context(|| format!("renaming {} to {}", root.display(), path.display()))?;
    fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
    say(format!(
        "roots: {what}: {name} complete after {} s",
        begun.elapsed().as_secs()
    ));
    Ok(path)
}

/// A root that is being built.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    /// Where it is for now.
    pub(crate) root: &'a Path,
    log: PathBuf,
    sandbox: &'a Sandbox,
}

impl Builder<'_> {
    /// A command with the root's own files.
    pub(crate) fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.sandbox.command_in(self.root, program);
        command
            .env_remove("TMPDIR")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        command
    }

    /// Runs one step, its words going to the log.
    pub(crate) fn step(&self, command: &mut Command) -> Result<()> {
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

    /// Writes a file, with its folder; `path` is relative to the root.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
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

    /// The same for a program.
    pub(crate) fn write_program(&self, path: &str, text: &str) -> Result<()> {
        self.write(path, text)?;
        let path = self.root.join(path);
        fs::set_permissions(&path, Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", path.display()))
    }

    fn settings(&self) -> Result<()> {
        self.write_program("usr/sbin/policy-rc.d", NO_SERVICES)?;
        self.write("etc/dpkg/dpkg.cfg.d/stagger", DPKG)?;
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

    /// Writes down the versions of all packages, and gives that of the one that names the root.
    fn versions(&self, list: &str, recipe: &Recipe<'_>) -> Result<String> {
        let mut packages = BTreeMap::new();
        for line in list.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [package, version, status] = words[..] {
                packages.insert(package, version);
                ensure!(
                    status == "installed" || !recipe.packages.contains(&package),
                    "{package} is {status}, not installed; see {}",
                    self.log.display()
                );
            }
        }
        let version = packages
            .get(recipe.named_by)
            .with_context(|| format!("{} is not among the installed packages", recipe.named_by))?;
        let text = serde_json::to_string_pretty(&packages).context("writing package versions as JSON")?;
        self.write(VERSIONS, &text)?;
        Ok((*version).to_owned())
    }
}

/// The Debian mirror that this machine's apt uses.
pub(crate) fn mirror() -> Result<String> {
    let format = "$(CREATED_BY) $(COMPONENT) $(LABEL) $(REPO_URI)";
    let targets = run(Command::new("apt-get").args(["indextargets", "--format", format]))
        .context("asking apt for its mirror; roots are built from Debian's packages, on Debian")?;
    targets
        .lines()
        .find_map(|line| line.strip_prefix("Packages main Debian "))
        .map(|uri| uri.trim().trim_end_matches('/').to_owned())
        .context("apt has no source of Debian's component main, or no lists yet; try `apt-get update`")
}
