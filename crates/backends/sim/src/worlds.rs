//! Random worlds by the thousand: each is played, judged by the truth, and shrunk if something was found.
//!
//! Each world has a seed of its own, made of the seed of all and of its number, and is played on one thread.
//! So what comes of them does not depend on how many are played side by side.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stagger_core::model::{Doors, UnitId};
use stagger_core::run::{Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::JournalStore;

use crate::clock::ClockSpeed;
use crate::memory::MemoryStore;
use crate::random;
use crate::rng::hash;
use crate::scenario::{GuestSpec, Level, Scenario};
use crate::simulate::{Class, SimEnding, SimReport, SimulationFinding, simulate};

/// Which worlds, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worlds {
    /// The seed of all.
    pub seed: u64,
    /// How many.
    pub count: u64,
    /// The number of the first: with it a part of the worlds of a seed is played.
    pub first: u64,
    /// How many of them are played twice, the first ones.
    pub twice: u64,
    /// How many side by side.
    pub threads: usize,
}

/// What came of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorldsReport {
    /// Their endings, with the reasons.
    pub endings: BTreeMap<String, u64>,
    /// The faults that were drawn, by class.
    pub faults: BTreeMap<&'static str, u64>,
    /// The worlds of each shape; one may be of several.
    pub shapes: BTreeMap<&'static str, u64>,
    /// Worlds in which a person had to help.
    pub helped: u64,
    /// Units that were stopped.
    pub stops: u64,
    /// Waves that were passed.
    pub waves: u64,
    /// Stops made unsafe by a fault that came after both judges had answered.
    pub raced: u64,
    /// Stops made unsafe by lies on which all sources agreed.
    pub undetectable: u64,
    /// Calls that had their effect after their sender had given them up.
    pub late: u64,
    /// The worlds in which something was found, by number.
    pub found: Vec<FailingWorld>,
    /// Of all journals together.
    pub digest: u64,
}

impl WorldsReport {
    /// In how many worlds something of each class was found.
    pub fn by_class(&self) -> BTreeMap<Class, u64> {
        let mut sum = BTreeMap::new();
        for found in &self.found {
            *sum.entry(found.finding.class).or_default() += 1;
        }
        sum
    }
}

/// A world in which the truth found something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingWorld {
    /// Its number.
    pub number: u64,
    /// The world.
    pub world: Scenario,
    /// The first thing found.
    pub finding: SimulationFinding,
}

/// The seed of one world.
pub fn seed_of(seed: u64, number: u64) -> u64 {
    // Half of the range, so that a scenario's file can hold it.
    hash(&[seed, number]) >> 1
}

/// Plays them all.
pub fn play_all(worlds: &Worlds) -> WorldsReport {
    play_with_progress(worlds, |_, _, _| ())
}

/// The same; after each world it is told how many were played, in how many something was found, and what in this one.
pub fn play_with_progress(
    worlds: &Worlds,
    tell: impl Fn(u64, usize, Option<&FailingWorld>) + Sync,
) -> WorldsReport {
    let played = AtomicU64::new(0);
    let next = AtomicU64::new(0);
    let came: Mutex<WorldsReport> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..worlds.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= worlds.count {
                        break;
                    }
                    let one = play_one(worlds, worlds.first + number);
                    let found = one.found.first().cloned();
                    let mut came = came.lock().unwrap_or_else(PoisonError::into_inner);
                    came.add(one);
                    let count = played.fetch_add(1, Ordering::Relaxed) + 1;
                    tell(count, came.found.len(), found.as_ref());
                }
            });
        }
    });
    let mut came = came.into_inner().unwrap_or_else(PoisonError::into_inner);
    came.found.sort_by_key(|found| found.number);
    came
}

