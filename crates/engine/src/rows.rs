//! Events of a journal as stores keep them: the first of a run, the chain of checksums, and the walk that verifies it.
//!
//! Every event carries a SHA-256 over the one before and its own content, so that a changed, missing or reordered event is
//! found; a database keeps the count of each journal beside it, so that a cut tail is found too. Times are information; order
//! is `seq`. In a row the version of an event stands outside the checksum, because what was stored without one gets it later.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use stagger_core::model::{ClusterId, RunId};
use stagger_core::releases::{Own as _, unpinned};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::boundary::Unsaved;
use stagger_versioned::chain::Unreadable;
use stagger_versioned::{Held, Version};

use crate::store::{Mark, Presence, StoreError};

/// A journal that is begun: its first event, and what that says of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalStart {
    /// Which run.
    pub run: RunId,
    /// Its cluster as that knows itself.
    pub identity: Option<ClusterId>,
    /// The event in its place.
    pub entry: Entry,
}

impl JournalStart {
    /// By that event.
    ///
    /// # Errors
    /// It does not start a run.
    pub fn of(at: Timestamp, event: Event) -> Result<Self, StoreError> {
        let Event::Started(start) = &event else {
            return Err(StoreError::Failed {
                tried: "start a journal".to_owned(),
                why: "its first event is not the start of a run".to_owned(),
            });
        };
        Ok(Self {
            run: start.run.clone(),
            identity: start.identity.clone(),
            entry: Entry { seq: 1, at, event },
        })
    }
}

/// What the checksum of an event is over, beside the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summed<'a> {
    /// A row of a database. The checksum has 32 bytes.
    Row {
        /// Of which run.
        run: &'a RunId,
        /// Under which token.
        fence: u64,
        /// When.
        at: &'a str,
        /// What.
        body: &'a str,
    },
    /// A line of a ConfigMap, after its checksum: that is the short form, the text of 16 bytes in hexadecimal.
    Line(&'a str),
}

/// The checksum of the event at that place, after one with that checksum; the first has none before it.
pub fn checksum(before: &[u8], seq: Seq, over: Summed<'_>) -> Vec<u8> {
    let mut sum = Sha256::new_with_prefix(before);
    match over {
        Summed::Row { run, fence, at, body } => {
            for part in [run.as_str(), &seq.to_string(), &fence.to_string(), at, body] {
                sum.update((part.len() as u64).to_le_bytes());
                sum.update(part.as_bytes());
            }
            sum.finalize().to_vec()
        }
        Summed::Line(line) => {
            sum.update(seq.to_le_bytes());
            sum.update(line.as_bytes());
            hexadecimal(sum.finalize().iter().take(16)).into_bytes()
        }
    }
}

fn hexadecimal<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    bytes.into_iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An event as text, at the version at which it is written.
///
/// # Errors
/// It has no form at that version.
pub fn written_event(event: Event) -> Result<(Version, String, Event), Unsaved> {
    let held = Held::new(event);
    let written = Event::chain().save_text(&held, &unpinned())?;
    Ok((written.version, written.data, held.value))
}

/// Why an event cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnreadableEvent {
    /// It is not as its version should be.
    Damaged(String),
    /// It is, for all that this program knows.
    OfAnotherRelease(String),
}

/// An event from its text. `None`: it was stored before versions were.
///
/// # Errors
/// It is damaged, or of another release.
pub fn read_event(version: Option<&str>, body: &str) -> Result<Event, UnreadableEvent> {
    let version = version_of(version)
        .map_err(|text| UnreadableEvent::Damaged(format!("it has {text:?} where its version should be")))?;
    match Event::chain().load_text(version, body) {
        Ok(held) => Ok(held.value),
        Err(Unreadable::Malformed { why, .. }) => Err(UnreadableEvent::Damaged(why)),
        Err(why) => Err(UnreadableEvent::OfAnotherRelease(why.to_string())),
    }
}

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
        let (version, body, event) = written_event(event)?;
        let when = at.to_string();
        let over = Summed::Row {
            run,
            fence,
            at: &when,
            body: &body,
        };
        let row = Self {
            hash: checksum(before, seq, over),
            seq,
            fence,
            at: when,
            version: Some(version.to_string()),
            body,
        };
        Ok((row, Entry { seq, at, event }))
    }
}

