//! Cached runs: each journal is read once, and again when it has grown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry};
use stagger_core::view::{self, RunView};
use stagger_engine::store::{JournalStore, Listed, Mark};
use stagger_engine::supervisor;
use stagger_report::{Reading, Verification, verify};
use tokio::sync::watch;

use crate::access::Caller;
use crate::fragments::PageFragments;
use crate::read_error::ReadError;
use crate::stores::{Away, Place, StoreResults, Stores, runs_of};

/// How often a followed run is read.
const LOOK: Duration = Duration::from_secs(1);
/// So many journals are kept as they were read.
const KEPT: usize = 32;
/// The most runs that are listed.
pub(crate) const LISTED: usize = 100;

/// The runs of all stores.
#[derive(Clone)]
pub(crate) struct RunCatalog {
    pub(crate) stores: Stores,
    kept: Arc<Mutex<Cache>>,
}

#[derive(Default)]
struct Cache {
    journals: BTreeMap<(Place, RunId), Arc<StoredJournal>>,
    /// The final view of runs whose journals are complete.
    over: BTreeMap<(Place, RunId), Arc<RunView>>,
    followed: BTreeMap<RunId, watch::Receiver<Followed>>,
    /// The last views of runs, for requests while the store is unreachable.
    last: BTreeMap<RunId, ReadRun>,
    /// What was listed last of all that there is, and when.
    listed: Option<(Vec<InList>, Timestamp)>,
}

/// A journal as it was read.
pub(crate) struct StoredJournal {
    pub(crate) entries: Vec<Entry>,
    pub(crate) reading: Reading,
    /// Where the store stood when it was read; `None`: it did not say.
    mark: Option<Mark>,
    verification: OnceLock<Option<Verification>>,
    drawn: OnceLock<PageFragments>,
}

impl StoredJournal {
    /// Whether it keeps the laws, found out once; `None`: its first event is not the start of a run.
    pub(crate) fn verification(&self) -> Option<&Verification> {
        self.verification.get_or_init(|| verify(&self.entries)).as_ref()
    }

    /// What of its page depends on nothing else.
    pub(crate) fn drawn(&self) -> &PageFragments {
        self.drawn
            .get_or_init(|| PageFragments::of(&self.reading, self.verification()))
    }
}

/// A run, and the process that carries it out.
#[derive(Clone)]
pub(crate) struct ReadRun {
    pub(crate) journal: Arc<StoredJournal>,
    pub(crate) view: RunView,
    /// Pending commands, with their authors.
    pub(crate) asked: Vec<(Command, String)>,
    /// When it was read.
    pub(crate) at: Timestamp,
}

/// A run as those see it who follow it: the same for all of them.
pub(crate) type Followed = Result<Arc<ReadRun>, ReadError>;

/// A run in the list, also one that cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct InList {
    pub(crate) listed: Listed,
    pub(crate) view: Result<Arc<RunView>, ReadError>,
    /// In which store.
    pub(crate) store: String,
}

/// Where a cluster stands.
pub(crate) struct ClusterRuns {
    pub(crate) newest: Option<RunId>,
    pub(crate) open: Option<RunId>,
}

/// Runs of all stores that answer, and the stores that do not.
pub(crate) struct Listing {
    pub(crate) runs: Vec<InList>,
    pub(crate) away: Vec<Away>,
}

impl RunCatalog {
    pub(crate) fn of(stores: Stores) -> Self {
        Self {
            stores,
            kept: Arc::default(),
        }
    }