impl WorldsReport {
    fn add(&mut self, one: Self) {
        let Self {
            endings,
            faults,
            shapes,
            helped,
            stops,
            waves,
            raced,
            undetectable,
            late,
            found,
            digest,
        } = one;
        for (ending, count) in endings {
            *self.endings.entry(ending).or_default() += count;
        }
        for (fault, count) in faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (shape, count) in shapes {
            *self.shapes.entry(shape).or_default() += count;
        }
        self.helped += helped;
        self.stops += stops;
        self.waves += waves;
        self.raced += raced;
        self.undetectable += undetectable;
        self.late += late;
        self.found.extend(found);
        // Whatever the order.
        self.digest = self.digest.wrapping_add(digest);
    }
}

fn play_one(worlds: &Worlds, number: u64) -> WorldsReport {
    let seed = seed_of(worlds.seed, number);
    let mut came = WorldsReport::default();
    let Ok(world) = random::scenario(seed) else {
        // Names of digits and letters are valid.
        return came;
    };
    // Some with a real store; it would be most of the time.
    let real = number.is_multiple_of(REAL_STORE);
    let played = play(&world, real);
    for shape in shapes(&world) {
        came.shapes.insert(shape, 1);
    }
    for fault in &world.faults {
        *came.faults.entry(fault.name()).or_default() += 1;
    }
    for ill in &world.journal {
        *came.faults.entry(ill.name()).or_default() += 1;
    }
    for conductor in &world.conductors {
        if conductor.ahead != 0 {
            *came.faults.entry("clock-ahead-or-behind").or_default() += 1;
        }
        for ill in &conductor.ills {
            *came.faults.entry(ill.name()).or_default() += 1;
        }
    }
    let again = (number - worlds.first < worlds.twice).then(|| play(&world, real));
    if let Some(finding) = first_finding(&played, again.as_ref()) {
        came.found.push(FailingWorld {
            number,
            world,
            finding,
        });
    }
    match played {
        Ok((report, digest)) => {
            let ending = match report.ending.reason() {
                Some(reason) => format!("{} {reason}", report.ending.word()),
                None => match (&report.ending, &report.helped_last) {
                    (SimEnding::Over(Ending::Aborted), Some(held)) => format!("aborted, held by {held}"),
                    (ending, _) => ending.word().to_owned(),
                },
            };
            came.endings.insert(ending, 1);
            came.helped = u64::from(report.helped > 0);
            came.stops = u64::from(report.truth.stops);
            came.waves = u64::from(report.waves);
            came.raced = u64::from(report.truth.raced);
            came.undetectable = u64::from(report.truth.undetectable);
            came.late = u64::from(report.truth.late);
            came.digest = hash(&[number, digest]);
        }
        Err(_) => drop(came.endings.insert("cannot be played".to_owned(), 1)),
    }
    came
}

/// Of which shapes a world is.
fn shapes(world: &Scenario) -> Vec<&'static str> {
    let spec = &world.cluster;
    let is_among = |units: &[UnitId], others: &[UnitId]| units.iter().any(|unit| others.contains(unit));
    let all = [
        ("one process, nothing befalls it", world.is_calm()),
        ("one process", world.conductors.len() == 1),
        ("several processes", world.conductors.len() > 1),
        ("stretched over sites", spec.sites > 0),
        ("hosts of guests", spec.guests.is_some()),
        ("services behind a balancer", spec.balanced.is_some()),
        ("OSDs dead and out", is_among(&spec.down, &spec.out)),
        (
            "OSDs down and in",
            spec.down.iter().any(|unit| !spec.out.contains(unit)),
        ),
        ("OSDs out", !spec.out.is_empty()),
        ("OSDs destroyed", !spec.destroyed.is_empty()),
        ("groups recovering", spec.recovering > 0),
        ("erasure-coded pools", spec.pools.iter().any(|pool| pool.k > 1)),
        (
            "pools across racks",
            spec.pools.iter().any(|pool| pool.domain == Level::Rack),
        ),
        ("gateways in groups", spec.rgws > 0 && spec.rgw_groups > 1),
        ("one monitor or manager", spec.mons == 1 || spec.mgrs == 1),
        ("software laid out first", spec.seconds.install > 0),
        ("doors asked for", world.policy.doors == Doors::Ask),
        ("part of the way is enough", world.policy.partial),
    ];
    all.into_iter()
        .filter(|(_, is_so)| *is_so)
        .map(|(shape, _)| shape)
        .collect()
}

