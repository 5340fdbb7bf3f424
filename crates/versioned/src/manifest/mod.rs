//! The manifest: which versions belong to which release, and which release may upgrade to which.
//!
//! It is written by hand when a release is made, as data ([`Declared`], in TOML or JSON), and checked when it
//! is read ([`Manifest::new`]), so that a program can rely on it. [`check`] reports every fault, [`upgrade`]
//! answers whether one release may follow another.

mod check;
pub mod deprecation;
mod number;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

pub use check::{Fault, Faults};
pub use number::{Number, NumberError};
pub use upgrade::{Permitted, Refused, Step, Why};

use crate::Version;

/// The manifest as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Declared {
    /// The release that this code is: a number, a name, or `unreleased`.
    pub current: String,
    /// All releases, oldest first.
    #[serde(rename = "release", default)]
    pub releases: Vec<Release>,
    /// What the code is that no release has yet. It comes after all releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreleased: Option<Unreleased>,
    /// What is on its way out.
    #[serde(rename = "deprecated", default, skip_serializing_if = "Vec::is_empty")]
    pub deprecations: Vec<Deprecation>,
    /// Pairs farther apart than one named release that are tested and permitted all the same.
    #[serde(rename = "jump", default, skip_serializing_if = "Vec::is_empty")]
    pub jumps: Vec<Jump>,
    /// Releases that must not be passed over.
    #[serde(rename = "stop", default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<Stop>,
}

/// One release and the versions that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Release {
    /// Its number. A patch of it has the same versions.
    pub number: Number,
    /// Its names, if it is a named release: the end of a cycle. The first is the one that is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// When it was made.
    pub date: Date,
    /// The newest patch of it that is known; earlier ones should be patched before they are upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_patch: Option<u32>,
    /// The highest version of the API that it offers.
    pub api: Version,
    /// The highest version of the RPC between its services.
    pub rpc: Version,
    /// The versions that each object may have in it.
    pub objects: BTreeMap<String, Versions>,
}

/// Code that is not released yet, and the versions that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Unreleased {
    /// Other names of it, as `master`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The highest version of the API.
    pub api: Version,
    /// The highest version of the RPC between services.
    pub rpc: Version,
    /// The versions that each object may have.
    pub objects: BTreeMap<String, Versions>,
}

/// The versions that may exist of one object in one release: one, or several where code between two releases was run too.
/// Their order makes no difference; the highest is the one that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
pub struct Versions(BTreeSet<Version>);

impl Versions {
    /// The highest; `None` only in a manifest that was not checked.
    pub fn highest(&self) -> Option<Version> {
        self.0.last().copied()
    }

    /// All, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Version> + '_ {
        self.0.iter().copied()
    }

    /// Whether it is among them.
    pub fn contains(&self, version: Version) -> bool {
        self.0.contains(&version)
    }
}

impl From<Version> for Versions {
    fn from(version: Version) -> Self {
        Self(BTreeSet::from([version]))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Version),
    Many(BTreeSet<Version>),
}

impl From<OneOrMany> for Versions {
    fn from(written: OneOrMany) -> Self {
        match written {
            OneOrMany::One(version) => version.into(),
            OneOrMany::Many(versions) => Self(versions),
        }
    }
}

impl From<Versions> for OneOrMany {
    fn from(versions: Versions) -> Self {
        match (versions.0.first(), versions.0.len()) {
            (Some(version), 1) => Self::One(*version),
            _ => Self::Many(versions.0),
        }
    }
}

/// A field, or a whole object, that is on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Deprecation {
    /// The object.
    pub object: String,
    /// The field; absent where the whole object goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The table that stores it; the object's name where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The column that stores it; the field's name where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The first release that calls it deprecated.
    pub release: String,
    /// When that was announced; the date of the release where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<Date>,
    /// The first release whose objects have it no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
}

/// A pair of releases that may follow each other although others lie between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Jump {
    /// From this release.
    pub from: String,
    /// To this one.
    pub to: String,
}

/// A release that some others must go through before they go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stop {
    /// The first release that has to stop.
    pub from: String,
    /// The last release that has to stop; only `from` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Where they go first.
    pub first: String,
    /// Why, for the one who is refused.
    pub why: String,
}

/// A manifest without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    lines: Vec<Line>,
    current: Place,
    deprecations: Vec<Deprecation>,
    jumps: Vec<(Place, Place)>,
    stops: Vec<CheckedStop>,
}

/// Releases and unreleased code alike, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Absent for unreleased code.
    number: Option<Number>,
    names: Vec<String>,
    date: Option<Date>,
    newest_patch: Option<u32>,
    api: Version,
    rpc: Version,
    objects: BTreeMap<String, Versions>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckedStop {
    from: Place,
    until: Place,
    first: Place,
    why: String,
}

