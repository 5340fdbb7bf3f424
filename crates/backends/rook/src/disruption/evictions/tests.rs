use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_ceph::api::{CephAnswer, CephApiError, QueryTarget};
use stagger_core::model::{Code, PartName, Reason, Revision};
use stagger_core::run::{Entry, Event, Run, Start};
use tokio::sync::Semaphore;

use super::*;
use crate::disruption::drains::{DesiredBudgets, EvictableOsds, OsdState};

/// A Ceph that says yes or no, when it may.
struct Ceph {
    may_answer: Semaphore,
    yes: Mutex<bool>,
    asked: Mutex<Vec<String>>,
}

impl Ceph {
    fn new(answers: usize) -> Arc<Self> {
        Arc::new(Self {
            may_answer: Semaphore::new(answers),
            yes: Mutex::new(true),
            asked: Mutex::default(),
        })
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[async_trait]
impl CephApi for Ceph {
    async fn command(&self, _whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let ids: Vec<&str> = command["ids"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let question = format!("{} {}", command["prefix"].as_str().unwrap(), ids.join(" "));
        self.asked.lock().unwrap().push(question);
        self.may_answer.acquire().await.unwrap().forget();
        let yes = *self.yes.lock().unwrap();
        Ok(CephAnswer {
            rc: if yes { 0 } else { 16 },
            out: json!({ "ok_to_stop": yes }).to_string().into_bytes(),
            err: if yes { String::new() } else { "unsafe".to_owned() },
        })
    }
}

fn reviewed_by(ceph: &Arc<Ceph>) -> Review {
    let ceph: Arc<dyn CephApi> = Arc::<Ceph>::clone(ceph);
    let connect: Connect = Box::new(move || {
        let ceph = Arc::clone(&ceph);
        Box::pin(async move { Ok(ceph) })
    });
    Review::new("rook-ceph", connect, Arc::default())
}

fn unit(name: &str) -> UnitId {
    UnitId::new(name).unwrap()
}

/// Four OSDs that serve, of which these may go.
fn open(osds: impl IntoIterator<Item = u32>, at: Timestamp) -> Evidence {
    let all: Vec<OsdState> = (0..4)
        .map(|id| OsdState {
            id,
            domain: Some(format!("host{id}")),
            serves: true,
            leaving: false,
            up: true,
            cordoned: None,
            replaced: false,
        })
        .collect();
    let wanted = DesiredBudgets {
        open: EvictableOsds::Only(osds.into_iter().collect()),
        ..DesiredBudgets::default()
    };
    Evidence::Observed {
        observation: Observation::new(at, &all, &wanted, None),
        interruptions: Vec::new(),
    }
}

#[tokio::test]
async fn two_that_are_asked_about_at_once_know_of_each_other() {
    let ceph = Ceph::new(0);
    let review = reviewed_by(&ceph);
    review.store_evidence(open([0, 1], Timestamp::now()));
    let (first, second) = (unit("osd.0"), unit("osd.1"));
    let answer = async { ceph.may_answer.add_permits(2) };
    let (first, second, ()) = tokio::join!(
        review.may_go(&first, false),
        review.may_go(&second, false),
        answer
    );
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(ceph.asked(), ["osd ok-to-stop 0", "osd ok-to-stop 1 0"]);
}

#[tokio::test]
async fn who_was_refused_or_asked_only_for_show_counts_for_nobody() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    review.store_evidence(open([0, 1, 2], Timestamp::now()));
    assert_eq!(review.may_go(&unit("osd.2"), true).await, Ok(()));
    *ceph.yes.lock().unwrap() = false;
    assert_eq!(
        review.may_go(&unit("osd.0"), false).await,
        Err("osd.0 may not be evicted now: Ceph says no: unsafe".to_owned())
    );
    *ceph.yes.lock().unwrap() = true;
    assert_eq!(review.may_go(&unit("osd.1"), false).await, Ok(()));
    assert_eq!(
        ceph.asked(),
        ["osd ok-to-stop 2", "osd ok-to-stop 0", "osd ok-to-stop 1"]
    );
}

#[tokio::test]
async fn who_was_let_go_counts_until_a_look_that_began_long_enough_after_it() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    let now = Timestamp::now();
    review.store_evidence(open([0, 1, 2], now));
    assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
    // Its pod may not show yet that it goes.
    review.store_evidence(open([0, 1, 2], now + SignedDuration::from_secs(1)));
    assert_eq!(review.may_go(&unit("osd.1"), true).await, Ok(()));
    review.store_evidence(open([1, 2], now + SignedDuration::from_secs(5)));
    assert_eq!(review.may_go(&unit("osd.1"), true).await, Ok(()));
    assert_eq!(
        ceph.asked(),
        ["osd ok-to-stop 0", "osd ok-to-stop 1 0", "osd ok-to-stop 1"]
    );
}

/// The budget kept it all the same, and nothing happens in the cluster that would be looked at.
#[tokio::test]
async fn who_was_let_go_and_kept_by_another_is_forgotten_in_a_quiet_cluster_too() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    let now = Timestamp::now();
    review.store_evidence(open([0, 1], now));
    assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
    review.holds(now + SignedDuration::from_secs(1));
    assert_eq!(review.granted().len(), 1);
    review.holds(now + SignedDuration::from_secs(5));
    assert_eq!(review.granted().len(), 0);
}

