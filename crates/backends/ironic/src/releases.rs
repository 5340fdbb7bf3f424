//! The releases of Ironic, and what is known to go wrong between them.
//!
//! What one release may follow, and in which versions it speaks and writes, is asked of a manifest
//! (`releases.toml`). Ironic itself does not refuse a skipped release: its check knows every version that was ever
//! released.

use std::collections::BTreeMap;

use stagger_versioned::Version;
use stagger_versioned::manifest::{Declared, Manifest, Named, Permitted, Place, Refused, UnknownRelease};

const TABLE: &str = include_str!("releases.toml");

/// The newest revision of the schema in each release, where it was seen.
const HEADS: [(&str, &str); 3] = [
    ("26.1", "66bd9c5604d5"),
    ("29.0", "21c48150dea9"),
    ("32.0", "3ef27505c9fb"),
];

/// Pairs on which `ironic-status upgrade check` of the newer one ends with 255 before the schema was upgraded, and
/// the words by which that is known: it selects all columns of the new model, also those that are not there yet.
const CHECK_CRASHES: [(&str, &str, &[&str]); 1] = [(
    "26.1",
    "29.0",
    // As MariaDB says it, and as PostgreSQL does.
    &["Unknown column", "UndefinedColumn"],
)];

/// Pairs between which requests fail while both releases run, whatever is done, and what is seen of it.
const FAILS: [(&str, &str, &str); 1] = [(
    "29.0",
    "32.0",
    "Ironic itself answers a PATCH of a node with 500 while both releases run, and has applied it (`Version 1.2 of \
     TraitList is not supported`)",
)];

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

/// The table of releases.
#[derive(Debug, Clone)]
pub struct Releases {
    manifest: Manifest,
}

impl Releases {
    /// Those that this release of stagger knows.
    pub fn known() -> Self {
        let declared: Result<Declared, _> = toml::from_str(TABLE);
        #[expect(clippy::expect_used, reason = "it is compiled in, and read by a test")]
        let manifest = Manifest::new(declared.expect("the table is TOML")).expect("the table has no faults");
        Self { manifest }
    }

    /// The release of a name or a number, with or without a patch: `2024.2`, `26.1`, `26.1.6`.
    ///
    /// # Errors
    /// It is not among the named releases.
    pub fn find(&self, asked: &str) -> Result<Named, UnknownRelease> {
        self.manifest.find(asked)
    }

    /// Whether services of one may be carried to the other while they run.
    ///
    /// # Errors
    /// Why not, and where to go first.
    pub fn upgrade(&self, from: Named, to: Named) -> Result<Permitted, Refused> {
        self.manifest.upgrade(from, to)
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
        self.manifest.places().take_while(|place| *place < release).last()
    }

    /// The highest version of the API that a service of that release offers, held to that pin.
    pub fn api(&self, release: Place, pin: Option<Place>) -> Version {
        self.manifest.api(pin.map_or(release, |pin| pin.min(release)))
    }

    /// The highest version of the RPC that it speaks.
    pub fn rpc(&self, release: Place, pin: Option<Place>) -> Version {
        self.manifest.rpc(pin.map_or(release, |pin| pin.min(release)))
    }

    /// In which version it writes rows of each table.
    pub fn writes(&self, release: Place, pin: Option<Place>) -> BTreeMap<&'static str, Version> {
        let tables = TABLES.iter().filter_map(|(object, table)| {
            // What the pinned release does not have at all is written as the code has it.
            let pinned = pin.and_then(|pin| self.manifest.writes(pin.min(release), object));
            Some((*table, pinned.or_else(|| self.manifest.writes(release, object))?))
        });
        tables.collect()
    }

    /// The newest rows of each table that it can read: a pin makes no difference.
    pub fn reads(&self, release: Place) -> BTreeMap<&'static str, Version> {
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
    pub fn head(&self, release: Place) -> Option<&'static str> {
        let number = self.number(release);
        HEADS
            .iter()
            .find(|(known, _)| *known == number)
            .map(|(_, head)| *head)
    }

    /// The words, any of them, of the crash that `ironic-status upgrade check` of `to` is known for on data of `from`.
    pub fn check_crashes(&self, from: Place, to: Place) -> &'static [&'static str] {
        let (from, to) = (self.number(from), self.number(to));
        CHECK_CRASHES
            .iter()
            .find(|(older, newer, _)| *older == from && *newer == to)
            .map_or(&[], |(.., words)| words)
    }

    /// What is known to fail between them, though all is done as it should be.
    pub fn fails(&self, from: Place, to: Place) -> Option<&'static str> {
        let (from, to) = (self.number(from), self.number(to));
        FAILS
            .iter()
            .find(|(older, newer, _)| *older == from && *newer == to)
            .map(|(.., words)| *words)
    }

    /// Whether the code of that release lists that pin, and for which release it stands.
    pub fn pin(&self, code: Place, pin: &str) -> Option<Place> {
        let missing = (self.number(code), pin);
        if NAMES_NOT_LISTED
            .iter()
            .any(|(release, name)| (*release, *name) == (missing.0.as_str(), missing.1))
        {
            return None;
        }
        let found = self.manifest.find(pin).ok()?;
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
        assert_eq!(table.head(new), Some("21c48150dea9"));
        assert_eq!(table.head(place("35.0")), None);
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
}
