//! What is kept in the cluster's own `config-key` store: the lock, the anchor of the journal, notes of guards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_ceph::api::{CephAnswer, CephApi, CephApiError, QueryTarget};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings};
use stagger_conformance::lock;
use stagger_core::model::{GuardName, RunId, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor as _, Lock, LockError, LockRecord};
use stagger_engine::heartbeats::Heartbeats;
use stagger_engine::supervisor::Identity;

/// Monitors that keep keys and flags, and one map.
#[derive(Debug, Default)]
struct Monitors {
    keys: Mutex<BTreeMap<String, String>>,
    /// OSDs with `noout`.
    flagged: Mutex<Vec<String>>,
}

impl Monitors {
    fn answer(&self, command: &Value) -> Value {
        let mut keys = self.keys.lock().unwrap();
        let word = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
        match word("prefix").as_str() {
            "quorum_status" => json!({ "monmap": { "fsid": "2f7c1e6a-0000-4000-8000-00000000cafe" } }),
            "config-key set" => {
                keys.insert(word("key"), word("val"));
                Value::Null
            }
            "config-key rm" => {
                keys.remove(&word("key"));
                Value::Null
            }
            "config-key dump" => {
                let below = keys.iter().filter(|(key, _)| key.starts_with(&word("key")));
                below
                    .map(|(key, value)| (key.clone(), json!(value)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            "osd dump" => {
                let text = include_str!("../fixtures/18.2.7/osd_dump.json");
                serde_json::from_str(text).unwrap()
            }
            "osd set-group" => {
                *self.flagged.lock().unwrap() = serde_json::from_value(command["who"].clone()).unwrap();
                Value::Null
            }
            "osd unset-group" => {
                self.flagged.lock().unwrap().clear();
                Value::Null
            }
            other => panic!("{other}"),
        }
    }
}

#[async_trait]
impl CephApi for Monitors {
    async fn command(&self, _: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        Ok(CephAnswer {
            rc: 0,
            out: self.answer(&command).to_string().into_bytes(),
            err: String::new(),
        })
    }
}

/// The same cluster, whatever the configuration calls it. Its lock lasts so many seconds.
fn named(monitors: &Arc<Monitors>, name: &str, expires: u64) -> CephBackend {
    let cluster: CephConfig =
        serde_json::from_value(json!({ "name": name, "lock_expires": expires })).unwrap();
    let settings = CephSettings {
        cluster,
        hosts: stagger_engine::hosts::Hosts::default(),
        software: serde_json::from_value(json!({})).unwrap(),
        health: serde_json::from_value(json!({})).unwrap(),
        reboot: stagger_ceph::config::Reboot::default(),
    };
    CephBackend::new(Arc::clone(monitors) as Arc<dyn CephApi>, settings, None)
}

fn claim(incarnation: &str) -> LockRecord {
    let who = Identity {
        incarnation: incarnation.to_owned(),
        ..Identity::current_process()
    };
    who.claim(&RunId::new("r1").unwrap(), jiff::Timestamp::UNIX_EPOCH)
}

/// What a process leaves that was killed on this machine: its number was given to another since.
fn gone(incarnation: &str) -> LockRecord {
    let mut claim = claim(incarnation);
    claim.life.as_mut().unwrap().begun += 1;
    claim
}

/// What one leaves that nobody here can tell anything of.
fn elsewhere(incarnation: &str) -> LockRecord {
    LockRecord {
        host: "ops2".to_owned(),
        ..claim(incarnation)
    }
}

#[tokio::test]
async fn a_cluster_is_known_by_its_fsid_under_every_name() {
    let monitors = Arc::new(Monitors::default());
    let (one, other) = (named(&monitors, "prod", 30), named(&monitors, "production", 30));
    let identity = one.identity().await.unwrap();
    assert_eq!(identity.as_str(), "2f7c1e6a-0000-4000-8000-00000000cafe");
    assert_eq!(other.identity().await.unwrap(), identity);
    // And it has one lock.
    assert_eq!(one.lock(&elsewhere("a"), 0).await.unwrap(), 1);
    let holder = other.holder().await.unwrap().unwrap();
    assert_eq!(
        (holder.claim, holder.expires),
        (elsewhere("a"), Duration::from_secs(30))
    );
}

#[tokio::test]
async fn a_holder_that_is_dead_on_this_machine_is_followed_at_once_and_another_is_watched() {
    let monitors = Arc::new(Monitors::default());
    let backend = named(&monitors, "lab", 3600);
    assert_eq!(backend.lock(&gone("a"), 0).await.unwrap(), 1);
    let begun = Instant::now();
    assert_eq!(backend.lock(&claim("b"), 0).await.unwrap(), 2);
    assert!(begun.elapsed() < Duration::from_mins(1), "it was not waited out");
    backend.renew(&claim("b"), 2).await.unwrap();
    let late = backend.renew(&gone("a"), 1).await.unwrap_err();
    assert!(matches!(late, LockError::Held(_)), "{late:?}");
    backend.unlock(&claim("b"), 2).await.unwrap();

    // Of one on another machine nobody knows: it is watched for as long as it lasts.
    let short = named(&monitors, "lab", 1);
    assert_eq!(short.lock(&elsewhere("c"), 0).await.unwrap(), 3);
    let begun = Instant::now();
    assert_eq!(short.lock(&claim("d"), 0).await.unwrap(), 4);
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    // One that lives here is watched too, and renews.
    let other = claim("e");
    let (again, ()) = tokio::join!(short.lock(&other, 0), async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            short.renew(&claim("d"), 4).await.unwrap();
        }
    });
    assert!(matches!(again, Err(LockError::Held(by)) if by.incarnation == "d"));
}

#[tokio::test]
async fn its_lock_has_the_laws_of_every_lock() {
    let monitors = Arc::new(Monitors::default());
    let (one, other) = (named(&monitors, "lab", 1), named(&monitors, "lab", 1));
    lock::the_anchor_outlives_the_lock(&one).await;
    lock::one_writer_at_a_time(&one, &other).await;
    lock::a_silent_holder_is_waited_out(&one, &other).await;
    let crowd: Vec<_> = (0..8).map(|_| named(&monitors, "lab", 1)).collect();
    let crowd: Vec<&dyn Lock> = crowd.iter().map(|backend| backend as &dyn Lock).collect();
    lock::of_a_crowd_one_has_it(&crowd, Duration::from_secs(20)).await;
}

#[tokio::test]
async fn a_guard_goes_when_nobody_renews_it_and_never_by_what_a_clock_says() {
    let monitors = Arc::new(Monitors::default());
    let backend = named(&monitors, "lab", 30);
    let call = Call {
        run: RunId::new("r1").unwrap(),
        seq: 7,
        announced: 1,
        fence: 3,
        deadline: None,
    };
    let take = Action::TakeGuard {
        guard: GuardName::new("noout").unwrap(),
        units: vec![UnitId::new("osd.1").unwrap()],
        expires: 1200,
    };
    backend.perform(&call, &take).await.unwrap();
    // By the clock of whoever wrote it, it went long ago.
    let skew = |keys: &mut BTreeMap<String, String>| {
        let note = keys.get_mut("stagger/guard/noout/osd.1").unwrap();
        let mut written: Value = serde_json::from_str(note).unwrap();
        written["until"] = json!(1_000_000);
        *note = written.to_string();
        written
    };
    let first = skew(&mut monitors.keys.lock().unwrap());
    assert_eq!((&first["token"], &first["expires"]), (&json!(3), &json!(1200)));

    let (begin, mut beats) = (Instant::now(), Heartbeats::default());
    let mut after = async |seconds: u64| {
        let now = begin + Duration::from_secs(seconds);
        backend.drop_expired_guards(&mut beats, now).await.unwrap()
    };
    let looked = after(0).await;
    assert_eq!((looked.gone.len(), looked.held.len()), (0, 1));
    assert_eq!(looked.next, Some(Duration::from_mins(20)));
    // Its holder renews it at half of its time, as it does.
    assert!(after(590).await.gone.is_empty());
    backend.perform(&call, &take).await.unwrap();
    let second = skew(&mut monitors.keys.lock().unwrap());
    assert!(second["beat"].as_u64() > first["beat"].as_u64(), "{second}");
    assert_eq!(second["osds"], json!(["osd.1"]), "how it was before is kept");
    assert!(after(1190).await.gone.is_empty());
    assert!(after(2300).await.gone.is_empty(), "it stood from then on only");
    assert_eq!(*monitors.flagged.lock().unwrap(), ["osd.1"]);
    let gone = after(2400).await.gone;
    assert_eq!(gone.len(), 1);
    assert_eq!(
        (gone[0].run.as_str(), gone[0].on.join(" ").as_str()),
        ("r1", "osd.1")
    );
    assert!(monitors.flagged.lock().unwrap().is_empty());
    assert!(after(2500).await.held.is_empty());
}
