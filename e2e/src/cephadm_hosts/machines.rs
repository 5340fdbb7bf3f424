//! Hosts that are on, with the registry beside them: what a cluster is made on, and what one that was made begins on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::root::Roots;
use crate::ceph::each;
use crate::command::run;
use crate::files::put;
use crate::folder::Folder;
use crate::hosts::cgroups::Cgroups;
use crate::hosts::host::Host;
use crate::hosts::{make_ssh, network};
use crate::loop_devices;
use crate::sandbox::Sandbox;

/// How many hosts, `h1` to `h3`: each has a monitor.
pub(super) const HOSTS: usize = 3;

/// How many disks each has, and as many OSDs.
pub(super) const DISKS: usize = 3;

/// What a disk holds at most, in bytes. It takes what is written on it.
const DISK: u64 = 6_000_000_000;

/// After this time hosts that are not up will not be.
const LIMIT: Duration = Duration::from_mins(3);

/// Hosts that are on. Dropping it ends every process.
#[derive(Debug)]
pub(super) struct Machines {
    pub(super) sandbox: Sandbox,
    // After the sandbox, whose end empties them.
    _cgroups: Cgroups,
    pub(super) hosts: Vec<Host>,
    pub(super) roots: Roots,
}

impl Machines {
    /// Switches on hosts whose own is in `folder`, as a stopped cluster left it, or is made: empty hosts.
    pub(super) fn start(folder: &Folder, roots: &Roots) -> Result<Self> {
        let dir = folder.path();
        let names: Vec<String> = (1..=HOSTS).map(|number| format!("h{number}")).collect();
        let cgroups = Cgroups::make(dir, &names)?;
        let sandbox = Sandbox::start(dir, &[&roots.host, &roots.ceph.path])?;
        network::make(&sandbox, &names)?;
        registry(&sandbox, &roots.host)?;
        make_ssh(&sandbox, &roots.host, &names)?;
        let files: Vec<PathBuf> = names
            .iter()
            .flat_map(|name| (0..DISKS).map(move |disk| dir.join(format!("disks/{name}-{disk}"))))
            .collect();
        let disks = if files.iter().all(|file| file.exists()) {
            loop_devices::attach(&sandbox, &files)?
        } else {
            loop_devices::make(&sandbox, &files, DISK)?
        };
        let mut hosts = Vec::new();
        for index in 0..names.len() {
            let host = Host::make(&sandbox, &roots.host, &names, index)?;
            host.carries(disks.chunks(DISKS).nth(index).context("disks of a host")?)?;
            // As Ceph's repository has it, whatever Python its packages were made for.
            let program = host.file("usr/sbin/cephadm");
            fs::create_dir_all(program.parent().context("a folder")?).context("making a folder of a host")?;
            run(Command::new("cp")
                .arg("-f")
                .arg(roots.ceph.path.join("usr/sbin/cephadm"))
                .arg(host.file("usr/sbin/cephadm.pyz")))?;
            crate::files::script(
                &program,
                "#!/bin/sh\nexec /usr/bin/python3 /usr/sbin/cephadm.pyz \"$@\"\n",
            )?;
            hosts.push(host);
        }
        for host in &hosts {
            host.plug_in(&cgroups.of(host.name()))?;
        }
        each(hosts.iter().collect(), |host: &Host| {
            host.wait_up(None, LIMIT).map(drop)
        })?;
        Ok(Self {
            sandbox,
            _cgroups: cgroups,
            hosts,
            roots: roots.clone(),
        })
    }

    pub(super) fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// A host by its number, from 1.
    pub(super) fn host(&self, number: usize) -> Result<&Host> {
        number
            .checked_sub(1)
            .and_then(|index| self.hosts.get(index))
            .with_context(|| format!("no host h{number}"))
    }

    /// A command of the `ceph` program as `client.admin`, from beside the hosts.
    pub(super) fn ceph(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.command_in(&self.roots.ceph.path, "ceph");
        command.arg("-c").arg(self.dir().join("ceph.conf")).args(words);
        command
    }

    /// Shuts the hosts down in order, and waits until they are off.
    pub(super) fn shut_down(&self) -> Result<()> {
        let begun = Instant::now();
        for host in &self.hosts {
            // The connection ends with the host.
            host.run("systemctl poweroff").ok();
        }
        while self.hosts.iter().any(Host::is_on) {
            ensure!(begun.elapsed() < LIMIT, "a host does not shut down");
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// Starts the registry, whose images are in the folder of the cluster.
fn registry(sandbox: &Sandbox, root: &Path) -> Result<()> {
    let folder = sandbox.dir().join("registry");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let config = sandbox.dir().join("registry.yml");
    let text = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {}:5000\n",
        folder.display(),
        network::OUTSIDE
    );
    put(&config, &text)?;
    let config = config.to_str().context("the folder's name")?;
    let program = [
        "env",
        "OTEL_TRACES_EXPORTER=none",
        "docker-registry",
        "serve",
        config,
    ];
    network::serve(sandbox, root, &program)
}
