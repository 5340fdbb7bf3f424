//! How long a plan takes, and the rest of a run, by earlier runs in the store.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rusqlite::{Connection, params};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn stagger(state: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command.args(["--state", state.to_str().unwrap()]).args(words);
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// A store with the run of a scenario, in a folder of its own.
fn simulated(scratch: &Path) -> PathBuf {
    let file = here().join("../../scenarios/calm.toml");
    let told = stagger(scratch, &["simulate", "--fast", "--json", file.to_str().unwrap()]);
    let told: Value = serde_json::from_str(&told).unwrap();
    Path::new(told["journal"].as_str().unwrap())
        .parent()
        .unwrap()
        .to_owned()
}

/// One more run in the store, of that cluster, which went as that of the scenario did.
fn earlier(state: &Path, run: &str, cluster: &str) {
    let store = Connection::open(state.join("journal.db")).unwrap();
    store
        .execute(
            "insert or ignore into cluster select ?1, fence, holder from cluster limit 1",
            params![cluster],
        )
        .unwrap();
    store
        .execute(
            "insert into run select ?1, ?2, '2025-12-31T00:00:00Z', events, version, null, ended_by from run where id = 'sim-calm'",
            params![run, cluster],
        )
        .unwrap();
    let mut rows = store
        .prepare("select seq, fence, at, body, version from journal where run = 'sim-calm' order by seq")
        .unwrap();
    let rows = rows.query_map([], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, String>(3)?,
            row.get::<_, Option<String>>(4)?,
        ))
    });
    let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    let mut hash = Vec::new();
    for (seq, fence, at, body, version) in rows {
        let mut sum = Sha256::new();
        sum.update(&hash);
        for part in [run, &seq.to_string(), &fence.to_string(), &at, &body] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part.as_bytes());
        }
        hash = sum.finalize().to_vec();
        store
            .execute(
                "insert into journal (run, seq, fence, at, body, hash, version) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![run, seq, fence, at, body, hash, version],
            )
            .unwrap();
    }
}

#[test]
fn a_plan_takes_as_long_as_earlier_runs_did() {
    let scratch = tempfile::tempdir().unwrap();
    let state = simulated(scratch.path());
    let from = here().join("../backends/ceph/tests/fixtures/18.2.7");
    let words = [
        "plan",
        "upgrade",
        "--to",
        "20.2.4",
        "--from",
        from.to_str().unwrap(),
    ];
    let json =
        || -> Value { serde_json::from_str(&stagger(&state, &[&words[..], &["--json"]].concat())).unwrap() };
    // Of this cluster there is no run: what was simulated is of another.
    assert!(stagger(&state, &words).contains("About 19 min. Plan"));
    assert_eq!(json().get("learned"), None);
    earlier(&state, "lab-1", "18.2.7");
    let learned = json()["learned"].clone();
    let text = stagger(&state, &words);
    assert!(
        text.contains(", 90 % under ") && text.contains(", as one earlier run went. Plan"),
        "{text}"
    );
    assert_eq!(learned["runs"], 1);
    assert!(
        learned["seconds"].as_i64() <= learned["seconds_90"].as_i64(),
        "{learned}"
    );
    // A journal that is damaged tells nothing, and refuses nothing.
    let store = Connection::open(state.join("journal.db")).unwrap();
    let spoil = "drop trigger journal_is_append_only_1; update journal set body = '{}' where run = 'lab-1' and seq = 9;";
    store.execute_batch(spoil).unwrap();
    assert!(stagger(&state, &words).contains("About 19 min. Plan"));
}

#[test]
fn the_rest_of_a_run_takes_as_long_as_it_did_before() {
    let scratch = tempfile::tempdir().unwrap();
    let state = simulated(scratch.path());
    earlier(&state, "sim-before", "calm");
    // It is in its midst.
    let store = Connection::open(state.join("journal.db")).unwrap();
    let midst = "drop trigger journal_is_append_only_2; delete from journal where run = 'sim-calm' and seq > 120; \
                 update run set events = 120, ended_by = null where id = 'sim-calm';";
    store.execute_batch(midst).unwrap();
    let text = stagger(&state, &["status", "sim-calm"]);
    assert!(
        text.contains(" left, about ") && text.contains(", 90 % under "),
        "{text}"
    );
    let page = scratch.path().join("run.html");
    stagger(&state, &["report", "sim-calm", "--out", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("<h2>Forecasts</h2>") && page.contains("by 1 earlier run<"),
        "{page}"
    );
}
