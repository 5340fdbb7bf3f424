//! Whether a process that says it holds something can still be at work: what this machine can prove.

use serde::{Deserialize, Serialize};

use crate::backend::LockRecord;

/// By what a process is known on its machine, also after its number was given to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// The machine since its last start. Two machines of one name differ in it.
    pub boot: String,
    /// In which of the machine's process namespaces its number counts: containers have their own.
    pub pids: String,
    /// When it was started, in clock ticks since the machine was.
    pub begun: u64,
}

/// What can be said of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It is there.
    Alive,
    /// It is not: nothing more is begun by it.
    Gone,
    /// Nobody can tell from here.
    Unknown,
}

impl Life {
    /// Of that process, if it is one of this machine and can be seen.
    pub fn of(process: u32) -> Option<Self> {
        Some(Self {
            boot: boot()?,
            pids: pids()?,
            begun: begun(process)?,
        })
    }
}

/// Whether the process of a claim is alive. Only here: same host, same start of the machine, same namespace of processes.
pub fn pulse(claim: &LockRecord) -> Pulse {
    let LockRecord {
        host, process, life, ..
    } = claim;
    let Some(Life {
        boot: of,
        pids: within,
        begun: since,
    }) = life
    else {
        return Pulse::Unknown;
    };
    let here = *host == hostname() && boot().as_ref() == Some(of) && pids().as_ref() == Some(within);
    // Where those of others are hidden, one that cannot be seen may be there.
    if !here || begun(1).is_none() {
        return Pulse::Unknown;
    }
    match begun(*process) {
        Some(found) if found == *since => Pulse::Alive,
        Some(_) | None => Pulse::Gone,
    }
}

/// This machine's name.
pub(crate) fn hostname() -> String {
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use stagger_core::model::RunId;

    use super::*;

    fn claim(process: u32) -> LockRecord {
        LockRecord {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: hostname(),
            process,
            since: jiff::Timestamp::UNIX_EPOCH,
            life: Life::of(process),
        }
    }

    #[test]
    fn a_process_that_was_killed_is_gone_also_before_it_is_noticed() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let claim = claim(child.id());
        assert_eq!(pulse(&claim), Pulse::Alive);
        child.kill().unwrap();
        let begun = std::time::Instant::now();
        while pulse(&claim) == Pulse::Alive && begun.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(
            pulse(&claim),
            Pulse::Gone,
            "it has ended, and nobody has asked how"
        );
        child.wait().unwrap();
        assert_eq!(pulse(&claim), Pulse::Gone);
    }

    #[test]
    fn a_number_that_was_given_to_another_is_not_the_same_process() {
        let mut other = claim(std::process::id());
        assert_eq!(pulse(&other), Pulse::Alive);
        other.life.as_mut().unwrap().begun -= 1;
        assert_eq!(pulse(&other), Pulse::Gone);
    }

    #[test]
    fn of_another_machine_nothing_is_known() {
        let here = claim(std::process::id());
        let mut elsewhere = Vec::new();
        for change in [
            |claim: &mut LockRecord| claim.host.push('x'),
            |claim: &mut LockRecord| claim.life.as_mut().unwrap().boot.push('x'),
            |claim: &mut LockRecord| claim.life.as_mut().unwrap().pids.push('x'),
            |claim: &mut LockRecord| claim.life = None,
        ] {
            let mut claim = here.clone();
            claim.process = u32::MAX;
            change(&mut claim);
            elsewhere.push(pulse(&claim));
        }
        assert_eq!(elsewhere, [Pulse::Unknown; 4]);
    }

    #[test]
    fn a_process_is_known_by_what_the_machine_says_of_itself() {
        let says = |program: &str, of: &str| {
            let said = Command::new(program).arg(of).output().unwrap().stdout;
            String::from_utf8(said).unwrap().trim().to_owned()
        };
        let life = Life::of(std::process::id()).unwrap();
        assert_eq!(hostname(), says("uname", "-n"));
        assert_eq!(life.boot, says("cat", "/proc/sys/kernel/random/boot_id"));
        assert_eq!(life.pids, says("readlink", "/proc/self/ns/pid"));
    }
}
