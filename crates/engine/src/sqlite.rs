//! The default store: a `SQLite` file, no server.
//!
//! One file has one schema for all who open it, and to bring it up takes no time: whoever opens a store that is behind
//! does it. Programs that know only a revision before work on.

mod locks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::Versioned as _;

use crate::cluster::LockRecord;
use crate::rows::{self, JournalRow, Reader};
use crate::store::{Listed, ListedRow, Mark, Presence, Store, StoreError};

pub use locks::SqliteLocks;

/// The schema, revision by revision.
pub(crate) const REVISIONS: [&str; 3] = [
    include_str!("../schema/sqlite/0001-journal.sql"),
    include_str!("../schema/sqlite/0002-versions.sql"),
    include_str!("../schema/sqlite/0003-presence.sql"),
];

/// How long to wait for who is writing.
const BUSY: Duration = Duration::from_secs(10);

/// What keeps rows from being changed, for the newest revision.
const GUARDS: &str = include_str!("../schema/sqlite/guards");

/// The lowest revision that a program must know to work on the newest. It stands in `user_version`, and a program that
/// does not know so much refuses the file.
const SERVES_FROM: i64 = 1;

/// A store in one file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: String,
    /// Where it can be opened once more.
    file: Option<PathBuf>,
    /// At which revision the schema was when it was opened.
    found: usize,
}

impl SqliteStore {
    /// Opens the store in that file, or makes it.
    ///
    /// # Errors
    /// The file cannot be opened, is not a store, is damaged, or was written by a later release.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        let failed = |why: String| StoreError::Failed {
            tried: format!("open the journal {shown}"),
            why,
        };
        if let Some(folder) = path.parent() {
            crate::secrets::make_folder(folder).map_err(|error| {
                failed(format!("the folder {} cannot be made: {error}", folder.display()))
            })?;
        }
        // Made here, so that nobody else may read it, nor what SQLite puts beside it.
        crate::secrets::make_own(path).map_err(|error| failed(error.to_string()))?;
        let connection = Connection::open(path).map_err(|e| failed(e.to_string()))?;
        let mut store = Self {
            connection,
            path: shown,
            file: Some(path.to_owned()),
            found: 0,
        };
        store.prepare().map_err(|e| store.failed("open", &e))?;
        let serves_from: i64 = store
            .connection
            .query_row("pragma user_version", [], |row| row.get(0))
            .map_err(|e| store.failed("open", &e))?;
        let newest = newest();
        if serves_from > newest {
            return Err(StoreError::OtherSchema {
                store: store.path,
                why: format!(
                    "its schema is of a later release of stagger and needs programs that know revision {serves_from}; \
                     this one knows up to {newest}"
                ),
            });
        }
        store.upgrade().map_err(|e| store.failed("open", &e))?;
        Ok(store)
    }

    /// A store in memory, for simulations that leave nothing behind.
    ///
    /// # Errors
    /// `SQLite` fails.
    pub fn in_memory() -> Result<Self, StoreError> {
        let failed = |e: rusqlite::Error| StoreError::Failed {
            tried: "open a journal in memory".to_owned(),
            why: e.to_string(),
        };
        let mut store = Self {
            connection: Connection::open_in_memory().map_err(failed)?,
            path: "in memory".to_owned(),
            file: None,
            found: 0,
        };
        store.prepare().map_err(failed)?;
        store.upgrade().map_err(failed)?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), rusqlite::Error> {
        self.connection.busy_timeout(BUSY)?;
        self.connection
            .query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
        self.connection.pragma_update(None, "synchronous", "full")?;
        self.connection.pragma_update(None, "foreign_keys", true)?;
        // Else each bound value makes the statement be prepared anew.
        self.connection
            .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(())
    }

    /// Brings the schema to the newest revision, all of it or nothing.
    fn upgrade(&mut self) -> Result<(), rusqlite::Error> {
        let found = revision(&self.connection)?;
        self.found = found;
        if found >= REVISIONS.len() {
            return Ok(());
        }
        let on = self.transaction()?;
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
        on.commit()
    }

    /// At which revision the schema was before this opened it; 0: there was none.
    pub(crate) fn found(&self) -> i64 {
        i64::try_from(self.found).unwrap_or(i64::MAX)
    }

    fn failed(&self, what: &str, error: &rusqlite::Error) -> StoreError {
        StoreError::Failed {
            tried: format!("{what} the journal {}", self.path),
            why: error.to_string(),
        }
    }

    fn transaction(&mut self) -> Result<Transaction<'_>, rusqlite::Error> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
    }
}