/// So that a run, which asks Ceph about another monitor at that moment, hears of it.
#[tokio::test]
async fn a_monitor_that_was_let_go_counts_for_a_run_and_one_that_was_refused_does_not() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    review.store_evidence(open([], Timestamp::now()));
    let goes = || review.exposed.evicting_of_kind("mon", &[unit("mon.b")]);
    assert_eq!(review.may_go(&unit("mon.a"), true).await, Ok(()));
    assert_eq!(goes(), None);
    assert_eq!(review.may_go(&unit("mon.a"), false).await, Ok(()));
    assert_eq!(goes(), Some(unit("mon.a")));
    *ceph.yes.lock().unwrap() = false;
    assert!(review.may_go(&unit("mon.a"), false).await.is_err());
    assert_eq!(goes(), None);
}

fn entry(seq: u64, event: Event) -> Entry {
    Entry {
        seq,
        at: Timestamp::UNIX_EPOCH,
        event,
    }
}

/// A run that has just opened a wave of these.
fn with_an_open_wave(stage: &str, units: &[&str]) -> Run {
    let start: Start = serde_json::from_value(json!({
        "version": stagger_core::run::VERSION, "run": "r", "cluster": "lab", "baseline": null,
        "target": { "title": "up", "parts": [] }, "policy": {},
    }))
    .unwrap();
    let old = |name: &&str| (unit(name), Revision::new("old").unwrap());
    let opened = Event::WaveOpened {
        stage: PartName::new(stage).unwrap(),
        units: units.iter().map(old).collect(),
        not_serving: Vec::new(),
    };
    let mut run = Run::begin(entry(1, Event::Started(Box::new(start)))).unwrap();
    run.apply(entry(2, opened)).unwrap();
    run
}

/// Its wave is open until a person acts, and `kubectl drain` would print the same for days.
#[tokio::test]
async fn who_is_kept_by_a_run_that_is_held_is_told_which_command_ends_that() {
    let held = Event::Held {
        reason: Reason::new(Code::StepFailed, "why"),
    };
    let mut run = with_an_open_wave("osd", &["osd.0"]);
    let review = reviewed_by(&Ceph::new(9));
    review.exposed.run_is_at(&run);
    let kept = review.may_go(&unit("osd.1"), true).await.unwrap_err();
    assert!(kept.ends_with("another OSD goes when that is over"), "{kept}");
    run.apply(entry(3, held)).unwrap();
    review.exposed.run_is_at(&run);
    let kept = review.may_go(&unit("osd.1"), true).await.unwrap_err();
    let how = "when that is over; the update is held since 1970-01-01T00:00:00Z (step-failed); it continues by `stagger \
               resume -n rook-ceph`";
    assert!(kept.contains(how), "{kept}");
    assert_eq!(review.may_go(&unit("osd.0"), true).await, Ok(()));
}

/// So that the status and an Event name it, too: `kubectl drain` is somewhere in a terminal.
#[tokio::test(start_paused = true)]
async fn a_monitor_that_was_refused_is_remembered_while_it_is_asked_for() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    review.store_evidence(open([], Timestamp::now()));
    *ceph.yes.lock().unwrap() = false;
    assert!(review.may_go(&unit("mon.a"), true).await.is_err());
    assert!(review.may_go(&unit("osd.1"), true).await.is_err());
    let why = "Ceph says no: unsafe".to_owned();
    assert_eq!(review.recent_refusals(), BTreeMap::from([(unit("mon.a"), why)]));
    *ceph.yes.lock().unwrap() = true;
    assert_eq!(review.may_go(&unit("mon.a"), true).await, Ok(()));
    assert_eq!(review.recent_refusals(), BTreeMap::new());
    *ceph.yes.lock().unwrap() = false;
    assert!(review.may_go(&unit("mon.a"), true).await.is_err());
    tokio::time::advance(ASKS_AGAIN).await;
    assert_eq!(review.recent_refusals(), BTreeMap::new());
}