/// A world as it was played: what came of it, and the digest of its journal; or why it could not be.
type PlayResult = Result<(SimReport, u64), String>;

fn first_finding(played: &PlayResult, again: Option<&PlayResult>) -> Option<SimulationFinding> {
    let (report, digest) = match played {
        Ok(played) => played,
        Err(why) => {
            return Some(SimulationFinding {
                class: Class::WrongEnding,
                what: format!("it cannot be played: {why}"),
            });
        }
    };
    let same = again.is_none_or(|again| matches!(again, Ok((_, second)) if second == digest));
    if !same {
        return Some(SimulationFinding {
            class: Class::Unrepeatable,
            what: "played again, it has another journal".to_owned(),
        });
    }
    report.findings.first().cloned()
}

/// Each world of so many has a real store.
const REAL_STORE: u64 = 50;

/// Plays one world, and tells a listener all that comes of it.
///
/// # Errors
/// Why it cannot be played, in words.
pub fn play_with_listener(world: &Scenario, listener: Box<dyn Listener>) -> Result<SimReport, String> {
    let artifacts = Artifacts::in_folder("/dev/null/artifacts");
    let store = Box::new(MemoryStore::default());
    simulate(world, store, artifacts, listener, ClockSpeed::Fast).map_err(|error| error.to_string())
}

fn play(world: &Scenario, real_store: bool) -> PlayResult {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let store: Box<dyn JournalStore> = if real_store {
            Box::new(SqliteStore::in_memory().map_err(|error| error.to_string())?)
        } else {
            Box::new(MemoryStore::default())
        };
        let digest = JournalDigest::default();
        // Nothing is kept: the folder is one that cannot be made, and collecting is allowed to fail.
        let artifacts = Artifacts::in_folder("/dev/null/artifacts");
        let report = simulate(
            world,
            store,
            artifacts,
            Box::new(digest.clone()),
            ClockSpeed::Fast,
        );
        let report = report.map_err(|error| error.to_string())?;
        Ok((report, digest.finish()))
    }));
    played.unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// The smallest world found in which something of the same class is found.
