//! Whether a pod may be evicted now: by the last observation of its cluster's drains, and by Ceph's own
//! oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use stagger_ceph::api::CephApi;
use stagger_ceph::oracle::ok_to_stop;
use stagger_core::model::UnitId;
use stagger_core::run::Answer;
use stagger_engine::cluster::BackendError;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout};

use crate::api::cache::ObjectCache;
use crate::api::daemons;
use crate::disruption::drains::eviction::{EvictionVerdict, Observation};
use crate::executor::wave_exposure::WaveExposure;

/// Ceph answers in milliseconds; the API server waits for five seconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pod that is about to go shows it by then, by the watch.
const SEEN: SignedDuration = SignedDuration::from_secs(2);
/// `kubectl drain` asks again after five seconds; whoever has not asked for so long waits no more.
const ASKS_AGAIN: Duration = Duration::from_secs(30);
/// The connection to Ceph is kept for so long after the last question.
const KEPT: Duration = Duration::from_mins(2);

/// Makes a connection to the Ceph of a cluster.
pub(crate) type Connect =
    Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn CephApi>, BackendError>> + Send + Sync>;

/// The clusters whose evictions are answered, by their namespaces.
pub(crate) struct EvictionReviewer {
    clusters: Mutex<BTreeMap<String, Arc<Cluster>>>,
    /// Whether the API server was told to ask it.
    registered: watch::Sender<bool>,
}

impl Default for EvictionReviewer {
    fn default() -> Self {
        Self {
            clusters: Mutex::default(),
            registered: watch::channel(false).0,
        }
    }
}

impl EvictionReviewer {
    /// Answers for the pods of a namespace, until what is returned is dropped.
    pub(crate) fn review(
        self: &Arc<Self>,
        namespace: &str,
        watched: &Arc<ObjectCache>,
        exposed: &Arc<WaveExposure>,
        connect: Connect,
    ) -> EvidenceSink {
        let cluster = Arc::new(Cluster {
            watched: Arc::clone(watched),
            review: Review::new(namespace, connect, Arc::clone(exposed)),
        });
        self.lock().insert(namespace.to_owned(), Arc::clone(&cluster));
        EvidenceSink {
            all: Arc::clone(self),
            namespace: namespace.to_owned(),
            cluster,
        }
    }

    /// Says whether the API server was told to ask.
    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.send_replace(registered);
    }

    /// Whether the API server was told to ask, and when that changes.
    pub(crate) fn registered(&self) -> watch::Receiver<bool> {
        self.registered.subscribe()
    }

    /// Whether that pod may be evicted now. `dry_run`: nothing comes of it in any case.
    ///
    /// # Errors
    /// Why not, and until when.
    pub(crate) async fn may_go(&self, namespace: &str, pod: &str, dry_run: bool) -> Result<(), String> {
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
pub(crate) struct EvidenceSink {
    all: Arc<EvictionReviewer>,
    namespace: String,
    cluster: Arc<Cluster>,
}

impl EvidenceSink {
    /// Says what is known now.
    pub(crate) fn set_evidence(&self, evidence: Evidence) {
        self.cluster.review.store_evidence(evidence);
    }

    /// Why daemons that are no OSDs were refused a moment ago.
    pub(crate) fn recent_refusals(&self) -> BTreeMap<UnitId, String> {
        self.cluster.review.recent_refusals()
    }

    /// The last look still holds: Ceph is as it was then.
    pub(crate) fn holds(&self, at: Timestamp) {
        self.cluster.review.holds(at);
    }
}

impl Drop for EvidenceSink {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Its successor may be there already.
        if all
            .get(&self.namespace)
            .is_some_and(|there| Arc::ptr_eq(there, &self.cluster))
        {
            all.remove(&self.namespace);
        }
    }
}

/// What is known of a cluster.
pub(crate) enum Evidence {
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
        /// The interruptions that a person permits by name, of which Ceph's oracle does not know.
        interruptions: Vec<String>,
    },
}

