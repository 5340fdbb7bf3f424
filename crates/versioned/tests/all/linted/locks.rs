//! What locks tables, and how it is announced.

use super::{judged, lint, migration};
use crate::ironic::manifest;

/// What keeps others from a table on PostgreSQL, and for how long. By its documentation.
#[test]
fn locks_are_named() {
    for (statement, locks) in [
        ("CREATE TABLE t (a TEXT)", &[][..]),
        ("CREATE INDEX CONCURRENTLY i ON nodes (a)", &[]),
        ("DROP INDEX CONCURRENTLY by_rack", &[]),
        ("drop index concurrently if exists x.by_rack;", &[]),
        ("ALTER TABLE nodes VALIDATE CONSTRAINT c", &[]),
        (
            "ALTER TABLE nodes ADD COLUMN a TEXT",
            &["`nodes`: adding the column a takes ACCESS EXCLUSIVE: no reads or writes for an instant"],
        ),
        (
            "ALTER TABLE nodes ADD COLUMN a INTEGER NOT NULL DEFAULT -1",
            &["`nodes`: adding the column a takes ACCESS EXCLUSIVE: no reads or writes for an instant"],
        ),
        (
            "ALTER TABLE nodes ADD COLUMN a UUID DEFAULT gen_random_uuid()",
            &[
                "`nodes`: adding the column a takes ACCESS EXCLUSIVE: no reads or writes while all its rows are gone \
                 through; add it without the default, set the default after that, and let an online migration fill it",
            ],
        ),
        (
            "ALTER TABLE nodes ADD COLUMN n BIGSERIAL",
            &[
                "`nodes`: adding the column n takes ACCESS EXCLUSIVE: no reads or writes while all its rows are gone \
                 through; add it without the default, set the default after that, and let an online migration fill it",
            ],
        ),
        (
            "CREATE INDEX i ON nodes (a)",
            &[
                "`nodes`: creating the index i takes SHARE: no writes while all its rows are gone through; CREATE INDEX \
                 CONCURRENTLY, outside of a transaction",
            ],
        ),
        (
            "CREATE TABLE ports (id TEXT, node TEXT REFERENCES nodes (uuid), FOREIGN KEY (id) REFERENCES chassis (uuid))",
            &[
                "`nodes`: making ports with a foreign key to it takes SHARE ROW EXCLUSIVE: no writes for an instant",
                "`chassis`: making ports with a foreign key to it takes SHARE ROW EXCLUSIVE: no writes for an instant",
            ],
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c TEXT REFERENCES chassis (uuid)",
            &[
                "`nodes`: adding the column c takes ACCESS EXCLUSIVE: no reads or writes for an instant",
                "`chassis`: adding the column c of nodes with a foreign key takes SHARE ROW EXCLUSIVE: no writes for an \
                 instant",
            ],
        ),
        (
            "ALTER TABLE nodes ADD COLUMN c TEXT DEFAULT 'x' REFERENCES chassis (uuid)",
            &[
                "`nodes`: adding the column c takes ACCESS EXCLUSIVE: no reads or writes for an instant",
                "`chassis`: adding the column c of nodes with a foreign key takes SHARE ROW EXCLUSIVE: no writes while \
                 all its rows are gone through; add the column without a default, and fill it by an online migration",
            ],
        ),
        (
            "DROP INDEX by_rack",
            &[
                "`by_rack`: dropping this index, on its table, takes ACCESS EXCLUSIVE: no reads or writes for an instant",
            ],
        ),
        (
            "ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES chassis (uuid)",
            &[
                "`nodes`: adding a foreign key takes SHARE ROW EXCLUSIVE: no writes while all its rows are gone through; \
                 add it NOT VALID, and validate it in a migration of its own",
                "`chassis`: adding a foreign key of nodes takes SHARE ROW EXCLUSIVE: no writes while all its rows are \
                 gone through; add it NOT VALID, and validate it in a migration of its own",
            ],
        ),
        (
            "ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES chassis (uuid) NOT VALID",
            &[
                "`nodes`: adding a foreign key takes SHARE ROW EXCLUSIVE: no writes for an instant",
                "`chassis`: adding a foreign key of nodes takes SHARE ROW EXCLUSIVE: no writes for an instant",
            ],
        ),
    ] {
        let report = judged(statement);
        let found: Vec<String> = report.locks.iter().map(|taken| taken.lock.to_string()).collect();
        assert_eq!(found, locks, "{statement}");
    }
}

#[test]
fn release_notes_announce_the_locks() {
    let files = [
        migration(
            "1.sql",
            "-- release: 6.3\nALTER TABLE nodes ADD COLUMN fake JSONB;\nCREATE INDEX i ON nodes (fake);",
        ),
        migration("2.sql", "-- release: ocata\nCREATE TABLE ports (address TEXT);"),
        migration(
            "3.sql",
            "-- release: ocata\nALTER TABLE traits ADD COLUMN note TEXT;",
        ),
    ];
    assert_eq!(
        lint(&files, &manifest(), None).notes(),
        "## Locks of the schema upgrade to 6.3, on PostgreSQL\n\n- `nodes`: adding the column fake takes ACCESS \
         EXCLUSIVE: no reads or writes for an instant (`1.sql`)\n- `nodes`: creating the index i takes SHARE: no writes \
         while all its rows are gone through; CREATE INDEX CONCURRENTLY, outside of a transaction (`1.sql`)\n\n## Locks \
         of the schema upgrade to ocata, on PostgreSQL\n\n- `traits`: adding the column note takes ACCESS EXCLUSIVE: no \
         reads or writes for an instant (`3.sql`)"
    );
    assert_eq!(judged("CREATE TABLE t (a TEXT)").notes(), "");
}
