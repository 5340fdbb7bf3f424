//! What the commands print, a file for each: `transcripts/*.trycmd`.
//!
//! `TRYCMD=overwrite cargo test -p stagger-cli --test transcripts` writes them anew; read the difference
//! before you commit it.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const FIXTURES: &str = "../backends/ceph/tests/fixtures";

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap()
}

fn stagger(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command.args(words).stdin(Stdio::null()).env("NO_COLOR", "1");
    let output = command.output().unwrap();
    assert!(
        !output.stdout.is_empty(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
    {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

fn edited(file: &Path, change: impl Fn(&mut Value)) {
    let mut content: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut content);
    fs::write(file, content.to_string()).unwrap();
}

/// osd.5 has died, and its neighbours hold what it held.
fn osd_5_is_dead(folder: &Path, inside: u64) {
    edited(&folder.join("osd_dump.json"), |dump| {
        let osd = dump["osds"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|osd| osd["osd"] == 5)
            .unwrap();
        osd["up"] = 0.into();
        osd["in"] = inside.into();
        osd["state"] = serde_json::json!(["exists"]);
    });
    edited(&folder.join("osd_tree.json"), |tree| {
        let nodes = tree["nodes"].as_array_mut().unwrap();
        nodes.iter_mut().find(|node| node["id"] == 5).unwrap()["status"] = "down".into();
    });
    edited(&folder.join("pg_dump.json"), |dump| {
        for pg in dump["pg_map"]["pg_stats"].as_array_mut().unwrap() {
            let acting = pg["acting"].as_array_mut().unwrap();
            let spare = [4, 6, 7]
                .into_iter()
                .find(|spare| !acting.contains(&Value::from(*spare)))
                .unwrap();
            acting
                .iter_mut()
                .filter(|osd| **osd == 5)
                .for_each(|osd| *osd = spare.into());
        }
    });
}

/// The cluster was recorded on one machine. Here each OSD tells the host that the tree has it on, and of the other daemons of a
/// kind each tells another host.
fn on_hosts(from: &Path, to: &Path) {
    copied(from, to);
    edited(&to.join("osd_metadata.json"), |all| {
        for osd in all.as_array_mut().unwrap() {
            osd["hostname"] = format!("host{}", osd["id"].as_u64().unwrap() / 2).into();
        }
    });
    for kind in ["mon", "mgr"] {
        edited(&to.join(format!("{kind}_metadata.json")), |all| {
            for (at, daemon) in all.as_array_mut().unwrap().iter_mut().enumerate() {
                daemon["hostname"] = format!("host{at}").into();
            }
        });
    }
}

/// What the transcripts find in their folder: recorded clusters, some of them spoilt, and journals.
fn furnish(folder: &Path) {
    for version in ["16.2.15", "18.2.7", "20.2.4"] {
        copied(&here().join(FIXTURES).join(version), &folder.join(version));
    }
    copied(
        &here().join("../backends/ganeti/tests/fixtures/rapi"),
        &folder.join("rapi"),
    );
    let request = here().join("../backends/ganeti/tests/fixtures/request.json");
    fs::copy(request, folder.join("request.json")).unwrap();
    let good = folder.join("18.2.7");
    stagger(&[
        "observe",
        "--from",
        good.to_str().unwrap(),
        "--save",
        folder.join("saved.json").to_str().unwrap(),
    ]);

    copied(&good, &folder.join("truncated"));
    let dump = fs::read(good.join("pg_dump.json")).unwrap();
    fs::write(folder.join("truncated/pg_dump.json"), &dump[..dump.len() / 2]).unwrap();
    copied(&good, &folder.join("without-tree"));
    fs::remove_file(folder.join("without-tree/osd_tree.json")).unwrap();
    let saved = fs::read(folder.join("saved.json")).unwrap();
    fs::write(folder.join("half.json"), &saved[..saved.len() / 2]).unwrap();

    for (name, inside) in [("dead-and-out", 0), ("dead-and-in", 1)] {
        copied(&good, &folder.join(name));
        osd_5_is_dead(&folder.join(name), inside);
    }
    copied(&good, &folder.join("over-two-sites"));
    edited(&folder.join("over-two-sites/osd_dump.json"), |dump| {
        dump["pools"][1]["peering_crush_bucket_count"] = 2.into();
    });

    on_hosts(&good, &folder.join("on-hosts"));
    on_hosts(&good, &folder.join("without-host"));
    edited(&folder.join("without-host/mgr_metadata.json"), |all| {
        all[0].as_object_mut().unwrap().remove("hostname");
    });

    // CRUSH takes any name, and so do files that somebody edits.
    copied(&good, &folder.join("odd-names"));
    let tree = folder.join("odd-names/osd_tree.json");
    let odd = fs::read_to_string(&tree)
        .unwrap()
        .replace("\"rack0\"", r#""räck 0/$(id) | \"a\"""#)
        .replace("\"rack1\"", r#""a\nb\u001b[31m""#);
    fs::write(&tree, odd).unwrap();
    let map = folder.join("odd-names/osd_dump.json");
    let odd = fs::read_to_string(&map).unwrap();
    let odd = odd.replace("\"rephost\"", r#""re\u001b]0;p\u0007 \u001b[2J\n""#);
    fs::write(&map, odd).unwrap();

    let migrations = here().join("tests/transcripts/migrations");
    let schema = here().join("../engine/schema");
    // One without a manifest beside it.
    fs::create_dir(folder.join("project")).unwrap();
    for (from, to) in [
        (migrations.join("good"), "good-migrations"),
        (migrations.join("bad"), "bad-migrations"),
        (migrations.join("waived"), "waived-migrations"),
        (migrations.join("flyway"), "project/flyway"),
        (schema.join("sqlite"), "own-sqlite"),
        (schema.join("postgres"), "own-postgres"),
    ] {
        copied(&from, &folder.join(to));
    }
    fs::copy(migrations.join("releases.toml"), folder.join("releases.toml")).unwrap();
    let own = here().join("../core/releases.toml");
    fs::copy(own, folder.join("own-releases.toml")).unwrap();

    // A journal of before there were versions, and one of which a later release wrote a part.
    let early = here().join("../engine/tests/fixtures/journal-of-revision-1.db");
    for state in ["early", "late"] {
        fs::create_dir(folder.join(state)).unwrap();
        fs::copy(&early, folder.join(state).join("journal.db")).unwrap();
    }
    let late = folder.join("late");
    stagger(&["--state", late.to_str().unwrap(), "db", "upgrade"]);
    let journal = rusqlite::Connection::open(late.join("journal.db")).unwrap();
    journal
        .execute_batch("update journal set version = '1.7' where seq = 5;")
        .unwrap();
    drop(journal);

    for input in fs::read_dir(here().join("tests/transcripts/inputs"))
        .unwrap()
        .map(Result::unwrap)
    {
        fs::copy(input.path(), folder.join(input.file_name())).unwrap();
    }
    for (scenario, name) in [("no-way-back", "held"), ("demo", "over"), ("rollback", "back")] {
        let file = here().join(format!("../../scenarios/{scenario}.toml"));
        let state = folder.join(format!("{name}-state"));
        let told = stagger(&[
            "--state",
            state.to_str().unwrap(),
            "simulate",
            "--fast",
            "--json",
            file.to_str().unwrap(),
        ]);
        let told: Value = serde_json::from_str(&told).unwrap();
        let journal = Path::new(told["journal"].as_str().unwrap()).parent().unwrap();
        fs::rename(journal, folder.join(name)).unwrap();
        // Files of transcripts run side by side: what is asked of a run is asked of a copy.
        copied(&folder.join(name), &folder.join(format!("{name}-asked")));
        fs::copy(&file, folder.join(format!("{scenario}.toml"))).unwrap();
    }
    journals_as_lines(folder);
}

/// A journal as lines; in another a judge could not tell before the third wave, and nobody has passed a point of no return.
fn journals_as_lines(folder: &Path) {
    let over = folder.join("over");
    let lines = stagger(&["--state", over.to_str().unwrap(), "history", "sim-demo", "--json"]);
    fs::write(folder.join("journal.jsonl"), &lines).unwrap();
    let mut judged = 0;
    let spoilt = lines.lines().map(|line| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        judged += u32::from(event["event"] == "judged");
        if event["event"] == "judged" && judged == 3 {
            event["theirs"] = serde_json::json!({ "answer": "unknown", "why": "it does not answer" });
        }
        if event["event"] == "started" {
            event["policy"]["doors"] = "ask".into();
        }
        format!("{event}\n")
    });
    fs::write(folder.join("spoilt.jsonl"), spoilt.collect::<String>()).unwrap();
    fs::write(folder.join("cut.jsonl"), &lines[..lines.len() / 2]).unwrap();
}

/// The one test of this file that changes the folder that it is in.
#[test]
fn commands_print_what_they_printed() {
    let folder = tempfile::tempdir().unwrap();
    furnish(folder.path());
    std::env::set_current_dir(folder.path()).unwrap();
    let cases = trycmd::TestCases::new();
    cases
        .env("NO_COLOR", "1")
        .env("COLUMNS", "120")
        .env("XDG_STATE_HOME", folder.path().join("state").to_str().unwrap())
        .env("USER", "anna")
        .case(here().join("tests/transcripts/*.trycmd").to_str().unwrap());
    cases.run();
}

/// `order = { by-domain = "rack" }`: all OSDs of one rack, then all of the next.
#[test]
fn a_rack_is_done_before_the_next_begins() {
    let input = |name: &str| {
        here()
            .join("tests/transcripts/inputs")
            .join(name)
            .display()
            .to_string()
    };
    let from = here().join(FIXTURES).join("18.2.7").display().to_string();
    let observed: Value = serde_json::from_str(&stagger(&["observe", "--json", "--from", &from])).unwrap();
    let racks: BTreeMap<&str, &str> = observed["units"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|unit| Some((unit["id"].as_str()?, unit["domains"]["rack"].as_str()?)))
        .collect();
    let plan = |words: &[&str]| -> Vec<Vec<String>> {
        let words = [
            &["plan", "upgrade", "--to", "20.2.4", "--json", "--from", &from],
            words,
        ]
        .concat();
        let plan: Value = serde_json::from_str(&stagger(&words)).unwrap();
        let stages = plan["parts"].as_array().unwrap();
        let osds = stages.iter().find(|part| part["stage"]["kind"] == "osd").unwrap();
        let waves = osds["stage"]["waves"].as_array().unwrap().iter();
        waves
            .map(|wave| serde_json::from_value(wave["units"].clone()).unwrap())
            .collect()
    };
    let mut order = Vec::new();
    let waves = plan(&["--config", &input("by-rack.toml")]);
    for wave in &waves {
        for osd in wave {
            let rack = racks[osd.as_str()];
            if order.last() != Some(&rack) {
                order.push(rack);
            }
        }
    }
    let all: Vec<&str> = racks
        .values()
        .copied()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(order, all, "each rack once, in the order of their names");
    assert_eq!(waves.iter().map(Vec::len).sum::<usize>(), racks.len());
    // Without that wish the racks are mixed.
    let mixed = plan(&["--max-in-parallel", "50%", "--no-growth"]);
    assert!(mixed.len() <= waves.len());
}
