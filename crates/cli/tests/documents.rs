//! What `--json` prints is what the schemas in the book say.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use stagger_asks::AskLedger;
use stagger_core::model::{ClusterId, ClusterName};

const FIXTURE: &str = "crates/backends/ceph/tests/fixtures/18.2.7";

/// A cluster whose `ceph` answers one thing: a run holds `noout`.
const GUARDED: &str = r#"[cluster]
kind = "ceph"
name = "lab"
python = []
ceph = ["sh", "-c", "cat <<'END'\n{\"stagger/guard/noout/osd.1,osd.4\": \"{\\\"run\\\":\\\"r1\\\",\\\"until\\\":4102444800,\\\"osds\\\":[\\\"osd.1\\\",\\\"osd.4\\\"]}\"}\nEND", "ceph"]
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the program prints, whatever its exit code.
fn said(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command.args(words).stdin(Stdio::null()).current_dir(root());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Validates documents, and remembers which there were.
#[derive(Default)]
struct Validator(BTreeSet<String>);

impl Validator {
    fn document(&mut self, text: &str, what: &str) {
        let document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{what}: {e}: {text}"));
        let name = document["schema"]["name"]
            .as_str()
            .unwrap_or_else(|| panic!("{what}: {text}"));
        // What is published permits what a later release may add; this release prints what is in its own.
        let path = root().join(format!("docs/reference/schemas/{name}.json"));
        let published: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let published = jsonschema::draft202012::new(&published).unwrap();
        let strict: Value = serde_json::from_str(&said(&["schema", name, "--strict"])).unwrap();
        let validator = jsonschema::draft202012::new(&strict).unwrap();
        let wrong: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(
            wrong.is_empty(),
            "{what} is not a valid {name}:\n{}",
            wrong.join("\n")
        );
        let mut stranger = document.clone();
        stranger["no-such-field"] = Value::Null;
        assert!(
            !validator.is_valid(&stranger),
            "{name}, strictly, permits any field"
        );
        assert!(
            published.is_valid(&stranger),
            "{name} forbids fields of later releases"
        );
        self.0.insert(name.to_owned());
    }

    fn command(&mut self, words: &[&str]) {
        let words = [words, &["--json"]].concat();
        self.document(&said(&words), &words.join(" "));
    }

    fn lines(&mut self, words: &[&str]) -> usize {
        let words = [words, &["--json"]].concat();
        let text = said(&words);
        text.lines()
            .for_each(|line| self.document(line, &words.join(" ")));
        text.lines().count()
    }
}

/// What is told of a cluster of Rook's that nobody maintains.
const ALONE: &str = "\
UNMANAGED  it has no CephMaintenance: observed only
rook-ceph/ceph  Ready: Cluster created successfully, wants ceph:v20
ceph       HEALTH_WARN
           OSD_DOWN: 1 osds down
pods       0 of 1 are ready; not ready: osd.3
drains     Rook drains n2; all others wait until it is back, or placement groups are clean without it
cordoned   n1
           osd.3 may not: PodDisruptionBudget rook-ceph-osd-host-n1 lets none go: 0 of 1 pods are ready, and 1 have to be
";

/// An API server that knows one CephMaintenance with that run; the kubeconfig that leads to it.
fn kubernetes(run: &Value) -> String {
    let condition = json!({ "type": "Blocked", "status": "True", "reason": "NeedsAPerson", "message": "it waits",
        "observedGeneration": 1, "lastTransitionTime": "2026-11-03T10:00:00Z" });
    let maintenance = json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": "main", "namespace": "rook-ceph", "generation": 1 },
        "spec": { "cephCluster": "ceph", "image": "ceph:v20", "manage": ["drains", "updates"] },
        "status": {
            "phase": "Blocked", "message": "it waits",
            "drains": { "blocked": ["a"], "blockedCount": 1, "why": "osd.3 is down", "draining": ["b"],
                "noout": { "b": "2026-11-03T10:20:00Z" } },
            "observedGeneration": 1, "run": run, "conditions": [condition],
        },
    });
    let osd = json!({
        "metadata": { "name": "rook-ceph-osd-3", "labels": { "app": "rook-ceph-osd", "ceph_daemon_id": "3" } },
        "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "osd", "image": "ceph:v18" }] } } },
    });
    let operator = json!({ "metadata": { "name": "stagger-operator" }, "spec": osd["spec"] });
    let lease = json!({ "spec": { "holderIdentity": "op-1", "leaseDurationSeconds": 30,
        "renewTime": "2026-11-03T10:00:00.000000Z" } });
    served(BTreeMap::from([
        ("cephmaintenances", list(&maintenance)),
        ("cephmaintenances/main", maintenance),
        ("deployments", list(&osd)),
        ("deployments/stagger-operator", operator),
        ("leases/stagger-operator", lease),
    ]))
}