/// The place of a release in its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(usize);

/// A release as somebody named it: which line of the manifest, and which patch of it if that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The line of the manifest.
    pub place: Place,
    /// The patch, if the text had one.
    pub patch: Option<u32>,
}

/// A release that the manifest does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRelease {
    /// What was asked for.
    pub asked: String,
    /// What resembles it most, if anything does.
    pub nearest: Option<String>,
    /// All that can be asked for, oldest release first.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            nearest,
            known,
        } = self;
        write!(f, "there is no release {asked:?}")?;
        if let Some(nearest) = nearest {
            write!(f, "; the nearest is {nearest}")?;
        }
        write!(f, "; known are: {}", known.join(", "))
    }
}

impl std::error::Error for UnknownRelease {}

/// What unreleased code is called.
const UNRELEASED: &str = "unreleased";

impl Line {
    /// The name that is shown.
    fn label(&self) -> String {
        match (self.number, self.names.first()) {
            (Some(_), Some(name)) => name.clone(),
            (Some(number), None) => number.to_string(),
            (None, _) => UNRELEASED.to_owned(),
        }
    }

    /// All that it answers to.
    fn answers(&self) -> impl Iterator<Item = String> + '_ {
        let number = self
            .number
            .map_or_else(|| UNRELEASED.to_owned(), |number| number.to_string());
        self.names.iter().cloned().chain([number])
    }

    /// Whether it ends a cycle.
    fn is_named(&self) -> bool {
        self.number.is_some() && !self.names.is_empty()
    }
}

impl Manifest {
    /// Checks what is written, and says all that is wrong with it at once.
    pub fn new(declared: Declared) -> Result<Self, Faults> {
        check::checked(declared)
    }

    /// The release of a name or a number, also with a patch: `29.0.6` is a patch of 29.0.
    pub fn find(&self, asked: &str) -> Result<Named, UnknownRelease> {
        find(&self.lines, asked).ok_or_else(|| {
            let known = self.names_and_numbers();
            let nearest = crate::nearest(asked, known.iter().map(String::as_str)).map(str::to_owned);
            UnknownRelease {
                asked: asked.to_owned(),
                nearest,
                known,
            }
        })
    }

    /// All names and numbers, oldest release first.
    pub fn names_and_numbers(&self) -> Vec<String> {
        self.lines.iter().flat_map(Line::answers).collect()
    }

    /// The release that this code is.
    pub fn current(&self) -> Place {
        self.current
    }

    /// All releases, oldest first, then unreleased code if there is any.
    pub fn places(&self) -> impl DoubleEndedIterator<Item = Place> + '_ {
        (0..self.lines.len()).map(Place)
    }

    /// Its first name, or its number, or `unreleased`.
    pub fn label(&self, place: Place) -> String {
        self.line(place).label()
    }

    /// Whether it has a name, which is the end of a cycle.
    pub fn is_named(&self, place: Place) -> bool {
        self.line(place).is_named()
    }

    /// When it was made; unreleased code was not.
    pub fn date(&self, place: Place) -> Option<Date> {
        self.line(place).date
    }

    /// The highest version of its API.
    pub fn api(&self, place: Place) -> Version {
        self.line(place).api
    }

    /// The highest version of its RPC.
    pub fn rpc(&self, place: Place) -> Version {
        self.line(place).rpc
    }

    /// Its objects with all their versions.
    pub fn objects(&self, place: Place) -> &BTreeMap<String, Versions> {
        &self.line(place).objects
    }

    /// The version in which it writes an object; `None` if it has no such object.
    pub fn writes(&self, place: Place, object: &str) -> Option<Version> {
        self.line(place).objects.get(object)?.highest()
    }

    /// The first release that may hold this version of the object.
    pub fn first_release_with(&self, object: &str, version: Version) -> Option<Place> {
        self.places().find(|place| {
            let versions = self.line(*place).objects.get(object);
            versions
                .and_then(Versions::highest)
                .is_some_and(|highest| highest >= version)
        })
    }

    /// What is on its way out, in the order in which it was written.
    pub fn deprecations(&self) -> &[Deprecation] {
        &self.deprecations
    }

    fn line(&self, place: Place) -> &Line {
        &self.lines[place.0]
    }
}

fn find(lines: &[Line], asked: &str) -> Option<Named> {
    let exact = lines
        .iter()
        .position(|line| line.answers().any(|answer| answer == asked));
    if let Some(at) = exact {
        return Some(Named {
            place: Place(at),
            patch: None,
        });
    }
    let (number, patch) = Number::with_patch(asked)?;
    let at = lines.iter().position(|line| line.number == Some(number))?;
    Some(Named {
        place: Place(at),
        patch,
    })
}
