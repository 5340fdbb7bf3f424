//! Journals kept in the cluster itself, as ConfigMaps: an operator that is started on another node goes on.
//!
//! One ConfigMap a cluster, the *head*, has the newest fencing token and says where each run begins. A run
//! is a chain of ConfigMaps, its *chunks*, as one object may hold a megabyte: each names the next. An append
//! writes to the last chunk, under the condition that it is still as it was read (`resourceVersion`), so it
//! is one request and all or nothing. Who takes over writes its token into the last chunk of every chain:
//! from then on the condition of an older holder fails, and it finds the token and stops.
//!
//! Each event carries a checksum over the one before and itself: its time, its version and what happened
//! (the short form of [`rows`](stagger_engine::rows::Summed)).

mod line;
#[cfg(test)]
mod place;
mod prune;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use semver::Version;
use serde_json::{Value, json};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::rows::{JournalStart, Reader};
use stagger_engine::store::{JournalStore, Listed, Mark, StoreError};

use line::{event, events, key_of, last_seq, line, read_line};

/// The label of all these ConfigMaps, with the cluster's name.
pub const LABEL: &str = "stagger.dev/journal-of";
/// Events in a chunk, and their bytes, before the next is begun.
const FULL: (usize, usize) = (400, 200_000);
/// The key of the next chunk's name.
const NEXT: &str = "next";
/// The key of the newest token that may write.
const FENCE: &str = "fence";
/// The key of who holds it.
const HOLDER: &str = "holder";
/// The key of the release of the operator that held it last.
const OPERATOR: &str = "operator";
/// What the keys of runs begin with.
const RUN: &str = "run-";

/// What people ask of runs: handed in by whoever reads it off the CephCluster.
#[derive(Debug, Clone, Default)]
pub struct CommandQueue(Arc<Mutex<Vec<(i64, Command, String)>>>);

impl CommandQueue {
    /// Leaves a command.
    pub fn ask(&self, command: Command, by: impl Into<String>) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = asked.last().map_or(1, |(id, ..)| id + 1);
        asked.push((next, command, by.into()));
    }

    /// What was left, taken away.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<(Command, String)> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.drain(..).map(|(_, command, by)| (command, by)).collect()
    }
}

/// A chain's last chunk, as it was last read or written.
#[derive(Debug, Clone)]
struct Tail {
    name: String,
    version: Option<String>,
    /// The token that may write to it.
    fence: u64,
    events: usize,
    bytes: usize,
    seq: Seq,
    sum: String,
}

/// The store of one cluster.
#[derive(Clone)]
pub struct KubeStore {
    maps: Api<ConfigMap>,
    cluster: ClusterName,
    asked: CommandQueue,
    operator: Option<Version>,
    /// The last chunk of each chain that was read or written, also for the same store [beside](JournalStore::beside).
    tails: Arc<Mutex<BTreeMap<RunId, Tail>>>,
}

impl KubeStore {
    /// The store of a cluster in its namespace.
    pub fn new(client: &Client, namespace: &str, cluster: ClusterName, asked: CommandQueue) -> Self {
        Self {
            maps: Api::namespaced(client.clone(), namespace),
            cluster,
            asked,
            operator: None,
            tails: Arc::default(),
        }
    }

    /// The store as an operator of that release writes to it: never after a newer one.
    #[must_use]
    pub fn of_operator(mut self, version: Version) -> Self {
        self.operator = Some(version);
        self
    }

