//! A run that asks a Prometheus how users fare. The Prometheus is played: a real one is asked in `crates/gates/tests/real.rs`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::case::under_load;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Setup};
use stagger_e2e::verify;

use super::LIMIT;

/// Answers every query with one value, or with an error.
#[derive(Clone)]
struct Played(Arc<Mutex<Option<f64>>>);

impl Played {
    fn start() -> Result<(Self, u16)> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listening")?;
        let port = listener.local_addr()?.port();
        let played = Self(Arc::new(Mutex::new(Some(0.1))));
        let value = played.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Ok(1..) = stream.read(&mut [0; 4096]) else {
                    continue;
                };
                let value = *value.0.lock().unwrap_or_else(PoisonError::into_inner);
                let (code, body) = match value {
                    Some(value) => (
                        "200 OK",
                        format!(
                            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1,"{value}"]}}]}}}}"#
                        ),
                    ),
                    None => (
                        "503 Service Unavailable",
                        r#"{"status":"error","error":"it starts"}"#.to_owned(),
                    ),
                };
                let head =
                    format!("HTTP/1.1 {code}\r\nContent-Type: application/json\r\nConnection: close\r\n");
                write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok();
            }
        });
        Ok((played, port))
    }

    fn says(&self, value: Option<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// Users suffer after the first wave of OSDs: no other begins, also while nobody can tell; then it goes on by itself.
#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn a_run_waits_while_users_suffer() -> Result<()> {
    let name = "a_run_waits_while_users_suffer";
    let releases = [Release::Reef, Release::Tentacle];
    under_load(name, Release::Reef, &releases, |cluster, phases| {
        let (played, port) = Played::start()?;
        let setup = Setup {
            // It is held, and released by itself.
            gate_timeout: 20,
            on_failure: "stop",
            prometheus: Some(port),
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let to = verify::version(cluster, Release::Tentacle)?;
        let checked = machine.call(&["config", "check"])?;
        ensure!(
            checked.out.contains("metric-suffering"),
            "not checked: {}",
            checked.out
        );
        played.says(Some(0.9));
        let planned = machine.call(&["plan", "upgrade", "--to", &to])?.expect(0)?;
        ensure!(
            planned
                .said
                .contains("metric-suffering is no: 0.9, at most 0.8 is good"),
            "not told: {}",
            planned.said
        );
        played.says(Some(0.1));
        phases.lap("checked and planned");

        let mut run = machine.start(&["run", "upgrade", "--to", &to])?;
        run.until("an OSD wave", LIMIT, |line| {
            line.contains("wave") && line.contains("osd:")
        })?;
        played.says(Some(0.9));
        run.until("a run that is held", LIMIT, |line| {
            line.contains("gates-shut") && line.contains("metric-suffering: 0.9")
        })?;
        let waves = machine.journal()?.waves().len();
        phases.lap("held");
        played.says(None);
        run.until("an answer that is none", LIMIT, |line| {
            line.contains("metric-suffering: unknown: Prometheus answers 503: it starts")
        })?;
        // Longer than a wave takes.
        std::thread::sleep(Duration::from_secs(20));
        let journal = machine.journal()?;
        let now = journal.waves().len();
        ensure!(now == waves, "{now} waves while users suffer, {waves} before");
        played.says(Some(0.1));
        run.end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("to the end");
        verify::is_on(cluster, &machine, Release::Tentacle)?;
        verify::nothing_is_left(cluster)?;
        machine.journal()?.both_judges_agreed()
    })
}
