//! Placement groups: the OSDs of each, and its state.
//!
//! A million of them are normal, so they are kept in columns: some 40 bytes each.

mod read;
mod scan;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use super::parse::{ParseCause, ParseError, invalid};
use super::pg_state::PgState;

/// Where an erasure-coded placement group lacks a shard, Ceph writes this in place of an OSD.
pub const HOLE: u32 = 2_147_483_647;
/// More OSDs in one placement group than this are not believed. Ceph's pools have a size of at most 255.
const LARGEST_ACTING: usize = 255;

/// The name of a placement group: `2.1f`, pool and number in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PgId {
    /// The pool's number.
    pub pool: u32,
    /// The number within the pool.
    pub seed: u32,
}

impl PgId {
    /// From Ceph's text.
    pub fn parse(text: &str) -> Option<Self> {
        let (pool, seed) = text.split_once('.')?;
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
        if !plain(pool) || !plain(seed) {
            return None;
        }
        Some(Self {
            pool: pool.parse().ok()?,
            seed: u32::from_str_radix(seed, 16).ok()?,
        })
    }
}

impl PgId {
    /// The same from a short text, digit by digit; there are a million of them.
    fn of_bytes(text: &[u8]) -> Option<Self> {
        let dot = text.iter().position(|byte| *byte == b'.')?;
        let (pool, seed) = (&text[..dot], &text[dot + 1..]);
        // More digits than these may not fit: the longer way tells.
        if !(1..=9).contains(&pool.len()) || !(1..=8).contains(&seed.len()) {
            return None;
        }
        let digits = |text: &[u8], base: u32| {
            text.iter().try_fold(0_u32, |number, byte| {
                Some(number * base + char::from(*byte).to_digit(base)?)
            })
        };
        Some(Self {
            pool: digits(pool, 10)?,
            seed: digits(seed, 16)?,
        })
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

/// One placement group, looked up in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pg<'a> {
    /// Its name.
    pub id: PgId,
    /// How it is.
    pub state: PgState,
    /// The OSDs that serve it, as Ceph lists them, holes included.
    pub acting: &'a [u32],
    /// The OSDs that lack none of its objects. `None` if the answer did not say: the brief one does not.
    pub complete: Option<&'a [u32]>,
    /// The OSDs on which it belongs by the map of today, in the order of its shards, holes included. Kept only where the
    /// group is not clean: those of a clean one act in it.
    pub up: Option<&'a [u32]>,
    /// The OSD map epoch of the last report; 0 if the answer did not say.
    pub reported: u32,
}

impl Pg<'_> {
    /// The OSDs that serve it, without holes.
    pub fn live(&self) -> impl Iterator<Item = u32> {
        self.acting.iter().copied().filter(|osd| *osd != HOLE)
    }
}

/// The lists of the group being read, kept between groups so that they are not allocated anew.
#[derive(Default)]
struct Row {
    acting: Vec<u32>,
    complete: Option<Vec<u32>>,
    up: Option<Vec<u32>>,
    reported: u32,
}

/// All placement groups, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMap {
    ids: Vec<PgId>,
    states: Vec<PgState>,
    reported: Vec<u32>,
    /// Group `n` has `osds[ends[n-1]..acting_ends[n]]` acting and `osds[acting_ends[n]..ends[n]]`
    /// complete.
    acting_ends: Vec<u32>,
    ends: Vec<u32>,
    complete_known: Vec<bool>,
    osds: Vec<u32>,
    /// Where groups that are not clean belong.
    up: BTreeMap<PgId, Box<[u32]>>,
}

impl PgMap {
    /// Reads `pg dump`, `pg dump pgs_brief` or `pg ls` without keeping the text.
    ///
    /// # Errors
    /// No such JSON, a group named twice, or one that makes no sense. `origin` says where it came from.
    pub fn read(from: impl Read, origin: &str) -> Result<Self, ParseError> {
        Self::finish(read::from_reader(from), origin)
    }

    /// The same from an answer in memory.
    ///
    /// # Errors
    /// As [`PgMap::read`].
    pub fn read_slice(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let read = match scan::scan(bytes) {
            Some(map) => Ok(Some(map)),
            None => read::parse(bytes),
        };
        Self::finish(read, origin)
    }

