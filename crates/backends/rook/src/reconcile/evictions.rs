//! Whether a pod may be evicted now: by the last look of whoever sees to its cluster's drains, and by Ceph's own oracle.

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
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

use crate::api::cache::ObjectCache;
use crate::api::daemons;
use crate::api::objects::Pod;
use crate::disruption::drains::eviction::{Observation, Verdict};
use crate::executor::wave_exposure::WaveExposure;

/// Ceph answers in milliseconds; the API server waits for five seconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pod that is about to go shows it by then, by the watch.
const SEEN: SignedDuration = SignedDuration::from_secs(2);
/// The connection to Ceph is kept for so long after the last question.
const KEPT: Duration = Duration::from_mins(2);

/// Makes a connection to the Ceph of a cluster.
pub(crate) type Connect =
    Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn CephApi>, BackendError>> + Send + Sync>;

/// The clusters whose evictions are answered, by their namespaces.
#[derive(Default)]
pub(crate) struct EvictionReviewer {
    clusters: Mutex<BTreeMap<String, Arc<Cluster>>>,
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
            review: Review::new(connect, Arc::clone(exposed)),
        });
        self.lock().insert(namespace.to_owned(), Arc::clone(&cluster));
        EvidenceSink {
            all: Arc::clone(self),
            namespace: namespace.to_owned(),
            cluster,
        }
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
    pub(crate) fn tell(&self, evidence: Evidence) {
        self.cluster.review.learn(evidence);
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
    pub(crate) fn without_a_look(managed: bool, error: &BackendError) -> Self {
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
        match daemon_of(&pod) {
            Ok(Some(unit)) => self.review.may_go(&unit, dry_run).await,
            Ok(None) => Ok(()),
            Err(why) => self.review.of_unknown(&pod.name_any(), &why),
        }
    }
}

/// Answers about the daemons of one cluster.
struct Review {
    connect: Connect,
    /// What a run is at.
    exposed: Arc<WaveExposure>,
    evidence: Mutex<Evidence>,
    /// The OSDs whose eviction was granted, and when.
    granted: Mutex<BTreeMap<u32, Timestamp>>,
    /// A connection of its own, and when it was last used: a look at a large cluster takes its time.
    api: AsyncMutex<Option<(Arc<dyn CephApi>, Instant)>>,
}

impl Review {
    fn new(connect: Connect, exposed: Arc<WaveExposure>) -> Self {
        Self {
            connect,
            exposed,
            evidence: Mutex::new(Evidence::NotManaged),
            granted: Mutex::default(),
            api: AsyncMutex::new(None),
        }
    }

    fn learn(&self, evidence: Evidence) {
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
    fn of_unknown(&self, pod: &str, why: &str) -> Result<(), String> {
        match &*self.evidence() {
            Evidence::NotManaged => Ok(()),
            Evidence::Unavailable { .. } | Evidence::Observed { .. } => {
                Err(format!("{pod} may not be evicted now: {why}"))
            }
        }
    }

    async fn may_go(&self, unit: &UnitId, dry_run: bool) -> Result<(), String> {
        let (word, is_permitted) = self.word(unit, dry_run);
        let because = |why: String| format!("{unit} may not be evicted now: {why}");
        let with = match word {
            Verdict::Allowed => return Ok(()),
            Verdict::Denied { why } => return Err(because(why)),
            Verdict::IfCephAgrees { with } => with,
        };
        if is_permitted {
            return Ok(());
        }
        let agreed = self.ask_ceph(unit, &with).await;
        if agreed.is_err() && !dry_run {
            match daemons::osd_of(unit) {
                Some(osd) => drop(self.granted().remove(&osd)),
                None => self.exposed.stays(unit),
            }
        }
        agreed.map_err(because)
    }

    /// Our own word, and whether a person's stands against Ceph's. What it lets go counts from here on, before Ceph is
    /// asked: two that are asked about at once know of each other.
    fn word(&self, unit: &UnitId, dry_run: bool) -> (Verdict, bool) {
        let evidence = self.evidence();
        match (&*evidence, daemons::osd_of(unit)) {
            (Evidence::NotManaged, _) => {
                let beside = self.exposed.may_go_beside_a_wave(unit, dry_run);
                let denied = |why| Verdict::Denied { why };
                (beside.map_or_else(denied, |()| Verdict::Allowed), false)
            }
            (Evidence::Unavailable { why }, Some(_)) => (Verdict::Denied { why: why.clone() }, false),
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
                if matches!(verdict, Verdict::IfCephAgrees { .. }) && !dry_run {
                    granted.insert(osd, now);
                }
                (verdict, is_permitted(interruptions, unit))
            }
            (Evidence::Observed { interruptions, .. }, None) => (
                self.word_of_other(unit, dry_run),
                is_permitted(interruptions, unit),
            ),
            (Evidence::Unavailable { .. }, None) => (self.word_of_other(unit, dry_run), false),
        }
    }

