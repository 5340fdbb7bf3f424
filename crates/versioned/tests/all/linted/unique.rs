//! What keeps duplicates out: primary keys, constraints and unique indexes.

use stagger_versioned::Manifest;
use stagger_versioned::lint::Report;

use super::{LATER, findings, judged, lint, migration};
use crate::ironic::{MANIFEST, manifest};

/// `ON CONFLICT` of an older service asks for what keeps duplicates out, and so does the service.
#[test]
fn what_may_keep_duplicates_out_is_not_dropped() {
    for (statement, what) in [
        (
            "ALTER TABLE nodes DROP CONSTRAINT nodes_pkey",
            "the constraint nodes_pkey of nodes",
        ),
        (
            "ALTER TABLE nodes DROP CONSTRAINT of_chassis",
            "the constraint of_chassis of nodes",
        ),
        ("DROP INDEX nodes_name_key", "the index nodes_name_key"),
        (
            "DROP INDEX CONCURRENTLY IF EXISTS nodes_name_key",
            "the index nodes_name_key",
        ),
        // It may have been there.
        (
            "CREATE INDEX IF NOT EXISTS i ON nodes (a); DROP INDEX i",
            "the index i",
        ),
        // Such a one is of the schema of its table.
        ("CREATE INDEX i ON x.nodes (a); DROP INDEX i", "the index i"),
        ("CREATE INDEX i ON nodes (a); DROP INDEX public.i", "the index i"),
        // Another than the one before.
        (
            "CREATE INDEX i ON nodes (a); DROP INDEX i; DROP INDEX i",
            "the index i",
        ),
        (
            "CREATE INDEX i ON nodes (a); SET search_path = x; DROP INDEX i",
            "the index i",
        ),
        (
            "CREATE TABLE t (a TEXT CONSTRAINT c CHECK (a > '')); ALTER TABLE nodes DROP CONSTRAINT c",
            "the constraint c of nodes",
        ),
        (
            "CREATE TABLE IF NOT EXISTS t (a TEXT, CONSTRAINT c CHECK (a > '')); ALTER TABLE t DROP CONSTRAINT c",
            "the constraint c of t",
        ),
        (
            "ALTER TABLE nodes DROP CONSTRAINT \"Of_Chassis\"",
            "the constraint Of_Chassis of nodes",
        ),
    ] {
        let report = judged(statement);
        let found = findings(&report);
        assert_eq!(
            found,
            [format!(
                "0007.sql:2: unique-dropped: {what} may be what keeps duplicates out, and older services rely on that; leave it \
                 until its table or its column may be dropped; what an earlier statement of these migrations made under \
                 this name, and not unique, may go at once"
            )],
            "{statement}"
        );
        assert_eq!(report.code(), 1);
    }
}

/// What earlier files made is known in later ones, whether or not those are judged.
#[test]
fn what_the_migrations_made_not_unique_may_be_dropped() {
    let drop_after = |first: &str, then: &str| {
        let files = [
            migration("1.sql", &format!("-- release: newton\n{first}")),
            migration("2.sql", &format!("-- release: ocata\n{then}")),
        ];
        let since = manifest().find("newton").unwrap().place;
        let words = |report: Report| -> Vec<&str> {
            let second = report.findings.iter().filter(|found| found.file == "2.sql");
            second.map(|found| found.rule.as_str()).collect()
        };
        let all = words(lint(&files, &manifest(), None));
        let since = words(lint(&files, &manifest(), Some(since)));
        (all, since)
    };
    let none = (vec![], vec![]);
    for (first, then) in [
        ("CREATE INDEX by_rack ON nodes (rack)", "DROP INDEX by_rack"),
        (
            "CREATE INDEX by_rack ON nodes (rack)",
            "DROP INDEX CONCURRENTLY By_Rack",
        ),
        (
            "CREATE INDEX by_rack ON x.nodes (rack)",
            "DROP INDEX IF EXISTS x.by_rack",
        ),
        (
            "ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES b (a) NOT VALID",
            "ALTER TABLE nodes DROP CONSTRAINT f",
        ),
        (
            "CREATE TABLE t (a TEXT CONSTRAINT c CHECK (a > ''), b TEXT CONSTRAINT f REFERENCES b (a))",
            "ALTER TABLE t DROP CONSTRAINT c, DROP CONSTRAINT f",
        ),
        (
            "CREATE TABLE t (a TEXT, CONSTRAINT c CHECK (a > ''))",
            "ALTER TABLE t RENAME CONSTRAINT c TO d; ALTER TABLE t DROP CONSTRAINT d",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c TEXT CONSTRAINT f REFERENCES chassis (uuid)",
            "ALTER TABLE nodes DROP CONSTRAINT f",
        ),
    ] {
        assert_eq!(drop_after(first, then), none, "{first}; {then}");
    }
    let found = (vec!["unique-dropped"], vec!["unique-dropped"]);
    for (first, then) in [
        (
            "CREATE TABLE t (a TEXT, CONSTRAINT u UNIQUE (a))",
            "ALTER TABLE t DROP CONSTRAINT u",
        ),
        (
            "CREATE TABLE t (a TEXT CONSTRAINT p PRIMARY KEY)",
            "ALTER TABLE t DROP CONSTRAINT p",
        ),
        (
            "CREATE TABLE t (a TEXT); CREATE UNIQUE INDEX u ON t (a)",
            "DROP INDEX u",
        ),
        // It is another index since.
        (
            "CREATE TABLE t (a TEXT); CREATE INDEX i ON t (a); DROP TABLE t; CREATE TABLE t (a TEXT); \
             CREATE UNIQUE INDEX IF NOT EXISTS i ON t (a)",
            "DROP INDEX i",
        ),
        ("SET search_path = x; CREATE INDEX i ON nodes (a)", "DROP INDEX i"),
    ] {
        assert_eq!(drop_after(first, then), found, "{first}; {then}");
    }
    // Of what nobody knows, nobody knows what it made of an index either.
    for first in [
        "CREATE INDEX i ON nodes (a); frobnicate",
        "CREATE INDEX i ON nodes (a); ALTER INDEX u RENAME TO j",
    ] {
        assert_eq!(drop_after(first, "DROP INDEX i").1, ["unique-dropped"], "{first}");
    }
    assert_eq!(
        drop_after(
            "CREATE INDEX i ON nodes (a); GRANT ALL ON nodes TO me",
            "DROP INDEX i"
        )
        .1,
        [""; 0]
    );
}

/// SQLite drops no column that an index still has.
#[test]
fn a_unique_index_goes_with_its_column_or_table() {
    let text = MANIFEST
        .replace("[unreleased]", LATER)
        .replace("rpc = \"1.40\"", "rpc = \"1.42\"")
        .replace("removed = \"master\"", "removed = \"pike\"");
    let manifest = Manifest::new(toml::from_str(&text).unwrap()).unwrap();
    let made = migration(
        "1.sql",
        "-- release: 6.3\nCREATE TABLE t (a TEXT);\nCREATE UNIQUE INDEX u ON nodes (uuid, extra)",
    );
    let drop_in = |release: &str| {
        let text = format!("-- release: {release}\nDROP INDEX u;\nALTER TABLE nodes DROP COLUMN extra");
        let since = manifest.find("6.3").unwrap().place;
        findings(&lint(
            &[made.clone(), migration("2.sql", &text)],
            &manifest,
            Some(since),
        ))
    };
    assert_eq!(drop_in("pike").len(), 2);
    assert_eq!(drop_in("queens"), [""; 0]);
}
