//! The order of events, and who wrote them.

use stagger_core::run::Event;

use super::{Breach, Journal};

pub(super) fn places(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut broken = Vec::new();
    let mut over = false;
    for (next, entry) in (1..).zip(journal.entries) {
        let seq = entry.seq;
        let mut breach = |why: String| broken.push(Breach { seq, why });
        if seq != next {
            breach(format!("its place is {seq}, and the next one is {next}"));
        }
        if seq > 1 && matches!(entry.event, Event::Started(_)) {
            breach("the run starts again".to_owned());
        }
        // A process that only observes takes the lock too.
        if over && !matches!(entry.event, Event::LeaseTaken { .. }) {
            breach("it follows the end of the run".to_owned());
        }
        over |= matches!(entry.event, Event::Ended { .. });
    }
    (journal.entries.len(), broken)
}

pub(super) fn tokens(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut newest = 0;
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let Event::LeaseTaken { fence, holder } = &entry.event else {
            continue;
        };
        count += 1;
        if *fence <= newest {
            let why = format!("{holder} has token {fence}, and {newest} was given before");
            broken.push(Breach { seq: entry.seq, why });
        }
        newest = newest.max(*fence);
    }
    (count, broken)
}