    /// A monitor, or a metadata server: its budget counts them, Ceph knows this one, and a run those that it restarts.
    fn word_of_other(&self, unit: &UnitId, dry_run: bool) -> Verdict {
        match self.exposed.lets_go(unit, dry_run) {
            Ok(()) => Verdict::IfCephAgrees {
                with: BTreeSet::new(),
            },
            Err(why) => Verdict::Denied { why },
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

/// The daemon in a pod, if Ceph has an oracle for its kind.
fn daemon_of(pod: &Pod) -> Result<Option<UnitId>, String> {
    let unit = daemons::unit_of_labels(pod.labels())?;
    Ok(unit.filter(|unit| matches!(daemons::kind_of(unit), "osd" | "mon" | "mds")))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::{Value, json};
    use stagger_ceph::api::{Answer, ApiError, Whom};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::disruption::drains::{Open, Osd, Wanted};

    /// A Ceph that says yes or no, when it may.
    struct Ceph {
        may_answer: Semaphore,
        yes: Mutex<bool>,
        asked: Mutex<Vec<String>>,
    }

    impl Ceph {
        fn new(answers: usize) -> Arc<Self> {
            Arc::new(Self {
                may_answer: Semaphore::new(answers),
                yes: Mutex::new(true),
                asked: Mutex::default(),
            })
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.asked.lock().unwrap())
        }
    }

    #[async_trait]
    impl CephApi for Ceph {
        async fn command(&self, _whom: Whom, command: Value) -> Result<Answer, ApiError> {
            let ids: Vec<&str> = command["ids"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let question = format!("{} {}", command["prefix"].as_str().unwrap(), ids.join(" "));
            self.asked.lock().unwrap().push(question);
            self.may_answer.acquire().await.unwrap().forget();
            let yes = *self.yes.lock().unwrap();
            Ok(Answer {
                rc: if yes { 0 } else { 16 },
                out: json!({ "ok_to_stop": yes }).to_string().into_bytes(),
                err: if yes { String::new() } else { "unsafe".to_owned() },
            })
        }
    }

    fn reviewed_by(ceph: &Arc<Ceph>) -> Review {
        let ceph: Arc<dyn CephApi> = Arc::<Ceph>::clone(ceph);
        let connect: Connect = Box::new(move || {
            let ceph = Arc::clone(&ceph);
            Box::pin(async move { Ok(ceph) })
        });
        Review::new(connect, Arc::default())
    }

    fn unit(name: &str) -> UnitId {
        UnitId::new(name).unwrap()
    }

    /// Four OSDs that serve, of which these may go.
    fn open(osds: impl IntoIterator<Item = u32>, at: Timestamp) -> Evidence {
        let all: Vec<Osd> = (0..4)
            .map(|id| Osd {
                id,
                domain: Some(format!("host{id}")),
                serves: true,
                leaving: false,
                up: true,
                cordoned: None,
                replaced: false,
            })
            .collect();
        let wanted = Wanted {
            open: Open::Only(osds.into_iter().collect()),
            ..Wanted::default()
        };
        Evidence::Observed {
            observation: Observation::new(at, &all, &wanted, None),
            interruptions: Vec::new(),
        }
    }

    #[tokio::test]
    async fn two_that_are_asked_about_at_once_know_of_each_other() {
        let ceph = Ceph::new(0);
        let review = reviewed_by(&ceph);
        review.learn(open([0, 1], Timestamp::now()));
        let (first, second) = (unit("osd.0"), unit("osd.1"));
        let answer = async { ceph.may_answer.add_permits(2) };
        let (first, second, ()) = tokio::join!(
            review.may_go(&first, false),
            review.may_go(&second, false),
            answer
        );
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(ceph.asked(), ["osd ok-to-stop 0", "osd ok-to-stop 1 0"]);
    }

    #[tokio::test]
    async fn who_was_refused_or_asked_only_for_show_counts_for_nobody() {
        let ceph = Ceph::new(9);
        let review = reviewed_by(&ceph);
        review.learn(open([0, 1, 2], Timestamp::now()));
        assert_eq!(review.may_go(&unit("osd.2"), true).await, Ok(()));
        *ceph.yes.lock().unwrap() = false;
        assert_eq!(
            review.may_go(&unit("osd.0"), false).await,
            Err("osd.0 may not be evicted now: Ceph says no: unsafe".to_owned())
        );
        *ceph.yes.lock().unwrap() = true;
        assert_eq!(review.may_go(&unit("osd.1"), false).await, Ok(()));
        assert_eq!(
            ceph.asked(),
            ["osd ok-to-stop 2", "osd ok-to-stop 0", "osd ok-to-stop 1"]
        );
    }

    #[tokio::test]
    async fn who_was_let_go_counts_until_a_look_that_began_long_enough_after_it() {
        let ceph = Ceph::new(9);
        let review = reviewed_by(&ceph);
        let now = Timestamp::now();
        review.learn(open([0, 1, 2], now));
        assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
        // Its pod may not show yet that it goes.
        review.learn(open([0, 1, 2], now + SignedDuration::from_secs(1)));
        assert_eq!(review.may_go(&unit("osd.1"), true).await, Ok(()));
        review.learn(open([1, 2], now + SignedDuration::from_secs(5)));
        assert_eq!(review.may_go(&unit("osd.1"), true).await, Ok(()));
        assert_eq!(
            ceph.asked(),
            ["osd ok-to-stop 0", "osd ok-to-stop 1 0", "osd ok-to-stop 1"]
        );
    }

    /// The budget kept it all the same, and nothing happens in the cluster that would be looked at.
    #[tokio::test]
    async fn who_was_let_go_and_kept_by_another_is_forgotten_in_a_quiet_cluster_too() {
        let ceph = Ceph::new(9);
        let review = reviewed_by(&ceph);
        let now = Timestamp::now();
        review.learn(open([0, 1], now));
        assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
        review.holds(now + SignedDuration::from_secs(1));
        assert_eq!(review.granted().len(), 1);
        review.holds(now + SignedDuration::from_secs(5));
        assert_eq!(review.granted().len(), 0);
    }

    /// So that a run, which asks Ceph about another monitor at that moment, hears of it.
    #[tokio::test]
    async fn a_monitor_that_was_let_go_counts_for_a_run_and_one_that_was_refused_does_not() {
        let ceph = Ceph::new(9);
        let review = reviewed_by(&ceph);
        review.learn(open([], Timestamp::now()));
        let goes = || review.exposed.on_its_way("mon", &[unit("mon.b")]);
        assert_eq!(review.may_go(&unit("mon.a"), true).await, Ok(()));
        assert_eq!(goes(), None);
        assert_eq!(review.may_go(&unit("mon.a"), false).await, Ok(()));
        assert_eq!(goes(), Some(unit("mon.a")));
        *ceph.yes.lock().unwrap() = false;
        assert!(review.may_go(&unit("mon.a"), false).await.is_err());
        assert_eq!(goes(), None);
    }

    #[tokio::test]
    async fn a_word_for_a_gateway_leaves_all_others_to_ceph() {
        let ceph = Ceph::new(12);
        let review = reviewed_by(&ceph);
        let permits = |words: &[&str]| {
            let mut evidence = open([0], Timestamp::now());
            if let Evidence::Observed { interruptions, .. } = &mut evidence {
                interruptions.extend(words.iter().map(|word| (*word).to_owned()));
            }
            evidence
        };
        let all = ["osd.0", "mon.a", "mds.fs-a"];
        let mut asked = Vec::new();
        for words in [&["rgw"][..], &["pool.rbd"], &["mon"], &["mds.fs-a"]] {
            review.learn(permits(words));
            for name in all {
                assert_eq!(review.may_go(&unit(name), true).await, Ok(()));
            }
            asked.push(ceph.asked().len());
        }
        assert_eq!(asked, [3, 2, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ceph_that_says_nothing_in_time_lets_nobody_go() {
        let ceph = Ceph::new(0);
        let review = reviewed_by(&ceph);
        review.learn(open([0], Timestamp::now()));
        let refused = review.may_go(&unit("osd.0"), false).await;
        assert!(refused.is_err_and(|why| why.ends_with("Ceph did not say within 2 s whether it may stop")));
        // And nobody waits for it any more.
        assert_eq!(review.granted().len(), 0);
    }

    #[tokio::test]
    async fn without_a_look_osds_stay_and_monitors_are_ceph_s_to_judge() {
        let ceph = Ceph::new(9);
        let review = reviewed_by(&ceph);
        // Whose drains are somebody else's is not asked about.
        assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
        review.learn(Evidence::Unavailable {
            why: "no quorum".to_owned(),
        });
        assert_eq!(
            review.may_go(&unit("osd.0"), false).await,
            Err("osd.0 may not be evicted now: no quorum".to_owned())
        );
        assert_eq!(ceph.asked(), Vec::<String>::new());
        assert_eq!(review.may_go(&unit("mon.a"), false).await, Ok(()));
        assert_eq!(review.may_go(&unit("mds.fs-a"), false).await, Ok(()));
        assert_eq!(ceph.asked(), ["mon ok-to-stop a", "mds ok-to-stop fs-a"]);
    }

    #[tokio::test]
    async fn a_look_that_failed_keeps_nobody_where_drains_are_not_asked_for() {
        let review = reviewed_by(&Ceph::new(0));
        let error = || BackendError::transient("look for Rook", "deployments.apps is forbidden");
        review.learn(Evidence::without_a_look(false, &error()));
        assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
        review.learn(Evidence::without_a_look(true, &error()));
        let kept = review.may_go(&unit("osd.0"), false).await;
        assert!(kept.is_err_and(|why| why.contains("deployments.apps is forbidden")));
    }

    #[test]
    fn a_daemon_that_its_labels_do_not_name_stays() {
        let review = reviewed_by(&Ceph::new(0));
        let why = "there is no label ceph_daemon_id; set it to the daemon's id";
        assert_eq!(review.of_unknown("rook-ceph-osd-x", why), Ok(()));
        review.learn(open([0], Timestamp::now()));
        assert_eq!(
            review.of_unknown("rook-ceph-osd-x", why),
            Err(format!("rook-ceph-osd-x may not be evicted now: {why}"))
        );
    }
}
