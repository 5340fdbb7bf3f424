//! What is served, asked for as a browser and as a program would.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

#[allow(dead_code, reason = "each file of tests asks in its own way")]
mod server;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use server::{Answer, Served};
use stagger_core::run::Command;

/// The run that is not over, as its journal stood at some event, and one that is.
const OPEN: &str = "/v1/runs/sim-demo";
const OVER: &str = "/v1/runs/sim-rollback";

fn command(text: &Value) -> String {
    text.to_string()
}

async fn plan_of(served: &Served) -> String {
    let run = served.get(OPEN).await.json();
    run["plan"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn runs_are_listed_and_told_and_told_again_only_when_something_is_new() {
    let served = Served::at_socket().await;
    let list = served.get("/v1/runs").await.json();
    let names: Vec<&str> = list["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{list}");
    let one = served.get("/v1/runs?cluster=demo").await.json();
    assert_eq!(one["runs"].as_array().unwrap().len(), 1);

    let first = served.get(OPEN).await;
    assert_eq!(first.status, 200);
    let run = first.json();
    // Nobody has said that they carry it out.
    assert_eq!(
        (run["verdict"].as_str(), run["run"].as_str()),
        (Some("interrupted"), Some("sim-demo"))
    );
    let tag = first.header("etag").unwrap();
    let again = served.with(OPEN, &[("if-none-match", &tag)]).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    served.write(1).await;
    assert_eq!(served.with(OPEN, &[("if-none-match", &tag)]).await.status, 200);
}

/// The page of the reference has each metric, and no other.
#[tokio::test]
async fn each_metric_is_in_the_reference() {
    let served = Served::at_socket().await;
    let metrics = served.get("/metrics").await.body;
    let answered: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"))
        .collect();
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics-serve.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0))
        .collect();
    assert_eq!(answered, documented);
    assert_eq!(answered.len(), metrics.matches("# TYPE ").count(), "{metrics}");
}

