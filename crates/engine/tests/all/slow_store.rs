//! A store whose answers take their time, and a signal while one is awaited.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Ending, Entry, Event, Seq};
use stagger_engine::drive::{NoSignals, Signal, Signals, Stopped, drive};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore, Listed, StoreError};
use tokio::task::yield_now;

use crate::one_unit::Begun;

/// A file. What is appended to it is there, and whoever did it hears of that later.
struct Slow {
    file: SqliteStore,
    /// How many appends were begun, twice; odd: the last one is not answered yet.
    appends: Arc<AtomicU32>,
}

#[async_trait]
impl JournalStore for Slow {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.file.fence(cluster).await
    }
    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        self.file.raise(cluster, fence, holder).await
    }
    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.file.begin(cluster, fence, at, start).await
    }
    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let appended = self.file.append(run, fence, after, at, events).await;
        self.appends.fetch_add(1, Ordering::Relaxed);
        for _ in 0..3 {
            yield_now().await;
        }
        self.appends.fetch_add(1, Ordering::Relaxed);
        appended
    }
    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.file.journal(run).await
    }
    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.file.runs().await
    }
    async fn ask(
        &mut self,
        run: &RunId,
        at: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        self.file.ask(run, at, command, by).await
    }
    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        self.file.pending_commands(run).await
    }
    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.file.acknowledge_commands(run, up_to).await
    }
}

/// Says it once, while that append is not answered.
struct InAppend {
    at: u32,
    signal: Option<Signal>,
    appends: Arc<AtomicU32>,
}

#[async_trait]
impl Signals for InAppend {
    async fn next(&mut self) -> Signal {
        poll_fn(|_| {
            if self.appends.load(Ordering::Relaxed) != self.at * 2 + 1 {
                // Who waits for the answer is woken to look, and looks here too.
                return Poll::Pending;
            }
            self.signal.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

#[tokio::test]
async fn a_step_is_never_cut_short_in_a_write_to_the_journal() {
    let mut heard = 0;
    for (at, signal) in (0..40).flat_map(|at| [(at, Signal::Stop), (at, Signal::Leave)]) {
        let appends = Arc::new(AtomicU32::new(0));
        let slow = |file| -> Box<dyn JournalStore> {
            let appends = Arc::clone(&appends);
            Box::new(Slow { file, appends })
        };
        let mut begun = Begun::in_store(0, 0, false, slow).await;
        let mut signals = InAppend {
            at,
            signal: Some(signal),
            appends: Arc::clone(&appends),
        };
        let end = drive(&mut begun.driver, &mut signals).await.unwrap();
        heard += u32::from(signals.signal.is_none());
        match (end, signal) {
            (Stopped::Over(Ending::Done), _) => {}
            (Stopped::BetweenWaves, Signal::Stop) | (Stopped::AtOnce, Signal::Leave) => {
                // What is written is known: the run goes on here, and in another process.
                let run = begun.driver.run();
                let store = SqliteStore::open(&begun.folder.path().join("journal.db")).unwrap();
                let journal = store.journal(&run.start().run).await.unwrap();
                assert_eq!(journal.len() as u64, run.seq(), "in append {at}");
                if run.ended().is_some() {
                    continue;
                }
                let mut again = begun.taken_over().await;
                let end = drive(&mut again.driver, &mut NoSignals).await.unwrap();
                assert_eq!(end, Stopped::Over(Ending::Done));
            }
            other => panic!("in append {at}: {other:?}"),
        }
    }
    assert!(heard > 10, "only {heard} signals came in a write");
}
