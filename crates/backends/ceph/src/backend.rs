//! The backend: facts in, effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName, Phase, Revision, Snapshot, UnitId, UnitState};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{
    Anchor, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord, in_full,
};
use stagger_engine::heartbeats::Heartbeats;
use stagger_risks::{Risk, RiskFinding};
use tokio::task::JoinSet;

use crate::api::{CephApi, QueryTarget};
use crate::config::CephSettings;
use crate::conversion;
use crate::effects::{self, OnHosts};
use crate::facts::CephFacts;
use crate::facts::cephadm::CONTAINER_IMAGE;
use crate::guards::{self, CephHeldGuard, GuardExpiry};
use crate::host_daemons::CarriedDaemons;
use crate::host_task::HostTask;
use crate::images;
use crate::lock::{self, ConfigKeyLock};
use crate::memory::{BootsBefore, CephMemory, hosts_of};
use crate::mon_release;
use crate::oracle;
use crate::oracle_override;
use crate::planner;
use crate::profile::SoftwareProfile;
use crate::reboot;
use crate::reboot::visit::{HostVisit, Send as Sending};
use crate::risks;
use crate::source::facts_at;
use crate::translate::hosts::host_name;
use crate::translate::{Permitted, units};

/// How many hosts are talked to at once to raise the fence.
const AT_ONCE: usize = 32;

/// A Ceph cluster on plain hosts.
pub struct CephBackend {
    api: Arc<dyn CephApi>,
    settings: CephSettings,
    memory: Option<CephMemory>,
    permitted: Mutex<Permitted>,
    lock: ConfigKeyLock,
    /// On which host each daemon was last seen; a daemon that is down is in no list of Ceph's.
    places: Mutex<BTreeMap<UnitId, String>>,
    /// What hosts carried when they were last looked at.
    carried: Mutex<CarriedDaemons>,
    /// The boot of each host that was asked, while it may be the same.
    boots: Mutex<BTreeMap<String, String>>,
    handing_over: tokio::sync::Mutex<()>,
    /// One is asked for the image of a release, and the others find it noted.
    finding_image: tokio::sync::Mutex<()>,
    fsid: tokio::sync::OnceCell<String>,
}

impl CephBackend {
    /// Reaches the cluster through `api`. `memory`: how things were before the run that it serves.
    pub fn new(api: Arc<dyn CephApi>, mut settings: CephSettings, memory: Option<CephMemory>) -> Self {
        if let Some(before) = memory.as_ref().and_then(|memory| memory.reboot.as_ref()) {
            settings.reboot = before.task.commands(&settings.reboot, &settings.hosts);
        }
        let lock = ConfigKeyLock::new(Duration::from_secs(settings.cluster.lock_expires));
        let places = Mutex::new(
            memory
                .as_ref()
                .map(|memory| memory.hosts.clone())
                .unwrap_or_default(),
        );
        Self {
            api,
            settings,
            permitted: Mutex::new(
                memory
                    .iter()
                    .flat_map(|memory| memory.interruptions.iter().cloned())
                    .collect(),
            ),
            memory,
            lock,
            places,
            carried: Mutex::default(),
            boots: Mutex::default(),
            handing_over: tokio::sync::Mutex::default(),
            finding_image: tokio::sync::Mutex::default(),
            fsid: tokio::sync::OnceCell::new(),
        }
    }

    /// Where a person permits these interruptions, before there is a run that would remember them.
    #[must_use]
    pub fn with_permitted(mut self, interruptions: impl IntoIterator<Item = String>) -> Self {
        self.permitted = Mutex::new(interruptions.into_iter().collect());
        self
    }

    fn permitted_interruptions(&self) -> Permitted {
        self.permitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// All facts, now.
    ///
    /// # Errors
    /// No answer, an unreadable one, or facts that contradict each other.
    pub async fn facts(&self) -> Result<CephFacts, BackendError> {
        facts_at(&*self.api, &self.settings.cluster.name, Timestamp::now()).await
    }

    /// What is found of known risks on the way to that release. `release`: that of a revision.
    pub async fn findings(
        &self,
        facts: &CephFacts,
        snapshot: &Snapshot,
        to: &str,
        known: &[Risk],
        accepted: &BTreeSet<String>,
        release: fn(&Revision) -> String,
    ) -> Vec<RiskFinding> {
        risks::findings(&*self.api, facts, snapshot, known, Some(to), accepted, release).await
    }

    /// A snapshot of these facts.
    ///
    /// # Errors
    /// Facts that make no snapshot.
    pub fn snapshot(&self, facts: &CephFacts) -> Result<Snapshot, BackendError> {
        let daemons = self.daemons(facts)?;
        match self.reboots() {
            None => Ok(daemons),
            Some(before) => {
                let places = self.locations();
                let boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner).clone();
                reboot::snapshot_in_run(facts, &daemons, &places, before, &boots).map_err(|error| {
                    BackendError::transient("make hosts of the cluster's facts", in_full(&error))
                })
            }
        }
    }

