//! Drains: sees what goes down, decides by [`crate::drains`], and has it so.
//!
//! While every OSD serves and no node is cordoned, nothing is asked of the API server and nothing is written. Ceph is asked
//! for its `status`, and for more only if its map of OSDs is another than that by which each OSD was proven to be one that
//! may go, or a placement group is not clean. What was set in Ceph is written down before it is set, in a ConfigMap, so that
//! it is taken back also by an operator that is started later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stagger_ceph::api::{CephApi, Whom};
use stagger_ceph::facts::pg_state::PgState;
use stagger_ceph::facts::{CollectOptions, collect};
use stagger_ceph::translate::Permitted;
use stagger_core::explain::violation;
use stagger_core::model::{ClusterName, ConditionName, Down, Ix, Snapshot, UnitId, UnitState, Verdict};
use stagger_engine::backend::BackendError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::budgets::Ensure;
use super::health::Pulse;
use super::metrics::ClusterMetrics;
use super::status::{Drained, Writer};
use crate::backend::{failed, one_gateway_each, permitted, snapshot};
use crate::cluster::CephCluster;
use crate::daemons::osd_of;
use crate::drains::{Groups, Judge, Memory, Open, Osd, Seen, Wanted, decide, fixed, level};
use crate::exposed::{Wave, Waves};
use crate::names;
use crate::watched::Watched;

/// Rook's ConfigMap for what has to be remembered.
const STATE: &str = "rook-ceph-pdbstatemap";
/// The key in it that is ours.
const KEY: &str = "stagger";
/// Rook's annotation of an OSD that is being replaced.
const REPLACED: &str = "osd.rook.io/replace-in-progress";
/// How often it is looked again while something is down.
const LOOK: Duration = Duration::from_secs(2);
/// How often Ceph is asked for its status while all is well.
const WELL: Duration = Duration::from_secs(5);
/// How long changes are gathered before they are looked at together.
const BURST: Duration = Duration::from_millis(100);
/// The same while something is down, and each look asks Ceph.
const BURSTS: Duration = Duration::from_secs(1);
/// How often it is looked whether Rook's own operator is still there.
const ROOK_RUNS: Duration = Duration::from_secs(15);
/// What fails for so long is told; a write that another's came before passes at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Why budgets may not be what they should be.
const NOT_SEEN_TO: &str = "DrainsNotSeenTo";
/// `osdMaintenanceTimeout`, if it is not set, in minutes.
const MAINTENANCE: i64 = 30;

/// What is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Kept {
    #[serde(default)]
    memory: Memory,
    /// The failure domains on which `noout` was set, or was about to be.
    #[serde(default)]
    noout: BTreeSet<String>,
}

/// The lowest level of failure domains of any pool.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    NotAsked,
    NoPools,
    Of(String),
}

/// What sees to the drains of one cluster.
pub(super) struct Drains {
    shared: Shared,
    namespace: String,
    name: String,
    watched: Arc<Watched>,
    writer: Arc<Writer>,
    metrics: Arc<ClusterMetrics>,
    pulse: Pulse,
    /// What a run has down, or may stop.
    waves: Waves,
    api: Option<Arc<dyn CephApi>>,
    /// The level of failure domains, once it was asked for.
    level: Level,
    /// The map of OSDs by which each OSD was proven to be one that may go, all placement groups being clean.
    proven_at: Option<u64>,
    /// What is remembered, once it was read.
    kept: Option<Kept>,
    /// What the budgets let go, as far as this process has made them.
    open: Open,
    /// When Rook's own operator was seen not to be there.
    alone: Option<Instant>,
    /// Since when each look has failed.
    failing: Option<Instant>,
}

