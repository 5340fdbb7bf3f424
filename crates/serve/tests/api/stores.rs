//! A site with several stores.

use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_serve::RequestTimeouts;

use crate::server::{FIRST, Served};

async fn site() -> Served {
    let served = Served::at_address_of(RequestTimeouts::default(), &["north", "south"]).await;
    served
        .begin_run_in("north", "north", "north-1", Timestamp::now())
        .await;
    served
        .begin_run_in("south", "south", "south-1", Timestamp::now())
        .await;
    served
}

fn names(list: &Value) -> Vec<&str> {
    let runs = list["runs"].as_array().unwrap().iter();
    runs.map(|run| run["run"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn runs_of_all_stores_are_one_list_and_each_is_found_where_it_is() {
    let served = site().await;
    let look = served.token("look", &[]);
    let headers = [("authorization", look.as_str())];
    let list = served.with("/v1/runs", &headers).await.json();
    // The newest first.
    assert_eq!(names(&list)[..2], ["south-1", "north-1"], "{list}");
    assert_eq!((names(&list).len(), &list["away"]), (4, &json!([])));
    assert_eq!(list["runs"][0]["store"], "south");
    let one = served.with("/v1/runs?cluster=north", &headers).await.json();
    assert_eq!(names(&one), ["north-1"]);
    for run in ["north-1", "south-1", "sim-demo"] {
        assert_eq!(
            served.with(&format!("/v1/runs/{run}"), &headers).await.status,
            200,
            "{run}"
        );
    }
    let none = served.with("/v1/runs/east-1", &headers).await;
    assert_eq!((none.status, none.problem()), (404, "no-such-run".to_owned()));
    let metrics = served.with("/metrics", &headers).await.body;
    for line in [
        r#"stagger_store_up{store="north"} 1"#,
        r#"stagger_run_readable{cluster="south",run="south-1"} 1"#,
        r#"stagger_run_readable{cluster="demo",run="sim-demo"} 1"#,
    ] {
        assert!(metrics.contains(line), "no {line}: {metrics}");
    }
    // A command goes to the store of its run.
    let operate = served.token("operate", &[]);
    let pause = r#"{"command":"pause"}"#;
    let answer = served
        .post("/v1/runs/south-1/commands", &[("authorization", &operate)], pause)
        .await;
    assert_eq!(answer.status, 202);
    let run = served.with("/v1/runs/south-1", &headers).await.json();
    assert_eq!(
        run["asked"],
        json!([{ "command": "pause", "by": "token operate" }])
    );
    assert!(served.asked().await.is_empty());
}

#[tokio::test]
async fn a_store_that_is_away_is_told_beside_those_that_answer() {
    let served = site().await;
    let look = served.token("look", &[]);
    let headers = [("authorization", look.as_str())];
    served.lose("north");
    let answer = served.with("/v1/runs", &headers).await;
    let list = answer.json();
    assert_eq!((answer.status, names(&list).len()), (200, 3), "{list}");
    assert_eq!(
        (&list["away"][0]["store"], &list["away"][0]["clusters"]),
        (&json!("north"), &json!(["north"]))
    );
    assert!(
        list["away"][0]["why"].as_str().unwrap().contains("it is away"),
        "{list}"
    );
    let page = served.with("/", &headers).await;
    assert!(
        page.status == 200 && page.body.contains("it is away"),
        "{}",
        page.body
    );
    assert_eq!(served.with("/v1/runs/south-1", &headers).await.status, 200);
    // It may be in the one that does not answer: that there is no such run nobody knows.
    for run in ["north-1", "nowhere-1"] {
        let answer = served.with(&format!("/v1/runs/{run}"), &headers).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (503, "store".to_owned()),
            "{run}"
        );
    }
    let metrics = served.with("/metrics", &headers).await.body;
    assert!(
        metrics.contains(r#"stagger_store_up{store="north"} 0"#),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"stagger_store_up{store="south"} 1"#),
        "{metrics}"
    );
    for store in ["south", FIRST] {
        served.lose(store);
    }
    let answer = served.with("/v1/runs", &headers).await;
    assert_eq!((answer.status, answer.problem()), (503, "store".to_owned()));
    served.find_the_store();
    let list = served.with("/v1/runs", &headers).await.json();
    assert_eq!((names(&list).len(), &list["away"]), (4, &json!([])));
    assert_eq!(served.with("/v1/runs/nowhere-1", &headers).await.status, 404);
}

/// Who sees one cluster learns of no other, nor where stores are, also while they are away.
#[tokio::test]
async fn whose_token_is_for_one_cluster_learns_nothing_of_other_stores() {
    let served = site().await;
    let look = served.token("look", &["south"]);
    let headers = [("authorization", look.as_str())];
    served.lose("north");
    let list = served.with("/v1/runs", &headers).await.json();
    assert_eq!((names(&list), &list["away"]), (vec!["south-1"], &json!([])));
    assert_eq!(list["runs"][0].get("store"), None);
    served.lose("south");
    let answer = served.with("/v1/runs", &headers).await;
    assert_eq!(
        answer.json()["away"],
        json!([{ "store": "a store", "clusters": ["south"], "why": "it does not answer" }])
    );
    let metrics = served.with("/metrics", &headers).await.body;
    assert!(
        !metrics.contains("north") && !metrics.contains("stagger_store_up{"),
        "{metrics}"
    );
}

/// Nobody is told of the one where the other was meant.
#[tokio::test]
async fn a_run_that_two_stores_have_is_neither() {
    let served = site().await;
    let look = served.token("look", &[]);
    let headers = [("authorization", look.as_str())];
    served
        .begin_run_in("south", "south", "twin", Timestamp::now())
        .await;
    assert_eq!(served.with("/v1/runs/twin", &headers).await.status, 200);
    served
        .begin_run_in("north", "north", "twin", Timestamp::now())
        .await;
    let list = served.with("/v1/runs", &headers).await.json();
    assert_eq!(names(&list).iter().filter(|name| **name == "twin").count(), 2);
    let answer = served.with("/v1/runs/twin", &headers).await;
    assert_eq!((answer.status, answer.problem()), (409, "conflict".to_owned()));
    assert!(answer.body.contains("several stores"), "{}", answer.body);
}
