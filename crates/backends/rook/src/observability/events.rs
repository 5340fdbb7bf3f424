//! Events, as `kubectl describe` shows them for a cluster.
//!
//! Pure functions decide what becomes an Event. A task of its own sends them: no work waits for it, and an
//! Event that cannot be sent becomes a line in the log.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use stagger_core::run::{self, Ending, Entry};
use stagger_engine::cluster::Anchor;
use stagger_engine::driver::Notice;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::agent::daemon_set::AgentRollout;
use crate::api::settings::PolicySettings;
use crate::observability::status::{ClusterStatus, DrainStatus, Provisioning};
use crate::provision::ProvisioningWarning;

/// Who reports.
const CONTROLLER: &str = "stagger.dev/operator";
/// So many may wait to be sent; more are dropped.
const WAITING: usize = 64;
/// How long sending one may take.
const SENDING: Duration = Duration::from_secs(10);
/// The API server takes no longer note, in bytes.
const NOTE: usize = 1024;

/// Something that a person would want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventRecord {
    /// Whether somebody should have a look.
    warns: bool,
    /// What was being done: `Upgrade`, `Drain` …
    action: &'static str,
    /// What happened, in a word.
    reason: &'static str,
    /// The same in a sentence.
    note: String,
}

/// All is as it should be.
fn normal(action: &'static str, reason: &'static str, note: impl Into<String>) -> EventRecord {
    EventRecord {
        warns: false,
        action,
        reason,
        note: note.into(),
    }
}

/// Somebody should have a look.
fn warning(action: &'static str, reason: &'static str, note: impl Into<String>) -> EventRecord {
    EventRecord {
        warns: true,
        ..normal(action, reason, note)
    }
}

/// What was known before a run's first event.
pub(crate) fn of_notice(notice: &Notice) -> Option<EventRecord> {
    match notice {
        // The operator's own status says who leads.
        Notice::Locked { .. } => None,
        Notice::Behind(Anchor { run, seq, .. }) => Some(warning(
            "Upgrade",
            "JournalIsOlder",
            format!(
                "the journal of run {run} is older than its event {seq}, which the cluster has recorded: were its \
                 ConfigMaps restored? Each daemon is first made to refuse what was started since"
            ),
        )),
        Notice::Unheard(Anchor { run, .. }) => Some(warning(
            "Upgrade",
            "JournalIsOlder",
            format!(
                "run {run} of this cluster has started since, and is not in these ConfigMaps: were they restored, or is \
                 its journal elsewhere? Each daemon is first made to refuse what was started since"
            ),
        )),
    }
}

/// What is new in a status that another takes the place of.
pub(crate) fn of_status(before: &ClusterStatus, now: &ClusterStatus) -> Vec<EventRecord> {
    let mut news = Vec::new();
    let said = |told: &ClusterStatus| {
        // Which agent is waited for is another every few seconds.
        let passes = told.reason == "AgentsFirst";
        let message = (!passes).then(|| told.message.clone());
        (told.phase.clone(), told.reason.clone(), message)
    };
    if now.phase == "Blocked" && said(before) != said(now) {
        let note = format!("{}: {}", now.reason, now.message);
        news.push(warning("Update", "Blocked", note));
    }
    for (reason, objects) in &now.troubles {
        let known = before.troubles.get(reason);
        let new = objects
            .iter()
            .filter(|(object, _)| !known.is_some_and(|known| known.contains_key(*object)));
        news.extend(new.map(|(_, note)| warning("Observe", reason, note.clone())));
    }
    let nothing = DrainStatus::default();
    let nothing_new = Provisioning::default();
    news.extend(of_provisioning(
        before.provisioning.as_ref().unwrap_or(&nothing_new),
        now.provisioning.as_ref().unwrap_or(&nothing_new),
    ));
    if let Some(why) = now.removal.as_ref().filter(|_| before.removal != now.removal) {
        news.push(warning("Remove", "OsdStays", why.clone()));
    }
    news.extend(of_drains(
        before.drains.as_ref().unwrap_or(&nothing),
        now.drains.as_ref().unwrap_or(&nothing),
    ));
    news
}

