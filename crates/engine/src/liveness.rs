//! Whether a recorded process can still be alive, as far as this machine can prove it.

use serde::{Deserialize, Serialize};

/// By what a process is known on its machine, also after its number was given to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// The machine since its last start. Two machines of one name differ in it.
    pub boot: String,
    /// In which of the machine's process namespaces its number counts: containers have their own.
    pub pids: String,
    /// When it was started, in clock ticks since the machine was.
    pub begun: u64,
}

/// What can be said of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It is there.
    Alive,
    /// It is not: nothing more is begun by it.
    Gone,
    /// Unknown from here.
    Unknown,
}

impl ProcessIdentity {
    /// Of that process, if it is one of this machine and can be seen.
    pub fn of(process: u32) -> Option<Self> {
        Some(Self {
            boot: boot()?,
            pids: pids()?,
            begun: begun(process)?,
        })
    }

    /// Whether the process with this identity on that host is alive. It is known only on the same host, since
    /// the same boot, in the same PID namespace.
    pub(crate) fn pulse(&self, host: &str, process: u32) -> Liveness {
        let is_here =
            host == hostname() && boot().as_ref() == Some(&self.boot) && pids().as_ref() == Some(&self.pids);
        // Where those of others are hidden, one that cannot be seen may be there.
        if !is_here || begun(1).is_none() {
            return Liveness::Unknown;
        }
        match begun(process) {
            Some(found) if found == self.begun => Liveness::Alive,
            Some(_) | None => Liveness::Gone,
        }
    }
}

/// This machine's name.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn pids() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// When a process was started; `None`: it is not there, has ended and only waits to be noticed, or is hidden.
fn begun(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name stands in brackets, and may have any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    // The 22nd of all; the state was the third.
    fields.nth(18)?.parse().ok()
}
