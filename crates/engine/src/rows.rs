//! Rows of a journal, as each database keeps them.
//!
//! Every row carries a SHA-256 over the row before and its own content, so that a changed, missing or reordered event is
//! found; the count of each journal is kept beside it, so that a cut tail is found too. Times are information; order is
//! `seq`. The version of an event stands outside the checksum, because what was stored without one gets it later.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use stagger_core::model::RunId;
use stagger_core::releases::{Own as _, unpinned};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::boundary::Unsaved;
use stagger_versioned::chain::Unreadable;
use stagger_versioned::{Held, Version};

use crate::store::{Mark, Presence, StoreError};

/// A row as it stands in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalRow {
    pub(crate) seq: Seq,
    pub(crate) fence: u64,
    pub(crate) at: String,
    /// `None` in those that were stored before versions were.
    pub(crate) version: Option<String>,
    pub(crate) body: String,
    pub(crate) hash: Vec<u8>,
}

impl JournalRow {
    /// The row of an event, after one with that checksum.
    pub(crate) fn of(run: &RunId, fence: u64, before: &[u8], entry: Entry) -> Result<(Self, Entry), Unsaved> {
        let Entry { seq, at, event } = entry;
        let held = Held::new(event);
        let written = Event::chain().save_text(&held, &unpinned())?;
        let when = at.to_string();
        let row = Self {
            hash: hash(before, run, seq, fence, &when, &written.data),
            seq,
            fence,
            at: when,
            version: Some(written.version.to_string()),
            body: written.data,
        };
        let event = held.value;
        Ok((row, Entry { seq, at, event }))
    }
}

/// A place in a journal, with its checksum as text.
pub(crate) fn mark(seq: Seq, sum: &[u8]) -> Mark {
    use std::fmt::Write as _;
    let sum = sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Mark { seq, sum }
}

/// Who carries a run out, from the columns: token, claim, seconds since, and for how many it counts.
pub(crate) fn presence((fence, claim, ago, expires): (i64, Option<String>, f64, f64)) -> Presence {
    let seconds = |number: f64| Duration::try_from_secs_f64(number.max(0.0)).unwrap_or_default();
    Presence {
        fence: fence.cast_unsigned(),
        claim: claim.and_then(|text| serde_json::from_str(&text).ok()),
        ago: seconds(ago),
        expires: seconds(expires),
    }
}

fn hash(before: &[u8], run: &RunId, seq: Seq, fence: u64, at: &str, body: &str) -> Vec<u8> {
    let mut sum = Sha256::new();
    sum.update(before);
    for part in [run.as_str(), &seq.to_string(), &fence.to_string(), at, body] {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part.as_bytes());
    }
    sum.finalize().to_vec()
}

/// A journal while it is read, row by row, and verified.
pub(crate) struct Reader<'a> {
    run: &'a RunId,
    entries: Vec<Entry>,
    before: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn of(run: &'a RunId) -> Self {
        Self {
            run,
            entries: Vec::new(),
            before: Vec::new(),
        }
    }

    /// What was read until now is good, and what follows is not.
    pub(crate) fn damaged(&self, why: impl Into<String>) -> StoreError {
        StoreError::Damaged {
            run: self.run.clone(),
            last_good: self.entries.last().map_or(0, |entry| entry.seq),
            why: why.into(),
        }
    }

    pub(crate) fn add(&mut self, row: JournalRow) -> Result<(), StoreError> {
        let JournalRow {
            seq,
            fence,
            at,
            version,
            body,
            hash: sum,
        } = row;
        let next = self.entries.len() as u64 + 1;
        if seq != next {
            return Err(self.damaged(format!("event {next} is missing")));
        }
        if sum != hash(&self.before, self.run, seq, fence, &at, &body) {
            return Err(self.damaged(format!("the checksum of event {seq} is wrong")));
        }
        let version = version_of(version.as_deref())
            .map_err(|text| self.damaged(format!("event {seq} has {text:?} where its version should be")))?;
        let event = match Event::chain().load_text(version, &body) {
            Ok(held) => held.value,
            Err(Unreadable::Malformed { why, .. }) => {
                return Err(self.damaged(format!("event {seq} cannot be read: {why}")));
            }
            Err(why) => {
                return Err(StoreError::OfAnotherRelease {
                    what: format!("event {seq} of run {}", self.run),
                    why: why.to_string(),
                });
            }
        };
        let at = at
            .parse()
            .map_err(|e| self.damaged(format!("the time of event {seq} cannot be read: {e}")))?;
        self.before = sum;
        self.entries.push(Entry { seq, at, event });
        Ok(())
    }

    /// All of it, if it has as many events as it should.
    pub(crate) fn end(self, expected: u64) -> Result<Vec<Entry>, StoreError> {
        if self.entries.len() as u64 != expected {
            return Err(self.damaged(format!("it should have {expected} events")));
        }
        Ok(self.entries)
    }
}

/// A version as it stands in a column; what stands there instead, if it is none.
fn version_of(text: Option<&str>) -> Result<Option<Version>, &str> {
    match text {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| text),
    }
}

/// What a person asks, as it is stored: its version, and the text.
pub(crate) fn written(command: &Command) -> Result<(String, String), StoreError> {
    let written = Command::chain().save_text(&Held::new(command.clone()), &unpinned());
    let written = written.map_err(|error| StoreError::Failed {
        tried: "write a command".to_owned(),
        why: error.to_string(),
    })?;
    Ok((written.version.to_string(), written.data))
}

/// And as it is read.
pub(crate) fn command(id: i64, version: Option<&str>, body: &str) -> Result<Command, StoreError> {
    let what = || format!("command {id} in the store");
    let version = version_of(version).map_err(|text| StoreError::Failed {
        tried: format!("read {}", what()),
        why: format!("it has {text:?} where its version should be"),
    })?;
    match Command::chain().load_text(version, body) {
        Ok(held) => Ok(held.value),
        Err(why @ Unreadable::Malformed { .. }) => Err(StoreError::Failed {
            tried: format!("read {}", what()),
            why: why.to_string(),
        }),
        Err(why) => Err(StoreError::OfAnotherRelease {
            what: what(),
            why: why.to_string(),
        }),
    }
}
