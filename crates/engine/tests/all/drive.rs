//! The loop that carries a run out, and what it hears.

use crate::one_unit;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::run::Ending;
use stagger_engine::drive::{Signal, Signals, Stopped, drive};

use one_unit::Begun;

/// Says each signal before the step of that number, and counts what it is told.
#[derive(Default)]
struct Script {
    signals: VecDeque<(u32, Signal)>,
    steps: u32,
    ended: u32,
    stopping: u32,
    held_for: Option<Duration>,
    held: AtomicU32,
}

impl Script {
    fn of(signals: &[(u32, Signal)]) -> Self {
        Self {
            signals: signals.iter().copied().collect(),
            ..Self::default()
        }
    }
}

#[async_trait]
impl Signals for Script {
    async fn next(&mut self) -> Signal {
        match self.signals.front() {
            Some((at, signal)) if *at <= self.steps => {
                let signal = *signal;
                self.signals.pop_front();
                signal
            }
            Some(_) | None => std::future::pending().await,
        }
    }

    fn before_step(&mut self) {
        self.steps += 1;
        assert!(self.steps < 1_000, "the loop never ends");
    }

    fn after_step(&mut self) {
        self.ended += 1;
    }

    fn stopping(&mut self) {
        self.stopping += 1;
    }

    fn held_for(&self) -> Option<Duration> {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.held_for
    }
}

#[tokio::test]
async fn who_is_asked_to_stop_leaves_nothing_open_whenever_that_is() {
    let mut cut_short = 0;
    for at in 1..60 {
        let mut begun = Begun::with(0, 0).await;
        let mut script = Script::of(&[(at, Signal::Stop)]);
        let end = drive(&mut begun.driver, &mut script).await.unwrap();
        let run = begun.driver.run();
        assert_eq!(script.steps, script.ended, "each step that begins is told to end");
        assert_eq!(script.stopping, u32::from(script.steps >= at), "at step {at}");
        assert!(
            run.wave().is_none() && run.open().next().is_none(),
            "at step {at}: {end:?}"
        );
        let (up, runs, _) = &*begun.world.unit.lock().unwrap();
        match end {
            Stopped::BetweenWaves => {
                cut_short += 1;
                assert!(*up, "at step {at} the unit is left down");
            }
            Stopped::Over(Ending::Done) => assert_eq!((*up, *runs), (true, "2")),
            other => panic!("at step {at}: {other:?}"),
        }
    }
    assert!(cut_short > 0, "no run was ever cut short");
}

#[tokio::test]
async fn who_is_asked_twice_leaves_at_once_and_the_run_goes_on_in_another_process() {
    for at in 1..12 {
        let mut begun = Begun::with(0, 0).await;
        let mut script = Script::of(&[(at, Signal::Stop), (at, Signal::Stop)]);
        let end = drive(&mut begun.driver, &mut script).await.unwrap();
        let was_open = end == Stopped::AtOnce;
        if was_open || end == Stopped::BetweenWaves {
            let mut again = begun.taken_over().await;
            let end = drive(&mut again.driver, &mut Script::default()).await.unwrap();
            assert_eq!(end, Stopped::Over(Ending::Done), "at step {at}");
        }
    }
}

#[tokio::test]
async fn what_wakes_it_cuts_no_step_short_and_ends_nothing() {
    let wakes: Vec<(u32, Signal)> = (1..40).map(|at| (at, Signal::Wake)).collect();
    let mut begun = Begun::with(1, 0).await;
    let end = drive(&mut begun.driver, &mut Script::of(&wakes)).await.unwrap();
    assert_eq!(end, Stopped::Over(Ending::Done));
    let mut quiet = Begun::with(1, 0).await;
    drive(&mut quiet.driver, &mut Script::default()).await.unwrap();
    assert_eq!(begun.calls().len(), quiet.calls().len());
}

#[tokio::test]
async fn a_run_that_is_held_ends_the_loop_or_is_looked_at_again() {
    // So many answers are lost that a person is asked.
    let mut begun = Begun::with(100, 0).await;
    let end = drive(&mut begun.driver, &mut Script::default()).await.unwrap();
    assert!(matches!(end, Stopped::Held(_)), "{end:?}");
    let mut script = Script::of(&[(200, Signal::Leave)]);
    script.held_for = Some(Duration::from_secs(7));
    let end = drive(&mut begun.driver, &mut script).await.unwrap();
    assert_eq!(end, Stopped::AtOnce);
    let held = script.held.load(Ordering::Relaxed);
    assert!(
        held > 1,
        "it was held {held} times, and looked at again after each"
    );
}
