//! Writes the status of a CephMaintenance, compact and seldom, and triggers its Events and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use stagger_core::run::{Command, Entry, Event, Run};
use stagger_core::view::{self, RunVerdict, RunView, Waiting};
use stagger_engine::driver::{Listener, Notice};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::maintenance::{CephMaintenance, StatusCondition};
use crate::api::names::MANAGER;
use crate::executor::goal::{SUPERSEDED, is_superseded};
use crate::executor::migrations;
use crate::executor::wave_exposure::WaveExposure;
use crate::observability::conditions;
use crate::observability::events::{self, EventPublisher, EventRecord};
use crate::observability::metrics::ClusterMetrics;
use crate::observability::status::{ClusterStatus, LookedAt, Troubles};

/// Between two writes at least.
const PAUSE: Duration = Duration::from_secs(2);

/// Who else hears what is told: people, by Events, and Prometheus.
pub(crate) struct Watchers {
    pub(crate) events: EventPublisher,
    pub(crate) metrics: Arc<ClusterMetrics>,
}

/// Writes the status in the background, the newest only.
pub(crate) struct StatusWriter {
    tell: Arc<watch::Sender<ClusterStatus>>,
    watchers: Arc<Watchers>,
    exposed: Arc<WaveExposure>,
    /// Whether budgets and `noout` were given back.
    given_back: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl StatusWriter {
    /// Of that CephMaintenance, from what was told before.
    pub(crate) fn new(client: &Client, of: &CephMaintenance, watchers: Watchers) -> Self {
        let now = read(of);
        watchers.metrics.status(&now);
        let api: Api<CephMaintenance> = Api::namespaced(client.clone(), &of.namespace().unwrap_or_default());
        let (tell, told) = watch::channel(now.clone());
        let before = of.status.as_ref().map(|status| status.conditions.clone());
        let task = tokio::spawn(write(api, of.name_any(), told, now, before.unwrap_or_default()));
        Self {
            tell: Arc::new(tell),
            watchers: Arc::new(watchers),
            exposed: Arc::default(),
            given_back: watch::channel(false).0,
            task,
        }
    }

    /// Says whether nothing is held for drains any more: no budget is ours, and no `noout`.
    pub(crate) fn set_drains_cleared(&self, are: bool) {
        self.given_back.send_replace(are);
    }

    /// Waits until nothing is held for drains any more.
    pub(crate) async fn wait_until_cleared(&self) {
        // The sender is this one's.
        self.given_back.subscribe().wait_for(|are| *are).await.ok();
    }

    /// Tells something, unless it is told already.
    pub(crate) fn update(&self, change: impl FnOnce(&mut ClusterStatus)) {
        self.tell.send_if_modified(|told| {
            let before = told.clone();
            change(told);
            for news in events::of_status(&before, told) {
                self.watchers.events.send(news);
            }
            self.watchers.metrics.status(told);
            before != *told
        });
    }

    /// Tells what is wrong with which objects for that reason; none: nothing is any more.
    pub(crate) fn set_problems(&self, reason: &'static str, objects: BTreeMap<String, String>) {
        self.update(|told| {
            if objects.is_empty() {
                told.troubles.remove(reason);
            } else {
                told.troubles.insert(reason, objects);
            }
        });
    }

    /// Tells a person something that the status does not have.
    pub(crate) fn publish_events(&self, news: Vec<EventRecord>) {
        for one in news {
            self.watchers.events.send(one);
        }
    }

    /// What is told now.
    pub(crate) fn current_status(&self) -> ClusterStatus {
        self.tell.borrow().clone()
    }

    /// Whether a run is not over.
    pub(crate) fn run_is_on(&self) -> bool {
        self.tell.borrow().run_is_on()
    }

    /// A listener of a run that tells of it.
    pub(crate) fn listener(&self) -> Box<dyn Listener> {
        Box::new(Telling {
            told: Arc::clone(&self.tell),
            exposed: Arc::clone(&self.exposed),
            watchers: Arc::clone(&self.watchers),
            held: None,
            superseded: false,
        })
    }

    /// What a run that tells by this has down, or may stop.
    pub(crate) fn wave_exposure(&self) -> &Arc<WaveExposure> {
        &self.exposed
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(
    api: Api<CephMaintenance>,
    name: String,
    mut told: watch::Receiver<ClusterStatus>,
    mut written: ClusterStatus,
    mut conditions: Vec<StatusCondition>,
) {
    while told.changed().await.is_ok() {
        loop {
            let now = told.borrow_and_update().clone();
            if now.is_covered_by(&written) {
                break;
            }
            conditions = conditions::of(&now, &conditions, Timestamp::now());
            // An apply and no merge: what is told no more, as a word of an open wave, has to go.
            match apply(&api, &document(&name, &now, &conditions)).await {
                Ok(()) => written = now,
                Err(error) => tracing::warn!(%error, name, "the status cannot be written now"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn apply(api: &Api<CephMaintenance>, document: &Value) -> Result<(), kube::Error> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    api.patch_status(name, &params, &Patch::Apply(document))
        .await
        .map(|_| ())
}

/// Tells of a CephMaintenance for which nothing is done why that is so.
pub(crate) async fn report_unused(client: &Client, of: &CephMaintenance, reason: &str, why: &str) {
    let api: Api<CephMaintenance> = Api::namespaced(client.clone(), &of.namespace().unwrap_or_default());
    let told = ClusterStatus {
        phase: "Blocked".to_owned(),
        reason: reason.to_owned(),
        message: why.to_owned(),
        generation: of.metadata.generation.unwrap_or(0),
        ..ClusterStatus::default()
    };
    let before = of.status.clone().unwrap_or_default();
    if before.message.as_deref() == Some(why) && before.observed_generation == of.metadata.generation {
        return;
    }
    let conditions = conditions::of(&told, &before.conditions, Timestamp::now());
    if let Err(error) = apply(&api, &document(&of.name_any(), &told, &conditions)).await {
        tracing::warn!(%error, name = of.name_any(), "the status cannot be written now");
    }
}

/// The status as the API has it.
fn document(name: &str, told: &ClusterStatus, conditions: &[StatusCondition]) -> Value {
    let mut document = json!({ "status": {
        "observedGeneration": told.generation,
        "phase": told.phase,
        "message": told.message,
        "image": told.image,
        "conditions": conditions,
        "underWay": told.run_is_on(),
        "run": told.run,
        "migrations": told.migrations,
        "gaveUp": told.gave_up,
        "retryAfter": told.retry_after,
        "heard": told.heard,
        "drains": told.drains,
        "provisioning": told.provisioning,
        "removal": told.removal,
    } });
    without_nulls(&mut document);
    document["apiVersion"] = CephMaintenance::api_version(&()).into();
    document["kind"] = CephMaintenance::kind(&()).into();
    document["metadata"] = json!({ "name": name });
    document
}

/// What an apply does not say goes; a null would stay as one.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads back what an operator before this one has told.
pub(crate) fn read(of: &CephMaintenance) -> ClusterStatus {
    let status = of.status.clone().unwrap_or_default();
    ClusterStatus {
        looked_at: LookedAt::default(),
        reason: conditions::reason(&status.conditions)
            .unwrap_or_default()
            .to_owned(),
        phase: status.phase.unwrap_or_default(),
        generation: status.observed_generation.unwrap_or_default(),
        message: status.message.unwrap_or_default(),
        image: status.image,
        gave_up: status.gave_up,
        retry_after: status.retry_after,
        heard: status.heard,
        run: status.run.map(|run| Value::Object(run.0)),
        migrations: status
            .migrations
            .and_then(|migrations| serde_json::from_value(migrations).ok())
            .unwrap_or_default(),
        drains: status
            .drains
            .and_then(|drains| serde_json::from_value(Value::Object(drains.0)).ok()),
        // Looked at anew.
        troubles: Troubles::new(),
        provisioning: None,
        removal: None,
    }
}

struct Telling {
    told: Arc<watch::Sender<ClusterStatus>>,
    exposed: Arc<WaveExposure>,
    watchers: Arc<Watchers>,
    /// The slug of the reason for which it is held.
    held: Option<String>,
    /// Whether it is ended because something else is asked for.
    superseded: bool,
}

impl Telling {
    fn tell(&self, run: &Run, waiting: Option<Waiting<'_>>) {
        let view = view::run(run, waiting);
        self.exposed.run_is_at(run);
        self.told.send_if_modified(|told| {
            let before = told.clone();
            of_run(told, &view, self.superseded);
            told.migrations = migrations::statuses(&run.start().target, &view);
            self.watchers.metrics.status(told);
            before != *told
        });
        self.watchers.metrics.run(run, view.verdict);
    }
}

/// What a run's state means for the cluster; `superseded`: it ends because something else is asked for.
fn of_run(told: &mut ClusterStatus, view: &RunView, superseded: bool) {
    let (phase, reason) = match view.verdict {
        RunVerdict::Ended if superseded => ("Progressing", "UpgradeSuperseded"),
        RunVerdict::Running => ("Progressing", "UpgradeRuns"),
        RunVerdict::Held => ("Progressing", "UpgradeWaits"),
        RunVerdict::Interrupted => ("Progressing", "UpgradeInterrupted"),
        RunVerdict::NeedsYou => ("Blocked", "NeedsAPerson"),
        RunVerdict::Done => ("Ready", "UpgradeDone"),
        RunVerdict::Ended => ("Blocked", "UpgradeEndedElsewhere"),
    };
    phase.clone_into(&mut told.phase);
    reason.clone_into(&mut told.reason);
    let total = view.waves_passed as usize + view.waves_left;
    let why = if superseded && view.verdict == RunVerdict::Ended {
        SUPERSEDED
    } else {
        &view.why
    };
    told.message = format!("{}: {why} ({} of {total} waves)", view.title, view.waves_passed);
    told.run = serde_json::to_value(view).ok();
}

impl Listener for Telling {
    fn notice(&mut self, notice: &Notice) {
        if let Some(news) = events::of_notice(notice) {
            self.watchers.events.send(news);
        }
    }

    fn event(&mut self, entry: &Entry, run: &Run) {
        if let Event::Asked {
            command: Command::Abort,
            by,
        } = &entry.event
        {
            self.superseded = is_superseded(by);
        }
        let event = serde_json::to_value(&entry.event).unwrap_or_default();
        tracing::info!(seq = entry.seq, event = event["event"].as_str(), "journal");
        let title = &run.start().target.title;
        if let Some(news) = events::of_journal(entry, title, self.held.as_deref()) {
            self.watchers.events.send(news);
        }
        self.held = run.held().map(|(reason, _)| reason.code.to_string());
        self.watchers.metrics.journal(entry);
        self.tell(run, None);
    }

    fn waiting(&mut self, _: Timestamp, waiting: Waiting<'_>, run: &Run) {
        self.tell(run, Some(waiting));
    }
}

#[cfg(test)]
mod tests {
    use stagger_core::view::{Current, Schema};

    use super::*;
    use crate::client::status::{self, Leader};
    use crate::observability::status::DrainStatus;

    fn view() -> RunView {
        RunView {
            ended_at: None,
            schema: Schema {
                name: "run".to_owned(),
                version: 1,
            },
            run: "r1".parse().unwrap(),
            cluster: "rook-ceph".parse().unwrap(),
            title: "ceph 18.2.7 to 20.2.4".to_owned(),
            verdict: RunVerdict::Held,
            why: "gates-shut: pgs-clean: 3 of 160 are not".to_owned(),
            until: Some(Timestamp::UNIX_EPOCH),
            started: Timestamp::UNIX_EPOCH,
            seq: 41,
            holder: "token 2, a@b process 1".to_owned(),
            changed: 5,
            waves_passed: 5,
            waves_left: 7,
            seconds_left: 600,
            completed: vec!["mon".parse().unwrap()],
            current: Some(Current {
                stage: "osd".parse().unwrap(),
                since: Timestamp::UNIX_EPOCH,
                units: BTreeMap::from([("changed".to_owned(), vec!["osd.3".parse().unwrap()])]),
                shut: vec![("pgs-clean".to_owned(), "3 of 160 are not".to_owned())],
            }),
            left_alone: Vec::new(),
            ending: None,
        }
    }

    /// A moment later the next run is begun: nobody is asked for, and nobody else has ended it.
    #[test]
    fn a_run_that_ends_for_another_is_not_blocked() {
        let ended = RunView {
            verdict: RunVerdict::Ended,
            why: "aborted by an operator".to_owned(),
            ..view()
        };
        let mut told = ClusterStatus::default();
        of_run(&mut told, &ended, true);
        assert_eq!(
            (told.phase.as_str(), told.reason.as_str()),
            ("Progressing", "UpgradeSuperseded")
        );
        assert!(told.message.contains(SUPERSEDED), "{}", told.message);
        of_run(&mut told, &ended, false);
        assert_eq!(told.phase, "Blocked");
    }

    /// What is written here is what the command line and the next operator read.
    #[test]
    fn what_is_told_is_read_back() {
        let mut told = ClusterStatus {
            generation: 4,
            gave_up: Some("ceph:v21".to_owned()),
            retry_after: Some("r0".to_owned()),
            heard: Some("pause#1".to_owned()),
            drains: Some(DrainStatus {
                blocked: vec!["a".to_owned()],
                blocked_count: 1,
                why: "b is drained".to_owned(),
                draining: ["b".to_owned()].into(),
                noout: [("b".to_owned(), Timestamp::UNIX_EPOCH)].into(),
                ..DrainStatus::default()
            }),
            ..ClusterStatus::default()
        };
        let trouble = BTreeMap::from([("osd.1".to_owned(), "why".to_owned())]);
        told.troubles.insert("OsdUnplaced", trouble);
        of_run(&mut told, &view(), false);
        let conditions = conditions::of(&told, &[], Timestamp::UNIX_EPOCH);
        let mut object = document("rook-ceph", &told, &conditions);
        assert!(!object.to_string().contains("null"), "{object}");
        object["spec"] = json!({ "cephCluster": "rook-ceph" });
        object["metadata"]["generation"] = json!(4);
        let maintenance: CephMaintenance = serde_json::from_value(object).unwrap();

        let seen = status::MaintenanceStatus::of(&maintenance, Leader::Nobody);
        assert_eq!(seen.run, Some(view()));
        assert_eq!(seen.phase.as_deref(), Some("Progressing"));
        assert_eq!(seen.reason.as_deref(), Some("UpgradeWaits"));
        let degraded = seen.conditions.iter().find(|one| one.kind == "Degraded").unwrap();
        assert_eq!(
            (degraded.reason.as_str(), degraded.message.as_str()),
            ("OsdUnplaced", "why")
        );
        assert!(seen.about_this_spec && seen.conditions[0].last_transition_time.is_some());
        assert_eq!(seen.drains.unwrap().noout.len(), 1);

        let next = read(&maintenance);
        assert_eq!(
            (next.gave_up, next.retry_after, next.heard),
            (told.gave_up, told.retry_after, told.heard)
        );
    }
}
