//! What disturbs is paused, and goes on afterwards if it did before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::{CephAnswer, CephApi, CephApiError, QueryTarget};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephSettings, SoftwareByKind};
use stagger_ceph::target::{Disturbance, TargetPolicy, target};
use stagger_ceph::translate::HealthPolicy;
use stagger_conformance::guards::{Guard, what_a_later_run_holds_is_left, what_is_taken_is_released};
use stagger_core::model::{GuardName, GuardScope, PartName};
use stagger_core::run::Action;
use stagger_engine::cluster::Executor as _;

use crate::cluster::{call, fixture, recorded};

/// What of a cluster guards change.
#[derive(Default)]
struct Settings {
    balances: bool,
    flags: BTreeSet<String>,
    keys: BTreeMap<String, String>,
    changes: Vec<String>,
}

struct Cluster {
    recorded: Recorded,
    settings: Arc<Mutex<Settings>>,
}

#[async_trait]
impl CephApi for Cluster {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let text = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
        let prefix = text("prefix");
        let recorded = match prefix.as_str() {
            "osd dump" | "quorum_status" => Some(self.recorded.command(whom, command.clone()).await?.out),
            _ => None,
        };
        let mut settings = self.settings.lock().unwrap();
        if let "balancer off" | "balancer on" | "osd set" | "osd unset" = prefix.as_str() {
            settings
                .changes
                .push(format!("{prefix} {}", text("key")).trim_end().to_owned());
        }
        let out = match prefix.as_str() {
            "osd dump" => {
                let mut dump: Value = serde_json::from_slice(&recorded.unwrap()).unwrap();
                let flags: Vec<&str> = settings.flags.iter().map(String::as_str).collect();
                dump["flags"] = flags.join(",").into();
                dump
            }
            "quorum_status" => serde_json::from_slice(&recorded.unwrap()).unwrap(),
            "balancer status" => json!({ "active": settings.balances, "mode": "upmap" }),
            "balancer off" | "balancer on" => {
                settings.balances = prefix == "balancer on";
                json!({})
            }
            "osd set" => json!(settings.flags.insert(text("key"))),
            "osd unset" => json!(settings.flags.remove(&text("key"))),
            "config-key dump" => json!(settings.keys),
            "config-key set" => json!(settings.keys.insert(text("key"), text("val"))),
            "config-key rm" => json!(settings.keys.remove(&text("key"))),
            other => panic!("nobody should ask {other:?}"),
        };
        Ok(CephAnswer {
            rc: 0,
            out: out.to_string().into_bytes(),
            err: String::new(),
        })
    }
}

/// The backend of a cluster of that version with these settings.
fn backend(version: &str, settings: &Arc<Mutex<Settings>>) -> CephBackend {
    let cluster = Cluster {
        recorded: Recorded::new(fixture(version)),
        settings: Arc::clone(settings),
    };
    let of_cluster = CephSettings {
        cluster: serde_json::from_value(json!({ "name": "c" })).unwrap(),
        hosts: stagger_engine::hosts::Hosts::default(),
        software: SoftwareByKind::default(),
        health: HealthPolicy::default(),
        reboot: stagger_ceph::config::Reboot::default(),
    };
    CephBackend::new(Arc::new(cluster), of_cluster, None)
}

#[tokio::test]
async fn its_guards_have_the_laws_of_every_guard() {
    for name in ["no-balancer", "no-autoscale", "no-scrubs"] {
        let settings = Arc::new(Mutex::new(Settings {
            balances: true,
            ..Settings::default()
        }));
        let backend = backend("18.2.7", &settings);
        let now = || {
            let settings = settings.lock().unwrap();
            (settings.balances, settings.flags.clone())
        };
        let guard = Guard::new(&backend, name, &[]);
        what_is_taken_is_released(&guard, &call(), now).await;
        what_a_later_run_holds_is_left(&guard, &call(), now).await;
    }
}

