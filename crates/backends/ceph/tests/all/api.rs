//! The ways to ask, against programs that only pretend to be Ceph's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stagger_ceph::api::exec::Exec;
use stagger_ceph::api::saved::{AnswerRecorder, FromSaved};
use stagger_ceph::api::session::Session;
use stagger_ceph::api::{Access, CephAnswer, CephApi, CephApiError, QueryTarget};

fn access(dir: &Path, python: Option<Vec<String>>) -> Access {
    Access {
        ceph: vec![dir.join("ceph").display().to_string()],
        python,
        timeout: Duration::from_secs(2),
        ..Access::default()
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn ask(api: &dyn CephApi, prefix: &str) -> Result<CephAnswer, CephApiError> {
    runtime().block_on(api.command(QueryTarget::Mon, json!({ "prefix": prefix, "format": "json" })))
}

const CEPH: &str = r#"#!/bin/sh
case "$*" in
*"osd dump") echo '{"said": "'"$*"'"}' ;;
*"osd ok-to-stop") echo '{}'; echo 'Error EBUSY: unsafe' >&2; exit 16 ;;
*"status") echo '[errno 2] RADOS object not found (error connecting to the cluster)' >&2; exit 1 ;;
*"hang") exec sleep 60 ;;
esac
"#;

#[test]
fn the_program_is_asked_once_a_question() {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join("ceph"), CEPH);
    let api = Exec::new(Access {
        conf: Some("/etc/ceph/c.conf".into()),
        ..access(dir.path(), None)
    });
    let said = String::from_utf8(ask(&api, "osd dump").unwrap().out).unwrap();
    assert!(
        said.contains("-c /etc/ceph/c.conf --connect-timeout 2 --format json osd dump"),
        "{said}"
    );
    let no = ask(&api, "osd ok-to-stop").unwrap();
    assert_eq!((no.rc, no.out.as_slice()), (16, &b"{}\n"[..]));
    let error = ask(&api, "status").unwrap_err();
    assert!(
        matches!(error, CephApiError::Unreachable { .. }) && error.passes(),
        "{error}"
    );
}

#[test]
fn a_program_that_hangs_is_ended_in_time() {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join("ceph"), CEPH);
    let started = Instant::now();
    let error = ask(&Exec::new(access(dir.path(), None)), "hang").unwrap_err();
    assert!(
        matches!(error, CephApiError::TimedOut { seconds: 2, .. }),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_program_that_is_not_there_is_named_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let error = ask(&Exec::new(access(dir.path(), None)), "osd dump").unwrap_err();
    assert!(error.to_string().contains("ceph") && !error.passes(), "{error}");
    assert!(error.hint().unwrap().contains("install"));
}

/// A module that counts its connections and answers what it was asked.
const RADOS: &str = r#"
import json, os, time
class Rados:
    def __init__(self, conffile=None, name=None):
        pass
    def conf_set(self, key, value):
        pass
    def connect(self):
        if os.path.exists(os.environ["DIR"] + "/unreachable"):
            raise RuntimeError("no monitors")
        with open(os.environ["DIR"] + "/connections", "a") as f:
            f.write("x")
    def mon_command(self, command, data):
        prefix = json.loads(command)["prefix"]
        if prefix == "hang":
            time.sleep(60)
        if prefix == "slow":
            time.sleep(1)
        if prefix == "die":
            os._exit(9)
        if prefix == "no":
            return -16, b"{}", "unsafe"
        return 0, command.encode(), ""
    mgr_command = mon_command
"#;

fn python(dir: &Path) -> Vec<String> {
    let dir = dir.display();
    let line = [
        "env".to_owned(),
        format!("DIR={dir}"),
        format!("PYTHONPATH={dir}"),
        "python3".to_owned(),
    ];
    line.to_vec()
}

