//! The default store: a `SQLite` file, no server.
//!
//! Every row carries a SHA-256 over the row before and its own content, so that a changed, missing or
//! reordered event is found; the count of each journal is kept beside it, so that a cut tail is found
//! too. Times are information; order is `seq`.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use sha2::{Digest as _, Sha256};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};

use crate::store::{Listed, Store, StoreError};

const SCHEMA: &str = "
create table if not exists cluster (
  id text primary key, fence integer not null, holder text not null);
create table if not exists run (
  id text primary key, cluster text not null references cluster(id), started text not null, events integer not null);
create table if not exists journal (
  run text not null references run(id), seq integer not null, fence integer not null, at text not null,
  body text not null, hash blob not null, primary key (run, seq)) without rowid;
create table if not exists asked (
  id integer primary key autoincrement, run text not null references run(id), at text not null,
  body text not null, by text not null, taken integer not null default 0);
create trigger if not exists journal_is_append_only_1 before update on journal
  begin select raise(abort, 'the journal is append-only'); end;
create trigger if not exists journal_is_append_only_2 before delete on journal
  begin select raise(abort, 'the journal is append-only'); end;
create trigger if not exists journal_is_fenced before insert on journal
  when new.fence <> (select c.fence from cluster c join run r on r.cluster = c.id where r.id = new.run)
  begin select raise(abort, 'fenced out'); end;
";

/// The layout of the file; a later one is refused.
const LAYOUT: i64 = 1;

/// A store in one file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: String,
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
            std::fs::create_dir_all(folder).map_err(|error| {
                failed(format!("the folder {} cannot be made: {error}", folder.display()))
            })?;
        }
        let connection = Connection::open(path).map_err(|e| failed(e.to_string()))?;
        let store = Self {
            connection,
            path: shown,
        };
        store.prepare().map_err(|e| store.failed("open", &e))?;
        let layout: i64 = store
            .connection
            .query_row("pragma user_version", [], |row| row.get(0))
            .map_err(|e| store.failed("open", &e))?;
        match layout {
            0 => store
                .connection
                .pragma_update(None, "user_version", LAYOUT)
                .map_err(|e| store.failed("open", &e))?,
            LAYOUT => {}
            later => {
                return Err(StoreError::Failed {
                    tried: format!("open the journal {}", store.path),
                    why: format!(
                        "its layout {later} is of a later release of stagger; this one knows up to {LAYOUT}"
                    ),
                });
            }
        }
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
        let store = Self {
            connection: Connection::open_in_memory().map_err(failed)?,
            path: "in memory".to_owned(),
        };
        store.prepare().map_err(failed)?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), rusqlite::Error> {
        self.connection.busy_timeout(std::time::Duration::from_secs(10))?;
        self.connection
            .query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
        self.connection.pragma_update(None, "synchronous", "full")?;
        self.connection.pragma_update(None, "foreign_keys", true)?;
        // Else each bound value makes the statement be prepared anew.
        self.connection
            .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        self.connection.execute_batch(SCHEMA)
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

fn hash(before: &[u8], run: &RunId, seq: Seq, fence: u64, at: &str, body: &str) -> Vec<u8> {
    let mut sum = Sha256::new();
    sum.update(before);
    for part in [run.as_str(), &seq.to_string(), &fence.to_string(), at, body] {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part.as_bytes());
    }
    sum.finalize().to_vec()
}