fn list(item: &Value) -> Value {
    json!({ "metadata": {}, "items": [item] })
}

/// An API server that knows one CephCluster of which a pod may not be evicted from its cordoned node; the kubeconfig that
/// leads to it.
fn rook_alone() -> String {
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "ceph", "namespace": "rook-ceph" },
        "spec": { "cephVersion": { "image": "ceph:v20" } },
        "status": {
            "phase": "Ready", "message": "Cluster created successfully",
            "ceph": { "health": "HEALTH_WARN", "details": { "OSD_DOWN": { "message": "1 osds down" } } },
        },
    });
    let osd = json!({ "app": "rook-ceph-osd", "ceph-osd-id": "3" });
    let pod = json!({
        "metadata": { "name": "rook-ceph-osd-3-x", "labels": osd },
        "spec": { "nodeName": "n1", "containers": [] }, "status": { "phase": "Running" },
    });
    let budget = json!({
        "metadata": { "name": "rook-ceph-osd-host-n1" }, "spec": { "selector": { "matchLabels": osd } },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1 },
    });
    let node = json!({ "metadata": { "name": "n1" }, "spec": { "unschedulable": true } });
    let map = json!({ "metadata": {}, "data": { "draining-failure-domain": "n2" } });
    served(BTreeMap::from([
        ("cephclusters", list(&cluster)),
        ("cephclusters/ceph", cluster),
        ("pods", list(&pod)),
        ("poddisruptionbudgets", list(&budget)),
        ("/api/v1/nodes", list(&node)),
        ("configmaps/rook-ceph-pdbstatemap", map),
    ]))
}

