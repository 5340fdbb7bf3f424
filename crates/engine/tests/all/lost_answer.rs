//! The driver and calls that may still land: of its own whose answers are lost, and of a holder before
//! whose journal is elsewhere.

#![expect(clippy::unwrap_used, reason = "what is made here is made of valid names")]

use crate::one_unit;

use std::sync::atomic::Ordering;

use jiff::SignedDuration;
use stagger_core::model::{Code, HostName};
use stagger_core::run::{Command, Ending, Event, Seq};
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::sqlite::SqliteStore;

use one_unit::Begun;
#[tokio::test]
async fn a_lost_answer_settles_nothing_and_the_call_is_made_again_with_the_same_key() {
    let mut begun = Begun::with(1, 0).await;
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    let calls = begun.calls();
    assert_eq!(calls[0], calls[1], "the same key: {calls:?}");
    assert_eq!(
        calls.len(),
        4,
        "nothing is done behind the back of the late call: {calls:?}"
    );
    let waited = begun.driver.run().started_at() + SignedDuration::from_secs(1);
    let journal = SqliteStore::open(&begun.folder.path().join("journal.db")).unwrap();
    let journal = stagger_engine::store::JournalStore::journal(&journal, &begun.driver.run().start().run)
        .await
        .unwrap();
    let first = journal
        .iter()
        .find(|entry| matches!(entry.event, Event::Settled { .. }))
        .unwrap();
    assert!(first.at >= waited, "the first answer settled nothing");
}

#[tokio::test]
async fn a_host_that_is_gone_for_good_ends_in_a_hold_and_a_person_lets_it_go_on() {
    let mut begun = Begun::with(8, 0).await;
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    let Stopped::Held(reason) = end else {
        panic!("{end:?}")
    };
    assert_eq!(reason.code, Code::OutcomeUnknown);
    assert!(reason.detail.contains("no answer"), "{reason}");
    let held = begun.driver.run().held().map(|(held, _)| held.code.clone());
    assert_eq!(held, Some(Code::OutcomeUnknown), "the journal says so");
    let calls = begun.calls();
    assert_eq!(calls.len(), 8, "{calls:?}");
    assert!(
        calls.iter().all(|call| *call == calls[0]),
        "nothing else: {calls:?}"
    );

    begun.driver.ask(Command::Resume, "a person").await.unwrap();
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    assert!(begun.driver.run().held().is_none());
}

#[tokio::test]
async fn where_a_holder_before_kept_its_journal_elsewhere_the_fence_is_raised_on_every_unit_first() {
    let mut begun = Begun::with(0, 3).await;
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(begun.calls()[0], "fence 4 on u.1");
    assert_eq!(begun.calls().len(), 4, "once: {:?}", begun.calls());

    let mut alone = Begun::with(0, 0).await;
    drive(&mut alone.driver, &mut NoSignals).await.unwrap();
    assert!(
        alone.calls().iter().all(|call| !call.contains("fence")),
        "{:?}",
        alone.calls()
    );
}

impl Begun {
    /// The one intent that is open.
    fn open(&self) -> Seq {
        let open: Vec<_> = self.driver.run().open().map(|(seq, _)| seq).collect();
        assert_eq!(open.len(), 1, "{open:?}");
        open[0]
    }

    async fn journal(&self) -> Vec<Event> {
        let journal = SqliteStore::open(&self.folder.path().join("journal.db")).unwrap();
        let journal = stagger_engine::store::JournalStore::journal(&journal, &self.driver.run().start().run)
            .await
            .unwrap();
        journal.into_iter().map(|entry| entry.event).collect()
    }
}

fn off() -> Command {
    Command::Confirm {
        host: HostName::new("u.1").unwrap(),
        ended: Vec::new(),
    }
}

