//! Drains: observes what goes down, decides by [`crate::disruption::drains`], and acts.
//!
//! While every OSD serves and no node is cordoned, no request goes to the API server and nothing is written.
//! Ceph is asked for its `status`, and for more only if its OSD map differs from the one by which each OSD
//! was proven safe to stop, or a placement group is not clean. A setting in Ceph is recorded in a ConfigMap
//! before it is set, so that an operator that starts later clears it too.

mod cache_consistency;
mod ceph_judge;
mod daemons;
mod noout;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use stagger_ceph::api::{CephApi, QueryTarget};
use stagger_ceph::facts::{CollectOptions, collect};
use stagger_ceph::translate::Permitted;
use stagger_core::model::{ClusterName, Snapshot, UnitId};
use stagger_engine::cluster::BackendError;
use tokio::sync::watch;
use tokio::time::Instant;

use self::cache_consistency::cache_is_current;
use self::ceph_judge::{AsProven, CephJudge, DrainCephStatus, groups};
use self::daemons::{non_osd_daemons, osds};
use crate::api::cache::ObjectCache;
use crate::api::maintenance::{Desired, Manage};
use crate::api::rook_operator;
use crate::disruption::budgets::Ensure;
use crate::disruption::drains::eviction::Observation;
use crate::disruption::drains::{
    DesiredBudgets, DrainInput, EvictableOsds, Groups, Judge, OsdDisruptionBudget, OsdState, decide, fixed,
    level,
};
use crate::disruption::evictions::{Connect, Evidence, EvidenceSink};
use crate::disruption::state_map::{self, StateMap};
use crate::executor::snapshot::{drop_moved_gateways, permitted_interruptions, snapshot};
use crate::executor::wave_exposure::{ExposedOsds, Waves};
use crate::observability::health::Pulse;
use crate::observability::metrics::ClusterMetrics;
use crate::observability::writer::StatusWriter;
use crate::reconcile::Shared;

/// How often it is looked again while something is down.
const LOOK: Duration = Duration::from_secs(2);
/// How often Ceph is asked for its status while all is well.
const WELL: Duration = Duration::from_secs(5);
/// How long changes are gathered before they are looked at together.
const BURST: Duration = Duration::from_millis(100);
/// The same at most while something is down, and each look asks Ceph: as long as the look took, so that at most half of the time
/// is spent on looks.
const BURSTS: Duration = Duration::from_secs(1);
/// How often it is looked whether Rook's own operator is there.
const ROOK_RUNS: Duration = Duration::from_secs(15);
/// What fails for so long is told; a write that another's came before passes at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Other daemons than OSDs that a drain waits for.
const DRAIN_BLOCKED: &str = "DrainBlocked";
/// Why budgets may not be what they should be.
const NOT_SEEN_TO: &str = "DrainsNotSeenTo";
/// Nobody is in the quorum, as far as anybody knows.
static EMPTY: BTreeSet<String> = BTreeSet::new();
/// `osdMaintenanceTimeout`, if it is not set, in minutes.
const MAINTENANCE: i64 = 30;

/// What is decided on.
struct DrainObservation {
    level: Option<String>,
    osds: Vec<OsdState>,
    groups: Groups,
    judge: Box<dyn Judge + Send + Sync>,
    /// The failure domains that have `noout` in Ceph; `None`: it was not asked.
    noout: Option<BTreeSet<String>>,
    /// What is proven if each OSD turns out to be one that may go.
    proves: Option<Proven>,
}

/// The lowest level of failure domains of any pool.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    NotAsked,
    NoPools,
    Of(String),
}

/// By what the default budget is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proven {
    /// The epoch of the map of OSDs, all of which are up.
    epoch: u64,
    quorum: BTreeSet<String>,
    /// Those of the CephMaintenance, which says what is permitted, and of the CephCluster.
    generations: (Option<i64>, Option<i64>),
}

impl Proven {
    /// What that status would prove, if each OSD may go by that map.
    fn from_status(status: &DrainCephStatus, desired: &Desired) -> Option<Self> {
        Some(Self {
            epoch: status.healthy_epoch()?,
            quorum: status.quorum_names.clone(),
            generations: desired.generations(),
        })
    }
}

