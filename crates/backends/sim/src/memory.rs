//! A journal that is a list: thousands of worlds have no use for a database each.

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::store::{Listed, Store, StoreError};

/// It.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    fence: u64,
    entries: Vec<Entry>,
}

impl Store for MemoryStore {
    fn fence(&self, _: &ClusterName) -> Result<u64, StoreError> {
        Ok(self.fence)
    }
    fn raise(&mut self, _: &ClusterName, fence: u64, _: &str) -> Result<(), StoreError> {
        self.fence = fence;
        Ok(())
    }
    fn begin(&mut self, _: &ClusterName, _: u64, at: Timestamp, event: Event) -> Result<Entry, StoreError> {
        let entry = Entry { seq: 1, at, event };
        self.entries.push(entry.clone());
        Ok(entry)
    }
    fn append(
        &mut self,
        run: &RunId,
        _: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let found = self.entries.len() as u64;
        if found != after {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected: after,
                found,
            });
        }
        let new: Vec<_> = (after + 1..)
            .zip(events)
            .map(|(seq, event)| Entry { seq, at, event })
            .collect();
        self.entries.extend(new.iter().cloned());
        Ok(new)
    }
    fn journal(&self, _: &RunId) -> Result<Vec<Entry>, StoreError> {
        Ok(self.entries.clone())
    }
    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        Ok(Vec::new())
    }
    fn ask(&mut self, _: &RunId, _: Timestamp, _: &Command, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
    fn asked(&self, _: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        Ok(Vec::new())
    }
    fn taken(&mut self, _: &RunId, _: i64) -> Result<(), StoreError> {
        Ok(())
    }
}
