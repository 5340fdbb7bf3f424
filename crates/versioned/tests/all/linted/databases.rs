//! The linter, judged by databases: migrations of every rule are carried out, and what older services do fails or does not.

mod migrations;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use migrations::{Made, Numbers};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _};
use stagger_versioned::lint::{Dialect, Linter, Mode, Releases, Report};

use super::migration;
use crate::server::Server;

/// What the services of the release before have: the first migration.
const POSTGRES: &str = "\
CREATE TABLE racks (id INT PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE nodes (id INT PRIMARY KEY, name TEXT NOT NULL CONSTRAINT nodes_name_key UNIQUE, size INT, note TEXT DEFAULT 'none', \
 rack INT, version VARCHAR(15), facts JSONB);
CREATE VIEW busy AS SELECT id FROM nodes;
CREATE TABLE events (at INT NOT NULL, said TEXT) PARTITION BY RANGE (at);
CREATE TABLE events_0 PARTITION OF events FOR VALUES FROM (0) TO (100);
CREATE FUNCTION label(name TEXT) RETURNS TEXT LANGUAGE sql AS $$ SELECT name $$;
";

const SQLITE: &str = "\
CREATE TABLE racks (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL CONSTRAINT nodes_name_key UNIQUE, size INT, note TEXT DEFAULT 'none', \
 rack INT, version VARCHAR(15), facts TEXT);
CREATE VIEW busy AS SELECT id FROM nodes;
";

/// Rows that are there.
const ROWS: &[&str] = &[
    "INSERT INTO racks (id, name) VALUES (1, 'one'), (2, 'two')",
    "INSERT INTO nodes (id, name, size, note, rack, version) VALUES (1, 'a', 1, 'x', 1, '1.0'), (2, 'b', 1, 'x', 1, '1.0')",
];

/// What older services do, and what that answers where it is asked: statements that do not fail.
const OLDER: &[(&str, Option<&str>)] = &[
    (
        "INSERT INTO nodes (id, name, size, note, rack, version) VALUES (10, 'abc', 0, NULL, NULL, NULL)",
        None,
    ),
    ("INSERT INTO nodes (id, name) VALUES (11, 'x y')", None),
    (
        "SELECT CAST(count(*) AS TEXT) FROM nodes WHERE id = 11 AND note IS NOT NULL",
        Some("1"),
    ),
    ("INSERT INTO nodes (id, name) VALUES (12, '')", None),
    (
        "INSERT INTO nodes (id, name, size, note, rack, version) VALUES (13, 'a name that is longer than most', 2147483647, 'x', 1, 'a')",
        None,
    ),
    (
        "INSERT INTO nodes (id, name, size, note, rack, version) VALUES (14, 'm', -5, 'x', 7, '1.0')",
        None,
    ),
    (
        "INSERT INTO nodes (id, name, size, note, rack, version) VALUES (15, 'n', -5, 'x', 7, '1.0')",
        None,
    ),
    (
        "INSERT INTO nodes (id, name, facts) VALUES (18, 'o', '{\"rack\": 3}')",
        None,
    ),
    (
        "INSERT INTO nodes (id, name) VALUES (10, 'p') ON CONFLICT (id) DO NOTHING",
        None,
    ),
    (
        "INSERT INTO nodes (id, name) VALUES (16, 'abc') ON CONFLICT (name) DO UPDATE SET size = 3",
        None,
    ),
    (
        "UPDATE nodes SET name = 'A', size = 0, note = NULL, rack = NULL WHERE id = 1",
        None,
    ),
    ("UPDATE nodes SET version = NULL", None),
    (
        "SELECT CAST(count(*) AS TEXT) FROM (SELECT id, name, size, note, rack, version, facts FROM nodes) AS n",
        Some("9"),
    ),
    ("SELECT CAST(count(*) AS TEXT) FROM busy WHERE id < 3", Some("2")),
    ("INSERT INTO racks (id, name) VALUES (9, 'nine')", None),
    ("INSERT INTO racks (id) VALUES (8)", None),
    ("UPDATE racks SET name = 'zwei' WHERE id = 2", None),
    ("DELETE FROM nodes WHERE id = 2", None),
    ("DELETE FROM racks WHERE id = 1", None),
    (
        "SELECT CAST(count(*) AS TEXT) FROM (SELECT id, name FROM racks) AS r",
        Some("3"),
    ),
];

const OLDER_POSTGRES: &[(&str, Option<&str>)] = &[
    (
        "INSERT INTO events (at, said) VALUES (50, 'x'), (50, 'x'), (99, NULL)",
        None,
    ),
    (
        "SELECT CAST(count(*) AS TEXT) FROM events WHERE at < 100",
        Some("3"),
    ),
    ("SELECT max(label(name)) FROM nodes WHERE id = 11", Some("x y")),
];