/// What sees to the drains of one cluster.
pub(crate) struct DrainReconciler {
    shared: Shared,
    namespace: String,
    name: String,
    watched: Arc<ObjectCache>,
    writer: Arc<StatusWriter>,
    metrics: Arc<ClusterMetrics>,
    pulse: Pulse,
    /// What a run has down, or may stop.
    waves: Waves,
    api: Option<Arc<dyn CephApi>>,
    /// The level of failure domains, once it was asked for.
    level: Level,
    /// What Ceph said when each OSD was proven to be one that may go, all placement groups being clean.
    proven: Option<Proven>,
    /// What is remembered, once it was read.
    kept: Option<StateMap>,
    /// What the budgets let go, as far as this process has made them.
    open: EvictableOsds,
    /// Whether Rook's own operator is to run, and when that was seen.
    rook: Option<(bool, Instant)>,
    /// Since when each look has failed.
    failing: Option<Instant>,
    /// Since when somebody waits for the eviction of each pod that is no OSD's.
    waiting: BTreeMap<String, Instant>,
    /// Whether drains were ours to see to when that was last known.
    ours: bool,
    /// Whether the budget over OSDs is what the look that is made now wants.
    bounded: bool,
    /// By which evictions are reviewed.
    evidence: EvidenceSink,
    /// Whether the API server asks about them.
    registered: watch::Receiver<bool>,
}

/// Connects to the Ceph of a cluster.
fn ceph_of(shared: &Shared, namespace: &str, name: &str, metrics: &Arc<ClusterMetrics>) -> Connect {
    let (shared, metrics) = (shared.clone(), Arc::clone(metrics));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Box::new(move || {
        let (shared, metrics) = (shared.clone(), Arc::clone(&metrics));
        let (namespace, name) = (namespace.clone(), name.clone());
        Box::pin(async move { shared.ceph(&namespace, &name, &metrics).await })
    })
}

impl DrainReconciler {
    /// For the cluster of that name.
    pub(crate) fn new(
        shared: Shared,
        namespace: &str,
        name: &str,
        watched: Arc<ObjectCache>,
        writer: Arc<StatusWriter>,
        metrics: Arc<ClusterMetrics>,
    ) -> Self {
        let connect = ceph_of(&shared, namespace, name, &metrics);
        let evidence = shared
            .evictions
            .review(namespace, &watched, writer.wave_exposure(), connect);
        Self {
            evidence,
            registered: shared.evictions.registered(),
            pulse: shared.health.begins(format!("drains of {namespace}/{name}")),
            metrics,
            shared,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            waves: writer.wave_exposure().wave(),
            watched,
            writer,
            api: None,
            level: Level::NotAsked,
            proven: None,
            kept: None,
            open: EvictableOsds::Any,
            rook: None,
            failing: None,
            waiting: BTreeMap::new(),
            ours: false,
            bounded: false,
        }
    }

    /// The connection to Ceph, made when it is first needed.
    async fn api(&mut self) -> Result<Arc<dyn CephApi>, BackendError> {
        if let Some(api) = &self.api {
            return Ok(Arc::clone(api));
        }
        let api = self
            .shared
            .ceph(&self.namespace, &self.name, &self.metrics)
            .await?;
        self.api = Some(Arc::clone(&api));
        Ok(api)
    }

    /// Sees to drains until its task is ended.
    pub(crate) async fn run(mut self, mut told: watch::Receiver<Arc<Desired>>) {
        let mut changes = self.watched.changes();
        let mut changed = true;
        loop {
            changes.borrow_and_update();
            let wave = self.waves.now();
            let desired = told.borrow_and_update().clone();
            self.pulse.begin_work();
            self.report_unknown_deployments();
            self.report_waiting();
            let begun = Instant::now();
            let next = match self.reconcile(&desired, wave, changed).await {
                Ok(next) => {
                    self.failing = None;
                    self.writer.set_problems(NOT_SEEN_TO, BTreeMap::new());
                    self.writer.update(|told| told.looked_at.drains = true);
                    next
                }
                Err(error) => {
                    tracing::warn!(%error, "drains cannot be managed now");
                    self.report_failure(&error);
                    let managed = desired.manages(Manage::Drains);
                    self.evidence.set_evidence(Evidence::from_error(managed, &error));
                    self.kept = None;
                    // The next look is a whole one: what holds evictions back has to be looked at, too.
                    self.proven = None;
                    Some(LOOK)
                }
            };
            // What comes in a burst is looked at together; Ceph is not asked at each of many changes.
            let is_well = next.is_none_or(|next| next == WELL);
            let burst = match (is_well, self.failing) {
                (true, _) => BURST,
                (false, Some(_)) => BURSTS,
                (false, None) => begun.elapsed().clamp(BURST, BURSTS),
            };
            tokio::time::sleep(burst).await;
            let again = async {
                match next {
                    None => std::future::pending().await,
                    Some(after) => tokio::time::sleep(after).await,
                }
            };
            self.pulse.begin_wait();
            let woken = tokio::select! {
                woken = told.changed() => woken.map(|()| true),
                woken = changes.changed() => woken.map(|()| true),
                woken = self.waves.changed() => woken.map(|()| true),
                woken = self.registered.changed() => woken.map(|()| true),
                () = again => Ok(false),
            };
            match woken {
                Ok(by_a_change) => changed = by_a_change,
                Err(_) => return,
            }
        }
    }

