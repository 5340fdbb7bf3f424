//! The releases of Ironic, and known problems between them.
//!
//! A manifest says which release may follow which, and in which versions each speaks and writes: that of the
//! built-in releases (`releases.toml`), overlaid with what the code of a release says about itself
//! ([`ReleaseCode`]). Ironic itself does not refuse a skipped release: its check knows every version that was
//! ever released.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use stagger_versioned::Version;
use stagger_versioned::manifest::{
    Declared, Faults, Jump, Manifest, Named, Number, Permitted, Place, Refused, Release, UnknownRelease,
};

use crate::facts::IronicFacts;
use crate::release_code::{ListedRelease, ReleaseCode};
use stagger_core::model::Fact;

const TABLE: &str = include_str!("releases.toml");

/// The newest revision of the schema in each release, where it was seen.
const HEADS: [(&str, &str); 4] = [
    ("26.1", "66bd9c5604d5"),
    ("29.0", "21c48150dea9"),
    ("32.0", "3ef27505c9fb"),
    ("35.0", "2a3b4c5d6e7f"),
];

/// The words of `ironic-status upgrade check` of a newer release where it ends with 255 before the schema was upgraded: it selects
/// all columns of the new model, also those that are not there yet. As MariaDB says it, and as PostgreSQL does. Seen from 26.1 to
/// 29.0; it may be so wherever nodes are written in another version.
const CHECK_CRASHES: &[&str] = &["Unknown column", "UndefinedColumn"];

/// The list of traits is sent inside a node, and a pinned conductor brings only the node down to the version of its pin. Seen from
/// 29.0 to 32.0 and to 35.0; it is so wherever the list has got another version.
const SENT_INSIDE_A_NODE: &str = "TraitList";

/// Names of releases that the code of a later one does not list, though it lists their numbers.
const NAMES_NOT_LISTED: [(&str, &str); 2] = [("32.0", "2025.2"), ("32.0", "flamingo")];

/// Which table holds an object. Those that are only sent, or stand in another's table, have none.
const TABLES: [(&str, &str); 16] = [
    ("Allocation", "allocations"),
    ("BIOSSetting", "bios_settings"),
    ("Chassis", "chassis"),
    ("Conductor", "conductors"),
    ("DeployTemplate", "deploy_templates"),
    ("FirmwareComponent", "firmware_information"),
    ("InspectionRule", "inspection_rules"),
    ("Node", "nodes"),
    ("NodeHistory", "node_history"),
    ("NodeInventory", "node_inventory"),
    ("Port", "ports"),
    ("Portgroup", "portgroups"),
    ("Runbook", "runbooks"),
    ("Trait", "node_traits"),
    ("VolumeConnector", "volume_connectors"),
    ("VolumeTarget", "volume_targets"),
];

/// Whether rows of a table say in which version they are written. Each table of Ironic's has a column of that name, and
/// most never fill it: those that hold no object.
pub fn holds_an_object(table: &str) -> bool {
    TABLES.iter().any(|(_, known)| *known == table)
}

/// The first version of the RPC with which a conductor calls itself by its host and port.
const NAMED_BY_PORT: Version = Version::new(1, 58);

/// What a patch counts with a second number that has grown on a stable branch: 29.1.0 comes after each 29.0.x.
const STABLE: u32 = 1_000_000;

/// The table of releases.
#[derive(Debug, Clone)]
pub struct Releases {
    manifest: Manifest,
    /// The code that was asked, and the place of its own release.
    code: Option<(ReleaseCode, Place)>,
}

/// A code of which no table can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnusableCode {
    /// Its own release is not in its list, and neither is what is not released yet.
    NotListed,
    /// Its list contradicts itself.
    Faults(Faults),
}

impl fmt::Display for UnusableCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => f.write_str("it does not list itself"),
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for UnusableCode {}

/// The releases that this program knows.
fn declared() -> Declared {
    let declared: Result<Declared, _> = toml::from_str(TABLE);
    #[expect(clippy::expect_used, reason = "it is compiled in, and read by a test")]
    declared.expect("the table is TOML")
}

impl Releases {
    /// Those that this release of stagger knows.
    pub fn built_in() -> Self {
        #[expect(clippy::expect_used, reason = "it is compiled in, and read by a test")]
        let manifest = Manifest::new(declared()).expect("the table has no faults");
        Self { manifest, code: None }
    }

