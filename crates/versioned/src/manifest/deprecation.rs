//! When something deprecated may be removed: the rule of the releases, in one place.
//!
//! It stays for at least three months and across the end of a cycle, so nothing is both deprecated and
//! removed between two named releases (the tag `assert:follows-standard-deprecation` of `OpenStack`, which
//! Ironic follows). A column stays one named release longer than its field: services of that release still
//! run on the newer schema, and earlier ones select the column.

use std::fmt;

use jiff::civil::Date;
use jiff::{Span, ToSpan as _};

use super::{Manifest, Place};

/// How long something stays after it was deprecated.
fn at_least() -> Span {
    3.months()
}

/// Why it may not go yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TooEarly {
    /// Nobody said that it would go.
    NotDeprecated,
    /// There is no manifest in which somebody could have said so.
    Undeclared,
    /// Three months are not over on the day of the release.
    Months {
        /// The first day on which it may go.
        not_before: Date,
    },
    /// No named release lies between the deprecation and this one.
    Cycle {
        /// Where it was deprecated.
        deprecated: String,
    },
    /// Objects still have it in every release before this one.
    StillUsed,
    /// No named release without it lies between its removal from the objects and this one.
    OneMoreRelease {
        /// Where it left the objects.
        removed: String,
    },
    /// The day of one of the two is not known.
    NoDate,
}

impl fmt::Display for TooEarly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDeprecated => write!(f, "it was never deprecated"),
            Self::Undeclared => write!(f, "there is no manifest that deprecates it"),
            Self::Months { not_before } => write!(f, "three months are not over before {not_before}"),
            Self::Cycle { deprecated } => write!(
                f,
                "no named release has come since it was deprecated in {deprecated}"
            ),
            Self::StillUsed => write!(f, "objects still have it"),
            Self::OneMoreRelease { removed } => {
                write!(
                    f,
                    "it left the objects in {removed}, and one more named release has to be without it"
                )
            }
            Self::NoDate => write!(
                f,
                "it is not known when that is, so three months cannot be counted"
            ),
        }
    }
}

/// Whether what was deprecated at `deprecated`, announced on `announced`, may be gone from the objects of `at`, made on
/// `day`.
pub fn may_leave_objects(
    manifest: &Manifest,
    deprecated: Place,
    announced: Option<Date>,
    at: Place,
    day: Option<Date>,
) -> Result<(), TooEarly> {
    if !cycle_ended_in(manifest, deprecated, at) {
        return Err(TooEarly::Cycle {
            deprecated: manifest.label(deprecated),
        });
    }
    let (Some(announced), Some(day)) = (announced, day) else {
        return Err(TooEarly::NoDate);
    };
    let not_before = announced.checked_add(at_least()).map_err(|_| TooEarly::NoDate)?;
    if day < not_before {
        return Err(TooEarly::Months { not_before });
    }
    Ok(())
}

/// Whether a column that left the objects at `removed` may be dropped by a migration of `at`.
pub fn may_leave_schema(manifest: &Manifest, removed: Option<Place>, at: Place) -> Result<(), TooEarly> {
    match removed {
        None => Err(TooEarly::StillUsed),
        Some(removed) if removed > at => Err(TooEarly::StillUsed),
        Some(removed) if !cycle_ended_in(manifest, removed, at) => Err(TooEarly::OneMoreRelease {
            removed: manifest.label(removed),
        }),
        Some(_) => Ok(()),
    }
}

/// Whether a cycle ended at `from` or later, and before `to`.
fn cycle_ended_in(manifest: &Manifest, from: Place, to: Place) -> bool {
    manifest
        .places()
        .any(|place| from <= place && place < to && manifest.is_named(place))
}
