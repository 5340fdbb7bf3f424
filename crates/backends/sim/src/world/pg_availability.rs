//! What becomes of the placement groups of a copied cluster, and what of it is the run's doing.
//!
//! A group serves while `min_size` of its shards are up and `k` of them have all its objects. What is
//! due to the run is told from what is not by asking how the group would stand if all that the run
//! stopped were up and whole.

use std::collections::{BTreeMap, BTreeSet};

use super::SimulatedCluster;

/// The wave of a run: its stage, and its number in that stage, from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaveName {
    /// Of which stage.
    pub stage: String,
    /// Which.
    pub number: u32,
}

/// What a run came to for the placement groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgExposure {
    /// How many groups were one failure away from not serving at the worst moment, that would not have
    /// been without the run.
    pub worst: u64,
    /// In which wave that was.
    pub worst_wave: Option<WaveName>,
    /// For how many seconds in all, a group each.
    pub group_seconds: u64,
    /// Groups that stopped serving and would have gone on without the run.
    pub stopped: u64,
    /// How long it took at most until one of them served again, in seconds.
    pub longest_stop: u64,
    /// How many of them did not serve at the end either: what was written while the run had stopped some
    /// of their OSDs lies on one that has failed.
    pub still_stopped: u64,
}

/// How one group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PgAvailability {
    /// Worse than before the run.
    dirty: bool,
    /// One failure away from not serving, by the run.
    exposed: bool,
    /// It does not serve, by the run.
    stopped: bool,
}

/// The standing of all groups, kept up with each change.
#[derive(Debug, Clone, Default)]
pub(super) struct PgAvailabilities {
    all: Vec<PgAvailability>,
    pub(super) dirty: usize,
    /// Groups with objects missing somewhere.
    pub(super) short: BTreeSet<u32>,
    exposed: u64,
    /// Milliseconds of exposure, up to `since`.
    exposed_for: u64,
    since: u64,
    worst: u64,
    worst_wave: Option<WaveName>,
    wave: Option<WaveName>,
    stopped_since: BTreeMap<u32, u64>,
    ever_stopped: BTreeSet<u32>,
    longest_stop: u64,
}

impl PgAvailabilities {
    /// Counts the time that has passed with things as they are.
    fn pass(&mut self, now: u64) {
        self.exposed_for += self.exposed * (now - self.since);
        self.since = now;
    }

    fn turn(&mut self, group: u32, now: u64, new: PgAvailability) {
        let old = std::mem::replace(&mut self.all[group as usize], new);
        self.dirty = self.dirty + usize::from(new.dirty) - usize::from(old.dirty);
        self.exposed = self.exposed + u64::from(new.exposed) - u64::from(old.exposed);
        match (old.stopped, new.stopped) {
            (false, true) => drop(self.stopped_since.insert(group, now)),
            (true, false) => {
                let since = self.stopped_since.remove(&group).unwrap_or(now);
                self.was_stopped(group, now - since);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// What lasts no time at all is two things that happen together.
    fn was_stopped(&mut self, group: u32, time: u64) {
        if time > 0 {
            self.ever_stopped.insert(group);
            self.longest_stop = self.longest_stop.max(time);
        }
    }
}

impl SimulatedCluster {
    /// Looks at all groups for the first time.
    pub(super) fn stand(&mut self) {
        let groups = self.pgs.len();
        let Some(copy) = &mut self.copy else { return };
        copy.standings.all = vec![PgAvailability::default(); groups];
        for group in 0..groups as u32 {
            self.settle_group(group);
        }
    }

    /// Looks again at the groups of an OSD that has changed.
    pub(crate) fn settle(&mut self, unit: usize) {
        let now = self.now;
        let Some(copy) = &mut self.copy else { return };
        copy.standings.pass(now);
        for at in 0..self.on_osd[unit].len() {
            self.settle_group(self.on_osd[unit][at].0);
        }
        let Some(copy) = &mut self.copy else { return };
        let standings = &mut copy.standings;
        if standings.exposed > standings.worst {
            standings.worst = standings.exposed;
            standings.worst_wave.clone_from(&standings.wave);
        }
    }

    fn settle_group(&mut self, group: u32) {
        let new = self.standing(group as usize);
        let short = self.pgs[group as usize].missing.contains(&true);
        let now = self.now;
        let Some(copy) = &mut self.copy else { return };
        copy.standings.turn(group, now, new);
        if short {
            copy.standings.short.insert(group);
        } else {
            copy.standings.short.remove(&group);
        }
    }

    fn standing(&self, group: usize) -> PgAvailability {
        let pg = &self.pgs[group];
        let pool = &self.spec.pools[pg.pool];
        let (mut up, mut whole, mut up_without, mut whole_without) = (0, 0, 0, 0);
        let mut dirty = false;
        for (osd, missing) in pg.shards.iter().zip(&pg.missing) {
            let Some(osd) = osd else { continue };
            let daemon = &self.daemons[*osd as usize];
            // One that has failed by itself would be down without the run too.
            let ours = daemon.ours && daemon.outages == 0;
            let is_whole = daemon.up && !missing;
            up += u32::from(daemon.up);
            whole += u32::from(is_whole);
            up_without += u32::from(daemon.up || ours);
            whole_without += u32::from(is_whole || ours);
            dirty |= daemon.baseline && !is_whole;
        }
        let serves = |up: u32, whole: u32| up >= pool.min_size && whole >= pool.k;
        let bears_one = |up: u32, whole: u32| up > pool.min_size && whole > pool.k;
        PgAvailability {
            dirty,
            exposed: serves(up, whole) && !bears_one(up, whole) && bears_one(up_without, whole_without),
            stopped: !serves(up, whole) && serves(up_without, whole_without),
        }
    }

    /// From now on this wave is open.
    pub(crate) fn wave_opened(&mut self, wave: WaveName) {
        if let Some(copy) = &mut self.copy {
            copy.standings.wave = Some(wave);
        }
    }

    /// What all came to, up to now.
    pub(crate) fn exposure(&mut self) -> PgExposure {
        let now = self.now;
        let Some(copy) = &mut self.copy else {
            return PgExposure::default();
        };
        let standings = &mut copy.standings;
        standings.pass(now);
        let still = standings.stopped_since.iter().filter(|(_, since)| **since < now);
        let still: Vec<u32> = still.map(|(group, _)| *group).collect();
        standings.ever_stopped.extend(&still);
        PgExposure {
            worst: standings.worst,
            worst_wave: standings.worst_wave.clone(),
            group_seconds: standings.exposed_for / 1000,
            stopped: standings.ever_stopped.len() as u64,
            longest_stop: standings.longest_stop.div_ceil(1000),
            still_stopped: still.len() as u64,
        }
    }
}