#[tokio::test]
async fn what_is_open_on_a_host_that_is_off_by_a_person_s_word_has_failed() {
    let mut begun = Begun::with(8, 0).await;
    let Stopped::Held(reason) = drive(&mut begun.driver, &mut NoSignals).await.unwrap() else {
        panic!("it is not held")
    };
    assert!(reason.detail.contains("stagger confirm HOST is-off"), "{reason}");
    let intent = begun.open();
    assert!(
        reason.detail.contains(&format!("stagger settle {intent} done")),
        "{reason}"
    );
    let elsewhere = Command::Confirm {
        host: HostName::new("u.2").unwrap(),
        ended: vec![],
    };
    begun.driver.ask(elsewhere, "anna@ops1").await.unwrap();
    assert_eq!(begun.open(), intent, "another host is another matter");
    begun.driver.ask(off(), "anna@ops1").await.unwrap();
    assert_eq!(begun.driver.run().open().count(), 0);
    assert!(begun.driver.run().held().is_none());
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert!(matches!(end, Stopped::Over(_)), "{end:?}");
    let journal = begun.journal().await;
    let told = journal.iter().any(|event| {
        matches!(event, Event::Asked { command: Command::Confirm { host, ended }, by }
            if host.as_str() == "u.1" && *ended == [intent] && by == "anna@ops1")
    });
    assert!(told, "who said it and what it settled stands in the journal");
    let settled = |event: &Event| matches!(event, Event::Settled { intent: of, .. } if *of == intent);
    assert!(!journal.iter().any(settled), "it is settled once");
}

#[tokio::test]
async fn one_effect_is_settled_by_a_person_s_word() {
    let mut begun = Begun::with(8, 0).await;
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    let intent = begun.open();
    for of in [intent + 1000, intent] {
        let command = Command::Settle {
            intent: of,
            done: true,
        };
        begun.driver.ask(command, "anna@ops1").await.unwrap();
    }
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    let calls = begun.calls();
    assert_eq!(calls.len(), 10, "nobody enters it again: {calls:?}");
}

#[tokio::test]
async fn a_host_that_takes_no_fence_is_named_and_keeps_no_other_unguarded() {
    let mut begun = Begun::new(0, 3, true).await;
    let error = drive(&mut begun.driver, &mut NoSignals)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("under way on u.1 (u.1)"), "{error}");
    assert_eq!(begun.calls(), ["fence 4 on v.1"], "and nothing else is begun");
    begun.driver.ask(off(), "anna@ops1").await.unwrap();
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
}

/// What is open there stays so, is tried again, and nothing is done to the unit before the fence is raised on it.
#[tokio::test]
async fn a_host_that_is_not_reached_by_who_takes_over_blocks_nobody_else() {
    let mut begun = Begun::with(8, 0).await;
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    let intent = begun.open();
    begun.world.away.store(true, Ordering::Relaxed);
    let mut begun = begun.taken_over().await;
    assert_eq!(begun.open(), intent, "the run was taken over all the same");
    let Stopped::Held(reason) = drive(&mut begun.driver, &mut NoSignals).await.unwrap() else {
        panic!("it is not held")
    };
    assert_eq!(reason.code, Code::OutcomeUnknown);
    for words in ["u.1 is away", "stagger confirm HOST is-off"] {
        assert!(reason.detail.contains(words), "{reason}");
    }
    assert_eq!(begun.calls(), Vec::<String>::new(), "nothing was sent to it");
    begun.world.away.store(false, Ordering::Relaxed);
    begun.driver.ask(Command::Resume, "anna@ops1").await.unwrap();
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    let calls = begun.calls();
    assert_eq!(
        calls[..2],
        ["fence 2 on u.1".to_owned(), format!("Enter {intent}")]
    );
    let fences = calls.iter().filter(|call| call.starts_with("fence")).count();
    assert_eq!(fences, 1, "{calls:?}");
}

/// Its fence can be raised by nobody: a person's word leads on.
#[tokio::test]
async fn a_host_that_is_not_reached_and_is_off_keeps_nobody_waiting() {
    let mut begun = Begun::with(8, 0).await;
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    begun.world.away.store(true, Ordering::Relaxed);
    let mut begun = begun.taken_over().await;
    drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(begun.calls(), Vec::<String>::new());
    begun.driver.ask(off(), "anna@ops1").await.unwrap();
    assert_eq!(begun.driver.run().open().count(), 0);
    // Its unit has its turn again, and eight answers more are lost: a person is asked again, and nobody waits for a fence.
    let Stopped::Held(reason) = drive(&mut begun.driver, &mut NoSignals).await.unwrap() else {
        panic!("it is not held")
    };
    assert!(reason.detail.contains("enter: no answer"), "{reason}");
    begun.driver.ask(Command::Resume, "anna@ops1").await.unwrap();
    let end = drive(&mut begun.driver, &mut NoSignals).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    let fences = begun.calls().into_iter().filter(|call| call.starts_with("fence"));
    assert_eq!(fences.count(), 0, "{:?}", begun.calls());
}