impl Drains {
    /// For the cluster of that name.
    pub(super) fn new(
        shared: Shared,
        namespace: &str,
        name: &str,
        watched: Arc<Watched>,
        writer: Arc<Writer>,
        metrics: Arc<ClusterMetrics>,
    ) -> Self {
        Self {
            pulse: shared.health.begins(format!("drains of {namespace}/{name}")),
            metrics,
            shared,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            waves: writer.exposed().wave(),
            watched,
            writer,
            api: None,
            level: Level::NotAsked,
            proven_at: None,
            kept: None,
            open: Open::Any,
            alone: None,
            failing: None,
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
    pub(super) async fn see_to(mut self, mut told: watch::Receiver<Arc<CephCluster>>) {
        let mut changes = self.watched.changes();
        loop {
            changes.borrow_and_update();
            let wave = self.waves.now();
            let found = told.borrow_and_update().clone();
            self.pulse.works();
            self.tell_unclear();
            let next = match self.pass(&found, wave).await {
                Ok(next) => {
                    self.failing = None;
                    self.writer.trouble(NOT_SEEN_TO, BTreeMap::new());
                    next
                }
                Err(error) => {
                    tracing::warn!(%error, "drains cannot be seen to now");
                    self.tell_failure(&error);
                    self.kept = None;
                    Some(LOOK)
                }
            };
            // What comes in a burst is looked at together; Ceph is not asked at each of many changes.
            tokio::time::sleep(if next.is_none() { BURST } else { BURSTS }).await;
            let again = async {
                match next {
                    None => std::future::pending().await,
                    Some(after) => tokio::time::sleep(after).await,
                }
            };
            self.pulse.rests();
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = changes.changed() => if changed.is_err() { return },
                changed = self.waves.changed() => if changed.is_err() { return },
                () = again => {}
            }
        }
    }

    /// One look, and after how long there should be another; `None`: when something changes.
    async fn pass(&mut self, found: &CephCluster, wave: Wave) -> Result<Option<Duration>, BackendError> {
        // Known again only once this look has ended well; after an early end, as while Rook's own operator is back,
        // it is not.
        let open = std::mem::take(&mut self.open);
        if let Some(why) = self.watched.missing_rights() {
            return Err(BackendError::transient("see the cluster", why));
        }
        let spec = &found.spec.disruption_management;
        let managed = spec.manage_pod_budgets.unwrap_or(false);
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => self.read_kept().await?,
        };
        if self.alone.is_none_or(|since| since.elapsed() > ROOK_RUNS) {
            self.alone = None;
            if self.shared.replicas_of_rook(&self.namespace).await? > 0 {
                return Ok(Some(ROOK_RUNS));
            }
            self.alone = Some(Instant::now());
        }
        self.writer.exposed().is_changing(&wave);
        let budgets = Ensure::new(&self.shared.client, found, self.watched.budgets());
        if !managed && kept == Kept::default() {
            budgets.over_osds(None).await?;
            budgets.fixed(&[], &self.watched).await?;
            // Budgets are somebody else's: a wave does not wait for them.
            self.writer.exposed().is_closed(wave);
            self.writer.tell(|now| now.drains = None);
            self.tell_unplaced(&Wanted::default(), "");
            self.kept = Some(kept);
            return Ok(None);
        }
        // These need nothing of Ceph, and do not wait for its answers.
        let others = if managed {
            fixed::wanted(&self.others())
        } else {
            Vec::new()
        };
        budgets.fixed(&others, &self.watched).await?;
        let serves = |osd: &Osd| osd.serves && !osd.leaving;
        let serve = wave.is_none() && kept == Kept::default() && self.osds(None).iter().all(serves);
        let well_at = if serve { self.well_at().await? } else { None };
        let calm = well_at.is_some() && well_at == self.proven_at;
        // Pools may have come and gone since it was asked.
        if self.level == Level::NotAsked || !calm {
            self.level = self.ask_level().await?.map_or(Level::NoPools, Level::Of);
        }
        let level = match &self.level {
            Level::Of(level) => Some(level.clone()),
            Level::NotAsked | Level::NoPools => None,
        };
        let mut osds = self.osds(level.as_deref());
        let permitted = permitted(None).chain(found.spec.update_policy.interruptions.clone());
        let (judge, groups): (Box<dyn Judge + Send + Sync>, _) = if calm {
            (Box::new(AsProven), Groups::Clean)
        } else {
            let seen = self.look(&mut osds, &permitted.collect()).await?;
            let groups = groups(&seen)?;
            (Box::new(Look(seen)), groups)
        };
        let minutes = spec.osd_maintenance_timeout.unwrap_or(MAINTENANCE);
        let wanted = decide(
            Seen {
                now: Timestamp::now(),
                managed,
                level: level.as_deref(),
                osds: &osds,
                groups: &groups,
                maintenance: SignedDuration::from_mins(minutes),
                wave: wave.as_ref(),
                judge: &*judge,
                open: &open,
            },
            &kept.memory,
        );
        budgets.over_osds(wanted.budget.as_ref()).await?;
        self.open = wanted.open.clone();
        self.writer.exposed().is_closed(wave);
        self.ensure_noout(&wanted, &mut kept).await?;
        self.tell(&wanted, &osds);
        self.tell_unplaced(&wanted, level.as_deref().unwrap_or_default());
        self.kept = Some(kept);
        // Whatever was looked at is newer than that map.
        self.proven_at = well_at.filter(|_| wanted.open == Open::Any && groups == Groups::Clean);
        let next = match self.proven_at {
            Some(_) => WELL,
            None if wanted.again => Duration::ZERO,
            None => LOOK,
        };
        Ok(Some(next))
    }