    /// Those and the ones that this code lists, as it lists them. Nothing older than what stagger knows is taken over: such a release
    /// is not carried to this one.
    ///
    /// # Errors
    /// Its list does not make sense.
    pub fn with(&self, code: &ReleaseCode) -> Result<Self, UnusableCode> {
        let own = code.number().ok_or(UnusableCode::NotListed)?;
        let mut declared = declared();
        let oldest = declared.releases.iter().map(|release| release.number).min();
        let known = std::mem::take(&mut declared.releases).into_iter();
        let mut releases: BTreeMap<Number, Release> =
            known.map(|release| (release.number, release)).collect();
        let own = code.listed_as(own);
        let is_listed = code.releases.iter().any(|listed| listed.number() == Some(own));
        for listed in &code.releases {
            let number = if listed.is_unreleased() && !is_listed {
                Some(own)
            } else {
                listed.number()
            };
            if let Some(number) = number.filter(|number| Some(*number) >= oldest) {
                let release = merge(releases.remove(&number), number, listed);
                releases.insert(number, release);
            }
        }
        if !releases.contains_key(&own) {
            return Err(UnusableCode::NotListed);
        }
        declared.releases = releases.into_values().collect();
        in_order(&mut declared);
        let manifest = Manifest::new(declared).map_err(UnusableCode::Faults)?;
        let place = manifest
            .find(&own.to_string())
            .map_err(|_| UnusableCode::NotListed)?;
        Ok(Self {
            manifest,
            code: Some((code.clone(), place.place)),
        })
    }

    /// Those and the ones that the code lists which these facts have, if they have one.
    pub fn of_facts(&self, facts: &IronicFacts) -> Cow<'_, Self> {
        let code = facts.code.as_ref().and_then(Fact::get);
        let with = code.and_then(|code| self.with(code).ok());
        with.map_or(Cow::Borrowed(self), Cow::Owned)
    }

    /// Whether it is known, with its patch or without.
    pub fn has(&self, release: &str) -> bool {
        self.find(release).is_ok()
    }

    /// The release of a name or a number, with or without a patch: `2024.2`, `26.1`, `26.1.6`.
    ///
    /// `29.1.0` is a patch of 29.0: on a stable branch the second number may grow, and no code lists it.
    ///
    /// # Errors
    /// It is not among the releases that are known.
    pub fn find(&self, asked: &str) -> Result<Named, UnknownRelease> {
        self.manifest
            .find(asked)
            .or_else(|unknown| self.on_a_stable_branch(asked).ok_or(unknown))
    }

    fn on_a_stable_branch(&self, asked: &str) -> Option<Named> {
        let mut parts = asked.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let lower = (0..minor)
            .rev()
            .find_map(|lower| self.manifest.find(&format!("{major}.{lower}")).ok())?;
        Some(Named {
            place: lower.place,
            patch: Some(minor * STABLE + patch),
        })
    }

    /// Whether services of one may be carried to the other while they run.
    ///
    /// # Errors
    /// Why not, and where to go first.
    pub fn upgrade(&self, from: Named, to: Named) -> Result<Permitted, Refused> {
        self.manifest.upgrade(from, to).map_err(|refused| Refused {
            from: self.branch_version(from).unwrap_or(refused.from),
            to: self.branch_version(to).unwrap_or(refused.to),
            ..refused
        })
    }

    /// The version of a stable branch whose second number has grown.
    fn branch_version(&self, named: Named) -> Option<String> {
        let patch = named.patch.filter(|patch| *patch >= STABLE)?;
        let number = self.number(named.place);
        let (major, _) = number.split_once('.')?;
        Some(format!("{major}.{}.{}", patch / STABLE, patch % STABLE))
    }

    /// Its name, `2024.2`.
    pub fn name(&self, release: Place) -> String {
        self.manifest.label(release)
    }

    /// Its number, `26.1`, which every later code lists as a pin.
    pub fn number(&self, release: Place) -> String {
        // The manifest lists the names of a release and then its number.
        let mut known = self.manifest.names_and_numbers();
        known.retain(|text| self.manifest.find(text).is_ok_and(|found| found.place == release));
        known.pop().unwrap_or_else(|| self.name(release))
    }

    /// The named release before that one.
    pub fn before(&self, release: Place) -> Option<Place> {
        let before = self.manifest.places().take_while(|place| *place < release);
        before.filter(|place| self.manifest.is_named(*place)).last()
    }

    /// The highest version of the API that a service of that release offers, held to that pin.
    pub fn api(&self, release: Place, pin: Option<Place>) -> Version {
        self.manifest.api(pin.map_or(release, |pin| pin.min(release)))
    }

    /// The highest version of the RPC that it speaks.
    pub fn rpc(&self, release: Place, pin: Option<Place>) -> Version {
        self.manifest.rpc(pin.map_or(release, |pin| pin.min(release)))
    }

    /// Which table holds which object: those that this program knows, and those of the code.
    fn tables(&self) -> BTreeMap<&str, &str> {
        let of_code = self.code.iter().flat_map(|(code, _)| &code.tables);
        let of_code = of_code.map(|(object, table)| (object.as_str(), table.as_str()));
        of_code.chain(TABLES).collect()
    }

    /// In which version it writes rows of each table.
    pub fn writes(&self, release: Place, pin: Option<Place>) -> BTreeMap<&str, Version> {
        let tables = self.tables().into_iter().filter_map(|(object, table)| {
            // What the pinned release does not have at all is written as the code has it.
            let pinned = pin.and_then(|pin| self.manifest.writes(pin.min(release), object));
            Some((table, pinned.or_else(|| self.manifest.writes(release, object))?))
        });
        tables.collect()
    }

    /// The newest rows of each table that it can read: a pin makes no difference.
    pub fn readable_versions(&self, release: Place) -> BTreeMap<&str, Version> {
        self.writes(release, None)
    }

    /// In which version it writes each object.
    pub fn objects(&self, release: Place, pin: Option<Place>) -> BTreeMap<String, Version> {
        let objects = self.manifest.objects(release);
        let written = objects.keys().filter_map(|object| {
            let pinned = pin.and_then(|pin| self.manifest.writes(pin.min(release), object));
            Some((
                object.clone(),
                pinned.or_else(|| self.manifest.writes(release, object))?,
            ))
        });
        written.collect()
    }

    /// The newest revision of its schema, where it is known.
    pub fn head(&self, release: Place) -> Option<String> {
        if let Some((code, _)) = self.code.as_ref().filter(|(_, own)| *own == release) {
            return Some(code.heads.join(" "));
        }
        let number = self.number(release);
        let head = HEADS.iter().find(|(known, _)| *known == number);
        head.map(|(_, head)| (*head).to_owned())
    }

    /// The words, any of them, of the crash that `ironic-status upgrade check` of `to` is known for on data of `from`.
    pub fn check_crashes(&self, from: Place, to: Place) -> &'static [&'static str] {
        if self.has_newer_version(from, to, "Node") {
            CHECK_CRASHES
        } else {
            &[]
        }
    }

    /// What is known to fail between them, though all is done as it should be.
    pub fn fails(&self, from: Place, to: Place) -> Option<String> {
        let version = self.manifest.writes(to, SENT_INSIDE_A_NODE)?;
        self.has_newer_version(from, to, SENT_INSIDE_A_NODE).then(|| {
            format!(
                "Ironic itself answers a PATCH of a node with 500 while both releases run, and has applied it (`Version {version} of \
                 {SENT_INSIDE_A_NODE} is not supported`)"
            )
        })
    }

    /// Whether an object that both have is written in a newer version by the later one.
    fn has_newer_version(&self, from: Place, to: Place, object: &str) -> bool {
        let written = |release| self.manifest.writes(release, object);
        written(from).is_some_and(|before| written(to).is_some_and(|after| before < after))
    }

    /// Whether the code of that release lists that pin, and for which release it stands.
    pub fn pin(&self, code: Place, pin: &str) -> Option<Place> {
        let is_listed = match &self.code {
            Some((asked, own)) if *own == code => asked.pins().any(|listed| listed == pin),
            Some(_) | None => {
                let missing = (self.number(code), pin);
                !NAMES_NOT_LISTED
                    .iter()
                    .any(|(release, name)| (*release, *name) == (missing.0.as_str(), missing.1))
            }
        };
        let found = self.manifest.find(pin).ok().filter(|_| is_listed)?;
        (found.patch.is_none() && found.place <= code).then_some(found.place)
    }

    /// Whether a conductor of `to` is registered by another name while it is held to `from`: then the hash ring is
    /// shuffled when the pin goes.
    pub fn renames(&self, from: Place, to: Place) -> bool {
        self.manifest.rpc(from) < NAMED_BY_PORT && NAMED_BY_PORT <= self.manifest.rpc(to)
    }

    /// The version of its own row that a conductor writes when it starts.
    pub fn conductor_row(&self, release: Place, pin: Option<Place>) -> Option<Version> {
        self.writes(release, pin).get("conductors").copied()
    }
}

