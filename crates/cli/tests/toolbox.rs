//! A cluster of Rook's whose monitors cannot be reached from here is asked in its toolbox.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

const FIXTURE: &str = "../backends/ceph/tests/fixtures/18.2.7";

/// Carries out what stands behind the dashes, as `kubectl exec` does, beside the programs of the toolbox.
const KUBECTL: &str = r#"#!/bin/sh
echo "$*" | head -n 1 >>"$TOOLBOX/asked"
while [ "$1" != -- ]; do shift; done
shift
PATH="$TOOLBOX/bin:$PATH" exec "$@"
"#;

/// It has no module `rados`.
const PYTHON: &str = r#"#!/bin/sh
echo '{"missing": "no rados here", "bytes": 0}'
"#;

const CEPH: &str = r#"#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
cat "$FACTS/$(printf '%s' "$*" | tr -c 'a-z0-9' _).json"
"#;

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// An API server that knows one CephCluster and nothing else; the kubeconfig that leads to it.
fn kubernetes() -> String {
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "main", "namespace": "rook-ceph" }, "spec": {},
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty())
                .collect();
            let (code, body) = if head[0].contains("/namespaces/rook-ceph/cephclusters") {
                (200, json!({ "metadata": {}, "items": [cluster] }))
            } else {
                let no = json!({ "kind": "Status", "status": "Failure", "message": "no", "code": 403 });
                (403, no)
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {code} OK\r\ncontent-type: application/json\r\nconnection: close");
            write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    json!({
        "current-context": "c", "users": [{ "name": "u", "user": {} }],
        "clusters": [{ "name": "s", "cluster": { "server": format!("http://{address}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "s", "user": "u" } }],
    })
    .to_string()
}

/// What a command prints, and the words with which `kubectl` was called.
fn asked(words: &[&str]) -> (String, Vec<String>) {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    program(&place.join("here/kubectl"), KUBECTL);
    program(&place.join("bin/python3"), PYTHON);
    program(&place.join("bin/ceph"), CEPH);
    fs::write(place.join("asked"), "").unwrap();
    let kubeconfig = place.join("kubeconfig");
    fs::write(&kubeconfig, kubernetes()).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stagger"))
        .args(words)
        .args(["-n", "rook-ceph", "--context", "c", "--kubeconfig"])
        .arg(&kubeconfig)
        .current_dir(place)
        .env("PATH", format!("{}:{path}", place.join("here").display()))
        .env("TOOLBOX", place)
        .env("FACTS", here.join(FIXTURE))
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let calls = fs::read_to_string(place.join("asked")).unwrap();
    let calls = calls.replace(&kubeconfig.display().to_string(), "KUBECONFIG");
    let told = [output.stdout, output.stderr].concat();
    (
        String::from_utf8(told).unwrap(),
        calls.lines().map(str::to_owned).collect(),
    )
}

#[test]
fn facts_come_through_the_toolbox_and_nothing_of_rooks_is_read() {
    let before = "--namespace=rook-ceph --kubeconfig=KUBECONFIG --context=c exec --stdin";
    let (told, calls) = asked(&["plan", "upgrade", "--to", "20.2.4", "--toolbox"]);
    assert!(told.contains("main  ceph 18.2.7 to 20.2.4"), "{told}");
    let through = |toolbox: &str, program: &str| {
        let wanted = format!("{before} {toolbox} -- {program} ");
        calls.iter().filter(|call| call.starts_with(&wanted)).count()
    };
    assert_eq!(through("deploy/rook-ceph-tools", "python3"), 1, "{calls:?}");
    assert!(through("deploy/rook-ceph-tools", "ceph") > 8, "{calls:?}");

    let (told, calls) = asked(&["observe", "--toolbox=deploy/my-tools"]);
    assert!(told.contains("18.2.7"), "{told}");
    assert!(
        calls
            .iter()
            .all(|call| call.contains("exec --stdin deploy/my-tools -- ")),
        "{calls:?}"
    );
}

#[test]
fn who_may_not_read_the_key_is_told_of_the_toolbox() {
    let (told, calls) = asked(&["observe"]);
    assert!(told.contains("--toolbox needs neither"), "{told}");
    assert!(calls.is_empty(), "{calls:?}");
}
