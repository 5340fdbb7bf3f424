//! The releases of Ironic, and what is known to go wrong between them.
//!
//! What one release may follow, and in which versions it speaks and writes, is asked of a manifest: that of the releases that this
//! program knows (`releases.toml`), with what the code of a release says about itself over it ([`ReleaseCode`]). Ironic itself does not
//! refuse a skipped release: its check knows every version that was ever released.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use stagger_versioned::Version;
use stagger_versioned::manifest::{
    Declared, Faults, Jump, Manifest, Named, Number, Permitted, Place, Refused, Release, UnknownRelease,
};

use crate::code::{ListedRelease, ReleaseCode};
use crate::facts::{Facts, Known};

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
/// 29.0 to 32.0; it is so wherever the list has got another version.
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
    pub fn known() -> Self {
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
                let release = over(releases.remove(&number), number, listed);
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
    pub fn of_facts(&self, facts: &Facts) -> Cow<'_, Self> {
        let code = facts.code.as_ref().and_then(Known::yes);
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
            from: self.shown(from).unwrap_or(refused.from),
            to: self.shown(to).unwrap_or(refused.to),
            ..refused
        })
    }

    /// The version of a stable branch whose second number has grown.
    fn shown(&self, named: Named) -> Option<String> {
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
        let mut known = self.manifest.known();
        known.retain(|text| self.manifest.find(text).is_ok_and(|found| found.place == release));
        known.pop().unwrap_or_else(|| self.name(release))
    }

    /// The named release before that one.
    pub fn before(&self, release: Place) -> Option<Place> {
        let before = self.manifest.places().take_while(|place| *place < release);
        before.filter(|place| self.manifest.named(*place)).last()
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
    pub fn reads(&self, release: Place) -> BTreeMap<&str, Version> {
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
        if self.grew(from, to, "Node") {
            CHECK_CRASHES
        } else {
            &[]
        }
    }

    /// What is known to fail between them, though all is done as it should be.
    pub fn fails(&self, from: Place, to: Place) -> Option<String> {
        let version = self.manifest.writes(to, SENT_INSIDE_A_NODE)?;
        self.grew(from, to, SENT_INSIDE_A_NODE).then(|| {
            format!(
                "Ironic itself answers a PATCH of a node with 500 while both releases run, and has applied it (`Version {version} of \
                 {SENT_INSIDE_A_NODE} is not supported`)"
            )
        })
    }

    /// Whether an object that both have is written in a newer version by the later one.
    fn grew(&self, from: Place, to: Place, object: &str) -> bool {
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
fn over(known: Option<Release>, number: Number, listed: &ListedRelease) -> Release {
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
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        Releases::known().find(text).unwrap().place
    }

    #[test]
    fn the_table_is_read_and_answers_as_ironic_was_seen_to() {
        let table = Releases::known();
        let (old, new) = (place("26.1.6"), place("2025.1"));
        assert_eq!(
            (table.name(old), table.number(old)),
            ("2024.2".to_owned(), "26.1".to_owned())
        );
        // A pinned new API cannot be told from an old one.
        assert_eq!(table.api(new, Some(old)), table.api(old, None));
        assert_eq!(table.api(new, None).to_string(), "1.96");
        assert_eq!(table.rpc(place("35.0"), None).to_string(), "1.62");
        let rows = |release, pin| table.writes(place(release), pin)["nodes"].to_string();
        assert_eq!(rows("29.0", Some(old)), "1.40");
        assert_eq!(rows("29.0", None), "1.41");
        assert_eq!(
            table.conductor_row(place("32.0"), Some(new)).unwrap().to_string(),
            "1.4"
        );
        assert_eq!(
            table.conductor_row(place("32.0"), None).unwrap().to_string(),
            "1.6"
        );
        assert_eq!(table.head(new).as_deref(), Some("21c48150dea9"));
        assert_eq!(table.head(place("24.1")), None);
        // A table that the old release did not have is written as the new one has it.
        assert_eq!(
            table.writes(new, Some(old))["inspection_rules"].to_string(),
            "1.0"
        );
    }

    #[test]
    fn d11_the_highest_version_that_a_release_lists_is_the_one_that_it_writes() {
        let declared: Declared = toml::from_str(TABLE).unwrap();
        let (table, mut several) = (Releases::known(), 0);
        for release in declared.releases {
            let written = table.objects(place(&release.number.to_string()), None);
            for (object, versions) in release.objects {
                assert_eq!(Some(written[&object]), versions.iter().max(), "{object}");
                several += usize::from(versions.iter().count() > 1);
            }
        }
        assert!(several > 10, "only {several} have several versions");
    }

    #[test]
    fn which_release_may_follow_which() {
        let table = Releases::known();
        let upgrade =
            |from: &str, to: &str| table.upgrade(table.find(from).unwrap(), table.find(to).unwrap());
        for (from, to) in [
            ("26.1.6", "29.0.6"),
            ("29.0", "32.0.1"),
            ("2024.1", "2025.1"),
            ("29.0.1", "29.0.6"),
        ] {
            assert!(upgrade(from, to).is_ok(), "{from} to {to}");
        }
        for (from, to, first) in [
            ("26.1", "32.0", Some("2025.1")),
            ("2023.1", "2025.1", Some("2024.1")),
            ("29.0", "26.1", None),
        ] {
            let refused = upgrade(from, to).unwrap_err();
            assert_eq!(refused.first.as_deref(), first, "{refused}");
        }
    }

    #[test]
    fn pins_are_those_that_the_code_lists() {
        let table = Releases::known();
        let old = place("2025.2");
        assert_eq!(table.pin(place("35.0"), "2025.2"), Some(old));
        assert_eq!(table.pin(place("32.0"), "2025.2"), None, "forgotten in 32.0");
        assert_eq!(table.pin(place("32.0"), "32.0"), Some(old));
        for not in ["35.0", "29.0.6", "bogus", ""] {
            assert_eq!(table.pin(place("32.0"), not), None, "{not:?}");
        }
        assert!(table.renames(place("21.4"), place("23.0")));
        assert!(!table.renames(place("26.1"), place("29.0")));
    }

    /// As its own code said.
    fn code(said: &str) -> ReleaseCode {
        serde_json::from_str(said).unwrap()
    }

    const OF_39: &str = include_str!("code/39.0.0.json");
    const OF_32: &str = include_str!("code/32.0.1.json");

    #[test]
    fn the_code_of_39_lists_what_this_program_does_not_know() {
        let table = Releases::known();
        assert!(table.find("39.0.0").is_err());
        let table = table.with(&code(OF_39)).unwrap();
        let find = |text: &str| table.find(text).unwrap();
        let newest = find("39.0.0").place;
        assert_eq!(
            (table.name(newest), table.number(newest)),
            ("2026.2".to_owned(), "39.0".to_owned())
        );
        assert_eq!(table.api(newest, None).to_string(), "1.115");
        assert_eq!(table.head(newest).as_deref(), Some("9fb44677ef15"));
        // Another's head is not its own.
        assert_eq!(table.head(find("36.0").place), None);
        let writes = table.writes(newest, Some(find("35.0").place));
        assert_eq!(writes["node_history"].to_string(), "1.1");
        // A table of which this program has never heard.
        assert_eq!(writes["runbook_traits"].to_string(), "1.0");
        let place = |text: &str| find(text).place;
        assert_eq!(table.pin(newest, "2025.2"), Some(place("32.0")));
        assert_eq!(table.pin(newest, "36.0"), Some(place("36.0")));
        // By that name stagger knows it, and the code does not.
        assert_eq!(table.pin(newest, "flamingo"), None);
    }

    #[test]
    fn named_and_intermediate_releases_follow_each_other_by_the_rules_of_openstack() {
        let table = Releases::known().with(&code(OF_39)).unwrap();
        let upgrade =
            |from: &str, to: &str| table.upgrade(table.find(from).unwrap(), table.find(to).unwrap());
        for (from, to) in [
            ("35.0.1", "39.0.0"),
            ("29.0.6", "35.0.1"),
            // Named to intermediate, and intermediate to named.
            ("35.0.1", "36.0.0"),
            ("33.0.0", "35.0.1"),
            ("36.0.0", "39.0.0"),
        ] {
            assert!(upgrade(from, to).is_ok(), "{from} to {to}");
        }
        for (from, to, first) in [
            ("29.0.6", "39.0.0", "2026.1"),
            ("32.0.1", "39.0.0", "2026.1"),
            ("34.0.0", "36.0.0", "2026.1"),
        ] {
            let refused = upgrade(from, to).unwrap_err();
            assert_eq!(refused.first.as_deref(), Some(first), "{refused}");
        }
    }

    #[test]
    fn what_a_code_lists_of_itself_goes_before_what_this_program_has_written_down() {
        let table = Releases::known().with(&code(OF_32)).unwrap();
        let own = table.find("32.0.1").unwrap().place;
        // Its name was added later.
        assert_eq!(table.name(own), "2025.2");
        assert_eq!(table.pin(own, "2025.2"), None);
        assert_eq!(table.pin(own, "32.0"), Some(own));
        assert_eq!(table.head(own).as_deref(), Some("3ef27505c9fb"));
        // What comes after it is known by ourselves.
        assert!(table.has("35.0.1"));
    }

    #[test]
    fn this_program_has_written_down_what_the_codes_list() {
        let known = Releases::known();
        for said in [OF_39, OF_32] {
            let table = known.with(&code(said)).unwrap();
            for place in known.manifest.places() {
                let number = known.number(place);
                let of_code = table.find(&number).unwrap().place;
                let all = |table: &Releases, place| {
                    (
                        table.api(place, None),
                        table.rpc(place, None),
                        table.objects(place, None),
                    )
                };
                assert_eq!(all(&table, of_code), all(&known, place), "{number}");
            }
        }
    }

    #[test]
    fn what_is_known_to_fail_is_known_by_versions() {
        let table = Releases::known().with(&code(OF_39)).unwrap();
        let place = |text: &str| table.find(text).unwrap().place;
        for (from, to, fails) in [
            ("29.0", "32.0", true),
            ("29.0", "35.0", true),
            ("26.1", "29.0", false),
            ("35.0", "39.0", false),
        ] {
            assert_eq!(
                table.fails(place(from), place(to)).is_some(),
                fails,
                "{from} to {to}"
            );
        }
        assert!(!table.check_crashes(place("26.1"), place("29.0")).is_empty());
        assert!(table.check_crashes(place("35.0"), place("39.0")).is_empty());
    }

    #[test]
    fn an_object_that_a_later_code_has_no_more_is_forgotten() {
        let mut code = code(OF_39);
        let own = code
            .releases
            .iter_mut()
            .find(|listed| listed.names[0] == "39.0")
            .unwrap();
        own.objects.remove("VolumeTarget");
        let table = Releases::known().with(&code).unwrap();
        let old = table.find("35.0").unwrap().place;
        assert!(!table.writes(old, None).contains_key("volume_targets"));
    }

    #[test]
    fn a_stable_branch_grows_in_its_second_number_and_stays_its_release() {
        let table = Releases::known();
        let named = |text: &str| table.find(text).unwrap();
        assert_eq!(named("29.1.0").place, named("29.0").place);
        for (from, to) in [("29.0.6", "29.1.0"), ("29.1.0", "29.1.2"), ("29.1.0", "32.1.0")] {
            assert!(table.upgrade(named(from), named(to)).is_ok(), "{from} to {to}");
        }
        let refused = table.upgrade(named("29.1.0"), named("29.0.6")).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("29.1.0 cannot be upgraded to 29.0.6"),
            "{refused}"
        );
        for not in ["29.1", "30.1.0", "29.1.0.1", "29.x.0"] {
            assert!(table.find(not).is_err(), "{not}");
        }
        // 39.1.0 has not been made; its code would list what 39.0.0 lists.
        let mut code = code(OF_39);
        code.version = "39.1.0".to_owned();
        let table = Releases::known().with(&code).unwrap();
        let own = table.find("39.1.0").unwrap().place;
        assert_eq!(
            (table.number(own), table.head(own)),
            ("39.0".to_owned(), Some("9fb44677ef15".to_owned()))
        );
    }

    #[test]
    fn a_code_that_has_forgotten_itself_is_what_comes_after_all_that_it_lists() {
        // As 36.0.0 was.
        let mut code = code(OF_39);
        code.version = "39.0.0".to_owned();
        code.releases.retain(|listed| listed.names[0] != "39.0");
        let table = Releases::known().with(&code).unwrap();
        let own = table.find("39.0.0").unwrap().place;
        assert_eq!(
            (table.name(own), table.api(own, None).to_string()),
            ("39.0".to_owned(), "1.115".to_owned())
        );
        assert_eq!(table.pin(own, "39.0"), None);
    }
}