    /// The epoch of Ceph's map of OSDs, if all of them are up and all placement groups are clean.
    async fn well_at(&mut self) -> Result<Option<u64>, BackendError> {
        let tried = "ask Ceph for its status";
        let api = self.api().await?;
        let text = api
            .ask(Whom::Mon, json!({ "prefix": "status" }))
            .await
            .map_err(|error| BackendError::transient(tried, error.to_string()))?;
        let status: Status = serde_json::from_slice(&text)
            .map_err(|error| BackendError::transient(tried, format!("`status`: {error}")))?;
        Ok(status.is_well().then_some(status.osdmap.epoch))
    }

    /// What Ceph says of its OSDs and placement groups.
    async fn look(&mut self, osds: &mut [Osd], permitted: &Permitted) -> Result<Snapshot, BackendError> {
        let api = self.api().await?;
        let mut facts = collect(&*api, &CollectOptions::default(), Timestamp::now())
            .await
            .map_err(|error| BackendError::transient("observe the cluster", error.to_string()))?;
        one_gateway_each(&mut facts);
        for osd in osds {
            osd.up = facts.osds.osds.get(&osd.id).is_some_and(|seen| seen.up);
            osd.serves &= osd.up;
        }
        let cluster = ClusterName::new(&self.name)
            .map_err(|error| BackendError::permanent("name the cluster", error.to_string()))?;
        snapshot(&cluster, &facts, None, permitted, &self.watched)
    }

    async fn ask_level(&mut self) -> Result<Option<String>, BackendError> {
        let tried = "find the pools' failure domains";
        let api = self.api().await?;
        let ask = async |prefix: &str| {
            let command = json!({ "prefix": prefix });
            api.ask(Whom::Mon, command)
                .await
                .map_err(|error| BackendError::transient(tried, error.to_string()))
        };
        let (dump, rules) = (ask("osd dump").await?, ask("osd crush rule dump").await?);
        level::lowest(&dump, &rules).map_err(|why| BackendError::transient(tried, why))
    }

    /// The OSDs as Kubernetes shows them.
    fn osds(&self, level: Option<&str>) -> Vec<Osd> {
        let label = names::topology(level.unwrap_or("host"));
        let (daemons, _) = self.watched.daemons();
        let mut osds = Vec::new();
        for (unit, deployment) in daemons {
            let Some(id) = osd_of(&unit) else {
                continue;
            };
            let pods = self.watched.pods_of(&deployment);
            let leaving = pods.iter().any(|pod| {
                let status = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                let evicted = status
                    .into_iter()
                    .flatten()
                    .any(|one| one.type_ == "DisruptionTarget" && one.status == "True");
                pod.metadata.deletion_timestamp.is_some() || evicted
            });
            let serves = deployment
                .status
                .as_ref()
                .and_then(|status| status.ready_replicas)
                .is_some_and(|ready| ready > 0);
            let template = deployment.spec.template.spec.as_ref();
            let pinned = template
                .and_then(|spec| spec.node_selector.as_ref())
                .and_then(|selector| selector.get(names::HOSTNAME).cloned());
            let bound = pods
                .iter()
                .find_map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
            osds.push(Osd {
                id,
                domain: deployment.labels().get(&label).cloned(),
                serves,
                leaving,
                // Until Ceph is asked.
                up: true,
                cordoned: bound
                    .or(pinned)
                    .is_some_and(|node| self.watched.is_cordoned(&node)),
                replaced: deployment.annotations().contains_key(REPLACED),
            });
        }
        osds
    }

    /// All other daemons.
    fn others(&self) -> Vec<fixed::Daemon> {
        self.watched
            .deployments()
            .iter()
            .filter_map(|deployment| {
                let labels = deployment.labels();
                let group = ["rook_file_system", "rook_object_store"]
                    .into_iter()
                    .find_map(|label| Some((label.to_owned(), labels.get(label)?.clone())));
                let ready = deployment
                    .status
                    .as_ref()
                    .and_then(|status| status.ready_replicas);
                let number = |count: Option<i32>, default: u32| {
                    count
                        .and_then(|count| u32::try_from(count).ok())
                        .unwrap_or(default)
                };
                Some(fixed::Daemon {
                    app: labels.get(names::APP)?.clone(),
                    group,
                    count: number(deployment.spec.replicas, 1),
                    ready: number(ready, 0),
                })
            })
            .collect()
    }

