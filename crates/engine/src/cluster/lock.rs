//! The lock in the cluster itself: one writer, identified by more than a name.

use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::run::Seq;

use super::BackendError;
use crate::liveness::{Liveness, ProcessIdentity};

/// One incarnation of one process: what the lock in the cluster says of its holder.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRecord {
    /// Unique for this process: a random id, never a host name or a configured one.
    pub incarnation: String,
    /// Which run it carries out.
    pub run: RunId,
    /// On which host.
    pub host: String,
    /// Which process.
    pub process: u32,
    /// Since when.
    pub since: jiff::Timestamp,
    /// The identity of that process on its host; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<ProcessIdentity>,
}

/// Who has the lock, and how long it may be theirs without another renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub claim: LockRecord,
    /// How long a renewal lasts.
    pub expires: Duration,
}

/// The position of a run's journal, recorded in the cluster beside the lock. A journal without that position
/// is older than the cluster's state: it was restored, or its database lost its last writes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Of which run.
    pub run: RunId,
    /// The place of its last event then.
    pub seq: Seq,
    /// The checksum over all up to there.
    pub sum: String,
}

impl LockRecord {
    /// Whether its process is alive, as far as this machine can prove it.
    pub fn pulse(&self) -> Liveness {
        self.life
            .as_ref()
            .map_or(Liveness::Unknown, |life| life.pulse(&self.host, self.process))
    }

    /// As a lock keeps it.
    pub(crate) fn to_json(&self) -> String {
        let Self {
            incarnation,
            run,
            host,
            process,
            since,
            life,
        } = self;
        serde_json::json!({
            "incarnation": incarnation, "run": run, "host": host, "process": process, "since": since, "life": life,
        })
        .to_string()
    }
}

impl std::fmt::Display for LockRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            incarnation: _,
            run,
            host,
            process,
            since,
            life: _,
        } = self;
        write!(f, "run {run} on host {host}, process {process}, since {since:.0}")
    }
}

/// Why the lock in the cluster is not ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another holds it.
    #[error("the cluster is locked by {0}")]
    Held(Box<LockRecord>),
    /// This process has lost the lock.
    #[error("the lock in the cluster is not ours any more: {0}")]
    Lost(String),
    /// The cluster could not be asked.
    #[error("the lock in the cluster could not be asked for")]
    Backend(#[source] BackendError),
}

impl LockError {
    /// Of the claim that stands in the lock, if it can be read.
    pub(crate) fn of_holder(claim: Option<&str>) -> Self {
        match claim.map(serde_json::from_str) {
            Some(Ok(claim)) => Self::Held(Box::new(claim)),
            // It was given back between two questions, or is of a release with other words.
            Some(Err(_)) | None => Self::Lost("another had it a moment ago: try again".to_owned()),
        }
    }
}

/// Keeps two writers of one cluster apart.
#[async_trait]
pub trait Lock: Send + Sync {
    /// Which cluster, as the configuration calls it.
    fn cluster(&self) -> &ClusterName;

    /// Which cluster, as it knows itself: the same under whatever name it is reached. A world that has nothing of the
    /// kind is known by its name.
    async fn identity(&self) -> Result<ClusterId, BackendError> {
        let name = self.cluster();
        ClusterId::new(name.as_str())
            .map_err(|error| BackendError::permanent(format!("identify {name}"), error.to_string()))
    }

    /// Takes the lock in the cluster. Returns the fencing token: larger than `at_least` and than any
    /// that the cluster has seen.
    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError>;

    /// Says that the holder lives. Called every third of [`Lock::lock_expires`].
    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError>;

    /// The current holder of the lock, if there is one and it can be read. [`Lock::lock`] may take time to
    /// find out whether the holder is alive; this returns at once.
    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        Ok(None)
    }

    /// Keeps in the cluster what the holder's journal has come to. It stays there when the lock is given back. A world
    /// without a place for it keeps nothing.
    async fn anchor(&self, _anchor: &Anchor) -> Result<(), LockError> {
        Ok(())
    }

    /// What was last kept by [`Lock::anchor`].
    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        Ok(None)
    }

    /// Gives the lock back.
    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError>;

    /// A lock not renewed for so long may be taken over.
    fn lock_expires(&self) -> Duration;

    /// Whether another process may have acted under the lock before this one took it, without an entry in a
    /// journal here. False if the cluster held no token at that time, since a process records its token
    /// before it acts.
    fn may_have_been_held(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use stagger_core::model::RunId;

    use super::*;
    use crate::liveness::hostname;

    fn claim(process: u32) -> LockRecord {
        LockRecord {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: hostname(),
            process,
            since: jiff::Timestamp::UNIX_EPOCH,
            life: ProcessIdentity::of(process),
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
        assert_eq!(claim.pulse(), Liveness::Alive);
        child.kill().unwrap();
        let begun = std::time::Instant::now();
        while claim.pulse() == Liveness::Alive && begun.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(
            claim.pulse(),
            Liveness::Gone,
            "it has ended, and nobody has asked how"
        );
        child.wait().unwrap();
        assert_eq!(claim.pulse(), Liveness::Gone);
    }

    #[test]
    fn a_number_that_was_given_to_another_is_not_the_same_process() {
        let mut other = claim(std::process::id());
        assert_eq!(other.pulse(), Liveness::Alive);
        other.life.as_mut().unwrap().begun -= 1;
        assert_eq!(other.pulse(), Liveness::Gone);
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
            elsewhere.push(claim.pulse());
        }
        assert_eq!(elsewhere, [Liveness::Unknown; 4]);
    }

    #[test]
    fn a_process_is_known_by_what_the_machine_says_of_itself() {
        let says = |program: &str, of: &str| {
            let said = Command::new(program).arg(of).output().unwrap().stdout;
            String::from_utf8(said).unwrap().trim().to_owned()
        };
        let life = ProcessIdentity::of(std::process::id()).unwrap();
        assert_eq!(hostname(), says("uname", "-n"));
        assert_eq!(life.boot, says("cat", "/proc/sys/kernel/random/boot_id"));
        assert_eq!(life.pids, says("readlink", "/proc/self/ns/pid"));
    }
}
