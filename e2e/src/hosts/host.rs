//! One host.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::network;
use crate::command::{last_lines, run, shown};
use crate::files::{put, script};
use crate::sandbox::Sandbox;

const HOST: &str = include_str!("host.sh");
const BOOT: &str = include_str!("boot.sh");

/// What ssh needs to reach all hosts by their names, in the cluster's folder.
pub(crate) const SSH_CONFIG: &str = "ssh_config";

/// The text of that file for a cluster in `dir`.
pub(crate) fn ssh_config(dir: &Path, names: &[String]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        writeln!(text, "Host {name}\n    HostName {}", network::address(index)).ok();
    }
    write!(
        text,
        "Host *\n    User root\n    IdentityFile {dir}/key\n    UserKnownHostsFile {dir}/known_hosts\n    \
         GlobalKnownHostsFile none\n    StrictHostKeyChecking yes\n    BatchMode yes\n    ConnectTimeout 5\n",
        dir = dir.display()
    )
    .ok();
    text
}

/// A host that may be on or off.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: String,
    own: PathBuf,
    prefix: Vec<String>,
    root: PathBuf,
}

impl Host {
    /// Writes what is this host's own, in a folder of its own in the sandbox's. It is still off.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn make(sandbox: &Sandbox, root: &Path, names: &[String], index: usize) -> Result<Self> {
        let name = names.get(index).context("a host without a name")?.clone();
        let own = sandbox.dir().join("hosts").join(&name);
        let host = Self {
            name,
            address: network::address(index),
            own,
            prefix: sandbox.prefix(),
            root: root.to_owned(),
        };
        let ssh = host.file("etc/ssh");
        for folder in [&ssh, &host.own.join("work"), &host.own.join("root")] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        put(&host.file("etc/hostname"), &format!("{}\n", host.name))?;
        put(&host.file("etc/machine-id"), &format!("{:032x}\n", index + 1))?;
        let mut known = "127.0.0.1 localhost\n".to_owned();
        for (index, name) in names.iter().enumerate() {
            writeln!(known, "{} {name}", network::address(index)).ok();
        }
        put(&host.file("etc/hosts"), &known)?;
        let key = ssh.join("ssh_host_ed25519_key");
        // One that was copied has a key already, of which nobody knows here.
        fs::remove_file(&key).ok();
        run(&mut host.keygen(&key))?;
        fs::copy(host.cluster().join("key.pub"), ssh.join("authorized_keys")).context("copying the key")?;
        let public = ssh.join("ssh_host_ed25519_key.pub");
        let public = fs::read_to_string(&public).with_context(|| format!("reading {}", public.display()))?;
        let mut all = fs::File::options()
            .create(true)
            .append(true)
            .open(host.known_hosts())
            .context("opening the known hosts")?;
        writeln!(all, "{},{} {}", host.name, host.address, public.trim())
            .context("writing the known hosts")?;
        script(&host.own.join("host.sh"), HOST)?;
        script(&host.own.join("boot.sh"), BOOT)?;
        Ok(host)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is reached from within the sandbox.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives the host these block devices, which begin with its next start, and a place for containers.
    pub(crate) fn carries(&self, disks: &[PathBuf]) -> Result<()> {
        let disks: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
        put(&self.own.join("disks"), &format!("{}\n", disks.join("\n")))?;
        let containers = self.own.join("containers");
        fs::create_dir_all(&containers).with_context(|| format!("making {}", containers.display()))
    }

    /// Whether it is on.
    pub(crate) fn is_on(&self) -> bool {
        self.own.join("pid").exists()
    }

