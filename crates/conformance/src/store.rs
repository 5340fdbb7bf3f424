//! The laws of a store of journals: it answers as [lists in memory](it_answers_as_lists_do), and it has [those](has_the_laws)
//! that lists cannot show.

mod asks;
mod lists;

use std::future::Future;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, Code, Policy, Reason, RunId, Target, Topology};
use stagger_core::run::{Entry, Event, Seq, Start, VERSION};
use stagger_engine::store::{JournalStore, StoreError};

pub use asks::it_answers_as_lists_do;

/// Where a store is, as a test reaches it.
pub trait StorePlace {
    /// The store.
    type Store: JournalStore;
    /// How many clusters have their journals in one store.
    const CLUSTERS: u8 = 2;
    /// Whether commands are kept beside the journals, each for its run.
    const KEEPS_COMMANDS: bool = true;
    /// How many events a journal has when another holder takes over. A store that keeps journals in pieces names those at which
    /// it begins the next one.
    const LENGTHS: &'static [u64] = &[1, 2];

    /// Opens it, as one process does.
    fn open(&self, cluster: &ClusterName) -> impl Future<Output = Self::Store>;

    /// Does that to an event of a journal, past the store.
    fn damage(
        &self,
        cluster: &ClusterName,
        run: &RunId,
        seq: Seq,
        damage: Damage,
    ) -> impl Future<Output = ()>;
}

/// What somebody has done to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Its letters `x` were made `y`.
    Changed,
    /// It was deleted.
    Gone,
}

/// The time of all events here, to the last digit that is kept.
const AT: Timestamp = Timestamp::constant(1_000_000_000, 123_456_789);
/// More than a store must take in one event: as many bytes as an object of Kubernetes may not have.
const LARGE: usize = 1_100_000;

/// All laws that are no question of luck, each with clusters of its own in the same place.
///
/// # Panics
/// A law is broken.
pub async fn has_the_laws(place: &impl StorePlace) {
    what_is_appended_is_read_back(place).await;
    each_place_has_one_event(place).await;
    an_overtaken_holder_is_refused(place).await;
    what_is_too_large_is_refused_whole(place).await;
    what_was_changed_past_it_is_found(place).await;
}

/// The first event of a run that changes nothing.
pub fn start(cluster: &ClusterName, run: &RunId) -> Event {
    Event::Started(Box::new(Start {
        version: VERSION,
        run: run.clone(),
        cluster: cluster.clone(),
        identity: None,
        target: Target {
            title: "nothing ü".to_owned(),
            parts: Vec::new(),
            only: None,
        },
        policy: Policy::default(),
        baseline: serde_json::Value::Null,
        topology: Topology::default(),
    }))
}

/// An event with a text.
fn held(text: &str) -> Event {
    Event::Held {
        reason: Reason::new(Code::Paused, format!("{text} \"quoted\" ü\n")),
    }
}

fn events(count: u64) -> Vec<Event> {
    let text = "x".repeat(500);
    (0..count).map(|nth| held(&format!("{nth} {text}"))).collect()
}

/// A journal, whoever began it, and what it has to hold.
struct Written<S> {
    store: S,
    cluster: ClusterName,
    run: RunId,
    entries: Vec<Entry>,
}

impl<S: JournalStore> Written<S> {
    /// Begun under the token 1.
    async fn begun(place: &impl StorePlace<Store = S>, name: &str) -> Self {
        let cluster = ClusterName::new(name).unwrap();
        let run = RunId::new(format!("{name}-run")).unwrap();
        let mut store = place.open(&cluster).await;
        store.raise(&cluster, 1, "first").await.unwrap();
        let first = store.begin(&cluster, 1, AT, start(&cluster, &run)).await;
        let entries = vec![first.unwrap()];
        Self {
            store,
            cluster,
            run,
            entries,
        }
    }

    fn end(&self) -> Seq {
        self.entries.len() as u64
    }

    /// Appended by whoever began it.
    async fn append(&mut self, events: Vec<Event>) {
        let after = self.end();
        let written = self.store.append(&self.run, 1, after, AT, events.clone()).await;
        self.entries.extend(entries(after, events));
        assert_eq!(written.unwrap(), self.entries[after as usize..]);
    }

    /// What is read of it, by whoever opens the store now.
    async fn is_read(&self, place: &impl StorePlace<Store = S>) {
        let read = place.open(&self.cluster).await.journal(&self.run).await.unwrap();
        assert_eq!(read.len(), self.entries.len(), "of {}", self.run);
        assert_eq!(read, self.entries);
    }
}

fn entries(after: Seq, events: Vec<Event>) -> impl Iterator<Item = Entry> {
    let entry = |(seq, event)| Entry { seq, at: AT, event };
    (after + 1..).zip(events).map(entry)
}

