//! `--improve 10s`: a search for that time, converted into steps. The plan records the steps, so that it can
//! be made again anywhere.

use std::time::{Duration, Instant};

use stagger_core::plan::{Plan, PlanningInput, plan, plan_until};

use crate::error::CliError;

/// The time that was given.
pub(crate) fn time(given: Option<&str>) -> Result<Option<Duration>, CliError> {
    let Some(text) = given else { return Ok(None) };
    let time: Option<jiff::SignedDuration> = text.parse().ok();
    let time = time.and_then(|time| Duration::try_from(time).ok());
    time.map(Some)
        .ok_or_else(|| CliError::usage(format!("--improve {text:?} is not a time")).hint("write 10s or 2m"))
}

/// The plan that is found in that time, everything counted. Its steps are those that were made.
pub(crate) fn plan_within(ask: &PlanningInput<'_>, time: Duration) -> Plan {
    let begun = Instant::now();
    if time.is_zero() {
        return with_steps(ask, 0);
    }
    let Some(first) = plan_until(ask, &mut || true) else {
        return search_within(begun, time, |steps| with_steps(ask, steps));
    };
    if first.waves() <= first.at_least() as usize {
        // There is nothing to search for.
        return first;
    }
    plan_until(ask, &mut || begun.elapsed() >= time).unwrap_or(first)
}

fn with_steps(ask: &PlanningInput<'_>, steps: u64) -> Plan {
    let mut policy = ask.policy.clone();
    policy.search.steps = steps;
    plan(&PlanningInput {
        policy: &policy,
        ..*ask
    })
}

/// Steps that are tried first.
const TRIED: u64 = 500;
/// More than any search makes.
const ENDLESS: u64 = 1 << 40;

/// What is found in that time where only a number of steps can be given: searches of more and more steps, until one
/// has taken long enough to tell how many fit into the time that is left.
pub(crate) fn search_within<T>(begun: Instant, time: Duration, mut search: impl FnMut(u64) -> T) -> T {
    let from = Instant::now();
    let mut found = search(0);
    let construction = from.elapsed();
    let mut steps = TRIED;
    while begun.elapsed() + construction < time && steps < ENDLESS {
        let from = Instant::now();
        found = search(steps);
        let searched = from
            .elapsed()
            .saturating_sub(construction)
            .max(Duration::from_nanos(1));
        let left = time.saturating_sub(begun.elapsed() + construction);
        let fit = left.as_nanos() * u128::from(steps) / searched.as_nanos();
        let fit = u64::try_from(fit).unwrap_or(ENDLESS);
        if fit <= steps {
            break;
        }
        if searched > time / 8 || fit <= steps * 6 {
            found = search(fit);
            break;
        }
        steps *= 6;
    }
    found
}
