//! The driver: observe, decide, write, act, write, and say when to be called again.
//!
//! It holds no judgement. [`Run::next`] says what comes next; this carries it out, and writes down
//! before and after. An effect that is under way keeps running while others settle.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Code, Reason, Snapshot, UnitId};
use stagger_core::run::{
    Action, Answer, Command, Decision, Ending, Entry, Event, IllegalEvent, Run, Seq, TimedObservation,
};
use stagger_core::view::Waiting;
use tokio::task::JoinSet;

use crate::artifacts::Artifacts;
use crate::clock::{Clock, Steady};
use crate::cluster::{Anchor, Backend, BackendError, LockRecord, Retryability};
use crate::lease::Watch;
use crate::protocol;
pub use crate::protocol::units_of;
use crate::store::{JournalStore, StoreError};

mod calls;
mod fences;
mod in_doubt;
mod journal_write;

use calls::Answered;
use fences::Unguarded;
use in_doubt::InDoubtCalls;
pub(crate) use in_doubt::pause_after;
pub(crate) use journal_write::Writing;

/// Why a run cannot be driven on by this process.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The journal.
    #[error("the journal cannot be written")]
    Store(#[from] StoreError),
    /// The journal has an event that cannot be.
    #[error("the journal makes no sense")]
    Illegal(#[from] IllegalEvent),
    /// The lock is lost.
    #[error("the lock may be lost: {0}")]
    LeaseLost(String),
    /// The world cannot be seen, and will not be next time either.
    #[error("the cluster cannot be observed")]
    Backend(#[from] BackendError),
    /// A predecessor's call may still land, and nothing can be done against it.
    #[error("a call of an earlier process may still be under way on {hosts} ({units}): {why}")]
    StrayCall {
        /// On which hosts; on all others the fence is raised.
        hosts: String,
        /// On which units.
        units: String,
        /// Why the fence could not be raised.
        why: String,
    },
}

/// Where a holder before us wrote what this process cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableHandover {
    /// In a journal of its own, on another machine.
    Elsewhere,
    /// In the part that this journal has lost: what it knows of its own units is old.
    Lost,
}

/// What came of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverStep {
    /// Call again at once.
    Again,
    /// Call again then, or sooner.
    Wait {
        /// When at the latest.
        until: Timestamp,
        /// The reason for waiting.
        why: Reason,
    },
    /// A person must act first.
    Held(Reason),
    /// The run is over.
    Over(Ending),
}

/// A notice before a run's first own event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Another has the lock, and is watched.
    Locked {
        /// Who.
        holder: LockRecord,
        /// If they do not renew it, it is ours then.
        until: Timestamp,
    },
    /// The journal is older than the position that the cluster recorded: what was done since is unknown.
    Behind(Anchor),
    /// The cluster's last record is of a run that the journal does not have, and an earlier run is being
    /// continued.
    Unheard(Anchor),
}

/// Receives every event as it is written.
pub trait Listener: Send {
    /// Something to know before the first of them.
    fn notice(&mut self, _notice: &Notice) {}
    /// One more event, and what the run has come to with it.
    fn event(&mut self, entry: &Entry, run: &Run);
    /// The run waits, and looks again at that time; called at each step that waits.
    fn waiting(&mut self, _again: Timestamp, _for: Waiting<'_>, _run: &Run) {}
}

/// Carries one run out, on behalf of one incarnation of one process.
pub struct Driver {
    backend: Arc<dyn Backend>,
    store: Box<dyn JournalStore>,
    writing: Writing,
    clock: Arc<Steady>,
    artifacts: Artifacts,
    listener: Box<dyn Listener>,
    run: Run,
    fence: u64,
    seen: Option<DriverObservation>,
    /// Effects under way in this process, by the place of their intents.
    under_way: JoinSet<(Seq, Answered)>,
    started: BTreeSet<Seq>,
    /// Intents that this process has announced: no other can have begun them.
    announced: BTreeSet<Seq>,
    /// Intents with a call that may still land.
    strays: InDoubtCalls,
    /// Units of open intents on which the fence could not be raised yet: their hosts were not reached.
    unguarded: Arc<Mutex<BTreeSet<UnitId>>>,
    lease: Option<Watch>,
    failures: u32,
    /// A holder before us wrote its intents where we cannot read them.
    unread: Option<UnreadableHandover>,
    /// How long the machine was up when the lock was ours at the latest: what a holder before began, it began before.
    held_since: Duration,
}

/// An observation.
struct DriverObservation {
    snapshot: Snapshot,
    /// The place of the journal's last event when it began.
    as_of: Seq,
    /// When it had come in.
    at: Timestamp,
}

/// What a driver is made of.
pub struct DriverParts {
    /// The world.
    pub backend: Arc<dyn Backend>,
    /// The journal.
    pub store: Box<dyn JournalStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where artifacts go.
    pub artifacts: Artifacts,
    /// The listener.
    pub listener: Box<dyn Listener>,
}

impl Driver {
    /// Begins a run with this first event.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn begin(
        parts: DriverParts,
        fence: u64,
        holder: &str,
        start: Event,
    ) -> Result<Self, DriveError> {
        let DriverParts {
            backend,
            mut store,
            clock,
            artifacts,
            listener,
        } = parts;
        let first = store.begin(backend.cluster(), fence, clock.now(), start).await?;
        let run = Run::begin(first.clone())?;
        let mut driver = Self::new(
            DriverParts {
                backend,
                store,
                clock,
                artifacts,
                listener,
            },
            run,
            fence,
        );
        driver.listener.event(&first, &driver.run);
        driver
            .append(vec![Event::LeaseTaken {
                fence,
                holder: holder.to_owned(),
            }])
            .await?;
        Ok(driver)
    }

