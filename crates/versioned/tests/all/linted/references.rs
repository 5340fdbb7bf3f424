//! Foreign keys: what they refuse of older services, in both tables.

use super::{findings, judged, only_finding};

fn words(statement: &str) -> Vec<String> {
    let report = judged(statement);
    let words = report.findings.iter().map(|found| found.rule.as_str().to_owned());
    words.collect()
}

/// Rows without a partner are refused, and the partner cannot be deleted, validated or not.
#[test]
fn a_foreign_key_between_old_tables_refuses_rows_of_older_services() {
    for end in ["", " NOT VALID"] {
        let key = "ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (chassis) REFERENCES chassis (uuid)";
        let statement = format!("{key}{end}");
        assert_eq!(words(&statement), ["tightened", "foreign-key"], "{statement}");
        let statement = format!("{key} ON DELETE CASCADE{end}");
        only_finding(&statement, "tightened: a foreign key of nodes to chassis: older");
    }
    // A default is written by older services too.
    only_finding(
        "ALTER TABLE nodes ADD COLUMN c TEXT DEFAULT 'x' REFERENCES chassis (uuid) ON DELETE SET NULL",
        "tightened: a foreign key of nodes to chassis: older",
    );
}

/// Newer services fill the new table, and older ones delete what its rows refer to.
#[test]
fn what_refers_to_an_old_table_lets_older_services_delete() {
    let refused =
        "foreign-key: older services cannot delete a row of nodes while a row of ports refers to it; add";
    for statement in [
        "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid))",
        "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid) ON DELETE RESTRICT)",
        "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid) ON DELETE SET DEFAULT)",
        "CREATE TABLE ports (node TEXT NOT NULL REFERENCES nodes (uuid) ON DELETE SET NULL)",
        "CREATE TABLE ports (node TEXT PRIMARY KEY, FOREIGN KEY (node) REFERENCES nodes ON DELETE SET NULL)",
        "CREATE TABLE ports (node TEXT, CONSTRAINT f FOREIGN KEY (node) REFERENCES nodes (uuid) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE ports (node TEXT); ALTER TABLE ports ADD CONSTRAINT f FOREIGN KEY (node) REFERENCES nodes (uuid)",
        "CREATE TABLE ports (a TEXT); ALTER TABLE ports ADD COLUMN node TEXT REFERENCES nodes",
    ] {
        only_finding(statement, refused);
    }
    only_finding(
        "ALTER TABLE nodes ADD COLUMN c TEXT REFERENCES chassis (uuid)",
        "foreign-key: older services cannot delete a row of chassis while a row of nodes refers to it",
    );
    only_finding(
        "ALTER TABLE nodes ADD COLUMN parent TEXT REFERENCES nodes (uuid)",
        "foreign-key: older services cannot delete a row of nodes while a row of nodes refers to it",
    );
    for statement in [
        "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid) ON DELETE CASCADE)",
        "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid) ON DELETE SET NULL)",
        "CREATE TABLE ports (node TEXT NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE)",
        "CREATE TABLE t (a TEXT PRIMARY KEY); CREATE TABLE ports (t TEXT REFERENCES t (a))",
        "CREATE TABLE t (a TEXT PRIMARY KEY, b TEXT REFERENCES t)",
        "ALTER TABLE nodes ADD COLUMN c TEXT REFERENCES chassis (uuid) ON DELETE SET NULL",
        "CREATE TABLE t (a TEXT PRIMARY KEY); ALTER TABLE nodes ADD COLUMN c TEXT REFERENCES t (a)",
        "ALTER TABLE nodes ADD COLUMN c TEXT; ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES chassis (uuid) \
         ON DELETE CASCADE NOT VALID",
    ] {
        assert_eq!(findings(&judged(statement)), [""; 0], "{statement}");
    }
}

/// What goes along is refused by what refers to that.
#[test]
fn a_cascade_is_not_stopped_by_another_new_table() {
    let ports =
        "CREATE TABLE ports (id TEXT PRIMARY KEY, node TEXT REFERENCES nodes (uuid) ON DELETE CASCADE)";
    let said = "foreign-key: older services cannot delete a row of ports while a row of links refers to it";
    only_finding(
        &format!("{ports}; CREATE TABLE links (port TEXT REFERENCES ports (id))"),
        said,
    );
    only_finding(
        "CREATE TABLE ports (id TEXT PRIMARY KEY, node TEXT); CREATE TABLE links (port TEXT REFERENCES ports (id)); \
         ALTER TABLE ports ADD CONSTRAINT f FOREIGN KEY (node) REFERENCES nodes (uuid) ON DELETE CASCADE",
        said,
    );
    let cascade = format!("{ports}; CREATE TABLE links (port TEXT REFERENCES ports (id) ON DELETE CASCADE)");
    assert_eq!(findings(&judged(&cascade)), [""; 0]);
}

/// A key that is not the primary one may be changed.
#[test]
fn a_key_that_may_change_is_changed_with_it() {
    let table = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT UNIQUE)";
    let refer = |column: &str, end: &str| {
        let text = format!("-- release: newton\n{table};");
        let next = format!(
            "-- release: ocata\nCREATE TABLE p (c TEXT REFERENCES t ({column}) ON DELETE CASCADE{end})"
        );
        let files = [super::migration("1.sql", &text), super::migration("2.sql", &next)];
        findings(&super::lint(&files, &crate::ironic::manifest(), None))
    };
    assert_eq!(refer("id", ""), [""; 0]);
    assert_eq!(refer("name", " ON UPDATE CASCADE"), [""; 0]);
    let found = refer("name", "");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains(
            "foreign-key: older services cannot change the key of a row of t while a row of p refers to it"
        ),
        "{found:?}"
    );
}
