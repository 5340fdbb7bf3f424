//! Migrations of the schema, judged.

mod columns;
mod data;
#[cfg(feature = "store")]
mod databases;
mod dialects;
mod layouts;
mod locks;
mod references;
mod reports;
mod statements;
mod undeclared;
mod unique;
mod waivers;

use stagger_versioned::Manifest;
use stagger_versioned::lint::{Finding, Linter, Migration, Releases, Report};
use stagger_versioned::manifest::Place;

use crate::ironic::{MANIFEST, manifest};

/// Two named releases after ocata.
const LATER: &str = r#"
[[release]]
number = "8.0"
names = ["pike"]
date = "2017-08-28"
api = "1.33"
rpc = "1.41"
objects = { Node = "1.16", Trait = "1.1", Port = "1.0" }

[[release]]
number = "9.0"
names = ["queens"]
date = "2018-02-07"
api = "1.34"
rpc = "1.42"
objects = { Node = "1.16", Trait = "1.1", Port = "1.0" }

[unreleased]"#;

fn migration(file: &str, text: &str) -> Migration {
    Migration {
        file: file.to_owned(),
        text: text.to_owned(),
        transaction: false,
    }
}

fn lint(migrations: &[Migration], manifest: &Manifest, since: Option<Place>) -> Report {
    let releases = Releases::Declared { manifest, since };
    Linter {
        releases,
        dialect: None,
    }
    .judge(migrations)
}

/// One statement in a migration of ocata, in line 2.
fn judged(statement: &str) -> Report {
    let text = format!("-- release: ocata\n{statement}");
    lint(&[migration("0007.sql", &text)], &manifest(), None)
}

