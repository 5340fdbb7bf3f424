//! What nobody has renewed for how long, by one's own clock alone.
//!
//! Clocks of two machines are never compared: whoever writes something that expires changes it while they live, and whoever
//! wants to take it away watches it first, for as long as it lasts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Notes that are watched: how they stand, and since when they have been seen so.
#[derive(Debug, Default)]
pub struct Heartbeats(BTreeMap<String, (String, Instant)>);

impl Heartbeats {
    /// How long each note has stood as it is, as far as it was watched. `all`: every note that there is now, by its key; what
    /// is not among them is forgotten, and begins anew should it come again.
    pub fn look(
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
            let stood = beats.look(begin + Duration::from_secs(seconds), all);
            stood.values().map(Duration::as_secs).collect::<Vec<_>>()
        };
        assert_eq!(look(0, &[("a", "1"), ("b", "1")]), [0, 0]);
        assert_eq!(look(60, &[("a", "1"), ("b", "2")]), [60, 0]);
        assert_eq!(look(90, &[("a", "1")]), [90]);
        assert_eq!(look(100, &[("a", "1"), ("b", "2")]), [100, 0]);
    }
}
