//! How long a plan will take, learned from the journals of earlier runs of the same cluster.
//!
//! [`EarlierRun`] holds what one journal tells: of each kind how long a visit took, what its waves took beside their longest visit
//! (preparing, judges, gates), how long steps took, and what passed between. [`from_runs`] combines these over the waves of a plan by
//! resampling: in each of [`DRAWS`] draws one earlier run is chosen, and each wave takes the longest of as many visits of that run as
//! it has units, and the rest of one of its waves. So what makes a whole run slow or fast stays together: a hierarchical bootstrap
//! (A. C. Davison, D. V. Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8). What is resampled is a whole visit,
//! since its phases depend on each other; [`phases`] tells of them one by one.
//!
//! What a policy asks for, as the soak of a canary, is known and not resampled. Draws come from a fixed seed: the same journals and
//! plan give the same forecast.

mod accuracy;
mod resample;
mod samples;

pub use accuracy::{Accuracy, accuracy};
pub use resample::{DRAWS, RunForecast, from_runs};
pub use samples::{EarlierRun, PartShape, PlanShape, Samples};

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stagger_core::model::Kind;

use samples::SamplePhase;

/// The forecasts beside a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecasts {
    /// How long earlier runs said that its first plan takes; `None`: nothing was known of these.
    pub learned: Option<RunForecast>,
    /// How long it took without what it was held for between waves; `None`: it has not come to its target.
    pub took: Option<SignedDuration>,
    /// How far forecasts of earlier runs were off.
    pub accuracy: Accuracy,
    /// How long phases took, in it and in earlier runs.
    pub phases: Vec<PhaseTimes>,
}

impl Forecasts {
    /// Beside that run, by earlier ones of its cluster.
    pub fn of(run: &EarlierRun, earlier: &[EarlierRun]) -> Self {
        let all: Vec<EarlierRun> = earlier.iter().chain([run]).cloned().collect();
        Self {
            learned: from_runs(earlier, &run.plan),
            took: run.took,
            accuracy: accuracy(earlier),
            phases: phases(&all),
        }
    }
}

/// How long a phase of a kind's visits took in earlier runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Which kind.
    pub kind: Kind,
    /// Which phase: `prepare`, `enter`, `change`, `leave`, or `gates`, from the last unit's return until a wave passed.
    pub phase: &'static str,
    /// How often it was seen.
    pub seen: usize,
    /// Half of them took no longer.
    pub median: SignedDuration,
    /// Nine of ten took no longer.
    pub ninety: SignedDuration,
}

/// Each phase of each kind, in the order in which they come.
pub fn phases(earlier: &[EarlierRun]) -> Vec<PhaseTimes> {
    let mut all: BTreeMap<(&Kind, SamplePhase), Vec<i64>> = BTreeMap::new();
    for run in earlier {
        for ((kind, phase), took) in &run.phases {
            all.entry((kind, *phase)).or_default().extend(took);
        }
    }
    all.into_iter()
        .map(|((kind, phase), mut took)| {
            took.sort_unstable();
            PhaseTimes {
                kind: kind.clone(),
                phase: phase.as_str(),
                seen: took.len(),
                median: SignedDuration::from_millis(quantile(&took, 50)),
                ninety: SignedDuration::from_millis(quantile(&took, 90)),
            }
        })
        .collect()
}

/// The smallest of these, sorted, that so many of a hundred do not exceed: the nearest rank. 0 of none.
fn quantile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let ten: Vec<i64> = (1..=10).collect();
        assert_eq!((quantile(&ten, 50), quantile(&ten, 90)), (5, 9));
        assert_eq!((quantile(&[7], 50), quantile(&[7], 90)), (7, 7));
        assert_eq!(quantile(&[1, 2], 90), 2);
        assert_eq!(quantile(&[], 50), 0);
    }
}
