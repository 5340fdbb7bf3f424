//! The one loop that carries a run out: step, wait, listen, until there is nothing more for this process to do.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::Reason;
use stagger_core::run::Ending;

use crate::clock::Clock as _;
use crate::driver::{DriveError, Driver, DriverStep, Writing};

/// What a process that carries a run out hears while it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Start nothing more: finish the open wave, settle open effects, clear the guards that units still have,
    /// and stop. A second one counts as [`Signal::Leave`].
    Stop,
    /// Stop at once, whatever is under way.
    Leave,
    /// Something changed that a step may want to know: do not wait any longer.
    Wake,
}

/// Where the signals of a process come from, and what it does around each step.
#[async_trait]
pub trait Signals: Send {
    /// The next signal. It is dropped and asked again at any time, and must not lose one by that.
    async fn next(&mut self) -> Signal;

    /// Called before each step.
    fn before_step(&mut self) {}

    /// Called after each step.
    fn after_step(&mut self) {}

    /// The first [`Signal::Stop`] was heard: the open wave is finished.
    fn stopping(&mut self) {}

    /// How long to wait before a held run is checked again; `None`: the loop ends there.
    fn held_for(&self) -> Option<Duration> {
        None
    }
}

/// No signals: the run continues until it is over or held.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSignals;

#[async_trait]
impl Signals for NoSignals {
    async fn next(&mut self) -> Signal {
        std::future::pending().await
    }
}

/// Why this process carries the run on no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to stop, and nothing is under way: no open wave, no open call, no unit's guard.
    BetweenWaves,
    /// It was asked to leave at once.
    AtOnce,
    /// The run is held for you.
    Held(Reason),
    /// The run is over.
    Over(Ending),
}

/// Steps until the run is over or held, or until a signal ends that.
///
/// # Errors
/// As [`Driver::step`].
pub async fn drive(driver: &mut Driver, signals: &mut dyn Signals) -> Result<Stopped, DriveError> {
    let clock = driver.clock();
    let mut stopping = false;
    loop {
        if stopping && is_at_rest(driver) {
            return Ok(Stopped::BetweenWaves);
        }
        signals.before_step();
        let (step, heard) = step(driver, signals).await;
        signals.after_step();
        let until = match step.transpose()? {
            None => None,
            Some(DriverStep::Again) => continue,
            Some(DriverStep::Wait { until, .. }) => Some(until),
            Some(DriverStep::Over(ending)) => return Ok(Stopped::Over(ending)),
            Some(DriverStep::Held(reason)) => match signals.held_for() {
                None => return Ok(Stopped::Held(reason)),
                Some(pause) => clock.now().checked_add(pause).ok(),
            },
        };
        let heard = match (heard, until) {
            (Some(heard), _) => Some(heard),
            (None, None) => None,
            (None, Some(until)) => tokio::select! {
                () = clock.sleep_until(until) => None,
                heard = signals.next() => Some(heard),
            },
        };
        match heard {
            None | Some(Signal::Wake) => {}
            Some(Signal::Leave) => return Ok(Stopped::AtOnce),
            Some(Signal::Stop) if stopping => return Ok(Stopped::AtOnce),
            Some(Signal::Stop) => {
                stopping = true;
                driver.close();
                signals.stopping();
            }
        }
    }
}

/// One step, and what was heard while it was taken. A step is cut short by what ends the loop, but never in a write to the
/// journal; what only wakes it waits for its end.
async fn step(
    driver: &mut Driver,
    signals: &mut dyn Signals,
) -> (Option<Result<DriverStep, DriveError>>, Option<Signal>) {
    let writing = driver.writing();
    let step = driver.step();
    tokio::pin!(step);
    let mut woken = None;
    loop {
        tokio::select! {
            biased;
            heard = signals.next() => match heard {
                Signal::Wake => woken = Some(Signal::Wake),
                Signal::Stop | Signal::Leave => {
                    let ended = finish_write(step, &writing).await;
                    return (ended.and_then(Result::err).map(Err), Some(heard));
                }
            },
            step = &mut step => return (Some(step), woken),
        }
    }
}

/// Continues a step as long as it writes to the journal. Returns its result if it completed.
async fn finish_write<T>(mut step: Pin<&mut impl Future<Output = T>>, writing: &Writing) -> Option<T> {
    poll_fn(|context| {
        if !writing.is_under_way() {
            return Poll::Ready(None);
        }
        match step.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if writing.is_under_way() => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    })
    .await
}

/// Whether a process may stop here: what it had begun is finished.
fn is_at_rest(driver: &Driver) -> bool {
    let run = driver.run();
    run.wave().is_none() && run.open().next().is_none() && !run.has_uncleared_guards()
}
