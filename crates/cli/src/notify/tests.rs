//! Receivers are told in order and once, whatever they answer and whoever is killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use stagger_core::model::{ClusterName, Code, Policy, Reason, RunId, Target, Topology};
use stagger_core::run::{Ending, Event, Start, VERSION};
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::JournalStore;

use super::send::signature;
use super::{Format, Notifier, NotifyLevel, Receiver};

/// What was sent: headers in lower case, and the body.
type Request = (Vec<String>, String);

/// A receiver that answers with these codes in turn, and then with 204.
fn server(codes: Vec<u16>) -> (String, Arc<Mutex<Vec<Request>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook/secret", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
    let (told, mut codes) = (Arc::clone(&seen), codes.into_iter());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut headers = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap() <= 2 {
                    break;
                }
                headers.push(line.trim().to_lowercase());
            }
            let length = headers
                .iter()
                .find_map(|header| header.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            stream.read_exact(&mut body).unwrap();
            told.lock()
                .unwrap()
                .push((headers, String::from_utf8(body).unwrap()));
            let code = codes.next().unwrap_or(204);
            let answer = format!("HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, seen)
}

fn receiver(url: &str, tell: NotifyLevel) -> Receiver {
    Receiver {
        webhook: Some(url.to_owned()),
        command: None,
        secret_file: None,
        format: Format::Cloudevents,
        tell,
    }
}

/// A run in a store of its own.
struct Story {
    folder: tempfile::TempDir,
    store: SqliteStore,
    run: RunId,
    seq: u64,
}

impl Story {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&folder.path().join("journal.db")).unwrap();
        let (run, cluster) = (RunId::new("r1").unwrap(), ClusterName::new("lab").unwrap());
        store.raise(&cluster, 1, "a").await.unwrap();
        let start = Start {
            version: VERSION,
            run: run.clone(),
            cluster: cluster.clone(),
            identity: None,
            target: Target {
                title: "ceph 18 to 20".to_owned(),
                parts: Vec::new(),
                only: None,
            },
            policy: Policy::default(),
            baseline: Value::Null,
            topology: Topology::default(),
        };
        let started = Event::Started(Box::new(start));
        store
            .begin(&cluster, 1, Timestamp::UNIX_EPOCH, started)
            .await
            .unwrap();
        let mut story = Self {
            folder,
            store,
            run,

            seq: 1,
        };
        story
            .write(Event::LeaseTaken {
                fence: 1,
                holder: "a".to_owned(),
            })
            .await;
        story
    }

    async fn write(&mut self, event: Event) {
        let append = self
            .store
            .append(&self.run, 1, self.seq, Timestamp::UNIX_EPOCH, vec![event]);
        self.seq = append.await.unwrap().last().unwrap().seq;
    }

    async fn held(&mut self, why: &str) {
        self.write(Event::Held {
            reason: Reason::new(Code::StepFailed, why),
        })
        .await;
    }

    /// A process that tells, and ends when it has.
    async fn told_by(&self, receiver: Receiver) {
        drop(self.telling(&[receiver]).await);
    }

    async fn telling(&self, receivers: &[Receiver]) -> Notifier {
        let file = self.folder.path().join("journal.db");
        let open = async || Ok(Box::new(SqliteStore::open(&file).unwrap()) as Box<dyn JournalStore>);
        let notifier = Notifier::begin(receivers, &self.run, open, self.folder.path())
            .await
            .unwrap();
        // What was written by now is read by then.
        std::thread::sleep(Duration::from_millis(100));
        notifier
    }
}

fn texts(seen: &Arc<Mutex<Vec<Request>>>) -> Vec<String> {
    let seen = seen.lock().unwrap();
    let text = |(_, body): &Request| {
        let event: Value = serde_json::from_str(body).unwrap();
        event["data"]["text"].as_str().unwrap().to_owned()
    };
    seen.iter().map(text).collect()
}

#[tokio::test]
async fn who_does_not_answer_well_is_told_again_and_in_order() {
    let mut story = Story::begin().await;
    story.held("the first").await;
    story.write(Event::Released).await;
    story.held("the second").await;
    let (url, seen) = server(vec![503, 500]);
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    let texts = texts(&seen);
    let told: Vec<bool> = texts.iter().map(|text| text.contains("the first")).collect();
    assert_eq!(told, [true, true, true, false], "{texts:?}");
    let ids: Vec<String> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(headers, _)| {
            headers
                .iter()
                .find(|header| header.starts_with("webhook-id"))
                .unwrap()
                .clone()
        })
        .collect();
    assert_eq!(ids[0], ids[2], "the same message has the same id");
    assert!(texts[3].contains("stagger resume r1"), "{texts:?}");
}

#[tokio::test]
async fn who_takes_over_tells_what_was_not_told_and_nothing_twice() {
    let mut story = Story::begin().await;
    story.held("the first").await;
    let (url, seen) = server(vec![]);
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    story.write(Event::Released).await;
    story.held("the second").await;
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    let texts = texts(&seen);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[0].contains("the first") && texts[1].contains("the second"),
        "{texts:?}"
    );
}

