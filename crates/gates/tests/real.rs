//! Gates on a real Prometheus and a real Alertmanager, of what a program of the test exposes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use stagger_core::model::{Condition, Verdict};
use stagger_engine::preflight::CheckOutcome;
use stagger_gates::{AlertGate, Endpoint, GateSettings, Measures, MetricGate};
use tempfile::TempDir;

const PASSWORD: &str = "out-of-sight";
/// The same, as Prometheus keeps it (bcrypt).
const KEPT: &str = "$2b$05$mrlJvemFcE4.MaD57qPyHeLfEKDCgV91MACz.Zp5L8iMIlQ6qvgxC";
/// So long something is waited for.
const LIMIT: Duration = Duration::from_mins(1);

fn program(variable: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || panic!("{variable} names no program: `cargo xtask test` brings one along"),
        PathBuf::from,
    )
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A program that ends with the test.
struct Started(Child);

impl Started {
    fn new(program: &Path, words: &[String], log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        let child = Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Exposes how busy two disks are.
#[derive(Clone)]
struct Disks(Arc<Mutex<[f64; 2]>>);

impl Disks {
    fn exposed() -> (Self, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let disks = Self(Arc::new(Mutex::new([0.1, 0.2])));
        let shown = disks.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Ok(1..) = stream.read(&mut [0; 4096]) else {
                    continue;
                };
                let [a, b] = *shown.0.lock().unwrap();
                let body = format!("disk_busy{{disk=\"a\"}} {a}\ndisk_busy{{disk=\"b\"}} {b}\n");
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
                write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok();
            }
        });
        (disks, port)
    }

    fn are(&self, busy: [f64; 2]) {
        *self.0.lock().unwrap() = busy;
    }
}

/// Prometheus over TLS with a password, and the Alertmanager that it tells.
struct Observability {
    folder: TempDir,
    ports: [u16; 2],
    prometheus: Option<Started>,
    _alertmanager: Started,
}