#[test]
fn one_connection_answers_all_questions_and_is_made_anew_when_it_breaks() {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join("ceph"), CEPH);
    fs::write(dir.path().join("rados.py"), RADOS).unwrap();
    let api = Session::new(access(dir.path(), Some(python(dir.path()))));
    let connections = || fs::read(dir.path().join("connections")).unwrap().len();
    runtime().block_on(async {
        let ask = |prefix: &'static str| api.command(QueryTarget::Mgr, json!({ "prefix": prefix }));
        for _ in 0..3 {
            assert_eq!(ask("osd dump").await.unwrap().out, br#"{"prefix": "osd dump"}"#);
        }
        let no = ask("no").await.unwrap();
        assert_eq!((no.rc, no.err.as_str()), (16, "unsafe"));
        assert_eq!(connections(), 1);
        assert!(matches!(ask("die").await, Err(CephApiError::Unreachable { .. })));
        assert_eq!(ask("osd dump").await.unwrap().rc, 0);
        assert_eq!(connections(), 2);
        assert!(matches!(ask("hang").await, Err(CephApiError::TimedOut { .. })));
        assert_eq!(ask("osd dump").await.unwrap().rc, 0);
        // Given up half-way: its late answer is not taken for the next one's.
        assert!(
            tokio::time::timeout(Duration::from_millis(200), ask("hang"))
                .await
                .is_err()
        );
        assert_eq!(ask("osd dump").await.unwrap().out, br#"{"prefix": "osd dump"}"#);
        assert_eq!(connections(), 3);
    });
    assert_eq!(api.fallback_reason(), None);
}

#[test]
fn nobody_waits_for_the_answer_of_another() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rados.py"), RADOS).unwrap();
    let api = Session::new(access(dir.path(), Some(python(dir.path()))));
    let ask = |prefix: &'static str| api.command(QueryTarget::Mon, json!({ "prefix": prefix }));
    runtime().block_on(async {
        assert_eq!(ask("osd dump").await.unwrap().rc, 0);
        // Each has its own answer, and the quick one does not wait for the slow ones.
        let begun = Instant::now();
        let quick = async {
            let out = ask("status").await.unwrap().out;
            assert_eq!(out, br#"{"prefix": "status"}"#);
            begun.elapsed()
        };
        let (one, other, quick) = tokio::join!(ask("slow"), ask("slow"), quick);
        assert!(quick < Duration::from_millis(900), "{quick:?}");
        assert!(
            begun.elapsed() < Duration::from_millis(1900),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(one.unwrap().out, br#"{"prefix": "slow"}"#);
        assert_eq!(other.unwrap().out, br#"{"prefix": "slow"}"#);

        // One has no answer in time: what is in flight then is answered, and what comes then connects anew.
        let (hung, (late, next)) = tokio::join!(ask("hang"), async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            tokio::join!(ask("slow"), async {
                tokio::time::sleep(Duration::from_millis(800)).await;
                ask("status").await
            })
        });
        assert!(matches!(hung, Err(CephApiError::TimedOut { .. })), "{hung:?}");
        assert_eq!(late.unwrap().out, br#"{"prefix": "slow"}"#);
        assert_eq!(next.unwrap().out, br#"{"prefix": "status"}"#);
    });
    assert_eq!(fs::read(dir.path().join("connections")).unwrap().len(), 2);
}

#[test]
fn what_was_in_flight_when_the_process_ended_fails_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rados.py"), RADOS).unwrap();
    let api = Session::new(access(dir.path(), Some(python(dir.path()))));
    let ask = |prefix: &'static str| api.command(QueryTarget::Mon, json!({ "prefix": prefix }));
    runtime().block_on(async {
        assert_eq!(ask("osd dump").await.unwrap().rc, 0);
        let begun = Instant::now();
        let (hung, died) = tokio::join!(ask("hang"), ask("die"));
        assert!(matches!(hung, Err(CephApiError::Unreachable { .. })), "{hung:?}");
        assert!(matches!(died, Err(CephApiError::Unreachable { .. })), "{died:?}");
        assert!(
            begun.elapsed() < Duration::from_millis(1500),
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn without_the_module_the_program_is_asked_and_without_the_cluster_nobody() {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join("ceph"), CEPH);
    fs::write(dir.path().join("rados.py"), "raise ImportError('not here')").unwrap();
    let api = Session::new(access(dir.path(), Some(python(dir.path()))));
    assert_eq!(ask(&api, "osd ok-to-stop").unwrap().rc, 16);
    assert!(api.fallback_reason().unwrap().contains("not here"));

    fs::write(dir.path().join("rados.py"), RADOS).unwrap();
    fs::write(dir.path().join("unreachable"), "").unwrap();
    let api = Session::new(access(dir.path(), Some(python(dir.path()))));
    let error = ask(&api, "osd dump").unwrap_err();
    assert!(
        matches!(&error, CephApiError::Unreachable { why, .. } if why.contains("no monitors")),
        "{error}"
    );
    assert_eq!(api.fallback_reason(), None);
}

/// Answers whatever is asked, or not in time.
struct Anything;

#[async_trait::async_trait]
impl CephApi for Anything {
    async fn command(
        &self,
        _whom: QueryTarget,
        command: serde_json::Value,
    ) -> Result<CephAnswer, CephApiError> {
        match command["prefix"].as_str().unwrap() {
            "pg dump" => Err(CephApiError::TimedOut {
                command: "pg dump".to_owned(),
                via: "ceph".to_owned(),
                seconds: 30,
            }),
            "crash ls-new" => Ok(CephAnswer {
                rc: 13,
                out: Vec::new(),
                err: "access denied".to_owned(),
            }),
            prefix => Ok(CephAnswer {
                rc: 0,
                out: format!("{{\"said\": \"{prefix}\", \"precise\": 0.10000000000000000001}}\n")
                    .into_bytes(),
                err: String::new(),
            }),
        }
    }
}

#[test]
fn only_facts_are_saved_and_they_come_back_as_they_were() {
    let recorder = AnswerRecorder::new(Arc::new(Anything));
    let facts = ["osd dump", "pg dump", "crash ls-new"];
    for prefix in facts
        .into_iter()
        .chain(["auth ls", "config-key dump", "config-key get"])
    {
        drop(ask(&recorder, prefix));
    }
    let document = serde_json::to_vec_pretty(&recorder.answers()).unwrap();
    let text = String::from_utf8(document).unwrap();
    assert!(!text.contains("auth") && !text.contains("config-key"), "{text}");
    let saved = FromSaved::new(serde_json::from_str(&text).unwrap(), "x.json");
    for prefix in facts {
        match (ask(&Anything, prefix), ask(&saved, prefix)) {
            (Ok(was), Ok(is)) => {
                assert_eq!((was.rc, &was.err), (is.rc, &is.err));
                assert_eq!(was.out.trim_ascii(), is.out.trim_ascii());
            }
            (Err(was), Err(is)) => assert_eq!(was.to_string(), is.to_string()),
            (was, is) => panic!("{prefix}: {was:?} became {is:?}"),
        }
    }
    assert!(matches!(
        ask(&saved, "auth ls"),
        Err(CephApiError::NotSaved { .. })
    ));
}