    async fn read_kept(&self) -> Result<Kept, BackendError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        let tried = "read what is remembered of drains";
        let map = maps.get_opt(STATE).await.map_err(|error| failed(tried, &error))?;
        let text = map.as_ref().and_then(|map| map.data.as_ref()?.get(KEY));
        match text {
            None => Ok(Kept::default()),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                BackendError::permanent(tried, error.to_string())
                    .hint(format!("remove the key {KEY} from ConfigMap {STATE}"))
            }),
        }
    }

    async fn keep(&self, kept: &Kept) -> Result<(), BackendError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        let tried = "remember what is done for drains";
        let text =
            serde_json::to_string(kept).map_err(|error| BackendError::permanent(tried, error.to_string()))?;
        let text = (*kept != Kept::default()).then_some(text);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": STATE, "namespace": self.namespace },
            "data": text.map_or_else(|| json!({}), |text| json!({ KEY: text })),
        });
        maps.patch(
            STATE,
            &PatchParams::apply(crate::backend::MANAGER).force(),
            &Patch::Apply(&map),
        )
        .await
        .map(|_| ())
        .map_err(|error| failed(tried, &error))
    }

    /// First written down, then set; first taken back, then forgotten.
    async fn ensure_noout(&mut self, wanted: &Wanted, kept: &mut Kept) -> Result<(), BackendError> {
        let new: BTreeSet<String> = wanted.noout.keys().cloned().collect();
        let before = kept.clone();
        let gone: Vec<String> = kept.noout.difference(&new).cloned().collect();
        let added: Vec<String> = new.difference(&kept.noout).cloned().collect();
        kept.memory = wanted.memory.clone();
        kept.noout.extend(added.iter().cloned());
        if *kept != before {
            self.keep(kept).await?;
        }
        self.noout("set-group", &added).await?;
        self.noout("unset-group", &gone).await?;
        if !gone.is_empty() {
            kept.noout = new;
            self.keep(kept).await?;
        }
        Ok(())
    }

    async fn noout(&mut self, how: &str, who: &[String]) -> Result<(), BackendError> {
        if who.is_empty() {
            return Ok(());
        }
        tracing::info!(how, ?who, "noout");
        let command = json!({ "prefix": format!("osd {how}"), "flags": "noout", "who": who });
        let api = self.api().await?;
        api.ask(Whom::Mon, command)
            .await
            .map(|_| ())
            .map_err(|error| BackendError::transient(format!("osd {how} noout"), error.to_string()))
    }

    /// The Deployments of which it is not clear which daemon they run. Here, as this goes on beside a run.
    fn tell_unclear(&self) {
        let (_, wrong) = self.watched.daemons();
        let wrong = wrong.into_iter().map(|why| (why.clone(), why)).collect();
        self.writer.trouble("DeploymentUnclear", wrong);
    }

    fn tell_failure(&mut self, error: &BackendError) {
        if self.failing.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return;
        }
        let hint = error.hint.as_ref().map(|hint| format!("; {hint}"));
        let why = format!(
            "{error}{}; until that is well the PodDisruptionBudgets of OSDs stay as they are",
            hint.unwrap_or_default()
        );
        self.writer
            .trouble(NOT_SEEN_TO, BTreeMap::from([(self.name.clone(), why)]));
    }

    /// The OSDs of which nobody knows with which others they may go.
    fn tell_unplaced(&self, wanted: &Wanted, level: &str) {
        let label = names::topology(level);
        let why = |osd: &u32| {
            let name = format!("{}-{osd}", names::OSD_APP);
            let why = format!(
                "Deployment {name} has no label {label}, so osd.{osd} may not be evicted while any other is down; set \
                 the label, in its pod template too, to its {level} in the CRUSH map"
            );
            (name, why)
        };
        self.writer
            .trouble("OsdUnplaced", wanted.unplaced.iter().map(why).collect());
    }

    fn tell(&self, wanted: &Wanted, osds: &[Osd]) {
        let draining: BTreeSet<String> = wanted.memory.draining.keys().cloned().collect();
        let something = !wanted.blocked.is_empty() || !wanted.noout.is_empty() || !draining.is_empty();
        let is_free = |osd: &Osd| match &wanted.open {
            Open::Any => true,
            Open::Only(open) => open.contains(&osd.id),
        };
        let waiting: BTreeSet<String> = osds
            .iter()
            .filter(|osd| osd.cordoned && osd.serves && !is_free(osd))
            .filter_map(|osd| osd.domain.clone())
            .filter(|domain| wanted.blocked.contains_key(domain))
            .collect();
        // Of a domain that is waited for it is known what keeps just that one.
        let first = waiting.first().and_then(|domain| wanted.blocked.get(domain));
        let why = first.or_else(|| wanted.blocked.values().next());
        let told = something.then(|| Drained {
            blocked: wanted.blocked.keys().take(20).cloned().collect(),
            blocked_count: wanted.blocked.len(),
            why: why.cloned().unwrap_or_default(),
            draining,
            waiting,
            noout: wanted.noout.clone(),
        });
        self.writer.tell(|now| now.drains = told);
    }
}

