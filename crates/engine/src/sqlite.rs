//! The default store: a `SQLite` file, no server.
//!
//! One file has one schema for all processes. A schema upgrade takes no time, so the first process that opens
//! an older file makes it. Programs that know only the previous revision continue to work.
//!
//! Calls never wait: each queries the file in the thread that polls it. The file is local. Under simulated
//! time (tokio's paused clock) that clock advances as soon as every task waits, also while a thread answers:
//! hence rusqlite, and not sqlx, which keeps a thread for each file.

mod locks;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::Versioned as _;

use crate::cluster::LockRecord;
use crate::rows::{self, JournalRow, JournalStart, Reader};
use crate::store::{JournalStore, Listed, ListedRow, Mark, Presence, StoreError};

pub use locks::SqliteLocks;
pub(crate) use schema::newest;
use schema::upgrade;

/// How long to wait for who is writing.
const BUSY: Duration = Duration::from_secs(10);

/// A store in one file.
#[derive(Debug)]
pub struct SqliteStore {
    /// Locked for one query each: one thread at a time uses a connection.
    connection: Mutex<Connection>,
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
        // Created here, so that only its owner may read it and the files that SQLite puts beside it.
        crate::secrets::ensure_private_file(path).map_err(|error| failed(error.to_string()))?;
        let connection = Connection::open(path).map_err(|e| failed(e.to_string()))?;
        let mut store = Self {
            connection: Mutex::new(connection),
            path: shown,
            file: Some(path.to_owned()),
            found: 0,
        };
        let serves_from: i64 = store.with("open", |on| {
            prepare(on)?;
            on.query_row("pragma user_version", [], |row| row.get(0))
        })?;
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
        store.found = store.with("open", upgrade)?;
        Ok(store)
    }

    /// A store in memory, for simulations that leave nothing behind.
    ///
    /// # Errors
    /// `SQLite` fails.
    pub fn in_memory() -> Result<Self, StoreError> {
        let opened = Connection::open_in_memory().and_then(|mut on| {
            prepare(&on)?;
            Ok((upgrade(&mut on)?, on))
        });
        let (found, connection) = opened.map_err(|error| StoreError::Failed {
            tried: "open a journal in memory".to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self {
            connection: Mutex::new(connection),
            path: "in memory".to_owned(),
            file: None,
            found,
        })
    }

    /// At which revision the schema was before this opened it; 0: there was none.
    pub(crate) fn found(&self) -> i64 {
        i64::try_from(self.found).unwrap_or(i64::MAX)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        what: &str,
        ask: impl FnOnce(&mut Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, StoreError> {
        ask(&mut self.connection()).map_err(|error| self.failed(what, &error))
    }

    fn failed(&self, what: &str, error: &rusqlite::Error) -> StoreError {
        StoreError::Failed {
            tried: format!("{what} the journal {}", self.path),
            why: error.to_string(),
        }
    }
}

fn prepare(on: &Connection) -> Result<(), rusqlite::Error> {
    on.busy_timeout(BUSY)?;
    on.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
    on.pragma_update(None, "synchronous", "full")?;
    on.pragma_update(None, "foreign_keys", true)?;
    // Otherwise each bound value makes SQLite prepare the statement again.
    on.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn transaction(on: &mut Connection) -> Result<Transaction<'_>, rusqlite::Error> {
    on.transaction_with_behavior(TransactionBehavior::Immediate)
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
    // A link and not a rename: a rename would replace a file that appeared in the meantime.
    kept.and_then(|()| std::fs::hard_link(partial, to))
        .and_then(|()| std::fs::remove_file(partial))
        .map_err(|error| failed(error.to_string()))
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

/// What comes of a question that the store may refuse; the outer error is the database's.
type StoreAnswer<T> = Result<Result<T, StoreError>, rusqlite::Error>;

/// Begins a journal, under the token of its cluster.
fn begin(on: &mut Connection, cluster: &ClusterName, fence: u64, begun: JournalStart) -> StoreAnswer<Entry> {
    let JournalStart { run, identity, entry } = begun;
    let on = transaction(on)?;
    let newest: Option<i64> = on
        .query_row(
            "select fence from cluster where id = ?1",
            [cluster.as_str()],
            |row| row.get(0),
        )
        .optional()?;
    if newest != Some(fence.cast_signed()) {
        return Ok(Err(StoreError::FencedOut {
            cluster: cluster.clone(),
            ours: fence,
            newest: newest.map_or(0, i64::cast_unsigned),
        }));
    }
    on.execute(
        "insert into run (id, cluster, started, events, version, identity) values (?1, ?2, ?3, 0, ?4, ?5)",
        params![
            run.as_str(),
            cluster.as_str(),
            entry.at.to_string(),
            Listed::VERSION.to_string(),
            identity.as_ref().map(ClusterId::as_str)
        ],
    )?;
    let entry = insert(&on, &run, fence, entry)?;
    on.commit()?;
    Ok(Ok(entry))
}

/// Appends to a journal that stands at that event, under the token of its cluster.
fn append(
    on: &mut Connection,
    run: &RunId,
    fence: u64,
    after: Seq,
    at: Timestamp,
    events: Vec<Event>,
) -> StoreAnswer<Vec<Entry>> {
    let on = transaction(on)?;
    let row = on
        .prepare_cached(
            "select r.events, c.fence, c.id from run r join cluster c on c.id = r.cluster where r.id = ?1",
        )?
        .query_row([run.as_str()], |row| {
            Ok((
                row.get::<_, i64>(0)?.cast_unsigned(),
                row.get::<_, i64>(1)?.cast_unsigned(),
                row.get::<_, String>(2)?,
            ))
        })
        .optional()?;
    let Some((found, newest, cluster)) = row else {
        return Ok(Err(StoreError::NoRun(run.clone())));
    };
    if newest != fence {
        let refused = match ClusterName::new(cluster) {
            Ok(cluster) => StoreError::FencedOut {
                cluster,
                ours: fence,
                newest,
            },
            Err(error) => StoreError::Failed {
                tried: "read a cluster's name".to_owned(),
                why: error.to_string(),
            },
        };
        return Ok(Err(refused));
    }
    if found != after {
        return Ok(Err(StoreError::MovedOn {
            run: run.clone(),
            expected: after,
            found,
        }));
    }
    let mut entries = Vec::with_capacity(events.len());
    for (seq, event) in (after + 1..).zip(events) {
        entries.push(insert(&on, run, fence, Entry { seq, at, event })?);
    }
    on.commit()?;
    Ok(Ok(entries))
}

/// The whole journal of a run, verified.
fn journal(on: &mut Connection, run: &RunId) -> StoreAnswer<Vec<Entry>> {
    // One transaction for both: an event that is appended meanwhile is in neither.
    let on = on.transaction()?;
    let expected: Option<i64> = on
        .query_row("select events from run where id = ?1", [run.as_str()], |row| {
            row.get(0)
        })
        .optional()?;
    let Some(expected) = expected else {
        return Ok(Err(StoreError::NoRun(run.clone())));
    };
    let mut reader = Reader::of(run);
    let mut statement =
        on.prepare("select seq, fence, at, version, body, hash from journal where run = ?1 order by seq")?;
    let mut rows = statement.query([run.as_str()])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(reader.end(expected.cast_unsigned())),
            Err(error) => return Ok(Err(reader.damaged(error.to_string()))),
        };
        let added = match row_of(row) {
            Ok(row) => reader.add_row(&row),
            Err(error) => Err(reader.damaged(error.to_string())),
        };
        if let Err(error) = added {
            return Ok(Err(error));
        }
    }
}

fn row_of(row: &rusqlite::Row<'_>) -> Result<JournalRow, rusqlite::Error> {
    Ok(JournalRow {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        fence: row.get::<_, i64>(1)?.cast_unsigned(),
        at: row.get(2)?,
        version: row.get(3)?,
        body: row.get(4)?,
        hash: row.get(5)?,
    })
}
#[async_trait]
impl JournalStore for SqliteStore {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        let fence: Option<i64> = self.with("read", |on| {
            on.query_row(
                "select fence from cluster where id = ?1",
                [cluster.as_str()],
                |row| row.get(0),
            )
            .optional()
        })?;
        Ok(fence.map_or(0, i64::cast_unsigned))
    }

    async fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        let same = "update cluster set fence = fence where id = ?1";
        self.with("write to", |on| on.execute(same, [cluster.as_str()]))
            .map(drop)
    }

    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        let raised = self.with("raise the token of", |on| {
            on.execute(
                "insert into cluster (id, fence, holder) values (?1, ?2, ?3)
                 on conflict (id) do update set fence = ?2, holder = ?3 where cluster.fence < ?2",
                params![cluster.as_str(), fence.cast_signed(), holder],
            )
        })?;
        if raised == 0 {
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest: self.fence(cluster).await?,
            });
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        let begun = JournalStart::of(at, start)?;
        self.with("begin", |on| begin(on, cluster, fence, begun))?
    }

    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.with("append to", |on| append(on, run, fence, after, at, events))?
    }

    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.with("read", |on| journal(on, run))?
    }

    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let rows = self.with("list the runs of", |on| {
            // Whoever ended a run before that had a column of its own, wrote its last row.
            let mut statement = on.prepare(
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
            rows.collect::<Result<Vec<ListedRow>, _>>()
        })?;
        rows.iter()
            .map(|row| {
                Listed::of_row(row).map_err(|why| StoreError::Failed {
                    tried: format!("list the runs of the journal {}", self.path),
                    why,
                })
            })
            .collect()
    }

    async fn ask(
        &mut self,
        run: &RunId,
        at: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        let (version, body) = rows::encode_command(command)?;
        self.with("leave a command in", |on| {
            on.execute(
                "insert into asked (run, at, version, body, by) values (?1, ?2, ?3, ?4, ?5)",
                params![run.as_str(), at.to_string(), version, body, by],
            )
        })
        .map(drop)
    }

    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        type Columns = (i64, Option<String>, String, String);
        let rows = self.with("read the commands of", |on| {
            let mut statement = on.prepare_cached(
                "select id, version, body, by from asked where run = ?1 and taken = 0 order by id",
            )?;
            let rows = statement.query_map([run.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.collect::<Result<Vec<Columns>, _>>()
        })?;
        rows.into_iter()
            .map(|(id, version, body, by)| Ok((id, rows::command(id, version.as_deref(), &body)?, by)))
            .collect()
    }

    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.with("take a command from", |on| {
            on.execute(
                "update asked set taken = 1 where run = ?1 and id <= ?2",
                params![run.as_str(), up_to],
            )
        })
        .map(drop)
    }

    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        let found = self.with("read", |on| {
            on.query_row(
                "select coalesce(?2, r.events), j.hash from run r
                 left join journal j on j.run = r.id and j.seq = coalesce(?2, r.events) where r.id = ?1",
                params![run.as_str(), at.map(u64::cast_signed)],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<Vec<u8>>>(1)?)),
            )
            .optional()
        })?;
        let (seq, sum) = found.ok_or_else(|| StoreError::NoRun(run.clone()))?;
        Ok(sum.map(|sum| rows::mark(seq.cast_unsigned(), &sum)))
    }

    async fn beside(&self) -> Result<Option<Box<dyn JournalStore>>, StoreError> {
        Ok(match &self.file {
            Some(file) => Some(Box::new(Self::open(file)?)),
            None => None,
        })
    }

    async fn beat(
        &mut self,
        run: &RunId,
        fence: u64,
        claim: &LockRecord,
        expires: Duration,
    ) -> Result<(), StoreError> {
        self.with("record the holder of the run in", |on| {
            on.execute(
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
        })
        .map(drop)
    }

    async fn clear_presence(&mut self, run: &RunId, fence: u64) -> Result<(), StoreError> {
        self.with("record the holder of the run in", |on| {
            on.execute(
                "update presence set claim = null, renewed = unixepoch('now', 'subsec') where run = ?1 and fence <= ?2",
                params![run.as_str(), fence.cast_signed()],
            )
        })
        .map(drop)
    }

    async fn presence(&self, run: &RunId) -> Result<Option<Presence>, StoreError> {
        let found = self.with("read the holder of the run in", |on| {
            on.query_row(
                "select fence, claim, unixepoch('now', 'subsec') - renewed, expires from presence where run = ?1",
                [run.as_str()],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .optional()
        })?;
        Ok(found.map(rows::presence))
    }
}