/// The first thing that there is to tell is what a process was killed for.
#[tokio::test]
async fn what_a_killed_process_never_told_is_told_by_the_next() {
    let mut story = Story::begin().await;
    let nobody = receiver("http://127.0.0.1:9/", NotifyLevel::Urgent);
    // It leaves no more than what it has written down: that is what a killed one leaves.
    let killed = story.telling(std::slice::from_ref(&nobody)).await;
    std::mem::forget(killed);
    story.held("the first").await;
    story
        .write(Event::LeaseTaken {
            fence: 2,
            holder: "b".to_owned(),
        })
        .await;
    let told = story.folder.path().join("notified");
    let file = std::fs::read_dir(told).unwrap().next().unwrap().unwrap().path();
    assert_eq!(
        std::fs::read_to_string(file).unwrap(),
        "0",
        "from its beginning on"
    );
}

#[tokio::test]
async fn one_receiver_that_never_answers_keeps_no_other_waiting() {
    let mut story = Story::begin().await;
    story.held("a fault").await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (format!("http://{}/", silent.local_addr().unwrap()), silent);
    let (url, seen) = server(vec![]);
    let notifier = story
        .telling(&[
            receiver(&silent.0, NotifyLevel::Urgent),
            receiver(&url, NotifyLevel::Urgent),
        ])
        .await;
    let begun = std::time::Instant::now();
    while seen.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(8), "it waits for the other");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::mem::forget(notifier);
}

#[tokio::test]
async fn what_can_wait_is_told_together_before_what_cannot() {
    let mut story = Story::begin().await;
    story
        .write(Event::Asked {
            command: stagger_core::run::Command::Resume,
            by: "anna@ops1".to_owned(),
        })
        .await;
    story.held("a fault").await;
    story
        .write(Event::Ended {
            outcome: Ending::Aborted,
        })
        .await;
    let (url, seen) = server(vec![]);
    story.told_by(receiver(&url, NotifyLevel::All)).await;
    let all = texts(&seen);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(
        all[0].contains("started") && all[0].contains("anna@ops1"),
        "{all:?}"
    );
    assert!(
        all[1].contains("a fault") && all[2].contains("aborted"),
        "{all:?}"
    );
    let (url, seen) = server(vec![]);
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    assert_eq!(texts(&seen), all[1..]);
}

#[tokio::test]
async fn what_a_receiver_refuses_is_not_sent_again() {
    let mut story = Story::begin().await;
    story.held("the first").await;
    story.write(Event::Released).await;
    story.held("the second").await;
    let (url, seen) = server(vec![400]);
    story.told_by(receiver(&url, NotifyLevel::Urgent)).await;
    assert_eq!(texts(&seen).len(), 2);
}

/// The example of the specification of Standard Webhooks.
#[test]
fn a_signature_is_that_of_standard_webhooks() {
    let body = r#"{"event_type":"ping","data":{"success":true}}"#;
    assert_eq!(
        signature(
            "whsec_plJ3nmyCDGBKInavdOK15jsl",
            "msg_loFOjxBNrRLzqYUf",
            1_731_705_121,
            body
        ),
        "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="
    );
}

#[tokio::test]
async fn a_message_is_signed_and_a_command_has_it_on_its_input() {
    let mut story = Story::begin().await;
    story.held("a fault").await;
    let secret = story.folder.path().join("secret");
    std::fs::write(&secret, "whsec_plJ3nmyCDGBKInavdOK15jsl\n").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (url, seen) = server(vec![]);
    story
        .told_by(Receiver {
            secret_file: Some(secret),
            ..receiver(&url, NotifyLevel::Urgent)
        })
        .await;
    let (headers, body) = seen.lock().unwrap()[0].clone();
    let header = |name: &str| {
        let found = headers
            .iter()
            .find_map(|header| header.strip_prefix(&format!("{name}: ")));
        found.unwrap().to_owned()
    };
    let at: i64 = header("webhook-timestamp").parse().unwrap();
    let signed = signature("whsec_plJ3nmyCDGBKInavdOK15jsl", &header("webhook-id"), at, &body);
    assert_eq!(header("webhook-signature"), signed.to_lowercase());
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&event["specversion"], &event["type"]),
        (&"1.0".into(), &"dev.stagger.run.held".into())
    );

    let out = story.folder.path().join("told");
    let script = format!("cat > {}", Path::new(&out).display());
    story
        .told_by(Receiver {
            webhook: None,
            command: Some(["sh", "-c", &script].map(str::to_owned).to_vec()),
            ..receiver("", NotifyLevel::Urgent)
        })
        .await;
    let told = std::fs::read_to_string(out).unwrap();
    assert!(
        told.starts_with("lab: a run needs you\n") && told.contains("a fault"),
        "{told}"
    );
}

#[test]
fn an_address_is_shown_without_its_path_and_a_receiver_is_one_thing() {
    let slack = receiver(
        "https://user:pass@hooks.example.org/services/T0/B0/XXXX",
        NotifyLevel::Urgent,
    );
    assert_eq!(slack.name(), "https://hooks.example.org");
    assert!(!toml::to_string(&slack).unwrap().contains("XXXX"));
    for wrong in [
        Receiver {
            webhook: Some("hooks.example.org".to_owned()),
            ..slack.clone()
        },
        Receiver {
            command: Some(vec!["mail".to_owned()]),
            ..slack.clone()
        },
        Receiver {
            webhook: None,
            ..slack.clone()
        },
        Receiver {
            webhook: None,
            command: Some(Vec::new()),
            ..slack
        },
    ] {
        wrong.verify().unwrap_err();
    }
}