/// All that was appended is read in its order by another process, and where it ends is marked.
///
/// # Panics
/// The law is broken.
pub async fn what_is_appended_is_read_back(place: &impl StorePlace) {
    let mut journal = Written::begun(place, "laws-append").await;
    for count in [1, 2, 300, 150, 1, 200] {
        journal.append(events(count)).await;
    }
    journal.is_read(place).await;
    let other = place.open(&journal.cluster).await;
    assert_eq!(other.fence(&journal.cluster).await.unwrap(), 1);
    let runs = other.runs().await.unwrap();
    let listed = runs.iter().find(|listed| listed.run == journal.run);
    assert!(listed.is_some_and(|listed| listed.cluster == journal.cluster && listed.started == AT));

    // Whoever keeps the lock tells the cluster of the journal's end.
    let beside = journal.store.beside().await.unwrap();
    journal.append(events(1)).await;
    let (run, end) = (&journal.run, journal.end());
    let marked = other.mark(run, None).await.unwrap();
    assert_eq!(marked.as_ref().map(|mark| mark.seq), Some(end));
    if let Some(beside) = beside {
        assert_eq!(beside.mark(run, None).await.unwrap(), marked);
    }
    let before = other.mark(run, Some(end - 1)).await.unwrap();
    assert!(before.is_some_and(|mark| mark.seq == end - 1 && Some(mark.sum) != marked.map(|mark| mark.sum)));
    assert_eq!(other.mark(run, Some(end + 1)).await.unwrap(), None);
}

/// Of two writers with one token the second at a place is told where the journal ends, goes on from there, and leaves no gap. A
/// run is begun once.
///
/// # Panics
/// The law is broken.
pub async fn each_place_has_one_event(place: &impl StorePlace) {
    let mut journal = Written::begun(place, "laws-places").await;
    journal.append(events(1)).await;
    let mut other = place.open(&journal.cluster).await;
    other.append(&journal.run, 1, 2, AT, events(2)).await.unwrap();
    journal.entries.extend(entries(2, events(2)));
    for wrong in [2, 1, 5] {
        let refused = journal.store.append(&journal.run, 1, wrong, AT, events(1)).await;
        assert!(
            matches!(&refused, Err(StoreError::MovedOn { found: 4, expected, .. }) if *expected == wrong),
            "after {wrong}: {refused:?}"
        );
    }
    let start = start(&journal.cluster, &journal.run);
    let twice = other.begin(&journal.cluster, 1, AT, start).await;
    assert!(matches!(twice, Err(StoreError::Failed { .. })), "{twice:?}");
    journal.append(events(1)).await;
    journal.is_read(place).await;
}

/// Once a larger token was raised, no older one begins a run or appends an event, wherever a journal stands.
///
/// # Panics
/// The law is broken.
pub async fn an_overtaken_holder_is_refused<P: StorePlace>(place: &P) {
    for length in P::LENGTHS {
        let mut old = Written::begun(place, &format!("laws-fence-{length}")).await;
        if *length > 1 {
            old.append(events(length - 1)).await;
        }
        let mut new = place.open(&old.cluster).await;
        new.raise(&old.cluster, 2, "second").await.unwrap();
        let another = RunId::new(format!("{}-2", old.run)).unwrap();
        let start = start(&old.cluster, &another);
        let late = [
            old.store.append(&old.run, 1, *length, AT, events(1)).await.err(),
            old.store.begin(&old.cluster, 1, AT, start).await.err(),
            old.store.raise(&old.cluster, 2, "first again").await.err(),
        ];
        for refused in late {
            assert!(
                matches!(refused, Some(StoreError::FencedOut { newest: 2, .. })),
                "after {length} events: {refused:?}"
            );
        }
        assert_eq!(old.store.fence(&old.cluster).await.unwrap(), 2);
        new.append(&old.run, 2, *length, AT, events(3)).await.unwrap();
        old.entries.extend(entries(*length, events(3)));
        old.is_read(place).await;
    }
}

/// A store may refuse an event for its size. Then those beside it are not there either, and the journal goes on.
///
/// # Panics
/// The law is broken.
pub async fn what_is_too_large_is_refused_whole(place: &impl StorePlace) {
    let mut journal = Written::begun(place, "laws-large").await;
    let three = vec![held("before"), held(&"x".repeat(LARGE)), held("after")];
    let written = journal.store.append(&journal.run, 1, 1, AT, three.clone()).await;
    match written {
        Ok(_) => journal.entries.extend(entries(1, three)),
        Err(StoreError::Failed { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
    journal.is_read(place).await;
    journal.append(events(2)).await;
    journal.is_read(place).await;
}

/// A journal of which an event was changed or taken away is not read, and the last good event is named.
///
/// # Panics
/// The law is broken.
pub async fn what_was_changed_past_it_is_found(place: &impl StorePlace) {
    for (name, damage) in [("laws-changed", Damage::Changed), ("laws-gone", Damage::Gone)] {
        let mut journal = Written::begun(place, name).await;
        journal.append(events(5)).await;
        place.damage(&journal.cluster, &journal.run, 4, damage).await;
        let other = place.open(&journal.cluster).await;
        let read = other.journal(&journal.run).await;
        assert!(
            matches!(&read, Err(StoreError::Damaged { last_good: 3, .. })),
            "{damage:?}: {read:?}"
        );
    }
}
