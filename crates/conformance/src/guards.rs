//! The laws of guards.

use std::fmt::Debug;

use stagger_core::model::{GuardName, RunId, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor};

/// How long a guard lasts without a renewal here, in seconds.
const EXPIRES: u32 = 600;

/// A guard of a backend over some units.
pub struct Guard<'a> {
    backend: &'a dyn Executor,
    name: GuardName,
    units: Vec<UnitId>,
}

impl<'a> Guard<'a> {
    /// That one.
    ///
    /// # Panics
    /// The name is none.
    pub fn new(backend: &'a dyn Executor, name: &str, units: &[UnitId]) -> Self {
        Self {
            backend,
            name: GuardName::new(name).unwrap(),
            units: units.to_vec(),
        }
    }

    async fn take(&self, call: &Call) {
        let take = Action::TakeGuard {
            guard: self.name.clone(),
            units: self.units.clone(),
            expires: EXPIRES,
        };
        self.backend.perform(call, &take).await.unwrap();
    }

    async fn release(&self, call: &Call) {
        let release = Action::DropGuard {
            guard: self.name.clone(),
            units: self.units.clone(),
        };
        self.backend.perform(call, &release).await.unwrap();
    }
}

/// A guard that is taken changes the cluster, taken again it is renewed and changes nothing more, and once it is released all is
/// as before, however often it is released. `settings`: what of the cluster the guard changes.
///
/// # Panics
/// The law is broken.
pub async fn what_is_taken_is_released<T: PartialEq + Debug>(
    guard: &Guard<'_>,
    call: &Call,
    settings: impl Fn() -> T,
) {
    let before = settings();
    guard.take(call).await;
    let held = settings();
    assert_ne!(held, before, "{} changes nothing", guard.name);
    guard.take(call).await;
    assert_eq!(settings(), held, "{} was renewed", guard.name);
    for _ in 0..2 {
        guard.release(call).await;
        assert_eq!(settings(), before, "{} was released", guard.name);
    }
}

/// What a later run has taken is not released by one that was overtaken.
///
/// # Panics
/// The law is broken.
pub async fn what_a_later_run_holds_is_left<T: PartialEq + Debug>(
    guard: &Guard<'_>,
    call: &Call,
    settings: impl Fn() -> T,
) {
    let before = settings();
    guard.take(call).await;
    let later = Call {
        run: RunId::new("later").unwrap(),
        fence: call.fence + 1,
        announced: call.fence + 1,
        ..call.clone()
    };
    guard.take(&later).await;
    let held = settings();
    guard.release(call).await;
    assert_eq!(settings(), held, "{} of the later run was released", guard.name);
    guard.release(&later).await;
    assert_eq!(settings(), before);
}
