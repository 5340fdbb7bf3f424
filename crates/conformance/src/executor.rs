//! The laws of an executor. `world` tells what actions change: what is kept of calls themselves is no part of it.

use std::fmt::Debug;

use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor, Fencing};
use stagger_engine::driver::units_of;

/// What a process has done, the one that carries its run on does again with the same call: that is no error, and changes
/// nothing more. Gives what the second one says.
///
/// # Panics
/// The law is broken.
pub async fn performed_twice_is_performed_once<T: PartialEq + Debug>(
    processes: [&dyn Executor; 2],
    call: &Call,
    action: &Action,
    world: impl AsyncFn() -> T,
) -> String {
    let before = world().await;
    let [one, other] = processes;
    one.perform(call, action).await.unwrap();
    let done = world().await;
    assert_ne!(done, before, "{action:?} changes nothing");
    let said = other.perform(call, action).await.unwrap();
    assert_eq!(world().await, done, "{action:?} was done twice: {said}");
    said
}

/// Once the fence is raised, a call with an older token is refused before it changes anything, also where its sender raises it
/// to its own. The newer one is carried out.
///
/// # Panics
/// The law is broken, or the action has another rail.
pub async fn an_older_holder_is_refused<T: PartialEq + Debug>(
    executor: &dyn Executor,
    older: &Call,
    newer: &Call,
    action: &Action,
    world: impl AsyncFn() -> T,
) {
    assert!(older.fence < newer.fence, "{older:?} {newer:?}");
    assert_eq!(executor.fencing(action), Fencing::Fenced, "{action:?}");
    let units = units_of(action);
    executor.raise_fence(newer.fence, &units).await.unwrap();
    let before = world().await;
    for _ in 0..2 {
        let late = executor.perform(older, action).await;
        assert_eq!(
            world().await,
            before,
            "a late {action:?} has changed it: {late:?}"
        );
        let refused = late.expect_err("a late call was carried out");
        assert!(!refused.outcome_unknown, "it may still land: {refused}");
        // Whoever was overtaken may not know it yet.
        executor.raise_fence(older.fence, &units).await.ok();
    }
    executor.perform(newer, action).await.unwrap();
    assert_ne!(world().await, before, "{action:?} changes nothing");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use stagger_core::model::{RunId, Snapshot, UnitId};
    use stagger_core::run::Answer;
    use stagger_engine::cluster::BackendError;

    use super::*;

    /// Counts what was done.
    #[derive(Default)]
    struct Counter {
        done: AtomicU64,
        /// It knows what it has done.
        remembers: Option<Mutex<BTreeSet<String>>>,
        /// It looks at tokens: the newest one.
        fence: Option<AtomicU64>,
        /// It is lowered to whatever token comes.
        is_lowered: bool,
    }

    impl Counter {
        fn whole() -> Self {
            Self {
                remembers: Some(Mutex::default()),
                fence: Some(AtomicU64::default()),
                ..Self::default()
            }
        }

        fn done(&self) -> u64 {
            self.done.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl Executor for Counter {
        async fn observe(&self) -> Result<Snapshot, BackendError> {
            unreachable!("nobody looks")
        }
        async fn check_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
            unreachable!("nobody asks")
        }
        fn fencing(&self, _: &Action) -> Fencing {
            Fencing::Fenced
        }
        async fn perform(&self, call: &Call, _: &Action) -> Result<String, BackendError> {
            let fence = self.fence.as_ref();
            if fence.is_some_and(|fence| call.fence < fence.load(Ordering::Relaxed)) {
                return Err(BackendError::permanent("count", "fenced"));
            }
            let known = self.remembers.as_ref();
            if known.is_none_or(|known| known.lock().unwrap().insert(call.key())) {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Ok("counted".to_owned())
        }
        async fn raise_fence(&self, token: u64, _: &[UnitId]) -> Result<(), BackendError> {
            match &self.fence {
                Some(fence) if self.is_lowered => fence.store(token, Ordering::Relaxed),
                Some(fence) => drop(fence.fetch_max(token, Ordering::Relaxed)),
                None => {}
            }
            Ok(())
        }
        async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
            unreachable!("nobody collects")
        }
        fn poll(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn call(fence: u64) -> Call {
        Call {
            run: RunId::new("run-1").unwrap(),
            seq: 7,
            announced: 1,
            fence,
            deadline: None,
        }
    }

    fn action() -> Action {
        Action::Restart {
            unit: UnitId::new("u.1").unwrap(),
        }
    }

    async fn twice(counter: &Counter) -> String {
        let both: [&dyn Executor; 2] = [counter, counter];
        performed_twice_is_performed_once(both, &call(1), &action(), async || counter.done()).await
    }

    async fn overtaken(counter: &Counter) {
        let world = async || counter.done();
        an_older_holder_is_refused(counter, &call(1), &call(2), &action(), world).await;
    }

    #[tokio::test]
    async fn a_whole_one_has_all_laws() {
        assert_eq!(twice(&Counter::whole()).await, "counted");
        overtaken(&Counter::whole()).await;
    }

    #[tokio::test]
    #[should_panic(expected = "was done twice")]
    async fn one_that_forgets_is_found() {
        let forgets = Counter {
            remembers: None,
            ..Counter::whole()
        };
        twice(&forgets).await;
    }

    #[tokio::test]
    #[should_panic(expected = "has changed it")]
    async fn one_that_looks_at_no_token_is_found() {
        let heedless = Counter {
            fence: None,
            ..Counter::whole()
        };
        overtaken(&heedless).await;
    }

    #[tokio::test]
    #[should_panic(expected = "has changed it")]
    async fn one_whose_fence_is_lowered_is_found() {
        let lowered = Counter {
            is_lowered: true,
            ..Counter::whole()
        };
        overtaken(&lowered).await;
    }
}