/// A list has an end, and a cluster with few runs is not hidden by one with many.
#[tokio::test]
async fn the_runs_of_one_cluster_hide_none_of_another() {
    let served = Served::at_socket().await;
    served.crowd(120).await;
    let count = async |path: &str| {
        let list = served.get(path).await.json();
        list["runs"].as_array().unwrap().len()
    };
    assert_eq!(count("/v1/runs").await, 100);
    assert_eq!(count("/v1/runs?cluster=rollback").await, 1);
    let metrics = served.get("/metrics").await.body;
    assert!(
        metrics.contains(r#"stagger_run_readable{cluster="rollback",run="sim-rollback"} 1"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn events_come_in_parts_and_none_is_left_out() {
    let served = Served::at_socket().await;
    let whole = served.get(&format!("{OPEN}/events")).await.json();
    let all = whole["events"].as_array().unwrap().clone();
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let part = served
            .get(&format!("{OPEN}/events?after={after}&limit=60"))
            .await
            .json();
        let events = part["events"].as_array().unwrap().clone();
        seen.extend(events.iter().cloned());
        if part["more"] == json!(false) {
            break;
        }
        after = events.last().unwrap()["seq"].as_u64().unwrap();
    }
    assert_eq!(seen, all);
    assert_eq!(all[0]["event"], "started");
}

#[tokio::test]
async fn a_stream_goes_on_where_it_ended_and_tells_what_is_written() {
    let served = Served::at_socket().await;
    let newest = served.get(OPEN).await.json()["seq"].as_u64().unwrap();
    let last = (newest - 2).to_string();
    let mut stream = served
        .stream(&format!("{OPEN}/stream"), &[("last-event-id", &last)])
        .await;
    let ids = |text: &str| -> Vec<u64> {
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.map(|id| id.parse().unwrap()).collect()
    };
    let first = stream.until("event: run").await;
    assert_eq!(ids(&first), [newest - 1, newest], "{first}");
    served.write(1).await;
    let next = stream.until("event: run").await;
    assert_eq!(ids(&next), [newest + 1], "{next}");
}

#[tokio::test]
async fn a_command_is_left_in_the_name_of_who_asks() {
    let served = Served::at_socket().await;
    let body = command(&json!({ "command": "pause" }));
    let answer = served.post(&format!("{OPEN}/commands"), &[], &body).await;
    assert_eq!(
        (answer.status, answer.json()["verdict"].as_str()),
        (202, Some("interrupted"))
    );
    assert_eq!(served.asked().await, [(Command::Pause, "anna@ops1".to_owned())]);
    // Whoever asked sees that nobody has heeded it yet.
    let run = served.get(OPEN).await.json();
    assert_eq!(run["asked"], json!([{ "command": "pause", "by": "anna@ops1" }]));
    let page = served.get("/runs/sim-demo").await.body;
    assert!(
        page.contains("</b> was requested by anna@ops1; the run is interrupted"),
        "{page}"
    );
    let over = served.post(&format!("{OVER}/commands"), &[], &body).await;
    assert_eq!((over.status, over.problem()), (409, "conflict".to_owned()));
}

#[tokio::test]
async fn a_run_that_nobody_carries_out_is_carried_on_by_one_process() {
    let served = Served::at_socket().await;
    let to = format!("{OPEN}/commands");
    let ask = async |word: &str| {
        let answer = served.post(&to, &[], &command(&json!({ "command": word }))).await;
        assert_eq!(answer.status, 202, "{word}");
    };
    // What only holds a run back starts nobody.
    ask("pause").await;
    for word in ["resume", "resume", "abort"] {
        ask(word).await;
    }
    let begun = async || {
        for _ in 0..500 {
            if !served.started().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        served.started()
    };
    assert_eq!(begun().await, ["sim-demo"]);
    assert_eq!(served.asked().await.len(), 4);
}

#[tokio::test]
async fn an_approval_is_of_the_plan_that_was_looked_at() {
    let served = Served::at_socket().await;
    let to = format!("{OPEN}/commands");
    let word = served.get(OPEN).await.json()["words"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let approve = |door: &str, plan: Option<&str>| {
        let mut text = json!({ "command": "approve", "door": door });
        if let Some(plan) = plan {
            text["plan"] = plan.into();
        }
        command(&text)
    };
    let without = served.post(&to, &[], &approve(&word, None)).await;
    assert_eq!((without.status, without.problem()), (422, "malformed".to_owned()));
    let other = served
        .post(&to, &[], &approve(&word, Some("0123456789abcdef")))
        .await;
    assert_eq!((other.status, other.problem()), (412, "moved".to_owned()));
    let plan = plan_of(&served).await;
    let unknown = served.post(&to, &[], &approve("no-such-word", Some(&plan))).await;
    assert_eq!((unknown.status, unknown.problem()), (409, "conflict".to_owned()));
    assert!(served.asked().await.is_empty());
    let right = served.post(&to, &[], &approve(&word, Some(&plan))).await;
    assert_eq!(right.status, 202);
    assert!(matches!(&served.asked().await[..], [(Command::Approve { door }, _)] if door.as_str() == word));
}

#[tokio::test]
async fn what_is_sent_twice_with_a_key_is_done_once_and_only_upon_what_was_seen() {
    let served = Served::at_socket().await;
    let to = format!("{OPEN}/commands");
    let pause = command(&json!({ "command": "pause" }));
    for _ in 0..3 {
        let answer = served.post(&to, &[("idempotency-key", "k1")], &pause).await;
        assert_eq!(answer.status, 202);
    }
    assert_eq!(served.asked().await.len(), 1);
    let resume = command(&json!({ "command": "resume" }));
    let other = served.post(&to, &[("idempotency-key", "k1")], &resume).await;
    assert_eq!(other.status, 422);

    let tag = served.get(OPEN).await.header("etag").unwrap();
    served.write(1).await;
    let late = served
        .post(&to, &[("if-match", &tag), ("idempotency-key", "k2")], &resume)
        .await;
    assert_eq!((late.status, late.problem()), (412, "moved".to_owned()));
    // It was not done, so it may come again.
    let tag = served.get(OPEN).await.header("etag").unwrap();
    let answer = served
        .post(&to, &[("if-match", &tag), ("idempotency-key", "k2")], &resume)
        .await;
    assert_eq!(answer.status, 202);
    assert_eq!(served.asked().await.len(), 2);
}

#[tokio::test]
async fn no_page_from_elsewhere_asks_in_the_name_of_the_user() {
    let served = Served::at_socket().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let ours = [("origin", "http://localhost"), ("sec-fetch-site", "same-origin")];
    let ask = async |more: &[(&str, &str)]| {
        let headers: Vec<(&str, &str)> = form.iter().chain(more).copied().collect();
        served
            .post("/runs/sim-demo/commands", &headers, "command=pause")
            .await
            .status
    };
    assert_eq!(ask(&ours).await, 303);
    assert_eq!(served.asked().await.len(), 1);
    for foreign in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", "http://localhost")],
    ] {
        assert_eq!(ask(foreign).await, 403, "{foreign:?}");
    }
    assert_eq!(served.asked().await.len(), 1);
    // A name of somebody's that leads here.
    let rebound = served.with(OPEN, &[("host", "evil.example:8080")]).await;
    assert_eq!(rebound.status, 403);
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]"] {
        assert_eq!(served.with(OPEN, &[("host", host)]).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn who_has_a_token_may_do_what_it_is_for_and_no_more() {
    let served = Served::at_address().await;
    let pause = command(&json!({ "command": "pause" }));
    let to = format!("{OPEN}/commands");
    for path in [
        "/v1/runs",
        OPEN,
        "/v1/openapi.json",
        "/metrics",
        &format!("{OPEN}/stream"),
    ] {
        let answer = served.get(path).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (401, "no-token".to_owned()),
            "{path}"
        );
        let wrong = served
            .with(path, &[("authorization", "Bearer stagger_AAAA")])
            .await;
        assert_eq!(wrong.status, 401, "{path}");
    }
    let page = served.get("/").await;
    assert_eq!(
        (page.status, page.header("location").as_deref()),
        (303, Some("/login"))
    );

    let look = served.token("look", &["demo"]);
    assert_eq!(served.with(OPEN, &[("authorization", &look)]).await.status, 200);
    let refused = served.post(&to, &[("authorization", &look)], &pause).await;
    assert_eq!((refused.status, refused.problem()), (403, "forbidden".to_owned()));
    // Of a cluster that it is not for nobody says even that there is one.
    assert_eq!(served.with(OVER, &[("authorization", &look)]).await.status, 404);
    let list = served.with("/v1/runs", &[("authorization", &look)]).await.json();
    assert_eq!(list["runs"].as_array().unwrap().len(), 1);

    let operate = served.token("operate", &[]);
    assert_eq!(
        served
            .post(&to, &[("authorization", &operate)], &pause)
            .await
            .status,
        202
    );
    assert_eq!(
        served.asked().await,
        [(Command::Pause, "token operate".to_owned())]
    );
    let confirm = command(&json!({ "command": "confirm", "host": "host-0-0" }));
    let refused = served.post(&to, &[("authorization", &operate)], &confirm).await;
    assert_eq!(refused.status, 403);
    served.revoke("operate");
    assert_eq!(
        served.with(OPEN, &[("authorization", &operate)]).await.status,
        401
    );
}

#[tokio::test]
async fn a_browser_enters_with_a_token_and_keeps_it_where_no_script_reads() {
    let served = Served::at_address().await;
    let token = served.token("look", &[]);
    let token = token.strip_prefix("Bearer ").unwrap();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let wrong = served.post("/login", &form, "token=stagger_wrong").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    let entered = served.post("/login", &form, &format!("token={token}")).await;
    assert_eq!(
        (entered.status, entered.header("location").as_deref()),
        (303, Some("/"))
    );
    let cookie = entered.header("set-cookie").unwrap();
    for guard in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(guard), "{cookie}");
    }
    let given = cookie.split(';').next().unwrap();
    let page = served.with("/", &[("cookie", given)]).await;
    assert!(
        page.status == 200 && page.body.contains("sim-demo"),
        "{}",
        page.body
    );
    // Who may look is offered nothing that takes more.
    let page = served.with("/runs/sim-demo", &[("cookie", given)]).await;
    assert!(page.status == 200 && !page.body.contains("name=\"command\""));
}

