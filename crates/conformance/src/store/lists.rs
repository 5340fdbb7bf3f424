//! A store that is lists in memory: what is asked of another is compared with its answers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::store::{JournalStore, Listed, Mark, StoreError};

/// A store that is lists in memory.
#[derive(Debug, Default, Clone)]
pub(super) struct ListStore {
    clusters: BTreeMap<ClusterName, u64>,
    runs: Vec<(Listed, Vec<Entry>)>,
    asked: Vec<(RunId, Command, String, bool)>,
}

impl ListStore {
    /// The cluster of a run, and its last place.
    pub(super) fn end(&self, run: &RunId) -> Option<(&ClusterName, Seq)> {
        let (listed, entries) = &self.runs[self.place(run).ok()?];
        Some((&listed.cluster, entries.len() as u64))
    }

    fn place(&self, run: &RunId) -> Result<usize, StoreError> {
        let place = self.runs.iter().position(|(listed, _)| listed.run == *run);
        place.ok_or_else(|| StoreError::NoRun(run.clone()))
    }

    /// The newest token of a cluster; 0: none.
    pub(super) fn newest(&self, cluster: &ClusterName) -> u64 {
        self.clusters.get(cluster).copied().unwrap_or(0)
    }

    fn fenced(&self, cluster: &ClusterName, ours: u64) -> Result<(), StoreError> {
        let newest = self.newest(cluster);
        if self.clusters.contains_key(cluster) && newest == ours {
            return Ok(());
        }
        Err(StoreError::FencedOut {
            cluster: cluster.clone(),
            ours,
            newest,
        })
    }
}

fn failed() -> StoreError {
    StoreError::Failed {
        tried: String::new(),
        why: String::new(),
    }
}

#[async_trait]
impl JournalStore for ListStore {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        Ok(self.newest(cluster))
    }

    async fn raise(&mut self, cluster: &ClusterName, fence: u64, _: &str) -> Result<(), StoreError> {
        if let Some(newest) = self.clusters.get(cluster)
            && *newest >= fence
        {
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest: *newest,
            });
        }
        self.clusters.insert(cluster.clone(), fence);
        Ok(())
    }

    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.fenced(cluster, fence)?;
        let Event::Started(begun) = &start else {
            return Err(failed());
        };
        if self.place(&begun.run).is_ok() {
            return Err(failed());
        }
        let listed = Listed {
            run: begun.run.clone(),
            cluster: cluster.clone(),
            started: at,
            identity: begun.identity.clone(),
            ended_by: None,
        };
        let entry = Entry {
            seq: 1,
            at,
            event: start,
        };
        self.runs.push((listed, vec![entry.clone()]));
        Ok(entry)
    }

    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let place = self.place(run)?;
        self.fenced(&self.runs[place].0.cluster, fence)?;
        let entries = &mut self.runs[place].1;
        if entries.len() as u64 != after {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected: after,
                found: entries.len() as u64,
            });
        }
        let new: Vec<_> = (after + 1..)
            .zip(events)
            .map(|(seq, event)| Entry { seq, at, event })
            .collect();
        entries.extend(new.iter().cloned());
        Ok(new)
    }

    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        Ok(self.runs[self.place(run)?].1.clone())
    }

    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let mut listed: Vec<_> = self.runs.iter().map(|(listed, _)| listed.clone()).collect();
        listed.sort_by(|a, b| (b.started, &b.run).cmp(&(a.started, &a.run)));
        Ok(listed)
    }

    async fn ask(
        &mut self,
        run: &RunId,
        _: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        self.place(run).map_err(|_| failed())?;
        self.asked
            .push((run.clone(), command.clone(), by.to_owned(), false));
        Ok(())
    }

    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        let of_it = (1_i64..)
            .zip(&self.asked)
            .filter(|(_, (of, .., taken))| of == run && !taken);
        Ok(of_it
            .map(|(id, (_, command, by, _))| (id, command.clone(), by.clone()))
            .collect())
    }

    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        let asked = (1_i64..).zip(&mut self.asked);
        for (_, (.., taken)) in asked.filter(|(id, (of, ..))| *id <= up_to && of == run) {
            *taken = true;
        }
        Ok(())
    }

    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        let events = self.runs[self.place(run)?].1.len() as u64;
        let seq = at.unwrap_or(events);
        let sum = String::new();
        Ok((1..=events).contains(&seq).then_some(Mark { seq, sum }))
    }
}