    /// Why it must not be written to: an operator of a newer release did.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn outranked(&self) -> Result<Option<String>, StoreError> {
        let head = self.get(&self.head_name()).await?;
        Ok(head.as_ref().and_then(|head| self.outranked_by(head)))
    }

    fn outranked_by(&self, head: &ConfigMap) -> Option<String> {
        outranked(self.operator.as_ref()?, head)
    }

    fn tail(&self, run: &RunId) -> Option<Tail> {
        let tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        tails.get(run).cloned()
    }

    fn remember(&self, run: RunId, tail: Tail) {
        let mut tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        tails.insert(run, tail);
    }

    fn head_name(&self) -> String {
        format!("stagger-{}", self.cluster)
    }

    async fn get(&self, name: &str) -> Result<Option<ConfigMap>, StoreError> {
        self.maps
            .get_opt(name)
            .await
            .map_err(|error| failed(&format!("read ConfigMap {name}"), &error))
    }

    /// Makes a ConfigMap, and says whether it did; one that is there already is left as it is.
    async fn make(&self, name: &str, data: &Value) -> Result<bool, StoreError> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { LABEL: self.cluster } },
            "data": data,
        });
        let tried = format!("make ConfigMap {name}");
        let object: ConfigMap = serde_json::from_value(object).map_err(|error| StoreError::Failed {
            tried: tried.clone(),
            why: error.to_string(),
        })?;
        match self.maps.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(false),
            Err(error) => Err(failed(&tried, &error)),
        }
    }

    /// Changes data of a ConfigMap if it is still that version, and says as what it was written. `None`: it is another.
    async fn set(
        &self,
        name: &str,
        version: Option<&str>,
        data: &Value,
    ) -> Result<Option<ObjectMeta>, StoreError> {
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "data": data }));
        let params = PatchParams::default();
        let mut lost = false;
        for pause in [1, 2, 4, 8, 0] {
            // Not all that the chunk holds by now is wanted back.
            match self.maps.patch_metadata(name, &params, &patch).await {
                Ok(written) => return Ok(Some(written.metadata)),
                // After an answer that was lost the version may be another because this was written.
                Err(kube::Error::Api(answer)) if answer.code == 409 && lost => {
                    let now = self.get(name).await?;
                    return Ok(now.filter(|now| holds(now, data)).map(|now| now.metadata));
                }
                Err(kube::Error::Api(answer)) if answer.code == 409 => return Ok(None),
                Err(error) if pause == 0 || is_conflict(&error) => {
                    return Err(failed(&format!("write ConfigMap {name}"), &error));
                }
                Err(error) => {
                    tracing::warn!(%error, name, "a write to the journal is tried again");
                    lost = true;
                    tokio::time::sleep(Duration::from_secs(pause)).await;
                }
            }
        }
        Ok(None)
    }

    async fn head(&self) -> Result<ConfigMap, StoreError> {
        let name = self.head_name();
        if let Some(head) = self.get(&name).await? {
            return Ok(head);
        }
        self.make(&name, &json!({ FENCE: "0" })).await?;
        self.get(&name).await?.ok_or_else(|| StoreError::Failed {
            tried: format!("read ConfigMap {name}"),
            why: "it was made, and is not there".to_owned(),
        })
    }

    /// The chunks of a run, from the first to the last.
    async fn chain(&self, run: &RunId) -> Result<Vec<ConfigMap>, StoreError> {
        let head = self.get(&self.head_name()).await?;
        let first = head.as_ref().and_then(|head| text(head, &format!("{RUN}{run}")));
        let mut next = Some(first.ok_or_else(|| StoreError::NoRun(run.clone()))?.to_owned());
        let mut chunks = Vec::new();
        while let Some(name) = next {
            let chunk = self.get(&name).await?.ok_or_else(|| StoreError::Damaged {
                run: run.clone(),
                last_good: chunks.iter().filter_map(last_seq).max().unwrap_or(0),
                why: format!("the ConfigMap {name} is gone"),
            })?;
            next = text(&chunk, NEXT).map(str::to_owned);
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// Whether the last event of a run says that it is over, whatever stands before it.
    async fn is_over(&self, run: &RunId) -> Result<bool, StoreError> {
        let chunks = self.chain(run).await?;
        let last = chunks.last().and_then(|chunk| events(chunk).last());
        let last = last.and_then(|(_, line)| event(line));
        Ok(matches!(last, Some(Event::Ended { .. })))
    }

    /// The events of a run, verified, and its last chunk.
    async fn read(&self, run: &RunId) -> Result<(Vec<Entry>, Tail), StoreError> {
        let chunks = self.chain(run).await?;
        let mut reader = Reader::of(run);
        for (key, line) in chunks.iter().flat_map(events) {
            read_line(&mut reader, key, line)?;
        }
        let sum = String::from_utf8_lossy(reader.sum()).into_owned();
        let entries = reader.entries();
        let last = chunks.last().ok_or_else(|| StoreError::NoRun(run.clone()))?;
        let tail = Tail {
            name: last.name_any(),
            version: last.metadata.resource_version.clone(),
            fence: token(last),
            events: events(last).count(),
            bytes: events(last).map(|(_, line)| line.len()).sum(),
            seq: entries.last().map_or(0, |entry| entry.seq),
            sum,
        };
        Ok((entries, tail))
    }

    /// The end of a journal, for whoever has that token and takes it to be there.
    async fn end(&self, run: &RunId, fence: u64, expected: Seq) -> Result<Tail, StoreError> {
        let (_, tail) = self.read(run).await?;
        if tail.fence != fence {
            return Err(self.fenced_out(fence, tail.fence));
        }
        if tail.seq != expected {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected,
                found: tail.seq,
            });
        }
        Ok(tail)
    }

    fn fenced_out(&self, ours: u64, newest: u64) -> StoreError {
        StoreError::FencedOut {
            cluster: self.cluster.clone(),
            ours,
            newest,
        }
    }

    /// The chunk after a full one: made first, then linked.
    async fn begin_next(&self, run: &RunId, fence: u64, tail: &Tail) -> Result<Tail, StoreError> {
        let name = format!("{}-{run}-{:06}-{fence}", self.head_name(), tail.seq);
        self.make(&name, &json!({ FENCE: fence.to_string() })).await?;
        if self
            .set(&tail.name, tail.version.as_deref(), &json!({ NEXT: name }))
            .await?
            .is_none()
        {
            return self.end(run, fence, tail.seq).await;
        }
        let made = self.get(&name).await?;
        Ok(Tail {
            version: made.and_then(|made| made.metadata.resource_version),
            name,
            events: 0,
            bytes: 0,
            ..tail.clone()
        })
    }
}

