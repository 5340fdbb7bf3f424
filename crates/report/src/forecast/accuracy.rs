//! The accuracy of past forecasts.

use jiff::SignedDuration;

use super::resample::from_runs;
use super::samples::EarlierRun;

/// How far forecasts of earlier runs were off, of those that came to their target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// How many runs there are.
    pub runs: usize,
    /// The median of how far the plans themselves were off, in hundredths of what the run took; `None`: there is no run.
    pub planned: Option<f64>,
    /// The same of what was learned of the runs before each; `None`: of none anything was learned.
    pub learned: Option<f64>,
    /// Of how many runs there was something learned before.
    pub told: usize,
    /// How many of these took no longer than nine of ten draws.
    pub under_90: usize,
}

/// The error of forecasts for these runs, in any order; each is forecast from the runs that began before it.
pub fn accuracy(earlier: &[EarlierRun]) -> Accuracy {
    let mut runs: Vec<EarlierRun> = earlier.to_vec();
    runs.sort_by(|a, b| (a.began, &a.run).cmp(&(b.began, &b.run)));
    let mut planned = Vec::new();
    let mut told = Vec::new();
    let mut under_90 = 0;
    for (place, run) in runs.iter().enumerate() {
        let Some(took) = run.took.filter(SignedDuration::is_positive) else {
            continue;
        };
        planned.push(relative_error(run.plan.planned(), took));
        if let Some(learned) = from_runs(&runs[..place], &run.plan) {
            told.push(relative_error(learned.median(), took));
            under_90 += usize::from(took <= learned.ninety());
        }
    }
    Accuracy {
        runs: planned.len(),
        told: told.len(),
        under_90,
        planned: median(planned),
        learned: median(told),
    }
}

/// In hundredths of what it took, whichever way.
fn relative_error(expected: SignedDuration, took: SignedDuration) -> f64 {
    (expected.as_secs_f64() - took.as_secs_f64()).abs() / took.as_secs_f64() * 100.0
}

/// The middle one, or the mean of the two in the middle.
fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let middle = of.len() / 2;
    let upper = *of.get(middle)?;
    if of.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*of.get(middle.checked_sub(1)?)?, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }
}
