//! Whether anybody is at work, as a person finds out: a run that is killed, one that is stopped, and one that is ended.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FIXTURES: &str = "../backends/ceph/tests/fixtures/16.2.15";

/// A recorded cluster that keeps keys. Nothing is begun in it: its window is on another day.
const CEPH: &str = r#"
while [ "${1#--}" != "$1" ]; do shift 2; done
mkdir -p keys
case "$*" in
"config-key set "*)
    at=$(printf '%s' "$3" | tr / %)
    printf '%s' "$4" >"new.$$" && mv "new.$$" "keys/$at"
    ;;
"config-key rm "*) rm -f "keys/$(printf '%s' "$3" | tr / %)" ;;
"config-key dump "*)
    between=
    printf '{'
    for at in keys/*; do
        key=$(printf '%s' "${at#keys/}" | tr % /)
        case "$key" in "$3"*) ;; *) continue ;; esac
        printf '%s"%s":"%s"' "$between" "$key" "$(sed 's/\\/\\\\/g; s/"/\\"/g' "$at")"
        between=,
    done
    printf '}'
    ;;
"tell mon."*" perf dump") echo '{"mon":{},"rocksdb":{}}' ;;
*) cat "facts/$(printf '%s' "$*" | tr -c 'a-z0-9' _).json" ;;
esac
"#;

const CONFIG: &str = r#"
[cluster]
kind = "ceph"
name = "lab"
python = []
ceph = ["sh", "ceph.sh"]
poll = 1

[policy]
interruptions = ["mgr", "mds"]

[software.all]
upgrade = "true"
restart = "true"

[[policy.windows]]
days = ["DAY"]
from = "01:00"
until = "23:00"
zone = "UTC"
"#;

/// Some days from now.
fn another_day() -> &'static str {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).weekday();
    days[(usize::try_from(today.to_monday_zero_offset()).unwrap() + 3) % 7]
}

struct Setting(tempfile::TempDir);

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURES);
        fs::create_dir(folder.path().join("facts")).unwrap();
        for file in fs::read_dir(from).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, folder.path().join("facts").join(file.file_name().unwrap())).unwrap();
        }
        fs::write(folder.path().join("ceph.sh"), CEPH).unwrap();
        fs::write(
            folder.path().join("stagger.toml"),
            CONFIG.replace("DAY", another_day()),
        )
        .unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
        command
            .args(["--config", "stagger.toml", "--state", "state"])
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .env("NO_COLOR", "1");
        command
    }

    /// The exit code, and all that is said.
    fn said(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }

    /// Starts it, and waits until it is at work: until it has looked at the cluster and planned, and listens.
    fn at_work(&self, words: &[&str]) -> Child {
        let told = File::create(self.file("told.txt")).unwrap();
        let mut child = self
            .command(words)
            .stdout(Stdio::null())
            .stderr(told)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        loop {
            let (code, text) = self.said(&["status"]);
            let told = fs::read_to_string(self.file("told.txt")).unwrap();
            if code == 0 && told.contains(" planned ") {
                assert!(!text.contains("INTERRUPTED"), "{text}");
                return child;
            }
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < Duration::from_mins(2),
                "{ended:?}: {told}\n{code}: {text}"
            );
        }
    }
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn a_run_that_was_killed_or_stopped_is_interrupted_and_abort_ends_it() {
    let setting = Setting::new();
    let mut run = setting.at_work(&["run", "--yes", "upgrade", "--to", "18.2.7"]);
    signal(&run, "-KILL");
    run.wait().unwrap();
    let (code, text) = setting.said(&["status"]);
    assert!(text.starts_with("INTERRUPTED  process "), "{text}");
    assert!(
        text.contains(" is gone\n") && text.contains("`stagger resume "),
        "{text}"
    );
    assert_eq!(code, 7, "{text}");

    // It is dead on this machine: nobody waits until its lock expires.
    let begun = Instant::now();
    let mut resumed = setting.at_work(&["resume"]);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    signal(&resumed, "-INT");
    assert_eq!(resumed.wait().unwrap().code(), Some(130));
    let (code, text) = setting.said(&["status"]);
    assert!(text.starts_with("INTERRUPTED  it was stopped "), "{text}");
    assert_eq!(code, 7, "{text}");

    // Nobody carries it out, so whoever ends it does.
    let (code, text) = setting.said(&["abort"]);
    assert!(text.contains("this process resumes it"), "{text}");
    assert_eq!(code, 1, "{text}");
    let (code, text) = setting.said(&["status"]);
    assert!(text.starts_with("ENDED  aborted"), "{text}");
    assert!(text.contains(", took "), "{text}");
    assert_eq!(code, 1, "{text}");
}