#[async_trait]
impl JournalStore for KubeStore {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        debug_assert_eq!(*cluster, self.cluster, "a store has one cluster");
        let head = self.get(&self.head_name()).await?;
        Ok(head.as_ref().map_or(0, token))
    }

    async fn raise(&mut self, _: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        loop {
            let head = self.head().await?;
            let newest = token(&head);
            if newest >= fence {
                return Err(self.fenced_out(fence, newest));
            }
            if let Some(why) = self.outranked_by(&head) {
                return Err(StoreError::Failed {
                    tried: "take over the journal".to_owned(),
                    why,
                });
            }
            let mut data = json!({ FENCE: fence.to_string(), HOLDER: holder });
            if let Some(version) = &self.operator {
                data[OPERATOR] = json!(version.to_string());
            }
            let version = head.metadata.resource_version.as_deref();
            if self.set(&self.head_name(), version, &data).await?.is_some() {
                break;
            }
        }
        for listed in self.runs().await? {
            loop {
                let tail = match self.read(&listed.run).await {
                    Ok((_, tail)) => tail,
                    // It is listed all the same: it is over, and nobody appends to it.
                    Err(StoreError::Damaged { .. }) => break,
                    Err(error) => return Err(error),
                };
                let data = json!({ FENCE: fence.to_string() });
                if let Some(written) = self.set(&tail.name, tail.version.as_deref(), &data).await? {
                    let version = written.resource_version;
                    self.remember(
                        listed.run.clone(),
                        Tail {
                            version,
                            fence,
                            ..tail
                        },
                    );
                    break;
                }
            }
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        _: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        let JournalStart { run, entry, .. } = JournalStart::of(at, start)?;
        let (key, line, sum) = line(&entry, "")?;
        let name = format!("{}-{run}-{:06}-{fence}", self.head_name(), 0);
        let first = json!({ FENCE: fence.to_string(), key: line });
        let link = format!("{RUN}{run}");
        loop {
            let head = self.head().await?;
            let newest = token(&head);
            if newest != fence {
                return Err(self.fenced_out(fence, newest));
            }
            if text(&head, &link).is_some() {
                return Err(StoreError::Failed {
                    tried: format!("begin the journal of run {run}"),
                    why: "there is a run of that name".to_owned(),
                });
            }
            if !self.make(&name, &first).await? {
                // An earlier call was cut short: no journal leads to what it has left.
                self.set(&name, None, &first).await?;
            }
            let version = head.metadata.resource_version.as_deref();
            if self
                .set(&self.head_name(), version, &json!({ &link: name }))
                .await?
                .is_some()
            {
                break;
            }
        }
        let made = self.get(&name).await?;
        let tail = Tail {
            version: made.and_then(|made| made.metadata.resource_version),
            name,
            fence,
            events: 1,
            bytes: line.len(),
            seq: 1,
            sum,
        };
        self.remember(run, tail);
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
        let known = self.tail(run);
        let mut tail = match known.filter(|tail| (tail.fence, tail.seq) == (fence, after)) {
            Some(tail) => tail,
            None => self.end(run, fence, after).await?,
        };
        loop {
            if tail.events >= FULL.0 || tail.bytes >= FULL.1 {
                tail = self.begin_next(run, fence, &tail).await?;
            }
            let mut data = serde_json::Map::new();
            let mut entries = Vec::with_capacity(events.len());
            let mut new = tail.clone();
            for event in &events {
                let entry = Entry {
                    seq: new.seq + 1,
                    at,
                    event: event.clone(),
                };
                let (key, text, sum) = line(&entry, &new.sum)?;
                new.seq += 1;
                new.events += 1;
                new.bytes += text.len();
                new.sum = sum;
                data.insert(key, json!(text));
                entries.push(entry);
            }
            data.insert(FENCE.to_owned(), json!(fence.to_string()));
            if let Some(written) = self
                .set(&tail.name, tail.version.as_deref(), &Value::Object(data))
                .await?
            {
                new.version = written.resource_version;
                self.remember(run.clone(), new);
                return Ok(entries);
            }
            // Somebody's hand on a label is no reason to stop.
            tail = self.end(run, fence, after).await?;
        }
    }

    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.read(run).await.map(|(entries, _)| entries)
    }

    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let Some(head) = self.get(&self.head_name()).await? else {
            return Ok(Vec::new());
        };
        let mut listed = Vec::new();
        for key in head.data.iter().flat_map(BTreeMap::keys) {
            let Some(run) = key.strip_prefix(RUN).and_then(|run| RunId::new(run).ok()) else {
                continue;
            };
            let entries = match self.read(&run).await {
                Ok((entries, _)) => entries,
                // A run that is over stops nothing, whatever has become of its journal.
                Err(StoreError::Damaged { .. }) if self.is_over(&run).await? => {
                    listed.push(Listed {
                        run,
                        cluster: self.cluster.clone(),
                        started: Timestamp::UNIX_EPOCH,
                        identity: None,
                        ended_by: Some(0),
                    });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let identity = entries.first().and_then(|first| match &first.event {
                Event::Started(start) => start.identity.clone(),
                _ => None,
            });
            let is_over = matches!(entries.last().map(|last| &last.event), Some(Event::Ended { .. }));
            let holder = entries.iter().rev().find_map(|entry| match entry.event {
                Event::LeaseTaken { fence, .. } => Some(fence),
                _ => None,
            });
            listed.push(Listed {
                run,
                cluster: self.cluster.clone(),
                started: entries.first().map_or(Timestamp::UNIX_EPOCH, |first| first.at),
                identity,
                ended_by: holder.filter(|_| is_over),
            });
        }
        listed.sort_by(|a, b| b.started.cmp(&a.started).then_with(|| b.run.cmp(&a.run)));
        Ok(listed)
    }

    async fn ask(&mut self, _: &RunId, _: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        self.asked.ask(command.clone(), by);
        Ok(())
    }

    async fn pending_commands(&self, _: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        Ok(self
            .asked
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }

    async fn acknowledge_commands(&mut self, _: &RunId, up_to: i64) -> Result<(), StoreError> {
        let mut asked = self.asked.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|(id, ..)| *id > up_to);
        Ok(())
    }

    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        // What was last written is known: whoever keeps the lock must not wait for the API server.
        if let (None, Some(Tail { seq, sum, .. })) = (at, self.tail(run)) {
            return Ok(Some(Mark { seq, sum }));
        }
        let chunks = self.chain(run).await?;
        let Some(seq) = at.or_else(|| chunks.iter().filter_map(last_seq).max()) else {
            return Ok(None);
        };
        let key = key_of(seq);
        let line = chunks.iter().find_map(|chunk| text(chunk, &key));
        let sum = line
            .and_then(|line| line.split_once(' '))
            .map(|(sum, _)| sum.to_owned());
        Ok(sum.map(|sum| Mark { seq, sum }))
    }

    async fn beside(&self) -> Result<Option<Box<dyn JournalStore>>, StoreError> {
        Ok(Some(Box::new(self.clone())))
    }
}

fn failed(tried: &str, error: &kube::Error) -> StoreError {
    StoreError::Failed {
        tried: tried.to_owned(),
        why: error.to_string(),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(answer) if (400..500).contains(&answer.code) && answer.code != 429)
}

fn text<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a str> {
    map.data.as_ref()?.get(key).map(String::as_str)
}

/// The newest token in the head, or the one that may write to a chunk; 0: none.
fn token(map: &ConfigMap) -> u64 {
    text(map, FENCE).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Why an operator of our release must not write to a journal: one of a newer release did.
fn outranked(ours: &Version, head: &ConfigMap) -> Option<String> {
    let theirs = text(head, OPERATOR)?;
    // What cannot be compared may be newer.
    let is_ours = theirs.parse::<Version>().is_ok_and(|theirs| theirs <= *ours);
    (!is_ours).then(|| {
        format!(
            "an operator of release {theirs} has run upgrades of this cluster, and this one is of {ours}: run {theirs} \
             or a newer one. Where you know that {ours} may, remove the key {OPERATOR} of ConfigMap {}",
            head.name_any()
        )
    })
}

fn holds(map: &ConfigMap, data: &Value) -> bool {
    data.as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| text(map, key) == value.as_str())
}
