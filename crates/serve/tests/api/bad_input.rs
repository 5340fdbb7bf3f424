//! Who asks too slowly, too much, too late, or for what is not theirs.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use stagger_serve::RequestTimeouts;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::Served;

const OPEN: &str = "/v1/runs/sim-demo";
const COMMANDS: &str = "/v1/runs/sim-demo/commands";
const PAUSE: &str = r#"{"command":"pause"}"#;

fn short() -> RequestTimeouts {
    RequestTimeouts {
        head: Duration::from_millis(300),
        whole: Duration::from_millis(600),
        stalled: Duration::from_millis(300),
        ..RequestTimeouts::default()
    }
}

/// All that comes until the other end hangs up.
async fn to_the_end(mut wire: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), wire.read_to_end(&mut bytes));
    // A connection that was cut without a farewell has ended too.
    read.await.expect("nobody hangs up").ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn who_sends_no_whole_head_is_hung_up_on() {
    let served = Served::at_address_within(short()).await;
    let token = served.token("operate", &[]);
    for begun in [
        "",
        "POST ",
        "POST /v1/runs/sim-demo/commands HTTP/1.1\r\nhost: localhost\r\nx-a: 1\r\n",
    ] {
        let mut wire = served.try_connect().await.unwrap();
        wire.write_all(begun.as_bytes()).await.unwrap();
        let said = to_the_end(wire).await;
        assert!(!said.contains(" 200 "), "{begun:?}: {said}");
    }
    // Neither is a connection kept over which nothing more is asked.
    let mut wire = served.try_connect().await.unwrap();
    let whole = format!("GET {OPEN} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n");
    wire.write_all(whole.as_bytes()).await.unwrap();
    assert!(to_the_end(wire).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(served.with(OPEN, &[("authorization", &token)]).await.status, 200);
}

#[tokio::test]
async fn who_sends_a_body_byte_by_byte_is_told_that_it_took_too_long() {
    let limits = short();
    for served in [
        Served::at_address_within(limits).await,
        Served::at_socket_within(limits).await,
    ] {
        let token = served.token("operate", &[]);
        let mut wire = served.try_connect().await.unwrap();
        let head = format!(
            "POST {COMMANDS} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-type: application/json\r\n\
             content-length: 50\r\nconnection: close\r\n\r\n{{"
        );
        wire.write_all(head.as_bytes()).await.unwrap();
        let said = to_the_end(wire).await;
        assert!(
            said.starts_with("HTTP/1.1 408 ") && said.contains("too-slow"),
            "{said}"
        );
        assert!(served.asked().await.is_empty());
    }
}

/// What is told to somebody who takes nothing is not kept for them for ever, nor is the place of their stream.
#[tokio::test]
async fn who_takes_nothing_of_a_stream_is_hung_up_on() {
    let limits = RequestTimeouts {
        streams: 1,
        ..short()
    };
    for served in [
        Served::at_address_within(limits).await,
        Served::at_socket_within(limits).await,
    ] {
        let token = served.token("look", &[]);
        let headers = [("authorization", token.as_str())];
        // More than the connection holds by itself.
        served.fill(2_000, 8_000).await;
        let deaf = served.stream("/v1/runs/full/stream", &headers).await;
        let mut refused = 0;
        let mut admitted = false;
        for _ in 0..500 {
            let answer = served.begin("GET", &format!("{OPEN}/stream"), &headers, "").await;
            if answer.status == 200 {
                admitted = true;
                break;
            }
            assert_eq!(
                (answer.status, answer.header("retry-after").as_deref()),
                (503, Some("60"))
            );
            refused += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(admitted && refused > 0, "refused {refused} times");
        drop(deaf);
    }
}

#[tokio::test]
async fn a_token_of_elsewhere_or_of_yesterday_is_none() {
    let (served, elsewhere) = (Served::at_address().await, Served::at_address().await);
    let foreign = elsewhere.token("approve", &[]);
    let good = served.token("operate", &[]);
    let expired = served.token_until("expired", Timestamp::now() - SignedDuration::from_secs(1));
    let far = served.token_until("far", Timestamp::MAX);
    let before = served.token_until("before", Timestamp::MIN);
    let long = format!("Bearer {}", "x".repeat(20_000));
    for token in [
        &foreign,
        &expired,
        &before,
        &long,
        "Bearer ",
        "Bearer",
        "Basic YTpi",
        &good[7..],
        "bearer\t",
        "Bearer ä",
    ] {
        let answer = served.with(OPEN, &[("authorization", token)]).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (401, "no-token".to_owned()),
            "{token}"
        );
        let answer = served.post(COMMANDS, &[("authorization", token)], PAUSE).await;
        assert_eq!(answer.status, 401, "{token}");
        // Nor as what a browser keeps.
        let kept = format!("stagger={}", token.trim_start_matches("Bearer "));
        if token != &good[7..] {
            assert_eq!(
                served.with(OPEN, &[("cookie", &kept)]).await.status,
                401,
                "{kept}"
            );
        }
    }
    for token in [&good, &far] {
        assert_eq!(served.with(OPEN, &[("authorization", token)]).await.status, 200);
    }
    assert!(served.asked().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_with_one_key_at_once_one_is_carried_out() {
    let served = Served::at_socket().await;
    for (key, body) in [("one", PAUSE), ("two", r#"{"command":"resume"}"#)] {
        let headers = [("idempotency-key", key)];
        let answers = (0..40).map(|_| served.post(COMMANDS, &headers, body));
        let answers = futures::future::join_all(answers).await;
        let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
        // Who comes while it is carried out is told so, and may ask again.
        assert_eq!(count(202) + count(409), 40, "{answers:?}");
        assert!(count(202) >= 1);
        assert_eq!(served.post(COMMANDS, &headers, body).await.status, 202);
    }
    assert_eq!(served.asked().await.len(), 2);
    // A key that came with another question is of no use for this one, and one of another is his own.
    let answer = served
        .post(
            "/v1/runs/sim-rollback/commands",
            &[("idempotency-key", "one")],
            PAUSE,
        )
        .await;
    assert_eq!(answer.status, 422);
    for key in ["", "\u{7f}", &"k".repeat(201)] {
        let answer = served.post(COMMANDS, &[("idempotency-key", key)], PAUSE).await;
        assert!([400, 422].contains(&answer.status), "{key:?}: {answer:?}");
    }
    assert_eq!(served.asked().await.len(), 2);
}

#[tokio::test]
async fn nobody_heaps_up_commands_without_an_end() {
    let served = Served::at_socket().await;
    let mut last = None;
    for _ in 0..101 {
        last = Some(served.post(COMMANDS, &[], PAUSE).await);
    }
    let last = last.unwrap();
    assert_eq!((last.status, last.problem()), (409, "conflict".to_owned()));
    assert_eq!(served.asked().await.len(), 100);
}

#[tokio::test]
async fn bodies_that_are_large_deep_or_of_other_types_change_nothing() {
    let served = Served::at_socket().await;
    let deep = format!(
        r#"{{"command":{}"pause"{}}}"#,
        "[".repeat(3_000),
        "]".repeat(3_000)
    );
    let wide = format!(r#"{{"command":"pause",{}"z":0}}"#, r#""a":0,"#.repeat(5_000));
    let large = format!(r#"{{"command":"pause","plan":"{}"}}"#, "x".repeat(5 << 20));
    for (body, statuses) in [
        (deep.as_str(), &[422][..]),
        // What nobody knows is not heeded.
        (&wide, &[202, 422]),
        (&large, &[413]),
        (r#"{"command":7}"#, &[422]),
        (r#"{"command":["pause"]}"#, &[422]),
        (r#"{"command":null}"#, &[422]),
        (r#"{"command":"approve","door":7,"plan":"x"}"#, &[422]),
        (r#"{"command":"approve","door":{},"plan":"x"}"#, &[422]),
        (r#"{"command":"pause","plan":7}"#, &[422]),
        (r#"{"command":"settle","intent":1e400,"done":true}"#, &[422]),
        (r#"{"command":"settle","intent":"1","done":true}"#, &[422]),
        (r#"{"command":"confirm","host":"a b"}"#, &[422]),
        (r#""pause""#, &[422]),
        ("pause", &[422]),
        ("\u{feff}{}", &[422]),
    ] {
        let answer = served.post(COMMANDS, &[], body).await;
        let shown: String = body.chars().take(60).collect();
        assert!(
            statuses.contains(&answer.status),
            "{shown}: {} {}",
            answer.status,
            answer.body
        );
    }
    // A body whose length nobody says is cut where it is too long.
    let mut wire = served.try_connect().await.unwrap();
    let head = format!(
        "POST {COMMANDS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    wire.write_all(head.as_bytes()).await.unwrap();
    let piece = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    for _ in 0..64 {
        if wire.write_all(piece.as_bytes()).await.is_err() {
            break;
        }
    }
    let said = to_the_end(wire).await;
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    let asked = served.asked().await;
    assert!(asked.len() <= 1, "{asked:?}");
}

/// Journals from before the first day and after the last are told like others.
#[tokio::test]
async fn times_that_are_far_away_are_told() {
    let served = Served::at_socket().await;
    for (name, at) in [
        ("first", Timestamp::MIN),
        ("last", Timestamp::MAX),
        ("epoch", Timestamp::UNIX_EPOCH),
    ] {
        served.begin_run(name, name, at).await;
    }
    let list = served.get("/v1/runs").await;
    assert_eq!(list.json()["runs"].as_array().unwrap().len(), 5, "{list:?}");
    for name in ["first", "last", "epoch"] {
        for path in ["", "/events"] {
            let answer = served.get(&format!("/v1/runs/{name}{path}")).await;
            assert_eq!(answer.status, 200, "{name}{path}: {answer:?}");
        }
        let page = served.get(&format!("/runs/{name}")).await;
        assert_eq!(page.status, 200, "{name}: {page:?}");
        let metrics = served.get("/metrics").await.body;
        assert!(
            metrics.contains(&format!(
                r#"stagger_run_readable{{cluster="{name}",run="{name}"}} 1"#
            )),
            "{metrics}"
        );
    }
    assert_eq!(served.get("/").await.status, 200);
}

#[tokio::test]
async fn names_that_are_markup_are_text_everywhere() {
    let served = Served::at_socket().await;
    let name = r#"<img/src=x/onerror=alert(1)>"'&\{}%"#;
    served.begin_run(name, name, Timestamp::now()).await;
    let encoded = name
        .bytes()
        .fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
    let run = served.get(&format!("/v1/runs/{encoded}")).await;
    assert_eq!((run.status, &run.json()["run"]), (200, &json!(name)));
    for path in ["/".to_owned(), format!("/runs/{encoded}")] {
        let page = served.get(&path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.body.contains("<img/src"), "{path}: {}", page.body);
    }
    // Of data only what is meant as markup is put into a page as that.
    let data = served.get(&format!("/runs/{encoded}/parts")).await.json();
    let parts = data["parts"].as_array().expect("parts");
    assert!(!parts.is_empty(), "{data}");
    for part in parts {
        let html = part["html"].as_str().expect("markup");
        assert!(!html.contains("<img/src"), "{part}");
    }
    // In a label of a metric a quote or a backslash would end it.
    let metrics = served.get("/metrics").await.body;
    assert!(
        metrics.contains(r#"run="<img/src=x/onerror=alert(1)>\"'&\\{}%"}"#),
        "{metrics}"
    );
    let mut stream = served.stream(&format!("/v1/runs/{encoded}/stream"), &[]).await;
    assert!(stream.until("event: run").await.contains("event: entry"));
}