/// One row more, in an open transaction.
fn insert(
    on: &Transaction<'_>,
    run: &RunId,
    seq: Seq,
    fence: u64,
    at: Timestamp,
    event: Event,
) -> Result<Entry, rusqlite::Error> {
    let before: Vec<u8> = on
        .prepare_cached("select hash from journal where run = ?1 and seq = ?2")?
        .query_row(params![run.as_str(), (seq - 1).cast_signed()], |row| row.get(0))
        .optional()?
        .unwrap_or_default();
    let body =
        serde_json::to_string(&event).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    let when = at.to_string();
    let sum = hash(&before, run, seq, fence, &when, &body);
    on.prepare_cached(
        "insert into journal (run, seq, fence, at, body, hash) values (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        run.as_str(),
        seq.cast_signed(),
        fence.cast_signed(),
        when,
        body,
        sum
    ])?;
    on.prepare_cached("update run set events = ?2 where id = ?1")?
        .execute(params![run.as_str(), seq.cast_signed()])?;
    Ok(Entry { seq, at, event })
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
                tried: "begin a journal".to_owned(),
                why: "its first event is not a start".to_owned(),
            });
        };
        let run = begun.run.clone();
        let begin = |store: &mut Self| -> Result<Entry, rusqlite::Error> {
            let on = store.transaction()?;
            on.execute(
                "insert into run (id, cluster, started, events) values (?1, ?2, ?3, 0)",
                params![run.as_str(), cluster.as_str(), at.to_string()],
            )?;
            let entry = insert(&on, &run, 1, fence, at, start)?;
            on.commit()?;
            Ok(entry)
        };
        begin(self).map_err(|e| self.failed("begin", &e))
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
            entries.push(insert(&on, run, seq, fence, at, event).map_err(failed)?);
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
        let mut entries: Vec<Entry> = Vec::new();
        let damaged = |entries: &[Entry], why: String| StoreError::Damaged {
            run: run.clone(),
            last_good: entries.last().map_or(0, |entry| entry.seq),
            why,
        };
        let mut statement = self
            .connection
            .prepare("select seq, fence, at, body, hash from journal where run = ?1 order by seq")
            .map_err(|e| self.failed("read", &e))?;
        let mut rows = statement
            .query([run.as_str()])
            .map_err(|e| self.failed("read", &e))?;
        let mut before: Vec<u8> = Vec::new();
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => return Err(damaged(&entries, error.to_string())),
            };
            let read = || -> Result<(i64, i64, String, String, Vec<u8>), rusqlite::Error> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            };
            let (seq, fence, at, body, sum) = read().map_err(|e| damaged(&entries, e.to_string()))?;
            let (seq, fence) = (seq.cast_unsigned(), fence.cast_unsigned());
            if seq != entries.len() as u64 + 1 {
                return Err(damaged(
                    &entries,
                    format!("event {} is missing", entries.len() + 1),
                ));
            }
            if sum != hash(&before, run, seq, fence, &at, &body) {
                return Err(damaged(&entries, format!("the checksum of event {seq} is wrong")));
            }
            let event = serde_json::from_str(&body)
                .map_err(|e| damaged(&entries, format!("event {seq} cannot be read: {e}")))?;
            let at = at
                .parse()
                .map_err(|e| damaged(&entries, format!("the time of event {seq} cannot be read: {e}")))?;
            before = sum;
            entries.push(Entry { seq, at, event });
        }
        if entries.len() as u64 != expected {
            return Err(damaged(&entries, format!("it should have {expected} events")));
        }
        Ok(entries)
    }

    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let read = || -> Result<Vec<(String, String, String)>, rusqlite::Error> {
            let mut statement = self
                .connection
                .prepare("select id, cluster, started from run order by started desc, id desc")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        let rows = read().map_err(|e| self.failed("list the runs of", &e))?;
        let bad = |why: String| StoreError::Failed {
            tried: format!("list the runs of the journal {}", self.path),
            why,
        };
        rows.into_iter()
            .map(|(run, cluster, started)| {
                Ok(Listed {
                    run: RunId::new(run).map_err(|e| bad(e.to_string()))?,
                    cluster: ClusterName::new(cluster).map_err(|e| bad(e.to_string()))?,
                    started: started.parse().map_err(|e: jiff::Error| bad(e.to_string()))?,
                })
            })
            .collect()
    }

    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        let body = serde_json::to_string(command).map_err(|e| StoreError::Failed {
            tried: "write a command".to_owned(),
            why: e.to_string(),
        })?;
        self.connection
            .execute(
                "insert into asked (run, at, body, by) values (?1, ?2, ?3, ?4)",
                params![run.as_str(), at.to_string(), body, by],
            )
            .map(|_| ())
            .map_err(|e| self.failed("leave a command in", &e))
    }

    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        let read = || -> Result<Vec<(i64, String, String)>, rusqlite::Error> {
            let mut statement = self
                .connection
                .prepare_cached("select id, body, by from asked where run = ?1 and taken = 0 order by id")?;
            let rows =
                statement.query_map([run.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        read()
            .map_err(|e| self.failed("read the commands of", &e))?
            .into_iter()
            .map(|(id, body, by)| {
                let command = serde_json::from_str(&body).map_err(|e| StoreError::Failed {
                    tried: "read a command".to_owned(),
                    why: e.to_string(),
                })?;
                Ok((id, command, by))
            })
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
}