    /// Looks again if Kubernetes shows something else than last time, or Ceph does.
    async fn reconcile(
        &mut self,
        desired: &Desired,
        wave: ExposedOsds,
        changed: bool,
    ) -> Result<Option<Duration>, BackendError> {
        let begun = Timestamp::now();
        if !changed && self.proven.is_some() {
            let status = self.status().await.ok();
            if status.and_then(|status| Proven::from_status(&status, desired)) == self.proven {
                self.evidence.holds(begun);
                return Ok(Some(WELL));
            }
        }
        self.bounded = false;
        let looked = self.pass(desired, wave).await;
        if looked.is_err() && self.ours && !self.bounded {
            self.close(desired).await;
        }
        looked
    }

    /// One look, and after how long there should be another; `None`: when something changes.
    async fn pass(&mut self, desired: &Desired, wave: ExposedOsds) -> Result<Option<Duration>, BackendError> {
        let begun = Timestamp::now();
        // Known again only once this look has ended well; after an early end, as while Rook's own operator is back,
        // it is not.
        let open = std::mem::take(&mut self.open);
        if let Some(why) = self.watched.missing_rights() {
            return Err(BackendError::transient("see the cluster", why));
        }
        let spec = &desired.cluster.spec.disruption_management;
        let rook_runs = self.rook_runs().await?;
        let both = rook_runs && spec.manage_pod_budgets.unwrap_or(false);
        let managed = desired.manages(Manage::Drains) && !both;
        self.ours = managed;
        let known = self.kept.take();
        let mut kept = state_map::load(&self.shared.client, &self.namespace, known, managed).await?;
        self.report_two_managers(both && desired.manages(Manage::Drains));
        self.writer.wave_exposure().is_changing(&wave);
        let budgets = Ensure::new(
            &self.shared.client,
            &desired.cluster,
            self.watched.budgets(),
            rook_runs,
        );
        if !managed {
            let looks_again = both && desired.manages(Manage::Drains);
            return self.reconcile_unmanaged(&budgets, wave, kept, looks_again).await;
        }
        self.writer.set_drains_cleared(false);
        self.writer.wave_exposure().set_guarded(true);
        let status = self.status().await;
        // While Ceph does not answer, no monitor can be spared.
        let quorum = status.as_ref().map_or(&EMPTY, |status| &status.quorum_names);
        let others = fixed::fixed_budgets(&non_osd_daemons(&self.watched, quorum));
        // One of these that is refused keeps none of the OSDs' from being what it should.
        let of_others = budgets.fixed(&others, &self.watched).await;
        let proven = self.proven.take();
        let recovery = status.as_ref().ok().and_then(DrainCephStatus::recovery);
        let looked = match status {
            Ok(status) => self.see(desired, &wave, &kept, proven, &status).await,
            Err(error) => Err(error),
        };
        let sight = looked?;
        if let Some(there) = &sight.noout
            && kept.may_belong_to_rook(there)
        {
            kept = state_map::with_rook_state(&self.shared.client, &self.namespace, kept).await?;
        }
        let minutes = spec.osd_maintenance_timeout.unwrap_or(MAINTENANCE);
        let wanted = decide(
            DrainInput {
                now: Timestamp::now(),
                level: sight.level.as_deref(),
                osds: &sight.osds,
                groups: &sight.groups,
                maintenance: SignedDuration::from_mins(minutes),
                wave: wave.as_ref(),
                judge: &*sight.judge,
                open: &open,
            },
            &kept.memory,
        );
        budgets.apply_osd_budget(wanted.budget.as_ref()).await?;
        self.bounded = true;
        self.open = wanted.open.clone();
        self.evidence.set_evidence(Evidence::Observed {
            observation: Observation::new(begun, &sight.osds, &wanted, recovery),
            interruptions: desired.maintenance.spec.update_policy.interruptions.clone(),
        });
        let is_seen = self.evictions_are_visible(&wave).await?;
        if is_seen {
            self.writer.wave_exposure().is_closed(wave);
        }
        self.ensure_noout(&wanted, sight.noout.as_ref(), &mut kept)
            .await?;
        self.report_budgets(&wanted, &sight.osds);
        self.report_foreign_budgets();
        self.kept = Some(kept);
        of_others?;
        let is_well = wanted.open == EvictableOsds::Any && sight.groups == Groups::Clean;
        self.proven = sight.proves.filter(|_| is_well);
        let next = match self.proven {
            Some(_) => WELL,
            None if wanted.again || !is_seen => Duration::ZERO,
            None => LOOK,
        };
        Ok(Some(next))
    }

