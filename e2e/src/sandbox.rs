//! Namespaces of their own for what a test starts, which end with the test however it ends.
//!
//! The first process in the namespaces reads a pipe whose other end this process holds. When this
//! process ends, also by SIGKILL, the pipe closes, the first process leaves, and the kernel ends all
//! that is left in its pid namespace; mounts and interfaces go with their last user. Nothing has to be
//! looked for and ended by name, and nothing can be forgotten.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The first process. Arguments: network (own or host), the sandbox's folder, then the roots.
///
/// It ends as `cat` with SIGCHLD ignored. That disposition survives exec, and it makes the kernel reap
/// every orphan at once: a daemon that has ended leaves no zombie behind which others would wait for.
/// (`trap '' CHLD` would be the shell's word for it, but dash does not obey.)
const FIRST: &str = r#"
set -eu
# /proc is still the outer one here, so this is our pid as the outer world knows it.
read -r pid rest </proc/self/stat
network=$1 dir=$2; shift 2
mount -t proc proc /proc
if [ "$network" = own ]; then ip link set lo up; fi
parent=${dir%/*}
for root; do
    # Several clusters share a root, so it is read-only, and what daemons write to is each one's own.
    mkdir -p "$root$parent"
    mount --bind "$root" "$root"
    mount -o remount,bind,ro "$root"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mkdir -p "$root$parent"
    mount -t tmpfs tmpfs "$root$parent"
    mkdir "$root$dir"
    mount --bind "$dir" "$root$dir"
done
echo "ready $pid"
exec env --ignore-signal=CHLD cat >/dev/null
"#;

/// Outside: waits for the namespaces to end, then removes the folder unless it was asked to stay.
///
/// A process of its own group, so that Ctrl-C in a terminal reaches only the program that holds the
/// pipe. It outlives that program by a moment: this is what removes the folder after a SIGKILL.
const OUTER: &str = r#"
dir=$1; shift
"$@"
status=$?
[ -z "$dir" ] || [ -e "$dir/keep" ] || rm -rf --one-file-system -- "$dir"
exit $status
"#;

/// Whether a sandbox sees the machine's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Its own, with nothing but a loopback.
    Own,
    /// The machine's: only to download packages.
    Host,
}

/// What becomes of the sandbox's folder when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folder {
    /// It is removed, unless it then holds a file `keep`.
    Removed,
    /// It is left alone.
    Stays,
}

/// A set of namespaces and everything that runs in them. Dropping it ends all of that.
#[derive(Debug)]
pub struct Sandbox {
    dir: PathBuf,
    first: u32,
    outer: Child,
    // Some until stopped. While it is open, the sandbox lives.
    pipe: Option<ChildStdin>,
}

impl Sandbox {
    /// Starts a sandbox with its own network for the folder `dir` (absolute, existing), which is seen
    /// at the same path inside each of `roots`.
    pub fn start(dir: &Path, roots: &[&Path]) -> Result<Self> {
        Self::start_with(dir, roots, Network::Own, Folder::Removed)
    }

    /// Starts a sandbox, and says which network it has and what becomes of its folder.
    pub fn start_with(dir: &Path, roots: &[&Path], network: Network, folder: Folder) -> Result<Self> {
        ensure!(
            dir.is_absolute(),
            "the sandbox folder {} is not an absolute path",
            dir.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", OUTER, "sandbox"]);
        match folder {
            Folder::Removed => command.arg(dir),
            Folder::Stays => command.arg(""),
        };
        command.args(["unshare", "--mount", "--pid", "--uts", "--ipc"]);
        let network = match network {
            Network::Own => {
                command.arg("--net");
                "own"
            }
            Network::Host => "host",
        };
        command
            .args(["--fork", "--kill-child", "sh", "-c", FIRST, "first", network])
            .arg(dir)
            .args(roots);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut outer = command.spawn().context("starting `sh` for a sandbox")?;

        let pipe = outer.stdin.take();
        let mut line = String::new();
        let stdout = outer.stdout.take().context("the sandbox has no stdout")?;
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("reading the sandbox's first line")?;
        let Some(first) = line
            .trim()
            .strip_prefix("ready ")
            .and_then(|pid| pid.parse().ok())
        else {
            drop(pipe);
            let mut said = String::new();
            if let Some(mut stderr) = outer.stderr.take() {
                stderr.read_to_string(&mut said).ok();
            }
            outer.wait().ok();
            bail!(
                "a sandbox (unshare, mount, ip) could not be made for {}: {}\n\
                 namespaces need root, and the packages util-linux and iproute2",
                dir.display(),
                said.trim()
            );
        };
        Ok(Self {
            dir: dir.to_owned(),
            first,
            outer,
            pipe,
        })
    }

    /// The folder it was made for.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The pid, as seen from outside, of the first process inside: the one to give to `nsenter -t`.
    pub fn first_pid(&self) -> u32 {
        self.first
    }

    /// The words that, put before a command, run it inside.
    pub fn prefix(&self) -> Vec<String> {
        let target = self.first.to_string();
        ["nsenter", "-t", &target, "-m", "-u", "-i", "-n", "-p", "--"]
            .map(String::from)
            .to_vec()
    }

    /// A command that runs inside, with the machine's own files.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program);
        command
    }

    /// A command that runs inside, with the files of `root` (one of those given at the start).
    pub fn command_in(&self, root: &Path, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("chroot");
        command.arg(root).arg(program);
        command
    }

    /// The text of a program that runs `command` with the files of `root`, from outside or inside. `what` says what it
    /// is; `command` is words of a shell, before those that it is called with.
    pub(crate) fn entrance(&self, root: &Path, what: &str, command: &str) -> Result<String> {
        // Those who are inside already need not enter.
        let link = format!("/proc/{}/ns/mnt", self.first);
        let mounts =
            fs::read_link(&link).with_context(|| format!("reading {link}: has the sandbox ended?"))?;
        Ok(format!(
            "#!/bin/sh\n# {what}\nset -- chroot '{root}' {command} \"$@\"\n\
             if [ \"$(readlink /proc/self/ns/mnt)\" = '{mounts}' ]; then exec \"$@\"; fi\n\
             exec {prefix} \"$@\"\n",
            root = root.display(),
            mounts = mounts.display(),
            prefix = self.prefix().join(" "),
        ))
    }

    /// Ends everything inside and waits until it is gone.
    pub fn stop(&mut self) -> Result<()> {
        if self.pipe.take().is_some() {
            self.outer.wait().context("waiting for the sandbox to end")?;
        }
        Ok(())
    }

    /// Makes the folder stay when the sandbox ends.
    pub fn keep_folder(&self) -> Result<()> {
        let mark = self.dir.join("keep");
        fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Nobody is left to be told.
        self.stop().ok();
    }
}
