//! The schema of a store in a file, and how it is brought up.

use rusqlite::{Connection, params};

use super::transaction;

/// The schema, revision by revision.
const REVISIONS: [&str; 3] = [
    include_str!("../../schema/sqlite/0001-journal.sql"),
    include_str!("../../schema/sqlite/0002-versions.sql"),
    include_str!("../../schema/sqlite/0003-presence.sql"),
];

/// What keeps rows from being changed, for the newest revision.
const GUARDS: &str = include_str!("../../schema/sqlite/guards");

/// The lowest revision that a program must know to work on the newest. It stands in `user_version`, and a program that
/// does not know so much refuses the file.
const SERVES_FROM: i64 = 1;

/// Brings the schema to the newest revision, all of it or nothing; at which it was.
pub(super) fn upgrade(on: &mut Connection) -> Result<usize, rusqlite::Error> {
    let was = revision(on)?;
    if was >= REVISIONS.len() {
        return Ok(was);
    }
    let on = transaction(on)?;
    // Another may have done it meanwhile.
    let found = revision(&on)?;
    for step in REVISIONS.iter().skip(found) {
        on.execute_batch(step)?;
    }
    if found < REVISIONS.len() {
        on.execute_batch(GUARDS)?;
        on.execute("delete from schema_revision", [])?;
        on.execute(
            "insert into schema_revision (revision, serves_from) values (?1, ?2)",
            params![newest(), SERVES_FROM],
        )?;
        on.pragma_update(None, "user_version", SERVES_FROM)?;
    }
    on.commit()?;
    Ok(was)
}

/// The newest revision.
pub(crate) fn newest() -> i64 {
    i64::try_from(REVISIONS.len()).unwrap_or(i64::MAX)
}

/// Which revision the schema is at; 0: there is none.
fn revision(on: &Connection) -> Result<usize, rusqlite::Error> {
    let has = |table: &str| -> Result<bool, rusqlite::Error> {
        on.query_row(
            "select count(*) from sqlite_master where type = 'table' and name = ?1",
            [table],
            |row| row.get::<_, i64>(0),
        )
        .map(|count| count > 0)
    };
    if has("schema_revision")? {
        let revision: i64 = on.query_row("select revision from schema_revision", [], |row| row.get(0))?;
        return Ok(usize::try_from(revision).unwrap_or_default());
    }
    // Before there was a table for it there was one revision.
    Ok(usize::from(has("journal")?))
}
