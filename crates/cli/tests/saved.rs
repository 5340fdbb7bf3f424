//! A cluster's answers in one file: what is planned from it is what is planned from the cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../backends/ceph/tests/fixtures")
        .join(name)
}

fn stagger(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command.args(words).stdin(Stdio::null()).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = stagger(words);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is written on stderr, with the exit code.
fn refused(from: &Path) -> (Option<i32>, String) {
    let output = stagger(&[
        "plan",
        "upgrade",
        "--to",
        "20.2.4",
        "--from",
        from.to_str().unwrap(),
    ]);
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

fn save(from: &Path, to: &Path) {
    said(&[
        "observe",
        "--from",
        from.to_str().unwrap(),
        "--save",
        to.to_str().unwrap(),
    ]);
}

#[test]
fn what_is_saved_is_planned_as_the_cluster_is() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, to) in [("16.2.15", "18.2.7"), ("18.2.7", "20.2.4")] {
        let folder = fixture(name);
        let (file, again) = (
            scratch.path().join(format!("{name}.json")),
            scratch.path().join(format!("{name}-again.json")),
        );
        save(&folder, &file);
        let (folder, file_name) = (folder.to_str().unwrap(), file.to_str().unwrap());
        for words in [
            &["plan", "upgrade", "--to", to, "--interrupt", "mgr", "--json"][..],
            &["explain", "osd.1", "upgrade", "--to", to],
            &["versions", "--json"],
            &["ceph", "ok-to-stop", "0", "--max", "4", "--json"],
        ] {
            let from = |from| {
                let words = [words, &["--from", from][..]].concat();
                String::from_utf8(stagger(&words).stdout).unwrap()
            };
            assert!(!from(folder).is_empty(), "{words:?}");
            assert_eq!(from(folder), from(file_name), "{words:?}");
        }
        let plan = scratch.path().join("plan.json");
        let plan = plan.to_str().unwrap();
        said(&[
            "plan",
            "upgrade",
            "--to",
            to,
            "--interrupt",
            "mgr",
            "--from",
            folder,
            "--out",
            plan,
        ]);
        said(&[
            "check",
            plan,
            "--from",
            file_name,
            "upgrade",
            "--to",
            to,
            "--interrupt",
            "mgr",
        ]);
        // Facts are judged as of the time at which they were taken, however often they are passed on.
        save(&file, &again);
        assert_eq!(fs::read(&file).unwrap(), fs::read(&again).unwrap());
        let observed = |from| said(&["observe", "--json", "--from", from]);
        assert_eq!(observed(file_name), observed(again.to_str().unwrap()));
    }
}

/// What a command prints about a cluster in a file.
fn of(words: &[&str], from: &Path) -> String {
    let words = [words, &["--from", from.to_str().unwrap()]].concat();
    String::from_utf8(stagger(&words).stdout).unwrap()
}

#[test]
fn a_ganeti_is_saved_and_planned_as_it_was_in_whatever_form_it_came() {
    let scratch = tempfile::tempdir().unwrap();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/inputs/lab.data");
    let bodies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/ganeti/tests/fixtures/rapi");
    for (nth, from) in [text, bodies].iter().enumerate() {
        let file = scratch.path().join(format!("{nth}.json"));
        save(from, &file);
        for words in [
            &["plan", "reboot", "--json"][..],
            &["observe", "--json"],
            &["versions", "--json"],
        ] {
            let (was, is) = (of(words, from), of(words, &file));
            assert!(was.len() > 20, "{words:?} of {}: {was}", from.display());
            assert_eq!(was, is, "{words:?}");
        }
        let kept = fs::read_to_string(&file).unwrap();
        assert!(!kept.contains("hvparams") && !kept.contains("nic."), "{kept}");
    }
}

/// The answers of a real RAPI, as a file that was saved of it.
fn of_rapi() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/ganeti/tests/fixtures/answers");
    let body = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    };
    // More was asked for than names and boot ids.
    let rows = body("query_nodes.json")["data"].as_array().unwrap().clone();
    let boots: Vec<Value> = rows
        .iter()
        .map(|row| json!([row[0], row[row.as_array().unwrap().len() - 1]]))
        .collect();
    json!({
        "schema": { "name": "inventory", "version": 1 }, "system": "ganeti", "cluster": "lab",
        "taken": "2026-11-26T10:00:00Z",
        "answers": { "rapi": {
            "info": body("info.json"), "groups": body("groups_bulk.json"), "nodes": body("nodes_bulk.json"),
            "instances": body("instances_bulk.json"), "boots": { "data": boots },
        } },
    })
    .to_string()
}