impl Observability {
    fn of(exposed: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = [free_port(), free_port()];
        let at = |name: &str| folder.path().join(name);
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        fs::write(at("ca.pem"), cert.pem()).unwrap();
        fs::write(at("key.pem"), signing_key.serialize_pem()).unwrap();
        fs::write(at("password"), format!("{PASSWORD}\n")).unwrap();
        fs::set_permissions(
            at("password"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        fs::write(
            at("web.yml"),
            format!(
                "tls_server_config:\n  cert_file: ca.pem\n  key_file: key.pem\nbasic_auth_users:\n  stagger: {KEPT}\n"
            ),
        )
        .unwrap();
        fs::write(
            at("rules.yml"),
            "groups:\n- name: disks\n  rules:\n  - alert: Watchdog\n    expr: vector(1)\n  - alert: DiskBusy\n    expr: disk_busy > 0.8\n    labels: {severity: critical}\n    annotations: {summary: 'disk {{ $labels.disk }} is busy'}\n",
        )
        .unwrap();
        fs::write(
            at("prometheus.yml"),
            format!(
                "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\nalerting:\n  alertmanagers:\n  - static_configs: [{{targets: ['127.0.0.1:{}']}}]\nscrape_configs:\n- job_name: disks\n  static_configs: [{{targets: ['127.0.0.1:{exposed}']}}]\n",
                ports[1]
            ),
        )
        .unwrap();
        fs::write(
            at("alertmanager.yml"),
            "route: {receiver: none}\nreceivers: [{name: none}]\n",
        )
        .unwrap();
        let words = [
            format!("--config.file={}", at("alertmanager.yml").display()),
            format!("--storage.path={}", at("alerts").display()),
            format!("--web.listen-address=127.0.0.1:{}", ports[1]),
            "--cluster.listen-address=".to_owned(),
        ];
        let alertmanager = Started::new(
            &program("STAGGER_TEST_ALERTMANAGER"),
            &words,
            &at("alertmanager.log"),
        );
        // Who is told nothing at first is told again a minute later.
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", ports[1])).is_err() {
            assert!(since.elapsed() < LIMIT, "Alertmanager does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut all = Self {
            folder,
            ports,
            prometheus: None,
            _alertmanager: alertmanager,
        };
        all.start_prometheus();
        all
    }

    fn start_prometheus(&mut self) {
        let at = |name: &str| self.folder.path().join(name);
        let words = [
            format!("--config.file={}", at("prometheus.yml").display()),
            format!("--web.config.file={}", at("web.yml").display()),
            format!("--storage.tsdb.path={}", at("series").display()),
            format!("--web.listen-address=127.0.0.1:{}", self.ports[0]),
        ];
        let started = Started::new(&program("STAGGER_TEST_PROMETHEUS"), &words, &at("prometheus.log"));
        self.prometheus = Some(started);
    }

    fn settings(&self) -> GateSettings {
        let at = |name: &str| Some(self.folder.path().join(name));
        GateSettings {
            prometheus: Some(Endpoint {
                url: format!("https://localhost:{}/", self.ports[0]),
                token_file: None,
                user: Some("stagger".to_owned()),
                password_file: at("password"),
                ca_file: at("ca.pem"),
            }),
            alertmanager: Some(Endpoint {
                url: format!("http://127.0.0.1:{}", self.ports[1]),
                token_file: None,
                user: None,
                password_file: None,
                ca_file: None,
            }),
            metric: vec![metric("busy", "disk_busy")],
            alert: vec![AlertGate {
                name: "critical".to_owned(),
                matchers: vec!["severity=\"critical\"".to_owned()],
                watchdog: Some("Watchdog".to_owned()),
                hold: None,
                timeout: None,
            }],
        }
    }

    /// Silences all critical alerts for an hour.
    fn silence(&self) {
        let now = jiff::Timestamp::now();
        let end = now + jiff::SignedDuration::from_hours(1);
        let body = format!(
            r#"{{"matchers":[{{"name":"severity","value":"critical","isRegex":false}}],"startsAt":"{now}","endsAt":"{end}","createdBy":"anna","comment":"known"}}"#
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[1])).unwrap();
        let head = "POST /api/v2/silences HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

fn metric(name: &str, query: &str) -> MetricGate {
    MetricGate {
        name: name.to_owned(),
        query: query.to_owned(),
        min: None,
        max: Some(0.8),
        hold: None,
        timeout: None,
    }
}

/// Asks until a condition is as it should be, and tells its why.
async fn until(measures: &Measures, name: &str, verdict: Verdict) -> String {
    let since = Instant::now();
    loop {
        let all = measures.conditions().await;
        let one: &Condition = all.iter().find(|one| one.name.as_str() == name).unwrap();
        if one.verdict == verdict {
            return one.why.clone();
        }
        assert!(since.elapsed() < LIMIT, "{one:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs Prometheus and Alertmanager: `cargo xtask test` brings them along"]
async fn gates_follow_a_real_prometheus_and_alertmanager() {
    let (disks, port) = Disks::exposed();
    let mut real = Observability::of(port);
    let measures = Measures::new(&real.settings()).unwrap();
    let why = until(&measures, "metric-busy", Verdict::Yes).await;
    assert_eq!(why, "0.1 to 0.2 of 2 series, at most 0.8 is good");
    assert_eq!(
        until(&measures, "alert-critical", Verdict::Yes).await,
        "none fires"
    );
    let checks = measures.preflight().await;
    assert!(
        checks.iter().all(|check| check.outcome == CheckOutcome::Passed),
        "{checks:?}"
    );

    disks.are([0.1, 0.9]);
    let why = until(&measures, "metric-busy", Verdict::No).await;
    assert_eq!(
        why,
        format!(
            "1 of 2 series: 0.9 of {{disk=\"b\", instance=\"127.0.0.1:{port}\", job=\"disks\"}}, at most 0.8 is good"
        )
    );
    let why = until(&measures, "alert-critical", Verdict::No).await;
    assert_eq!(why, "DiskBusy fires (disk b is busy)");
    // What is silenced keeps nobody.
    real.silence();
    until(&measures, "alert-critical", Verdict::Yes).await;
    until(&measures, "metric-busy", Verdict::No).await;

    // Nobody can tell while Prometheus is away, and the alerts of one that is away are no news.
    disks.are([0.1, 0.2]);
    until(&measures, "metric-busy", Verdict::Yes).await;
    real.prometheus = None;
    let why = until(&measures, "metric-busy", Verdict::Unknown).await;
    assert!(why.contains("/api/v1/query: "), "{why}");
    let checks = measures.preflight().await;
    assert_eq!(checks[0].outcome, CheckOutcome::Failed, "{checks:?}");
    real.start_prometheus();
    until(&measures, "metric-busy", Verdict::Yes).await;
}

#[tokio::test]
#[ignore = "needs Prometheus and Alertmanager: `cargo xtask test` brings them along"]
async fn what_cannot_be_answered_is_unknown_and_says_why() {
    let (_disks, port) = Disks::exposed();
    let real = Observability::of(port);
    let mut settings = real.settings();
    settings.metric = vec![
        metric("good", "disk_busy"),
        metric("bad", "disk_busy{"),
        metric("nothing", "no_such_series"),
        metric("ranges", "disk_busy[5m]"),
        metric("no-number", "vector(0) / 0"),
        metric("scalar", "scalar(vector(0.5))"),
    ];
    settings.alert[0].watchdog = Some("NoSuchAlert".to_owned());
    settings.alert.push(AlertGate {
        name: "wrong".to_owned(),
        matchers: vec!["severity critical".to_owned()],
        watchdog: None,
        ..settings.alert[0].clone()
    });
    let measures = Measures::new(&settings).unwrap();
    until(&measures, "metric-good", Verdict::Yes).await;
    let all = measures.conditions().await;
    let said = |name: &str| {
        let one = all.iter().find(|one| one.name.as_str() == name).unwrap();
        (one.verdict, one.why.as_str())
    };
    assert_eq!(said("metric-scalar"), (Verdict::Yes, "0.5, at most 0.8 is good"));
    for (name, part) in [
        ("metric-bad", "Prometheus answers 400: "),
        ("metric-nothing", "`or vector(0)`"),
        ("metric-ranges", "take the range out"),
        ("metric-no-number", "NaN, no number"),
        ("alert-critical", "NoSuchAlert does not fire"),
        ("alert-wrong", "Alertmanager answers 400: "),
    ] {
        let (verdict, why) = said(name);
        assert_eq!(verdict, Verdict::Unknown, "{name}: {why}");
        assert!(why.contains(part), "{name}: {why}");
    }
    // A password that is not the right one, and an authority that is not to be believed.
    let password = real.folder.path().join("password");
    fs::write(&password, "guessed-by-somebody\n").unwrap();
    let guessed = Measures::new(&settings).unwrap().conditions().await;
    assert_eq!(guessed[0].verdict, Verdict::Unknown);
    assert!(guessed[0].why.contains("answers 401"), "{}", guessed[0].why);
    if let Some(prometheus) = &mut settings.prometheus {
        prometheus.ca_file = None;
    }
    match Measures::new(&settings) {
        Ok(measures) => {
            let all = measures.conditions().await;
            assert_eq!(all[0].verdict, Verdict::Unknown);
            assert!(all[0].why.contains("certificate"), "{}", all[0].why);
        }
        // A machine without authorities.
        Err(why) => assert!(why.contains("give `ca_file`"), "{why}"),
    }
}
