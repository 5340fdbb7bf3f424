//! A store that several processes share, on several machines: PostgreSQL.
//!
//! Each write is one statement, so that a process that is stopped in the midst of its work holds no lock that others wait
//! for. The token is checked under the lock of the cluster's row, which [`JournalStore::raise`] changes: an append is before it or
//! refused. The schema is brought up by [`upgrade`], once for all.

mod address;
mod locks;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::PgPool;
use sqlx::{PgConnection, Row as _};
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::Versioned as _;

use crate::cluster::LockRecord;
use crate::rows::{self, JournalRow, JournalStart, Reader};
use crate::store::{JournalStore, Listed, ListedRow, Mark, Presence, StoreError};

pub use address::{AddressError, DatabaseAddress};
pub use locks::PostgresLocks;

/// The schema, revision by revision.
pub(crate) const REVISIONS: [&str; 2] = [
    include_str!("../../schema/postgres/0001-journal.sql"),
    include_str!("../../schema/postgres/0002-presence.sql"),
];

/// What keeps rows from being changed, for the newest revision.
const GUARDS: &str = include_str!("../../schema/postgres/guards");

/// The lowest revision that a program must know to work on the newest.
const SERVES_FROM: i64 = 1;

/// So long is waited for an answer.
const ANSWER: Duration = Duration::from_secs(40);

/// What upgrades of the schema wait for, so that one of them works at a time. It means nothing else, and ends with them.
const UPGRADES: i64 = 0x7374_6167_6765_7231;

/// An answer within the time limit, or the reason why there is none.
async fn answer_in_time<T>(asked: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not answer for {} s", ANSWER.as_secs())),
    }
}

/// The newest revision.
pub(crate) fn newest() -> i64 {
    i64::try_from(REVISIONS.len()).unwrap_or(i64::MAX)
}