#[test]
fn what_a_rapi_has_answered_is_planned_and_saved_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (first, again) = (scratch.path().join("a.json"), scratch.path().join("b.json"));
    fs::write(&first, of_rapi()).unwrap();
    save(&first, &again);
    let words = ["plan", "reboot", "--json"];
    let (was, is) = (of(&words, &first), of(&words, &again));
    assert!(was.contains("\"waves\""), "{was}");
    assert_eq!(was, is);
    // It has another goal.
    let output = stagger(&["plan", "upgrade", "--to", "18", "--from", again.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("is a Ganeti cluster; `upgrade` is for Ceph and Ironic"),
        "{text}"
    );
}

#[test]
fn nothing_is_left_beside_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    save(&fixture("18.2.7"), &scratch.path().join("a.json"));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_none_is_refused_with_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let good = scratch.path().join("good.json");
    save(&fixture("18.2.7"), &good);
    let text = fs::read_to_string(&good).unwrap();
    let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
    let other = text.replacen("\"inventory\"", "\"snapshot\"", 1);
    let unknown = text.replacen("\"ceph\"", "\"gluster\"", 1);
    let shape = text.replacen("\"answers\"", "\"anwsers\"", 1);
    let cut = &text[..text.len() / 2];
    for (what, content, says) in [
        ("truncated", cut, "it was not copied whole"),
        ("empty", "", "it was not copied whole"),
        (
            "of a newer release",
            &newer,
            "version 2, and this program reads up to version 1",
        ),
        ("another document", &other, "a document \"snapshot\""),
        (
            "of another system",
            &unknown,
            "an inventory of gluster, which this release does not support",
        ),
        ("of another shape", &shape, "unknown field `anwsers`"),
        ("no JSON", "osd.0 up", "it is not an inventory"),
    ] {
        let bad = scratch.path().join("bad.json");
        fs::write(&bad, content).unwrap();
        let (code, text) = refused(&bad);
        assert_eq!(code, Some(2), "{what}: {text}");
        assert!(text.contains(says), "{what}: {text}");
    }
    let (code, text) = refused(&scratch.path().join("nothing"));
    assert_eq!(code, Some(2));
    assert!(text.contains("there is no file or folder"), "{text}");
}

#[test]
fn an_answer_that_is_missing_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("a.json");
    save(&fixture("18.2.7"), &file);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"osd tree\"", "\"osd treee\"", 1)).unwrap();
    let (code, text) = refused(&file);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no answer to \"osd tree\""), "{text}");
}

/// Of the monitors' configuration an inventory keeps what known risks ask for, and nothing else of it.
#[test]
fn settings_that_risks_ask_for_are_saved_and_no_others() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("lab");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(fixture("18.2.7")).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    let settings = json!([
        { "section": "mgr", "name": "mgr/dashboard/key", "value": "hush", "level": "advanced", "mask": "" },
        { "section": "osd", "name": "bluestore_elastic_shared_blobs", "value": "false", "level": "advanced", "mask": "" },
    ]);
    fs::write(folder.join("config_dump.json"), settings.to_string()).unwrap();
    let (file, again) = (scratch.path().join("lab.json"), scratch.path().join("again.json"));
    save(&folder, &file);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("bluestore_elastic_shared_blobs") && !text.contains("hush"));
    save(&file, &again);
    assert_eq!(fs::read_to_string(&again).unwrap(), text);
    let words = ["risks", "--to", "19.2.3"];
    let told = of(&words, &file);
    assert_eq!(told, of(&words, &folder));
    let no = "ceph-19.2-elastic-shared-blobs warns, does not apply (bluestore_elastic_shared_blobs is not true in the monitors' configuration)";
    assert!(told.contains(no), "{told}");
    assert!(of(&words, &fixture("18.2.7")).contains("ceph-19.2-elastic-shared-blobs warns, may apply"));
}
