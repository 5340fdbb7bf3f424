//! Runs that are begun by who asks over HTTP.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_serve::RequestTimeouts;

use crate::server::{Answer, Served};

const ID: &str = "0123456789abcdef";

fn plan(cluster: &str, flags: &[&str]) -> Value {
    json!({ "schema": { "name": "plan", "version": 1 }, "id": ID, "cluster": cluster, "flags": flags })
}

fn body(cluster: &str, flags: &[&str]) -> String {
    json!({ "cluster": cluster, "plan": plan(cluster, flags) }).to_string()
}

const UPGRADE: [&str; 3] = ["upgrade", "--to", "20.2.4"];

async fn ask(served: &Served, token: &str, key: Option<&str>, body: &str) -> Answer {
    let mut headers = vec![("authorization", token)];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    served.post("/v1/runs", &headers, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_was_looked_at_is_begun_by_one_process_in_the_name_of_who_asks() {
    let served = Served::at_address().await;
    let operate = served.token("operate", &[]);
    let body = body("rollback", &UPGRADE);
    let begun = async {
        let (words, given) = served.begun().await;
        // Nothing of what was sent is on its command line, and the plan is as it was sent.
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("run", "--yes"), "{words:?}");
        assert_eq!(
            words[3..].join(" "),
            format!("--asked-by=token operate with plan {ID}")
        );
        assert_eq!(given, plan("rollback", &UPGRADE));
        // A second one is turned away while the first is at work.
        let second = ask(&served, &operate, None, &body).await;
        assert_eq!((second.status, second.problem()), (409, "conflict".to_owned()));
        served.begin_run("rollback", "begun-1", Timestamp::now()).await;
    };
    let (answer, ()) = tokio::join!(ask(&served, &operate, Some("k"), &body), begun);
    assert_eq!(
        (answer.status, &answer.json()["run"]),
        (201, &json!("begun-1")),
        "{answer:?}"
    );
    assert_eq!(answer.header("location").as_deref(), Some("/v1/runs/begun-1"));
    // By the same key the same run, and by another none: it is not over.
    let again = ask(&served, &operate, Some("k"), &body).await;
    assert_eq!((again.status, &again.json()["run"]), (202, &json!("begun-1")));
    let other = ask(&served, &operate, Some("k2"), &body).await;
    assert_eq!(other.status, 409);
    assert!(other.body.contains("begun-1"), "{}", other.body);
    assert_eq!(served.beginnings(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_begins_and_is_refused_is_told_why_and_may_ask_again() {
    let served = Served::at_address().await;
    let operate = served.token("operate", &[]);
    let body = body("rollback", &UPGRADE);
    let refuse = async {
        served.begun().await;
        served.refuse("error: snapshot-has-moved: osd.3 is down");
    };
    let (answer, ()) = tokio::join!(ask(&served, &operate, Some("k"), &body), refuse);
    assert_eq!((answer.status, answer.problem()), (409, "not-begun".to_owned()));
    assert!(answer.body.contains("snapshot-has-moved"), "{}", answer.body);
    // Nothing was done, so the key is good still.
    served.refuse("error: and again");
    let again = ask(&served, &operate, Some("k"), &body).await;
    assert_eq!((again.status, served.beginnings()), (409, 2));
    assert!(
        again.body.contains("and again") && !again.body.contains("snapshot-has-moved"),
        "{}",
        again.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_longer_than_an_answer_may_take_is_told_to_look() {
    let limits = RequestTimeouts {
        whole: Duration::from_secs(2),
        ..RequestTimeouts::default()
    };
    let served = Served::at_address_of(limits, &["north"]).await;
    let operate = served.token("operate", &[]);
    let answer = ask(&served, &operate, None, &body("north", &UPGRADE)).await;
    assert_eq!(
        (answer.status, answer.json().get("run")),
        (202, None),
        "{answer:?}"
    );
}

#[tokio::test]
async fn nobody_begins_what_they_may_not() {
    let served = Served::at_address_of(RequestTimeouts::default(), &["north"]).await;
    let look = served.token("look", &[]);
    let other = served.token("operate", &["north"]);
    let open = body("demo", &UPGRADE);
    let over = body("rollback", &UPGRADE);
    let approving = body("rollback", &["upgrade", "--to", "20.2.4", "--interrupt=mgr"]);
    let accepting = body("rollback", &["upgrade", "--to", "20.2.4", "--accept-risk", "x"]);
    let reading = ["--risks=/etc/shadow", "--risks"]
        .map(|flag| body("rollback", &["upgrade", "--to", "20.2.4", flag, "/etc/shadow"]));
    let mismatched = json!({ "cluster": "rollback", "plan": plan("demo", &UPGRADE) }).to_string();
    let nameless = json!({ "cluster": "rollback", "plan": { "cluster": "rollback" } }).to_string();
    let configured =
        json!({ "cluster": "rollback", "plan": plan("rollback", &[]), "config": "/etc/x" }).to_string();
    let large = json!({ "cluster": "rollback", "plan": { "x": "y".repeat(17 << 20) } }).to_string();
    for (token, body, status, problem) in [
        (&look, &over, 403, "forbidden"),
        (&other, &over, 404, "no-such-cluster"),
        (&other, &body("nowhere", &UPGRADE), 404, "no-such-cluster"),
    ] {
        let answer = ask(&served, token, None, body).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (status, problem.to_owned()),
            "{answer:?}"
        );
    }
    served.revoke("operate");
    let operate = served.token("operate", &[]);
    for (body, status, problem) in [
        (&open, 409, "conflict"),
        (&approving, 403, "forbidden"),
        (&accepting, 403, "forbidden"),
        (&reading[0], 422, "malformed"),
        (&reading[1], 422, "malformed"),
        (&mismatched, 422, "malformed"),
        (&nameless, 422, "malformed"),
        (&configured, 422, "malformed"),
        (&large, 413, "malformed"),
        (&"{}".to_owned(), 422, "malformed"),
        (&body("nowhere", &UPGRADE), 404, "no-such-cluster"),
    ] {
        let answer = ask(&served, &operate, None, body).await;
        let shown: String = body.chars().take(80).collect();
        assert_eq!(
            (answer.status, answer.problem()),
            (status, problem.to_owned()),
            "{shown}: {}",
            answer.body
        );
    }
    // Where nobody knows whether one goes on, none is begun.
    served.lose_the_store();
    let answer = ask(&served, &operate, None, &over).await;
    assert_eq!((answer.status, answer.problem()), (503, "store".to_owned()));
    assert_eq!(served.beginnings(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_begin_at_once_one_does() {
    let served = Served::at_address().await;
    let operate = served.token("operate", &[]);
    let body = body("rollback", &UPGRADE);
    let asked = futures::future::join_all((0..8).map(|_| ask(&served, &operate, None, &body)));
    let begun = async {
        served.begun().await;
        served.begin_run("rollback", "begun-1", Timestamp::now()).await;
    };
    let (answers, ()) = tokio::join!(asked, begun);
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201), count(409)), (1, 7), "{answers:?}");
    assert_eq!(served.beginnings(), 1);
}
