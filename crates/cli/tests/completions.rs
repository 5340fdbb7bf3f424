//! A shell asks what comes next, as `stagger completions bash` has it do.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::process::Command;

fn stagger() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command.env("NO_COLOR", "1");
    command
}

/// What is offered for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let mut command = stagger();
    command
        .env("STAGGER_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .arg("--")
        .args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_reasons_and_documents_are_offered() {
    assert_eq!(offered(&["stagger", "expl"]), ["explain"]);
    assert_eq!(
        offered(&["stagger", "reason", "snapshot-has"]),
        ["snapshot-has-moved"]
    );
    assert_eq!(offered(&["stagger", "schema", "inv"]), ["inventory"]);
}

#[test]
fn runs_and_units_of_the_store_are_offered() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().to_str().unwrap();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
    let played = stagger()
        .args(["--state", state, "simulate", "--fast", "--json", scenario])
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&played.stdout).unwrap();
    let (run, journal) = (
        document["run"].as_str().unwrap(),
        document["journal"].as_str().unwrap(),
    );
    let folder = std::path::Path::new(journal).parent().unwrap().to_str().unwrap();
    let of = |words: &[&str]| offered(&[&["stagger", "--state", folder], words].concat());
    assert_eq!(of(&["history", ""]).iter().filter(|one| *one == run).count(), 1);
    let in_a_word = format!("--state={folder}");
    assert!(offered(&["stagger", &in_a_word, "history", ""]).contains(&run.to_owned()));
    let units = of(&["explain", "osd.1"]);
    assert!(units.contains(&"osd.1".to_owned()), "{units:?}");
    let flags = |goal: &[&str], flag: &str, begun: &str| of(&[goal, &[flag, begun]].concat());
    for goal in [&["plan", "upgrade"], &["run", "restart"]] {
        assert_eq!(
            flags(goal, "--host", "host-0-"),
            ["host-0-0", "host-0-1", "host-0-2", "host-0-3"]
        );
        assert_eq!(flags(goal, "--domain", "rack=rack-4"), ["rack=rack-4"]);
        assert_eq!(flags(goal, "--kind", "m"), ["mds", "mgr", "mon"]);
        assert!(flags(goal, "--unit", "osd.1").contains(&"osd.17".to_owned()));
    }
    assert!(of(&["confirm", "host-4-"]).contains(&"host-4-3".to_owned()));
    // Where there is no store nothing is offered, and none is made.
    let empty = scratch.path().join("none");
    let empty = empty.to_str().unwrap();
    assert!(!offered(&["stagger", "--state", empty, "history", ""]).contains(&run.to_owned()));
    assert!(!std::path::Path::new(empty).exists());
}

#[test]
fn each_shell_has_its_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = stagger().args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("STAGGER_COMPLETE") && text.contains("stagger"),
            "{shell}: {text}"
        );
    }
}