/// Copies a store into a new file, as it is at one moment; whoever writes to it goes on. What is there under the new name
/// is whole: it is written beside it first.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |why: String| StoreError::Failed {
        tried: format!("copy {} to {}", from.display(), to.display()),
        why,
    };
    if to.exists() {
        return Err(failed(format!("{} is there already", to.display())));
    }
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    if partial.exists() {
        // What a copy has left that was ended in its midst.
        std::fs::remove_file(partial).map_err(|error| failed(error.to_string()))?;
    }
    let written =
        Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
            connection.busy_timeout(BUSY)?;
            connection.execute("vacuum into ?1", [partial.to_string_lossy()])
        });
    written.map_err(|error| failed(error.to_string()))?;
    let kept = std::fs::File::open(partial).and_then(|file| file.sync_all());
    // A link and not a new name: it would replace what somebody has put there meanwhile.
    kept.and_then(|()| std::fs::hard_link(partial, to))
        .and_then(|()| std::fs::remove_file(partial))
        .map_err(|error| failed(error.to_string()))
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

/// One row more, in an open transaction.
fn insert(on: &Transaction<'_>, run: &RunId, fence: u64, entry: Entry) -> Result<Entry, rusqlite::Error> {
    let before: Vec<u8> = on
        .prepare_cached("select hash from journal where run = ?1 and seq = ?2")?
        .query_row(params![run.as_str(), (entry.seq - 1).cast_signed()], |row| {
            row.get(0)
        })
        .optional()?
        .unwrap_or_default();
    let ended_by = matches!(entry.event, Event::Ended { .. }).then_some(fence.cast_signed());
    let (row, entry) = JournalRow::of(run, fence, &before, entry)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    on.prepare_cached(
        "insert into journal (run, seq, fence, at, version, body, hash) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        run.as_str(),
        row.seq.cast_signed(),
        row.fence.cast_signed(),
        row.at,
        row.version,
        row.body,
        row.hash
    ])?;
    on.prepare_cached("update run set events = ?2, ended_by = coalesce(?3, ended_by) where id = ?1")?
        .execute(params![run.as_str(), row.seq.cast_signed(), ended_by])?;
    Ok(entry)
}