impl Evidence {
    /// What is known where a look has failed. Where drains are not asked for, that keeps nobody.
    pub(crate) fn from_error(managed: bool, error: &BackendError) -> Self {
        if managed {
            let why = error.to_string();
            Self::Unavailable { why }
        } else {
            Self::NotManaged
        }
    }
}

struct Cluster {
    watched: Arc<ObjectCache>,
    review: Review,
}

impl Cluster {
    async fn may_go(&self, pod: &str, dry_run: bool) -> Result<(), String> {
        let Some(pod) = self.watched.pod(pod) else {
            // No daemon's, as far as anybody knows: its budget decides.
            return Ok(());
        };
        // Nothing ends by that.
        if pod.metadata.deletion_timestamp.is_some() || daemons::is_over(&pod) {
            return Ok(());
        }
        match daemons::unit_of_labels(pod.labels()) {
            Ok(Some(unit)) => self.review.may_go(&unit, dry_run).await,
            Ok(None) => Ok(()),
            Err(why) => self.review.unknown_daemon(&pod.name_any(), &why),
        }
    }
}

/// Answers about the daemons of one cluster.
struct Review {
    namespace: String,
    connect: Connect,
    /// What a run is at.
    exposed: Arc<WaveExposure>,
    evidence: Mutex<Evidence>,
    /// The OSDs whose eviction was granted, and when.
    granted: Mutex<BTreeMap<u32, Timestamp>>,
    /// Why the eviction of other daemons was refused, and when.
    refused: Mutex<BTreeMap<UnitId, (String, Instant)>>,
    /// A connection of its own, and when it was last used: a look at a large cluster takes its time.
    api: AsyncMutex<Option<(Arc<dyn CephApi>, Instant)>>,
}

