//! Types, indexes, settings, partitions, and what only adds.

use super::{findings, judged, only_finding};

/// A domain may refuse NULL, and what it refuses fails in each row that an older service writes.
#[test]
fn a_new_column_has_a_type_that_takes_what_older_services_leave() {
    for (statement, said) in [
        (
            "CREATE DOMAIN code AS TEXT CHECK (VALUE IS NOT NULL); ALTER TABLE nodes ADD COLUMN c code",
            "tightened: nodes.c is of the type code, a domain that may refuse what older services leave in it: older",
        ),
        (
            "CREATE DOMAIN code AS TEXT CHECK (coalesce(VALUE, '') <> ''); ALTER TABLE nodes ADD COLUMN c code",
            "tightened: nodes.c is of the type code, a domain that",
        ),
        (
            "CREATE DOMAIN code AS INT CHECK (VALUE > 3); ALTER TABLE nodes ADD COLUMN c code NOT NULL DEFAULT 3",
            "tightened: nodes.c is of the type code, a domain that",
        ),
        (
            "CREATE DOMAIN code AS INT CHECK (of_ours(VALUE)); ALTER TABLE nodes ADD COLUMN c code",
            "tightened: nodes.c is of the type code, a domain that",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c code",
            "tightened: nodes.c is of the type code, which may be a domain that refuses NULL: older",
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c INT DEFAULT of_ours()",
            "tightened: the default of nodes.c, of_ours(), which may fail: older",
        ),
    ] {
        only_finding(statement, said);
    }
    for statement in [
        "CREATE DOMAIN code AS TEXT CHECK (VALUE <> ''); ALTER TABLE nodes ADD COLUMN c code",
        "CREATE DOMAIN code AS INT DEFAULT 4 CHECK (VALUE > 3); ALTER TABLE nodes ADD COLUMN c code",
        "CREATE DOMAIN code AS INT CHECK (VALUE > 3); ALTER TABLE nodes ADD COLUMN c code NOT NULL DEFAULT 4",
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); ALTER TABLE nodes ADD COLUMN c mood",
        "ALTER TABLE nodes ADD COLUMN c tsvector, ADD COLUMN d citext, ADD COLUMN e int4range, ADD COLUMN f UUID[]",
        "ALTER TABLE nodes ADD COLUMN c TIMESTAMPTZ DEFAULT now() + INTERVAL '1 day', ADD COLUMN d JSONB DEFAULT '{}'",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

/// An older service leaves the column out, and gets the default.
#[test]
fn a_default_is_one_that_the_column_takes() {
    let table = "CREATE TABLE IF NOT EXISTS t (a INT)";
    assert_eq!(findings(&judged(table)), [""; 0]);
    let set = |column: &str, value: &str| {
        let first = "-- release: newton\nCREATE TABLE t (id INT PRIMARY KEY, u TEXT UNIQUE, c INT CHECK (c > 0), v VARCHAR(3), \
                     s SMALLINT, o TEXT, x TEXT REFERENCES chassis (uuid))";
        let next = format!("-- release: ocata\nALTER TABLE t ALTER COLUMN {column} SET DEFAULT {value}");
        let since = crate::ironic::manifest().find("newton").unwrap().place;
        let files = [super::migration("1.sql", first), super::migration("2.sql", &next)];
        findings(&super::lint(&files, &crate::ironic::manifest(), Some(since)))
    };
    for (column, value) in [
        ("u", "'x'"),
        ("c", "-1"),
        ("v", "'long'"),
        ("s", "40000"),
        ("x", "'y'"),
        ("o", "of_ours()"),
    ] {
        let found = set(column, value);
        assert_eq!(found.len(), 1, "{column} {value}: {found:?}");
        assert!(
            found[0].contains(&format!("tightened: the default of t.{column}, which ")),
            "{found:?}"
        );
    }
    for (column, value) in [
        ("v", "'abc'"),
        ("s", "-4"),
        ("o", "'anything'"),
        ("u", "gen_random_uuid()"),
        ("o", "now()"),
    ] {
        assert_eq!(set(column, value), [""; 0], "{column} {value}");
    }
}

/// The expression is computed of each row that an older service writes.
#[test]
fn an_index_computes_nothing_that_may_fail() {
    for statement in [
        "CREATE INDEX i ON nodes ((name::int))",
        "CREATE INDEX i ON nodes ((1 / size))",
        "CREATE INDEX CONCURRENTLY i ON nodes ((a + b))",
        "CREATE INDEX i ON nodes (of_ours(name))",
        "CREATE INDEX i ON nodes (name) WHERE 1 / size > 3",
        "CREATE INDEX i ON nodes USING gin (to_tsvector('english', name))",
    ] {
        only_finding(statement, "tightened: the index i of nodes computes ");
    }
    for statement in [
        "CREATE INDEX i ON nodes (lower(name))",
        "CREATE INDEX i ON nodes (name DESC NULLS LAST, size)",
        "CREATE INDEX i ON nodes ((coalesce(name, 'x')))",
        "CREATE INDEX i ON nodes (name COLLATE \"C\")",
        "CREATE INDEX i ON nodes ((facts ->> 'rack'))",
        "CREATE INDEX i ON nodes ((facts -> 'a' ->> 'rack'))",
        "CREATE INDEX i ON nodes ((size::text))",
        "CREATE INDEX i ON nodes USING gin (facts)",
        "CREATE INDEX i ON nodes (name) WHERE deleted_at IS NULL AND size > 3",
        // All rows of older services are empty in it.
        "ALTER TABLE nodes ADD COLUMN u TEXT; CREATE INDEX i ON nodes ((u::int))",
        "CREATE TABLE t (a TEXT); CREATE INDEX i ON t ((a::int))",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

#[test]
fn what_is_refused_in_a_transaction_does_not_stand_in_one() {
    for (statement, what) in [
        (
            "BEGIN; CREATE INDEX CONCURRENTLY i ON nodes (a); COMMIT;",
            "CREATE INDEX CONCURRENTLY",
        ),
        (
            "START TRANSACTION; CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON nodes (a); END;",
            "CREATE INDEX CONCURRENTLY",
        ),
        (
            "CREATE INDEX i ON nodes (a); BEGIN; DROP INDEX CONCURRENTLY i; COMMIT;",
            "DROP INDEX CONCURRENTLY",
        ),
    ] {
        let said =
            format!("in-transaction: {what} is refused within a transaction; put it into a file of its own");
        only_finding(statement, &said);
    }
    for statement in [
        "CREATE INDEX CONCURRENTLY i ON nodes (a); BEGIN; COMMIT;",
        "BEGIN; ALTER TABLE nodes ADD COLUMN a TEXT; COMMIT; CREATE INDEX CONCURRENTLY i ON nodes (a);",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

#[test]
fn settings_are_those_of_the_connection() {
    for statement in [
        "SET GLOBAL read_only = 1",
        "SET PASSWORD = 'x'",
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA schema_version = 4",
    ] {
        only_finding(
            statement,
            "unknown-statement: no rule knows whether this is safe: ",
        );
    }
    // sqlparser may not know these.
    for statement in ["SET @@global.read_only = ON", "SET PERSIST max_connections = 1"] {
        let found = findings(&judged(statement));
        assert_eq!(found.len(), 1, "{statement}: {found:?}");
    }
    for statement in [
        "SET lock_timeout = '2s'",
        "SET LOCAL statement_timeout TO 0",
        "SET SESSION foreign_key_checks = 0",
        "SET NAMES utf8mb4",
        "SET search_path TO DEFAULT",
        "PRAGMA foreign_keys = ON",
        "PRAGMA foreign_keys=off; PRAGMA main.foreign_keys(1)",
        "PRAGMA journal_mode = WAL",
        "PRAGMA cache_size = -2000",
        "PRAGMA defer_foreign_keys = TRUE; PRAGMA foreign_key_check; PRAGMA user_version = 7",
        "PRAGMA synchronous = NORMAL",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

#[test]
fn partitions_are_attached_and_detached() {
    let attach = "ALTER TABLE nodes ATTACH PARTITION p FOR VALUES FROM ('a') TO ('b')";
    for statement in [
        format!("CREATE TABLE p (LIKE nodes); {attach}"),
        format!("CREATE TABLE p (a TEXT, b INT DEFAULT 3); {attach}"),
        "CREATE TABLE p (a TEXT); ALTER TABLE ONLY nodes ATTACH PARTITION p DEFAULT".to_owned(),
        "CREATE TABLE t (a TEXT) PARTITION BY LIST (a); CREATE TABLE p (a TEXT NOT NULL); \
         ALTER TABLE t ATTACH PARTITION p FOR VALUES IN ('x'); ALTER TABLE t DETACH PARTITION p"
            .to_owned(),
    ] {
        let report = judged(&statement);
        assert_eq!(findings(&report), [""; 0], "{statement}");
    }
    let said = "tightened: p, which becomes a partition of nodes, with its constraints and its bounds: older";
    only_finding(attach, said);
    only_finding(&format!("CREATE TABLE p (a TEXT NOT NULL); {attach}"), said);
    only_finding(
        &format!("CREATE TABLE p (a TEXT, CHECK (a > '')); {attach}"),
        said,
    );
    only_finding(
        &format!("CREATE TABLE p (a TEXT); ALTER TABLE p ADD CONSTRAINT c UNIQUE (a); {attach}"),
        said,
    );
    // It is a part of the old table since.
    only_finding(
        &format!("CREATE TABLE p (a TEXT); {attach}; DELETE FROM p"),
        "data-changed: rows of p",
    );
    only_finding(
        "ALTER TABLE nodes DETACH PARTITION p CONCURRENTLY",
        "partition-detached: rows of p are no longer in nodes, where older services read and write them; detach it when",
    );
    only_finding(
        "ALTER TABLE nodes DETACH PARTITION p; ",
        "partition-detached: rows of p",
    );
}

#[test]
fn grants_and_new_functions_are_permitted() {
    for statement in [
        "GRANT SELECT ON nodes TO reports",
        "GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA public TO reports",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO reports",
        "CREATE ROLE reports",
        "CREATE FUNCTION f() RETURNS INT LANGUAGE sql AS $$ SELECT 1 $$",
        "CREATE FUNCTION f() RETURNS INT BEGIN ATOMIC; SELECT CASE WHEN a THEN 1 END; SELECT 2; END;",
        "CREATE FUNCTION f() RETURNS INT LANGUAGE sql AS 'SELECT 1'; \
         CREATE OR REPLACE FUNCTION f() RETURNS INT LANGUAGE sql AS 'SELECT 2'",
        "CREATE TABLE t (a TEXT); CREATE FUNCTION f() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; \
         CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
    for statement in [
        "CREATE OR REPLACE FUNCTION f() RETURNS INT LANGUAGE sql AS $$ SELECT 1 $$",
        "CREATE TRIGGER g BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION f()",
        "REVOKE SELECT ON nodes FROM reports",
    ] {
        only_finding(statement, "unknown-statement: ");
    }
}