#[tokio::test]
async fn a_word_for_a_gateway_leaves_all_others_to_ceph() {
    let ceph = Ceph::new(12);
    let review = reviewed_by(&ceph);
    let permits = |words: &[&str]| {
        let mut evidence = open([0], Timestamp::now());
        if let Evidence::Observed { interruptions, .. } = &mut evidence {
            interruptions.extend(words.iter().map(|word| (*word).to_owned()));
        }
        evidence
    };
    let all = ["osd.0", "mon.a", "mds.fs-a"];
    let mut asked = Vec::new();
    for words in [&["rgw"][..], &["pool.rbd"], &["mon"], &["mds.fs-a"]] {
        review.store_evidence(permits(words));
        for name in all {
            assert_eq!(review.may_go(&unit(name), true).await, Ok(()));
        }
        asked.push(ceph.asked().len());
    }
    assert_eq!(asked, [3, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_ceph_that_says_nothing_in_time_lets_nobody_go() {
    let ceph = Ceph::new(0);
    let review = reviewed_by(&ceph);
    review.store_evidence(open([0], Timestamp::now()));
    let refused = review.may_go(&unit("osd.0"), false).await;
    assert!(refused.is_err_and(|why| why.ends_with("Ceph did not say within 2 s whether it may stop")));
    // And nobody waits for it any more.
    assert_eq!(review.granted().len(), 0);
}

#[tokio::test]
async fn without_a_look_osds_stay_and_monitors_are_ceph_s_to_judge() {
    let ceph = Ceph::new(9);
    let review = reviewed_by(&ceph);
    // Whose drains are somebody else's is not asked about.
    assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
    review.store_evidence(Evidence::Unavailable {
        why: "no quorum".to_owned(),
    });
    assert_eq!(
        review.may_go(&unit("osd.0"), false).await,
        Err("osd.0 may not be evicted now: no quorum".to_owned())
    );
    assert_eq!(ceph.asked(), Vec::<String>::new());
    assert_eq!(review.may_go(&unit("mon.a"), false).await, Ok(()));
    assert_eq!(review.may_go(&unit("mds.fs-a"), false).await, Ok(()));
    assert_eq!(ceph.asked(), ["mon ok-to-stop a", "mds ok-to-stop fs-a"]);
}

#[tokio::test]
async fn a_look_that_failed_keeps_nobody_where_drains_are_not_asked_for() {
    let review = reviewed_by(&Ceph::new(0));
    let error = || BackendError::transient("look for Rook", "deployments.apps is forbidden");
    review.store_evidence(Evidence::from_error(false, &error()));
    assert_eq!(review.may_go(&unit("osd.0"), false).await, Ok(()));
    review.store_evidence(Evidence::from_error(true, &error()));
    let kept = review.may_go(&unit("osd.0"), false).await;
    assert!(kept.is_err_and(|why| why.contains("deployments.apps is forbidden")));
}

#[test]
fn a_daemon_that_its_labels_do_not_name_stays() {
    let review = reviewed_by(&Ceph::new(0));
    let why = "there is no label ceph_daemon_id; set it to the daemon's id";
    assert_eq!(review.unknown_daemon("rook-ceph-osd-x", why), Ok(()));
    review.store_evidence(open([0], Timestamp::now()));
    assert_eq!(
        review.unknown_daemon("rook-ceph-osd-x", why),
        Err(format!("rook-ceph-osd-x may not be evicted now: {why}"))
    );
}

/// Ceph has no oracle for it, and its budget is of itself: only a run that restarts its like keeps it.
#[tokio::test]
async fn a_gateway_is_kept_by_a_run_and_not_by_a_ceph_that_cannot_be_reached() {
    let connect: Connect = Box::new(|| {
        Box::pin(async {
            Err(BackendError::transient(
                "connect to Ceph",
                "it is asked about a gateway",
            ))
        })
    });
    let review = Review::new("rook-ceph", connect, Arc::default());
    review.store_evidence(open([], Timestamp::now()));
    assert_eq!(review.may_go(&unit("rgw.b"), false).await, Ok(()));
    assert_eq!(review.may_go(&unit("mgr.a"), false).await, Ok(()));
    assert_eq!(review.exposed.evicting_of_kind("rgw", &[]), Some(unit("rgw.b")));
    let run = with_an_open_wave("rgw", &["rgw.a"]);
    review.exposed.run_is_at(&run);
    let kept = review.may_go(&unit("rgw.b"), true).await.unwrap_err();
    assert!(kept.contains("about to restart rgw.a"), "{kept}");
    assert_eq!(review.may_go(&unit("mgr.a"), true).await, Ok(()));
}