/// What is not done about new OSDs: once for each node or claim, and reason, though its text may name another time.
fn of_provisioning(before: &Provisioning, now: &Provisioning) -> Vec<EventRecord> {
    let told = |remark: &ProvisioningWarning| {
        before
            .remarks
            .iter()
            .any(|known| (&known.at, known.reason) == (&remark.at, remark.reason))
    };
    let remarks = now.remarks.iter().filter(|remark| !told(remark));
    let remarks = remarks.map(|remark| warning("Provision", remark.reason, remark.message.clone()));
    let fields = now
        .not_obeyed
        .iter()
        .filter(|field| !before.not_obeyed.contains(field));
    let fields = fields.map(|field| warning("ReadSpec", "FieldRemarked", field.clone()));
    remarks.chain(fields).collect()
}

fn of_drains(before: &DrainStatus, now: &DrainStatus) -> Vec<EventRecord> {
    let mut news = Vec::new();
    for domain in now.draining.difference(&before.draining) {
        news.push(match now.noout.get(domain) {
            Some(until) => normal(
                "Drain",
                "DrainBegan",
                format!("{domain} is being drained; noout is on it until {until}"),
            ),
            None => warning(
                "Drain",
                "DomainDown",
                format!(
                    "OSDs of {domain} are down, and others may not follow: {}",
                    now.why
                ),
            ),
        });
    }
    for domain in before.noout.keys() {
        if now.draining.contains(domain) && !now.noout.contains_key(domain) {
            let note = format!(
                "noout is no longer on {domain}: osdMaintenanceTimeout is over, or its node takes pods again"
            );
            news.push(warning("Drain", "NooutOver", note));
        }
    }
    for domain in now.waiting.difference(&before.waiting) {
        let note = format!(
            "nothing of {domain} may be evicted now: {}; it may when those are back, or all placement groups \
             are clean without them",
            now.why
        );
        news.push(warning("Drain", "DrainBlocked", note));
    }
    for domain in before.draining.difference(&now.draining) {
        let note = format!("the OSDs of {domain} are back, or all placement groups are clean without them");
        news.push(normal("Drain", "DrainOver", note));
    }
    news
}

/// What a person hears of the agents: that they are being brought to this release, and that they are.
pub(crate) fn of_agents(before: &AgentRollout, now: &AgentRollout) -> Option<EventRecord> {
    let agents = |news: fn(&'static str, &'static str, String) -> EventRecord, reason, what| {
        Some(news("BringAgents", reason, what))
    };
    match (before, now) {
        (AgentRollout::Rolling { .. }, AgentRollout::Rolling { .. }) => None,
        (_, AgentRollout::Rolling { why, fresh, wanted }) => agents(
            normal,
            "AgentsRolling",
            format!("{fresh} of {wanted} are of this release and ready; {why}"),
        ),
        (AgentRollout::Rolling { .. }, AgentRollout::Ready { fresh, passed_over })
            if passed_over.is_empty() =>
        {
            agents(
                normal,
                "AgentsReady",
                format!("all {fresh} are of this release and ready"),
            )
        }
        (_, AgentRollout::Ready { fresh, passed_over }) if !passed_over.is_empty() => agents(
            warning,
            "AgentsPassedOver",
            format!(
                "{fresh} are of this release and ready; passed over, as they are cordoned or not ready: {}",
                passed_over.join(", ")
            ),
        ),
        (_, AgentRollout::Newer(theirs)) => agents(
            warning,
            "OperatorTooOld",
            format!("they are of release {theirs}, newer than the operator, and stay so"),
        ),
        (_, AgentRollout::Unseen | AgentRollout::Without | AgentRollout::Ready { .. }) => None,
    }
}

