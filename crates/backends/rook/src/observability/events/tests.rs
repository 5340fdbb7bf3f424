use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_core::model::{Code, Reason};

use super::*;
use crate::api::maintenance::desired;
use crate::provision::JobTarget;

fn blocked(reason: &str, message: &str) -> ClusterStatus {
    ClusterStatus {
        phase: "Blocked".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..ClusterStatus::default()
    }
}

fn reasons(news: &[EventRecord]) -> Vec<&str> {
    news.iter().map(|news| news.reason).collect()
}

#[test]
fn blocked_is_told_once_for_each_reason_and_text() {
    let ready = ClusterStatus::default();
    let one = blocked("NoImage", "set it");
    assert_eq!(
        of_status(&ready, &one),
        [warning("Update", "Blocked", "NoImage: set it")]
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
    let reason = |before: &AgentRollout, now: &AgentRollout| of_agents(before, now).map(|news| news.reason);
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
            remarks: vec![ProvisioningWarning {
                at: JobTarget::Node("n1".to_owned()),
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
        [warning("Observe", "OsdUnplaced", "no label")]
    );
    let later = with(&[("osd.1", "still no label"), ("osd.2", "nor here")]);
    assert_eq!(
        of_status(&one, &later),
        [warning("Observe", "OsdUnplaced", "nor here")]
    );
    assert_eq!(of_status(&later, &ClusterStatus::default()), []);
}

fn drains(draining: &[&str], noout: &[&str], waiting: &[&str]) -> DrainStatus {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    let until = Timestamp::UNIX_EPOCH;
    DrainStatus {
        why: "osd.1 down".to_owned(),
        draining: names(draining),
        waiting: names(waiting),
        noout: names(noout).into_iter().map(|name| (name, until)).collect(),
        ..DrainStatus::default()
    }
}

#[test]
fn a_drain_is_told_when_it_begins_blocks_another_and_is_over() {
    let none = DrainStatus::default();
    let one = drains(&["a"], &["a"], &[]);
    let two = drains(&["a"], &["a"], &["b"]);
    assert_eq!(
        of_drains(&none, &one),
        [normal(
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
    let reason = |news: Option<EventRecord>| news.map(|news| news.reason);
    let taken = json!({ "event": "lease-taken", "fence": 2, "holder": "b@host" });
    assert_eq!(told(2, taken.clone()), None);
    assert_eq!(
        told(9, taken),
        Some(normal(
            "Upgrade",
            "UpgradeTakenOver",
            "ceph 16 to 18: taken over by b@host"
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
    let news = of_settings(&PolicySettings::read(&desired(cluster, ours), true));
    assert_eq!(reasons(&news), ["ChecksAreSkipped", "FieldRemarked"]);
    assert!(
        news.iter().any(|news| news
            .note
            .contains("spec.updatePolicy.osds.maxInParallelPerCluster")),
        "{news:?}"
    );
    let empty = PolicySettings::read(&desired(json!({}), json!({})), true);
    assert_eq!(of_settings(&empty), []);
}

#[test]
fn a_note_fits() {
    assert_eq!(truncate("short".to_owned()), "short");
    let long = truncate("…".repeat(NOTE));
    assert!(long.len() <= NOTE && long.ends_with(" …"), "{}", long.len());
}

#[test]
fn drains_survive_the_status() {
    let drained = drains(&["a"], &["a"], &["b"]);
    let value = serde_json::to_value(&drained).unwrap();
    assert_eq!(serde_json::from_value::<DrainStatus>(value).unwrap(), drained);
    let old: BTreeMap<String, Value> = BTreeMap::new();
    assert_eq!(
        serde_json::from_value::<DrainStatus>(json!(old)).unwrap(),
        DrainStatus::default()
    );
}
