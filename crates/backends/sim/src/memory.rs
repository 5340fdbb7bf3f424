//! A journal that is a list: thousands of worlds have no use for a database each.
//!
//! It keeps the rules of a store: it refuses older tokens and appends at the wrong place, and tells where it stands. What
//! was written when is known, so that a backup of it can be put back.

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::rows::JournalStart;
use stagger_engine::store::{JournalStore, Listed, Mark, StoreError};

use crate::rng::hash;

/// It.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    now: u64,
    of: Option<StoredRun>,
    fences: Vec<(u64, u64)>,
    entries: Vec<StoredEvent>,
    asked: Vec<(i64, Command, String)>,
    count: i64,
    /// How often a backup was put back.
    put_back: u64,
}

/// The one run that is in it.
#[derive(Debug, Clone)]
struct StoredRun {
    run: RunId,
    cluster: ClusterName,
    identity: Option<ClusterId>,
    started: Timestamp,
    ended_by: Option<u64>,
}

/// An event, when it was written, and the sum over all up to it.
#[derive(Debug, Clone)]
struct StoredEvent {
    entry: Entry,
    at: u64,
    sum: u64,
}

impl MemoryStore {
    fn newest(&self) -> u64 {
        self.fences.last().map_or(0, |(_, fence)| *fence)
    }

    fn write(&mut self, fence: u64, at: Timestamp, event: Event) -> Entry {
        let seq = self.entries.len() as u64 + 1;
        let before = self.entries.last().map_or(0, |last| last.sum);
        let millis = at.as_millisecond().cast_unsigned();
        if matches!(event, Event::Ended { .. })
            && let Some(of) = &mut self.of
        {
            of.ended_by = Some(fence);
        }
        let entry = Entry { seq, at, event };
        self.entries.push(StoredEvent {
            sum: hash(&[before, seq, millis, self.put_back, fence]),
            at: self.now,
            entry: entry.clone(),
        });
        entry
    }
}

impl MemoryStore {
    /// So many milliseconds have passed in the world.
    pub(crate) fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// It is again what it was then. Returns its last event, if it has lost some after that.
    pub(crate) fn restore(&mut self, as_of: u64) -> Option<u64> {
        // A backup has at least the beginning: else there is nothing to carry on.
        let left = self.entries.partition_point(|written| written.at <= as_of).max(2);
        if self.entries.len() <= left {
            return None;
        }
        self.put_back += 1;
        self.entries.truncate(left);
        let fences = self.fences.partition_point(|(at, _)| *at <= as_of).max(1);
        self.fences.truncate(fences);
        self.asked.clear();
        if let Some(of) = &mut self.of {
            of.ended_by = None;
        }
        Some(left as u64)
    }
}

#[async_trait]
impl JournalStore for MemoryStore {
    async fn fence(&self, _: &ClusterName) -> Result<u64, StoreError> {
        Ok(self.newest())
    }
    async fn raise(&mut self, cluster: &ClusterName, fence: u64, _: &str) -> Result<(), StoreError> {
        self.refuse_older(cluster, fence.saturating_sub(1))?;
        self.fences.push((self.now, fence));
        Ok(())
    }
    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.refuse_older(cluster, fence)?;
        let JournalStart { run, identity, entry } = JournalStart::of(at, start)?;
        self.of = Some(StoredRun {
            run,
            cluster: cluster.clone(),
            identity,
            started: at,
            ended_by: None,
        });
        Ok(self.write(fence, at, entry.event))
    }
    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let of = self.of.as_ref().ok_or_else(|| StoreError::NoRun(run.clone()))?;
        let cluster = of.cluster.clone();
        self.refuse_older(&cluster, fence)?;
        let found = self.entries.len() as u64;
        if found != after {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected: after,
                found,
            });
        }
        Ok(events
            .into_iter()
            .map(|event| self.write(fence, at, event))
            .collect())
    }
    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        if self.entries.is_empty() {
            return Err(StoreError::NoRun(run.clone()));
        }
        Ok(self.entries.iter().map(|written| written.entry.clone()).collect())
    }
    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let listed = self.of.iter().map(|of| Listed {
            run: of.run.clone(),
            cluster: of.cluster.clone(),
            started: of.started,
            identity: of.identity.clone(),
            ended_by: of.ended_by,
        });
        Ok(listed.collect())
    }
    async fn ask(&mut self, _: &RunId, _: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        self.count += 1;
        self.asked.push((self.count, command.clone(), by.to_owned()));
        Ok(())
    }
    async fn pending_commands(&self, _: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        Ok(self.asked.clone())
    }
    async fn acknowledge_commands(&mut self, _: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.asked.retain(|(id, ..)| *id > up_to);
        Ok(())
    }
    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        if self.entries.is_empty() {
            return Err(StoreError::NoRun(run.clone()));
        }
        let seq = at.unwrap_or(self.entries.len() as u64);
        let place = usize::try_from(seq).unwrap_or(usize::MAX).checked_sub(1);
        let found = place.and_then(|at| self.entries.get(at));
        Ok(found.map(|written| Mark {
            seq,
            sum: format!("{:016x}", written.sum),
        }))
    }
}

impl MemoryStore {
    fn refuse_older(&self, cluster: &ClusterName, ours: u64) -> Result<(), StoreError> {
        let newest = self.newest();
        if ours < newest {
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours,
                newest,
            });
        }
        Ok(())
    }
}
