//! Many who follow a run at once, and a store that goes away meanwhile.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::server::{Served, Stream};

const OPEN: &str = "/v1/runs/sim-demo";

/// The places of the events that came.
fn ids(text: &str) -> Vec<u64> {
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.map(|id| id.parse().unwrap()).collect()
}

/// What comes up to an event, which is the last that there is.
async fn up_to(stream: &mut Stream, last: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.extend(ids(&stream.until("event: run").await));
    }
    seen
}

/// So many bytes of memory this process holds.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// So many files and connections.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_see_every_event_and_others_are_still_answered() {
    const WATCHERS: usize = 1_000;
    const MIB: u64 = 1 << 20;
    let served = Served::at_socket().await;
    let newest = served.get(OPEN).await.json()["seq"].as_u64().unwrap();
    let (memory, open) = (resident(), descriptors());
    let from = (newest - 3).to_string();
    let headers = [("last-event-id", from.as_str())];
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        streams.push(served.stream(&format!("{OPEN}/stream"), &headers).await);
    }
    let first = join_all(streams.iter_mut().map(|stream| up_to(stream, newest))).await;
    for seen in &first {
        assert_eq!(*seen, [newest - 2, newest - 1, newest]);
    }
    // This end of each connection is counted too, and what other tests have open. A connection to the store for each would be two more.
    assert!(
        descriptors() - open <= 3 * WATCHERS,
        "{} more are open",
        descriptors() - open
    );
    for _ in 0..5 {
        served.write(4).await;
        let asked = tokio::time::timeout(Duration::from_secs(5), served.get("/v1/runs"));
        assert_eq!(asked.await.unwrap().status, 200);
    }
    let then = join_all(streams.iter_mut().map(|stream| up_to(stream, newest + 20))).await;
    let all: Vec<u64> = (newest + 1..=newest + 20).collect();
    for seen in &then {
        assert_eq!(*seen, all);
    }
    let more = resident().saturating_sub(memory);
    assert!(more < 300 * MIB, "{} MiB for {WATCHERS} watchers", more / MIB);
    drop(streams);
}

/// Of a long journal that many ask for and few take, little is held for each.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_journal_is_not_held_once_for_each_who_follows() {
    const MIB: u64 = 1 << 20;
    let served = Served::at_socket().await;
    served.fill(1_000, 8_000).await;
    assert_eq!(served.get("/v1/runs/full").await.status, 200);
    let before = resident();
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = served.stream("/v1/runs/full/stream", &[]).await;
        stream.until("event: entry").await;
        streams.push(stream);
    }
    // 8 MB each would be 1,600.
    let more = resident().saturating_sub(before);
    assert!(
        more < 200 * MIB,
        "{} MiB for {} who read nothing",
        more / MIB,
        streams.len()
    );
}

#[tokio::test]
async fn a_store_that_goes_away_interrupts_streams_and_ends_none() {
    let served = Served::at_socket().await;
    let newest = served.get(OPEN).await.json()["seq"].as_u64().unwrap();
    let from = newest.to_string();
    let headers = [("last-event-id", from.as_str())];
    let mut stream = served.stream(&format!("{OPEN}/stream"), &headers).await;
    stream.until("event: run").await;
    served.lose_the_store();
    let said = stream.until("event: unread").await;
    assert!(said.contains("it is away"), "{said}");
    // Whoever asks meanwhile is told when to come again, and what was asked for was not noted.
    for path in [
        "/v1/runs",
        OPEN,
        &format!("{OPEN}/events"),
        &format!("{OPEN}/stream"),
        "/metrics",
    ] {
        let answer = served.get(path).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (503, "store".to_owned()),
            "{path}"
        );
        assert_eq!(answer.header("retry-after").as_deref(), Some("5"), "{path}");
    }
    let pause = json!({ "command": "pause" }).to_string();
    let key = [("idempotency-key", "k")];
    let to = format!("{OPEN}/commands");
    assert_eq!(served.post(&to, &key, &pause).await.status, 503);
    served.find_the_store();
    served.write(2).await;
    assert_eq!(up_to(&mut stream, newest + 2).await, [newest + 1, newest + 2]);
    // It was not carried out, so the key is good still.
    assert!(served.asked().await.is_empty());
    assert_eq!(served.post(&to, &key, &pause).await.status, 202);
    assert_eq!(served.asked().await.len(), 1);
}
