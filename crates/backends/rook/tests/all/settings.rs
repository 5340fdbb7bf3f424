//! What the fields of a CephMaintenance and of a CephCluster come to, and what is said of them.

#![allow(clippy::unwrap_used, reason = "test code")]

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use stagger_ceph::target::PgGate;
use stagger_core::model::{Doors, Growth, Kind, Limit, OnFailure, Order};
use stagger_rook::api::cluster::CephCluster;
use stagger_rook::api::maintenance::{CephMaintenance, Desired};
use stagger_rook::api::settings::PolicySettings;

/// Of the two specs; the policy is that of the CephMaintenance.
fn desired(mut cluster: Value) -> Desired {
    let policy = cluster.as_object_mut().unwrap().remove("updatePolicy");
    let mut maintenance = json!({ "cephCluster": "c" });
    if let Some(policy) = policy {
        maintenance["updatePolicy"] = policy;
    }
    Desired {
        maintenance: CephMaintenance::new("m", serde_json::from_value(maintenance).unwrap()),
        cluster: CephCluster::new("c", serde_json::from_value(cluster).unwrap()),
    }
}

fn read(spec: Value) -> PolicySettings {
    PolicySettings::read(&desired(spec), true)
}

fn osds(settings: &PolicySettings) -> Limit {
    let osd = Kind::new("osd").unwrap();
    let policy = &settings.policy;
    *policy
        .max_in_parallel_of
        .get(&osd)
        .unwrap_or(&policy.max_in_parallel)
}

#[test]
fn nothing_set_is_15_percent_growing_and_checked() {
    let settings = read(json!({}));
    assert_eq!(osds(&settings), Limit::Percent(15));
    assert_eq!(settings.policy.growth, Growth::Double);
    assert_eq!(settings.policy.doors, Doors::Ask);
    assert!(!settings.skip_checks && !settings.remove_osds && !settings.paused);
    assert!(settings.remarks.is_empty());
}

#[test]
fn a_new_release_goes_back_and_a_new_revision_goes_on() {
    let of = |release_changes| {
        PolicySettings::read(&desired(json!({})), release_changes)
            .policy
            .on_failure
    };
    assert_eq!((of(true), of(false)), (OnFailure::Rollback, OnFailure::Continue));
    let told = json!({ "updatePolicy": { "onFailure": "stop" } });
    assert_eq!(read(told).policy.on_failure, OnFailure::Stop);
}

#[test]
fn what_a_person_permits_is_part_of_the_policy() {
    let nothing = read(json!({})).policy;
    assert!(nothing.interruptions.is_empty() && !nothing.partial);
    let said = json!({ "updatePolicy": { "interruptions": ["pool.rbd", "mon"], "partial": true } });
    let policy = read(said).policy;
    assert_eq!(
        policy
            .interruptions
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["mon", "pool.rbd"]
    );
    assert!(policy.partial);
}

#[test]
fn rooks_fields_are_honoured() {
    let settings = read(json!({
        "skipUpgradeChecks": true,
        "continueUpgradeAfterChecksEvenIfNotHealthy": true,
        "removeOSDsIfOutAndSafeToRemove": true,
        "waitTimeoutForHealthyOSDInMinutes": 20,
        "storage": { "osdMaxUpdatesInParallel": 4, "useAllNodes": true },
    }));
    assert!(settings.skip_checks && settings.remove_osds);
    assert_eq!(settings.policy.on_failure, OnFailure::Continue);
    assert_eq!(osds(&settings), Limit::Count(4));
    assert_eq!(settings.policy.gate_timeout, 1200);
    // They are Rook's own: nothing is wrong with them.
    assert_eq!(settings.remarks, []);
}

#[test]
fn that_an_update_waits_for_healthy_groups_all_the_same_is_said_where_rook_would_not() {
    for (said, remarked) in [(json!(null), 0), (json!(true), 0), (json!(false), 1)] {
        let settings = read(json!({ "upgradeOSDRequiresHealthyPGs": said }));
        let about = |remark: &&_| {
            let remark: &stagger_rook::api::policy::FieldWarning = remark;
            remark.field == "spec.upgradeOSDRequiresHealthyPGs"
        };
        assert_eq!(settings.remarks.iter().filter(about).count(), remarked, "{said}");
        assert_eq!(settings.groups, PgGate::Clean);
    }
}

#[test]
fn how_long_a_daemon_may_take_to_start_is_policy() {
    let of = |minutes: i64| read(json!({ "updatePolicy": { "startTimeoutMinutes": minutes } }));
    assert_eq!(read(json!({})).start_timeout, None);
    assert_eq!(of(45).start_timeout, Some(2700));
    let absurd = of(-1);
    assert_eq!((absurd.start_timeout, absurd.remarks.len()), (None, 1));
}