fn findings(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn what_only_adds_is_permitted() {
    for statement in [
        "CREATE TABLE ports (address TEXT PRIMARY KEY, version VARCHAR(15))",
        "CREATE TABLE ports (id BIGSERIAL PRIMARY KEY, node TEXT NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE)",
        "ALTER TABLE nodes ADD COLUMN fake JSONB",
        "ALTER TABLE nodes ADD COLUMN revision BIGINT NOT NULL DEFAULT 0, ADD COLUMN facts JSONB",
        "ALTER TABLE nodes ADD fake TEXT",
        "CREATE INDEX CONCURRENTLY by_rack ON nodes (rack)",
        "CREATE INDEX by_rack ON nodes (rack)",
        "ALTER TABLE nodes VALIDATE CONSTRAINT of_chassis",
        "CREATE INDEX i ON nodes (a); DROP INDEX i",
        "ALTER TABLE nodes ALTER COLUMN name DROP NOT NULL",
        "ALTER TABLE nodes ALTER COLUMN name SET DEFAULT 'x'",
        "COMMENT ON TABLE nodes IS 'machines'",
        "SET lock_timeout = '2s'",
        "CREATE VIEW busy AS SELECT * FROM nodes",
        // Each row gets another value, or none.
        "ALTER TABLE nodes ADD COLUMN u UUID DEFAULT gen_random_uuid() UNIQUE",
        "ALTER TABLE nodes ADD COLUMN u TEXT DEFAULT NULL UNIQUE",
        "ALTER TABLE nodes ADD COLUMN n BIGSERIAL UNIQUE",
        "BEGIN; ALTER TABLE nodes ADD COLUMN fake TEXT; COMMIT;",
        "PRAGMA foreign_keys = 1",
        "",
        "-- nothing yet\n;;",
        // Nobody works yet on a table that the same file makes.
        "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('x'); ALTER TABLE t ALTER COLUMN a SET NOT NULL; DROP TABLE t;",
        "CREATE TABLE t (a TEXT); CREATE UNIQUE INDEX i ON t (a); DROP INDEX i",
        "CREATE TABLE x.t (a TEXT); INSERT INTO x.t VALUES ('x'); DELETE FROM x.t; UPDATE x.t SET a = ''; DROP TABLE x.t",
        "CREATE TABLE T (a TEXT); UPDATE \"t\" SET a = 'x'; TRUNCATE t",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
        assert_eq!(judged(statement).code(), 0);
    }
}

fn only_finding(statement: &str, said: &str) {
    let report = judged(statement);
    let found = findings(&report);
    assert_eq!(found.len(), 1, "{statement}: {found:#?}");
    assert!(
        found[0].starts_with(&format!("0007.sql:2: {said}")),
        "{}",
        found[0]
    );
    assert_eq!(report.code(), 1);
}

#[test]
fn what_breaks_older_services_is_found() {
    for (statement, said) in [
        (
            "ALTER TABLE nodes DROP COLUMN name",
            "column-dropped-early: nodes.name may not be dropped: it was never deprecated; deprecate it, ",
        ),
        (
            "DROP TABLE nodes",
            "table-dropped-early: nodes may not be dropped: it was never deprecated; deprecate it, ",
        ),
        (
            "ALTER TABLE nodes RENAME COLUMN a TO b",
            "renamed: nodes.a gets another name, and older services ask for the old one; add",
        ),
        (
            "ALTER TABLE nodes RENAME TO machines",
            "renamed: nodes gets another name",
        ),
        (
            "ALTER TABLE nodes ALTER COLUMN name TYPE VARCHAR(40)",
            "resized: nodes.name gets another type, and older services write the old one; add a column of the new type",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN owner TEXT NOT NULL",
            "column-required: nodes.owner must be filled, and older services do not know it; let it be NULL, or give it a default",
        ),
        (
            "ALTER TABLE nodes ALTER COLUMN name SET NOT NULL",
            "tightened: nodes.name must be filled: older services may write what it forbids; let the objects",
        ),
        (
            "CREATE UNIQUE INDEX CONCURRENTLY i ON nodes (name)",
            "tightened: a unique index on nodes: older",
        ),
        (
            "ALTER TABLE nodes ADD CONSTRAINT u UNIQUE (name)",
            "tightened: a unique constraint on nodes: older",
        ),
        (
            "ALTER TABLE nodes ADD CONSTRAINT c CHECK (a > 0) NOT VALID",
            "tightened: a check on nodes: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN a INTEGER CHECK (a IS NOT NULL)",
            "tightened: a check on nodes.a: older",
        ),
        // It may be there already, and then it is no new one.
        (
            "CREATE TABLE IF NOT EXISTS nodes (uuid TEXT); ALTER TABLE nodes DROP COLUMN name",
            "column-dropped-early: nodes.name may not be dropped",
        ),
        (
            "ALTER TABLE nodes ALTER COLUMN name DROP DEFAULT",
            "default-dropped: nodes.name loses its default, and older services may rely on it; leave",
        ),
        (
            "UPDATE nodes SET fake = extra",
            "data-changed: rows of nodes are changed while older services read them; move data by an online migration",
        ),
        (
            "DELETE FROM nodes WHERE uuid = 'x'",
            "data-changed: rows of nodes",
        ),
        (
            "INSERT INTO nodes (uuid) VALUES ('x')",
            "data-changed: rows of nodes",
        ),
        ("TRUNCATE nodes", "data-changed: rows of nodes"),
        (
            "DROP VIEW busy",
            "unknown-statement: no rule knows whether this is safe: DROP VIEW busy; if older services work on, say why",
        ),
        (
            "ALTER TABLE nodes DISABLE TRIGGER all",
            "unknown-statement: no rule knows whether this is safe: ALTER TABLE nodes DISABLE",
        ),
        (
            "REVOKE ALL ON nodes FROM somebody",
            "unknown-statement: no rule knows whether this is safe: REVOKE ALL",
        ),
    ] {
        only_finding(statement, said);
    }
}

#[test]
fn what_only_seems_to_be_safe_is_found() {
    for (statement, said) in [
        (
            "ALTER TABLE nodes ADD COLUMN c TEXT NOT NULL DEFAULT NULL",
            "column-required: nodes.c must be filled",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c TEXT NOT NULL DEFAULT (NULL::TEXT)",
            "column-required: nodes.c must be filled",
        ),
        (
            "ALTER TABLE nodes ALTER COLUMN name SET DEFAULT NULL",
            "default-dropped: nodes.name loses its default",
        ),
        // The second row that an older service writes has the same value.
        (
            "ALTER TABLE nodes ADD COLUMN u TEXT DEFAULT 'x' UNIQUE",
            "tightened: nodes.u is unique, and its default may be that of another row: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN u TEXT NOT NULL DEFAULT 'x' UNIQUE",
            "tightened: nodes.u is unique, and its default may be that of another row: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN id BIGINT PRIMARY KEY DEFAULT 1",
            "tightened: nodes.id is unique, and its default may be that of another row: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN id BIGINT DEFAULT (1 + 1) UNIQUE",
            "tightened: nodes.id is unique, and its default may be that of another row: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN small TEXT GENERATED ALWAYS AS (lower(name)) STORED UNIQUE",
            "tightened: nodes.small is unique, and its default may be that of another row: older",
        ),
        // A table of another schema is another one.
        (
            "CREATE TABLE x.nodes (a TEXT); DROP TABLE public.nodes",
            "table-dropped-early: public.nodes may not be dropped",
        ),
        (
            "CREATE TABLE x.nodes (a TEXT); UPDATE public.nodes SET a = 'x'",
            "data-changed: rows of nodes",
        ),
        (
            "CREATE TABLE x.nodes (a TEXT); INSERT INTO public.nodes VALUES ('x')",
            "data-changed: rows of nodes",
        ),
        (
            "CREATE TABLE x.nodes (a TEXT); ALTER TABLE public.nodes RENAME TO y",
            "renamed: nodes gets another name",
        ),
        (
            "CREATE TABLE x.nodes (a TEXT); DROP TABLE nodes",
            "table-dropped-early: nodes may not be dropped",
        ),
        (
            "CREATE TABLE nodes (a TEXT); SET search_path = x; DROP TABLE nodes",
            "table-dropped-early: nodes may not be dropped",
        ),
        (
            "CREATE TABLE nodes (a TEXT); DROP TABLE nodes; UPDATE nodes SET a = 'x'",
            "data-changed: rows of nodes",
        ),
        (
            "CREATE TABLE nodes (a TEXT); ALTER TABLE nodes RENAME TO y; UPDATE nodes SET a = 'x'",
            "data-changed: rows of nodes",
        ),
        (
            "CREATE OR REPLACE VIEW busy AS SELECT uuid FROM nodes",
            "unknown-statement: no rule knows whether this is safe: CREATE OR REPLACE VIEW busy",
        ),
        (
            "ALTER TABLE nodes DROP PRIMARY KEY",
            "unique-dropped: the primary key of nodes may be what keeps duplicates out",
        ),
        // Whatever asks for a constraint by its name asks for the old one.
        (
            "ALTER TABLE nodes RENAME CONSTRAINT nodes_pkey TO p",
            "renamed: the constraint nodes_pkey of nodes gets another name",
        ),
    ] {
        only_finding(statement, said);
    }
}

#[test]
fn each_statement_of_a_file_is_judged_in_its_line() {
    let report =
        judged("ALTER TABLE nodes\n  ADD COLUMN a TEXT;\n\nUPDATE nodes\n SET a = 1;\nDROP TABLE nodes;\n");
    let lines: Vec<(u64, &str)> = report
        .findings
        .iter()
        .map(|finding| (finding.line, finding.rule.as_str()))
        .collect();
    assert_eq!(lines, [(5, "data-changed"), (7, "table-dropped-early")]);
}

#[test]
fn what_cannot_be_parsed_is_told_in_its_line() {
    for (statement, line) in [
        ("ALTER TABLE", 2),
        ("SELECT 1;\n\nALTER TABLE\n  nodes;\nSELECT 2;", 4),
        ("SELECT 1;\nSELECT 'x", 3),
        ("SELECT 1;\nDROP INDEX CONCURRENTLY a b;", 3),
    ] {
        let report = judged(statement);
        let unparsable = |finding: &&Finding| finding.rule.as_str() == "unparsable";
        let found = report.findings.iter().find(unparsable).unwrap();
        assert_eq!(found.line, line, "{statement}");
    }
}

#[test]
fn what_cannot_be_parsed_is_not_safe() {
    for statement in [
        "ALTER TABLE",
        "ALTER TABLE nodes ADD COLUMN a TEXT b c",
        "frobnicate the nodes;",
        "SELECT 1; ALTER",
    ] {
        let found = findings(&judged(statement));
        assert!(
            found
                .iter()
                .any(|line| line.contains("unparsable") || line.contains("unknown-statement")),
            "{statement}: {found:?}"
        );
    }
}

/// A column goes three months and a named release after it was deprecated from the objects, and one more named release
/// later from the schema.
#[test]
fn a_column_is_dropped_in_its_time() {
    // Deprecated in 6.3, without it from `removed` on; pike and queens come after ocata.
    let drop_in = |release: &str, removed: &str| {
        let text = MANIFEST
            .replace("[unreleased]", LATER)
            .replace("rpc = \"1.40\"", "rpc = \"1.42\"");
        let text = text.replace("removed = \"master\"\n", removed);
        let manifest = Manifest::new(toml::from_str(&text).unwrap()).unwrap();
        let text = format!("-- release: {release}\nALTER TABLE nodes DROP COLUMN extra");
        findings(&lint(&[migration("1.sql", &text)], &manifest, None)).join("\n")
    };
    let early = "1.sql:2: column-dropped-early: nodes.extra may not be dropped: ";
    let said = drop_in("ocata", "");
    assert!(
        said.starts_with(&format!("{early}objects still have it;")),
        "{said}"
    );
    let removed = "removed = \"pike\"\n";
    let said = drop_in("ocata", removed);
    assert!(
        said.starts_with(&format!("{early}objects still have it;")),
        "{said}"
    );
    let said = drop_in("pike", removed);
    let one_more =
        format!("{early}it left the objects in pike, and one more named release has to be without it;");
    assert!(said.starts_with(&one_more), "{said}");
    assert_eq!(drop_in("queens", removed), "");
    assert_eq!(drop_in("unreleased", removed), "");
}

#[test]
fn each_file_says_which_release_brings_it() {
    let add = "ALTER TABLE nodes ADD COLUMN a TEXT;";
    let files = [
        migration("1.sql", &format!("-- the first\n\n--release: newton\n{add}")),
        migration("2.sql", add),
        migration("3.sql", &format!("-- release: newtown\n{add}")),
        migration("4.sql", &format!("-- release: 7.0\n{add}")),
        migration("5.sql", &format!("\n-- release: 6.3\n{add}")),
        migration("6.sql", &format!("{add}\n-- release: 7.0\n")),
    ];
    let found = findings(&lint(&files, &manifest(), None));
    assert_eq!(
        found,
        [
            "2.sql:1: release-missing: the file does not say which release brings it; start the file with `-- release: \
             X`, a release of the manifest",
            "3.sql:1: release-unknown: the manifest has no release \"newtown\"; start the file with `-- release: X`, a \
             release of the manifest",
            "5.sql:2: release-order: it is of 6.3, and the file before it is of ocata; name files in the order of their releases",
            "6.sql:1: release-missing: the file does not say which release brings it; start the file with `-- release: \
             X`, a release of the manifest",
        ]
    );
}

#[test]
fn only_what_came_since_a_release_is_judged_where_that_is_asked() {
    let files = [
        migration("1.sql", "-- release: newton\nDROP TABLE a"),
        migration("2.sql", "-- release: 6.3\nDROP TABLE b"),
        migration("3.sql", "-- release: ocata\nDROP TABLE c"),
    ];
    let since = |release: &str| {
        let place = manifest().find(release).unwrap().place;
        let report = lint(&files, &manifest(), Some(place));
        report
            .findings
            .iter()
            .map(|finding| finding.file.clone())
            .collect::<Vec<_>>()
    };
    let judged = |since: Option<&str>| {
        let place = since.map(|release| manifest().find(release).unwrap().place);
        lint(&files, &manifest(), place).judged
    };
    assert_eq!(judged(None), 3);
    assert_eq!(judged(Some("newton")), 2);
    assert_eq!(judged(Some("ocata")), 0);
    assert_eq!(lint(&files, &manifest(), None).findings.len(), 3);
    assert_eq!(since("newton"), ["2.sql", "3.sql"]);
    assert_eq!(since("6.3"), ["3.sql"]);
    assert_eq!(since("ocata"), [""; 0]);
}

#[test]
fn a_report_is_a_document() {
    let report = judged("ALTER TABLE nodes RENAME COLUMN a TO b; CREATE INDEX i ON nodes (b)");
    let document = serde_json::to_value(&report).unwrap();
    assert_eq!(
        document["findings"][0],
        serde_json::json!({"file": "0007.sql", "line": 2, "rule": "renamed", "what": "nodes.a"})
    );
    assert_eq!(document["locks"][0]["mode"], "SHARE");
    assert_eq!(document["locks"][0]["long"], true);
}
