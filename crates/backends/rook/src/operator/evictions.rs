//! Whether a pod may be evicted now: by the last look of whoever sees to its cluster's drains, and by Ceph's own oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use stagger_ceph::api::CephApi;
use stagger_ceph::oracle::ok_to_stop;
use stagger_core::model::UnitId;
use stagger_core::run::Answer;
use stagger_engine::backend::BackendError;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::metrics::ClusterMetrics;
use crate::api::cache::ObjectCache;
use crate::api::objects::Pod;
use crate::api::{daemons, names};
use crate::disruption::drains::eviction::{Observation, Verdict};

/// Ceph answers in milliseconds; the API server waits for five seconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pod that is about to go shows it by then, by the watch.
const SEEN: SignedDuration = SignedDuration::from_secs(2);
/// The connection to Ceph is kept for so long after the last question.
const KEPT: Duration = Duration::from_mins(2);

/// The clusters whose evictions are answered, by their namespaces.
#[derive(Default)]
pub(crate) struct EvictionReviewer {
    clusters: Mutex<BTreeMap<String, Arc<Cluster>>>,
}

impl EvictionReviewer {
    /// Answers for the pods of a namespace, until what is returned is dropped.
    pub(super) fn review(
        self: &Arc<Self>,
        shared: &Shared,
        (namespace, name): (&str, &str),
        watched: &Arc<ObjectCache>,
        metrics: &Arc<ClusterMetrics>,
    ) -> EvidenceSink {
        let cluster = Arc::new(Cluster {
            shared: shared.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            watched: Arc::clone(watched),
            metrics: Arc::clone(metrics),
            evidence: Mutex::new(Evidence::NotManaged),
            granted: Mutex::default(),
            api: AsyncMutex::new(None),
        });
        self.lock().insert(namespace.to_owned(), Arc::clone(&cluster));
        EvidenceSink {
            all: Arc::clone(self),
            cluster,
        }
    }