#[test]
fn that_of_the_maintenance_counts_where_both_are_set_and_that_is_said() {
    let settings = read(json!({
        "skipUpgradeChecks": true,
        "storage": { "osdMaxUpdatesInParallel": 20 },
        "updatePolicy": {
            "skipUpgradeChecks": false,
            "osds": { "maxInParallelPerCluster": "10%" },
        },
    }));
    assert!(!settings.skip_checks);
    assert_eq!(osds(&settings), Limit::Percent(10));
    let fields: Vec<_> = settings
        .remarks
        .iter()
        .map(|remark| remark.field.as_str())
        .collect();
    assert_eq!(
        fields,
        ["spec.skipUpgradeChecks", "spec.storage.osdMaxUpdatesInParallel"]
    );
    // The same said twice is no news.
    let twice = json!({ "skipUpgradeChecks": true, "updatePolicy": { "skipUpgradeChecks": true } });
    assert!(read(twice).remarks.is_empty());
}

#[test]
fn of_the_two_spellings_of_removal_the_one_that_says_no_counts() {
    let of = |remove, destroy| {
        read(json!({ "removeOSDsIfOutAndSafeToRemove": remove, "removeOSDsIfOutAndSafeToDestroy": destroy }))
            .remove_osds
    };
    assert!(of(json!(true), json!(true)) && of(Value::Null, json!(true)));
    assert!(!of(json!(true), json!(false)));
}

/// Rook's default, and what it is set to where the balancer never rests.
#[test]
fn groups_that_move_are_healthy_where_the_cluster_says_so_and_those_that_lack_copies_never() {
    let of = |regex: &str| {
        let settings = read(json!({ "disruptionManagement": { "pgHealthyRegex": regex } }));
        (settings.groups, settings.remarks.len())
    };
    let default = r"^(active\+clean|active\+clean\+scrubbing|active\+clean\+scrubbing\+deep)$";
    assert_eq!(of(default), (PgGate::Clean, 0));
    let moving = r"^active\+(clean|remapped)(\+(backfilling|backfill_wait|scrubbing|deep))*$";
    assert_eq!(of(moving), (PgGate::NotDegraded, 0));
    assert_eq!(of("^active"), (PgGate::NotDegraded, 1));
    assert_eq!(of("("), (PgGate::Clean, 1));
    assert_eq!(read(json!({})).groups, PgGate::Clean);
}

#[test]
fn bold_and_careful_wishes_reach_the_policy() {
    let settings = read(json!({ "updatePolicy": {
        "pause": true,
        "healthErrorsToIgnore": ["POOL_NO_REDUNDANCY"],
        "doorsOpenAfterMinutes": 60,
        "windows": [{ "days": ["sat"], "from": "22:00", "until": "05:00", "zone": "Europe/Berlin" }],
        "osds": { "maxInParallelPerCluster": 8, "grow": false, "oneFailureDomainAtATime": "zone", "soakSeconds": 90 },
    }}));
    let policy = &settings.policy;
    assert_eq!(osds(&settings), Limit::Count(8));
    assert_eq!((policy.growth, policy.soak), (Growth::None, 90));
    assert_eq!(policy.order, Order::ByDomain("zone".to_owned()));
    assert_eq!(policy.doors, Doors::AutoAfter(3600));
    assert_eq!(policy.windows.len(), 1);
    assert!(settings.paused && settings.accepted == ["POOL_NO_REDUNDANCY"]);
    assert_eq!(settings.remarks, []);
}

#[test]
fn what_is_absurd_is_named_and_taken_as_not_set() {
    let settings = read(json!({
        "storage": { "osdMaxUpdatesInParallel": -3 },
        "waitTimeoutForHealthyOSDInMinutes": -1,
        "updatePolicy": {
            "windows": [{ "days": ["Caturday"], "from": "22:00", "until": "05:00", "zone": "Europe/Berlin" }],
            "osds": { "maxInParallelPerCluster": "150%", "soakSeconds": -1 },
        },
    }));
    assert_eq!(osds(&settings), Limit::Percent(15));
    let fields: Vec<_> = settings
        .remarks
        .iter()
        .map(|remark| remark.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.updatePolicy.osds.maxInParallelPerCluster",
            "spec.storage.osdMaxUpdatesInParallel",
            "spec.updatePolicy.osds.soakSeconds",
            "spec.waitTimeoutForHealthyOSDInMinutes",
            "spec.updatePolicy.windows[0]",
        ]
    );
}

/// What a spec does not say may be said by a later release: a default would be written down for ever.
#[test]
fn the_definition_has_no_defaults() {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    if name == "default" && !path.ends_with("/properties") {
                        found.push(path.to_owned());
                    }
                    walk(inner, &format!("{path}/{name}"), found);
                }
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(inner, path, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let definition = serde_json::to_value(CephMaintenance::crd()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut defaults = Vec::new();
    walk(schema, "", &mut defaults);
    assert_eq!(defaults, Vec::<String>::new());
}
