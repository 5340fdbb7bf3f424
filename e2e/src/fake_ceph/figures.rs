//! The figures, and how they come of a journal and of what the API server wrote down.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;
use stagger_core::run::{Entry, Event};

use super::audit::{Asked, counts};
use super::evictions::Evictions;

/// A wave of at least so many OSDs is a large one.
const LARGE: usize = 8;

/// What was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) osds: usize,
    pub(super) hosts: usize,
    /// Requests of a quiet minute: watches and the Lease, and all others.
    pub(super) quiet_usual: usize,
    pub(super) quiet_others: BTreeMap<String, usize>,
    /// The most memory until then.
    pub(super) quiet_kb: u64,
    pub(super) evictions: Evictions,
    /// From each eviction until nothing else may be evicted.
    pub(super) blocked_ms: Vec<u128>,
    /// The most memory until then.
    pub(super) drained_kb: u64,
    /// Waves of OSDs, and how many OSDs they had.
    pub(super) waves: usize,
    pub(super) smallest: usize,
    pub(super) largest: usize,
    /// The large ones among them, their OSDs, and the requests from the end of the wave before to their own.
    pub(super) large_waves: usize,
    pub(super) large_osds: usize,
    pub(super) large_requests: BTreeMap<String, usize>,
    /// The whole revision, other daemons too.
    pub(super) took_s: u64,
    pub(super) cpu_s: u64,
    pub(super) peak_kb: u64,
    /// The most memory of it and of all that it started.
    pub(super) pod_kb: u64,
    /// The most OSDs that were down at once, and the most groups that could not serve.
    pub(super) most_down: usize,
    pub(super) stopped: usize,
}

impl Figures {
    /// What was asked while there was nothing to do.
    pub(super) fn quiet(&mut self, asked: &[Asked]) {
        self.quiet_usual = asked.iter().filter(|one| one.is_usual()).count();
        self.quiet_others = counts(asked.iter().filter(|one| !one.is_usual()));
    }

    /// What was asked for these waves.
    pub(super) fn revision(
        &mut self,
        waves: &[Wave],
        asked: impl Fn(Timestamp, Timestamp) -> Result<Vec<Asked>>,
    ) -> Result<()> {
        self.waves = waves.len();
        self.smallest = waves.iter().map(|wave| wave.osds).min().unwrap_or(0);
        self.largest = waves.iter().map(|wave| wave.osds).max().unwrap_or(0);
        let mut from = waves.first().map_or(Timestamp::UNIX_EPOCH, |wave| wave.opened);
        for wave in waves {
            if wave.osds >= LARGE {
                self.large_waves += 1;
                self.large_osds += wave.osds;
                for (what, count) in counts(&asked(from, wave.passed)?) {
                    *self.large_requests.entry(what).or_default() += count;
                }
            }
            from = wave.passed;
        }
        Ok(())
    }
}

/// A wave of OSDs that has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wave {
    osds: usize,
    opened: Timestamp,
    passed: Timestamp,
}

/// The waves of OSDs in a journal.
pub(super) fn waves(journal: &[Entry]) -> Vec<Wave> {
    let mut waves = Vec::new();
    let mut open = None;
    for entry in journal {
        match &entry.event {
            Event::WaveOpened { stage, units, .. } if stage.as_str() == "osd" => {
                open = Some((units.len(), entry.at));
            }
            Event::WaveDropped { .. } => open = None,
            Event::WavePassed => waves.extend(open.take().map(|(osds, opened)| Wave {
                osds,
                opened,
                passed: entry.at,
            })),
            _ => {}
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn waves_of_osds_are_those_that_have_passed() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let opened = |stage: &str, units: &[&str]| {
            let units: Vec<_> = units.iter().map(|unit| json!([unit, "18"])).collect();
            json!({ "event": "wave-opened", "stage": stage, "units": units })
        };
        let reason = json!({ "slug": "no", "detail": "no" });
        let journal: Vec<Entry> = [
            opened("mon", &["mon.a"]),
            json!({ "event": "wave-passed" }),
            opened("osd", &["osd.1", "osd.2"]),
            json!({ "event": "wave-dropped", "reason": reason }),
            opened("osd", &["osd.1"]),
            json!({ "event": "wave-passed" }),
        ]
        .into_iter()
        .enumerate()
        .map(|(nth, event)| Entry {
            seq: nth as u64 + 1,
            at: at(i64::try_from(nth).unwrap()),
            event: serde_json::from_value(event).unwrap(),
        })
        .collect();
        let expected = Wave {
            osds: 1,
            opened: at(4),
            passed: at(5),
        };
        assert_eq!(waves(&journal), [expected]);
    }
}