impl Store for SqliteStore {
    fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.connection
            .query_row(
                "select fence from cluster where id = ?1",
                [cluster.as_str()],
                |row| row.get::<_, i64>(0),
            )
            .optional()
            .map(|fence| fence.map_or(0, i64::cast_unsigned))
            .map_err(|e| self.failed("read", &e))
    }

    fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        let same = "update cluster set fence = fence where id = ?1";
        let written = self.connection.execute(same, [cluster.as_str()]);
        written.map(drop).map_err(|e| self.failed("write to", &e))
    }

    fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        let raised = self
            .connection
            .execute(
                "insert into cluster (id, fence, holder) values (?1, ?2, ?3)
                 on conflict (id) do update set fence = ?2, holder = ?3 where cluster.fence < ?2",
                params![cluster.as_str(), fence.cast_signed(), holder],
            )
            .map_err(|e| self.failed("raise the token of", &e))?;
        if raised == 0 {
            let newest = self.fence(cluster)?;
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest,
            });
        }
        Ok(())
    }

    fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        let Event::Started(begun) = &start else {
            return Err(StoreError::Failed {
                tried: "start a journal".to_owned(),
                why: "its first event is not a start".to_owned(),
            });
        };
        let (run, identity) = (begun.run.clone(), begun.identity.clone());
        let begin = |store: &mut Self| -> Result<Result<Entry, u64>, rusqlite::Error> {
            let on = store.transaction()?;
            let newest: Option<i64> = on
                .query_row(
                    "select fence from cluster where id = ?1",
                    [cluster.as_str()],
                    |row| row.get(0),
                )
                .optional()?;
            if newest != Some(fence.cast_signed()) {
                return Ok(Err(newest.map_or(0, i64::cast_unsigned)));
            }
            on.execute(
                "insert into run (id, cluster, started, events, version, identity) values (?1, ?2, ?3, 0, ?4, ?5)",
                params![
                    run.as_str(),
                    cluster.as_str(),
                    at.to_string(),
                    Listed::VERSION.to_string(),
                    identity.as_ref().map(ClusterId::as_str)
                ],
            )?;
            let first = Entry {
                seq: 1,
                at,
                event: start,
            };
            let entry = insert(&on, &run, fence, first)?;
            on.commit()?;
            Ok(Ok(entry))
        };
        let begun = begin(self).map_err(|e| self.failed("begin", &e))?;
        begun.map_err(|newest| StoreError::FencedOut {
            cluster: cluster.clone(),
            ours: fence,
            newest,
        })
    }

    fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let path = self.path.clone();
        let failed = |e: rusqlite::Error| StoreError::Failed {
            tried: format!("append to the journal {path}"),
            why: e.to_string(),
        };
        let on = self.transaction().map_err(failed)?;
        let row = on
            .prepare_cached(
                "select r.events, c.fence, c.id from run r join cluster c on c.id = r.cluster where r.id = ?1",
            )
            .and_then(|mut statement| {
                statement
                    .query_row([run.as_str()], |row| {
                        Ok((
                            row.get::<_, i64>(0)?.cast_unsigned(),
                            row.get::<_, i64>(1)?.cast_unsigned(),
                            row.get::<_, String>(2)?,
                        ))
                    })
                    .optional()
            })
            .map_err(failed)?;
        let Some((found, newest, cluster)) = row else {
            return Err(StoreError::NoRun(run.clone()));
        };
        if newest != fence {
            let cluster = ClusterName::new(cluster).map_err(|e| StoreError::Failed {
                tried: "read a cluster's name".to_owned(),
                why: e.to_string(),
            })?;
            return Err(StoreError::FencedOut {
                cluster,
                ours: fence,
                newest,
            });
        }
        if found != after {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected: after,
                found,
            });
        }
        let mut entries = Vec::with_capacity(events.len());
        for (seq, event) in (after + 1..).zip(events) {
            entries.push(insert(&on, run, fence, Entry { seq, at, event }).map_err(failed)?);
        }
        on.commit().map_err(failed)?;
        Ok(entries)
    }

    fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        let expected = self
            .connection
            .query_row("select events from run where id = ?1", [run.as_str()], |row| {
                row.get::<_, i64>(0)
            })
            .optional()
            .map_err(|e| self.failed("read", &e))?
            .ok_or_else(|| StoreError::NoRun(run.clone()))?
            .cast_unsigned();
        let mut reader = Reader::of(run);
        let mut statement = self
            .connection
            .prepare("select seq, fence, at, version, body, hash from journal where run = ?1 order by seq")
            .map_err(|e| self.failed("read", &e))?;
        let mut rows = statement
            .query([run.as_str()])
            .map_err(|e| self.failed("read", &e))?;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => return Err(reader.damaged(error.to_string())),
            };
            let read = || -> Result<JournalRow, rusqlite::Error> {
                Ok(JournalRow {
                    seq: row.get::<_, i64>(0)?.cast_unsigned(),
                    fence: row.get::<_, i64>(1)?.cast_unsigned(),
                    at: row.get(2)?,
                    version: row.get(3)?,
                    body: row.get(4)?,
                    hash: row.get(5)?,
                })
            };
            let row = read().map_err(|e| reader.damaged(e.to_string()))?;
            reader.add(row)?;
        }
        reader.end(expected)
    }

    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let read = || -> Result<Vec<ListedRow>, rusqlite::Error> {
            // Whoever ended a run before that had a column of its own, wrote its last row.
            let mut statement = self.connection.prepare(
                "select r.version, r.id, r.cluster, r.started, r.identity, coalesce(r.ended_by,
                   (select j.fence from journal j where j.run = r.id and j.seq = r.events
                    and j.body like '{\"event\":\"ended\"%'))
                 from run r order by r.started desc, r.id desc",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(ListedRow {
                    version: row.get(0)?,
                    id: row.get(1)?,
                    cluster: row.get(2)?,
                    started: row.get(3)?,
                    identity: row.get(4)?,
                    ended_by: row.get(5)?,
                })
            })?;
            rows.collect()
        };
        let rows = read().map_err(|e| self.failed("list the runs of", &e))?;
        rows.iter()
            .map(|row| {
                Listed::of_row(row).map_err(|why| StoreError::Failed {
                    tried: format!("list the runs of the journal {}", self.path),
                    why,
                })
            })
            .collect()
    }

    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        let (version, body) = rows::written(command)?;
        self.connection
            .execute(
                "insert into asked (run, at, version, body, by) values (?1, ?2, ?3, ?4, ?5)",
                params![run.as_str(), at.to_string(), version, body, by],
            )
            .map(|_| ())
            .map_err(|e| self.failed("leave a command in", &e))
    }

    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        type Columns = (i64, Option<String>, String, String);
        let read = || -> Result<Vec<Columns>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(
                "select id, version, body, by from asked where run = ?1 and taken = 0 order by id",
            )?;
            let rows = statement.query_map([run.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.collect()
        };
        read()
            .map_err(|e| self.failed("read the commands of", &e))?
            .into_iter()
            .map(|(id, version, body, by)| Ok((id, rows::command(id, version.as_deref(), &body)?, by)))
            .collect()
    }

    fn taken(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.connection
            .execute(
                "update asked set taken = 1 where run = ?1 and id <= ?2",
                params![run.as_str(), up_to],
            )
            .map(|_| ())
            .map_err(|e| self.failed("take a command from", &e))
    }

    fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        let events: Option<i64> = self
            .connection
            .query_row("select events from run where id = ?1", [run.as_str()], |row| {
                row.get(0)
            })
            .optional()
            .map_err(|e| self.failed("read", &e))?;
        let newest = events.ok_or_else(|| StoreError::NoRun(run.clone()))?;
        let seq = at.unwrap_or(newest.cast_unsigned());
        let sum: Option<Vec<u8>> = self
            .connection
            .query_row(
                "select hash from journal where run = ?1 and seq = ?2",
                params![run.as_str(), seq.cast_signed()],
                |row| row.get(0),
            )
            .optional()
            .map_err(|e| self.failed("read", &e))?;
        Ok(sum.map(|sum| rows::mark(seq, &sum)))
    }

    fn beside(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(match &self.file {
            Some(file) => Some(Box::new(Self::open(file)?)),
            None => None,
        })
    }

    fn beat(
        &mut self,
        run: &RunId,
        fence: u64,
        claim: &LockRecord,
        expires: Duration,
    ) -> Result<(), StoreError> {
        self.connection
            .execute(
                "insert into presence (run, fence, claim, renewed, expires)
                 values (?1, ?2, ?3, unixepoch('now', 'subsec'), ?4)
                 on conflict (run) do update set fence = ?2, claim = ?3, renewed = unixepoch('now', 'subsec'), expires = ?4
                   where presence.fence <= ?2",
                params![
                    run.as_str(),
                    fence.cast_signed(),
                    claim.to_json(),
                    expires.as_secs_f64()
                ],
            )
            .map(|_| ())
            .map_err(|e| self.failed("record the holder of the run in", &e))
    }

    fn left(&mut self, run: &RunId, fence: u64) -> Result<(), StoreError> {
        self.connection
            .execute(
                "update presence set claim = null, renewed = unixepoch('now', 'subsec') where run = ?1 and fence <= ?2",
                params![run.as_str(), fence.cast_signed()],
            )
            .map(|_| ())
            .map_err(|e| self.failed("record the holder of the run in", &e))
    }

    fn presence(&self, run: &RunId) -> Result<Option<Presence>, StoreError> {
        let found = self
            .connection
            .query_row(
                "select fence, claim, unixepoch('now', 'subsec') - renewed, expires from presence where run = ?1",
                [run.as_str()],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .optional()
            .map_err(|e| self.failed("read the holder of the run in", &e))?;
        Ok(found.map(rows::presence))
    }
}