/// Rows as older services read them.
const READ: &str = "SELECT id || ':' || name || ':' || coalesce(CAST(size AS TEXT), '-') || ':' || coalesce(note, '-') || ':' || \
                    coalesce(CAST(rack AS TEXT), '-') || ':' || coalesce(version, '-') FROM nodes ORDER BY id";

/// Locks that keep others from tables of before, of this transaction.
const LOCKS: &str = "SELECT c.relname || ' ' || l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                     WHERE l.pid = pg_backend_pid() AND c.relkind IN ('r', 'p') AND c.relname IN ('nodes', 'racks', 'events') \
                     AND c.relnamespace = 'public'::regnamespace \
                     AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'AccessExclusiveLock')";

async fn read(connection: &mut AnyConnection, sql: &str) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql.to_owned()));
    rows.fetch_all(connection).await
}

async fn run(connection: &mut AnyConnection, sql: &str) -> Result<(), sqlx::Error> {
    let statements = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    statements.execute(connection).await.map(drop)
}

/// What fails of what older services do, after a migration; and the locks it took, on PostgreSQL.
async fn carried_out(
    connection: &mut AnyConnection,
    dialect: Dialect,
    made: &Made,
) -> (Vec<String>, BTreeSet<String>) {
    let mut failed = Vec::new();
    for row in ROWS {
        run(connection, row).await.unwrap();
    }
    let before = read(connection, READ).await.unwrap();
    run(connection, "SAVEPOINT migration").await.unwrap();
    if let Err(error) = run(connection, &made.carried_out).await {
        return (vec![format!("the migration: {error}")], BTreeSet::new());
    }
    let mut locks = BTreeSet::new();
    if dialect == Dialect::PostgreSql {
        locks.extend(read(connection, LOCKS).await.unwrap());
        // From now on it is the role of the services.
        run(connection, "SET LOCAL ROLE services").await.unwrap();
    }
    run(connection, "SAVEPOINT one").await.unwrap();
    match read(connection, READ).await {
        Ok(after) if after == before => {}
        Ok(_) => failed.push("rows are others".to_owned()),
        Err(error) => failed.push(format!("reading: {error}")),
    }
    run(connection, "ROLLBACK TO SAVEPOINT one").await.unwrap();
    for newer in &made.newer {
        // What newer services write: as owners, since grants for new tables are not what is tried.
        if dialect == Dialect::PostgreSql {
            run(connection, "RESET ROLE").await.unwrap();
        }
        run(connection, newer)
            .await
            .unwrap_or_else(|error| panic!("{made:?}: {newer}: {error}"));
        if dialect == Dialect::PostgreSql {
            run(connection, "SET LOCAL ROLE services").await.unwrap();
        }
    }
    let more = if dialect == Dialect::PostgreSql {
        OLDER_POSTGRES
    } else {
        &[]
    };
    for (statement, answer) in OLDER.iter().chain(more) {
        run(connection, "SAVEPOINT one").await.unwrap();
        let done = match answer {
            None => run(connection, statement).await.map(|()| None),
            Some(_) => read(connection, statement)
                .await
                .map(|rows| rows.into_iter().next()),
        };
        match done {
            Ok(answered) if answered.as_deref() == *answer => {}
            Ok(answered) => failed.push(format!("{statement}: {answered:?}")),
            Err(error) => {
                failed.push(format!("{statement}: {error}"));
                run(connection, "ROLLBACK TO SAVEPOINT one").await.unwrap();
            }
        }
    }
    (failed, locks)
}

fn judged(dialect: Dialect, old: &str, text: &str) -> Report {
    let linter = Linter {
        releases: Releases::Undeclared { carried_out: 1 },
        dialect: Some(dialect),
    };
    linter.judge(&[migration("1.sql", old), migration("2.sql", text)])
}

/// The strongest lock on each table, as the linter tells it.
fn told(report: &Report) -> BTreeMap<String, Mode> {
    let mut told = BTreeMap::new();
    for taken in &report.locks {
        let strongest = told.entry(taken.lock.table.clone()).or_insert(taken.lock.mode);
        *strongest = (*strongest).max(taken.lock.mode);
    }
    told
}

fn taken(locks: &BTreeSet<String>) -> BTreeMap<String, Mode> {
    let mut taken = BTreeMap::new();
    for lock in locks {
        let (table, mode) = lock.split_once(' ').unwrap();
        let mode = match mode {
            "ShareLock" => Mode::Share,
            "ShareRowExclusiveLock" => Mode::ShareRowExclusive,
            "AccessExclusiveLock" => Mode::AccessExclusive,
            other => panic!("{other}"),
        };
        let strongest = taken.entry(table.to_owned()).or_insert(mode);
        *strongest = (*strongest).max(mode);
    }
    taken
}