    /// Continues a run that is in the journal. It first raises the fence where an intent is open. Intents on
    /// an unreachable host stay open and block no other host.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub async fn resume(parts: DriverParts, run: Run, fence: u64, holder: &str) -> Result<Self, DriveError> {
        let mut driver = Self::new(parts, run, fence);
        if driver.run.ended().is_none() {
            driver
                .append(vec![Event::LeaseTaken {
                    fence,
                    holder: holder.to_owned(),
                }])
                .await?;
            // An operator may have confirmed in the meantime which host is off.
            driver.take_commands().await?;
            driver.rule_out_stray_calls().await;
        }
        Ok(driver)
    }

    fn new(parts: DriverParts, run: Run, fence: u64) -> Self {
        let DriverParts {
            backend,
            store,
            clock,
            artifacts,
            listener,
        } = parts;
        let driver = Self {
            held_since: clock.uptime(),
            backend,
            store,
            writing: Writing::default(),
            clock: Arc::new(Steady::new(clock)),
            artifacts,
            listener,
            run,
            fence,
            seen: None,
            under_way: JoinSet::new(),
            started: BTreeSet::new(),
            announced: BTreeSet::new(),
            strays: InDoubtCalls::default(),
            unguarded: Arc::default(),
            lease: None,
            failures: 0,
            unread: None,
        };
        driver.permit();
        driver
    }

    fn permit(&self) {
        self.backend.permit(self.run.permitted_interruptions().collect());
    }

    /// From now on calls are sent only while this lease is certainly held. Bounded and conditional calls have
    /// no other protection against a process that was paused between the announcement and the call.
    pub fn watch_lease(&mut self, lease: Watch) {
        self.lease = Some(lease);
    }

    /// Open intents of an earlier holder are unknown, so every unit may have one. Before anything starts, the
    /// fence is raised on all units, which waits for commands that still run there.
    pub fn expect_stray_calls(&mut self, unread: UnreadableHandover) {
        self.unread = Some(unread);
    }

    /// From here on no unit joins the open wave: it is finished, and then the caller stops.
    pub fn close(&mut self) {
        self.run.close();
    }

    /// The run as it stands.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The time by which it is carried out: [`DriverStep::Wait`] is meant by this.
    pub fn clock(&self) -> Arc<Steady> {
        Arc::clone(&self.clock)
    }

    /// Whether a write to the journal is under way.
    pub(crate) fn writing(&self) -> Writing {
        self.writing.clone()
    }

    /// What was last observed.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.seen.as_ref().map(|seen| &seen.snapshot)
    }

    /// Where the fence cannot be raised, a call of the earlier holder may still land. Like an own call
    /// without an answer, it is repeated until its outcome is known, and nothing is done to its unit before
    /// the fence is raised there.
    async fn rule_out_stray_calls(&mut self) {
        let open = self.run.open().map(|(_, action)| action);
        let protocol::TakingOver {
            raise: fenced,
            wait: bound,
        } = protocol::takeover(open, |action| self.backend.fencing(action));
        let unguarded = self.raise_fences(&fenced, bound).await;
        for (seq, action) in self.run.open() {
            if let Some(why) = units_of(action)
                .iter()
                .find_map(|unit| unguarded.failure_of(unit))
            {
                self.strays.add(seq, why, &self.clock, Duration::ZERO);
            }
        }
        let mut known = self.unguarded.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(unguarded.units().cloned());
    }

    /// Fences as if each unit, and the cluster as a whole, had an open intent of each kind.
    async fn rule_out_a_strangers_calls(&mut self, snapshot: &Snapshot) -> Result<(), DriveError> {
        let units: Vec<_> = snapshot.units().iter().map(|unit| unit.id.clone()).collect();
        let bound = protocol::longest_bound(&self.run.start().target, &units, |action| {
            self.backend.fencing(action)
        });
        self.raise_fences(&units, bound).await.error().map_or(Ok(()), Err)
    }

    fn is_host_off(&self, unit: &UnitId) -> bool {
        let host = self.backend.host_of(unit);
        host.is_some_and(|host| self.run.is_host_off(&host))
    }

    async fn raise_fences(&mut self, fenced: &[UnitId], bound: Duration) -> Unguarded {
        let fenced = fenced.iter().filter(|unit| !self.is_host_off(unit));
        let fenced: Vec<UnitId> = fenced.cloned().collect();
        let unguarded = fences::raise(&self.backend, self.fence, &fenced).await;
        // An earlier holder started nothing after this process took the lock.
        let left = bound.saturating_sub(self.clock.uptime().saturating_sub(self.held_since));
        if !left.is_zero() {
            let until = self.clock.now().saturating_add(left).unwrap_or(Timestamp::MAX);
            let why = Reason::new(
                Code::WaitingOutCalls,
                "a call of an earlier process may still be under way",
            );
            let waiting = Waiting {
                why: &why,
                until: Some(until),
            };
            self.listener.waiting(until, waiting, &self.run);
            self.clock.sleep_until(until).await;
        }
        unguarded
    }

    async fn append(&mut self, events: Vec<Event>) -> Result<Vec<Seq>, DriveError> {
        let now = self.clock.now();
        let run = &self.run.start().run;
        let append = self.store.append(run, self.fence, self.run.seq(), now, events);
        let entries = self.writing.track(append).await?;
        let mut places = Vec::with_capacity(entries.len());
        for entry in entries {
            places.push(entry.seq);
            self.run.apply(entry.clone())?;
            if matches!(
                &entry.event,
                Event::Asked {
                    command: Command::Approve { .. },
                    ..
                }
            ) {
                self.permit();
            }
            self.listener.event(&entry, &self.run);
        }
        Ok(places)
    }

    async fn take_commands(&mut self) -> Result<(), DriveError> {
        if self.run.ended().is_some() {
            return Ok(());
        }
        let run = self.run.start().run.clone();
        let asked = self.store.pending_commands(&run).await?;
        let Some((last, ..)) = asked.last() else {
            return Ok(());
        };
        let last = *last;
        let events = asked
            .into_iter()
            .map(|(_, command, by)| Event::Asked {
                command: self.found(command),
                by,
            })
            .collect();
        // Appended first: a command taken twice is the same command, one lost is not.
        self.append(events).await?;
        self.writing
            .track(self.store.acknowledge_commands(&run, last))
            .await?;
        self.forget_what_is_settled();
        Ok(())
    }

    /// A person's word may have settled what was made again.
    fn forget_what_is_settled(&mut self) {
        let open = &self.run;
        self.strays.retain(|seq| open.intent(seq).is_some());
    }

    /// A confirmation about a host, with the open effects there.
    fn found(&self, command: Command) -> Command {
        let Command::Confirm { host, .. } = command else {
            return command;
        };
        let on_it = |unit: &UnitId| self.backend.host_of(unit).as_deref() == Some(host.as_str());
        let of_it = |action: &Action| {
            let units = units_of(action);
            !units.is_empty() && units.iter().all(on_it)
        };
        let open = self.run.open().filter(|(_, action)| of_it(action));
        let ended = open.map(|(seq, _)| seq).collect();
        Command::Confirm { host, ended }
    }

    /// A command of this process's own user, as Ctrl-C.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn ask(&mut self, command: Command, by: &str) -> Result<(), DriveError> {
        let command = self.found(command);
        self.append(vec![Event::Asked {
            command,
            by: by.to_owned(),
        }])
        .await?;
        self.forget_what_is_settled();
        Ok(())
    }

    /// One step.
    ///
    /// # Errors
    /// The journal cannot be written, or the world cannot be seen and will not be.
    pub async fn step(&mut self) -> Result<DriverStep, DriveError> {
        if let Some(why) = self.lease.as_ref().and_then(Watch::lost_reason) {
            return Err(DriveError::LeaseLost(why));
        }
        self.take_commands().await?;
        let now = self.clock.now();
        self.run.time_of_day_is_behind(self.clock.time_of_day_lag());
        self.forget_what_is_old(now);
        if let Some(unread) = self.unread {
            let Some(DriverObservation { snapshot, .. }) = self.seen.take() else {
                return self.observe(now).await;
            };
            self.rule_out_a_strangers_calls(&snapshot).await?;
            self.unread = None;
            if unread == UnreadableHandover::Lost && self.run.ended().is_none() {
                self.append(vec![Event::JournalBehind]).await?;
                let up_to = self.run.seq();
                self.lease.iter().for_each(|lease| lease.compared(up_to));
                self.forget_what_is_settled();
            }
            return Ok(DriverStep::Again);
        }
        let seen = self.seen.as_ref().map(|seen| TimedObservation {
            snapshot: &seen.snapshot,
            as_of: seen.as_of,
        });
        match self.run.next(now, seen) {
            Decision::Observe => self.observe(now).await,
            Decision::Record(events) => self.append(events).await.map(|_| DriverStep::Again),
            Decision::Judge(sets) => self.check_sets(sets).await,
            Decision::Act { fresh, again } => self.act(fresh, again).await,
            Decision::Wait { until, why } => {
                // The awaited change shows in a later observation.
                self.seen = None;
                let poll = SignedDuration::try_from(self.backend.poll()).unwrap_or(SignedDuration::MAX);
                let soon = now.saturating_add(poll).unwrap_or(Timestamp::MAX);
                let again = until.map_or(soon, |until| until.min(soon));
                self.listener
                    .waiting(again, Waiting { why: &why, until }, &self.run);
                Ok(DriverStep::Wait { until: again, why })
            }
            Decision::Hold(reason) => {
                // Actions come later: the current observation will be too old.
                self.seen = None;
                Ok(DriverStep::Held(reason))
            }
            Decision::Over(ending) => Ok(DriverStep::Over(ending)),
        }
    }

    /// An observation counts as long as an approval: while effects are under way, the driver does not observe
    /// by itself.
    fn forget_what_is_old(&mut self, now: Timestamp) {
        let age = SignedDuration::from_secs(i64::from(self.run.start().policy.approval_age));
        let is_old = |seen: &DriverObservation| seen.at.saturating_add(age).is_ok_and(|until| until < now);
        self.seen = self.seen.take().filter(|seen| !is_old(seen));
    }

    async fn observe(&mut self, now: Timestamp) -> Result<DriverStep, DriveError> {
        let as_of = self.run.seq();
        match self.backend.observe().await {
            Ok(snapshot) => {
                self.failures = 0;
                let at = self.clock.now();
                // Times that are compared with the journal's use the same clock.
                let snapshot = snapshot.reobserved_at(now);
                self.seen = Some(DriverObservation { snapshot, as_of, at });
                Ok(DriverStep::Again)
            }
            Err(error) if error.retryability == Retryability::Permanent => Err(error.into()),
            Err(error) => {
                let pause = pause_after(self.failures);
                self.failures += 1;
                let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
                let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
                let why = Reason::new(Code::ClusterUnreachable, error.to_string());
                let waiting = Waiting {
                    why: &why,
                    until: Some(until),
                };
                self.listener.waiting(until, waiting, &self.run);
                Ok(DriverStep::Wait { until, why })
            }
        }
    }

    async fn check_sets(&mut self, sets: Vec<Vec<UnitId>>) -> Result<DriverStep, DriveError> {
        for units in sets {
            if let Some(wait) = self.refresh_before_approval().await? {
                return Ok(wait);
            }
            let Some(DriverObservation { snapshot, at, .. }) = &self.seen else {
                return Ok(DriverStep::Again);
            };
            let facts = Some(*at);
            let ours = match self.run.may_stop(snapshot, &units) {
                Ok(()) => Answer::Yes,
                Err(why) => Answer::No { why },
            };
            let theirs = self
                .backend
                .check_stop(&units)
                .await
                .unwrap_or_else(|error| Answer::Unknown {
                    why: error.to_string(),
                });
            self.append(vec![Event::Judged {
                units,
                ours,
                theirs,
                facts,
            }])
            .await?;
        }
        Ok(DriverStep::Again)
    }

    /// An approval counts from the arrival of the facts: half of that time is reserved for the oracle and the
    /// start. `None`: that much is left, or the cluster was observed again.
    async fn refresh_before_approval(&mut self) -> Result<Option<DriverStep>, DriveError> {
        let half = SignedDuration::from_millis(i64::from(self.run.start().policy.approval_age) * 500);
        let now = self.clock.now();
        let is_fresh = |seen: &DriverObservation| now.duration_since(seen.at) <= half;
        if self.seen.as_ref().is_some_and(is_fresh) {
            return Ok(None);
        }
        let looked = self.observe(now).await?;
        Ok(matches!(looked, DriverStep::Wait { .. }).then_some(looked))
    }
}
