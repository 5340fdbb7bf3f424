//! Starts, resumes and commands runs: the lock in the cluster first, then the journal.

use std::sync::Arc;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, Policy, RunId, Target};
use stagger_core::run::{Command, Event, Run, Start};

use crate::backend::{Backend, Claim, LockError};
use crate::driver::{DriveError, Driver, Parts};
use crate::lease::Lease;
use crate::protocol;
use crate::store::{Store, StoreError};

/// Why a run cannot be started or carried on.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The lock in the cluster.
    #[error("the cluster cannot be locked")]
    Lock(#[from] LockError),
    /// The journal.
    #[error("the journal cannot be used")]
    Store(#[from] StoreError),
    /// The run cannot be driven.
    #[error("the run cannot be driven")]
    Drive(#[from] DriveError),
    /// There is nothing in the journal.
    #[error("run {0} has an empty journal")]
    Empty(RunId),
    /// It is over.
    #[error("run {0} is over")]
    Over(RunId),
    /// Another run of the same cluster is not over.
    #[error("run {0} of this cluster is not over")]
    Unfinished(RunId),
}

/// Who and where this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random, new for each process.
    pub incarnation: String,
    /// This host's name.
    pub host: String,
    /// This process.
    pub process: u32,
}

impl Identity {
    /// Of this process.
    pub fn of_this_process() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        Self {
            incarnation: random_hex(8),
            host: if host.is_empty() {
                "unknown".to_owned()
            } else {
                host.to_owned()
            },
            process: std::process::id(),
        }
    }

    /// What a lock says of this process, for that run.
    pub fn claim(&self, run: &RunId, since: Timestamp) -> Claim {
        let Self {
            incarnation,
            host,
            process,
        } = self.clone();
        Claim {
            incarnation,
            run: run.clone(),
            host,
            process,
            since,
        }
    }
}

/// So many random bytes in hexadecimal.
pub fn random_hex(bytes: usize) -> String {
    use std::fmt::Write as _;
    let mut buffer = vec![0_u8; bytes];
    // Without randomness two processes could take each other for themselves: better not to start.
    #[expect(
        clippy::expect_used,
        reason = "the system's randomness is there or nothing is"
    )]
    getrandom::fill(&mut buffer).expect("the system gives random bytes");
    buffer.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A new name for a run: when, and four random digits.
pub fn new_run_id(now: Timestamp) -> RunId {
    let name = format!("{}-{}", now.strftime("%Y%m%d-%H%M"), random_hex(2));
    #[expect(clippy::expect_used, reason = "digits and dashes are a valid name")]
    RunId::new(name).expect("digits and dashes")
}

/// Starts a run.
///
/// # Errors
/// The cluster is locked by another, or has a run in this store that is not over, or the journal
/// cannot be written.
pub async fn start(
    parts: Parts,
    who: &Identity,
    run: RunId,
    target: Target,
    policy: Policy,
    baseline: serde_json::Value,
) -> Result<(Driver, Lease), SuperviseError> {
    let mut parts = parts;
    let cluster = parts.backend.cluster().clone();
    let ruled_out = ruled_out(&*parts.store, &cluster)?;
    if let Some(other) = unfinished(&*parts.store, &parts.backend)? {
        return Err(SuperviseError::Unfinished(other));
    }
    let claim = who.claim(&run, parts.clock.now());
    let holder = format!("{}@{} process {}", who.incarnation, who.host, who.process);
    let known = parts.store.fence(&cluster)?;
    let lease = Lease::take(&parts.backend, claim, known).await?;
    parts.store.raise(&cluster, lease.fence(), &holder)?;
    let start = Start {
        version: stagger_core::run::VERSION,
        run,
        cluster,
        target,
        policy,
        baseline,
    };
    let mut driver = Driver::begin(parts, lease.fence(), &holder, Event::Started(Box::new(start)))?;
    driver.heed(lease.watch());
    if protocol::had_a_stranger(ruled_out, lease.fence()) {
        driver.beware_of_a_stranger();
    }
    Ok((driver, lease))
}

/// Carries on a run that is in the journal.
///
/// # Errors
/// As [`start`]; and the run is over, or a stray call cannot be ruled out.
pub async fn resume(parts: Parts, who: &Identity, run: &RunId) -> Result<(Driver, Lease), SuperviseError> {
    let mut parts = parts;
    let replayed = replay(&*parts.store, run)?;
    if replayed.ended().is_some() {
        return Err(SuperviseError::Over(run.clone()));
    }
    let cluster = parts.backend.cluster().clone();
    let claim = who.claim(run, parts.clock.now());
    let holder = format!("{}@{} process {}", who.incarnation, who.host, who.process);
    let known = parts.store.fence(&cluster)?;
    let lease = Lease::take(&parts.backend, claim, known).await?;
    parts.store.raise(&cluster, lease.fence(), &holder)?;
    // The holder before may have written until now.
    let replayed = replay(&*parts.store, run)?;
    let ruled_out = ruled_out(&*parts.store, &cluster)?;
    let fence = lease.fence();
    let mut driver = Driver::resume(parts, replayed, fence, &holder).await?;
    driver.heed(lease.watch());
    if protocol::had_a_stranger(ruled_out, fence) {
        driver.beware_of_a_stranger();
    }
    Ok((driver, lease))
}

/// A run as its journal has it.
///
/// # Errors
/// The journal is damaged, empty, or makes no sense.
pub fn replay(store: &dyn Store, run: &RunId) -> Result<Run, SuperviseError> {
    let entries = store.journal(run)?;
    let run_state = Run::replay(entries).map_err(DriveError::from)?;
    run_state.ok_or_else(|| SuperviseError::Empty(run.clone()))
}

/// Leaves a command for whoever carries the run out.
///
/// # Errors
/// There is no such run, it is over, or the store cannot be written.
pub fn ask(
    store: &mut dyn Store,
    run: &RunId,
    at: Timestamp,
    command: &Command,
    by: &str,
) -> Result<(), SuperviseError> {
    if replay(store, run)?.ended().is_some() {
        return Err(SuperviseError::Over(run.clone()));
    }
    Ok(store.ask(run, at, command, by)?)
}

/// The newest token whose holder went on after it took over, in any run of that cluster in this store.
fn ruled_out(store: &dyn Store, cluster: &ClusterName) -> Result<u64, SuperviseError> {
    let mut newest = 0;
    for listed in store.runs()? {
        if listed.cluster == *cluster {
            newest = newest.max(replay(store, &listed.run)?.ruled_out());
        }
    }
    Ok(newest)
}

/// A run of that cluster in this store that is not over.
fn unfinished(store: &dyn Store, backend: &Arc<dyn Backend>) -> Result<Option<RunId>, SuperviseError> {
    for listed in store.runs()? {
        if listed.cluster == *backend.cluster() && replay(store, &listed.run)?.ended().is_none() {
            return Ok(Some(listed.run));
        }
    }
    Ok(None)
}
