//! Watches of the API server: they keep their stores up to date, and signal their changes together.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// A watch that was forbidden is granted when it was not forbidden again for so long. It is tried again every
/// half minute, and one that is granted says nothing until something changes.
const QUIET: Duration = Duration::from_secs(90);

/// So many objects are in memory twice at most, while all are read for the first time.
const PAGE: u32 = 100;

/// Watches that tell of their changes together. Dropping it ends them.
pub(crate) struct Watches {
    tell: WatchSubscriber,
    watching: JoinSet<()>,
}

impl Watches {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            tell: WatchSubscriber {
                changed: Arc::new(watch::channel(0).0),
                forbidden: Arc::new(watch::channel(BTreeMap::new()).0),
            },
            watching: JoinSet::new(),
        }
    }

    /// Begins one more, and gives what it shows.
    pub(crate) fn watch<K>(&mut self, api: Api<K>, config: watcher::Config) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Eq + Hash + Clone + Default,
    {
        spawn_watch(api, config, &self.tell, &mut self.watching)
    }

    /// Counts the changes that others tell of as its own.
    pub(crate) fn follow(&mut self, mut others: watch::Receiver<u64>) {
        let tell = self.tell.clone();
        self.watching.spawn(async move {
            while others.changed().await.is_ok() {
                tell.change();
            }
        });
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.tell.changed.subscribe()
    }

    /// Which rights the watches lack, and the cure.
    pub(crate) fn missing_rights(&self) -> Option<String> {
        let forbidden = self.tell.forbidden.borrow();
        let all: Vec<&str> = forbidden.values().map(String::as_str).collect();
        (!all.is_empty()).then(|| {
            format!(
                "{}; give the operator's account its role again: apply deploy/operator/rbac.yaml of this release",
                all.join("; ")
            )
        })
    }
}

/// Who is told by the watches.
#[derive(Clone)]
struct WatchSubscriber {
    changed: Arc<watch::Sender<u64>>,
    /// What the API server says of watches that it forbids, by resource.
    forbidden: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl WatchSubscriber {
    fn change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Whether a resource's watch is forbidden now, and what the API server says of it.
    fn forbidden(&self, resource: &str, why: Option<String>) {
        let turned = self.forbidden.send_if_modified(|forbidden| match why {
            Some(why) => forbidden.insert(resource.to_owned(), why.clone()).as_ref() != Some(&why),
            None => forbidden.remove(resource).is_some(),
        });
        if turned {
            self.change();
        }
    }
}

/// What the API server says of a watch that it forbids.
fn forbidden(error: &watcher::Error) -> Option<String> {
    let answer = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(answer))
        | watcher::Error::WatchStartFailed(kube::Error::Api(answer))
        | watcher::Error::WatchFailed(kube::Error::Api(answer))
        | watcher::Error::WatchError(answer) => Some(answer),
        _ => None,
    };
    answer
        .filter(|answer| answer.code == 403)
        .map(|answer| answer.message.clone())
}

fn spawn_watch<K>(
    api: Api<K>,
    config: watcher::Config,
    tell: &WatchSubscriber,
    watching: &mut JoinSet<()>,
) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (store, writer) = reflector::store();
    let resource = K::plural(&K::DynamicType::default()).into_owned();
    let tell = tell.clone();
    watching.spawn(async move {
        let events = watcher(api, config.page_size(PAGE)).default_backoff();
        // Who wrote which field is much of an object, and nobody here asks for it.
        let events = events.modify(|object: &mut K| object.meta_mut().managed_fields = None);
        let stream = reflector::reflector(writer, events);
        tokio::pin!(stream);
        let mut quiet = None;
        loop {
            let granted = async {
                match quiet {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            let event = tokio::select! {
                event = stream.next() => event,
                () = granted => {
                    quiet = None;
                    tell.forbidden(&resource, None);
                    continue;
                }
            };
            match event {
                Some(Ok(event)) => {
                    if matches!(event, watcher::Event::InitDone) {
                        quiet = None;
                        tell.forbidden(&resource, None);
                    }
                    tell.change();
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, resource, "a watch was interrupted and continues");
                    if let Some(why) = forbidden(&error) {
                        quiet = Some(Instant::now() + QUIET);
                        tell.forbidden(&resource, Some(why));
                    }
                }
                None => return,
            }
        }
    });
    store
}

/// Whether everything of a kind has been seen once.
pub(crate) fn is_synced<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    store.wait_until_ready().now_or_never().is_some()
}