/// The kubeconfig that leads to an API server with these answers.
fn served(answers: BTreeMap<&'static str, Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&answers, &mut stream.unwrap());
        }
    });
    json!({
        "current-context": "c", "users": [{ "name": "u", "user": {} }],
        "clusters": [{ "name": "s", "cluster": { "server": format!("http://{address}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "s", "user": "u", "namespace": "rook-ceph" } }],
    })
    .to_string()
}

/// One request, one answer, and the connection ends.
fn answer(answers: &BTreeMap<&str, Value>, stream: &mut TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map(Result::unwrap);
    let request = lines.next().unwrap();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = request.split([' ', '?']).nth(1).unwrap();
    let what = path
        .split_once("/namespaces/rook-ceph/")
        .map_or(path, |(_, what)| what);
    let none =
        json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404 });
    let (code, body) = answers.get(what).map_or((404, &none), |body| (200, body));
    let body = body.to_string();
    let head = format!("HTTP/1.1 {code} OK\r\ncontent-type: application/json\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

#[test]
fn what_is_printed_is_valid() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name).display().to_string();
    let mut all = Validator::default();
    let from = ["--from", FIXTURE];

    all.command(&[&["observe", "--save", &file("saved.json")][..], &from].concat());
    all.document(&fs::read_to_string(file("saved.json")).unwrap(), "observe --save");
    all.command(&[&["versions"][..], &from].concat());
    all.command(&[&["risks", "--to", "20.2.4"][..], &from].concat());
    let to = ["upgrade", "--to", "20.2.4", "--max-in-parallel", "50%"];
    all.command(&[&["plan"][..], &to, &from, &["--out", &file("plan.json")]].concat());
    all.document(&fs::read_to_string(file("plan.json")).unwrap(), "plan --out");
    all.command(&[&["check", &file("plan.json")][..], &from, &to].concat());
    all.command(&[&["explain", "osd.4"][..], &to, &from].concat());
    all.command(&[&["ceph", "ok-to-stop", "0", "--max", "20"][..], &from].concat());
    all.command(&[&["ceph", "ok-to-stop", "0", "2", "4"][..], &from].concat());
    all.command(&[&["simulate"][..], &to, &from, &["--runs", "2"]].concat());
    // Refused: 16 to 20 is too far.
    all.command(&[
        "plan",
        "upgrade",
        "--to",
        "20.2.4",
        "--from",
        "crates/backends/ceph/tests/fixtures/16.2.15",
    ]);

    // A plan for other wishes has findings.
    let narrow = ["upgrade", "--to", "20.2.4", "--max-in-parallel", "1"];
    let plan = file("plan.json");
    let text = said(&[&["check", &plan, "--json"][..], &from, &narrow].concat());
    assert!(text.contains("\"sound\": false"), "{text}");
    all.document(&text, "check with findings");

    let (mut events, mut held) = (0, None::<Value>);
    for scenario in ["demo", "rollback", "no-way-back", "aborted"] {
        let state = file(scenario);
        let path = format!("scenarios/{scenario}.toml");
        let text = said(&["--state", &state, "simulate", "--fast", "--json", &path]);
        all.document(&text, &path);
        let told: Value = serde_json::from_str(&text).unwrap();
        let folder = Path::new(told["journal"].as_str().unwrap()).parent().unwrap();
        let state = ["--state", folder.to_str().unwrap()];
        all.command(&[&state[..], &["status"]].concat());
        assert_eq!(all.lines(&[&state[..], &["history"]].concat()), 1);
        let run = told["run"].as_str().unwrap();
        if scenario == "no-way-back" {
            all.command(&[&state[..], &["pause", run]].concat());
            held = serde_json::from_str(&said(&[&state[..], &["status", "--json"]].concat())).ok();
        }
        events += all.lines(&[&state[..], &["history", run]].concat());
        all.command(&[&state[..], &["verify", run]].concat());
        all.command(&[&state[..], &["artifacts"]].concat());
        all.command(&[&state[..], &["artifacts", "--bundle", &file("bundle.tar.gz")]].concat());
    }
    assert!(events > 200, "only {events} events");

    let migrations = "crates/cli/tests/transcripts/migrations";
    for folder in ["good", "bad", "waived"] {
        all.command(&["lint", "migrations", &format!("{migrations}/{folder}")]);
    }
    let state = ["--state", &file("new-store")];
    for words in [
        &["upgrade"][..],
        &["version"],
        &["check"],
        &["online-data-migrations"],
    ] {
        all.command(&[&state[..], &["db"], words].concat());
    }

    let config = file("stagger.toml");
    fs::write(&config, GUARDED).unwrap();
    let guards = ["--config", &config, "ceph", "guards"];
    assert_eq!(
        said(&guards),
        "noout on osd.1 osd.4, run r1, until 2100-01-01T00:00:00Z\n"
    );
    all.command(&guards);

    let config = file("stagger.toml");
    fs::write(&config, GUARDED).unwrap();
    all.command(&["config", "check", "--config", &config]);
    all.command(&["reason", "snapshot-has-moved"]);

    asks(&mut all, &state, scratch.path());
    said(&[&state[..], &["token", "add", "bot", "--cluster", "lab"]].concat());
    all.command(&[&state[..], &["token", "list"]].concat());

    let kubeconfig = file("kubeconfig");
    fs::write(&kubeconfig, kubernetes(&held.unwrap())).unwrap();
    for words in [&["status"][..], &["versions"], &["versions", "--all"]] {
        all.command(&[words, &["--kubeconfig", &kubeconfig]].concat());
    }
    let shown = said(&["status", "--kubeconfig", &kubeconfig]);
    assert!(shown.contains("b may be drained; a may not"), "{shown}");
    fs::write(&kubeconfig, rook_alone()).unwrap();
    all.command(&["status", "--kubeconfig", &kubeconfig]);
    assert_eq!(said(&["status", "--kubeconfig", &kubeconfig]), ALONE);

    // This one takes a Ganeti that answers: crates/cli/src/documents/leftovers.rs.
    let elsewhere = "ganeti-leftovers";
    let mut listed: BTreeSet<String> = said(&["schema"]).lines().map(str::to_owned).collect();
    assert!(listed.remove(elsewhere), "{elsewhere} has no schema");
    assert_eq!(
        all.0, listed,
        "every document was printed, and every one has a schema"
    );
}

/// An ask that nobody answers, and the list with it.
fn asks(all: &mut Validator, state: &[&str], scratch: &Path) {
    let ledger = AskLedger::in_file(&scratch.join("new-store/asks.db")).unwrap();
    let (lab, name) = (
        ClusterId::new("c0ffee").unwrap(),
        ClusterName::new("lab").unwrap(),
    );
    let registered = ledger.register(&lab, &name);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(registered).unwrap();
    all.command(&[state, &["ask", "host1", "--keep", "1h"]].concat());
    all.command(&[state, &["ask", "list"]].concat());
}

#[test]
fn the_book_lists_every_document() {
    let page = fs::read_to_string(root().join("docs/reference/documents.md")).unwrap();
    for name in said(&["schema"]).lines() {
        assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}
