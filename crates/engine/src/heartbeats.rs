//! Heartbeats: how long each note has not been renewed, by this machine's clock alone.
//!
//! Clocks of two machines are never compared. A process that writes something that expires changes it while
//! it lives; a process that wants to clear it first watches it for its whole lifetime.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Notes that are watched: how they stand, and since when they have been seen so.
#[derive(Debug, Default)]
pub struct Heartbeats(BTreeMap<String, (String, Instant)>);

impl Heartbeats {
    /// How long each note has been unchanged, as far as it was watched. `all`: every current note, by its
    /// key. A note that is missing is forgotten, and starts again if it returns.
    pub fn unchanged_for(
        &mut self,
        now: Instant,
        all: impl IntoIterator<Item = (String, String)>,
    ) -> BTreeMap<String, Duration> {
        let mut there = BTreeMap::new();
        let mut stood = BTreeMap::new();
        for (key, note) in all {
            let since = match self.0.remove(&key) {
                Some((seen, since)) if seen == note => since,
                Some(_) | None => now,
            };
            stood.insert(key.clone(), now.saturating_duration_since(since));
            there.insert(key, (note, since));
        }
        self.0 = there;
        stood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_or_comes_again_begins_anew_and_the_rest_stands() {
        let (begin, mut beats) = (Instant::now(), Heartbeats::default());
        let mut look = |seconds: u64, notes: &[(&str, &str)]| {
            let all = notes
                .iter()
                .map(|(key, note)| ((*key).to_owned(), (*note).to_owned()));
            let stood = beats.unchanged_for(begin + Duration::from_secs(seconds), all);
            stood.values().map(Duration::as_secs).collect::<Vec<_>>()
        };
        assert_eq!(look(0, &[("a", "1"), ("b", "1")]), [0, 0]);
        assert_eq!(look(60, &[("a", "1"), ("b", "2")]), [60, 0]);
        assert_eq!(look(90, &[("a", "1")]), [90]);
        assert_eq!(look(100, &[("a", "1"), ("b", "2")]), [100, 0]);
    }
}
