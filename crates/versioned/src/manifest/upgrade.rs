//! Which release may follow which.
//!
//! Services of both releases run side by side during a rolling upgrade, so the newer must know everything that the older
//! writes, and must still have everything that the older needs. Nothing is both deprecated and removed within one cycle: so
//! an upgrade reaches as far as the next named release.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::{Manifest, Named, Place};

/// An upgrade that is permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permitted {
    /// What kind of step it is.
    pub step: Step,
    /// The patch that should be installed before, if a newer one of the present release is known.
    pub patch_first: Option<String>,
}

/// Why an upgrade is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is the same release.
    Nothing,
    /// Another patch of the same release.
    Patch,
    /// On the way to the next named release, or to it.
    Next,
    /// From the newest named release, or from one after it, to code that is not released.
    Unreleased,
    /// A longer way that the manifest permits.
    Jump,
}

/// An upgrade that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// From this release.
    pub from: String,
    /// To this one.
    pub to: String,
    /// Why not.
    pub why: Why,
    /// Where to go first, if there is a way at all.
    pub first: Option<String>,
}

/// Why an upgrade is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Data and schema do not go back.
    Backwards,
    /// It would pass over a named release, which holds nothing any more of what is needed.
    TooFar,
    /// The manifest asks for a stop in between; this is its reason.
    Stop(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, why, first } = self;
        write!(f, "{from} cannot be upgraded to {to} while services run: ")?;
        match why {
            Why::Backwards => write!(f, "{to} is older, and data is not converted back")?,
            Why::TooFar => write!(f, "named releases lie between")?,
            Why::Stop(why) => write!(f, "{why}")?,
        }
        match first {
            Some(first) => write!(f, "; first to {first}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

impl Manifest {
    /// Whether services of `from` may be upgraded to `to` one after the other.
    pub fn upgrade(&self, from: Named, to: Named) -> Result<Permitted, Refused> {
        match self.step(from, to) {
            Ok(step) => Ok(Permitted {
                step,
                patch_first: self.patch_first(from, to),
            }),
            Err(why) => Err(Refused {
                from: self.release_text(from),
                to: self.release_text(to),
                first: self.first_on_the_way(from.place, to.place),
                why,
            }),
        }
    }

    fn step(&self, from: Named, to: Named) -> Result<Step, Why> {
        if from.place == to.place {
            return match (from.patch, to.patch) {
                (Some(from), Some(to)) if to < from => Err(Why::Backwards),
                (from, to) if from == to => Ok(Step::Nothing),
                _ => Ok(Step::Patch),
            };
        }
        self.step_between(from.place, to.place)
    }

    /// From one release to another.
    fn step_between(&self, from: Place, to: Place) -> Result<Step, Why> {
        if to < from {
            return Err(Why::Backwards);
        }
        let stop = self
            .stops
            .iter()
            .find(|stop| (stop.from..=stop.until).contains(&from) && to > stop.first);
        if let Some(stop) = stop {
            return Err(Why::Stop(stop.why.clone()));
        }
        let passed_over = self
            .places()
            .any(|place| from < place && place < to && self.is_named(place));
        match (passed_over, self.line(to).number) {
            (false, Some(_)) => Ok(Step::Next),
            (false, None) => Ok(Step::Unreleased),
            (true, _) if self.jumps.contains(&(from, to)) => Ok(Step::Jump),
            (true, _) => Err(Why::TooFar),
        }
    }

    /// The first step of the shortest way; among equally short ones, that with the longest first step.
    fn first_on_the_way(&self, from: Place, to: Place) -> Option<String> {
        // Each release that can be reached, with the first step towards it.
        let mut firsts: BTreeMap<Place, Place> = BTreeMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            if let Some(first) = firsts.get(&to) {
                return (*first != to).then(|| self.label(*first));
            }
            // Farthest first, so that the first way found is the one with the longest first step.
            for next in self.places().rev().filter(|next| *next > at) {
                if !firsts.contains_key(&next) && self.step_between(at, next).is_ok() {
                    let first = firsts.get(&at).copied().unwrap_or(next);
                    firsts.insert(next, first);
                    open.push_back(next);
                }
            }
        }
        None
    }

    fn patch_first(&self, from: Named, to: Named) -> Option<String> {
        let line = self.line(from.place);
        let newest = line.newest_patch?;
        let older = from.patch.is_some_and(|patch| patch < newest);
        (older && from.place != to.place).then(|| {
            format!(
                "{}.{newest}",
                line.number.map(|n| n.to_string()).unwrap_or_default()
            )
        })
    }

    fn release_text(&self, named: Named) -> String {
        let line = self.line(named.place);
        match (line.number, named.patch) {
            (Some(number), Some(patch)) => format!("{number}.{patch}"),
            (Some(_), None) | (None, _) => line.label(),
        }
    }
}
