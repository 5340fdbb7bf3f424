//! Rehearses an upgrade on the copy of a real cluster: once undisturbed, then again and again with one
//! more OSD failing for good on the way.
//!
//! Each run has a runtime of its own on one thread, so that the same input gives the same bytes however
//! many of them go on side by side.

mod run;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stagger_core::model::{Policy, Target, UnitId};

pub use run::{RehearsalRun, RehearseError};

use crate::copy::ClusterCopy;
use crate::rng::Rng;
use crate::scenario::{FaultWindow, InjectedFault};
use run::RehearsalRunner;

/// What is rehearsed.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// The cluster.
    pub copy: Arc<ClusterCopy>,
    /// What is wanted of it.
    pub target: Target,
    /// How boldly. One-way doors must be passed by themselves.
    pub policy: Policy,
    /// Seed of what fails when, and of the small differences in how long things take.
    pub seed: u64,
    /// How many runs with one more failure.
    pub runs: u32,
    /// A folder for what is gathered when something goes wrong.
    pub scratch: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsalReport {
    /// The run with which nothing interferes.
    pub undisturbed: RehearsalRun,
    /// Those with one more failure. None, if the first passed no wave: then nothing can be told.
    pub disturbed: Vec<FailureRun>,
}

/// A run in which one more OSD failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRun {
    /// Which.
    pub osd: UnitId,
    /// How many seconds after the beginning.
    pub at: u32,
    /// What came of it.
    pub course: RehearsalRun,
}

/// Carries the upgrade out on the copy, undisturbed and then with failures.
///
/// # Errors
/// A name is not valid, a run cannot be started or driven, or no thread can be.
pub fn rehearse(what: &Rehearsal) -> Result<RehearsalReport, RehearseError> {
    let courses = RehearsalRunner::new(what);
    let undisturbed = courses.run(0, Vec::new())?;
    let failures = failures(what, &undisturbed);
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<FailureRun, RehearseError>)>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(failures.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((osd, at)) = failures.get(number).cloned() else {
                        break;
                    };
                    let fault = InjectedFault::Outage {
                        what: osd.to_string(),
                        when: FaultWindow {
                            at,
                            ..FaultWindow::default()
                        },
                    };
                    let course = courses.run(number + 1, vec![fault]);
                    let disturbed = course.map(|course| FailureRun { osd, at, course });
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((number, disturbed));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    let disturbed = found.into_iter().map(|(_, found)| found);
    Ok(RehearsalReport {
        undisturbed,
        disturbed: disturbed.collect::<Result<_, _>>()?,
    })
}

/// Which OSD fails in each run, and when: drawn over all that serve, and over the length of the first run.
fn failures(what: &Rehearsal, undisturbed: &RehearsalRun) -> Vec<(UnitId, u32)> {
    let osds: Vec<&UnitId> = what.copy.osds().map(|osd| &osd.id).collect();
    let seconds = u64::try_from(undisturbed.took.as_secs()).unwrap_or(0);
    if osds.is_empty() || undisturbed.waves == 0 || seconds == 0 {
        return Vec::new();
    }
    let mut rng = Rng::new(what.seed);
    (0..what.runs)
        .map(|_| {
            let osd = (*rng.pick(&osds)).clone();
            (osd, u32::try_from(rng.below(seconds)).unwrap_or(u32::MAX))
        })
        .collect()
}
