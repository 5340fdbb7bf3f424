//! The stores of a site: each by itself, so that one that does not answer does not block the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use stagger_core::model::{ClusterName, RunId};
use stagger_engine::store::{JournalStore, Listed, StoreError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::access::Caller;
use crate::limits::RequestTimeouts;
use crate::read_error::{ReadError, in_full};

/// Opens the store: each request has its own connection.
pub type StoreOpener =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Box<dyn JournalStore>, StoreError>> + Send + Sync>;

/// One of the stores whose runs are served.
#[derive(Clone)]
pub struct RunStore {
    /// What it is called where it does not answer: a path, or an address.
    pub name: String,
    /// Whose runs are in it, as far as that is known without asking it.
    pub clusters: BTreeSet<ClusterName>,
    /// Opens it.
    pub open: StoreOpener,
}

/// A place among the stores.
pub(crate) type Place = usize;

/// A store that does not answer.
#[derive(Debug, Clone)]
pub(crate) struct Away {
    /// What it is called.
    pub(crate) store: String,
    /// Its known clusters that the caller may see.
    pub(crate) clusters: Vec<ClusterName>,
    /// Why.
    pub(crate) why: String,
}

/// What the stores have, and which of them do not say.
pub(crate) struct StoreResults<T> {
    pub(crate) all: Vec<(Place, T)>,
    pub(crate) away: Vec<(Place, ReadError)>,
}

/// All of them.
#[derive(Clone)]
pub(crate) struct Stores {
    known: Arc<[KnownStore]>,
    /// The store of a run. A known place is used; else all are queried.
    ///
    /// # Errors
    /// It is in none; or in more than one, so that it is ambiguous; or it was not found, and one that may
    /// have it does not answer.
    seen: Arc<Mutex<BTreeMap<RunId, BTreeSet<Place>>>>,
    patience: Duration,
}

struct KnownStore {
    store: RunStore,
    /// The right to look into it: each who has it holds a connection.
    looks: Arc<Semaphore>,
}

impl Stores {
    pub(crate) fn of(stores: Vec<RunStore>, limits: &RequestTimeouts) -> Self {
        let known = stores.into_iter().map(|store| KnownStore {
            store,
            looks: Arc::new(Semaphore::new(limits.looks)),
        });
        Self {
            known: known.collect(),
            seen: Arc::default(),
            patience: limits.store,
        }
    }

    /// Looks into one of them, on a thread of its own: one that is a file is read in the thread that asks.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        place: Place,
        with: impl AsyncFnOnce(Box<dyn JournalStore>) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let away = |why: String| ReadError::Store(why);
        let known = self.known.get(place);
        let known = known.ok_or_else(|| away("there is no such store".to_owned()))?;
        let look = Arc::clone(&known.looks).acquire_owned().await;
        let look = look.map_err(|error| away(error.to_string()))?;
        let open = Arc::clone(&known.store.open);
        let runtime = Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            // Until it is done, also where whoever asked waits no more.
            let _look = look;
            runtime.block_on(async {
                let store = open().await.map_err(|error| away(in_full(&error)))?;
                with(store).await
            })
        });
        done.await.unwrap_or_else(|error| Err(away(error.to_string())))
    }

    /// Asks all of them. One that does not answer in time is away: the others are not kept waiting.
    ///
    /// # Errors
    /// None answers: the error of the first.
    pub(crate) async fn all<T: Send + 'static>(
        &self,
        with: impl AsyncFn(Place, Box<dyn JournalStore>) -> Result<T, ReadError> + Clone + Send + 'static,
    ) -> Result<StoreResults<T>, ReadError> {
        let asked = (0..self.known.len()).map(|place| {
            let with = with.clone();
            async move {
                let looked = self.with_store(place, async move |store| with(place, store).await);
                let looked = tokio::time::timeout(self.patience, looked).await;
                let late = || format!("it has not answered within {} s", self.patience.as_secs());
                (place, looked.unwrap_or_else(|_| Err(ReadError::Store(late()))))
            }
        });
        let mut found = StoreResults {
            all: Vec::new(),
            away: Vec::new(),
        };
        for (place, answer) in join_all(asked).await {
            match answer {
                Ok(answer) => found.all.push((place, answer)),
                Err(error) => found.away.push((place, error)),
            }
        }
        match found.away.first() {
            Some((_, error)) if found.all.is_empty() => Err(error.clone()),
            Some(_) | None => Ok(found),
        }
    }

    /// In which of them a run is. Where it was seen before is believed; else all are asked.
    ///
    /// # Errors
    /// It is in none; or in more than one, so that nobody knows which is meant; or it was not found, and one that may have it does
    /// not answer.
    pub(crate) async fn of_run(&self, run: &RunId) -> Result<Place, ReadError> {
        if let Some(place) = self.known_place(run)? {
            return Ok(place);
        }
        let found = self.all(async |_, store| runs_of(&*store).await).await?;
        for (place, listed) in &found.all {
            self.remember(*place, listed);
        }
        match (self.known_place(run)?, found.away.into_iter().next()) {
            (Some(place), _) => Ok(place),
            (None, None) => Err(ReadError::NoRun(run.clone())),
            (None, Some((_, error))) => Err(error),
        }
    }

    fn known_place(&self, run: &RunId) -> Result<Option<Place>, ReadError> {
        // There is nothing to be told apart.
        if self.known.len() == 1 {
            return Ok(Some(0));
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let places = seen.get(run);
        match places.map_or(0, BTreeSet::len) {
            0 | 1 => Ok(places.and_then(BTreeSet::first).copied()),
            _ => Err(ReadError::InSeveral(run.clone())),
        }
    }

    /// Remembers where runs are.
    pub(crate) fn remember(&self, place: Place, listed: &[Listed]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for places in seen.values_mut() {
            places.remove(&place);
        }
        for listed in listed {
            seen.entry(listed.run.clone()).or_default().insert(place);
        }
        seen.retain(|_, places| !places.is_empty());
    }

    /// Where runs of a cluster are kept, if that is known.
    pub(crate) fn of_cluster(&self, cluster: &ClusterName) -> Option<Place> {
        self.known
            .iter()
            .position(|known| known.store.clusters.contains(cluster))
    }

    /// What a store is called.
    pub(crate) fn name(&self, place: Place) -> &str {
        self.known.get(place).map_or("", |known| &known.store.name)
    }

    /// All names, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|known| known.store.name.as_str())
    }

    /// The notice that a store is unreachable. Stores without clusters of the caller are not mentioned, and
    /// only callers who see all clusters learn the address.
    pub(crate) fn unavailability(&self, place: Place, error: &ReadError, caller: &Caller) -> Option<Away> {
        let known = &self.known.get(place)?.store;
        let sees_all = caller.clusters.is_none();
        let clusters: Vec<ClusterName> = known
            .clusters
            .iter()
            .filter(|of| caller.may_see(of))
            .cloned()
            .collect();
        if clusters.is_empty() && !known.clusters.is_empty() && !sees_all {
            return None;
        }
        Some(Away {
            store: if sees_all {
                known.name.clone()
            } else {
                "a store".to_owned()
            },
            clusters,
            why: if sees_all {
                error.to_string()
            } else {
                "it does not answer".to_owned()
            },
        })
    }
}

/// All that a store lists.
pub(crate) async fn runs_of(store: &dyn JournalStore) -> Result<Vec<Listed>, ReadError> {
    store
        .runs()
        .await
        .map_err(|error| ReadError::Store(in_full(&error)))
}