/// Whether all placement groups have all their copies.
fn groups(seen: &Snapshot) -> Result<Groups, BackendError> {
    for name in ["pgs-known", "pg-stats-fresh", "pgs-clean"] {
        let name = ConditionName::new(name)
            .map_err(|error| BackendError::permanent("name a condition", error.to_string()))?;
        let condition = seen.condition(&name);
        if condition.verdict != Verdict::Yes {
            return Ok(Groups::NotClean {
                why: format!("{name} is {}", condition.why),
            });
        }
    }
    Ok(Groups::Clean)
}

/// What `status` says, as far as it is asked.
#[derive(Deserialize)]
struct Status {
    osdmap: OsdMap,
    pgmap: PgMap,
}

#[derive(Deserialize)]
struct OsdMap {
    epoch: u64,
    num_osds: u32,
    num_up_osds: u32,
}

#[derive(Deserialize)]
struct PgMap {
    pgs_by_state: Vec<InState>,
}

#[derive(Deserialize)]
struct InState {
    state_name: String,
}

impl Status {
    fn is_well(&self) -> bool {
        let mut states = self.pgmap.pgs_by_state.iter();
        self.osdmap.num_osds == self.osdmap.num_up_osds
            && states.all(|state| PgState::parse(&state.state_name).clean())
    }
}

/// Nothing is asked of Ceph: it is as it was when each OSD was proven to be one that may go.
struct AsProven;

impl Judge for AsProven {
    fn may_go(&self, _: &BTreeSet<u32>, _: &BTreeSet<u32>) -> Result<(), String> {
        Err("only one at a time was proven".to_owned())
    }

    fn any_one_may_go(&self, _: &BTreeSet<u32>, _: &BTreeSet<u32>) -> Result<(), String> {
        Ok(())
    }
}

/// What was just seen of Ceph.
struct Look(Snapshot);

impl Look {
    fn unit(&self, osd: u32) -> Result<Ix, String> {
        let id = UnitId::new(format!("osd.{osd}")).ok();
        let found = id.and_then(|id| self.0.find(&id));
        found.ok_or_else(|| format!("Ceph does not know osd.{osd}"))
    }

    fn units(&self, osds: &BTreeSet<u32>) -> Result<Vec<Ix>, String> {
        let units = osds.iter().map(|osd| {
            let unit = self.unit(*osd)?;
            match self.0.unit(unit).state {
                UnitState::Unknown => Err(format!("it is not known whether osd.{osd} serves")),
                UnitState::Serving | UnitState::Down => Ok(unit),
            }
        });
        units.collect()
    }

    /// What is down, and what is as good as that; what Ceph does not know nobody misses.
    fn down(&self, gone: &BTreeSet<u32>) -> Down {
        let gone: Vec<Ix> = gone.iter().filter_map(|osd| self.unit(*osd).ok()).collect();
        self.0.down().with(&gone)
    }
}

impl Judge for Look {
    fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let budgets = self.0.budgets();
        let permitted = budgets.permit(&self.down(gone), &self.units(set)?);
        permitted.map_err(|found| violation(&self.0, budgets, &found))
    }

    fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let budgets = self.0.budgets();
        let each: Vec<Vec<Ix>> = self.units(set)?.into_iter().map(|unit| vec![unit]).collect();
        let mut permitted = budgets.permit_each(&self.down(gone), &each).into_iter();
        let refused = permitted.find_map(Result::err);
        refused.map_or(Ok(()), |found| Err(violation(&self.0, budgets, &found)))
    }
}
