//! Questions that are carried out once, however often they are sent: `Idempotency-Key`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;

use crate::problem::Problem;

/// So long a key is known.
const KEPT_FOR: Duration = Duration::from_hours(24);
/// So many are known at most; those that came first are forgotten first.
const KEPT: usize = 10_000;
/// No key is longer.
const LONGEST: usize = 200;

/// The keys that were seen. A process that begins anew knows none.
#[derive(Debug, Default)]
pub(crate) struct Once {
    seen: Mutex<BTreeMap<String, (Instant, String)>>,
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing.
    Never,
    /// The same question was carried out.
    Before,
    /// Another question was.
    Otherwise,
}

impl Once {
    /// The key of a caller.
    pub(crate) fn key(caller: &str, key: &HeaderValue) -> Result<String, Problem> {
        match key.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= LONGEST => Ok(format!("{caller}\n{key}")),
            Ok(_) | Err(_) => Err(Problem::malformed(
                "an Idempotency-Key has 1 to 200 printable characters",
            )),
        }
    }

    /// Whether its question came before; from now on it did.
    pub(crate) fn claim(&self, key: &str, question: &str) -> Seen {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, (at, _)| at.elapsed() <= KEPT_FOR);
        match seen.get(key) {
            Some((_, known)) if known == question => return Seen::Before,
            Some(_) => return Seen::Otherwise,
            None => {}
        }
        if seen.len() >= KEPT {
            let oldest = seen
                .iter()
                .min_by_key(|(_, (at, _))| *at)
                .map(|(key, _)| key.clone());
            oldest.map(|key| seen.remove(&key));
        }
        seen.insert(key.to_owned(), (Instant::now(), question.to_owned()));
        Seen::Never
    }

    /// It was not carried out: it may come again.
    pub(crate) fn forget(&self, key: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_once_and_may_come_again_where_nothing_was_done() {
        let once = Once::default();
        let key = Once::key("anna", &HeaderValue::from_static("k1")).unwrap();
        assert_eq!(once.claim(&key, "pause"), Seen::Never);
        assert_eq!(once.claim(&key, "pause"), Seen::Before);
        assert_eq!(once.claim(&key, "resume"), Seen::Otherwise);
        let other = Once::key("bert", &HeaderValue::from_static("k1")).unwrap();
        assert_eq!(once.claim(&other, "resume"), Seen::Never);
        once.forget(&key);
        assert_eq!(once.claim(&key, "resume"), Seen::Never);
        assert!(Once::key("anna", &HeaderValue::from_static("")).is_err());
    }

    #[test]
    fn no_more_keys_are_kept_than_there_is_room_for() {
        let once = Once::default();
        for number in 0..KEPT + 10 {
            assert_eq!(once.claim(&number.to_string(), ""), Seen::Never);
        }
        assert_eq!(once.seen.lock().unwrap().len(), KEPT);
        assert_eq!(once.claim(&(KEPT + 9).to_string(), ""), Seen::Before);
    }
}