    /// One look where drains are somebody else's: what is held is given back, and the webhook keeps evictions from coming beside a wave.
    async fn reconcile_unmanaged(
        &mut self,
        budgets: &Ensure<'_>,
        wave: ExposedOsds,
        mut kept: StateMap,
        looks_again: bool,
    ) -> Result<Option<Duration>, BackendError> {
        self.evidence.set_evidence(Evidence::NotManaged);
        self.writer.set_drains_cleared(false);
        // While nobody is asked about evictions no wave begins, and none goes on.
        let is_asked = *self.registered.borrow_and_update();
        self.writer.wave_exposure().set_guarded(is_asked);
        // Budgets come first: they are given back also while Ceph does not answer.
        budgets.leave(&self.watched).await?;
        if !kept.is_idle() {
            self.ensure_noout(&DesiredBudgets::default(), None, &mut kept)
                .await?;
        }
        let is_seen = !is_asked || self.webhook_keeps_others(&wave).await?;
        if is_seen && is_asked {
            self.writer.wave_exposure().is_closed(wave);
        }
        self.writer.update(|now| now.drains = None);
        self.report_unplaced_osds(&[], None);
        self.writer.set_problems("BudgetOfOthers", BTreeMap::new());
        self.writer.set_drains_cleared(true);
        self.kept = Some(kept);
        Ok(if is_seen {
            looks_again.then_some(ROOK_RUNS)
        } else {
            Some(Duration::ZERO)
        })
    }

    /// Whether all is seen to go that was let go before nobody might be evicted beside that wave any more.
    async fn evictions_are_visible(&self, wave: &ExposedOsds) -> Result<bool, BackendError> {
        if !self.writer.wave_exposure().is_unconfirmed(wave) {
            return Ok(true);
        }
        cache_is_current(&self.shared.client, &self.namespace, &self.watched).await
    }

    /// Where budgets are somebody else's, and the webhook keeps all others from being evicted beside that wave: whether all is seen to go that
    /// it let go before.
    async fn webhook_keeps_others(&self, wave: &ExposedOsds) -> Result<bool, BackendError> {
        let exposed = self.writer.wave_exposure();
        let of_it = wave.iter().flatten();
        let of_it: Vec<UnitId> = of_it
            .filter_map(|osd| UnitId::new(format!("osd.{osd}")).ok())
            .collect();
        if exposed.is_unconfirmed(wave) && exposed.evicting_of_kind("osd", &of_it).is_some() {
            return Ok(false);
        }
        self.evictions_are_visible(wave).await
    }

    /// What is not known is not proven: where budgets are ours and a look ended before it came to that over OSDs, nothing of what an earlier one let
    /// go may be evicted.
    async fn close(&self, desired: &Desired) {
        if self.watched.daemons().0.is_empty() {
            return;
        }
        let there = self.watched.budgets();
        let budgets = Ensure::new(&self.shared.client, &desired.cluster, there, true);
        if let Err(error) = budgets.apply_osd_budget(Some(&OsdDisruptionBudget::CLOSED)).await {
            tracing::warn!(%error, "the budget over OSDs cannot be closed now");
        }
    }