    /// A file of the host, by its path without the first slash, as it is before the host is on.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.own.join("upper").join(path)
    }

    /// Switches the machine on. `cgroup` is the host's.
    pub(crate) fn plug_in(&self, cgroup: &Path) -> Result<()> {
        let mut start = self.on_sandbox("sh");
        start.args(["-c", "setsid \"$@\" </dev/null >/dev/null 2>&1 &", "host"]);
        start
            .arg("nsenter")
            .arg(format!("--net=/run/netns/{}", self.name));
        start.arg("sh").arg(self.own.join("host.sh"));
        start.arg(&self.own).arg(&self.root).arg(cgroup);
        run(&mut start)?;
        Ok(())
    }

    /// A command on the host, past sshd: as root, in all its namespaces.
    ///
    /// # Errors
    /// The host is off.
    pub fn inside(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let pid =
            fs::read_to_string(self.own.join("pid")).with_context(|| format!("{} is off", self.name))?;
        let mut command = self.on_sandbox("nsenter");
        command.args([
            "-t",
            pid.trim(),
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--net",
            "--cgroup",
        ]);
        command.args(["--time", "--root", "--wd", "env", "-i", "PATH=/usr/sbin:/usr/bin"]);
        command.args(["HOME=/root", "LC_ALL=C"]).arg(program);
        Ok(command)
    }

    /// A command on the host by ssh, as root: the words are one line of a shell there.
    pub fn ssh(&self, line: &str) -> Command {
        self.ssh_as("root", line)
    }

    /// The same as another user. There is `admin`, who has sudo.
    pub fn ssh_as(&self, user: &str, line: &str) -> Command {
        let mut command = self.on_sandbox("chroot");
        command.arg(&self.root).args(["ssh", "-F"]);
        command.arg(self.cluster().join(SSH_CONFIG));
        command.arg(format!("{user}@{}", self.name)).args(["--", line]);
        command
    }

    /// Runs a line of a shell on the host by ssh, which must succeed, and gives its stdout.
    ///
    /// # Errors
    /// It does not succeed.
    pub fn run(&self, line: &str) -> Result<String> {
        run(&mut self.ssh(line))
    }

    /// Runs a program of a shell on the host by ssh, with these words, which must succeed.
    ///
    /// # Errors
    /// It does not, with what it said.
    pub fn run_program(&self, program: &str, words: &[&str]) -> Result<String> {
        let plain = |word: &&str| {
            word.chars()
                .all(|c| c.is_ascii_alphanumeric() || "@.+-~:_".contains(c))
        };
        ensure!(
            words.iter().all(plain),
            "{words:?} would not reach the host as they are"
        );
        let mut command = self.ssh(&format!("sh -s -- {}", words.join(" ")));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("starting ssh")?;
        let mut stdin = child.stdin.take().context("ssh has no stdin")?;
        // It is read to its end before it prints much. Where ssh has ended, its own words tell more.
        stdin.write_all(program.as_bytes()).ok();
        drop(stdin);
        let out = child.wait_with_output().context("waiting for ssh")?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(
            out.status.success(),
            "`{}` on {} ended with {}:\n{}",
            shown(&command),
            self.name,
            out.status,
            last_lines(&said, 30)
        );
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// The id of the boot that it is in.
    ///
    /// # Errors
    /// The host does not answer.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.run("cat /proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// Keeps the host from coming back when it goes down next, or lets it.
    ///
    /// # Errors
    /// The word cannot be left.
    pub fn stays_away(&self, away: bool) -> Result<()> {
        let word = self.own.join("stays-away");
        if away {
            return put(&word, "");
        }
        fs::remove_file(&word).with_context(|| format!("removing {}", word.display()))
    }

    /// Gives power to a host that was switched off.
    ///
    /// # Errors
    /// The word cannot be left.
    pub fn power_on(&self) -> Result<()> {
        put(&self.own.join("power-on"), "")
    }

    /// Waits until it answers by ssh in another boot than this one.
    ///
    /// # Errors
    /// It does not in time.
    pub fn wait_up(&self, other_than: Option<&str>, limit: Duration) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let found = self.boot_id();
            if found
                .as_ref()
                .is_ok_and(|id| other_than != Some(id.as_str()) && !id.is_empty())
            {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                let console = fs::read_to_string(self.own.join("console")).unwrap_or_default();
                bail!(
                    "{} is not up after {} s; ssh: {found:?}; its console:\n{}",
                    self.name,
                    limit.as_secs(),
                    last_lines(&console, 10)
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn cluster(&self) -> &Path {
        // <cluster>/hosts/<name>
        self.own.ancestors().nth(2).unwrap_or(&self.own)
    }

    fn known_hosts(&self) -> PathBuf {
        self.cluster().join("known_hosts")
    }

    fn keygen(&self, key: &Path) -> Command {
        let mut keygen = self.on_sandbox("chroot");
        keygen
            .arg(&self.root)
            .args(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(key);
        keygen
    }

    fn on_sandbox(&self, program: &str) -> Command {
        let mut words = self.prefix.iter();
        let mut command = Command::new(words.next().map_or("nsenter", String::as_str));
        command.args(words).arg(program);
        command
    }
}
