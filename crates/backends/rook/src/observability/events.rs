//! Events: what a person reads of a cluster in `kubectl describe`.
//!
//! What becomes an Event of what happened is decided by pure functions. A task of its own sends: no work waits
//! for it, and what cannot be sent is a line in the log.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use stagger_core::run::{self, Ending, Entry};
use stagger_engine::backend::Anchor;
use stagger_engine::driver::Notice;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::agent::agents::AgentRollout;
use crate::api::settings::Settings;
use crate::observability::status::{ClusterStatus, Drained, Provisioning};
use crate::provision::Remark;

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
pub(crate) struct News {
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
fn good(action: &'static str, reason: &'static str, note: impl Into<String>) -> News {
    News {
        warns: false,
        action,
        reason,
        note: note.into(),
    }
}

/// Somebody should have a look.
fn bad(action: &'static str, reason: &'static str, note: impl Into<String>) -> News {
    News {
        warns: true,
        ..good(action, reason, note)
    }
}

/// What was known before a run's first event.
pub(crate) fn of_notice(notice: &Notice) -> Option<News> {
    match notice {
        // The operator's own status says who leads.
        Notice::Locked { .. } => None,
        Notice::Behind(Anchor { run, seq, .. }) => Some(bad(
            "Upgrade",
            "JournalIsOlder",
            format!(
                "the journal of run {run} is older than the cluster, which was told of its event {seq}: were its ConfigMaps \
                 restored? Each daemon is first made to refuse what was begun since"
            ),
        )),
        Notice::Unheard(Anchor { run, .. }) => Some(bad(
            "Upgrade",
            "JournalIsOlder",
            format!(
                "run {run} of this cluster began since, and is not in these ConfigMaps: were they restored, or has it its journal \
                 elsewhere? Each daemon is first made to refuse what was begun since"
            ),
        )),
    }
}

/// What is new in a status that another takes the place of.
pub(crate) fn of_status(before: &ClusterStatus, now: &ClusterStatus) -> Vec<News> {
    let mut news = Vec::new();
    let said = |told: &ClusterStatus| {
        // Which agent is waited for is another every few seconds.
        let passes = told.reason == "AgentsFirst";
        let message = (!passes).then(|| told.message.clone());
        (told.phase.clone(), told.reason.clone(), message)
    };
    if now.phase == "Blocked" && said(before) != said(now) {
        let note = format!("{}: {}", now.reason, now.message);
        news.push(bad("Update", "Blocked", note));
    }
    for (reason, objects) in &now.troubles {
        let known = before.troubles.get(reason);
        let new = objects
            .iter()
            .filter(|(object, _)| !known.is_some_and(|known| known.contains_key(*object)));
        news.extend(new.map(|(_, note)| bad("Observe", reason, note.clone())));
    }
    let nothing = Drained::default();
    let nothing_new = Provisioning::default();
    news.extend(of_provisioning(
        before.provisioning.as_ref().unwrap_or(&nothing_new),
        now.provisioning.as_ref().unwrap_or(&nothing_new),
    ));
    if let Some(why) = now.removal.as_ref().filter(|_| before.removal != now.removal) {
        news.push(bad("Remove", "OsdStays", why.clone()));
    }
    news.extend(of_drains(
        before.drains.as_ref().unwrap_or(&nothing),
        now.drains.as_ref().unwrap_or(&nothing),
    ));
    news
}

/// What is not done about new OSDs: once for each node or claim, and reason, though its text may name another time.
fn of_provisioning(before: &Provisioning, now: &Provisioning) -> Vec<News> {
    let told = |remark: &Remark| {
        before
            .remarks
            .iter()
            .any(|known| (&known.at, known.reason) == (&remark.at, remark.reason))
    };
    let remarks = now.remarks.iter().filter(|remark| !told(remark));
    let remarks = remarks.map(|remark| bad("Provision", remark.reason, remark.message.clone()));
    let fields = now
        .not_obeyed
        .iter()
        .filter(|field| !before.not_obeyed.contains(field));
    let fields = fields.map(|field| bad("ReadSpec", "FieldRemarked", field.clone()));
    remarks.chain(fields).collect()
}

fn of_drains(before: &Drained, now: &Drained) -> Vec<News> {
    let mut news = Vec::new();
    for domain in now.draining.difference(&before.draining) {
        news.push(match now.noout.get(domain) {
            Some(until) => good(
                "Drain",
                "DrainBegan",
                format!("{domain} is being drained; noout is on it until {until}"),
            ),
            None => bad(
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
            news.push(bad("Drain", "NooutOver", note));
        }
    }
    for domain in now.waiting.difference(&before.waiting) {
        let note = format!(
            "nothing of {domain} may be evicted now: {}; it may when those are back, or all placement groups \
             are clean without them",
            now.why
        );
        news.push(bad("Drain", "DrainBlocked", note));
    }
    for domain in before.draining.difference(&now.draining) {
        let note = format!("the OSDs of {domain} are back, or all placement groups are clean without them");
        news.push(good("Drain", "DrainOver", note));
    }
    news
}

/// What a person hears of the agents: that they are being brought to this release, and that they are.
pub(crate) fn of_agents(before: &AgentRollout, now: &AgentRollout) -> Option<News> {
    let agents = |news: fn(&'static str, &'static str, String) -> News, reason, what| {
        Some(news("BringAgents", reason, what))
    };
    match (before, now) {
        (AgentRollout::Rolling { .. }, AgentRollout::Rolling { .. }) => None,
        (_, AgentRollout::Rolling { why, fresh, wanted }) => agents(
            good,
            "AgentsRolling",
            format!("{fresh} of {wanted} are of this release and ready; {why}"),
        ),
        (AgentRollout::Rolling { .. }, AgentRollout::Ready { fresh, passed_over })
            if passed_over.is_empty() =>
        {
            agents(
                good,
                "AgentsReady",
                format!("all {fresh} are of this release and ready"),
            )
        }
        (_, AgentRollout::Ready { fresh, passed_over }) if !passed_over.is_empty() => agents(
            bad,
            "AgentsPassedOver",
            format!(
                "{fresh} are of this release and ready; passed over, as they are cordoned or not ready: {}",
                passed_over.join(", ")
            ),
        ),
        (_, AgentRollout::Newer(theirs)) => agents(
            bad,
            "OperatorTooOld",
            format!("they are of release {theirs}, newer than the operator, and stay so"),
        ),
        (_, AgentRollout::Unseen | AgentRollout::Without | AgentRollout::Ready { .. }) => None,
    }
}

/// What a line of a run's journal is to a person, if anything. `title`: what the run is to do; `held`: the
/// reason for which it was held before.
pub(crate) fn of_journal(entry: &Entry, title: &str, held: Option<&str>) -> Option<News> {
    let upgrade = |news: fn(&'static str, &'static str, String) -> News, reason, what: String| {
        Some(news("Upgrade", reason, format!("{title}: {what}")))
    };
    match &entry.event {
        run::Event::Started(start) => upgrade(good, "UpgradeBegan", format!("run {} began", start.run)),
        // The first holder is the one that began it.
        run::Event::LeaseTaken { holder, .. } if entry.seq > 2 => {
            upgrade(good, "UpgradeTakenOver", format!("carried on by {holder}"))
        }
        run::Event::WaveFailed { reason, .. } => upgrade(bad, "WaveFailed", reason.to_string()),
        run::Event::SetAside {
            unit,
            reason,
            until: None,
        } => upgrade(bad, "UnitLeft", format!("{unit} is left as it is: {reason}")),
        run::Event::Held { reason } if held != Some(reason.code.code()) => {
            upgrade(bad, "UpgradeHeld", reason.to_string())
        }
        run::Event::Released => upgrade(good, "UpgradeGoesOn", "no longer held".to_owned()),
        run::Event::Ended { outcome } => match outcome {
            Ending::Done => upgrade(good, "UpgradeDone", "every unit serves on the target".to_owned()),
            Ending::Incomplete { left } => {
                let left: Vec<_> = left.iter().map(|(what, why)| format!("{what} ({why})")).collect();
                upgrade(bad, "UpgradeIncomplete", format!("left: {}", left.join(", ")))
            }
            Ending::RolledBack { reason } => upgrade(bad, "UpgradeTakenBack", reason.to_string()),
            Ending::Aborted => upgrade(bad, "UpgradeEnded", "a person ended it".to_owned()),
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
pub(crate) fn unchecked(note: String) -> News {
    bad("Upgrade", "ChecksSkipped", note)
}

/// What a person should know of a spec's fields.
pub(crate) fn of_settings(settings: &Settings) -> Vec<News> {
    let mut news = Vec::new();
    if settings.skip_checks {
        let note = "skipUpgradeChecks is set: an update waits for no health, and stops one OSD at a time \
                    unchecked, though data may be unavailable meanwhile";
        news.push(bad("ReadSpec", "ChecksAreSkipped", note));
    }
    for remark in &settings.remarks {
        let note = format!("{}: {}", remark.field, remark.what);
        news.push(bad("ReadSpec", "FieldRemarked", note));
    }
    news
}

/// Sends Events of one object in the background.
pub(crate) struct Events {
    tell: mpsc::Sender<News>,
    task: JoinHandle<()>,
}

impl Events {
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
    pub(crate) fn tell(&self, news: News) {
        let reason = news.reason;
        if let Err(error) = self.tell.try_send(news) {
            tracing::warn!(%error, reason, "an Event is not sent");
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(client: Client, reporter: Reporter, object: ObjectReference, mut told: mpsc::Receiver<News>) {
    while let Some(news) = told.recv().await {
        let event = Event {
            type_: if news.warns {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: news.reason.to_owned(),
            action: news.action.to_owned(),
            note: Some(shortened(news.note)),
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

fn shortened(mut note: String) -> String {
    const MORE: &str = " …";
    if note.len() > NOTE {
        note.truncate(note.floor_char_boundary(NOTE - MORE.len()));
        note.push_str(MORE);
    }
    note
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::Timestamp;
    use serde_json::{Value, json};
    use stagger_core::model::{Code, Reason};

    use super::*;
    use crate::api::maintenance::desired;
    use crate::provision::Where;

    fn blocked(reason: &str, message: &str) -> ClusterStatus {
        ClusterStatus {
            phase: "Blocked".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..ClusterStatus::default()
        }
    }

    fn reasons(news: &[News]) -> Vec<&str> {
        news.iter().map(|news| news.reason).collect()
    }

    #[test]
    fn blocked_is_told_once_for_each_reason_and_text() {
        let ready = ClusterStatus::default();
        let one = blocked("NoImage", "set it");
        assert_eq!(
            of_status(&ready, &one),
            [bad("Update", "Blocked", "NoImage: set it")]
        );
        assert_eq!(of_status(&one, &one), []);
        let later = ClusterStatus {
            generation: 7,
            ..one.clone()
        };
        assert_eq!(of_status(&one, &later), []);
        let other = blocked("NoImage", "another text");
        assert_eq!(reasons(&of_status(&one, &other)), ["Blocked"]);
        assert_eq!(of_status(&other, &ready), []);
    }

    #[test]
    fn of_agents_people_hear_the_beginning_and_the_end() {
        let rolling = |node: &str| AgentRollout::Rolling {
            why: format!("node {node} has no agent yet"),
            fresh: 0,
            wanted: 2,
        };
        let ready = |passed_over: &[&str]| AgentRollout::Ready {
            fresh: 2,
            passed_over: passed_over.iter().map(|&node| node.to_owned()).collect(),
        };
        let reason =
            |before: &AgentRollout, now: &AgentRollout| of_agents(before, now).map(|news| news.reason);
        assert_eq!(
            reason(&AgentRollout::Unseen, &rolling("a")),
            Some("AgentsRolling")
        );
        assert_eq!(reason(&rolling("a"), &rolling("b")), None);
        assert_eq!(reason(&rolling("b"), &ready(&[])), Some("AgentsReady"));
        assert_eq!(reason(&AgentRollout::Unseen, &ready(&[])), None);
        assert_eq!(reason(&ready(&["c"]), &ready(&[])), None);
        let news = of_agents(&ready(&[]), &ready(&["c", "d"])).unwrap();
        assert!(news.warns && news.note.contains("not ready: c, d"), "{news:?}");
        let newer = AgentRollout::Newer(semver::Version::new(9, 0, 0));
        assert_eq!(reason(&AgentRollout::Unseen, &newer), Some("OperatorTooOld"));

        let first = |node: &str| blocked("AgentsFirst", &format!("node {node}"));
        assert_eq!(
            reasons(&of_status(&ClusterStatus::default(), &first("a"))),
            ["Blocked"]
        );
        assert_eq!(of_status(&first("a"), &first("b")), []);
    }

    #[test]
    fn what_is_not_done_about_new_osds_is_told_once() {
        let with = |message: &str, removal: Option<&str>| ClusterStatus {
            provisioning: Some(Provisioning {
                remarks: vec![Remark {
                    at: Where::Node("n1".to_owned()),
                    reason: "PrepareFailed",
                    message: message.to_owned(),
                }],
                not_obeyed: vec!["useAllDevices is set".to_owned()],
                ..Provisioning::default()
            }),
            removal: removal.map(str::to_owned),
            ..ClusterStatus::default()
        };
        let first = with("not empty; tried again at 10:00", Some("osd.3 stays"));
        assert_eq!(
            reasons(&of_status(&ClusterStatus::default(), &first)),
            ["PrepareFailed", "FieldRemarked", "OsdStays"]
        );
        let later = with("not empty; tried again at 10:02", Some("osd.3 stays"));
        assert_eq!(of_status(&first, &later), []);
        assert_eq!(of_status(&later, &ClusterStatus::default()), []);
    }

    #[test]
    fn what_is_wrong_with_an_object_is_told_once() {
        let with = |objects: &[(&str, &str)]| {
            let of = |&(object, why): &(&str, &str)| (object.to_owned(), why.to_owned());
            ClusterStatus {
                troubles: [("OsdUnplaced", objects.iter().map(of).collect())].into(),
                ..ClusterStatus::default()
            }
        };
        let one = with(&[("osd.1", "no label")]);
        assert_eq!(
            of_status(&ClusterStatus::default(), &one),
            [bad("Observe", "OsdUnplaced", "no label")]
        );
        let later = with(&[("osd.1", "still no label"), ("osd.2", "nor here")]);
        assert_eq!(
            of_status(&one, &later),
            [bad("Observe", "OsdUnplaced", "nor here")]
        );
        assert_eq!(of_status(&later, &ClusterStatus::default()), []);
    }

    fn drains(draining: &[&str], noout: &[&str], waiting: &[&str]) -> Drained {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let until = Timestamp::UNIX_EPOCH;
        Drained {
            why: "osd.1 down".to_owned(),
            draining: names(draining),
            waiting: names(waiting),
            noout: names(noout).into_iter().map(|name| (name, until)).collect(),
            ..Drained::default()
        }
    }

    #[test]
    fn a_drain_is_told_when_it_begins_blocks_another_and_is_over() {
        let none = Drained::default();
        let one = drains(&["a"], &["a"], &[]);
        let two = drains(&["a"], &["a"], &["b"]);
        assert_eq!(
            of_drains(&none, &one),
            [good(
                "Drain",
                "DrainBegan",
                "a is being drained; noout is on it until 1970-01-01T00:00:00Z"
            )]
        );
        let second = of_drains(&one, &two);
        assert_eq!(reasons(&second), ["DrainBlocked"]);
        assert!(
            second[0].note.contains("b may be evicted now: osd.1 down"),
            "{second:?}"
        );
        // While it lasts, what it waits for changes with every look.
        let mut counts = two.clone();
        counts.why = "osd.1 down; 3 placement groups".to_owned();
        assert_eq!(of_drains(&two, &counts), []);
        assert_eq!(
            reasons(&of_drains(&two, &drains(&["a"], &[], &["b"]))),
            ["NooutOver"]
        );
        assert_eq!(reasons(&of_drains(&two, &none)), ["DrainOver"]);
        assert_eq!(
            reasons(&of_drains(&none, &drains(&["a"], &[], &[]))),
            ["DomainDown"]
        );
    }

    fn entry(seq: u64, event: Value) -> Entry {
        Entry {
            seq,
            at: Timestamp::UNIX_EPOCH,
            event: serde_json::from_value(event).unwrap(),
        }
    }

    #[test]
    fn of_a_journal_a_person_hears_what_matters() {
        let told = |seq, event| of_journal(&entry(seq, event), "ceph 16 to 18", None);
        let reason = |news: Option<News>| news.map(|news| news.reason);
        let taken = json!({ "event": "lease-taken", "fence": 2, "holder": "b@host" });
        assert_eq!(told(2, taken.clone()), None);
        assert_eq!(
            told(9, taken),
            Some(good(
                "Upgrade",
                "UpgradeTakenOver",
                "ceph 16 to 18: carried on by b@host"
            ))
        );
        let why = serde_json::to_value(Reason::new(Code::GatesShut, "pgs-clean")).unwrap();
        let ended = |outcome: Value| reason(told(9, json!({ "event": "ended", "outcome": outcome })));
        assert_eq!(ended(json!({ "ending": "done" })), Some("UpgradeDone"));
        assert_eq!(
            ended(json!({ "ending": "rolled-back", "reason": why })),
            Some("UpgradeTakenBack")
        );
        assert_eq!(
            ended(json!({ "ending": "incomplete", "left": [["osd.1", why]] })),
            Some("UpgradeIncomplete")
        );
        assert_eq!(ended(json!({ "ending": "aborted" })), Some("UpgradeEnded"));
        let aside = |until: Value| {
            let event = json!({ "event": "set-aside", "unit": "osd.1", "reason": why, "until": until });
            reason(told(9, event))
        };
        assert_eq!(aside(Value::Null), Some("UnitLeft"));
        assert_eq!(aside(json!("2026-01-01T00:00:00Z")), None);
        assert_eq!(told(9, json!({ "event": "wave-passed" })), None);
        let held = entry(9, json!({ "event": "held", "reason": why }));
        assert_eq!(reason(of_journal(&held, "t", None)), Some("UpgradeHeld"));
        assert_eq!(
            reason(of_journal(&held, "t", Some("paused"))),
            Some("UpgradeHeld")
        );
        assert_eq!(of_journal(&held, "t", Some("gates-shut")), None);
    }

    #[test]
    fn fields_that_do_not_do_what_they_say_are_told() {
        let cluster = json!({ "skipUpgradeChecks": true, "storage": { "osdMaxUpdatesInParallel": 4 } });
        let ours = json!({ "updatePolicy": { "osds": { "maxInParallelPerCluster": 2 } } });
        let news = of_settings(&Settings::read(&desired(cluster, ours), true));
        assert_eq!(reasons(&news), ["ChecksAreSkipped", "FieldRemarked"]);
        assert!(
            news.iter().any(|news| news
                .note
                .contains("spec.updatePolicy.osds.maxInParallelPerCluster")),
            "{news:?}"
        );
        let empty = Settings::read(&desired(json!({}), json!({})), true);
        assert_eq!(of_settings(&empty), []);
    }

    #[test]
    fn a_note_fits() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("…".repeat(NOTE));
        assert!(long.len() <= NOTE && long.ends_with(" …"), "{}", long.len());
    }

    #[test]
    fn drains_survive_the_status() {
        let drained = drains(&["a"], &["a"], &["b"]);
        let value = serde_json::to_value(&drained).unwrap();
        assert_eq!(serde_json::from_value::<Drained>(value).unwrap(), drained);
        let old: BTreeMap<String, Value> = BTreeMap::new();
        assert_eq!(
            serde_json::from_value::<Drained>(json!(old)).unwrap(),
            Drained::default()
        );
    }
}
