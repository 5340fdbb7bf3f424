//! What an operator writes down of a service, and what is refused.

use stagger_conformance::lock::claim;
use stagger_engine::cluster::{BackendError, LockError};
use stagger_engine::supervisor::Identity;
use stagger_ironic::records::{Record, RecordState, RecordStore};

use crate::common::{Setup, call, setup};

fn book(setup: &Setup) -> RecordStore {
    let config = &setup.settings.cluster;
    let pace = &setup.settings.pace;
    RecordStore::open(
        &config.ours,
        &config.database,
        config.name.clone(),
        pace.lock,
        pace.call,
    )
    .unwrap()
}

/// A lab in which a run was aborted while `c1` was away, and which has been brought back by hand since.
async fn left_open() -> Setup {
    let setup = setup("26.1.6");
    let book = book(&setup);
    let record = Record {
        release: "29.0.6".to_owned(),
        pin: Some("26.1".to_owned()),
        state: RecordState::Changing,
        run: "run-1".to_owned(),
    };
    let fence = book.take(&claim("one"), 0).await.unwrap();
    book.note(&call(fence, 1), "c1", &record).await.unwrap();
    book.release(fence).await.unwrap();
    assert_eq!(setup.refused("29.0.6").await, ["change-under-way"]);
    setup
}

async fn written(setup: &Setup, service: &str, release: &str, pin: Option<&str>) -> Result<(), BackendError> {
    let by = Identity::current_process();
    let written = setup
        .backend(None)
        .record_release(&by, service, release, pin)
        .await;
    written.map_err(|error| match error {
        LockError::Backend(error) => error,
        LockError::Held(_) | LockError::Lost(_) => panic!("{error}"),
    })
}

#[tokio::test]
async fn what_is_said_of_a_service_is_written_down_and_an_upgrade_may_begin() {
    let setup = left_open().await;
    written(&setup, "c1", "26.1.6", None).await.unwrap();
    assert!(setup.may_begin("29.0.6").await);
    let records = book(&setup).read().await.unwrap();
    let record = &records.services["c1"];
    assert_eq!(
        (record.release.as_str(), &record.pin, record.state),
        ("26.1.6", &None, RecordState::Runs)
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_nothing_is_written() {
    let setup = left_open().await;
    for (service, release, pin, why) in [
        ("c9", "26.1.6", None, "no such service"),
        ("c1", "26.1", None, "without its patch"),
        ("c1", "99.0.1", None, "99.0.1"),
        ("c1", "26.1.6", Some("29.0"), "does not list"),
        // Of itself the conductor says that it writes as 26.1 does; without the pin this release writes otherwise.
        ("c1", "32.0.1", None, "others have changed it"),
        ("a1", "29.0.6", None, "others have changed it"),
        // The next start would be without the pin.
        ("c1", "29.0.6", Some("26.1"), "its next start reads the pin none"),
    ] {
        let error = written(&setup, service, release, pin).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(why), "{service} {release} {pin:?}: {error}");
    }
    setup.lab.now().services.get_mut("c1").unwrap().runs = None;
    let error = written(&setup, "c1", "26.1.6", None).await.unwrap_err();
    assert!(error.why.contains("does not serve"), "{error}");
    let records = book(&setup).read().await.unwrap();
    assert_eq!(records.services["c1"].state, RecordState::Changing);
    assert_eq!(records.services.len(), 1);
}

#[tokio::test]
async fn while_a_run_is_at_work_nothing_is_written() {
    let setup = left_open().await;
    let (book, by) = (book(&setup), Identity::current_process());
    let fence = book.take(&claim("one"), 0).await.unwrap();
    let renewing = async {
        loop {
            book.renew(fence).await.unwrap();
            tokio::time::sleep(setup.settings.pace.lock / 10).await;
        }
    };
    let backend = setup.backend(None);
    let refused = tokio::select! {
        refused = backend.record_release(&by, "c1", "26.1.6", None) => refused,
        () = renewing => unreachable!("it goes on for ever"),
    };
    assert!(matches!(refused, Err(LockError::Held(_))), "{refused:?}");
    let state = book.read().await.unwrap().services["c1"].state;
    assert_eq!(state, RecordState::Changing);
}
