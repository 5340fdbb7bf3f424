//! Columns, their constraints and their defaults.

use super::{findings, judged, lint, migration, only_finding};
use crate::ironic::manifest;

#[test]
fn a_computed_column_must_not_fail_for_what_older_services_write() {
    for column in [
        "t TEXT GENERATED ALWAYS AS (name) STORED",
        "t TEXT GENERATED ALWAYS AS (lower(coalesce(name, 'none'))) STORED",
        "t BOOLEAN GENERATED ALWAYS AS (size > 0 AND NOT (name IS NULL)) STORED",
        "t TEXT GENERATED ALWAYS AS (upper(name)) VIRTUAL",
    ] {
        let statement = format!("ALTER TABLE nodes ADD COLUMN {column}");
        assert_eq!(findings(&judged(&statement)), [""; 0], "{statement}");
    }
    let required =
        "tightened: nodes.t is computed of other columns, and that may be NULL, which it must not be: older";
    let fails = "tightened: nodes.t is computed of other columns, and that may fail: older";
    for (column, said) in [
        ("t TEXT NOT NULL GENERATED ALWAYS AS (name) STORED", required),
        ("t INT NOT NULL GENERATED ALWAYS AS (a + b) STORED", fails),
        ("t INT GENERATED ALWAYS AS (a + b) STORED", fails),
        ("t INT GENERATED ALWAYS AS (a + b) VIRTUAL", fails),
        ("t INT GENERATED ALWAYS AS (name::int) STORED", fails),
        ("t TEXT GENERATED ALWAYS AS (a / b) STORED", fails),
        ("t TEXT GENERATED ALWAYS AS (of_ours(name)) STORED", fails),
        // A number may be too large for it, and a text too long.
        ("t INT GENERATED ALWAYS AS (a) STORED", fails),
        ("t VARCHAR(3) GENERATED ALWAYS AS (name) STORED", fails),
    ] {
        only_finding(&format!("ALTER TABLE nodes ADD COLUMN {column}"), said);
    }
}

#[test]
fn only_types_of_sequences_fill_themselves() {
    for name in [
        "serial",
        "BIGSERIAL",
        "smallserial",
        "serial2",
        "serial4",
        "serial8",
    ] {
        let statement = format!("ALTER TABLE nodes ADD COLUMN n {name} NOT NULL");
        assert_eq!(findings(&judged(&statement)), [""; 0], "{statement}");
    }
    only_finding(
        "ALTER TABLE nodes ADD COLUMN n serial_number NOT NULL",
        "column-required: nodes.n must be filled",
    );
}

/// What the locks advise has to be permitted.
#[test]
fn what_older_services_leave_empty_may_be_unique_and_checked() {
    for statement in [
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX CONCURRENTLY i ON nodes (u)",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (name, U) WHERE name <> ''",
        "ADD COLUMN u TEXT; ALTER TABLE nodes ADD CONSTRAINT c UNIQUE (u)",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX CONCURRENTLY i ON nodes (u); \
         ALTER TABLE nodes ADD CONSTRAINT c UNIQUE USING INDEX i",
        "ADD COLUMN u TEXT; ALTER TABLE nodes ADD CONSTRAINT c CHECK (length(u) <= 40) NOT VALID; \
         ALTER TABLE nodes VALIDATE CONSTRAINT c",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u IN ('a', 'b')) NOT VALID",
        "ADD COLUMN u INT NULL DEFAULT NULL, ADD CONSTRAINT c CHECK (u BETWEEN 1 AND size) NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u IS NULL OR name IS NOT NULL) NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (NOT u LIKE '%x') NOT VALID",
        "ADD COLUMN u INT CHECK (u < size); ALTER TABLE nodes ALTER COLUMN size SET DEFAULT 1",
        "ADD COLUMN u TEXT CHECK (u <> '')",
        "ADD COLUMN n INT DEFAULT 0 CHECK (n >= 0)",
        "ADD COLUMN n INT NOT NULL DEFAULT -1 CHECK (n BETWEEN -1 AND 7)",
        "ADD COLUMN u TEXT DEFAULT 'new' CHECK (u IN ('new', 'old'))",
        "ADD COLUMN u VARCHAR(9) NOT NULL DEFAULT 'new' CHECK (u IS NOT NULL)",
        "ADD COLUMN b BOOLEAN NOT NULL DEFAULT FALSE CHECK (NOT b)",
    ] {
        let statement = format!("ALTER TABLE nodes {statement}");
        assert_eq!(findings(&judged(&statement)), [""; 0], "{statement}");
    }
}