/// What a line of a run's journal is to a person, if anything. `title`: what the run is to do; `held`: the
/// reason for which it was held before.
pub(crate) fn of_journal(entry: &Entry, title: &str, held: Option<&str>) -> Option<EventRecord> {
    let upgrade = |news: fn(&'static str, &'static str, String) -> EventRecord, reason, what: String| {
        Some(news("Upgrade", reason, format!("{title}: {what}")))
    };
    match &entry.event {
        run::Event::Started(start) => upgrade(normal, "UpgradeBegan", format!("run {} started", start.run)),
        // The first holder is the one that began it.
        run::Event::LeaseTaken { holder, .. } if entry.seq > 2 => {
            upgrade(normal, "UpgradeTakenOver", format!("taken over by {holder}"))
        }
        run::Event::WaveFailed { reason, .. } => upgrade(warning, "WaveFailed", reason.to_string()),
        run::Event::SetAside {
            unit,
            reason,
            until: None,
        } => upgrade(warning, "UnitLeft", format!("{unit} is skipped: {reason}")),
        run::Event::Held { reason } if held != Some(reason.code.code()) => {
            upgrade(warning, "UpgradeHeld", reason.to_string())
        }
        run::Event::Released => upgrade(normal, "UpgradeGoesOn", "no longer held".to_owned()),
        run::Event::Ended { outcome } => match outcome {
            Ending::Done => upgrade(
                normal,
                "UpgradeDone",
                "every unit serves on the target".to_owned(),
            ),
            Ending::Incomplete { left } => {
                let left: Vec<_> = left.iter().map(|(what, why)| format!("{what} ({why})")).collect();
                upgrade(
                    warning,
                    "UpgradeIncomplete",
                    format!("skipped: {}", left.join(", ")),
                )
            }
            Ending::RolledBack { reason } => upgrade(warning, "UpgradeTakenBack", reason.to_string()),
            Ending::Aborted => upgrade(warning, "UpgradeEnded", "aborted by an operator".to_owned()),
        },
        run::Event::LeaseTaken { .. }
        | run::Event::JournalBehind
        | run::Event::Planned { .. }
        | run::Event::WaveOpened { .. }
        | run::Event::WaveJoined { .. }
        | run::Event::Judged { .. }
        | run::Event::WaveDropped { .. }
        | run::Event::Intent { .. }
        | run::Event::Settled { .. }
        | run::Event::GatesTurned { .. }
        | run::Event::WaveRecovered
        | run::Event::WavePassed
        | run::Event::WaveWentBack
        | run::Event::StepPassed { .. }
        | run::Event::SetAside { .. }
        | run::Event::Asked { .. }
        | run::Event::Held { .. } => None,
    }
}

/// A use of `skipUpgradeChecks`.
pub(crate) fn skipped_checks(note: String) -> EventRecord {
    warning("Upgrade", "ChecksSkipped", note)
}

/// A daemon that is given back, and from which somebody else keeps Rook.
pub(crate) fn kept_by_others(note: String) -> EventRecord {
    warning("GiveBack", "RookStaysKept", note)
}

/// A known risk that applies or may, and keeps no update from being begun.
pub(crate) fn known_risk(note: String) -> EventRecord {
    warning("Upgrade", "KnownRisk", note)
}

/// What a person should know of a spec's fields.
pub(crate) fn of_settings(settings: &PolicySettings) -> Vec<EventRecord> {
    let mut news = Vec::new();
    if settings.skip_checks {
        let note = "skipUpgradeChecks is set: an update waits for no health, and stops one OSD at a time unchecked; data \
                    may become unavailable";
        news.push(warning("ReadSpec", "ChecksAreSkipped", note));
    }
    for remark in &settings.remarks {
        let note = format!("{}: {}", remark.field, remark.what);
        news.push(warning("ReadSpec", "FieldRemarked", note));
    }
    news
}

/// Sends Events of one object in the background.
pub(crate) struct EventPublisher {
    tell: mpsc::Sender<EventRecord>,
    task: JoinHandle<()>,
}

impl EventPublisher {
    /// Of that object; `identity` tells one operator from another.
    pub(crate) fn new(client: &Client, identity: &str, object: ObjectReference) -> Self {
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(identity.to_owned()),
        };
        let (tell, told) = mpsc::channel(WAITING);
        let task = tokio::spawn(send(client.clone(), reporter, object, told));
        Self { tell, task }
    }

    /// Has it sent, and waits for nothing.
    pub(crate) fn send(&self, news: EventRecord) {
        let reason = news.reason;
        if let Err(error) = self.tell.try_send(news) {
            tracing::warn!(%error, reason, "an Event is not sent");
        }
    }
}

impl Drop for EventPublisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(
    client: Client,
    reporter: Reporter,
    object: ObjectReference,
    mut told: mpsc::Receiver<EventRecord>,
) {
    while let Some(news) = told.recv().await {
        let event = Event {
            type_: if news.warns {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: news.reason.to_owned(),
            action: news.action.to_owned(),
            note: Some(truncate(news.note)),
            secondary: None,
        };
        // One that was kept would take two with the same reason for one, and keep only the first note.
        let recorder = Recorder::new(client.clone(), reporter.clone());
        match tokio::time::timeout(SENDING, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, event.reason, "an Event cannot be sent"),
            Err(error) => tracing::warn!(%error, event.reason, "an Event cannot be sent"),
        }
    }
}

fn truncate(mut note: String) -> String {
    const MORE: &str = " …";
    if note.len() > NOTE {
        note.truncate(note.floor_char_boundary(NOTE - MORE.len()));
        note.push_str(MORE);
    }
    note
}

#[cfg(test)]
mod tests;