pub fn shrunk(found: &FailingWorld) -> FailingWorld {
    let mut smallest = found.clone();
    let mut plays = 0;
    loop {
        let smaller = smaller(&smallest.world).into_iter().find_map(|world| {
            plays += 1;
            if plays > MOST_PLAYS {
                return None;
            }
            let played = play(&world, false);
            let again = (found.finding.class == Class::Unrepeatable).then(|| play(&world, false));
            let finding = match &played {
                Ok((report, _)) if again.is_none() => {
                    let mut all = report.findings.iter();
                    all.find(|finding| finding.class == found.finding.class).cloned()
                }
                Ok(_) | Err(_) => first_finding(&played, again.as_ref())
                    .filter(|finding| finding.class == found.finding.class),
            };
            Some(FailingWorld {
                number: found.number,
                world,
                finding: finding?,
            })
        });
        match smaller {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
}

/// One less where there are several; where there is none of something there is none in a smaller world.
fn decrement(count: u32) -> u32 {
    if count > 1 { count - 1 } else { count }
}

/// After so many plays a world is small enough.
const MOST_PLAYS: u32 = 2_000;

/// Each world that has one thing less, the largest things first.
fn smaller(world: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut less = |change: &dyn Fn(&mut Scenario)| {
        let mut one = world.clone();
        change(&mut one);
        if one != *world {
            all.push(one);
        }
    };
    for at in 0..world.faults.len() {
        less(&|one| drop(one.faults.remove(at)));
    }
    for at in 0..world.cluster.pools.len() {
        less(&|one| drop(one.cluster.pools.remove(at)));
    }
    less(&|one| one.cluster.racks = one.cluster.racks.div_ceil(2));
    less(&|one| one.cluster.racks = decrement(one.cluster.racks));
    less(&|one| one.cluster.hosts_per_rack = decrement(one.cluster.hosts_per_rack));
    less(&|one| one.cluster.osds_per_host = decrement(one.cluster.osds_per_host));
    less(&|one| one.cluster.mds = 0);
    less(&|one| one.cluster.rgws = 0);
    less(&|one| one.cluster.mons = one.cluster.mons.min(3));
    less(&|one| one.cluster.mgrs = one.cluster.mgrs.min(2));
    less(&|one| one.cluster.out.clear());
    less(&|one| one.cluster.destroyed.clear());
    less(&|one| one.cluster.recovering = 0);
    less(&|one| one.cluster.rgw_groups = 1);
    less(&|one| one.cluster.down.clear());
    for at in 0..world.cluster.pools.len() {
        less(&|one| one.cluster.pools[at].pgs = one.cluster.pools[at].pgs.div_ceil(2));
        less(&|one| one.cluster.pools[at].pgs = one.cluster.pools[at].pgs.saturating_sub(1).max(1));
    }
    let guests = world.cluster.guests.as_ref().map_or(0, |spec| spec.guests.len());
    for at in 0..guests {
        less(&|one| {
            if let Some(spec) = &mut one.cluster.guests {
                spec.guests.remove(at);
            }
        });
    }
    less(&|one| {
        if let Some(spec) = &mut one.cluster.guests
            && spec.memory.len() > 1
        {
            let last = spec.memory.len() as u32 - 1;
            let is_there = |guest: &GuestSpec| guest.node != last && guest.standby != Some(last);
            if spec.guests.iter().all(is_there) && spec.last != Some(last) {
                spec.memory.pop();
            }
        }
    });
    let conductors = world
        .cluster
        .balanced
        .as_ref()
        .map_or(0, |spec| spec.conductors.len());
    for at in 0..conductors {
        less(&|one| {
            if let Some(spec) = &mut one.cluster.balanced {
                spec.conductors.remove(at);
            }
        });
    }
    less(&|one| {
        if let Some(spec) = &mut one.cluster.balanced {
            spec.apis = spec.apis.saturating_sub(1);
        }
    });
    for at in 0..world.asks.len() {
        less(&|one| drop(one.asks.remove(at)));
    }
    for at in 0..world.conductors.len() {
        less(&|one| drop(one.conductors.remove(at)));
        for ill in 0..world.conductors[at].ills.len() {
            less(&|one| {
                one.conductors[at].ills.remove(ill);
            });
        }
        less(&|one| one.conductors[at].ahead = 0);
        less(&|one| one.conductors[at].at = 0);
    }
    for at in 0..world.journal.len() {
        less(&|one| {
            one.journal.remove(at);
        });
    }
    less(&|one| one.cluster.seconds.call = 0);
    less(&|one| one.cluster.seconds.ask = 0);
    less(&|one| one.cluster.seconds.install = 0);
    less(&|one| one.cluster.seconds.blind = 0);
    less(&|one| one.target.going_back.clear());
    all
}

/// What is written down of a world in which something was found.
pub fn as_file(found: &FailingWorld, worlds: &Worlds) -> (String, String) {
    let FailingWorld {
        number,
        world,
        finding,
    } = found;
    let mut world = world.clone();
    world.about = format!(
        "World {number} of seed {}, shrunk. Found: {finding}.",
        worlds.seed
    );
    let name = format!("{}-{}-{number}.toml", finding.class, worlds.seed);
    (name, world.text())
}

/// The digest of a journal, as it is written.
#[derive(Debug, Clone, Default)]
struct JournalDigest(Arc<Mutex<DefaultHasher>>);

impl JournalDigest {
    fn finish(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

impl Listener for JournalDigest {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        let mut hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Events are plain values: there is none that cannot be written.
        serde_json::to_writer(HashedBytes(&mut hasher), entry).ok();
        hasher.write_u8(b'\n');
    }
}

/// Bytes to be digested.
struct HashedBytes<'a>(&'a mut DefaultHasher);

impl Write for HashedBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
