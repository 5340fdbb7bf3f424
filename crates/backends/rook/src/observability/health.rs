//! Whether the operator works (its loops make progress) and is ready (it has seen what it works on).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A loop that was at one thing for longer than this is stuck. The longest that one thing may take is an
/// image that is fetched before it is asked for its release: ten minutes.
const LONGEST: Duration = Duration::from_mins(30);

/// What is known of all loops.
#[derive(Debug, Default)]
pub(crate) struct LoopHealth(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the API server has granted anything.
    answered: bool,
    loops: BTreeMap<String, Loop>,
    /// What has to be seen once before it is ready.
    unseen: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loop {
    /// It waits for something to change.
    Rests,
    /// It is at something since then.
    Works(Instant),
    /// It ended by a bug.
    Broken,
}

impl LoopHealth {
    /// The API server has granted a request.
    pub(crate) fn api_answered(&self) {
        self.state().answered = true;
    }

    /// A loop of that name begins.
    pub(crate) fn begins(self: &Arc<Self>, name: impl Into<String>) -> Pulse {
        let pulse = Pulse {
            health: Arc::clone(self),
            name: name.into(),
        };
        pulse.begin_work();
        pulse
    }

    /// It is not ready until what this returns is dropped.
    pub(crate) fn require(self: &Arc<Self>, what: impl Into<String>) -> Unseen {
        let what = what.into();
        self.state().unseen.insert(what.clone());
        Unseen {
            health: Arc::clone(self),
            what,
        }
    }

    /// What does not work.
    ///
    /// # Errors
    /// Each loop that is stuck or broken.
    pub(crate) fn check_loops(&self, now: Instant) -> Result<(), Vec<String>> {
        let state = self.state();
        let wrong = state.loops.iter().filter_map(|(name, at)| match at {
            Loop::Rests => None,
            Loop::Works(since) => {
                let lasts = now.saturating_duration_since(*since);
                (lasts > LONGEST).then(|| format!("{name}: no progress for {} s", lasts.as_secs()))
            }
            Loop::Broken => Some(format!("{name}: ended by a bug; its log says where")),
        });
        all_or_nothing(wrong.collect())
    }

    /// What it is not ready for. One that does not lead is ready to.
    ///
    /// # Errors
    /// Each thing that is waited for.
    pub(crate) fn check_ready(&self) -> Result<(), Vec<String>> {
        let state = self.state();
        let mut wrong: Vec<String> = state
            .unseen
            .iter()
            .map(|what| format!("{what}: not seen yet"))
            .collect();
        if !state.answered {
            wrong.push("the API server has granted nothing yet".to_owned());
        }
        all_or_nothing(wrong)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion or removal: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all_or_nothing(wrong: Vec<String>) -> Result<(), Vec<String>> {
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// By which a loop tells that it goes on. Dropping it ends the loop.
#[derive(Debug)]
pub(crate) struct Pulse {
    health: Arc<LoopHealth>,
    name: String,
}

impl Pulse {
    /// It begins something.
    pub(crate) fn begin_work(&self) {
        self.set(Loop::Works(Instant::now()));
    }

    /// It waits for something to change.
    pub(crate) fn begin_wait(&self) {
        self.set(Loop::Rests);
    }

    fn set(&self, to: Loop) {
        self.health.state().loops.insert(self.name.clone(), to);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.set(Loop::Broken);
        } else {
            self.health.state().loops.remove(&self.name);
        }
    }
}

/// Something that was not seen yet.
#[derive(Debug)]
pub(crate) struct Unseen {
    health: Arc<LoopHealth>,
    what: String,
}

impl Drop for Unseen {
    fn drop(&mut self) {
        self.health.state().unseen.remove(&self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_all_was_seen() {
        let health = Arc::new(LoopHealth::default());
        assert_eq!(health.check_ready().unwrap_err().len(), 1);
        health.api_answered();
        assert_eq!(health.check_ready(), Ok(()));
        let unseen = health.require("pods");
        assert_eq!(health.check_ready(), Err(vec!["pods: not seen yet".to_owned()]));
        drop(unseen);
        assert_eq!(health.check_ready(), Ok(()));
    }

    #[test]
    fn a_loop_that_hangs_or_breaks_is_named() {
        let health = Arc::new(LoopHealth::default());
        let pulse = health.begins("cluster a");
        let later = Instant::now() + LONGEST + Duration::from_secs(1);
        assert_eq!(health.check_loops(Instant::now()), Ok(()));
        assert_eq!(
            health.check_loops(later),
            Err(vec!["cluster a: no progress for 1801 s".to_owned()])
        );
        pulse.begin_wait();
        assert_eq!(health.check_loops(later), Ok(()));
        pulse.begin_work();
        drop(pulse);
        assert_eq!(health.check_loops(later), Ok(()));
        let broken = Arc::clone(&health);
        std::thread::spawn(move || {
            let _pulse = broken.begins("cluster b");
            panic!("a bug");
        })
        .join()
        .unwrap_err();
        let wrong = health.check_loops(Instant::now()).unwrap_err();
        assert!(wrong[0].starts_with("cluster b: ended by a bug"), "{wrong:?}");
    }
}
