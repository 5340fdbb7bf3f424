//! An event as a line of a chunk: `SUM TIME VERSION JSON`, under the key `event-` and its place.

use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest as _, Sha256};
use stagger_core::releases::{Own as _, unpinned};
use stagger_core::run::{Entry, Event, Seq};
use stagger_engine::store::StoreError;
use stagger_versioned::Held;
use stagger_versioned::chain::Unreadable;

/// What the keys of events begin with.
const EVENT: &str = "event-";

/// The events of a chunk, by their keys.
pub(super) fn events(chunk: &ConfigMap) -> impl Iterator<Item = (&String, &String)> {
    chunk
        .data
        .iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(EVENT))
}

/// The place of its last event.
pub(super) fn last_seq(chunk: &ConfigMap) -> Option<Seq> {
    events(chunk)
        .filter_map(|(key, _)| key.strip_prefix(EVENT)?.parse().ok())
        .max()
}

/// The key of an event.
pub(super) fn key_of(seq: Seq) -> String {
    format!("{EVENT}{seq:08}")
}

/// Why an event cannot be read.
pub(super) enum Unread {
    /// It is not as its version should be.
    Damaged(String),
    /// It is, for all that this program knows.
    OfAnotherRelease(String),
}

/// An event after its time: `1.0 {…}`, or without a version, as earlier builds wrote it.
pub(super) fn event(text: &str) -> Result<Event, Unread> {
    let (version, body) = match text.split_once(' ') {
        Some((version, body)) if !text.starts_with('{') => {
            let version = version
                .parse()
                .map_err(|error: stagger_versioned::VersionError| Unread::Damaged(error.to_string()))?;
            (Some(version), body)
        }
        Some(_) | None => (None, text),
    };
    match Event::chain().load_text(version, body) {
        Ok(held) => Ok(held.value),
        Err(why @ Unreadable::Malformed { .. }) => Err(Unread::Damaged(why.to_string())),
        Err(why) => Err(Unread::OfAnotherRelease(why.to_string())),
    }
}

/// The key and the text of an event, and its checksum.
pub(super) fn line(entry: &Entry, before: &str) -> Result<(String, String, String), StoreError> {
    let held = Held::new(entry.event.clone());
    let written = Event::chain().save_text(&held, &unpinned());
    let written = written.map_err(|error| StoreError::Failed {
        tried: "write an event".to_owned(),
        why: error.to_string(),
    })?;
    let rest = format!("{} {} {}", entry.at, written.version, written.data);
    let sum = checksum(before, entry.seq, &rest);
    Ok((key_of(entry.seq), format!("{sum} {rest}"), sum))
}

/// Over the one before, the place, and what stands there.
pub(super) fn checksum(before: &str, seq: Seq, rest: &str) -> String {
    use std::fmt::Write as _;
    let sum = Sha256::new()
        .chain_update(before.as_bytes())
        .chain_update(seq.to_le_bytes())
        .chain_update(rest.as_bytes())
        .finalize();
    sum.iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_line_is_read_with_its_version_or_as_it_was_before_there_were_versions() {
        let entry = Entry {
            seq: 3,
            at: Timestamp::UNIX_EPOCH,
            event: Event::WavePassed,
        };
        let (key, text, sum) = line(&entry, "").unwrap();
        assert_eq!(key, "event-00000003");
        assert_eq!(
            text,
            format!("{sum} 1970-01-01T00:00:00Z 1.0 {{\"event\":\"wave-passed\"}}")
        );
        let read = |text: &str| {
            event(text).map_err(|why| match why {
                Unread::Damaged(why) => format!("damaged: {why}"),
                Unread::OfAnotherRelease(why) => why,
            })
        };
        assert_eq!(read(r#"1.0 {"event":"wave-passed"}"#), Ok(Event::WavePassed));
        let held = r#"{"event":"held","reason":{"slug":"paused","detail":"by anna at noon"}}"#;
        assert!(matches!(read(held), Ok(Event::Held { .. })));
        assert_eq!(read(r#"{"event":"wave-passed"}"#), Ok(Event::WavePassed));
        let newer = read(r#"1.7 {"event":"wave-turned"}"#).unwrap_err();
        assert!(newer.contains("from a later release"), "{newer}");
        for bad in ["", "x {}", "1.0", "1.0 ", "1.0 {}", r#"{"event":"wave-turned"}"#] {
            let why = read(bad).unwrap_err();
            assert!(why.starts_with("damaged: "), "{bad}: {why}");
        }
    }
}