#[tokio::test]
async fn what_nobody_can_understand_is_refused_and_never_shown_as_markup() {
    let served = Served::at_socket().await;
    let to = format!("{OPEN}/commands");
    let deep = "[".repeat(20_000);
    let large = format!(r#"{{"command":"pause","plan":"{}"}}"#, "x".repeat(100_000));
    for (body, status) in [
        ("", 422),
        ("{", 422),
        ("[]", 422),
        (deep.as_str(), 422),
        (r#"{"command":"destroy"}"#, 422),
        (r#"{"command":"settle","intent":-1,"done":true}"#, 422),
        (
            r#"{"command":"settle","intent":18446744073709551616,"done":true}"#,
            422,
        ),
        (r#"{"command":"settle","intent":1,"done":true}"#, 409),
        (large.as_str(), 413),
    ] {
        let answer = served.post(&to, &[], body).await;
        assert_eq!(
            answer.status,
            status,
            "{}: {}",
            &body[..body.len().min(60)],
            answer.body
        );
        assert!(!answer.problem().is_empty());
    }
    let text = served
        .post(&to, &[("content-type", "text/plain")], r#"{"command":"pause"}"#)
        .await;
    assert_eq!(text.status, 415);
    for (path, status) in [
        ("/v1/runs?cluster=a%20b", 422),
        ("/v1/runs?other=1", 422),
        ("/v1/runs/sim-demo/events?after=x", 422),
        ("/v1/runs/a%20b", 422),
        ("/v1/runs/%3Cscript%3E", 404),
        ("/v1/nothing", 404),
        ("/v1/runs/%2e%2e", 404),
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(!answer.problem().is_empty(), "{path}");
    }
    let page = served.get("/runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E").await;
    assert_eq!(page.status, 404);
    assert!(!page.body.contains("<script>"), "{}", page.body);
    let method = served.ask("DELETE", OPEN, &[], "").await;
    assert_eq!(method.status, 405);
    let stream = served
        .with(&format!("{OPEN}/stream"), &[("last-event-id", "x")])
        .await;
    assert_eq!(stream.status, 422);
    assert!(served.asked().await.is_empty());
}

#[tokio::test]
async fn a_page_needs_no_script_and_nothing_from_elsewhere() {
    let served = Served::at_socket().await;
    let page = served.get("/runs/sim-demo").await;
    assert_eq!(page.status, 200);
    for part in [
        "INTERRUPTED",
        "Units",
        "Waves",
        "Journal",
        "every law held",
        "Approve",
        "Cannot be undone",
    ] {
        assert!(page.body.contains(part), "no {part}");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        !policy.contains("unsafe") && policy.contains("default-src 'none'"),
        "{policy}"
    );
    // A browser says of a form whose page it is of only with a referrer.
    assert_eq!(page.header("referrer-policy").as_deref(), Some("same-origin"));
    for elsewhere in ["http://", "https://", "style=", "onclick", "<style"] {
        assert!(!page.body.contains(elsewhere), "the page has {elsewhere}");
    }
    for path in [
        "/style.css",
        "/live.js",
        "/map.js",
        "/icon.svg",
        "/login",
        "/healthz",
    ] {
        assert_eq!(served.get(path).await.status, 200, "{path}");
    }
}

/// Each address of the description answers, and with a status that it names.
#[tokio::test]
async fn the_description_names_every_answer() {
    let served = Served::at_socket().await;
    let described = served.get("/v1/openapi.json").await.json();
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described, stagger_serve::openapi());
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.len() >= 5, "{paths:?}");
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let named = |answer: &Answer| operation["responses"].get(answer.status.to_string()).is_some();
            for run in ["sim-demo", "sim-rollback", "none", "a%20b"] {
                let path = path.replace("{run}", run);
                let bodies: &[&str] = if method == "post" {
                    &["", "{}", r#"{"command":"abort"}"#]
                } else {
                    &[""]
                };
                for body in bodies {
                    let verb = method.to_uppercase();
                    let asked = served.begin(&verb, &path, &[], body);
                    let answer = tokio::time::timeout(Duration::from_secs(10), asked)
                        .await
                        .unwrap();
                    assert!(
                        named(&answer),
                        "{method} {path} {body}: {} {}",
                        answer.status,
                        answer.body
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn metrics_are_of_the_newest_run_of_each_cluster() {
    let served = Served::at_socket().await;
    let text = served.get("/metrics").await.body;
    assert!(
        text.contains(r#"stagger_run_verdict{cluster="demo",run="sim-demo",verdict="interrupted"} 1"#),
        "{text}"
    );
    assert!(
        text.contains(r#"stagger_run_verdict{cluster="rollback",run="sim-rollback",verdict="ended"} 1"#),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
}

/// Names and labels in the alert rules and on the board are those that are told.
#[tokio::test]
async fn alerts_and_the_board_ask_for_what_there_is() {
    let served = Served::at_socket().await;
    let told = served.get("/metrics").await.body;
    let names: BTreeSet<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    let mut asked = BTreeSet::new();
    for file in ["stagger-alerts.yaml", "grafana-board.json"] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let kinds = ["stagger_run_", "stagger_store_"];
        for (at, _) in kinds.iter().flat_map(|kind| text.match_indices(kind)) {
            let name = text[at..]
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap();
            assert!(names.contains(name), "{file}: nothing tells {name}");
            asked.insert(name.to_owned());
        }
        for (at, _) in text.match_indices("verdict=\"") {
            let word = text[at + 9..].split('"').next().unwrap();
            let label = format!(r#"verdict="{word}""#);
            assert!(told.contains(&label), "{file}: no run has {label}");
        }
    }
    // The board shows all that is told.
    assert_eq!(asked.iter().map(String::as_str).collect::<BTreeSet<_>>(), names);
    let board = std::fs::read_to_string(format!("{folder}/grafana-board.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    assert!(board["panels"].as_array().unwrap().len() >= names.len());
}

#[tokio::test]
async fn without_a_store_nothing_is_made_up() {
    let served = Served::at_socket().await;
    assert_eq!(served.get(OPEN).await.status, 200);
    served.lose_the_store();
    for path in ["/v1/runs", OPEN, "/metrics"] {
        let answer = served.get(path).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (503, "store".to_owned()),
            "{path}"
        );
    }
    assert_eq!(served.get("/").await.status, 503);
    assert_eq!(served.get("/healthz").await.status, 200);
}