/// A release as a code lists it, with the names by which this program knows it too.
fn merge(known: Option<Release>, number: Number, listed: &ListedRelease) -> Release {
    let mut names = known.as_ref().map_or_else(Vec::new, |known| known.names.clone());
    let own = number.to_string();
    for name in listed.names.iter().filter(|name| **name != own) {
        if !listed.is_unreleased() && !names.contains(name) {
            names.push(name.clone());
        }
    }
    Release {
        number,
        names,
        date: known.map_or(jiff::civil::Date::MIN, |known| known.date),
        newest_patch: None,
        api: listed.api,
        rpc: listed.rpc,
        objects: listed.objects.clone(),
    }
}

/// What a manifest wants of releases whose code says less: an order of days, which nothing here asks for; objects that are there
/// to the last; jumps from each SLURP release, the first of a year, to the next.
fn in_order(declared: &mut Declared) {
    let mut day = jiff::civil::Date::MIN;
    let mut last: BTreeSet<String> = BTreeSet::new();
    for release in &mut declared.releases {
        day = day.max(release.date);
        release.date = day;
        last = release.objects.keys().cloned().collect();
    }
    for release in &mut declared.releases {
        release.objects.retain(|object, _| last.contains(object));
    }
    if let Some(newest) = declared.releases.last() {
        declared.current = newest.number.to_string();
    }
    let names = || declared.releases.iter().flat_map(|release| &release.names);
    let year = |name: &String| name.strip_suffix(".1")?.parse::<u32>().ok();
    let mut jumps = Vec::new();
    for (name, from) in names().filter_map(|name| Some((name, year(name)?))) {
        if let Some(to) = names().find(|later| year(later) == Some(from + 1)) {
            jumps.push(Jump {
                from: name.clone(),
                to: to.clone(),
            });
        }
    }
    declared.jumps = jumps;
}

#[cfg(test)]
mod tests;