/// A place in a journal, with its checksum as text.
pub(crate) fn mark(seq: Seq, sum: &[u8]) -> Mark {
    Mark {
        seq,
        sum: hexadecimal(sum),
    }
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

/// An event as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredEvent<'a> {
    /// Its place.
    pub seq: Seq,
    /// What its checksum is over.
    pub over: Summed<'a>,
    /// Its checksum.
    pub sum: &'a [u8],
    /// When.
    pub at: &'a str,
    /// Its version; `None`: it was stored before versions were.
    pub version: Option<&'a str>,
    /// What.
    pub body: &'a str,
}

/// A journal while it is read, event by event, and verified.
#[derive(Debug)]
pub struct Reader<'a> {
    run: &'a RunId,
    entries: Vec<Entry>,
    before: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// Of that run, from its first event.
    pub fn of(run: &'a RunId) -> Self {
        Self {
            run,
            entries: Vec::new(),
            before: Vec::new(),
        }
    }

    /// What was read until now is good, and what follows is not.
    pub fn damaged(&self, why: impl Into<String>) -> StoreError {
        StoreError::Damaged {
            run: self.run.clone(),
            last_good: self.entries.last().map_or(0, |entry| entry.seq),
            why: why.into(),
        }
    }

    /// The place of the next event.
    pub fn next_seq(&self) -> Seq {
        self.entries.len() as Seq + 1
    }

    /// The checksum of the last event; empty: there is none.
    pub fn sum(&self) -> &[u8] {
        &self.before
    }

    pub(crate) fn add_row(&mut self, row: &JournalRow) -> Result<(), StoreError> {
        let JournalRow {
            seq,
            fence,
            at,
            version,
            body,
            hash,
        } = row;
        let over = Summed::Row {
            run: self.run,
            fence: *fence,
            at,
            body,
        };
        self.add(StoredEvent {
            seq: *seq,
            over,
            sum: hash,
            at,
            version: version.as_deref(),
            body,
        })
    }

    /// The next event.
    ///
    /// # Errors
    /// It is not the next one, or not as it was written; or it is of another release.
    pub fn add(&mut self, stored: StoredEvent<'_>) -> Result<(), StoreError> {
        let StoredEvent {
            seq,
            over,
            sum,
            at,
            version,
            body,
        } = stored;
        let next = self.next_seq();
        if seq != next {
            return Err(self.damaged(format!("event {next} is missing")));
        }
        if sum != checksum(&self.before, seq, over) {
            return Err(self.damaged(format!("the checksum of event {seq} is wrong")));
        }
        let event = match read_event(version, body) {
            Ok(event) => event,
            Err(UnreadableEvent::Damaged(why)) => {
                return Err(self.damaged(format!("event {seq} cannot be read: {why}")));
            }
            Err(UnreadableEvent::OfAnotherRelease(why)) => {
                return Err(StoreError::OfAnotherRelease {
                    what: format!("event {seq} of run {}", self.run),
                    why,
                });
            }
        };
        let at = at
            .parse()
            .map_err(|e| self.damaged(format!("the time of event {seq} cannot be read: {e}")))?;
        sum.clone_into(&mut self.before);
        self.entries.push(Entry { seq, at, event });
        Ok(())
    }

    /// All that was read, of a store that has no count of it.
    pub fn entries(self) -> Vec<Entry> {
        self.entries
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
pub(crate) fn encode_command(command: &Command) -> Result<(String, String), StoreError> {
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
