//! An event as a line of a chunk: `SUM TIME VERSION JSON`, under the key `event-` and its number.

use k8s_openapi::api::core::v1::ConfigMap;
use stagger_core::run::{Entry, Event, Seq};
use stagger_engine::rows::{Reader, StoredEvent, Summed, checksum, read_event, written_event};
use stagger_engine::store::StoreError;

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

/// The parts of a line.
struct Parts<'a> {
    sum: &'a str,
    /// All that the checksum is over.
    rest: &'a str,
    at: &'a str,
    /// `None`: earlier builds wrote none.
    version: Option<&'a str>,
    body: &'a str,
}

impl<'a> Parts<'a> {
    /// Those of a line that has a checksum.
    fn of(line: &'a str) -> Option<Self> {
        let (sum, rest) = line.split_once(' ')?;
        let (at, event) = rest.split_once(' ').unwrap_or_default();
        let (version, body) = match event.split_once(' ') {
            Some((version, body)) if !event.starts_with('{') => (Some(version), body),
            Some(_) | None => (None, event),
        };
        Some(Self {
            sum,
            rest,
            at,
            version,
            body,
        })
    }
}

/// The event of a line, whatever stands before it.
pub(super) fn event(line: &str) -> Option<Event> {
    let Parts { version, body, .. } = Parts::of(line)?;
    read_event(version, body).ok()
}

/// Reads the next line of a journal.
pub(super) fn read_line(reader: &mut Reader<'_>, key: &str, line: &str) -> Result<(), StoreError> {
    let Some(parts) = Parts::of(line) else {
        return Err(reader.damaged(format!("{key} has no checksum")));
    };
    let seq = reader.next_seq();
    if key != key_of(seq) {
        return Err(reader.damaged(format!("{key} stands in the place of event {seq}")));
    }
    reader.add(StoredEvent {
        seq,
        over: Summed::Line(parts.rest),
        sum: parts.sum.as_bytes(),
        at: parts.at,
        version: parts.version,
        body: parts.body,
    })
}

/// The key and the text of an event, and its checksum.
pub(super) fn line(entry: &Entry, before: &str) -> Result<(String, String, String), StoreError> {
    let written = written_event(entry.event.clone());
    let (version, body, _) = written.map_err(|error| StoreError::Failed {
        tried: "write an event".to_owned(),
        why: error.to_string(),
    })?;
    let rest = format!("{} {version} {body}", entry.at);
    let sum = checksum(before.as_bytes(), entry.seq, Summed::Line(&rest));
    let sum = String::from_utf8_lossy(&sum).into_owned();
    Ok((key_of(entry.seq), format!("{sum} {rest}"), sum))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use stagger_core::model::RunId;

    use super::*;

    /// A journal of one line: what is read, and in which words it is refused.
    fn read(line: &str) -> Result<Event, String> {
        let run = RunId::new("r").unwrap();
        let mut reader = Reader::of(&run);
        read_line(&mut reader, "event-00000001", line).map_err(|error| error.to_string())?;
        Ok(reader.entries().remove(0).event)
    }

    /// The line of an event as that text, with its checksum.
    fn summed(event: &str) -> String {
        let rest = format!("1970-01-01T00:00:00Z {event}");
        let sum = checksum(&[], 1, Summed::Line(&rest));
        format!("{} {rest}", String::from_utf8(sum).unwrap())
    }

    /// As builds wrote it before stores shared their checksums.
    #[test]
    fn a_line_stays_what_it_was_byte_for_byte() {
        let entry = |seq| Entry {
            seq,
            at: Timestamp::UNIX_EPOCH,
            event: Event::WavePassed,
        };
        let (key, text, sum) = line(&entry(1), "").unwrap();
        assert_eq!(key, "event-00000001");
        assert_eq!(sum, "6e4eea2a55cf574281c327553df9a3a4");
        assert_eq!(
            text,
            format!("{sum} 1970-01-01T00:00:00Z 1.0 {{\"event\":\"wave-passed\"}}")
        );
        let (_, _, second) = line(&entry(2), &sum).unwrap();
        assert_eq!(second, "73958b9db816e217bc3ba0dabbbc49f4");
    }

    #[test]
    fn a_line_is_read_with_its_version_or_as_it_was_before_there_were_versions() {
        let read = |event: &str| read(&summed(event));
        assert_eq!(read(r#"1.0 {"event":"wave-passed"}"#), Ok(Event::WavePassed));
        let held = r#"{"event":"held","reason":{"slug":"paused","detail":"by anna at noon"}}"#;
        assert!(matches!(read(held), Ok(Event::Held { .. })));
        assert_eq!(read(r#"{"event":"wave-passed"}"#), Ok(Event::WavePassed));
        let newer = read(r#"1.7 {"event":"wave-turned"}"#).unwrap_err();
        assert!(newer.contains("from a later release"), "{newer}");
        for bad in ["", "x {}", "1.0", "1.0 ", "1.0 {}", r#"{"event":"wave-turned"}"#] {
            let why = read(bad).unwrap_err();
            assert!(why.contains("is damaged after event 0"), "{bad}: {why}");
        }
    }

    #[test]
    fn a_line_that_is_not_as_it_was_written_is_found() {
        let good = summed(r#"1.0 {"event":"wave-passed"}"#);
        assert_eq!(read(&good), Ok(Event::WavePassed));
        let changed = read(&good.replace("1970", "1971")).unwrap_err();
        assert!(changed.contains("the checksum of event 1 is wrong"), "{changed}");
        let without = read("x").unwrap_err();
        assert!(without.contains("event-00000001 has no checksum"), "{without}");
    }
}
