//! Without a manifest each migration is the next release.

use stagger_versioned::lint::{Linter, Migration, Releases, Report};

use super::{findings, migration};

fn next(migrations: &[Migration], carried_out: usize) -> Report {
    let linter = Linter {
        releases: Releases::Undeclared { carried_out },
        dialect: None,
    };
    linter.judge(migrations)
}

#[test]
fn each_migration_is_judged_as_the_next_release() {
    let files = [
        migration("1.sql", "CREATE TABLE nodes (id INT PRIMARY KEY)"),
        migration(
            "2.sql",
            "ALTER TABLE nodes ADD COLUMN u TEXT; CREATE UNIQUE INDEX i ON nodes (u)",
        ),
        migration("3.sql", "ALTER TABLE nodes ADD COLUMN v TEXT"),
        // Services of the third know the column.
        migration("4.sql", "CREATE UNIQUE INDEX j ON nodes (v)"),
        migration("5.sql", "ALTER TABLE nodes DROP COLUMN u"),
    ];
    let report = next(&files, 0);
    assert_eq!(
        findings(&report),
        [
            "4.sql:1: tightened: a unique index on nodes: older services may write what it forbids; let the objects hold to it, \
             and tighten the schema one named release later, in a new table",
            "5.sql:1: column-dropped-early: nodes.u may not be dropped: there is no manifest that deprecates it; deprecate it, \
             remove it from the objects three months and a named release later, and drop it one more named release later",
        ]
    );
    assert_eq!(report.judged, 5);
    assert!(
        report
            .notes()
            .starts_with("## Locks of the schema upgrade to the next release, on PostgreSQL\n")
    );
}

/// What has been carried out is known, and not judged.
#[test]
fn what_has_been_carried_out_is_not_judged() {
    let files = [
        migration(
            "1.sql",
            "CREATE TABLE nodes (id INT); CREATE INDEX i ON nodes (id)",
        ),
        migration("2.sql", "DROP TABLE other"),
        migration("3.sql", "DROP INDEX i"),
    ];
    let report = next(&files, 2);
    assert_eq!((findings(&report), report.judged), (Vec::new(), 1));
    assert_eq!(next(&files, 1).findings.len(), 1);
}

/// One transaction goes through all revisions that `alembic upgrade --sql` prints.
#[test]
fn a_transaction_of_several_migrations_of_a_file_is_one() {
    let index = "\n\nCREATE INDEX CONCURRENTLY i ON nodes (a)";
    let files = [
        migration("a.sql", "BEGIN; CREATE TABLE t (a TEXT);"),
        migration("a.sql", index),
    ];
    let found = findings(&next(&files, 0));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("a.sql:3: in-transaction: "), "{found:?}");
    let files = [
        migration("a.sql", "BEGIN; CREATE TABLE t (a TEXT);"),
        migration("b.sql", index),
    ];
    assert_eq!(findings(&next(&files, 0)), [""; 0]);
    let whole = Migration {
        transaction: true,
        ..migration("c.sql", index)
    };
    assert_eq!(next(&[whole], 0).findings.len(), 1);
}
