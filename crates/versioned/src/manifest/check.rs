//! Faults of a manifest. All are found at once, each with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::deprecation::{TooEarly, may_leave_objects};
use super::{CheckedStop, Declared, Deprecation, Line, Manifest, Place, Stop, find};
use crate::Version;

/// One thing that is wrong with a manifest, or between a manifest and the code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no release in it.
    #[error("there is no release in it")]
    Empty,
    /// Two lines answer to one name.
    #[error("{name:?} names two releases")]
    SameName {
        /// The name.
        name: String,
    },
    /// A name that reads like a number would hide a release.
    #[error("{name:?} cannot be a name: it reads like the number of a release")]
    NameIsNumber {
        /// The name.
        name: String,
    },
    /// A release with a lower number, or an earlier day, than the one before.
    #[error("{release} stands after {before}, but its {what} is not later")]
    Order {
        /// The release.
        release: String,
        /// The one before it.
        before: String,
        /// `number` or `date`.
        what: &'static str,
    },
    /// A version that is lower than in the release before.
    #[error("{what} is {to} in {release} and was {from} before: versions only grow")]
    FellBack {
        /// The API, the RPC or an object.
        what: String,
        /// The release.
        release: String,
        /// The version before.
        from: Version,
        /// The version in it.
        to: Version,
    },
    /// Two majors of one object cannot run side by side.
    #[error("{object} changes its major, {from} to {to} in {release}: no service reads both")]
    Major {
        /// The object.
        object: String,
        /// The release.
        release: String,
        /// The version before.
        from: Version,
        /// The version in it.
        to: Version,
    },
    /// An object without a version.
    #[error("{object} has no version in {release}")]
    NoVersion {
        /// The object.
        object: String,
        /// The release.
        release: String,
    },
    /// A version between the lowest and the highest that no release has.
    #[error("{object} {version} stands in no release, though lower and higher ones do")]
    Gap {
        /// The object.
        object: String,
        /// The missing version.
        version: Version,
    },
    /// An object that was there before and is not any more, without having been deprecated.
    #[error(
        "{object} is missing in {release}, and it was not deprecated: list it, or deprecate it with the release that removes it"
    )]
    Missing {
        /// The object.
        object: String,
        /// The release.
        release: String,
    },
    /// `current`, a jump, a stop or a deprecation names what is not there.
    #[error("{where_} names {name:?}, and there is no such {what}")]
    Unknown {
        /// Which part of the manifest.
        where_: String,
        /// The name.
        name: String,
        /// `release` or `object`.
        what: &'static str,
    },
    /// `current` is not the newest.
    #[error("the current release is {current}, but {newest} is newer: code cannot know what comes after it")]
    NotNewest {
        /// What `current` says.
        current: String,
        /// The last line.
        newest: String,
    },
    /// A jump or a stop that does not lead forward.
    #[error("{where_} does not lead forward: {from} to {to}")]
    NotForward {
        /// Which part of the manifest.
        where_: String,
        /// From this release.
        from: String,
        /// To this one.
        to: String,
    },
    /// A field left the objects before its time.
    #[error("{what} may not be gone in {release}: {why}")]
    RemovedTooEarly {
        /// The object, with the field if it is one.
        what: String,
        /// The release.
        release: String,
        /// Why not yet.
        why: TooEarly,
    },
    /// The code has an object that the current release does not list.
    #[error("the code has {object}, and {release}, the current release, does not list it")]
    NotListed {
        /// The object.
        object: String,
        /// The current release.
        release: String,
    },
    /// The manifest has an object, or a version of one, that the code cannot convert.
    #[error("{release} lists {object} {version}, and the code has no such version")]
    NoCode {
        /// The object.
        object: String,
        /// The version.
        version: Version,
        /// The release.
        release: String,
    },
    /// The newest version in the code is not that of the current release.
    #[error("the newest {object} in the code is {code}, and {release}, the current release, lists {listed}")]
    NewestDiffers {
        /// The object.
        object: String,
        /// The newest version in the code.
        code: Version,
        /// The highest version in the current release.
        listed: Version,
        /// The current release.
        release: String,
    },
    /// An object carries a version of another that its release does not have: whoever receives it could not read it.
    #[error("{object} {version} of {release} carries {child} {carried}, which {release} does not list")]
    Child {
        /// The object.
        object: String,
        /// Its version.
        version: Version,
        /// The object inside it.
        child: String,
        /// The version that it has inside.
        carried: Version,
        /// The release.
        release: String,
    },
}

