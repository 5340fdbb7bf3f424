//! Jobs: found again by their reason, and never carried out twice.

use serde_json::json;
use stagger_ganeti::rapi::client::HttpMethod;
use stagger_ganeti::rapi::fence;
use stagger_ganeti::rapi::jobs::{JobRequest, JobStatus};

use crate::common::{Setup, call, setup};
use crate::double::queue::Op;
use crate::double::{Fault, World};

async fn world() -> Setup {
    let mut world = World::with_nodes(3);
    world.add("web", "drbd", "n1", Some("n2"));
    setup(world).await
}

fn migrate() -> JobRequest {
    JobRequest::new("migrate-web-to-n2", HttpMethod::Put, "/2/instances/web/migrate")
        .body(json!({ "mode": "live" }))
}

fn where_is_web(setup: &Setup) -> String {
    setup.world().now.instances["web"].pnode.clone()
}

#[tokio::test]
async fn a_job_carries_its_reason_and_is_waited_for() {
    let setup = world().await;
    let ended = setup.rapi().carry_out(&call(5), &migrate()).await.unwrap();
    assert_eq!(ended.status, JobStatus::Success);
    assert_eq!(where_is_web(&setup), "n2");
    let jobs = setup.rapi().jobs().await.unwrap();
    let reason = jobs[0].reason.clone().unwrap();
    assert_eq!(
        (reason.token, reason.key.as_str(), reason.what.as_str()),
        (5, "run-1-7-1", "migrate-web-to-n2")
    );
}

#[tokio::test]
async fn a_job_whose_answer_was_lost_is_found_by_its_reason() {
    let setup = world().await;
    setup
        .world()
        .fault("PUT /2/instances/web/migrate", Fault::LoseAnswer);
    setup.rapi().carry_out(&call(5), &migrate()).await.unwrap();
    let world = setup.world();
    let done = world.jobs.iter().filter(|job| job.status == "success").count();
    assert_eq!(done, 1, "{:?}", world.jobs);
    drop(world);
    assert_eq!(where_is_web(&setup), "n2", "it was not migrated back");
}

/// However late a request lands whose answer was lost: one job is carried out, all others are cancelled.
#[tokio::test]
async fn a_request_that_lands_late_does_nothing() {
    for lag in [0, 3] {
        for ticks in 1..30 {
            let setup = world().await;
            setup.world().lag = lag;
            setup
                .world()
                .fault("PUT /2/instances/web/migrate", Fault::Late(ticks));
            setup.rapi().carry_out(&call(5), &migrate()).await.unwrap();
            for _ in 0..60 {
                setup.world().tick();
            }
            let world = setup.world();
            let done = world.jobs.iter().filter(|job| job.status == "success").count();
            assert_eq!(done, 1, "late by {ticks}, lag {lag}: {:?}", world.jobs);
            drop(world);
            assert_eq!(where_is_web(&setup), "n2", "late by {ticks}, lag {lag}");
        }
    }
}

#[tokio::test]
async fn a_job_that_fails_or_is_cancelled_says_so() {
    let setup = world().await;
    setup
        .world()
        .fault("PUT /2/instances/web/migrate", Fault::FailJob);
    let error = setup.rapi().carry_out(&call(5), &migrate()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "migrate-web-to-n2: job 1 failed: the test said so"
    );
    assert!(!error.outcome_unknown);

    fence::raise(&setup.rapi(), 9).await.unwrap();
    let error = setup.rapi().carry_out(&call(8), &migrate()).await.unwrap_err();
    assert!(error.why.contains("cancelled"), "{error}");
    assert_eq!(where_is_web(&setup), "n1", "an older token moves nothing");
    setup.rapi().carry_out(&call(9), &migrate()).await.unwrap();
    assert_eq!(where_is_web(&setup), "n2");
}