    /// Whether that pod may be evicted now. `dry_run`: nothing comes of it in any case.
    ///
    /// # Errors
    /// Why not, and until when.
    pub(super) async fn may_go(&self, namespace: &str, pod: &str, dry_run: bool) -> Result<(), String> {
        let cluster = self.lock().get(namespace).cloned();
        match cluster {
            Some(cluster) => cluster.may_go(pod, dry_run).await,
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Cluster>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this is there, evictions of its cluster are answered by what it was told.
pub(super) struct EvidenceSink {
    all: Arc<EvictionReviewer>,
    cluster: Arc<Cluster>,
}

impl EvidenceSink {
    /// Says what is known now.
    pub(super) fn tell(&self, evidence: Evidence) {
        // Who was let go before that is shown to be down, or was kept by the budget.
        if let Evidence::Observed { observation, .. } = &evidence {
            let unseen = |at: Timestamp| observation.at.duration_since(at) < SEEN;
            self.cluster.granted().retain(|_, at| unseen(*at));
        }
        *self.cluster.evidence() = evidence;
    }

    /// The last look still holds: Ceph is as it was then.
    pub(super) fn holds(&self, at: Timestamp) {
        if let Evidence::Observed { observation, .. } = &mut *self.cluster.evidence() {
            observation.at = at;
        }
    }
}

impl Drop for EvidenceSink {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Its successor may be there already.
        if all
            .get(&self.cluster.namespace)
            .is_some_and(|there| Arc::ptr_eq(there, &self.cluster))
        {
            all.remove(&self.cluster.namespace);
        }
    }
}

/// What is known of a cluster.
pub(super) enum Evidence {
    /// Its drains are somebody else's.
    NotManaged,
    /// It could not be looked at.
    Unavailable {
        /// Why not.
        why: String,
    },
    /// This was observed.
    Observed {
        observation: Observation,
        /// A person permits interruptions by name, which Ceph's oracle does not know of.
        interruptions_permitted: bool,
    },
}

struct Cluster {
    shared: Shared,
    namespace: String,
    name: String,
    watched: Arc<ObjectCache>,
    metrics: Arc<ClusterMetrics>,
    evidence: Mutex<Evidence>,
    /// The OSDs whose eviction was granted, and when.
    granted: Mutex<BTreeMap<u32, Timestamp>>,
    /// A connection of its own, and when it was last used: a look at a large cluster takes its time.
    api: AsyncMutex<Option<(Arc<dyn CephApi>, Instant)>>,
}

impl Cluster {
    async fn may_go(&self, pod: &str, dry_run: bool) -> Result<(), String> {
        let Some(pod) = self.watched.pod(pod) else {
            // No daemon's, as far as anybody knows: its budget decides.
            return Ok(());
        };
        let Some(unit) = daemon_of(&pod).filter(|_| pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let (word, interruptions_permitted) = self.word(&unit, dry_run);
        let because = |why: String| format!("{unit} may not be evicted now: {why}");
        let with = match word {
            Verdict::Allowed => return Ok(()),
            Verdict::Denied { why } => return Err(because(why)),
            Verdict::IfCephAgrees { with } => with,
        };
        if interruptions_permitted {
            return Ok(());
        }
        let agreed = self.ask_ceph(&unit, &with).await;
        if let Some(osd) = daemons::osd_of(&unit).filter(|_| agreed.is_err() && !dry_run) {
            self.granted().remove(&osd);
        }
        agreed.map_err(because)
    }

    /// Our own word, and whether a person's stands against Ceph's. What it lets go counts from here on, before Ceph is
    /// asked: two that are asked about at once know of each other.
    fn word(&self, unit: &UnitId, dry_run: bool) -> (Verdict, bool) {
        let evidence = self.evidence();
        match (&*evidence, daemons::osd_of(unit)) {
            (Evidence::NotManaged, _) => (Verdict::Allowed, false),
            (Evidence::Unavailable { why }, Some(_)) => (Verdict::Denied { why: why.clone() }, false),
            (
                Evidence::Observed {
                    observation,
                    interruptions_permitted,
                },
                Some(osd),
            ) => {
                let (mut granted, now) = (self.granted(), Timestamp::now());
                let before: BTreeSet<u32> = granted.keys().copied().collect();
                let verdict = observation.may_go(osd, &before, now);
                if matches!(verdict, Verdict::IfCephAgrees { .. }) && !dry_run {
                    granted.insert(osd, now);
                }
                (verdict, *interruptions_permitted)
            }
            // A monitor, or a metadata server: its budget counts them, and Ceph knows this one.
            (
                Evidence::Observed {
                    interruptions_permitted,
                    ..
                },
                None,
            ) => (
                Verdict::IfCephAgrees {
                    with: BTreeSet::new(),
                },
                *interruptions_permitted,
            ),
            (Evidence::Unavailable { .. }, None) => (
                Verdict::IfCephAgrees {
                    with: BTreeSet::new(),
                },
                false,
            ),
        }
    }

    async fn ask_ceph(&self, unit: &UnitId, with: &BTreeSet<u32>) -> Result<(), String> {
        let mut units = vec![unit.clone()];
        for osd in with {
            units.extend(UnitId::new(format!("osd.{osd}")));
        }
        let asked = async {
            let api = self.api().await?;
            ok_to_stop(&*api, &units).await
        };
        let answer = match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(format!("Ceph cannot be asked whether it may stop: {}", error.why)),
            Err(_) => {
                return Err(format!(
                    "Ceph did not say within {} s whether it may stop",
                    PATIENCE.as_secs()
                ));
            }
        };
        match answer {
            Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => Ok(()),
            Answer::No { why } => Err(format!("Ceph says no: {why}")),
            Answer::Unknown { why } => Err(format!("Ceph cannot tell: {why}")),
        }
    }

    async fn api(&self) -> Result<Arc<dyn CephApi>, BackendError> {
        let mut kept = self.api.lock().await;
        let api = match kept.take() {
            Some((api, used)) if used.elapsed() < KEPT => api,
            _ => {
                self.shared
                    .ceph(&self.namespace, &self.name, &self.metrics)
                    .await?
            }
        };
        *kept = Some((Arc::clone(&api), Instant::now()));
        Ok(api)
    }

    fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self) -> MutexGuard<'_, BTreeMap<u32, Timestamp>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The daemon in a pod, if Ceph has an oracle for its kind.
fn daemon_of(pod: &Pod) -> Option<UnitId> {
    let labels = pod.labels();
    let kind = match labels.get(names::APP)?.as_str() {
        names::OSD_APP => "osd",
        names::MON_APP => "mon",
        names::MDS_APP => "mds",
        _ => return None,
    };
    let id = if kind == "osd" { names::OSD } else { daemons::ID };
    UnitId::new(format!("{kind}.{}", labels.get(id)?)).ok()
}
