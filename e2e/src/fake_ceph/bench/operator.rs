//! The operator that is measured: how it is started, and what it takes of the machine.

use std::fs::{self, File};
use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use super::{IMAGES, NAMESPACE, World};
use crate::ceph_in_pods::ASKED_ABOUT_EVICTIONS;

/// What stands before the `rados` module.
const RADOS: &str = include_str!("../rados.py");

impl World {
    /// Starts it.
    pub(super) fn operator(&self) -> Result<Child> {
        let log = File::create(self.settings.folder.join("operator.log")).context("making a log")?;
        let modules = self.settings.folder.join("modules");
        fs::create_dir(&modules).with_context(|| format!("making {}", modules.display()))?;
        fs::write(modules.join("rados.py"), RADOS).context("writing the module in the place of Ceph's")?;
        let python = format!(
            "chroot {} env PYTHONPATH={} PLAYED_CEPH={} python3",
            self.settings.root.display(),
            modules.display(),
            self.socket().display()
        );
        let child = Command::new(&self.settings.stagger)
            .args([
                "operator",
                "--watch-namespace",
                NAMESPACE,
                "--namespace",
                NAMESPACE,
                "--identity",
                "bench",
                "--plain-logs",
            ])
            .args([
                "--metrics",
                "off",
                "--image",
                IMAGES[0],
                "--python",
                &python,
                "--ceph",
                "false",
                "--agents",
                "off",
            ])
            .args(ASKED_ABOUT_EVICTIONS)
            .arg("--state")
            .arg(self.settings.folder.join("operator"))
            .env("KUBECONFIG", &self.settings.account)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        child.context("starting the operator")
    }
}

/// The most memory that a process held so far, in kB.
pub(super) fn memory(pid: u32) -> Result<u64> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/status")).context("looking at the operator's memory")?;
    let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let mark = mark.and_then(|mark| mark.trim().trim_end_matches(" kB").parse().ok());
    mark.context("the operator's memory is not told")
}

/// The seconds of processor that it has taken so far.
pub(super) fn cpu(pid: u32) -> Result<u64> {
    /// Of the kernel, on all architectures that Kubernetes runs on.
    const TICKS: u64 = 100;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("looking at the operator's time")?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let user_and_system = fields.get(11).zip(fields.get(12));
    let (user, system) = user_and_system.context("the operator's time is not told")?;
    Ok((user + system) / TICKS)
}
