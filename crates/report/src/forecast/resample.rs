//! Draws of whole runs.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Serialize;
use stagger_core::model::{Kind, PartName};

use super::quantile;
use super::samples::{EarlierRun, PartShape, PlanShape};

/// So many draws. The tenth of them that is longest still has a hundred.
pub const DRAWS: u64 = 1_000;

/// Any number would do.
const SEED: u64 = 0x5741_6767_6572;

/// How long a plan takes by earlier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunForecast {
    /// In half of the draws it took no longer, in seconds.
    pub seconds: i64,
    /// In nine of ten draws it took no longer, in seconds.
    pub seconds_90: i64,
    /// Of how many earlier runs that was learned.
    pub runs: usize,
}

impl RunForecast {
    /// In half of the draws it took no longer.
    pub fn median(&self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds)
    }

    /// In nine of ten draws it took no longer.
    pub fn ninety(&self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds_90)
    }

    /// `3 h, 90 % under 4 h`.
    pub fn text(&self) -> String {
        format!(
            "{}, 90 % under {}",
            crate::duration(self.median()),
            crate::duration(self.ninety())
        )
    }
}

/// Samples of several runs together, for what the run of a draw has not seen.
#[derive(Default)]
struct Pool<'a> {
    visits: BTreeMap<&'a Kind, Vec<i64>>,
    rests: BTreeMap<&'a Kind, Vec<i64>>,
    steps: BTreeMap<&'a PartName, Vec<i64>>,
    gaps: Vec<i64>,
}

/// How long the plan takes by these earlier runs, in whatever order. `None`: it has no waves, or a kind in it has not been
/// visited in any of them.
pub fn from_runs(earlier: &[EarlierRun], plan: &PlanShape) -> Option<RunForecast> {
    let mut runs: Vec<&EarlierRun> = earlier
        .iter()
        .filter(|run| !run.samples.visits.is_empty())
        .collect();
    runs.sort_by(|a, b| (a.began, &a.run).cmp(&(b.began, &b.run)));
    let pool = Pool::of(&runs);
    let waves = plan.0.iter().filter_map(|part| match part {
        PartShape::Wave { kind, .. } => Some(kind),
        PartShape::Step(_) => None,
    });
    let waves: Vec<&Kind> = waves.collect();
    let seen = |kind: &&Kind| pool.visits.contains_key(kind) && pool.rests.contains_key(kind);
    if waves.is_empty() || !waves.iter().all(seen) {
        return None;
    }
    let mut took: Vec<i64> = (0..DRAWS).map(|draw| drawn(&runs, &pool, plan, draw)).collect();
    took.sort_unstable();
    // Rounded up: a duration that is reported as under a limit is under it.
    let seconds = |milliseconds: i64| milliseconds.saturating_add(999) / 1_000;
    Some(RunForecast {
        seconds: seconds(quantile(&took, 50)),
        seconds_90: seconds(quantile(&took, 90)),
        runs: runs.len(),
    })
}

impl<'a> Pool<'a> {
    fn of(runs: &[&'a EarlierRun]) -> Self {
        let mut pool = Self::default();
        for run in runs {
            for (kind, took) in &run.samples.visits {
                pool.visits.entry(kind).or_default().extend(took);
            }
            for (kind, took) in &run.samples.rests {
                pool.rests.entry(kind).or_default().extend(took);
            }
            for (step, took) in &run.samples.steps {
                pool.steps.entry(step).or_default().extend(took);
            }
            pool.gaps.extend(&run.samples.gaps);
        }
        pool
    }
}

/// One draw: how long the plan takes in it.
fn drawn(runs: &[&EarlierRun], pool: &Pool<'_>, plan: &PlanShape, draw: u64) -> i64 {
    let run = Stream::of(draw, 0).pick(runs).copied();
    let of_run = |samples: Option<&'_ Vec<i64>>, pooled: Option<&'_ Vec<i64>>, stream: &mut Stream| {
        let samples = samples.filter(|samples| !samples.is_empty()).or(pooled);
        samples
            .and_then(|samples| stream.pick(samples).copied())
            .unwrap_or(0)
    };
    let mut total = run.map_or(0, |run| run.samples.ends);
    // Each part has a stream of its own: one more part changes nothing of the others.
    for (place, part) in (1..).zip(&plan.0) {
        let stream = &mut Stream::of(draw, place);
        if place > 1 {
            total += of_run(run.map(|run| &run.samples.gaps), Some(&pool.gaps), stream);
        }
        match part {
            PartShape::Wave {
                kind,
                units,
                only_here,
                ..
            } => {
                total += of_run(
                    run.and_then(|run| run.samples.rests.get(kind)),
                    pool.rests.get(kind),
                    stream,
                );
                let visits = run.and_then(|run| run.samples.visits.get(kind));
                let longest = (0..*units)
                    .map(|_| of_run(visits, pool.visits.get(kind), stream))
                    .max();
                total += longest.unwrap_or(0) + i64::from(*only_here) * 1_000;
            }
            PartShape::Step(step) => {
                total += of_run(
                    run.and_then(|run| run.samples.steps.get(step)),
                    pool.steps.get(step),
                    stream,
                );
            }
        }
    }
    total
}

/// Numbers that look random and are always the same: `SplitMix64` (G. L. Steele, D. Lea, C. H. Flood, 2014).
struct Stream(u64);

impl Stream {
    fn of(draw: u64, place: u64) -> Self {
        let mut start = Self(SEED ^ draw.wrapping_mul(0xD1B5_4A32_D192_ED03));
        let mixed = start.next() ^ place.wrapping_mul(0xABC9_8388_FB8F_AC03);
        Self(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(all.len()).ok().filter(|count| *count > 0)?;
        all.get(usize::try_from(self.next() % count).ok()?)
    }
}