/// Takes a guard twice, as who renews it, and gives it back; what was changed in between and in all.
fn taken_and_given_back(guard: &str, version: &str, before: Settings) -> (Vec<String>, Settings) {
    let settings = Arc::new(Mutex::new(before));
    let backend = backend(version, &settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let guard = GuardName::new(guard).unwrap();
    let take = Action::TakeGuard {
        guard: guard.clone(),
        units: Vec::new(),
        expires: 600,
    };
    let give = Action::DropGuard {
        guard,
        units: Vec::new(),
    };
    runtime.block_on(backend.perform(&call(), &take)).unwrap();
    runtime.block_on(backend.perform(&call(), &take)).unwrap();
    let between = settings.lock().unwrap().changes.clone();
    runtime.block_on(backend.perform(&call(), &give)).unwrap();
    drop(backend);
    let settings = Arc::into_inner(settings).unwrap().into_inner().unwrap();
    (between, settings)
}

#[test]
fn the_balancer_rests_and_goes_on_if_it_did() {
    let (between, after) = taken_and_given_back(
        "no-balancer",
        "18.2.7",
        Settings {
            balances: true,
            ..Settings::default()
        },
    );
    assert_eq!(between, ["balancer off", "balancer off"], "an ensure");
    assert!(after.balances && after.keys.is_empty(), "{:?}", after.changes);
    let (between, after) = taken_and_given_back("no-balancer", "18.2.7", Settings::default());
    assert_eq!(between, [""; 0]);
    assert!(
        !after.balances && after.changes.is_empty(),
        "somebody had switched it off"
    );
}

#[test]
fn the_autoscaler_and_scrubs_rest_by_flags_that_are_left_as_they_were_found() {
    let set = |flags: &[&str]| Settings {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Settings::default()
    };
    let (between, after) = taken_and_given_back("no-autoscale", "18.2.7", set(&[]));
    assert_eq!(between.first().map(String::as_str), Some("osd set noautoscale"));
    assert!(after.flags.is_empty() && after.keys.is_empty());
    let (between, after) = taken_and_given_back("no-autoscale", "18.2.7", set(&["noautoscale"]));
    assert!(
        between.is_empty() && after.flags.contains("noautoscale"),
        "somebody's own"
    );
    let (between, _) = taken_and_given_back("no-autoscale", "16.2.15", set(&[]));
    assert_eq!(between, [""; 0], "16 has no such flag");
    let (between, after) = taken_and_given_back("no-scrubs", "18.2.7", set(&["noscrub"]));
    assert_eq!(between.first().map(String::as_str), Some("osd set nodeep-scrub"));
    assert_eq!(
        after.flags,
        BTreeSet::from(["noscrub".to_owned()]),
        "what was set before stays"
    );
}

#[test]
fn balancer_and_autoscaler_are_paused_unless_somebody_says_otherwise_and_scrubs_if_somebody_does() {
    let guards = |pause: BTreeSet<Disturbance>| -> Vec<String> {
        let policy = TargetPolicy {
            pause,
            ..TargetPolicy::default()
        };
        let target = target(&recorded("18.2.7"), "18.2.8", &policy).unwrap();
        let osd = target.stage(&PartName::new("osd").unwrap()).unwrap();
        let of_stage = osd.guards.iter().filter(|guard| guard.scope == GuardScope::Stage);
        of_stage.map(|guard| guard.name.to_string()).collect()
    };
    assert_eq!(guards(Disturbance::defaults()), ["no-balancer", "no-autoscale"]);
    assert_eq!(guards(BTreeSet::new()), [""; 0]);
    assert_eq!(guards(BTreeSet::from([Disturbance::Scrubs])), ["no-scrubs"]);
}

/// An OSD of a release beside monitors that an older one may still join is not begun.
#[test]
fn osds_begin_when_the_monitors_demand_the_release() {
    for (from, to, gate) in [
        ("16.2.15", "18.2.7", "min-mon-release-18"),
        ("18.2.7", "20.2.4", "min-mon-release-20"),
        ("18.2.7", "18.2.8", "min-mon-release-18"),
    ] {
        let target = target(&recorded(from), to, &TargetPolicy::default()).unwrap();
        for stage in target.stages() {
            let gated = stage.gates.iter().any(|found| found.condition.as_str() == gate);
            assert_eq!(
                gated,
                stage.kind.as_str() == "osd",
                "{from} to {to}: {}",
                stage.name
            );
        }
    }
}
