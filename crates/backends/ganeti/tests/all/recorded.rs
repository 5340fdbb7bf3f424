//! Answers of a real Ganeti 3.0.2, served as they were recorded.

use std::path::PathBuf;

use axum::extract::Request;
use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_core::model::Storage;
use stagger_core::model::{ClusterName, UnitState, Verdict};
use stagger_ganeti::config::Visits;
use stagger_ganeti::facts::{NodeRole, RapiAnswers, RunState, facts};
use stagger_ganeti::goal::EvacuationGoal;
use stagger_ganeti::rapi::client::Rapi;
use stagger_ganeti::translate::live::live_snapshot;

use crate::common::settings;

fn recorded(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/answers")
        .join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Of a recorded query for more fields the two that are asked for.
fn boots() -> Value {
    let rows = recorded("query_nodes")["data"].clone();
    let rows: Vec<Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row[0], row[8]]))
        .collect();
    json!({ "data": rows })
}

async fn answer(request: Request) -> String {
    let answer = match request.uri().path() {
        "/2/info" => recorded("info"),
        "/2/groups" => recorded("groups_bulk"),
        "/2/nodes" => recorded("nodes_bulk"),
        "/2/instances" => recorded("instances_bulk"),
        "/2/query/node" => boots(),
        "/2/jobs" => recorded("jobs_bulk"),
        "/2/filters" => recorded("filters"),
        other => panic!("{other} is not recorded"),
    };
    answer.to_string()
}

async fn rapi() -> (Rapi, tempfile::TempDir) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(&[&address], folder.path(), Visits::default());
    (Rapi::new(&settings).unwrap(), folder)
}

#[tokio::test]
async fn recorded_answers_make_facts_and_a_snapshot() {
    let (rapi, _folder) = rapi().await;
    let (facts, cluster) = rapi.observe().await.unwrap();
    assert_eq!(
        (facts.master.as_str(), facts.release.as_str()),
        ("node1", "3.0.2")
    );
    assert_eq!(facts.nodes.len(), 4);
    assert_eq!(facts.nodes["node1"].role, NodeRole::Master);
    assert!(facts.nodes.values().all(|node| node.boot.is_some()));
    let first = &facts.instances["instance1"];
    assert_eq!(
        (first.primary.as_str(), first.secondary.as_deref()),
        ("node1", Some("node2"))
    );
    assert_eq!((first.storage, first.doing), (Storage::Copied, RunState::Up));
    assert_eq!(facts.instances["instance5"].storage, Storage::Shared);

    let filters = rapi.filters().await.unwrap();
    assert_eq!(filters.len(), 2);
    assert!(
        filters.iter().all(|filter| filter.record().is_none()),
        "they are not ours"
    );
    assert!(!rapi.jobs().await.unwrap().is_empty());

    let name = ClusterName::new("lab").unwrap();
    let visits = Visits {
        failover: Some("true".to_owned()),
        ..Visits::default()
    };
    let snapshot = live_snapshot(&name, &facts, &cluster, None, &EvacuationGoal::default(), &visits).unwrap();
    assert_eq!(snapshot.capacity().unwrap().guests().len(), facts.instances.len());
    assert_eq!(snapshot.units().len(), 4);
    assert!(
        snapshot
            .units()
            .iter()
            .all(|unit| unit.state == UnitState::Serving)
    );
    assert!(
        snapshot
            .conditions()
            .all(|condition| condition.verdict == Verdict::Yes)
    );
    assert!(snapshot.budgets().len() >= 4, "four pairs in a ring");
}

#[tokio::test]
async fn recorded_jobs_are_read() {
    let (rapi, _folder) = rapi().await;
    let jobs = rapi.jobs().await.unwrap();
    assert_eq!(jobs[0].summary, "CLUSTER_POST_INIT");
    assert!(jobs.len() > 30);
    assert!(jobs.iter().all(|job| job.reason.is_none()), "none is ours");
}

/// All places in a document, as pointers.
fn places_in(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(parts) => {
            for (nth, part) in parts.iter().enumerate().take(3) {
                places_in(part, &format!("{at}/{nth}"), found);
            }
        }
        Value::Object(parts) => {
            for (name, part) in parts {
                places_in(part, &format!("{at}/{}", name.replace('/', "~1")), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whatever stands at whatever place of an answer: an error or facts, and never a panic. What the facts
/// rest upon is never missed in silence.
#[test]
fn damaged_answers_are_errors_or_facts() {
    let whole = || RapiAnswers {
        info: recorded("info"),
        groups: recorded("groups_bulk"),
        nodes: recorded("nodes_bulk"),
        boots: boots(),
        instances: recorded("instances_bulk"),
        jobs: recorded("jobs_bulk"),
    };
    let name = ClusterName::new("lab").unwrap();
    let good = facts(Timestamp::UNIX_EPOCH, whole()).unwrap();
    let (mut errors, mut others) = (0, 0);
    for part in 0..5 {
        let of = |answers: &RapiAnswers| match part {
            0 => answers.info.clone(),
            1 => answers.groups.clone(),
            2 => answers.nodes.clone(),
            3 => answers.boots.clone(),
            _ => answers.instances.clone(),
        };
        let mut found = Vec::new();
        places_in(&of(&whole()), "", &mut found);
        for place in found {
            for wrong in [Value::Null, json!("x"), json!([]), json!({}), json!(-1)] {
                let mut damaged = of(&whole());
                *damaged.pointer_mut(&place).unwrap() = wrong;
                let mut answers = whole();
                match part {
                    0 => answers.info = damaged,
                    1 => answers.groups = damaged,
                    2 => answers.nodes = damaged,
                    3 => answers.boots = damaged,
                    _ => answers.instances = damaged,
                }
                let cluster = answers.cluster();
                match facts(Timestamp::UNIX_EPOCH, answers) {
                    Err(_) => errors += 1,
                    Ok(read) => {
                        others += u32::from(read != good);
                        let Ok(cluster) = cluster else { continue };
                        let _ = live_snapshot(
                            &name,
                            &read,
                            &cluster,
                            None,
                            &EvacuationGoal::default(),
                            &Visits::default(),
                        );
                    }
                }
            }
        }
    }
    assert!(
        errors > 100 && others > 20,
        "{errors} errors, {others} other facts"
    );
}
