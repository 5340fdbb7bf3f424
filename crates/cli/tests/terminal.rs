//! Where what is printed goes nowhere: in a terminal that is closed, and on a disk that is full.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STAGGER: &str = env!("CARGO_BIN_EXE_stagger");
const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn watch_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/calm.toml");
    let played = Command::new(STAGGER)
        .arg("--state")
        .arg(folder.path())
        .args(["simulate", "--fast"])
        .arg(scenario)
        .output()
        .unwrap();
    assert!(played.status.success(), "{played:?}");
    let mut runs = fs::read_dir(folder.path().join("simulations")).unwrap();
    let state = runs.next().unwrap().unwrap().path();

    let pid = folder.path().join("pid");
    let line = format!(
        "stty cols 100 rows 30; echo $$ >'{}'; exec '{STAGGER}' --state '{}' watch",
        pid.display(),
        state.display()
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = terminal.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains("q quit") {
        let count = out.read(&mut part).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..count]);
    }
    terminal.kill().unwrap();
    terminal.wait().unwrap();

    let pid = fs::read_to_string(pid).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    let begun = Instant::now();
    while process.exists() {
        if begun.elapsed() > LIMIT {
            Command::new("kill")
                .args(["-s", "KILL", pid.trim()])
                .status()
                .unwrap();
            panic!("watch goes on without its terminal");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A script that takes what it got for the whole has to hear of it.
#[test]
fn what_could_not_be_written_is_an_error_of_its_own() {
    for words in [&["reason"][..], &["reason", "--json"], &["schema"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = Command::new(STAGGER).args(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{words:?}: {said}");
        assert!(said.contains("No space left"), "{words:?}: {said}");
    }
}