    fn daemons(&self, facts: &CephFacts) -> Result<Snapshot, BackendError> {
        let before = self.memory.as_ref().map(|memory| &memory.baseline);
        planner::snapshot(&self.settings, facts, before, &self.permitted_interruptions())
    }

    /// How hosts had booted before the run, where it is they that are rebooted.
    fn reboots(&self) -> Option<&BootsBefore> {
        self.memory.as_ref()?.reboot.as_ref()
    }

    /// Whether these of one kind may stop together, by Ceph's own oracle and by a person's word.
    async fn check_stop_of_kind(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let answer = oracle::ok_to_stop(&*self.api, units).await?;
        let Answer::No { why } = answer else {
            return Ok(answer);
        };
        let permitted = self.permitted_interruptions();
        if permitted.is_empty() {
            return Ok(Answer::No { why });
        }
        let facts = self.facts().await?;
        let found = oracle_override::override_by(&*self.api, &facts, &permitted, units).await?;
        Ok(match found {
            Some(word) => Answer::Overridden {
                why: format!("{why}; {word}"),
            },
            None => Answer::No { why },
        })
    }

    async fn on_hosts<'a>(
        &'a self,
        places: &'a BTreeMap<UnitId, String>,
        image: Option<&'a str>,
    ) -> Result<OnHosts<'a>, BackendError> {
        let CephSettings { hosts, software, .. } = &self.settings;
        let fsid = || async { Ok::<_, BackendError>(lock::identity(&*self.api).await?.to_string()) };
        let fsid = match software.profile {
            SoftwareProfile::Cephadm => self.fsid.get_or_try_init(fsid).await?,
            SoftwareProfile::Custom | SoftwareProfile::Debian => "",
        };
        Ok(OnHosts {
            hosts,
            software,
            places,
            fsid,
            image,
        })
    }

    /// The image that an action starts a daemon from, where daemons are cephadm's.
    async fn image_for(&self, call: &Call, action: &Action) -> Result<Option<String>, BackendError> {
        let software = &self.settings.software;
        let to = match action {
            Action::Visit {
                phase: Phase::Prepare | Phase::Change,
                unit,
                revision,
                ..
            }
            | Action::GoBack { unit, revision, .. }
                if software.profile == SoftwareProfile::Cephadm && host_name(unit).is_none() =>
            {
                revision
            }
            _ => return Ok(None),
        };
        let _one = self.finding_image.lock().await;
        if let Some(image) = images::noted(&*self.api, to, call).await? {
            return Ok(Some(image));
        }
        let facts = self.facts().await?;
        images::find(&*self.api, &facts, software.image(), to, call)
            .await
            .map(Some)
    }

    /// Tells cephadm what a daemon was started from. Only after its host has done it: a host refuses whoever was overtaken, and Ceph's
    /// configuration does not.
    async fn assign_image(&self, unit: &UnitId, image: Option<&str>) -> Result<(), BackendError> {
        match image {
            Some(image) => images::assign(&*self.api, unit, image).await,
            None => Ok(()),
        }
    }

    fn locations(&self) -> BTreeMap<UnitId, String> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn host_daemons(&self) -> CarriedDaemons {
        self.carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The daemons that go down with these units.
    async fn stopped_daemons(&self, units: &[UnitId]) -> Result<Vec<UnitId>, BackendError> {
        if units.iter().any(|unit| host_name(unit).is_some()) && self.host_daemons().is_empty() {
            self.collect_facts().await?;
        }
        Ok(self.host_daemons().affected_by(units))
    }

    /// All facts, and what hosts carry by them.
    async fn collect_facts(&self) -> Result<CephFacts, BackendError> {
        let facts = self.facts().await?;
        let places = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.extend(hosts_of(&facts));
            places.clone()
        };
        if self.reboots().is_some() {
            let before = self.memory.as_ref().map(|memory| &memory.baseline);
            let daemons = units(&facts, before)
                .map_err(|error| BackendError::transient("name the cluster's daemons", in_full(&error)))?;
            let carried = CarriedDaemons::of(&daemons, &places);
            *self.carried.lock().unwrap_or_else(PoisonError::into_inner) = carried;
        }
        Ok(facts)
    }

    /// Asks hosts for their boots: each that serves and was not asked, or was down since. Who has had another boot than before
    /// the run has it for good.
    async fn ask_for_boots(&self, before: &BootsBefore) {
        let serving = self.host_daemons().serving_hosts();
        let unknown: BTreeSet<String> = {
            let mut boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
            boots.retain(|host, boot| serving.contains(host) || before.boots.get(host) != Some(boot));
            let asked = serving.into_iter().filter(|host| before.boots.contains_key(host));
            asked.filter(|host| !boots.contains_key(host)).collect()
        };
        if unknown.is_empty() {
            return;
        }
        let answers = reboot::host_queries::boots(&self.settings, unknown).await;
        let mut answers: BTreeMap<String, String> = answers
            .into_iter()
            .filter_map(|(host, boot)| Some((host, boot.get()?.clone())))
            .collect();
        // One that is back otherwise than wanted has not had its turn: nobody says what it runs.
        let back = answers
            .iter()
            .filter(|(host, boot)| before.boots.get(*host) != Some(boot));
        let back = back.map(|(host, _)| host.clone()).collect();
        for host in reboot::host_queries::hosts_failing_check(&self.settings, back).await {
            answers.remove(&host);
        }
        self.boots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(answers);
    }

    /// What is done to hosts.
    fn task(&self) -> HostTask {
        self.reboots()
            .map(|before| before.task.clone())
            .unwrap_or_default()
    }

    /// Before the first monitor is given another release, each records the one that it runs: see [`mon_release`]. What was done, in words;
    /// empty: nothing.
    ///
    /// # Errors
    /// Ceph gives no answer, or the monitors come to no whole quorum.
    pub async fn before_a_monitor(&self, unit: &UnitId, to: &Revision) -> Result<String, BackendError> {
        if effects::kind_and_id(unit).0 != "mon" {
            return Ok(String::new());
        }
        mon_release::record(&*self.api, to, self.poll()).await
    }

    /// Lays out on a host what its reboot needs.
    async fn prepare_host(&self, call: &Call, unit: &UnitId) -> Result<String, BackendError> {
        let CephSettings { hosts, reboot, .. } = &self.settings;
        match (host_name(unit), self.task().prepare(reboot, hosts)) {
            (Some(host), Some(command)) => HostVisit::prepare(hosts, call, host, &command).await,
            _ => Ok(String::new()),
        }
    }

    /// Reboots a host, or waits for it.
    async fn reboot(&self, call: &Call, unit: &UnitId, sending: Sending) -> Result<String, BackendError> {
        let tried = format!("reboot {unit}");
        let known = host_name(unit)
            .and_then(|host| Some((host, self.memory.as_ref()?, self.reboots()?.boots.get(host)?)));
        let Some((host, memory, before)) = known else {
            return Err(BackendError::permanent(
                tried,
                "its boot id before the run is not known",
            ));
        };
        let wave = guards::wave_of(&*self.api, unit).await?;
        let wave = wave.iter().filter_map(host_name).map(str::to_owned).collect();
        let forget = || {
            let mut boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
            boots.remove(host);
        };
        forget();
        let visit = HostVisit {
            api: &*self.api,
            shell: &self.settings.hosts,
            reboot: &self.settings.reboot,
            software: &self.settings.software,
            poll: self.poll(),
            places: &self.locations(),
            ran: &memory.baseline.daemons,
            wave: &wave,
            task: &self.task(),
            handing_over: &self.handing_over,
        };
        let came = visit.reboot(call, host, before, sending).await;
        // It may have been asked meanwhile.
        forget();
        let (boot, told) = came?;
        let mut boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
        boots.insert(host.to_owned(), boot);
        Ok(told)
    }

    /// Whether a host wholly serves now: then a reboot that could not be sent is sent once more. Otherwise it may be on its way.
    async fn may_resend(&self, unit: &UnitId) -> Result<Sending, BackendError> {
        let facts = self.collect_facts().await?;
        let snapshot = self.snapshot(&facts)?;
        let found = snapshot.find(unit).map(|at| snapshot.unit(at).state);
        Ok(if found == Some(UnitState::Serving) {
            Sending::Yes
        } else {
            Sending::No
        })
    }

    /// Gives back guards that nobody has renewed for as long as they last, of whatever run. That is what `beats` has watched
    /// by `now`, of this process's own clock.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn drop_expired_guards(
        &self,
        beats: &mut Heartbeats,
        now: Instant,
    ) -> Result<GuardExpiry, BackendError> {
        guards::drop_expired(&*self.api, beats, now).await
    }

    /// The guards that are held in the cluster, of whatever run.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn guards(&self) -> Result<Vec<CephHeldGuard>, BackendError> {
        guards::held(&*self.api).await
    }

    /// Whether a daemon runs that revision already, by what the cluster says now.
    fn runs(
        &self,
        facts: &CephFacts,
        unit: &UnitId,
        revision: &stagger_core::model::Revision,
    ) -> Result<bool, BackendError> {
        let snapshot = self.snapshot(facts)?;
        let found = snapshot.find(unit).map(|ix| snapshot.unit(ix));
        Ok(found.is_some_and(|unit| {
            unit.state == stagger_core::model::UnitState::Serving && unit.revision.as_ref() == Some(revision)
        }))
    }
}