impl Review {
    fn new(namespace: &str, connect: Connect, exposed: Arc<WaveExposure>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            connect,
            exposed,
            evidence: Mutex::new(Evidence::NotManaged),
            granted: Mutex::default(),
            refused: Mutex::default(),
            api: AsyncMutex::new(None),
        }
    }

    fn store_evidence(&self, evidence: Evidence) {
        if let Evidence::Observed { observation, .. } = &evidence {
            self.forget_who_went_before(observation.at);
        }
        *self.evidence() = evidence;
    }

    fn holds(&self, at: Timestamp) {
        if let Evidence::Observed { observation, .. } = &mut *self.evidence() {
            observation.at = at;
            self.forget_who_went_before(at);
        }
    }

    /// Who was let go before a look is shown by it to be down, or was kept: by the budget, or by another webhook.
    fn forget_who_went_before(&self, look: Timestamp) {
        self.granted().retain(|_, at| look.duration_since(*at) < SEEN);
    }

    /// A daemon's pod, and nobody knows of which: it stays, where its cluster's drains are ours.
    fn unknown_daemon(&self, pod: &str, why: &str) -> Result<(), String> {
        match &*self.evidence() {
            Evidence::NotManaged => Ok(()),
            Evidence::Unavailable { .. } | Evidence::Observed { .. } => {
                Err(format!("{pod} may not be evicted now: {why}"))
            }
        }
    }

    async fn may_go(&self, unit: &UnitId, dry_run: bool) -> Result<(), String> {
        let answer = self.answer(unit, dry_run).await;
        if daemons::osd_of(unit).is_none() {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            match &answer {
                Ok(()) => drop(refused.remove(unit)),
                Err(why) => drop(refused.insert(unit.clone(), (why.clone(), Instant::now()))),
            }
        }
        answer.map_err(|why| format!("{unit} may not be evicted now: {why}"))
    }

    /// Why daemons that are no OSDs were refused, as long as whoever asked for it is likely to ask again.
    fn recent_refusals(&self) -> BTreeMap<UnitId, String> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, (_, at)| at.elapsed() < ASKS_AGAIN);
        let told = refused.iter().map(|(unit, (why, _))| (unit.clone(), why.clone()));
        told.collect()
    }

    async fn answer(&self, unit: &UnitId, dry_run: bool) -> Result<(), String> {
        let (word, is_permitted) = self.osd_verdict(unit, dry_run);
        let with = match word {
            EvictionVerdict::Allowed => return Ok(()),
            EvictionVerdict::Denied { why } => {
                let how = self.exposed.operator_action(&self.namespace);
                return Err(how.map_or_else(|| why.clone(), |how| format!("{why}; {how}")));
            }
            EvictionVerdict::IfCephAgrees { with } => with,
        };
        if is_permitted {
            return Ok(());
        }
        let agreed = self.ask_ceph(unit, &with).await;
        if agreed.is_err() && !dry_run {
            match daemons::osd_of(unit) {
                Some(osd) => drop(self.granted().remove(&osd)),
                None => self.exposed.cancel_eviction(unit),
            }
        }
        agreed
    }

    /// Our own word, and whether a person's stands against Ceph's. What it lets go counts from here on, before Ceph is
    /// asked: two that are asked about at once know of each other.
    fn osd_verdict(&self, unit: &UnitId, dry_run: bool) -> (EvictionVerdict, bool) {
        let evidence = self.evidence();
        match (&*evidence, daemons::osd_of(unit)) {
            (Evidence::NotManaged, _) => {
                let beside = self.exposed.count_eviction_beside_wave(unit, dry_run);
                let denied = |why| EvictionVerdict::Denied { why };
                (beside.map_or_else(denied, |()| EvictionVerdict::Allowed), false)
            }
            (Evidence::Unavailable { why }, Some(_)) => (EvictionVerdict::Denied { why: why.clone() }, false),
            (
                Evidence::Observed {
                    observation,
                    interruptions,
                },
                Some(osd),
            ) => {
                let (mut granted, now) = (self.granted(), Timestamp::now());
                let before: BTreeSet<u32> = granted.keys().copied().collect();
                let verdict = observation.may_go(osd, &before, now);
                if matches!(verdict, EvictionVerdict::IfCephAgrees { .. }) && !dry_run {
                    granted.insert(osd, now);
                }
                (verdict, is_permitted(interruptions, unit))
            }
            (Evidence::Observed { interruptions, .. }, None) => (
                self.non_osd_verdict(unit, dry_run),
                is_permitted(interruptions, unit),
            ),
            (Evidence::Unavailable { .. }, None) => (self.non_osd_verdict(unit, dry_run), false),
        }
    }

    /// No OSD: its budget counts them, a run those that it restarts, and Ceph knows this one if it has an oracle for its kind.
    fn non_osd_verdict(&self, unit: &UnitId, dry_run: bool) -> EvictionVerdict {
        match self.exposed.count_eviction(unit, dry_run) {
            Ok(()) if ["mon", "mds"].contains(&daemons::kind_of(unit)) => EvictionVerdict::IfCephAgrees {
                with: BTreeSet::new(),
            },
            Ok(()) => EvictionVerdict::Allowed,
            Err(why) => EvictionVerdict::Denied { why },
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
            Answer::Unknown { why } => Err(format!("Ceph does not know: {why}")),
        }
    }

    async fn api(&self) -> Result<Arc<dyn CephApi>, BackendError> {
        let mut kept = self.api.lock().await;
        let api = match kept.take() {
            Some((api, used)) if used.elapsed() < KEPT => api,
            _ => (self.connect)().await?,
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

/// Whether a person permits what a daemon interrupts: by its name or its sort, an OSD by a pool that has its data there.
fn is_permitted(interruptions: &[String], unit: &UnitId) -> bool {
    let kind = daemons::kind_of(unit);
    let concerns = |word: &String| match kind {
        "osd" => word == "pool" || word.starts_with("pool."),
        _ => word == kind || word == unit.as_str(),
    };
    interruptions.iter().any(concerns)
}

#[cfg(test)]
mod tests;
