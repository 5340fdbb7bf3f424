//! `simulate upgrade --to` carries out the plan that `plan` shows, on a copy of the same cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const FIXTURES: &str = "crates/backends/ceph/tests/fixtures";

fn stagger(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    command.args(words).stdin(Stdio::null()).current_dir(root);
    command.env("NO_COLOR", "1").output().unwrap()
}

fn json(words: &[&str]) -> Value {
    let output = stagger(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The waves of a plan, stage by stage, and the names of its steps.
fn waves(plan: &Value) -> usize {
    let parts = plan["parts"].as_array().unwrap().iter();
    parts
        .filter_map(|part| part["stage"]["waves"].as_array())
        .map(Vec::len)
        .sum()
}

/// The simulated run makes its first plan from the copy. That it has the same id says that units, waves,
/// order, doors, what is left alone and the forecast are the same to the last byte.
#[test]
fn the_plan_that_is_rehearsed_is_the_plan() {
    for (from, to, more) in [
        ("16.2.15", "18.2.7", &["--interrupt", "mgr"][..]),
        ("18.2.7", "20.2.4", &[]),
        ("18.2.7", "20.2.4", &["--max-in-parallel", "50%", "--no-growth"]),
        ("18.2.7", "20.2.4", &["--max-in-parallel", "1"]),
        ("18.2.7", "18.2.8", &[]),
    ] {
        let from = format!("{FIXTURES}/{from}");
        let wish = [&["upgrade", "--to", to, "--from", &from][..], more].concat();
        let plan = json(&[&["plan"], &wish[..]].concat());
        let rehearsal = json(&[&["simulate"], &wish[..], &["--runs", "0"]].concat());
        assert_eq!(rehearsal["plan"], plan["id"], "{wish:?}");
        let time = &rehearsal["time"];
        assert_eq!(time["planned_waves"], waves(&plan), "{wish:?}");
        assert_eq!(time["waves"], waves(&plan), "{wish:?}");
        assert_eq!(rehearsal["ended"], "done", "{wish:?}");
        assert_eq!(rehearsal["exposure"]["stopped"], 0, "{wish:?}");
        let doors = |plan: &Value| -> Vec<String> {
            let parts = plan["parts"].as_array().unwrap().iter();
            let doors = parts.flat_map(|part| {
                let waves = part["stage"]["waves"].as_array().into_iter().flatten();
                waves
                    .map(|wave| wave["door"]["name"].clone())
                    .chain([part["step"]["door"]["name"].clone()])
                    .collect::<Vec<_>>()
            });
            doors.filter_map(|door| Some(door.as_str()?.to_owned())).collect()
        };
        assert_eq!(rehearsal["doors"], serde_json::json!(doors(&plan)), "{wish:?}");
    }
}

/// So it is where instances move away and back, and where a service has its turn twice, beside steps.
#[test]
fn a_ganeti_and_an_ironic_are_rehearsed_as_they_are_planned() {
    const INPUTS: &str = "crates/cli/tests/transcripts/inputs";
    let lab = format!("{INPUTS}/lab.data");
    let ironic = format!("{INPUTS}/ironic-29.0.6.json");
    for (from, goal, ended) in [
        (&lab, "reboot", "incomplete"),
        (
            &lab,
            "reboot --max-in-parallel 100% --no-growth --move-non-redundant",
            "done",
        ),
        (
            &lab,
            "reboot --full-evacuation --degraded-meanwhile",
            "incomplete",
        ),
        (
            &lab,
            "reboot --non-drbd rolling --accept-non-redundant",
            "incomplete",
        ),
        (
            &lab,
            "reboot --non-drbd one --shared-secondary exclude",
            "incomplete",
        ),
        (&lab, "reboot --nodes node5", "done"),
        (&ironic, "upgrade --to 32.0.1", "done"),
        (&ironic, "upgrade --to 32.0.1 --kind conductor", "done"),
    ] {
        let words: Vec<&str> = goal.split(' ').chain(["--from", from]).collect();
        let plan = json(&[&["plan"], &words[..]].concat());
        let rehearsal = json(&[&["simulate"], &words[..]].concat());
        assert_eq!(rehearsal["ended"], ended, "{goal}: {rehearsal}");
        assert_eq!(rehearsal["plan"], plan["id"], "{goal}");
        let time = &rehearsal["time"];
        assert_eq!(time["waves"], waves(&plan), "{goal}");
        assert_eq!(time["units"], time["planned_units"], "{goal}");
        let (took, forecast) = (&time["took_seconds"], &time["forecast_seconds"]);
        let (took, forecast) = (took.as_i64().unwrap(), forecast.as_i64().unwrap());
        // After the last wave nothing soaks.
        assert!(
            took * 4 > forecast * 3 && took * 2 < forecast * 3,
            "{goal}: {took} for {forecast} s"
        );
        if from == &lab {
            assert_eq!(rehearsal["guests"]["worst_down"], 0, "{goal}");
        }
    }
    // What runs goes down with its node, where that was wished.
    let down = json(&["simulate", "reboot", "--assume-down", "--from", &lab]);
    assert!(down["guests"]["worst_down"].as_u64().unwrap() > 0, "{down}");
    assert_eq!(down["guests"]["moves"], 0);
}

#[test]
fn the_same_input_and_seed_give_the_same_bytes() {
    let from = format!("{FIXTURES}/18.2.7");
    let words = [
        "simulate", "upgrade", "--to", "20.2.4", "--from", &from, "--runs", "12", "--json",
    ];
    let first = stagger(&words).stdout;
    assert!(!first.is_empty());
    assert_eq!(first, stagger(&words).stdout);
    let other = stagger(&[&words[..], &["--seed", "2"]].concat()).stdout;
    assert_ne!(first, other, "another seed draws other failures");
}

#[test]
fn what_plan_refuses_is_not_rehearsed() {
    for (from, to) in [("16.2.15", "20.2.4"), ("18.2.7", "16.2.15"), ("18.2.7", "31.0.0")] {
        let from = format!("{FIXTURES}/{from}");
        let plan = stagger(&["plan", "upgrade", "--to", to, "--from", &from]);
        let rehearsal = stagger(&["simulate", "upgrade", "--to", to, "--from", &from]);
        assert_eq!(plan.status.code(), Some(1), "{to}");
        assert_eq!(
            (rehearsal.status, rehearsal.stdout, rehearsal.stderr),
            (plan.status, plan.stdout, plan.stderr)
        );
    }
}

/// In its world an answer takes four seconds, which pass only while everybody waits.
#[test]
fn a_scenario_whose_judges_take_their_time_is_shown_and_played() {
    const SCENARIO: &str = "scenarios/found/refused-one-after-the-other.toml";
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let told = stagger(&["--state", state, "simulate", "--fast", SCENARIO]);
    let (told, shown) = (told.stdout, String::from_utf8(told.stderr).unwrap());
    assert!(shown.contains("carried out now, in simulation"), "{shown}");
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("Done: every unit serves on the target"), "{told}");
}
