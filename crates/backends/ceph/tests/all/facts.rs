//! Each parser on the answers of each release.

use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::Value;
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::{CephAnswer, CephApi, CephApiError, QueryTarget, command_line};
use stagger_ceph::facts::CollectError;
use stagger_core::model::Fact;

use crate::cluster::{VERSIONS, facts_of, fixture, recorded};

#[test]
fn all_releases_are_read() {
    for version in VERSIONS {
        let facts = recorded(version);
        let pgs = facts.pgs.get().unwrap();
        let first: Vec<String> = pgs
            .iter()
            .step_by(20)
            .map(|pg| {
                format!(
                    "{} {} on {:?}, reported at {}",
                    pg.id, pg.state, pg.acting, pg.reported
                )
            })
            .collect();
        let mut tree: Vec<_> = facts
            .tree
            .up
            .keys()
            .map(|osd| (osd, facts.tree.domains(*osd)))
            .collect();
        tree.truncate(3);
        insta::assert_json_snapshot!(
            format!("facts-{version}"),
            serde_json::json!({
                "osds": { "epoch": facts.osds.epoch, "require": facts.osds.require_osd_release,
                          "pools": facts.osds.pools, "first": facts.osds.osds.get(&0), "count": facts.osds.osds.len(),
                          "flags": facts.osds.flags, "node_flags": facts.osds.node_flags },
                "osd_metadata": facts.osd_metadata.first(),
                "pgs": { "count": pgs.len(), "some": first },
                "tree": tree,
                "mons": facts.mons, "mgrs": facts.mgrs, "fs": facts.fs, "gateways": facts.gateways,
                "health": facts.health, "versions": facts.versions, "crashes": facts.crashes,
                "orchestrator": facts.orchestrator, "mon_metadata": facts.mon_metadata,
            })
        );
    }
}

#[test]
fn the_brief_list_says_the_same_where_it_says_anything() {
    use stagger_ceph::facts::pg::PgMap;
    let read = |name: &str| PgMap::read(std::fs::File::open(fixture(name)).unwrap(), name).unwrap();
    let (full, brief) = (
        read("16.2.15/pg_dump.json"),
        read("16.2.15/pg_dump_pgs_brief.json"),
    );
    assert_eq!(full.len(), 97);
    // Recorded some seconds later, when a pool had been taken away.
    for pg in brief.iter() {
        let known = full.at(full.find(pg.id).unwrap());
        assert_eq!((pg.state, pg.acting), (known.state, known.acting));
        assert_eq!((pg.complete, pg.reported), (None, 0));
    }
}

/// The recorded cluster, but for some answers.
struct Changed {
    base: Recorded,
    asked: Mutex<Vec<String>>,
    change: fn(&str, usize, &mut CephAnswer),
}

impl Changed {
    fn new(version: &str, change: fn(&str, usize, &mut CephAnswer)) -> Self {
        Self {
            base: Recorded::new(fixture(version)),
            asked: Mutex::default(),
            change,
        }
    }
}

#[async_trait]
impl CephApi for Changed {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let asked = command_line(&command).join(" ");
        let before = {
            let mut all = self.asked.lock().unwrap();
            all.push(asked.clone());
            all.iter().filter(|other| **other == asked).count()
        };
        let base = if asked.starts_with("pg ls") {
            Ok(CephAnswer {
                rc: 0,
                out: Vec::new(),
                err: String::new(),
            })
        } else {
            self.base.command(whom, command).await
        };
        let mut answer = base?;
        (self.change)(&asked, before, &mut answer);
        Ok(answer)
    }
}

fn edit(answer: &mut CephAnswer, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&answer.out).unwrap();
    change(&mut value);
    answer.out = value.to_string().into_bytes();
}

#[test]
fn a_map_that_moves_is_read_again_and_given_up_in_the_end() {
    let once = Changed::new("18.2.7", |asked, time, answer| {
        if asked == "osd dump" && time == 1 {
            edit(answer, |map| map["epoch"] = 109.into());
        }
    });
    assert_eq!(facts_of(&once).unwrap().osds.epoch, 110);
    let always = Changed::new("18.2.7", |asked, time, answer| {
        if asked == "osd dump" {
            edit(answer, |map| map["epoch"] = time.into());
        }
    });
    let error = facts_of(&always).unwrap_err();
    assert!(matches!(error, CollectError::Contradict { tries: 5, .. }));
    assert!(
        error.passes() && error.to_string().starts_with("facts-contradict: "),
        "{error}"
    );
}

#[test]
fn without_a_manager_the_rest_is_known() {
    let gone = Changed::new("18.2.7", |asked, _, answer| match asked {
        "mgr dump" => edit(answer, |map| {
            map["available"] = false.into();
            map["active_name"] = "".into();
        }),
        "pg dump" => panic!("a manager that is not there was asked"),
        _ => {}
    });
    let facts = facts_of(&gone).unwrap();
    assert_eq!(facts.pgs, Fact::No("no manager is active".to_owned()));
    let silent = Changed::new("18.2.7", |asked, _, answer| {
        if asked == "pg dump" {
            answer.rc = 11;
            "not ready".clone_into(&mut answer.err);
        }
    });
    let facts = facts_of(&silent).unwrap();
    assert!(matches!(facts.pgs, Fact::No(why) if why.contains("not ready")));
}

#[test]
fn a_large_cluster_is_read_briefly_and_looked_at_closer_where_it_matters() {
    let large = Changed::new("16.2.15", |asked, _, answer| match asked {
        "status" => edit(answer, |status| status["pgmap"]["num_pgs"] = 300_000.into()),
        // osd.5 came up lately, the others long ago.
        "osd dump" => edit(answer, |map| {
            map["epoch"] = 1000.into();
            for osd in map["osds"].as_array_mut().unwrap() {
                osd["up_from"] = if osd["osd"] == 5 { 990.into() } else { 10.into() };
            }
        }),
        "pg dump" => panic!("the whole list was asked for"),
        "pg dump pgs_brief" => edit(answer, |list| {
            let group = list["pg_stats"]
                .as_array_mut()
                .unwrap()
                .iter_mut()
                .find(|pg| pg["pgid"] == "2.1b")
                .unwrap();
            group["state"] = "active+undersized+degraded".into();
        }),
        "pg ls-by-osd 5" => {
            answer.out = br#"{"pg_stats":[{"pgid":"3.1a","state":"active+clean","acting":[5,1,3],"reported_epoch":991}]}"#.to_vec();
        }
        asked if asked.starts_with("pg ls degraded undersized") => {
            answer.out = br#"{"pg_stats":[{"pgid":"2.1b","state":"active+undersized+degraded","acting":[1,3],
                "avail_no_missing":["1","3"],"reported_epoch":995}]}"#
                .to_vec();
        }
        _ => {}
    });
    let facts = facts_of(&large).unwrap();
    let pgs = facts.pgs.get().unwrap();
    let at = |name: &str| {
        pgs.at(pgs
            .find(stagger_ceph::facts::pg::PgId::parse(name).unwrap())
            .unwrap())
    };
    assert_eq!((at("3.1a").reported, at("3.1a").acting), (991, &[5, 1, 3][..]));
    assert_eq!(at("2.1b").complete, Some(&[1, 3][..]));
    assert_eq!(
        at("3.1b").reported,
        0,
        "it has osd.5, and the closer look did not show it"
    );
    assert_eq!(at("2.1a").reported, 900, "its OSDs came up long ago");
}