#[tokio::test]
async fn a_queue_that_takes_nothing_is_waited_for_and_nothing_is_refused() {
    let setup = world().await;
    for closed in [Fault::Status(503), Fault::QueueDrained] {
        setup.world().fault("PUT /2/instances/web/migrate", closed);
        let error = setup.rapi().carry_out(&call(5), &migrate()).await.unwrap_err();
        assert!(error.outcome_unknown, "{error}: a wave in hand would be given up");
        assert!(error.hint.unwrap().contains("gnt-cluster queue undrain"));
        assert!(setup.world().jobs.is_empty());
        assert!(setup.world().now.filters.is_empty(), "there is nothing to refuse");
    }
}

#[tokio::test]
async fn a_predecessors_jobs_are_waited_for() {
    let setup = world().await;
    let rapi = setup.rapi();
    let reason = stagger_ganeti::rapi::reason::JobReason::new(&call(4), "migrate-web-to-n2", 99).to_string();
    let path = format!("/2/instances/web/migrate?reason={reason}");
    rapi.write(HttpMethod::Put, &path, Some(&json!({ "mode": "live" })))
        .await
        .unwrap();
    let found = rapi.wait_for_predecessors(&call(5)).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].status, JobStatus::Success, "as it ended, not as it was");
    assert_eq!(where_is_web(&setup), "n2");
}

/// A job that says something when it begins is waited for with a question now and then, not with one after another.
#[tokio::test]
async fn a_job_that_logs_is_waited_for_in_peace() {
    let setup = world().await;
    let id = setup.world().submit(Op::Other { ticks: 400 }, None);
    let before = setup.world().requests;
    let ended = setup.rapi().wait(id, "somebody's").await.unwrap();
    assert_eq!(ended.status, JobStatus::Success);
    let asked = setup.world().asked("/wait");
    assert!(
        asked < 20,
        "{asked} questions in {} ticks",
        setup.world().requests - before
    );
}

/// More jobs than RAPI has children to answer with: all are waited for, and most of them without keeping one.
#[tokio::test]
async fn many_jobs_are_waited_for_at_once() {
    let setup = world().await;
    let rapi = setup.rapi();
    let jobs: Vec<u64> = (0..60)
        .map(|_| setup.world().submit(Op::Other { ticks: 200 }, None))
        .collect();
    let waits = jobs.iter().map(|id| rapi.wait(*id, "somebody's"));
    for ended in futures::future::join_all(waits).await {
        assert_eq!(ended.unwrap().status, JobStatus::Success);
    }
    let most = setup.world().most_waits;
    assert!((2..=8).contains(&most), "{most} at once");
}

/// Our own filter, written because an answer was lost, cancels the job that it finds still queued.
#[tokio::test]
async fn a_job_that_our_own_filter_cancels_is_submitted_once_more() {
    let setup = world().await;
    let all = fence::raise(&setup.rapi(), 1).await;
    all.unwrap();
    setup.world().holds_queued = 30;
    setup
        .world()
        .fault("PUT /2/instances/web/migrate", Fault::LoseAnswer);
    setup.rapi().carry_out(&call(5), &migrate()).await.unwrap();
    let world = setup.world();
    let count = |status: &str| world.jobs.iter().filter(|job| job.status == status).count();
    assert_eq!((count("canceled"), count("success")), (1, 1), "{:?}", world.jobs);
    drop(world);
    assert_eq!(where_is_web(&setup), "n2");
}

/// The master's daemon went away in mid-request, and had the job already.
#[tokio::test]
async fn a_submission_that_ends_with_502_is_looked_for() {
    let setup = world().await;
    setup
        .world()
        .fault("PUT /2/instances/web/migrate", Fault::DoneAndStatus(502));
    setup.rapi().carry_out(&call(5), &migrate()).await.unwrap();
    assert_eq!(setup.world().jobs.len(), 1, "{:?}", setup.world().jobs);
    assert_eq!(where_is_web(&setup), "n2");
}
