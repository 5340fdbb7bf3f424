//! The alert rules, and what Prometheus makes of what it is told.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jiff::Timestamp;

use crate::server::Served;

/// The program.
const VARIABLE: &str = "STAGGER_TEST_PROMTOOL";

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/stagger-alerts.yaml")
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alerts.yaml")
}

/// No alert is without a case in which it fires and one in which it does not.
#[test]
fn each_alert_has_cases() {
    let (rules, tests) = [rules(), tests()]
        .map(|file| std::fs::read_to_string(file).unwrap())
        .into();
    let names: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(
            tests.contains(&format!("alertname: {name}\n")),
            "{name} is never seen to fire"
        );
        assert!(
            tests.contains(&format!("alertname: {name}, exp_alerts: []")),
            "{name} is never seen to be silent"
        );
    }
}

fn asked(words: &[&str], file: Option<&Path>, input: Option<&str>) -> Output {
    let program = std::env::var_os(VARIABLE).map_or_else(
        || panic!("{VARIABLE} names no promtool: `cargo xtask test` brings one along"),
        PathBuf::from,
    );
    let mut command = Command::new(program);
    command
        .args(words)
        .args(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(input) = input {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics");
        std::fs::write(&file, input).unwrap();
        return command
            .stdin(std::fs::File::open(file).unwrap())
            .output()
            .unwrap();
    }
    command.output().unwrap()
}

fn well(output: &Output) {
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

#[tokio::test]
#[ignore = "needs promtool: `cargo xtask test` brings one along, else STAGGER_TEST_PROMTOOL names the program"]
async fn prometheus_takes_the_rules_and_what_it_is_told() {
    well(&asked(&["check", "rules"], Some(&rules()), None));
    well(&asked(&["test", "rules"], Some(&tests()), None));
    // It finds what is wrong: a rule that fires earlier than its cases say.
    let folder = tempfile::tempdir().unwrap();
    let hasty = std::fs::read_to_string(rules())
        .unwrap()
        .replace("for: 10m", "for: 1m");
    std::fs::write(folder.path().join("stagger-alerts.yaml"), hasty).unwrap();
    let cases = std::fs::read_to_string(tests()).unwrap();
    let cases = cases.replace("../../../deploy/prometheus/", "");
    let file = folder.path().join("cases.yaml");
    std::fs::write(&file, cases).unwrap();
    assert!(!asked(&["test", "rules"], Some(&file), None).status.success());
    // Names that would end a label do not.
    let served = Served::at_socket().await;
    served.begin_run("quoted", r#""\{}<&"#, Timestamp::now()).await;
    let told = served.get("/metrics").await.body;
    assert!(told.contains(r#"run="\"\\{}<&""#), "{told}");
    well(&asked(&["check", "metrics"], None, Some(&told)));
}
