//! Rows and what holds them: statements within others, what is dropped along, tables of other schemas, partitions.

use stagger_versioned::Manifest;

use super::{LATER, findings, judged, lint, migration, only_finding};
use crate::ironic::MANIFEST;

#[test]
fn what_changes_rows_is_found_within_other_statements() {
    for statement in [
        "CREATE TABLE arch AS WITH d AS (DELETE FROM nodes RETURNING *) SELECT * FROM d",
        "CREATE TABLE arch AS (WITH d AS MATERIALIZED (DELETE FROM nodes RETURNING *) SELECT * FROM d)",
        "CREATE TABLE arch AS WITH d AS (UPDATE nodes SET a = 1 RETURNING *) SELECT 1 UNION SELECT * FROM d",
        "CREATE TABLE arch AS WITH d AS (INSERT INTO nodes VALUES (1) RETURNING *) SELECT * FROM d",
        "CREATE MATERIALIZED VIEW arch AS WITH d AS (DELETE FROM nodes RETURNING *) SELECT * FROM d",
        "CREATE TABLE t (a TEXT); INSERT INTO t WITH d AS (DELETE FROM nodes RETURNING a) SELECT a FROM d",
        "MERGE INTO nodes USING x ON nodes.a = x.a WHEN MATCHED THEN DELETE",
    ] {
        only_finding(statement, "data-changed: rows of nodes are changed");
    }
    let found = findings(&judged(
        "WITH d AS (DELETE FROM nodes RETURNING *) SELECT * FROM d",
    ));
    assert!(found[0].contains("data-changed: rows of nodes"), "{found:?}");
    for statement in [
        "CREATE TABLE arch AS WITH d AS (SELECT * FROM nodes) SELECT * FROM d",
        "CREATE TABLE t (a TEXT); INSERT INTO t WITH d AS (SELECT a FROM nodes) SELECT a FROM d",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

#[test]
fn the_table_in_which_alembic_keeps_the_revision_may_be_written() {
    for statement in [
        "INSERT INTO alembic_version (version_num) VALUES ('a') RETURNING alembic_version.version_num",
        "UPDATE alembic_version SET version_num = 'b' WHERE alembic_version.version_num = 'a'",
        "DELETE FROM public.alembic_version WHERE alembic_version.version_num = 'b'",
        "ALTER TYPE state ADD VALUE IF NOT EXISTS 'broken' AFTER 'new'",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
    only_finding(
        "INSERT INTO alembic_version WITH d AS (DELETE FROM nodes RETURNING a) SELECT a FROM d",
        "data-changed: rows of nodes",
    );
}

/// `nodes.extra` may be dropped in queens.
fn droppable(statement: &str) -> Vec<String> {
    dropped_of("nodes", statement)
}

fn dropped_of(table: &str, statement: &str) -> Vec<String> {
    let text = MANIFEST
        .replace("[unreleased]", LATER)
        .replace("rpc = \"1.40\"", "rpc = \"1.42\"")
        .replace("removed = \"master\"", "removed = \"pike\"")
        .replace("table = \"nodes\"", &format!("table = \"{table}\""));
    let manifest = Manifest::new(toml::from_str(&text).unwrap()).unwrap();
    let text = format!("-- release: queens\n{statement}");
    findings(&lint(&[migration("1.sql", &text)], &manifest, None))
}

#[test]
fn what_depends_on_what_is_dropped_does_not_go_along() {
    assert_eq!(droppable("ALTER TABLE nodes DROP COLUMN extra RESTRICT"), [""; 0]);
    let said = "takes along what depends on it, such as views that older services read; leave out CASCADE; what depends on it is \
                dropped by its own name, once no service uses it";
    assert_eq!(
        droppable("ALTER TABLE nodes DROP COLUMN extra CASCADE"),
        [format!(
            "1.sql:2: cascade: DROP COLUMN nodes.extra CASCADE {said}"
        )]
    );
    for statement in [
        "CREATE INDEX i ON nodes (a); DROP INDEX i CASCADE",
        "ALTER TABLE nodes ADD CONSTRAINT c CHECK (NULL); ALTER TABLE nodes DROP CONSTRAINT c CASCADE",
        "CREATE TABLE t (a TEXT); TRUNCATE t CASCADE",
    ] {
        only_finding(statement, "cascade: ");
    }
    let found = findings(&judged("DROP TABLE nodes CASCADE"));
    assert!(
        found
            .iter()
            .any(|line| line.contains("cascade: DROP TABLE nodes CASCADE")),
        "{found:?}"
    );
    assert_eq!(
        findings(&judged("CREATE TABLE t (a TEXT); DROP TABLE t CASCADE")),
        [""; 0]
    );
}

#[test]
fn a_table_of_another_schema_is_another_one() {
    assert_eq!(droppable("ALTER TABLE nodes DROP COLUMN extra"), [""; 0]);
    for statement in [
        "ALTER TABLE billing.nodes DROP COLUMN extra",
        "SET search_path = billing; ALTER TABLE nodes DROP COLUMN extra",
    ] {
        let found = droppable(statement);
        assert_eq!(found.len(), 1, "{statement}: {found:?}");
        assert!(found[0].contains("column-dropped-early"), "{found:?}");
    }
    let statement = "SET search_path = x; ALTER TABLE Billing.nodes DROP COLUMN extra";
    assert_eq!(dropped_of("billing.nodes", statement), [""; 0]);
}

#[test]
fn a_part_of_a_table_is_judged_as_the_table() {
    for (statement, said) in [
        (
            "CREATE TABLE p PARTITION OF nodes FOR VALUES IN (1); ALTER TABLE p ALTER COLUMN a SET NOT NULL",
            "tightened: p.a must be filled",
        ),
        (
            "CREATE TABLE p PARTITION OF nodes FOR VALUES IN (1); DELETE FROM p",
            "data-changed: rows of p",
        ),
        (
            "CREATE TABLE p (b TEXT) INHERITS (nodes); CREATE UNIQUE INDEX i ON p (a)",
            "tightened: a unique index on p",
        ),
        (
            "CREATE TABLE p PARTITION OF nodes (CHECK (a > 0)) FOR VALUES IN (1)",
            "tightened: a constraint of p, which is a partition of nodes: older",
        ),
    ] {
        only_finding(statement, said);
    }
    let locks = |statement: &str| -> Vec<String> {
        let report = judged(statement);
        assert_eq!(findings(&report), [""; 0], "{statement}");
        report.locks.iter().map(|taken| taken.lock.to_string()).collect()
    };
    assert_eq!(
        locks("CREATE TABLE p PARTITION OF nodes FOR VALUES IN (1)"),
        ["`nodes`: making its partition p takes ACCESS EXCLUSIVE: no reads or writes for an instant"]
    );
    // PostgreSQL takes SHARE UPDATE EXCLUSIVE: all read and write.
    assert_eq!(locks("CREATE TABLE p (b TEXT) INHERITS (nodes)"), [""; 0]);
    assert_eq!(
        locks(
            "CREATE TABLE t (a TEXT) PARTITION BY LIST (a); CREATE TABLE p PARTITION OF t FOR VALUES IN (1); \
             ALTER TABLE p ALTER COLUMN a SET NOT NULL"
        ),
        [""; 0]
    );
}
