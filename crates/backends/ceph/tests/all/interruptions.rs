//! What is gone while a daemon has its turn, and whose word permits it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_ceph::api::{CephAnswer as Said, CephApi, CephApiError, QueryTarget};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephSettings, SoftwareByKind};
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::mds::{Filesystem, MetadataServer};
use stagger_ceph::facts::rgw::Gateway;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::check::check;
use stagger_core::model::{ClusterName, Policy, Snapshot, UnitId};
use stagger_core::plan::{Plan, PlanningInput, blocking_reasons, plan};
use stagger_core::run::Answer;
use stagger_engine::cluster::Executor as _;

use crate::cluster::{fixture, recorded};

fn unit(name: &str) -> UnitId {
    UnitId::new(name).unwrap()
}

fn permitted(words: &[&str]) -> Permitted {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn snapshot(facts: &CephFacts, words: &[&str]) -> Snapshot {
    let cluster = ClusterName::new("c").unwrap();
    let health = HealthPolicy::default();
    translate(&cluster, facts, &health, None, BTreeMap::new(), &permitted(words)).unwrap()
}

fn planned(facts: &CephFacts, words: &[&str]) -> (Plan, Vec<String>) {
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let snapshot = snapshot(facts, words);
    let target = target(facts, "20.2.4", &TargetPolicy::default()).unwrap();
    let policy = Policy::default();
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    assert_eq!(check(&ask, &made), []);
    let refused = blocking_reasons(&made, &policy, snapshot.terms());
    let told = refused
        .iter()
        .map(|reason| format!("{}: {}", reason.code, reason.detail));
    let told = told.collect();
    (made, told)
}

fn server(name: &str, state: &str) -> MetadataServer {
    MetadataServer {
        name: name.to_owned(),
        state: state.to_owned(),
        laggy: false,
    }
}

/// With a file system of one server, for which nothing stands by.
fn with_a_lone_server(mut facts: CephFacts) -> CephFacts {
    facts.fs.filesystems.push(Filesystem {
        name: "home".to_owned(),
        max_mds: 1,
        lost_ranks: 0,
        standby_replay: false,
        servers: vec![server("x", "up:active")],
    });
    facts.mds_metadata.push(stagger_ceph::facts::DaemonMetadata {
        name: "x".to_owned(),
        version: Some("18.2.7".to_owned()),
        host: Some("host0".to_owned()),
        kv_backend: None,
        image: None,
    });
    facts
}

fn without_a_standby_manager(mut facts: CephFacts) -> CephFacts {
    facts.mgrs.standbys.clear();
    facts
}

fn with_monitors(mut facts: CephFacts, count: usize) -> CephFacts {
    facts.mons.mons.truncate(count);
    let left = facts.mons.mons.clone();
    facts.mons.in_quorum.clone_from(&left);
    facts.mons.leader.clone_from(&left[0]);
    facts
}

fn gateway(name: &str, zone: &str, service: Option<&str>) -> Gateway {
    Gateway {
        name: name.to_owned(),
        gid: 1,
        version: Some("18.2.7".to_owned()),
        host: Some("host0".to_owned()),
        zone: Some(zone.to_owned()),
        service: service.map(str::to_owned),
    }
}

fn thin(mut facts: CephFacts) -> CephFacts {
    let pool = facts
        .osds
        .pools
        .values_mut()
        .find(|pool| pool.name == "rephost")
        .unwrap();
    pool.min_size = pool.size;
    facts
}

/// What, where, by which names and by which sort it is permitted, and what is said of it.
type Case = (
    &'static str,
    CephFacts,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

#[test]
fn who_is_without_what_is_said_before_the_run_and_a_word_permits_it() {
    let cases: [Case; 6] = [
        (
            "an active metadata server without a standby",
            with_a_lone_server(recorded("18.2.7")),
            &["mds.x"],
            &["mds"],
            "clients of the file system home wait",
        ),
        (
            "one manager",
            without_a_standby_manager(recorded("18.2.7")),
            &["mgr.x1"],
            &["mgr"],
            "no manager",
        ),
        (
            "one monitor",
            with_monitors(recorded("18.2.7"), 1),
            &["mon.m0"],
            &["mon"],
            "it is the only monitor",
        ),
        (
            "two monitors",
            with_monitors(recorded("18.2.7"), 2),
            &["mon.m0", "mon.m1"],
            &["mon"],
            "the other monitor alone is no quorum",
        ),
        (
            "a pool that needs all its copies",
            thin(recorded("18.2.7")),
            &["pool.rephost"],
            &["pool"],
            "parts of the pool rephost cannot be read",
        ),
        (
            "one gateway in its zone",
            {
                let mut facts = recorded("18.2.7");
                facts.gateways = vec![
                    gateway("a", "west", None),
                    gateway("b", "east", None),
                    gateway("c", "east", None),
                ];
                facts
            },
            &["rgw.a"],
            &["rgw"],
            "of the object gateways of zone west",
        ),
    ];
    for (what, facts, names, sort, words) in cases {
        let (made, refused) = planned(&facts, &[]);
        assert_eq!(refused.len(), names.len(), "{what}: {refused:?}");
        for (refusal, name) in refused.iter().zip(names) {
            assert!(
                refusal.starts_with("interruption-not-permitted: "),
                "{what}: {refusal}"
            );
            for word in [words, "about 60 s", &format!("--interrupt {name}")] {
                assert!(refusal.contains(word), "{what}: {word}: {refusal}");
            }
        }
        assert!(
            !made.left_alone.is_empty(),
            "{what}: nobody is interrupted unasked"
        );
        for word in [names, sort] {
            let (made, refused) = planned(&facts, word);
            assert_eq!(refused, [""; 0], "{what}");
            assert_eq!(made.left_alone, [], "{what}");
            assert!(made.interruptions.iter().all(|told| told.permitted) && !made.interruptions.is_empty());
        }
    }
}

#[test]
fn whoever_has_a_stand_in_interrupts_nobody() {
    let (made, refused) = planned(&recorded("18.2.7"), &[]);
    assert_eq!((made.interruptions, refused), (vec![], vec![]));
    let mut spared = with_a_lone_server(recorded("18.2.7"));
    spared.fs.standbys.push("y".to_owned());
    assert_eq!(snapshot(&spared, &[]).interruptions(), []);
    // All but one of several ranks stop before the stage: their servers stand by then.
    let mut ranks = with_a_lone_server(recorded("18.2.7"));
    ranks.fs.filesystems[0].servers.push(server("y", "up:active"));
    ranks.fs.filesystems[0].max_mds = 2;
    assert_eq!(snapshot(&ranks, &[]).interruptions(), []);
}

#[test]
fn what_is_permitted_is_one_at_a_time_and_never_where_something_is_down() {
    let facts = thin(recorded("18.2.7"));
    let seen = snapshot(&facts, &["pool"]);
    let pool = facts
        .osds
        .pools
        .iter()
        .find(|(_, pool)| pool.name == "rephost")
        .unwrap()
        .0;
    let stagger_core::model::Fact::Yes(pgs) = &facts.pgs else {
        panic!("the groups are known")
    };
    let group = pgs.iter().find(|pg| pg.id.pool == *pool).unwrap();
    let at = |osd: u32| seen.find(&unit(&format!("osd.{osd}"))).unwrap();
    let [a, b] = [at(group.acting[0]), at(group.acting[1])];
    let nothing = seen.down();
    assert!(seen.budgets().permit(&nothing, &[a]).is_ok());
    assert!(
        seen.budgets().permit(&nothing, &[a, b]).is_err(),
        "two of one group"
    );
    assert!(
        seen.budgets().permit(&nothing.with(&[b]), &[a]).is_err(),
        "one is down already"
    );
}

#[test]
fn gateways_stand_in_for_those_of_their_service_and_zone() {
    let mut facts = recorded("18.2.7");
    facts.gateways = vec![
        gateway("s3.h1.aaa", "west", Some("s3")),
        gateway("s3.h2.bbb", "west", Some("s3")),
        gateway("web.h1.ccc", "west", Some("web")),
        gateway("web.h2.ddd", "west", Some("web")),
    ];
    let seen = snapshot(&facts, &[]);
    assert_eq!(seen.interruptions(), []);
    let set = |names: &[&str]| -> Vec<_> {
        names
            .iter()
            .map(|name| seen.find(&unit(&format!("rgw.{name}"))).unwrap())
            .collect()
    };
    let permits = |names: &[&str]| seen.budgets().permit(&seen.down(), &set(names)).is_ok();
    assert!(permits(&["s3.h1.aaa", "web.h1.ccc"]), "one of each");
    assert!(
        !permits(&["s3.h1.aaa", "s3.h2.bbb"]),
        "both of one, though two others serve"
    );
}

#[test]
fn daemons_that_no_stage_is_for_are_told_with_their_release() {
    let mut facts = recorded("18.2.7");
    let counts = BTreeMap::from([("18.2.4".to_owned(), 2)]);
    facts.versions.by_kind.insert("rbd-mirror".to_owned(), counts);
    for kind in ["nfs", "rbd-mirror"] {
        facts.others.push(stagger_ceph::facts::rgw::OtherDaemon {
            kind: kind.to_owned(),
            version: None,
        });
    }
    let (made, _) = planned(&facts, &[]);
    let told: Vec<_> = made
        .bystanders
        .iter()
        .map(|other| (other.kind.as_str(), other.release.as_deref(), other.count))
        .collect();
    assert_eq!(told, [("nfs", None, 1), ("rbd-mirror", Some("18.2.4"), 2)]);
    assert_eq!(made.units(), 17, "they are no units");
}

/// Answers as recorded, but for the oracle.
struct Fearful {
    recorded: stagger_ceph::api::recorded::Recorded,
    thin: bool,
    answer: Value,
}

#[async_trait]
impl CephApi for Fearful {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<Said, CephApiError> {
        let prefix = command["prefix"].as_str().unwrap_or_default().to_owned();
        if prefix.ends_with("ok-to-stop") {
            return Ok(Said {
                rc: 16,
                out: self.answer.to_string().into_bytes(),
                err: "unsafe to stop now".to_owned(),
            });
        }
        let mut said = self.recorded.command(whom, command).await?;
        if prefix == "osd dump" && self.thin {
            let mut dump: Value = serde_json::from_slice(&said.out).unwrap();
            dump["pools"][1]["min_size"] = dump["pools"][1]["size"].clone();
            said.out = dump.to_string().into_bytes();
        }
        Ok(said)
    }
}

fn asked(answer: Value, thin: bool, words: &[&str], units: &[&str]) -> Answer {
    let api = Fearful {
        recorded: stagger_ceph::api::recorded::Recorded::new(fixture("18.2.7")),
        thin,
        answer,
    };
    let settings = CephSettings {
        cluster: toml_of("name = \"c\""),
        hosts: stagger_engine::hosts::Hosts::default(),
        software: SoftwareByKind::default(),
        health: HealthPolicy::default(),
        reboot: stagger_ceph::config::Reboot::default(),
    };
    // As a run has it said, from its policy and in its course.
    let words: BTreeSet<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let backend = CephBackend::new(Arc::new(api), settings, None);
    backend.permit(words);
    let units: Vec<UnitId> = units.iter().map(|name| unit(name)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(backend.check_stop(&units)).unwrap()
}

fn toml_of(text: &str) -> stagger_ceph::config::CephConfig {
    let name = text.split('"').nth(1).unwrap();
    serde_json::from_value(json!({ "name": name })).unwrap()
}

#[test]
fn a_word_overrides_the_oracle_for_what_was_permitted_and_for_nothing_else() {
    // Pool 2 is `rephost`.
    let feared = json!({ "ok_to_stop": false, "num_not_ok_pgs": 2, "bad_become_inactive": ["2.8", "2.d"] });
    let overridden = asked(feared.clone(), true, &["pool.rephost"], &["osd.0"]);
    assert!(
        matches!(&overridden, Answer::Overridden { why } if why.contains("pool.rephost") && why.contains("unsafe")),
        "{overridden:?}"
    );
    let no = |answer: Value, thin, words: &[&str], units: &[&str], why: &str| {
        let said = asked(answer, thin, words, units);
        assert!(matches!(said, Answer::No { .. }), "{why}: {said:?}");
    };
    no(feared.clone(), true, &[], &["osd.0"], "nobody's word");
    no(
        feared.clone(),
        true,
        &["pool.reprack"],
        &["osd.0"],
        "a word for another pool",
    );
    no(
        feared.clone(),
        true,
        &["mds", "mgr"],
        &["osd.0"],
        "a word for another sort",
    );
    no(
        feared.clone(),
        false,
        &["pool"],
        &["osd.0"],
        "the pool has copies to spare: it fears something else",
    );
    let mut more = feared.clone();
    more["num_not_ok_pgs"] = 3.into();
    no(
        more,
        true,
        &["pool"],
        &["osd.0"],
        "it does not name all that it fears",
    );
    let mut other = feared.clone();
    other["bad_become_inactive"] = json!(["2.8", "3.1"]);
    no(other, true, &["pool"], &["osd.0"], "a group of another pool");
    for list in ["bad_already_inactive", "bad_no_pool_pgs", "unknown_pgs"] {
        let mut worse = feared.clone();
        worse[list] = json!(["2.9"]);
        let said = asked(worse, true, &["pool"], &["osd.0"]);
        assert!(!matches!(said, Answer::Overridden { .. }), "{list}: {said:?}");
    }
    // Three monitors stand in for each other: what it fears is something else.
    no(json!({}), false, &["mon"], &["mon.m0"], "not alone");
}