/// All that is wrong, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the manifest of releases is wrong:")?;
        for fault in &self.0 {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

pub(super) fn checked(declared: Declared) -> Result<Manifest, Faults> {
    let Declared {
        current,
        releases,
        unreleased,
        deprecations,
        jumps,
        stops,
    } = declared;
    let mut lines: Vec<Line> = Vec::new();
    for release in releases {
        lines.push(Line {
            number: Some(release.number),
            names: release.names,
            date: Some(release.date),
            newest_patch: release.newest_patch,
            api: release.api,
            rpc: release.rpc,
            objects: release.objects,
        });
    }
    if let Some(unreleased) = unreleased {
        lines.push(Line {
            number: None,
            names: unreleased.names,
            date: None,
            newest_patch: None,
            api: unreleased.api,
            rpc: unreleased.rpc,
            objects: unreleased.objects,
        });
    }
    let mut faults = Vec::new();
    if lines.is_empty() {
        return Err(Faults(vec![Fault::Empty]));
    }
    names(&lines, &mut faults);
    order(&lines, &mut faults);
    gaps(&lines, &mut faults);
    missing(&lines, &deprecations, &mut faults);
    let current = current_of(&lines, &current, &mut faults);
    let mut pairs = Vec::new();
    for jump in &jumps {
        let from = place(&lines, "a jump", &jump.from, &mut faults);
        let to = place(&lines, "a jump", &jump.to, &mut faults);
        if let (Some(from), Some(to)) = (from, to) {
            forward(&lines, "a jump", from, to, &mut faults);
            pairs.push((from, to));
        }
    }
    let stops = stops_of(&lines, stops, &mut faults);
    check_deprecations_known(&lines, &deprecations, &mut faults);
    let Some(current) = current.filter(|_| faults.is_empty()) else {
        return Err(Faults(faults));
    };
    let manifest = Manifest {
        lines,
        current,
        deprecations,
        jumps: pairs,
        stops,
    };
    check_removals(&manifest, &mut faults);
    if faults.is_empty() {
        Ok(manifest)
    } else {
        Err(Faults(faults))
    }
}

fn current_of(lines: &[Line], name: &str, faults: &mut Vec<Fault>) -> Option<Place> {
    let current = place(lines, "current", name, faults)?;
    if let Some(newest) = lines.last().filter(|_| current.0 + 1 != lines.len()) {
        faults.push(Fault::NotNewest {
            current: lines[current.0].label(),
            newest: newest.label(),
        });
    }
    Some(current)
}

fn stops_of(lines: &[Line], stops: Vec<Stop>, faults: &mut Vec<Fault>) -> Vec<CheckedStop> {
    let mut checked = Vec::new();
    for stop in stops {
        let from = place(lines, "a stop", &stop.from, faults);
        let until = place(lines, "a stop", stop.until.as_ref().unwrap_or(&stop.from), faults);
        let first = place(lines, "a stop", &stop.first, faults);
        if let (Some(from), Some(until), Some(first)) = (from, until, first) {
            if until < from {
                forward(lines, "a stop", from, until, faults);
            }
            forward(lines, "a stop", until, first, faults);
            checked.push(CheckedStop {
                from,
                until,
                first,
                why: stop.why,
            });
        }
    }
    checked
}

fn check_deprecations_known(lines: &[Line], deprecations: &[Deprecation], faults: &mut Vec<Fault>) {
    let objects: BTreeSet<&String> = lines.iter().flat_map(|line| line.objects.keys()).collect();
    for deprecation in deprecations {
        place(lines, "a deprecation", &deprecation.release, faults);
        if let Some(removed) = &deprecation.removed {
            place(lines, "a deprecation", removed, faults);
        }
        if !objects.contains(&deprecation.object) {
            faults.push(Fault::Unknown {
                where_: "a deprecation".to_owned(),
                name: deprecation.object.clone(),
                what: "object",
            });
        }
    }
}

fn names(lines: &[Line], faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    for name in lines.iter().flat_map(Line::answers) {
        if seen.contains(&name) {
            faults.push(Fault::SameName { name });
        } else {
            seen.insert(name);
        }
    }
    for line in lines {
        for name in &line.names {
            // 2025.1 is a usual name, and no release has that number.
            let hides = super::Number::with_patch(name).is_some_and(|(number, patch)| {
                patch.is_some() || lines.iter().any(|line| line.number == Some(number))
            });
            if hides {
                faults.push(Fault::NameIsNumber { name: name.clone() });
            }
        }
    }
}

fn order(lines: &[Line], faults: &mut Vec<Fault>) {
    for pair in lines.windows(2) {
        let [before, line] = pair else { continue };
        let release = line.label();
        let mut wrong = |what| {
            faults.push(Fault::Order {
                release: release.clone(),
                before: before.label(),
                what,
            });
        };
        if line.number.is_some() && line.number <= before.number {
            wrong("number");
        }
        if line.date.is_some() && line.date < before.date {
            wrong("date");
        }
        let mut fell = |what: &str, from: Version, to: Version| {
            if to < from {
                faults.push(Fault::FellBack {
                    what: what.to_owned(),
                    release: release.clone(),
                    from,
                    to,
                });
            }
        };
        fell("the API", before.api, line.api);
        fell("the RPC", before.rpc, line.rpc);
        for (object, versions) in &line.objects {
            let was = before.objects.get(object).and_then(super::Versions::highest);
            if let (Some(from), Some(to)) = (was, versions.highest()) {
                fell(object, from, to);
            }
        }
    }
    let mut last: BTreeMap<&String, Version> = BTreeMap::new();
    for line in lines {
        for (object, versions) in &line.objects {
            if versions.highest().is_none() {
                faults.push(Fault::NoVersion {
                    object: object.clone(),
                    release: line.label(),
                });
            }
            for version in versions.iter() {
                let from = *last.entry(object).or_insert(version);
                if from.major() != version.major() {
                    faults.push(Fault::Major {
                        object: object.clone(),
                        release: line.label(),
                        from,
                        to: version,
                    });
                }
                last.insert(object, version);
            }
        }
    }
}

fn gaps(lines: &[Line], faults: &mut Vec<Fault>) {
    let mut all: BTreeMap<&String, BTreeSet<Version>> = BTreeMap::new();
    for line in lines {
        for (object, versions) in &line.objects {
            all.entry(object).or_default().extend(versions.iter());
        }
    }
    for (object, versions) in all {
        let pairs = versions.iter().zip(versions.iter().skip(1));
        for (low, high) in pairs.filter(|(low, high)| low.major() == high.major()) {
            for minor in low.minor() + 1..high.minor() {
                faults.push(Fault::Gap {
                    object: object.clone(),
                    version: Version::new(low.major(), minor),
                });
            }
        }
    }
}

fn missing(lines: &[Line], deprecations: &[Deprecation], faults: &mut Vec<Fault>) {
    let mut expected: BTreeSet<&String> = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        let gone = |object: &String| {
            deprecations.iter().any(|deprecation| {
                let removed = deprecation.removed.as_deref().and_then(|name| find(lines, name));
                deprecation.object == *object
                    && deprecation.field.is_none()
                    && removed.is_some_and(|removed| removed.place.0 <= at)
            })
        };
        for object in &expected {
            if !line.objects.contains_key(*object) && !gone(object) {
                faults.push(Fault::Missing {
                    object: (*object).clone(),
                    release: line.label(),
                });
            }
        }
        expected.extend(line.objects.keys());
        expected.retain(|object| line.objects.contains_key(*object));
    }
}