    fn finish(read: Result<Option<Self>, serde_json::Error>, origin: &str) -> Result<Self, ParseError> {
        let read = read.map_err(|error| ParseError {
            origin: origin.to_owned(),
            source: ParseCause::Json(error),
        })?;
        let map = read.ok_or_else(|| invalid(origin, "it has no list `pg_stats`"))?;
        let mut map = map.sorted();
        map.shrink();
        match map.ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(invalid(
                origin,
                format!("placement group {} is listed twice", pair[0]),
            )),
            None => Ok(map),
        }
    }

    /// Gives back the room that was made for more.
    fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.states.shrink_to_fit();
        self.reported.shrink_to_fit();
        self.acting_ends.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.complete_known.shrink_to_fit();
        self.osds.shrink_to_fit();
    }

    /// With room for so many groups of three.
    fn with_capacity(groups: usize) -> Self {
        Self {
            ids: Vec::with_capacity(groups),
            states: Vec::with_capacity(groups),
            reported: Vec::with_capacity(groups),
            acting_ends: Vec::with_capacity(groups),
            ends: Vec::with_capacity(groups),
            complete_known: Vec::with_capacity(groups),
            osds: Vec::with_capacity(3 * groups),
            up: BTreeMap::new(),
        }
    }

    fn push(&mut self, pg: &Pg<'_>) {
        self.osds.extend_from_slice(pg.acting);
        let acting_end = self.osds.len();
        if let Some(up) = pg.up {
            self.up.insert(pg.id, up.into());
        }
        self.osds.extend_from_slice(pg.complete.unwrap_or_default());
        self.close(pg.id, pg.state, pg.reported, acting_end, pg.complete.is_some());
    }

    /// A row whose OSDs were read into the row's own lists.
    fn push_row(&mut self, id: PgId, state: PgState, row: &Row) {
        self.push(&Pg {
            id,
            state,
            acting: &row.acting,
            // Only a degraded group's list is ever asked for, and Ceph lists nothing for most others.
            complete: row
                .complete
                .as_deref()
                .map(|list| if state.has(PgState::DEGRADED) { list } else { &[] }),
            up: row.up.as_deref().filter(|_| !state.clean()),
            reported: row.reported,
        });
    }

    fn close(&mut self, id: PgId, state: PgState, reported: u32, acting_end: usize, complete_known: bool) {
        self.ids.push(id);
        self.states.push(state);
        self.reported.push(reported);
        self.acting_ends.push(acting_end as u32);
        self.ends.push(self.osds.len() as u32);
        self.complete_known.push(complete_known);
    }

    fn sorted(self) -> Self {
        if self.ids.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|at| self.ids[*at]);
        let mut sorted = Self {
            osds: Vec::with_capacity(self.osds.len()),
            ..Self::default()
        };
        for at in order {
            sorted.push(&self.at(at));
        }
        sorted
    }

    /// The same with these groups in place of those of the same names. Groups that are new are added.
    #[must_use]
    pub fn with(self, newer: &Self) -> Self {
        if newer.is_empty() {
            return self;
        }
        let mut all = Self::default();
        for pg in self.iter() {
            all.push(&newer.find(pg.id).map_or(pg, |at| newer.at(at)));
        }
        for pg in newer.iter().filter(|pg| self.find(pg.id).is_none()) {
            all.push(&pg);
        }
        all.sorted()
    }

    /// Adds all of another map, as they are. See [`PgMap::distinct`].
    pub fn extend(&mut self, other: &Self) {
        for pg in other.iter() {
            self.push(&pg);
        }
    }

    /// The same with each group once: the latest report of it.
    #[must_use]
    pub fn distinct(self) -> Self {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|at| (self.ids[*at], std::cmp::Reverse(self.reported[*at])));
        order.dedup_by_key(|at| self.ids[*at]);
        let mut distinct = Self::default();
        for at in order {
            distinct.push(&self.at(at));
        }
        distinct
    }

    /// Takes it that groups without a report were reported at `epoch`, unless one of their OSDs is
    /// `recent`.
    pub fn assume_reported(&mut self, epoch: u32, recent: impl Fn(u32) -> bool) {
        for at in 0..self.len() {
            if self.reported[at] == 0 && !self.at(at).live().any(&recent) {
                self.reported[at] = epoch;
            }
        }
    }

    /// The groups once recovery is finished: each that recovers by itself is clean, on the OSDs on which it belongs. The
    /// others are as they are. `None` where none recovers. `is_whole` says of a pool's number and a list of OSDs whether
    /// a group of that pool is complete on them.
    #[must_use]
    pub fn after_recovery(&self, is_whole: impl Fn(u32, &[u32]) -> bool) -> Option<Self> {
        if self.up.is_empty() {
            return None;
        }
        let recovers = |pg: &Pg<'_>| pg.state.recovers() && pg.up.is_some_and(|up| is_whole(pg.id.pool, up));
        if !self.iter().any(|pg| recovers(&pg)) {
            return None;
        }
        let mut all = Self::default();
        for pg in self.iter() {
            all.push(&match pg.up.filter(|_| recovers(&pg)) {
                None => pg,
                Some(up) => Pg {
                    state: PgState::WELL,
                    acting: up,
                    complete: None,
                    up: None,
                    ..pg
                },
            });
        }
        Some(all)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many groups each pool has, by its number.
    pub fn counts(&self) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for ids in self.ids.chunk_by(|one, next| one.pool == next.pool) {
            *counts.entry(ids[0].pool).or_default() += ids.len() as u32;
        }
        counts
    }

    /// The group at that place.
    pub fn at(&self, at: usize) -> Pg<'_> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        let (middle, end) = (self.acting_ends[at] as usize, self.ends[at] as usize);
        let id = self.ids[at];
        Pg {
            id,
            state: self.states[at],
            acting: &self.osds[start..middle],
            complete: self.complete_known[at].then(|| &self.osds[middle..end]),
            up: self.up.get(&id).map(Box::as_ref),
            reported: self.reported[at],
        }
    }

    /// The place of the group of that name.
    pub fn find(&self, id: PgId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// All of them in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = Pg<'_>> {
        self.iter_from(0)
    }

    /// Those from that place on.
    pub fn iter_from(&self, at: usize) -> impl Iterator<Item = Pg<'_>> {
        (at..self.len()).map(|at| self.at(at))
    }
}