#[derive(Default)]
struct Count {
    safe: usize,
    unsafe_: usize,
    false_alarms: Vec<String>,
    missed: Vec<String>,
    locks: Vec<String>,
    locks_compared: usize,
    by_kind: BTreeMap<&'static str, usize>,
}

impl Count {
    fn add(&mut self, dialect: Dialect, old: &str, made: &Made, failed: &[String], locks: &BTreeSet<String>) {
        let report = judged(dialect, old, &made.text);
        *self.by_kind.entry(made.kind).or_default() += 1;
        let found: Vec<String> = report.findings.iter().map(|one| one.rule.to_string()).collect();
        if failed.is_empty() {
            self.safe += 1;
            if !found.is_empty() {
                self.false_alarms.push(format!("{}\n    {found:?}", made.text));
            }
        } else {
            self.unsafe_ += 1;
            if found.is_empty() {
                self.missed.push(format!("{}\n    {failed:?}", made.text));
            }
        }
        if dialect == Dialect::PostgreSql && found.is_empty() && made.text == made.carried_out {
            self.locks_compared += 1;
            let (told, taken) = (told(&report), taken(locks));
            if told != taken {
                let text = &made.text;
                self.locks
                    .push(format!("{text}\n    told {told:?}\n    taken {taken:?}"));
            }
        }
    }

    fn assert(&self, at_least: usize) {
        assert!(self.safe + self.unsafe_ >= at_least);
        assert!(
            self.safe * 5 >= self.unsafe_,
            "{} are safe, {} are not",
            self.safe,
            self.unsafe_
        );
        assert!(
            self.missed.is_empty(),
            "passed, and older services fail:\n{}",
            self.missed.join("\n")
        );
        assert!(
            self.false_alarms.len() * 50 <= self.safe,
            "{} of {} are found, and nothing fails:\n{}",
            self.false_alarms.len(),
            self.safe,
            self.false_alarms.join("\n")
        );
        assert!(self.locks.is_empty(), "locks:\n{}", self.locks.join("\n"));
    }
}

async fn connected(url: &str) -> AnyConnection {
    let mut tries = 0;
    loop {
        match AnyConnection::connect(url).await {
            Ok(connection) => return connection,
            Err(error) => {
                tries += 1;
                assert!(tries < 100, "{url}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
async fn what_postgresql_says_of_migrations_is_what_the_linter_says() {
    sqlx::any::install_default_drivers();
    let server = Server::start();
    let mut connection = connected(&server.url("postgres")).await;
    run(&mut connection, POSTGRES).await.unwrap();
    run(
        &mut connection,
        "CREATE ROLE services; CREATE ROLE reports; GRANT ALL ON ALL TABLES IN SCHEMA public TO services",
    )
    .await
    .unwrap();
    let mut count = Count::default();
    let mut numbers = Numbers::new(1);
    for kind in std::iter::repeat_n((), 25).flat_map(|()| migrations::POSTGRES) {
        let made = kind(&mut numbers);
        run(&mut connection, "BEGIN").await.unwrap();
        let (failed, locks) = carried_out(&mut connection, Dialect::PostgreSql, &made).await;
        run(&mut connection, "ROLLBACK").await.unwrap();
        count.add(Dialect::PostgreSql, POSTGRES, &made, &failed, &locks);
    }
    eprintln!(
        "{} safe, {} unsafe, {} missed, {} false alarms, locks of {} compared: {:?}",
        count.safe,
        count.unsafe_,
        count.missed.len(),
        count.false_alarms.len(),
        count.locks_compared,
        count.by_kind
    );
    count.assert(500);
}

#[tokio::test]
async fn what_sqlite_says_of_migrations_is_what_the_linter_says() {
    sqlx::any::install_default_drivers();
    let mut count = Count::default();
    let mut numbers = Numbers::new(2);
    for kind in std::iter::repeat_n((), 25).flat_map(|()| migrations::SQLITE) {
        let made = kind(&mut numbers);
        let mut connection = connected("sqlite::memory:").await;
        run(&mut connection, "PRAGMA foreign_keys = ON").await.unwrap();
        run(&mut connection, SQLITE).await.unwrap();
        let (failed, locks) = carried_out(&mut connection, Dialect::Sqlite, &made).await;
        count.add(Dialect::Sqlite, SQLITE, &made, &failed, &locks);
    }
    eprintln!(
        "{} safe, {} unsafe, {} missed, {} false alarms: {:?}",
        count.safe,
        count.unsafe_,
        count.missed.len(),
        count.false_alarms.len(),
        count.by_kind
    );
    count.assert(250);
}
