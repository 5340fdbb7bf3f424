//! Idempotent requests: carried out once, however often they are sent: `Idempotency-Key`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue};

use crate::problem::ProblemDetails;

/// The header that names a question that is carried out once.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// So long a key is known.
const KEPT_FOR: Duration = Duration::from_hours(24);
/// So many are known at most; those that came first are forgotten first.
const KEPT: usize = 10_000;
/// No key is longer.
const LONGEST: usize = 200;

/// The known keys. A new process starts with none.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyKeys {
    seen: Mutex<BTreeMap<String, KnownKey>>,
}

#[derive(Debug)]
struct KnownKey {
    at: Instant,
    question: String,
    done: bool,
}

/// A request in progress under its key. Unless it completes, it may be repeated, also if the client
/// disconnected.
#[derive(Debug)]
pub(crate) struct IdempotencyClaim<'a> {
    once: &'a IdempotencyKeys,
    key: String,
}

impl IdempotencyClaim<'_> {
    /// It was carried out.
    pub(crate) fn complete(mut self) {
        self.mark(true);
    }

    /// Sets whether it counts as carried out from here on, whatever becomes of the client.
    pub(crate) fn mark(&mut self, done: bool) {
        if let Some(known) = self.once.lock().get_mut(&self.key) {
            known.done = done;
        }
    }
}

impl Drop for IdempotencyClaim<'_> {
    fn drop(&mut self) {
        let mut seen = self.once.lock();
        if seen.get(&self.key).is_some_and(|known| !known.done) {
            seen.remove(&self.key);
        }
    }
}

/// Why a question is not carried out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It was carried out.
    Before,
    /// It is being carried out.
    UnderWay,
    /// Another question was.
    Otherwise,
}

impl IdempotencyKeys {
    /// The key of a caller.
    pub(crate) fn key(caller: &str, key: &HeaderValue) -> Result<String, ProblemDetails> {
        match key.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= LONGEST => Ok(format!("{caller}\n{key}")),
            Ok(_) | Err(_) => Err(ProblemDetails::malformed(
                "an Idempotency-Key has 1 to 200 printable characters",
            )),
        }
    }

    /// The exclusive right to carry out a request under that key.
    ///
    /// # Errors
    /// Another request has or had the key.
    pub(crate) fn claim(&self, key: String, question: &str) -> Result<IdempotencyClaim<'_>, Repeat> {
        let mut seen = self.lock();
        seen.retain(|_, known| known.at.elapsed() <= KEPT_FOR);
        match seen.get(&key) {
            Some(known) if known.question != question => return Err(Repeat::Otherwise),
            Some(KnownKey { done: true, .. }) => return Err(Repeat::Before),
            Some(KnownKey { done: false, .. }) => return Err(Repeat::UnderWay),
            None => {}
        }
        if seen.len() >= KEPT {
            let oldest = seen.iter().min_by_key(|(_, known)| known.at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|key| seen.remove(&key));
        }
        let known = KnownKey {
            at: Instant::now(),
            question: question.to_owned(),
            done: false,
        };
        seen.insert(key.clone(), known);
        Ok(IdempotencyClaim { once: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownKey>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_once_and_may_come_again_where_nothing_was_done() {
        let once = IdempotencyKeys::default();
        let key = || IdempotencyKeys::key("anna", &HeaderValue::from_static("k1")).unwrap();
        let given_up = once.claim(key(), "pause").unwrap();
        assert_eq!(once.claim(key(), "pause").unwrap_err(), Repeat::UnderWay);
        assert_eq!(once.claim(key(), "resume").unwrap_err(), Repeat::Otherwise);
        drop(given_up);
        once.claim(key(), "pause").unwrap().complete();
        assert_eq!(once.claim(key(), "pause").unwrap_err(), Repeat::Before);
        assert_eq!(once.claim(key(), "resume").unwrap_err(), Repeat::Otherwise);
        let other = IdempotencyKeys::key("bert", &HeaderValue::from_static("k1")).unwrap();
        assert!(once.claim(other, "resume").is_ok());
        assert!(IdempotencyKeys::key("anna", &HeaderValue::from_static("")).is_err());
    }

    #[test]
    fn no_more_keys_are_kept_than_there_is_room_for() {
        let once = IdempotencyKeys::default();
        for number in 0..KEPT + 10 {
            once.claim(number.to_string(), "").unwrap().complete();
        }
        assert_eq!(once.lock().len(), KEPT);
        assert_eq!(
            once.claim((KEPT + 9).to_string(), "").unwrap_err(),
            Repeat::Before
        );
    }
}
