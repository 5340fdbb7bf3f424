//! Reads placement groups from a stream, in all formats in which Ceph lists them.
//!
//! `pg dump` wraps them as `pg_map.pg_stats`, `pg dump pgs_brief` and `pg ls` as `pg_stats`; a bare list is
//! accepted too. A full dump is 2.2 KB a group, 0.7 GB for a large cluster: only what [`PgMap`] holds is
//! kept.

use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{LARGEST_ACTING, PgId, PgMap, Row};
use crate::facts::pg_state::PgState;

const BUFFER: usize = 1 << 16;

/// `None`: JSON, and no list of groups anywhere.
pub(super) fn from_reader(from: impl Read) -> Result<Option<PgMap>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, from));
    let map = read(&mut json)?;
    json.end()?;
    Ok(map)
}

/// `None`: JSON, and no list of groups anywhere.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<PgMap>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let map = read(&mut json)?;
    json.end()?;
    Ok(map)
}

fn read<'de, D: Deserializer<'de>>(json: D) -> Result<Option<PgMap>, D::Error> {
    let mut reading = Reading::default();
    Outer(&mut reading).deserialize(json)?;
    Ok(reading.found.then_some(reading.map))
}

#[derive(Default)]
struct Reading {
    map: PgMap,
    found: bool,
    row: Row,
}

/// The whole answer, or the `pg_map` in it.
struct Outer<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for Outer<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of placement groups, or an object that holds one as `pg_stats`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KEY)? {
            match key {
                Key::PgMap => map.next_value_seed(Outer(self.0))?,
                Key::PgStats => map.next_value_seed(List(self.0))?,
                Key::Pgid
                | Key::State
                | Key::Acting
                | Key::Complete
                | Key::Up
                | Key::Reported
                | Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        List(self.0).visit_seq(seq)
    }
}

struct List<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of placement groups")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.found = true;
        while seq.next_element_seed(Group(self.0))?.is_some() {}
        Ok(())
    }
}

struct Group<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for Group<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Group<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a placement group")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Reading { map: groups, row, .. } = self.0;
        row.acting.clear();
        row.reported = 0;
        let (mut id, mut state, mut acting, mut complete, mut is_up) = (None, None, false, false, false);
        // Kept for their memory; whether this group has one is in `complete` and in `is_up`.
        let mut list = row.complete.take().unwrap_or_default();
        let mut up = row.up.take().unwrap_or_default();
        while let Some(key) = map.next_key_seed(KEY)? {
            match key {
                Key::Pgid => id = Some(map.next_value_seed(PG_ID)?),
                Key::State => state = Some(map.next_value_seed(STATE)?),
                Key::Reported => row.reported = map.next_value_seed(NumberSeed)?,
                Key::Acting => {
                    row.acting.clear();
                    map.next_value_seed(OsdsSeed(&mut row.acting))?;
                    acting = true;
                }
                Key::Complete => {
                    list.clear();
                    map.next_value_seed(OsdsSeed(&mut list))?;
                    complete = true;
                }
                // Nearly all groups are clean, and nobody asks where those belong.
                Key::Up if !state.is_some_and(PgState::clean) => {
                    up.clear();
                    map.next_value_seed(OsdsSeed(&mut up))?;
                    is_up = true;
                }
                Key::Up | Key::PgMap | Key::PgStats | Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let id = id.ok_or_else(|| A::Error::missing_field("pgid"))?;
        let state = state.ok_or_else(|| A::Error::missing_field("state"))?;
        if !acting {
            return Err(A::Error::missing_field("acting"));
        }
        row.complete = complete.then_some(list);
        row.up = is_up.then_some(up);
        groups.push_row(id, state, row);
        Ok(())
    }
}

enum Key {
    PgMap,
    PgStats,
    Pgid,
    State,
    Acting,
    Complete,
    Up,
    Reported,
    Other,
}

/// Reads a text without keeping it.
struct Text<T>(fn(&str) -> Result<T, String>);

impl<'de, T> DeserializeSeed<'de> for Text<T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        from.deserialize_str(self)
    }
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

const KEY: Text<Key> = Text(|text| {
    Ok(match text {
        "pg_map" => Key::PgMap,
        "pg_stats" => Key::PgStats,
        "pgid" => Key::Pgid,
        "state" => Key::State,
        "acting" => Key::Acting,
        "avail_no_missing" => Key::Complete,
        "up" => Key::Up,
        "reported_epoch" => Key::Reported,
        _ => Key::Other,
    })
});

const PG_ID: Text<PgId> = Text(|text| {
    PgId::parse(text).ok_or_else(|| format!("{text:?} is no placement group: it should read like 2.1f"))
});

const STATE: Text<PgState> = Text(|text| Ok(PgState::parse(text)));

/// A number, which older releases write as text.
struct NumberSeed;

impl<'de> DeserializeSeed<'de> for NumberSeed {
    type Value = u32;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u32, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for NumberSeed {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of 32 bits")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::custom(format!("{number} is more than 32 bits")))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u32, E> {
        // A shard of an erasure-coded group is written `3(1)`: OSD 3, shard 1.
        let number = text.split('(').next().unwrap_or(text);
        number
            .parse()
            .map_err(|_| E::custom(format!("{text:?} is not a number")))
    }
}

/// A list of OSDs.
struct OsdsSeed<'a>(&'a mut Vec<u32>);

impl<'de> DeserializeSeed<'de> for OsdsSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OsdsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of OSDs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(osd) = seq.next_element_seed(NumberSeed)? {
            if self.0.len() == LARGEST_ACTING {
                return Err(A::Error::custom(format!(
                    "a placement group on more than {LARGEST_ACTING} OSDs"
                )));
            }
            self.0.push(osd);
        }
        Ok(())
    }
}