#[async_trait]
impl Executor for CephBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let facts = self.collect_facts().await?;
        if let Some(before) = self.reboots() {
            self.ask_for_boots(before).await;
        }
        self.snapshot(&facts)
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let mut by_kind: BTreeMap<String, Vec<UnitId>> = BTreeMap::new();
        let carried = self.stopped_daemons(units).await?;
        let known = self.host_daemons();
        for unit in carried {
            let kind = effects::kind_and_id(&unit).0.to_owned();
            // A metadata server that is down is in no map, and cannot be asked about.
            if kind != "mds" || !known.is_down(&unit) {
                by_kind.entry(kind).or_default().push(unit);
            }
        }
        let mut answers = Vec::with_capacity(by_kind.len());
        for units in by_kind.values() {
            answers.push(self.check_stop_of_kind(units).await?);
        }
        Ok(oracle::together(answers))
    }

    fn permit(&self, interruptions: BTreeSet<String>) {
        let permitted = interruptions.into_iter().collect();
        *self.permitted.lock().unwrap_or_else(PoisonError::into_inner) = permitted;
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        if let Some(host) = host_name(unit) {
            return Some(host.to_owned());
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(unit).cloned()
    }

    fn fencing(&self, action: &Action) -> Fencing {
        match action {
            Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } => Fencing::Fenced,
            Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => {
                // Each question ends with its sender or at its own limit, and a guard asks at most three.
                Fencing::Bounded(Duration::from_secs(self.settings.cluster.timeout + 10))
            }
        }
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let places = self.locations();
        let image = self.image_for(call, action).await?;
        let hosts = self.on_hosts(&places, image.as_deref()).await?;
        match action {
            Action::TakeGuard {
                guard,
                units,
                expires,
            } => {
                let mut osds = self.stopped_daemons(units).await?;
                if units.iter().any(|unit| host_name(unit).is_some()) {
                    osds.retain(|unit| effects::kind_and_id(unit).0 == "osd");
                }
                guards::take(&*self.api, guard, units, &osds, call, *expires).await
            }
            Action::DropGuard { guard, units } => guards::drop(&*self.api, guard, units, call).await,
            Action::Visit { unit, phase, .. } if host_name(unit).is_some() => match phase {
                Phase::Prepare => self.prepare_host(call, unit).await,
                Phase::Change => self.reboot(call, unit, Sending::Yes).await,
                // What is active is handed over right before, and nothing is taken that would be given back.
                Phase::Enter | Phase::Leave => Ok(String::new()),
            },
            Action::Restart { unit } if host_name(unit).is_some() => {
                let sending = self.may_resend(unit).await?;
                self.reboot(call, unit, sending).await
            }
            Action::GoBack { unit, .. } if host_name(unit).is_some() => Err(BackendError::permanent(
                format!("bring {unit} back"),
                "what was done to a host stays done",
            )),
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => {
                let recorded = match phase {
                    Phase::Prepare => self.before_a_monitor(unit, revision).await?,
                    Phase::Enter | Phase::Change | Phase::Leave => String::new(),
                };
                let done = hosts.change(call, unit, *phase, revision).await?;
                if *phase == Phase::Change {
                    self.assign_image(unit, image.as_deref()).await?;
                }
                Ok(if recorded.is_empty() {
                    done
                } else {
                    format!("{recorded}; {done}")
                })
            }
            Action::Restart { unit } => hosts.restart(call, unit, None).await,
            Action::GoBack {
                unit,
                revision,
                rebuild,
            } => {
                let facts = self.facts().await?;
                let runs = self.runs(&facts, unit, revision)?;
                let done = if !rebuild && effects::is_converted(unit, facts.versions.newest(), revision) {
                    conversion::roll_back(&*self.api, &hosts, call, unit, revision, runs).await?
                } else if runs {
                    format!("it runs {revision} already")
                } else {
                    hosts.roll_back(call, unit, revision, *rebuild).await?
                };
                self.assign_image(unit, image.as_deref()).await?;
                Ok(done)
            }
            Action::Step { step } => match step.as_str().strip_prefix(CONTAINER_IMAGE) {
                Some(release) => images::hand_over(&*self.api, &self.facts().await?, release).await,
                None => effects::step(&*self.api, step.as_str()).await,
            },
            Action::Collect { .. } => Ok(String::new()),
        }
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let places = self.locations();
        let mut hosts = std::collections::BTreeSet::new();
        for unit in units {
            let own = host_name(unit).map(str::to_owned);
            hosts.insert(own.or_else(|| places.get(unit).cloned()).ok_or_else(|| {
                BackendError::transient(format!("raise the fence of {unit}"), "its host is unknown")
            })?);
        }
        // Side by side: after a stranger it is every host of the cluster.
        let mut hosts = hosts.into_iter();
        let mut raising = JoinSet::new();
        loop {
            while raising.len() < AT_ONCE
                && let Some(host) = hosts.next()
            {
                let shell = self.settings.hosts.clone();
                raising.spawn(async move { shell.raise_fence(&host, fence).await });
            }
            match raising.join_next().await {
                None => return Ok(()),
                Some(Ok(raised)) => raised?,
                Some(Err(ended)) => {
                    return Err(BackendError::transient("raise the fence", ended.to_string()));
                }
            }
        }
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        let mut files = Vec::new();
        let questions = [
            (
                "health-detail",
                QueryTarget::Mon,
                serde_json::json!({ "prefix": "health", "detail": "detail" }),
            ),
            (
                "status",
                QueryTarget::Mon,
                serde_json::json!({ "prefix": "status" }),
            ),
            (
                "osd-dump",
                QueryTarget::Mon,
                serde_json::json!({ "prefix": "osd dump" }),
            ),
            (
                "osd-tree",
                QueryTarget::Mon,
                serde_json::json!({ "prefix": "osd tree" }),
            ),
            (
                "versions",
                QueryTarget::Mon,
                serde_json::json!({ "prefix": "versions" }),
            ),
            (
                "pg-dump-stuck",
                QueryTarget::Mgr,
                serde_json::json!({ "prefix": "pg dump_stuck" }),
            ),
        ];
        for (name, whom, question) in questions {
            // What cannot be had now is noted in its place: a bundle says what is missing.
            let content = self
                .api
                .ask(whom, question)
                .await
                .unwrap_or_else(|e| e.to_string().into_bytes());
            files.push((format!("{name}.json"), content));
        }
        let places = self.locations();
        let hosts = self.on_hosts(&places, None).await?;
        for unit in &self.host_daemons().affected_by(units) {
            if let Some(log) = hosts.logs(call, unit).await {
                files.push((format!("{unit}.log"), log.into_bytes()));
            }
        }
        Ok(files)
    }

    fn poll(&self) -> Duration {
        Duration::from_secs(self.settings.cluster.poll.max(1))
    }
}

#[async_trait]
impl Lock for CephBackend {
    fn cluster(&self) -> &ClusterName {
        &self.settings.cluster.name
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        lock::identity(&*self.api).await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.lock.take(&*self.api, claim, at_least).await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.lock.renew(&*self.api, claim, fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        ConfigKeyLock::holder(&*self.api).await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        lock::anchor(&*self.api, anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        lock::anchored(&*self.api).await
    }

    async fn unlock(&self, claim: &LockRecord, _fence: u64) -> Result<(), LockError> {
        self.lock.release(&*self.api, claim).await
    }

    fn lock_expires(&self) -> Duration {
        self.lock.expires()
    }
}