fn place(lines: &[Line], where_: &str, name: &str, faults: &mut Vec<Fault>) -> Option<Place> {
    let found = find(lines, name).map(|named| named.place);
    if found.is_none() {
        faults.push(Fault::Unknown {
            where_: where_.to_owned(),
            name: name.to_owned(),
            what: "release",
        });
    }
    found
}

fn forward(lines: &[Line], where_: &str, from: Place, to: Place, faults: &mut Vec<Fault>) {
    if to <= from {
        faults.push(Fault::NotForward {
            where_: where_.to_owned(),
            from: lines[from.0].label(),
            to: lines[to.0].label(),
        });
    }
}

fn check_removals(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for deprecation in &manifest.deprecations {
        let deprecated = find(&manifest.lines, &deprecation.release);
        let removed = deprecation
            .removed
            .as_deref()
            .and_then(|name| find(&manifest.lines, name));
        let (Some(deprecated), Some(removed)) = (deprecated, removed) else {
            continue;
        };
        let announced = deprecation.date.or_else(|| manifest.date(deprecated.place));
        // What is not released yet will be, some day: its day is judged then.
        let day = manifest.date(removed.place).or(Some(jiff::civil::Date::MAX));
        if let Err(why) = may_leave_objects(manifest, deprecated.place, announced, removed.place, day) {
            faults.push(Fault::RemovedTooEarly {
                what: deprecation.what(),
                release: manifest.label(removed.place),
                why,
            });
        }
    }
}

impl Deprecation {
    /// `Node.extra`, or `Node` where the whole object goes.
    pub fn what(&self) -> String {
        match &self.field {
            Some(field) => format!("{}.{field}", self.object),
            None => self.object.clone(),
        }
    }
}