#[test]
fn what_older_services_fill_or_may_fill_is_not_tightened() {
    for statement in [
        // What they leave empty is the same in all their rows, or something else is.
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (u) NULLS NOT DISTINCT",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (coalesce(u, ''))",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (name) INCLUDE (u)",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON machines (u)",
        "ADD COLUMN u TEXT; ALTER TABLE nodes ADD CONSTRAINT p PRIMARY KEY (u)",
        "ADD COLUMN u TEXT DEFAULT 'x'; CREATE UNIQUE INDEX i ON nodes (u)",
        "ADD COLUMN u TEXT; ALTER TABLE nodes ALTER COLUMN u SET DEFAULT 'x'; CREATE UNIQUE INDEX i ON nodes (u)",
        "ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (u); ALTER TABLE nodes ALTER COLUMN u SET DEFAULT 'x'",
        "ADD COLUMN u TEXT UNIQUE; ALTER TABLE nodes ALTER COLUMN u SET DEFAULT 'x'",
        "ADD COLUMN n INT DEFAULT 0 CHECK (n >= 0); ALTER TABLE nodes ALTER COLUMN n SET DEFAULT -1",
        // It may have been there; a domain may have a default.
        "ADD COLUMN IF NOT EXISTS u TEXT; CREATE UNIQUE INDEX i ON nodes (u)",
        "ADD COLUMN u TEXT; SET search_path = x; CREATE UNIQUE INDEX i ON nodes (u)",
        // NULL does not pass, or something else may not.
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u IS NOT NULL) NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (coalesce(u, '') <> '') NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u IS NOT NULL OR name > '') NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u <> '' AND name <> '') NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (of_ours(u)) NOT VALID",
        "ADD COLUMN u INT, ADD CONSTRAINT c CHECK (u > name::int) NOT VALID",
        "ADD COLUMN u INT, ADD CONSTRAINT c CHECK (u > 1 / size) NOT VALID",
        "ADD COLUMN u INT, ADD CONSTRAINT c CHECK (num_nulls(u) = 0) NOT VALID",
        "ADD COLUMN u TEXT, ADD CONSTRAINT c CHECK (u IS DISTINCT FROM NULL) NOT VALID",
        "ADD COLUMN n INT DEFAULT 0 CHECK (n > 0)",
        "ADD COLUMN n INT DEFAULT 0 CHECK (n > size)",
        "ADD COLUMN n NUMERIC(3, 0) DEFAULT 0.4 CHECK (n > 0)",
        "ADD COLUMN u CHAR(3) DEFAULT 'x' CHECK (length(u) = 1)",
        "ADD COLUMN u TEXT DEFAULT 'x' CHECK (u <> 'X')",
    ] {
        let statement = format!("ALTER TABLE nodes {statement}");
        only_finding(&statement, "tightened: ");
    }
}

/// Services of the next release know the column.
#[test]
fn a_column_is_left_empty_only_in_its_own_release() {
    let words = |second: &str| {
        let files = [
            migration("1.sql", "-- release: newton\nALTER TABLE nodes ADD COLUMN u TEXT"),
            migration(
                "2.sql",
                &format!("-- release: {second}\nCREATE UNIQUE INDEX i ON nodes (u)"),
            ),
        ];
        let report = lint(&files, &manifest(), None);
        let words = report.findings.iter().map(|finding| finding.rule.as_str());
        words.collect::<Vec<_>>()
    };
    assert_eq!(words("newton"), [""; 0]);
    assert_eq!(words("ocata"), ["tightened"]);
}