/// Which revision the schema is at, and the lowest that serves it; zeros: there is none.
async fn revision(on: &mut PgConnection) -> Result<(i64, i64), sqlx::Error> {
    let there: bool = sqlx::query_scalar("select to_regclass('schema_revision') is not null")
        .fetch_one(&mut *on)
        .await?;
    if !there {
        return Ok((0, 0));
    }
    let row = sqlx::query("select revision, serves_from from schema_revision")
        .fetch_one(on)
        .await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Brings the schema to the newest revision, all of it or nothing; at which it was.
///
/// # Errors
/// The database cannot be asked, or refuses.
pub async fn upgrade(address: &DatabaseAddress) -> Result<i64, StoreError> {
    let pool = address.pool(1)?;
    let upgraded = answer_in_time(async {
        let mut on = pool.begin().await?;
        sqlx::query("select pg_advisory_xact_lock($1)")
            .bind(UPGRADES)
            .execute(&mut *on)
            .await?;
        let (found, _) = revision(&mut on).await?;
        if found < newest() {
            for step in REVISIONS.iter().skip(usize::try_from(found).unwrap_or_default()) {
                sqlx::raw_sql(*step).execute(&mut *on).await?;
            }
            sqlx::raw_sql(GUARDS).execute(&mut *on).await?;
            sqlx::raw_sql("delete from schema_revision")
                .execute(&mut *on)
                .await?;
            sqlx::query("insert into schema_revision (revision, serves_from) values ($1, $2)")
                .bind(newest())
                .bind(SERVES_FROM)
                .execute(&mut *on)
                .await?;
        }
        on.commit().await?;
        Ok(found)
    })
    .await;
    pool.close().await;
    upgraded.map_err(|why| address.failed("upgrade the schema of", why))
}

/// A store in a database.
#[derive(Debug)]
pub struct PostgresStore {
    pool: PgPool,
    address: DatabaseAddress,
    /// The last event of each run that this process wrote, with its checksum.
    ends: BTreeMap<RunId, (Seq, Vec<u8>)>,
}

impl PostgresStore {
    /// Opens a store that is there.
    ///
    /// # Errors
    /// The database cannot be reached, or its schema is not one for this program.
    pub async fn open(address: &DatabaseAddress) -> Result<Self, StoreError> {
        let store = Self {
            pool: address.pool(2)?,
            address: address.clone(),
            ends: BTreeMap::new(),
        };
        let (found, serves_from) = store
            .carry_out("open", async {
                let mut on = store.pool.acquire().await?;
                revision(&mut on).await
            })
            .await?;
        let needed = newest();
        let why = match found {
            0 => "it has no schema yet: run `stagger db upgrade`".to_owned(),
            _ if serves_from > needed => format!(
                "its schema is of a later release of stagger and needs programs that know revision {serves_from}; this \
                 one knows up to {needed}"
            ),
            _ if found < needed => {
                format!(
                    "its schema is at revision {found}, and this program needs {needed}: run `stagger db upgrade`"
                )
            }
            _ => return Ok(store),
        };
        Err(StoreError::OtherSchema {
            store: address.to_string(),
            why,
        })
    }

    async fn carry_out<T>(
        &self,
        what: &str,
        asked: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        answer_in_time(asked)
            .await
            .map_err(|why| self.address.failed(what, why))
    }

    /// Where the journal of a run stands: its last event with its checksum.
    async fn end_of(&self, run: &RunId, seq: Seq) -> Result<Vec<u8>, StoreError> {
        if let Some((at, sum)) = self.ends.get(run)
            && *at == seq
        {
            return Ok(sum.clone());
        }
        let found: Option<Vec<u8>> = self
            .carry_out("read", async {
                sqlx::query_scalar("select hash from journal where run = $1 and seq = $2")
                    .bind(run.as_str())
                    .bind(seq.cast_signed())
                    .fetch_optional(&self.pool)
                    .await
            })
            .await?;
        Ok(found.unwrap_or_default())
    }

    /// Why an append after that event wrote nothing.
    async fn why_not(&self, run: &RunId, fence: u64, expected: Seq) -> StoreError {
        let found = self.carry_out("read", async {
            sqlx::query(
                "select c.id, c.fence, r.events from run r join cluster c on c.id = r.cluster where r.id = $1",
            )
            .bind(run.as_str())
            .fetch_optional(&self.pool)
            .await?
            .map(|row| Ok::<(String, i64, i64), sqlx::Error>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
            .transpose()
        }).await;
        let (cluster, newest, events) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return StoreError::NoRun(run.clone()),
            Err(error) => return error,
        };
        if newest.cast_unsigned() == fence {
            return StoreError::MovedOn {
                run: run.clone(),
                expected,
                found: events.cast_unsigned(),
            };
        }
        match ClusterName::new(cluster) {
            Ok(cluster) => StoreError::FencedOut {
                cluster,
                ours: fence,
                newest: newest.cast_unsigned(),
            },
            Err(error) => self.address.failed("read a cluster's name in", error),
        }
    }
}

#[async_trait]
impl JournalStore for PostgresStore {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        let fence: Option<i64> = self
            .carry_out("read", async {
                sqlx::query_scalar("select fence from cluster where id = $1")
                    .bind(cluster.as_str())
                    .fetch_optional(&self.pool)
                    .await
            })
            .await?;
        Ok(fence.map_or(0, i64::cast_unsigned))
    }

    async fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        let written = self
            .carry_out("write to", async {
                sqlx::query("update cluster set fence = fence where id = $1")
                    .bind(cluster.as_str())
                    .execute(&self.pool)
                    .await
            })
            .await;
        written.map(drop)
    }

    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        let raised = self
            .carry_out("raise the token of", async {
                sqlx::query(
                    "insert into cluster (id, fence, holder) values ($1, $2, $3)
                 on conflict (id) do update set fence = excluded.fence, holder = excluded.holder
                 where cluster.fence < excluded.fence",
                )
                .bind(cluster.as_str())
                .bind(fence.cast_signed())
                .bind(holder)
                .execute(&self.pool)
                .await
            })
            .await?;
        if raised.rows_affected() == 0 {
            let newest = self.fence(cluster).await?;
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest,
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
        let JournalStart { run, identity, entry } = JournalStart::of(at, start)?;
        let (row, entry) = JournalRow::of(&run, fence, &[], entry)
            .map_err(|error| self.address.failed("start a journal in", error))?;
        let JournalRow {
            at,
            version,
            body,
            hash,
            ..
        } = row;
        let written = self
            .carry_out("start a journal in", async {
                sqlx::query(
                    "with held as (
                   select id from cluster where id = $1 and fence = $2 for no key update
                 ), begun as (
                   insert into run (id, cluster, started, events, version, identity)
                   select $3, held.id, $4, 1, $5, $9 from held
                   returning id, cluster
                 )
                 insert into journal (cluster, run, seq, fence, at, version, body, hash)
                 select begun.cluster, begun.id, 1, $2, $4, $6, $7, $8 from begun",
                )
                .bind(cluster.as_str())
                .bind(fence.cast_signed())
                .bind(run.as_str())
                .bind(&at)
                .bind(Listed::VERSION.to_string())
                .bind(&version)
                .bind(&body)
                .bind(&hash)
                .bind(identity.as_ref().map(ClusterId::as_str))
                .execute(&self.pool)
                .await
            })
            .await?;
        if written.rows_affected() == 0 {
            let newest = self.fence(cluster).await?;
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest,
            });
        }
        self.ends.insert(run, (1, hash));
        Ok(entry)
    }

    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut end = self.end_of(run, after).await?;
        let count = events.len() as u64;
        let ends = events.iter().any(|event| matches!(event, Event::Ended { .. }));
        let mut entries = Vec::with_capacity(events.len());
        let (mut places, mut versions, mut bodies, mut sums) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (seq, event) in (after + 1..).zip(events) {
            let (row, entry) = JournalRow::of(run, fence, &end, Entry { seq, at, event })
                .map_err(|error| self.address.failed("append to", error))?;
            end.clone_from(&row.hash);
            entries.push(entry);
            places.push(seq.cast_signed());
            versions.push(row.version);
            bodies.push(row.body);
            sums.push(row.hash);
        }
        let written = self
            .carry_out("append to", async {
                sqlx::query(
                    "with held as (
                   select c.id from cluster c join run r on r.cluster = c.id
                   where r.id = $1 and c.fence = $2 and r.events = $3
                   for no key update of c
                 ), counted as (
                   update run set events = $3 + $4, ended_by = coalesce($10, run.ended_by)
                   from held where run.id = $1 and run.events = $3
                   returning held.id as cluster
                 )
                 insert into journal (cluster, run, seq, fence, at, version, body, hash)
                 select counted.cluster, $1, new.seq, $2, $5, new.version, new.body, new.hash
                 from counted, unnest($6::bigint[], $7::text[], $8::text[], $9::bytea[])
                   as new (seq, version, body, hash)",
                )
                .bind(run.as_str())
                .bind(fence.cast_signed())
                .bind(after.cast_signed())
                .bind(count.cast_signed())
                .bind(at.to_string())
                .bind(&places)
                .bind(&versions)
                .bind(&bodies)
                .bind(&sums)
                .bind(ends.then_some(fence.cast_signed()))
                .execute(&self.pool)
                .await
            })
            .await?;
        if written.rows_affected() != count || count == 0 {
            self.ends.remove(run);
            return match self.why_not(run, fence, after).await {
                // Nothing was to be appended, to where it stands.
                StoreError::MovedOn { found, .. } if count == 0 && found == after => Ok(entries),
                why => Err(why),
            };
        }
        self.ends.insert(run.clone(), (after + count, end));
        Ok(entries)
    }

    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        let (expected, rows) = self
            .carry_out("read", async {
                // One transaction for both: an event that is appended meanwhile is in neither.
                let mut on = self.pool.begin().await?;
                sqlx::raw_sql("set transaction isolation level repeatable read, read only")
                    .execute(&mut *on)
                    .await?;
                let expected: Option<i64> = sqlx::query_scalar("select events from run where id = $1")
                    .bind(run.as_str())
                    .fetch_optional(&mut *on)
                    .await?;
                let rows = sqlx::query(
                    "select seq, fence, at, version, body, hash from journal where run = $1 order by seq",
                )
                .bind(run.as_str())
                .fetch_all(&mut *on)
                .await?;
                on.commit().await?;
                let rows: Result<Vec<JournalRow>, sqlx::Error> = rows
                    .iter()
                    .map(|row| {
                        Ok(JournalRow {
                            seq: row.try_get::<i64, _>(0)?.cast_unsigned(),
                            fence: row.try_get::<i64, _>(1)?.cast_unsigned(),
                            at: row.try_get(2)?,
                            version: row.try_get(3)?,
                            body: row.try_get(4)?,
                            hash: row.try_get(5)?,
                        })
                    })
                    .collect();
                Ok((expected, rows?))
            })
            .await?;
        let expected = expected.ok_or_else(|| StoreError::NoRun(run.clone()))?;
        let mut reader = Reader::of(run);
        for row in rows {
            reader.add_row(&row)?;
        }
        reader.end(expected.cast_unsigned())
    }

    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let rows = self
            .carry_out("list the runs of", async {
                // Whoever ended a run before that had a column of its own, wrote its last row.
                let rows = sqlx::query(
                    "select r.version, r.id, r.cluster, r.started, r.identity, coalesce(r.ended_by,
                   (select j.fence from journal j where j.run = r.id and j.seq = r.events
                    and j.body like '{\"event\":\"ended\"%'))
                 from run r order by r.started collate \"C\" desc, r.id collate \"C\" desc",
                )
                .fetch_all(&self.pool)
                .await?;
                let rows: Result<Vec<ListedRow>, sqlx::Error> = rows
                    .iter()
                    .map(|row| {
                        Ok(ListedRow {
                            version: row.try_get(0)?,
                            id: row.try_get(1)?,
                            cluster: row.try_get(2)?,
                            started: row.try_get(3)?,
                            identity: row.try_get(4)?,
                            ended_by: row.try_get(5)?,
                        })
                    })
                    .collect();
                rows
            })
            .await?;
        rows.iter()
            .map(|row| Listed::of_row(row).map_err(|why| self.address.failed("list the runs of", why)))
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
        self.carry_out("leave a command in", async {
            sqlx::query("insert into asked (run, at, version, body, \"by\") values ($1, $2, $3, $4, $5)")
                .bind(run.as_str())
                .bind(at.to_string())
                .bind(&version)
                .bind(&body)
                .bind(by)
                .execute(&self.pool)
                .await
        })
        .await
        .map(drop)
    }

    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        let rows: Vec<(i64, Option<String>, String, String)> = self
            .carry_out("read the commands of", async {
                sqlx::query_as(
                    "select id, version, body, \"by\" from asked where run = $1 and not taken order by id",
                )
                .bind(run.as_str())
                .fetch_all(&self.pool)
                .await
            })
            .await?;
        rows.into_iter()
            .map(|(id, version, body, by)| Ok((id, rows::command(id, version.as_deref(), &body)?, by)))
            .collect()
    }

    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.carry_out("take a command from", async {
            sqlx::query("update asked set taken = true where run = $1 and id <= $2")
                .bind(run.as_str())
                .bind(up_to)
                .execute(&self.pool)
                .await
        })
        .await
        .map(drop)
    }

    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        let found: Option<(i64, Option<Vec<u8>>)> = self
            .carry_out("read", async {
                sqlx::query_as(
                    "select coalesce($2, r.events), j.hash from run r
                 left join journal j on j.run = r.id and j.seq = coalesce($2, r.events) where r.id = $1",
                )
                .bind(run.as_str())
                .bind(at.map(u64::cast_signed))
                .fetch_optional(&self.pool)
                .await
            })
            .await?;
        let (seq, sum) = found.ok_or_else(|| StoreError::NoRun(run.clone()))?;
        Ok(sum.map(|sum| rows::mark(seq.cast_unsigned(), &sum)))
    }

    async fn beside(&self) -> Result<Option<Box<dyn JournalStore>>, StoreError> {
        Ok(Some(Box::new(Self {
            pool: self.pool.clone(),
            address: self.address.clone(),
            ends: BTreeMap::new(),
        })))
    }

    async fn beat(
        &mut self,
        run: &RunId,
        fence: u64,
        claim: &LockRecord,
        expires: Duration,
    ) -> Result<(), StoreError> {
        self.carry_out("record the holder of the run in", async {
            sqlx::query(
                "insert into presence (run, fence, claim, renewed, expires) values ($1, $2, $3, clock_timestamp(), $4)
                 on conflict (run) do update set fence = excluded.fence, claim = excluded.claim,
                   renewed = excluded.renewed, expires = excluded.expires
                   where presence.fence <= excluded.fence",
            )
            .bind(run.as_str())
            .bind(fence.cast_signed())
            .bind(claim.to_json())
            .bind(expires.as_secs_f64())
            .execute(&self.pool)
            .await
        }).await
        .map(drop)
    }

    async fn clear_presence(&mut self, run: &RunId, fence: u64) -> Result<(), StoreError> {
        self.carry_out("record the holder of the run in", async {
            sqlx::query(
                "update presence set claim = null, renewed = clock_timestamp() where run = $1 and fence <= $2",
            )
            .bind(run.as_str())
            .bind(fence.cast_signed())
            .execute(&self.pool)
            .await
        }).await
        .map(drop)
    }

    async fn presence(&self, run: &RunId) -> Result<Option<Presence>, StoreError> {
        let found: Option<(i64, Option<String>, f64, f64)> = self
            .carry_out("read the holder of the run in", async {
                sqlx::query_as(
                    "select fence, claim, extract(epoch from clock_timestamp() - renewed)::float8, expires
                 from presence where run = $1",
                )
                .bind(run.as_str())
                .fetch_optional(&self.pool)
                .await
            })
            .await?;
        Ok(found.map(rows::presence))
    }
}
