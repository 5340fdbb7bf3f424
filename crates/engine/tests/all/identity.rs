//! One cluster, whatever it is called, and who is at work on it.

use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_engine::driver::Notice;
use stagger_engine::store::JournalStore as _;
use stagger_engine::supervisor::SuperviseError;

use crate::three_units::{Setting, so_far, to_the_end};

#[tokio::test]
async fn whether_somebody_is_at_work_is_a_fact_in_the_store() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    let there = setting.presence("r1").await;
    assert_eq!(there.fence, 1);
    assert_eq!(there.claim.as_ref(), Some(lease.claim()));
    assert_eq!(there.interruption_reason(), None);

    drop(driver);
    lease.release(&backend).await.unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.starts_with("it was stopped"), "{why}");

    let (driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    // Who was followed by another says nothing more.
    setting
        .store()
        .clear_presence(&RunId::new("r1").unwrap(), 1)
        .await
        .unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    drop(driver);
    lease.leave().await;
    assert!(setting.presence("r1").await.interruption_reason().is_some());
}

#[tokio::test]
async fn of_one_who_was_killed_the_store_knows_no_end_and_its_machine_does() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let mut claim = lease.claim().clone();
    drop((driver, lease));
    let (run, long) = (RunId::new("r1").unwrap(), Duration::from_hours(1));
    // This process with another time of start: what a killed one leaves whose number was given away.
    claim.life.as_mut().unwrap().begun += 1;
    setting.store().beat(&run, 1, &claim, long).await.unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.ends_with("is gone"), "{why}");
    // From another machine only the time tells.
    claim.host.push_str("-2");
    setting.store().beat(&run, 1, &claim, long).await.unwrap();
    assert_eq!(setting.presence("r1").await.interruption_reason(), None);
    setting
        .store()
        .beat(&run, 1, &claim, Duration::ZERO)
        .await
        .unwrap();
    let why = setting.presence("r1").await.interruption_reason().unwrap();
    assert!(why.contains("has not renewed its lock"), "{why}");
}

#[tokio::test]
async fn who_waits_for_the_lock_is_told_at_once_whose_it_is() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let claim = lease.claim().clone();
    drop((driver, lease));
    let before = Timestamp::now();
    drop(setting.resume(&backend, "r1").await.unwrap());
    let noticed = setting.notices.0.lock().unwrap().clone();
    let [Notice::Locked { holder, until }] = &noticed[..] else {
        panic!("{noticed:?}")
    };
    assert_eq!(*holder, claim);
    assert!(*until >= before + Duration::from_mins(1), "{until}");
}

#[tokio::test]
async fn one_cluster_under_two_names_has_one_run_at_a_time() {
    let setting = Setting::new();
    let (a, b) = (setting.named("prod", "id-1"), setting.named("production", "id-1"));
    let (mut driver, lease) = setting.start(&a, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));

    let refused = setting.start(&b, "r2", "2").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::Unfinished(run) if run.as_str() == "r1"),
        "{refused:?}"
    );
    // It is the same run under either name, with one fence.
    to_the_end(setting.resume(&b, "r1").await.unwrap(), &b).await;
    let store = setting.store();
    for name in ["prod", "production"] {
        let name = ClusterName::new(name).unwrap();
        assert_eq!(store.fence(&name).await.unwrap(), 2);
    }
    setting.calls();
    to_the_end(setting.start(&b, "r2", "3").await.unwrap(), &b).await;
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("fence")),
        "no stranger: {calls:?}"
    );
    let listed = store.runs().await.unwrap();
    assert!(
        listed
            .iter()
            .all(|run| run.identity.as_ref().unwrap().as_str() == "id-1")
    );
}

#[tokio::test]
async fn a_name_that_was_another_clusters_is_refused() {
    let setting = Setting::new();
    let one = setting.named("lab", "id-1");
    to_the_end(setting.start(&one, "r1", "2").await.unwrap(), &one).await;
    let other = setting.named("lab", "id-2");
    let refused = setting.start(&other, "r2", "3").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::NameOfAnother { was, is, .. }
            if was.as_str() == "id-1" && is.as_str() == "id-2"),
        "{refused:?}"
    );
    // Another name is the way out.
    let renamed = setting.named("lab2", "id-2");
    to_the_end(setting.start(&renamed, "r2", "3").await.unwrap(), &renamed).await;
}

#[tokio::test]
async fn a_run_of_another_cluster_is_not_carried_on() {
    let setting = Setting::new();
    let one = setting.named("lab", "id-1");
    drop(setting.start(&one, "r1", "2").await.unwrap());
    let other = setting.named("other", "id-2");
    let refused = setting.resume(&other, "r1").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::OfAnotherCluster { .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("lab (id-1)") && text.contains("other (id-2)"),
        "{text}"
    );
}
