//! Starts, resumes and commands runs: the lock in the cluster first, then the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{ClusterId, ClusterName, Policy, RunId, Target, Topology};
use stagger_core::run::{Command, Event, Run, Start};

use crate::cluster::{Backend, BackendError, Holder, LockError, LockRecord};
use crate::driver::{DriveError, Driver, DriverParts, Notice, UnreadableHandover};
use crate::lease::Lease;
use crate::liveness::{Liveness, ProcessIdentity, hostname};
use crate::protocol;
use crate::store::{JournalStore, StoreError};

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
    /// The cluster does not say which it is.
    #[error("which cluster this is could not be found out")]
    Unidentified(#[source] BackendError),
    /// The configuration calls it as another cluster was called.
    #[error("the name {name} is that of the cluster {was} (run {run}), and this is {is}")]
    NameOfAnother {
        /// What the configuration calls it.
        name: ClusterName,
        /// Whose name that was in this store.
        was: ClusterId,
        /// What it is.
        is: ClusterId,
        /// In which run.
        run: RunId,
    },
    /// The run is not of the cluster of the configuration.
    #[error("run {run} belongs to {of}; the configuration is for {is}")]
    OfAnotherCluster {
        /// Which run.
        run: RunId,
        /// Of which cluster it is.
        of: String,
        /// Which one the configuration names.
        is: String,
    },
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
    pub fn current_process() -> Self {
        Self {
            incarnation: random_hex(8),
            host: hostname(),
            process: std::process::id(),
        }
    }

    /// What a lock says of this process, for that run.
    pub fn claim(&self, run: &RunId, since: Timestamp) -> LockRecord {
        let Self {
            incarnation,
            host,
            process,
        } = self.clone();
        LockRecord {
            incarnation,
            run: run.clone(),
            host,
            process,
            since,
            // Only of ourselves: the number of another, as tests give, may be somebody's.
            life: (process == std::process::id())
                .then(|| ProcessIdentity::of(process))
                .flatten(),
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
/// The cluster is locked by another, or has a run in this store that is not over, under whatever name; its name was another
/// cluster's; or the journal cannot be written.
pub async fn start(
    parts: DriverParts,
    who: &Identity,
    run: RunId,
    target: Target,
    policy: Policy,
    baseline: serde_json::Value,
    topology: Topology,
) -> Result<(Driver, Lease), SuperviseError> {
    let mut parts = parts;
    let cluster = parts.backend.cluster().clone();
    let identity = identity(&parts.backend).await?;
    let before = Before::of(&*parts.store, &cluster, &identity).await?;
    if let Some(other) = before.unfinished {
        return Err(SuperviseError::Unfinished(other));
    }
    let backend = Arc::clone(&parts.backend);
    let (lease, holder) = acquire_lock(&mut parts, who, &run, &before).await?;
    let unread = unread(&mut parts, &before, lease.fence(), false).await?;
    let start = Start {
        version: stagger_core::run::VERSION,
        run,
        cluster,
        identity: Some(identity),
        target,
        policy,
        baseline,
        topology,
    };
    let mut driver = Driver::begin(parts, lease.fence(), &holder, Event::Started(Box::new(start))).await?;
    attach_lease(&mut driver, &lease, unread, &backend).await;
    Ok((driver, lease))
}

/// Carries on a run that is in the journal.
///
/// # Errors
/// As [`start`]; and the run is over, of another cluster, or a stray call cannot be ruled out.
pub async fn resume(
    parts: DriverParts,
    who: &Identity,
    run: &RunId,
) -> Result<(Driver, Lease), SuperviseError> {
    let mut parts = parts;
    let replayed = replay(&*parts.store, run).await?;
    if replayed.ended().is_some() {
        return Err(SuperviseError::Over(run.clone()));
    }
    let cluster = parts.backend.cluster().clone();
    let identity = identity(&parts.backend).await?;
    let of = replayed.start();
    let same = match &of.identity {
        Some(known) => *known == identity,
        // It began before anybody asked.
        None => of.cluster == cluster,
    };
    if !same {
        return Err(SuperviseError::OfAnotherCluster {
            run: run.clone(),
            of: cluster_label(&of.cluster, of.identity.as_ref()),
            is: cluster_label(&cluster, Some(&identity)),
        });
    }
    let mut before = Before::of(&*parts.store, &cluster, &identity).await?;
    before.names.insert(of.cluster.clone());
    let backend = Arc::clone(&parts.backend);
    let (lease, holder) = acquire_lock(&mut parts, who, run, &before).await?;
    // The holder before may have written until now.
    let replayed = replay(&*parts.store, run).await?;
    let before = Before::of(&*parts.store, &cluster, &identity).await?;
    let unread = unread(&mut parts, &before, lease.fence(), true).await?;
    let mut driver = Driver::resume(parts, replayed, lease.fence(), &holder).await?;
    attach_lease(&mut driver, &lease, unread, &backend).await;
    Ok((driver, lease))
}

/// Which cluster that is, whatever its name.
async fn identity(backend: &Arc<dyn Backend>) -> Result<ClusterId, SuperviseError> {
    backend.identity().await.map_err(SuperviseError::Unidentified)
}

fn cluster_label(cluster: &ClusterName, identity: Option<&ClusterId>) -> String {
    match identity {
        Some(identity) if identity.as_str() != cluster.as_str() => format!("{cluster} ({identity})"),
        Some(_) | None => cluster.to_string(),
    }
}

/// Takes the lock, and raises the token of the journals of all names of the cluster.
///
/// A process that cannot write to the journals does not take the lock. A token without a journal may belong
/// to a process that announced effects elsewhere, and a successor would have to reach every host before it
/// may clear anything.
async fn acquire_lock(
    parts: &mut DriverParts,
    who: &Identity,
    run: &RunId,
    before: &Before,
) -> Result<(Lease, String), SuperviseError> {
    let now = parts.clock.now();
    // Finding out whether the apparent holder is alive may take a while. What cannot be read now, the next
    // steps report.
    if let Ok(Some(Holder { claim, expires })) = parts.backend.holder().await
        && claim.pulse() != Liveness::Gone
    {
        let expires = SignedDuration::try_from(expires).unwrap_or(SignedDuration::MAX);
        parts.listener.notice(&Notice::Locked {
            holder: claim,
            until: now.saturating_add(expires).unwrap_or(Timestamp::MAX),
        });
    }
    for name in &before.names {
        parts.store.can_be_written(name).await?;
    }
    let claim = who.claim(run, now);
    let holder = format!("{}@{} process {}", who.incarnation, who.host, who.process);
    let lease = Lease::take(&parts.backend, &parts.clock, claim, before.fence).await?;
    for name in &before.names {
        parts.store.raise(name, lease.fence(), &holder).await?;
    }
    if let Some(beside) = parts.store.beside().await? {
        lease.report_to(beside).await;
    }
    Ok((lease, holder))
}

/// Where an earlier holder may have announced effects that this store does not have. Of a journal on another
/// machine only the tokens are known to a new run. A continued run (`resumed`) was open then, or its journal
/// was restored from before that.
async fn unread(
    parts: &mut DriverParts,
    before: &Before,
    given: u64,
    resumed: bool,
) -> Result<Option<UnreadableHandover>, SuperviseError> {
    if let Some(anchor) = parts.backend.anchored().await? {
        match parts.store.mark(&anchor.run, Some(anchor.seq)).await {
            Ok(mark) if mark.as_ref().is_none_or(|mark| mark.sum != anchor.sum) => {
                parts.listener.notice(&Notice::Behind(anchor));
                return Ok(Some(UnreadableHandover::Lost));
            }
            Err(StoreError::NoRun(_)) if resumed => {
                parts.listener.notice(&Notice::Unheard(anchor));
                return Ok(Some(UnreadableHandover::Lost));
            }
            Ok(_) | Err(StoreError::NoRun(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let had_a_stranger = parts.backend.may_have_been_held()
        && protocol::may_have_stray_calls(before.ruled_out, &before.taken, given);
    Ok(had_a_stranger.then_some(UnreadableHandover::Elsewhere))
}

/// Gives the driver the lock and the unread handover. The journal's position is recorded in the cluster,
/// unless the journal has lost entries: until that is ruled out, a successor must find the same.
async fn attach_lease(
    driver: &mut Driver,
    lease: &Lease,
    unread: Option<UnreadableHandover>,
    backend: &Arc<dyn Backend>,
) {
    driver.watch_lease(lease.watch());
    if let Some(unread) = unread {
        driver.expect_stray_calls(unread);
    }
    if unread == Some(UnreadableHandover::Lost) {
        return;
    }
    lease.watch().compared(driver.run().seq());
    if let Err(error) = lease.anchor(backend).await {
        // The next renewal tries it again.
        tracing::warn!(%error, "the journal could not be anchored");
    }
}

/// A run as its journal has it.
///
/// # Errors
/// The journal is damaged, empty, or makes no sense.
pub async fn replay(store: &dyn JournalStore, run: &RunId) -> Result<Run, SuperviseError> {
    let entries = store.journal(run).await?;
    let run_state = Run::replay(entries).map_err(DriveError::from)?;
    run_state.ok_or_else(|| SuperviseError::Empty(run.clone()))
}

/// Why a run is interrupted, if it is. A run that is over is not interrupted.
///
/// # Errors
/// The store cannot be read.
pub async fn interruption_reason(
    store: &dyn JournalStore,
    run: &Run,
) -> Result<Option<String>, SuperviseError> {
    if run.ended().is_some() {
        return Ok(None);
    }
    Ok(match store.presence(&run.start().run).await? {
        Some(presence) => presence.interruption_reason(),
        None => Some("no process has registered to carry it out".to_owned()),
    })
}

/// Leaves a command for the process that carries the run out.
///
/// # Errors
/// There is no such run, it is over, or the store cannot be written.
pub async fn ask(
    store: &mut dyn JournalStore,
    run: &RunId,
    at: Timestamp,
    command: &Command,
    by: &str,
) -> Result<(), SuperviseError> {
    if replay(store, run).await?.ended().is_some() {
        return Err(SuperviseError::Over(run.clone()));
    }
    Ok(store.ask(run, at, command, by).await?)
}

/// What this store knows of a cluster, under all names that it had here.
#[derive(Debug)]
struct Before {
    names: BTreeSet<ClusterName>,
    /// The newest token that any of its journals has seen.
    fence: u64,
    /// The newest token whose holder went on after it took over.
    ruled_out: u64,
    /// Those whose holders took over and did nothing more.
    taken: BTreeSet<u64>,
    /// A run that is not over.
    unfinished: Option<RunId>,
}

impl Before {
    /// A run that is over is not read: whatever has become of its journal stops nothing.
    async fn of(
        store: &dyn JournalStore,
        cluster: &ClusterName,
        identity: &ClusterId,
    ) -> Result<Self, SuperviseError> {
        let mut before = Self {
            names: BTreeSet::from([cluster.clone()]),
            fence: 0,
            ruled_out: 0,
            taken: BTreeSet::new(),
            unfinished: None,
        };
        for listed in store.runs().await? {
            match &listed.identity {
                Some(of) if of == identity => drop(before.names.insert(listed.cluster.clone())),
                Some(of) if listed.cluster == *cluster => {
                    return Err(SuperviseError::NameOfAnother {
                        name: cluster.clone(),
                        was: of.clone(),
                        is: identity.clone(),
                        run: listed.run,
                    });
                }
                None if listed.cluster == *cluster => {}
                Some(_) | None => continue,
            }
            if let Some(ended_by) = listed.ended_by {
                before.ruled_out = before.ruled_out.max(ended_by);
                continue;
            }
            let run = replay(store, &listed.run).await?;
            before.ruled_out = before.ruled_out.max(run.ruled_out());
            before.taken.extend(run.takeover_tokens());
            if run.ended().is_none() && before.unfinished.is_none() {
                before.unfinished = Some(listed.run);
            }
        }
        for name in &before.names {
            before.fence = before.fence.max(store.fence(name).await?);
        }
        Ok(before)
    }
}