    /// Whether Rook's own operator is to run, as it was not long ago.
    async fn rook_runs(&mut self) -> Result<bool, BackendError> {
        if let Some((runs, since)) = self.rook
            && since.elapsed() < ROOK_RUNS
        {
            return Ok(runs);
        }
        let found = rook_operator::running(&self.shared.client, &self.namespace, &self.watched);
        let runs = found.await?.is_some();
        self.rook = Some((runs, Instant::now()));
        Ok(runs)
    }

    /// What Kubernetes shows, and then Ceph, if it is not as it was `proven`.
    async fn see(
        &mut self,
        desired: &Desired,
        wave: &ExposedOsds,
        kept: &StateMap,
        proven: Option<Proven>,
        status: &DrainCephStatus,
    ) -> Result<DrainObservation, BackendError> {
        let serves = |osd: &OsdState| osd.serves && !osd.leaving;
        let all_serve = wave.is_none() && kept.is_idle() && osds(&self.watched, None).iter().all(serves);
        // Whatever is looked at from here on is newer than that.
        let proves = Proven::from_status(status, desired).filter(|_| all_serve);
        let calm = proves.is_some() && proves == proven;
        // Pools may have come and gone since it was asked.
        if self.level == Level::NotAsked || !calm {
            self.level = self.ask_level().await?.map_or(Level::NoPools, Level::Of);
        }
        let level = match &self.level {
            Level::Of(level) => Some(level.clone()),
            Level::NotAsked | Level::NoPools => None,
        };
        let mut osds = osds(&self.watched, level.as_deref());
        // It needs no more of Ceph than its rules.
        self.report_unplaced_osds(&osds, level.as_deref());
        let (judge, groups, noout): (Box<dyn Judge + Send + Sync>, _, _) = if calm {
            (Box::new(AsProven), Groups::Clean, None)
        } else {
            let named = desired.maintenance.spec.update_policy.interruptions.clone();
            let permitted = permitted_interruptions(None).chain(named).collect();
            let (seen, noout) = self.query_ceph(&mut osds, &permitted).await?;
            let groups = groups(&seen)?;
            (Box::new(CephJudge(seen)), groups, Some(noout))
        };
        Ok(DrainObservation {
            level,
            osds,
            groups,
            judge,
            noout,
            proves,
        })
    }

    async fn status(&mut self) -> Result<DrainCephStatus, BackendError> {
        let tried = "ask Ceph for its status";
        let api = self.api().await?;
        let text = api
            .ask(QueryTarget::Mon, json!({ "prefix": "status" }))
            .await
            .map_err(|error| BackendError::transient(tried, error.to_string()))?;
        serde_json::from_slice(&text)
            .map_err(|error| BackendError::transient(tried, format!("`status`: {error}")))
    }

    /// What Ceph says of its OSDs and placement groups, and which failure domains have `noout`.
    async fn query_ceph(
        &mut self,
        osds: &mut [OsdState],
        permitted: &Permitted,
    ) -> Result<(Snapshot, BTreeSet<String>), BackendError> {
        let api = self.api().await?;
        let mut facts = collect(&*api, &CollectOptions::default(), Timestamp::now())
            .await
            .map_err(|error| BackendError::transient("observe the cluster", error.to_string()))?;
        drop_moved_gateways(&mut facts);
        for osd in osds {
            osd.up = facts.osds.osds.get(&osd.id).is_some_and(|seen| seen.up);
            osd.serves &= osd.up;
        }
        let cluster = ClusterName::new(&self.name)
            .map_err(|error| BackendError::permanent("name the cluster", error.to_string()))?;
        let seen = snapshot(&cluster, &facts, None, permitted, &self.watched, None)?;
        Ok((seen, noout::buckets_with_noout(&facts.osds)))
    }

    async fn ask_level(&mut self) -> Result<Option<String>, BackendError> {
        let tried = "find the pools' failure domains";
        let api = self.api().await?;
        let ask = async |prefix: &str| {
            let command = json!({ "prefix": prefix });
            api.ask(QueryTarget::Mon, command)
                .await
                .map_err(|error| BackendError::transient(tried, error.to_string()))
        };
        let (dump, rules) = (ask("osd dump").await?, ask("osd crush rule dump").await?);
        level::lowest(&dump, &rules).map_err(|why| BackendError::transient(tried, why))
    }
}

#[cfg(test)]
mod tests;
