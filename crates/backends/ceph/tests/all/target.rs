//! What an upgrade takes, and when it is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::health::HealthCheck;
use stagger_ceph::facts::osd::{OsdMap, Stretch};
use stagger_ceph::facts::rgw::Gateway;
use stagger_ceph::target::{PgGate, TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::model::{ClusterName, Fact, GoingBack, Part, PartName, Policy};
use stagger_core::plan::{PlanningInput, plan};

use crate::cluster::{recorded, text};

fn rendered(facts: &CephFacts, release: &str) -> String {
    let target = target(facts, release, &TargetPolicy::default()).unwrap();
    let mut text = format!("{}\n", target.title);
    for part in &target.parts {
        match part {
            Part::Stage(stage) => {
                let gates: Vec<_> = stage.gates.iter().map(|gate| gate.condition.as_str()).collect();
                let guards: Vec<_> = stage.guards.iter().map(|guard| guard.name.as_str()).collect();
                let _ = writeln!(text, "\n{} to {}, {:?}", stage.name, stage.revision, stage.width);
                let _ = writeln!(text, "  gates {}", gates.join(" "));
                let _ = writeln!(text, "  guards {}", guards.join(" "));
                let _ = writeln!(text, "  back {:?}", stage.going_back);
                if let Some(door) = &stage.door_before_last {
                    let _ = writeln!(text, "  door {}: {}", door.name, door.why);
                }
            }
            Part::Step(step) => {
                let before: Vec<_> = step.before.iter().map(|gate| gate.condition.as_str()).collect();
                let _ = writeln!(text, "\nstep {}: {}", step.name, step.why);
                let _ = writeln!(text, "  before {}", before.join(" "));
                let _ = writeln!(text, "  door {}", step.door.as_ref().unwrap().why);
            }
        }
    }
    text
}

#[test]
fn a_major_upgrade_has_doors_and_a_minor_one_has_none() {
    insta::assert_snapshot!("target-16-18", rendered(&recorded("16.2.15"), "18.2.7"));
    insta::assert_snapshot!("target-18-20", rendered(&recorded("18.2.7"), "20.2.4"));
    let minor = target(&recorded("18.2.7"), "18.2.8", &TargetPolicy::default()).unwrap();
    assert_eq!(minor.parts.len(), 5);
    for part in &minor.parts {
        let Part::Stage(stage) = part else {
            panic!("a step in a minor update")
        };
        assert!(stage.door_before_last.is_none());
        assert_eq!(stage.going_back, GoingBack::Restart);
    }
}

/// Seen on a real cluster: its gateways enrolled seconds after the plan was made, and the run was done without them.
#[test]
fn a_gateway_that_enrols_in_mid_run_has_its_turn() {
    let before = recorded("18.2.7");
    assert!(before.gateways.is_empty());
    let target = target(&before, "20.2.4", &TargetPolicy::default()).unwrap();
    let mut later = before.clone();
    later.gateways.extend(["a", "b"].map(|name| Gateway {
        name: name.to_owned(),
        gid: 1,
        version: Some("18.2.7".to_owned()),
        host: None,
        zone: None,
        service: None,
    }));
    let planned = |facts: &CephFacts| {
        let cluster = ClusterName::new("c").unwrap();
        let (health, permitted) = (HealthPolicy::default(), Permitted::default());
        let snapshot = translate(&cluster, facts, &health, None, BTreeMap::new(), &permitted).unwrap();
        let (none, earned) = (BTreeMap::new(), BTreeMap::new());
        let plan = plan(&PlanningInput {
            snapshot: &snapshot,
            target: &target,
            policy: &Policy::default(),
            aside: &none,
            earned: &earned,
            parent: None,
        });
        let stages = plan.stages().filter(|stage| !stage.waves.is_empty());
        stages.map(|stage| stage.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(planned(&before), ["mon", "mgr", "osd"]);
    assert_eq!(planned(&later), ["mon", "mgr", "osd", "rgw"]);
}

/// Nobody knows what a daemon will run that has not been seen: the older of what others run is taken for it.
#[test]
fn who_enrols_in_mid_run_goes_back_only_where_that_was_tried() {
    let before = recorded("18.2.7");
    assert!(before.fs.filesystems.is_empty());
    let way_back = |release: &str| {
        let target = target(&before, release, &TargetPolicy::default()).unwrap();
        let mds = target.stage(&PartName::new("mds").unwrap()).unwrap();
        mds.going_back.clone()
    };
    assert!(
        matches!(way_back("20.2.4"), GoingBack::Impossible { why } if why.contains("no rollback of a mds"))
    );
    assert_eq!(way_back("18.2.8"), GoingBack::Restart);
}

#[test]
fn an_osd_has_a_way_back_from_20_only_with_the_command_that_converts_its_data() {
    let way_back = |before_rollback| {
        let policy = TargetPolicy {
            before_rollback,
            ..TargetPolicy::default()
        };
        let target = target(&recorded("18.2.7"), "20.2.4", &policy).unwrap();
        target
            .stage(&PartName::new("osd").unwrap())
            .unwrap()
            .going_back
            .clone()
    };
    assert_eq!(way_back(true), GoingBack::Restart);
    assert!(matches!(way_back(false), GoingBack::Impossible { why } if why.contains("before_rollback")));
}

#[test]
fn the_gate_on_placement_groups_is_policy() {
    let policy = TargetPolicy {
        pgs: PgGate::NotDegraded,
        ..TargetPolicy::default()
    };
    let target = target(&recorded("18.2.7"), "18.2.8", &policy).unwrap();
    let osd = target.stage(&PartName::new("osd").unwrap()).unwrap();
    let names: Vec<_> = osd.gates.iter().map(|gate| gate.condition.as_str()).collect();
    assert!(
        names.contains(&"pgs-not-degraded") && !names.contains(&"pgs-clean"),
        "{names:?}"
    );
}

#[test]
fn a_release_may_be_written_in_other_ways() {
    let title = |release: &str| {
        target(&recorded("16.2.15"), release, &TargetPolicy::default())
            .unwrap()
            .title
    };
    assert_eq!(title("v18.2.7"), "ceph 16.2.15 to 18.2.7");
    // As a vendor writes it: capitals are part of the names of packages.
    assert_eq!(title("18.2.1-262.EL9cp"), "ceph 16.2.15 to 18.2.1-262.EL9cp");
    // One version of it runs here, so that is meant.
    assert_eq!([title("16"), title("Pacific")], ["ceph 16.2.15"; 2]);
    assert_eq!(title("16.2.10"), "ceph downgrade from 16.2.15 to 16.2.10");
    let refused = target(&recorded("16.2.15"), "reef", &TargetPolicy::default()).unwrap_err();
    let why = &refused.0[0].detail;
    assert!(
        why.contains(
            "\"reef\" names a release, Ceph 18 (reef), and not which version of it: give one like 18.2.1"
        ),
        "{why}"
    );
}

fn slugs(facts: &CephFacts, release: &str) -> Vec<String> {
    let policy = TargetPolicy::default();
    let refusal = target(facts, release, &policy).unwrap_err();
    for reason in &refusal.0 {
        assert!(!reason.detail.is_empty());
    }
    refusal
        .0
        .into_iter()
        .map(|reason| reason.code.to_string())
        .collect()
}

#[test]
fn nothing_is_begun_where_it_should_not_be() {
    let sixteen = || recorded("16.2.15");
    assert_eq!(slugs(&sixteen(), "reef"), ["unknown-release"]);
    assert_eq!(slugs(&sixteen(), "31.2.0"), ["unknown-release"]);
    assert_eq!(slugs(&sixteen(), "20.2.4"), ["jump-too-long"]);
    assert_eq!(slugs(&recorded("18.2.7"), "16.2.15"), ["release-too-low"]);

    let mut ill = sixteen();
    let complaint = HealthCheck {
        error: false,
        muted: false,
        message: "1 pool full".to_owned(),
    };
    ill.health.checks.insert("POOL_FULL".to_owned(), complaint);
    assert_eq!(slugs(&ill, "18.2.7"), ["unhealthy"]);
    let mut accepting = TargetPolicy::default();
    accepting.health.accept.insert("POOL_FULL".to_owned());
    assert!(target(&ill, "18.2.7", &accepting).is_ok());
    ill.health.checks.get_mut("POOL_FULL").unwrap().muted = true;
    assert!(target(&ill, "18.2.7", &TargetPolicy::default()).is_ok());

    let mut managed = sixteen();
    managed.orchestrator = Fact::Yes(Some("cephadm".to_owned()));
    assert_eq!(slugs(&managed, "18.2.7"), ["managed-by-orchestrator"]);
    managed.orchestrator = Fact::No("the manager is silent".to_owned());
    assert_eq!(slugs(&managed, "18.2.7"), ["orchestrator-unknown"]);

    let mut stretched = sixteen();
    stretched.osds.pools.get_mut(&2).unwrap().stretch = Some(Stretch {
        buckets: 2,
        barrier: 8,
        mandatory: None,
    });
    assert_eq!(slugs(&stretched, "18.2.7"), ["stretch-cluster"]);

    let mut old = sixteen();
    old.osd_metadata[2].store = Some("filestore".to_owned());
    old.mon_metadata[0].kv_backend = Some("leveldb".to_owned());
    assert_eq!(slugs(&old, "18.2.7"), ["store-too-old"]);
    assert_eq!(slugs(&old, "17.2.9"), ["store-too-old"], "the monitor's");
    old.mon_metadata[0].kv_backend = Some("unknown".to_owned());
    assert_eq!(slugs(&old, "17.2.9"), ["store-too-old"], "unknown is unsafe");
    old.mon_metadata[0].kv_backend = Some("rocksdb".to_owned());
    assert!(target(&old, "17.2.9", &TargetPolicy::default()).is_ok());
    assert!(target(&old, "16.2.16", &TargetPolicy::default()).is_ok());

    let mut behind = recorded("18.2.7");
    behind.osds.require_osd_release = Some(16);
    assert_eq!(slugs(&behind, "20.2.4"), ["require-osd-release-behind"]);
    assert!(
        target(&behind, "18.2.7", &TargetPolicy::default()).is_ok(),
        "the step is what is left"
    );

    let mut unknown = sixteen();
    unknown.osd_metadata[1].version = None;
    assert_eq!(slugs(&unknown, "18.2.7"), ["release-unknown"]);
}

#[test]
fn a_stretch_pool_is_known_by_what_the_map_says_of_it() {
    let mut dump: serde_json::Value = serde_json::from_str(&text("18.2.7/osd_dump.json")).unwrap();
    dump["pools"][1]["peering_crush_bucket_count"] = 2.into();
    dump["pools"][1]["peering_crush_bucket_barrier"] = 8.into();
    let read = OsdMap::read(dump.to_string().as_bytes(), "osd dump").unwrap();
    assert_eq!(read.stretch_mode, None);
    let stretched: Vec<_> = read.pools.values().filter_map(|pool| pool.stretch).collect();
    let expected = Stretch {
        buckets: 2,
        barrier: 8,
        mandatory: None,
    };
    assert_eq!(stretched, [expected]);
    let plain = recorded("18.2.7").osds;
    assert!(plain.stretch_mode.is_none() && plain.pools.values().all(|pool| pool.stretch.is_none()));
}

#[test]
fn all_reasons_are_found_at_once() {
    let mut bad = recorded("20.2.4");
    bad.orchestrator = Fact::Yes(Some("cephadm".to_owned()));
    bad.osd_metadata[0].store = Some("filestore".to_owned());
    let full = HealthCheck {
        error: true,
        muted: false,
        message: "1 full osd(s)".to_owned(),
    };
    bad.health.checks.insert("OSD_FULL".to_owned(), full);
    let mut found = slugs(&bad, "18.2.7");
    found.sort();
    assert_eq!(
        found,
        [
            "managed-by-orchestrator",
            "release-too-low",
            "store-too-old",
            "unhealthy"
        ]
    );
}

#[test]
fn an_upgrade_left_half_way_goes_on() {
    let mut half = recorded("18.2.7");
    half.osds.require_osd_release = Some(16);
    let complaint = HealthCheck {
        error: false,
        muted: false,
        message: "all OSDs are running reef".to_owned(),
    };
    half.health
        .checks
        .insert("OSD_UPGRADE_FINISHED".to_owned(), complaint);
    half.health.status = "HEALTH_WARN".to_owned();
    let target = target(&half, "18.2.7", &TargetPolicy::default()).unwrap();
    assert!(
        target
            .step(&PartName::new("require-osd-release-18").unwrap())
            .is_some()
    );
}

/// Seen on a real cluster: the monitors are on 20, the OSDs are not, and somebody had ended the run.
#[test]
fn what_new_monitors_complain_of_keeps_no_half_way_upgrade_from_going_on() {
    let complaint = |error| HealthCheck {
        error,
        muted: false,
        message: "28 auth service entities with insecure key types".to_owned(),
    };
    let mut half = recorded("18.2.7");
    for code in ["AUTH_INSECURE_SERVICE_KEY_TYPE", "AUTH_INSECURE_SERVICE_TICKETS"] {
        half.health.checks.insert(code.to_owned(), complaint(true));
    }
    half.health.status = "HEALTH_ERR".to_owned();
    assert_eq!(slugs(&half, "20.2.4"), ["unhealthy"], "no run has begun");
    for mon in &mut half.mon_metadata {
        mon.version = Some("20.2.4".to_owned());
    }
    assert!(target(&half, "20.2.4", &TargetPolicy::default()).is_ok());
    // A new cluster of that release complains so from its first hour.
    let mut new = recorded("20.2.4");
    assert_eq!(new.health.status, "HEALTH_ERR");
    assert!(new.health.checks.contains_key("AUTH_INSECURE_SERVICE_TICKETS"));
    assert!(target(&new, "20.2.5", &TargetPolicy::default()).is_ok());
    new.health.checks.insert("OSD_FULL".to_owned(), complaint(true));
    assert_eq!(slugs(&new, "20.2.5"), ["unhealthy"]);
    // What no release asks anew is a complaint as ever.
    half.health.checks.insert("OSD_FULL".to_owned(), complaint(true));
    assert_eq!(slugs(&half, "20.2.4"), ["unhealthy"]);
}