    fn with_cache<T>(&self, with: impl FnOnce(&mut Cache) -> T) -> T {
        with(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The newest runs that the caller may see, of that cluster or of all, the newest first.
    pub(crate) async fn list(
        &self,
        caller: Caller,
        cluster: Option<ClusterName>,
    ) -> Result<Listing, ReadError> {
        let this = self.clone();
        let of_caller = caller.clone();
        let everything = cluster.is_none() && caller.clusters.is_none();
        let found = self.stores.all(async move |place, store| {
            let mut listed = this.visible_runs(place, &*store, &of_caller).await?;
            listed.retain(|listed| cluster.as_ref().is_none_or(|of| listed.cluster == *of));
            listed.truncate(LISTED);
            Ok(this.in_list(place, &*store, listed).await)
        });
        let mut listing = self.listing(found.await?, &caller);
        listing.runs.truncate(LISTED);
        if everything && listing.away.is_empty() {
            self.with_cache(|kept| kept.listed = Some((listing.runs.clone(), Timestamp::now())));
        }
        Ok(listing)
    }

    /// The last list of runs that the caller may see, and its time: for requests while the store is
    /// unreachable.
    pub(crate) fn last_list(&self, caller: &Caller) -> Option<(Vec<InList>, Timestamp)> {
        self.with_cache(|kept| {
            let (listed, at) = kept.listed.as_ref()?;
            let seen = listed.iter().filter(|run| caller.may_see(&run.listed.cluster));
            let known = seen.filter(|run| run.view.is_ok()).cloned().map(|mut run| {
                if let Some(last) = kept.last.get(&run.listed.run) {
                    run.view = Ok(Arc::new(last.view.clone()));
                }
                run
            });
            Some((known.collect(), *at))
        })
    }

    /// A run as it was seen last.
    pub(crate) fn last(&self, run: &RunId) -> Option<ReadRun> {
        self.with_cache(|kept| kept.last.get(run).cloned())
    }

    /// The newest run of each cluster that the caller may see.
    pub(crate) async fn newest(&self, caller: Caller) -> Result<Listing, ReadError> {
        let this = self.clone();
        let of_caller = caller.clone();
        let found = self.stores.all(async move |place, store| {
            let mut clusters = BTreeSet::new();
            let mut listed = this.visible_runs(place, &*store, &of_caller).await?;
            listed.retain(|listed| clusters.insert(listed.cluster.clone()));
            Ok(this.in_list(place, &*store, listed).await)
        });
        let mut listing = self.listing(found.await?, &caller);
        let mut clusters = BTreeSet::new();
        listing
            .runs
            .retain(|run| clusters.insert(run.listed.cluster.clone()));
        Ok(listing)
    }

    /// The lists of several stores as one, the newest run first.
    fn listing(&self, found: StoreResults<Vec<InList>>, caller: &Caller) -> Listing {
        let away = found.away.iter();
        let away = away.filter_map(|(place, error)| self.stores.unavailability(*place, error, caller));
        let mut runs: Vec<InList> = found.all.into_iter().flat_map(|(_, runs)| runs).collect();
        // Those of one store stay in its own order.
        runs.sort_by_key(|run| std::cmp::Reverse(run.listed.started));
        Listing {
            runs,
            away: away.collect(),
        }
    }

    /// The runs of a store, in clusters that the caller may see.
    async fn visible_runs(
        &self,
        place: Place,
        store: &dyn JournalStore,
        caller: &Caller,
    ) -> Result<Vec<Listed>, ReadError> {
        let mut listed = runs_of(store).await?;
        self.stores.remember(place, &listed);
        listed.retain(|listed| caller.may_see(&listed.cluster));
        Ok(listed)
    }

    async fn in_list(&self, place: Place, store: &dyn JournalStore, all: Vec<Listed>) -> Vec<InList> {
        let mut list = Vec::with_capacity(all.len());
        for listed in all {
            list.push(InList {
                view: self.run_overview(place, store, &listed).await,
                store: self.stores.name(place).to_owned(),
                listed,
            });
        }
        list
    }

    /// A run of the list at a glance. Of one that the store lists as over, what was read once stands.
    async fn run_overview(
        &self,
        place: Place,
        store: &dyn JournalStore,
        listed: &Listed,
    ) -> Result<Arc<RunView>, ReadError> {
        let run = &(place, listed.run.clone());
        let is_over = listed.ended_by.is_some();
        if let Some(over) = self.with_cache(|kept| kept.over.get(run).filter(|_| is_over).cloned()) {
            return Ok(over);
        }
        let view = Arc::new(self.read(place, store, &listed.run).await?.view);
        if is_over {
            self.with_cache(|kept| {
                kept.journals.remove(run);
                kept.last.remove(&listed.run);
                kept.over.insert(run.clone(), Arc::clone(&view))
            });
        }
        Ok(view)
    }

    /// A run.
    pub(crate) async fn run(&self, run: &RunId) -> Result<ReadRun, ReadError> {
        let place = self.stores.of_run(run).await?;
        let (this, run) = (self.clone(), run.clone());
        let read = async move |store: Box<dyn JournalStore>| this.read(place, &*store, &run).await;
        self.stores.with_store(place, read).await
    }

    async fn read(&self, place: Place, store: &dyn JournalStore, run: &RunId) -> Result<ReadRun, ReadError> {
        let journal = self.journal(place, store, run).await?;
        let state = &journal.reading.run;
        let view = view::run(state, None);
        let nobody = supervisor::interruption_reason(store, state).await;
        let nobody = nobody.map_err(|error| ReadError::of_supervisor(run, &error))?;
        let asked = store.pending_commands(run).await;
        let asked = asked.map_err(|error| ReadError::of(run, &error))?;
        let seen = ReadRun {
            asked: asked.into_iter().map(|(_, command, by)| (command, by)).collect(),
            view: match nobody {
                Some(why) => view.without_a_holder(why),
                None => view,
            },
            journal,
            at: Timestamp::now(),
        };
        self.with_cache(|kept| {
            if kept.last.len() >= KEPT {
                kept.last.clear();
            }
            kept.last.insert(run.clone(), seen.clone());
        });
        Ok(seen)
    }

    async fn journal(
        &self,
        place: Place,
        store: &dyn JournalStore,
        run: &RunId,
    ) -> Result<Arc<StoredJournal>, ReadError> {
        let key = (place, run.clone());
        // Read before the journal: later entries are read again.
        let mark = store.mark(run, None).await.ok().flatten();
        if let Some(known) = self.with_cache(|kept| kept.journals.get(&key).cloned()) {
            // A store that was put back may stand at the same place with other events.
            if known.mark.is_some() && known.mark == mark {
                return Ok(known);
            }
        }
        let entries = store.journal(run).await;
        let entries = entries.map_err(|error| ReadError::of(run, &error))?;
        let unreadable = |why: String| ReadError::Unreadable {
            run: run.clone(),
            why,
        };
        let reading = Reading::of(&entries).map_err(|error| unreadable(error.to_string()))?;
        let reading =
            reading.ok_or_else(|| unreadable("its first event is not the start of a run".to_owned()))?;
        let journal = Arc::new(StoredJournal {
            entries,
            reading,
            mark,
            verification: OnceLock::new(),
            drawn: OnceLock::new(),
        });
        self.with_cache(|kept| {
            if kept.journals.len() >= KEPT {
                kept.journals.clear();
            }
            kept.journals.insert(key, Arc::clone(&journal));
        });
        Ok(journal)
    }

    /// Follows a run: all followers share one reading. `first`: its state when they began.
    pub(crate) fn follow(&self, run: &RunId, first: ReadRun) -> watch::Receiver<Followed> {
        let (sender, receiver) = watch::channel(Ok(Arc::new(first)));
        let joined = self.with_cache(|kept| {
            if let Some(known) = kept.followed.get(run).filter(|known| known.has_changed().is_ok()) {
                return Some(known.clone());
            }
            kept.followed.insert(run.clone(), receiver.clone());
            None
        });
        if let Some(known) = joined {
            return known;
        }
        let (this, run) = (self.clone(), run.clone());
        tokio::spawn(async move {
            // One receiver is kept for new followers; when it is the only one, there are no followers.
            while sender.receiver_count() > 1 {
                tokio::time::sleep(LOOK).await;
                let now = this.run(&run).await.map(Arc::new);
                sender.send_if_modified(|known| {
                    let same = looks_same(known, &now);
                    *known = now;
                    !same
                });
            }
            this.with_cache(|kept| kept.followed.remove(&run));
        });
        receiver
    }

    /// The newest run of a cluster in the store that is known to be its own, and one that is not over.
    pub(crate) async fn newest_of(&self, cluster: &ClusterName) -> Result<ClusterRuns, ReadError> {
        let place = self.stores.of_cluster(cluster);
        let place = place.ok_or_else(|| ReadError::Store(format!("no store is known of {cluster}")))?;
        let (this, cluster) = (self.clone(), cluster.clone());
        let look = async move |store: Box<dyn JournalStore>| {
            let mut listed = runs_of(&*store).await?;
            listed.retain(|listed| listed.cluster == cluster);
            let mut open = None;
            for listed in &listed {
                // One that cannot be read may go on.
                let view = this.run_overview(place, &*store, listed).await;
                if view.map_or(true, |view| view.ending.is_none()) {
                    open = Some(listed.run.clone());
                    break;
                }
            }
            Ok(ClusterRuns {
                open,
                newest: listed.into_iter().next().map(|listed| listed.run),
            })
        };
        self.stores.with_store(place, look).await
    }

    /// Leaves a command for the process that carries the run out.
    pub(crate) async fn ask(&self, run: &RunId, command: Command, by: String) -> Result<(), ReadError> {
        let place = self.stores.of_run(run).await?;
        let run = run.clone();
        let ask = async move |mut store: Box<dyn JournalStore>| {
            let asked = supervisor::ask(&mut *store, &run, Timestamp::now(), &command, &by).await;
            asked.map_err(|error| ReadError::of_supervisor(&run, &error))
        };
        self.stores.with_store(place, ask).await
    }
}

/// Whether both look the same to a reader.
fn looks_same(one: &Followed, other: &Followed) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.view == other.view && one.asked == other.asked,
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}
