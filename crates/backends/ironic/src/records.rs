//! What stagger installed where, and the lock: in a database of ours.
//!
//! A pinned service of the new release cannot be told from one of the old by anything that it says. So it is written
//! down before a service is changed and after it serves, under the token of the lock: who has lost the lock writes
//! nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use stagger_core::model::ClusterName;
use stagger_engine::backend::{BackendError, Call, Claim, LockError};

use crate::sql::{Sql, Statement, Value};

/// All that is written down of one Ironic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// By the service's name.
    pub services: BTreeMap<String, Record>,
    /// What was done once on the way to a release: by its number, then by what, with what came of it.
    pub marks: BTreeMap<String, BTreeMap<String, String>>,
}

/// What a service was made to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The release, with its patch: `29.0.6`.
    pub release: String,
    /// The pin that it has read at its start, or is to read.
    pub pin: Option<String>,
    /// How far that has come.
    pub state: RecordState,
    /// By which run.
    pub run: String,
}

/// How far a change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    /// It was started so, and has served.
    Runs,
    /// It is being changed to that: nobody knows what it runs now.
    Changing,
}

impl Records {
    /// Whether that was done on the way to a release.
    pub fn is_marked(&self, release: &str, mark: &str) -> bool {
        self.marks
            .get(release)
            .is_some_and(|marks| marks.contains_key(mark))
    }
}

/// The tables. Their names are ours, since they may share a database with others.
const TABLES: [&str; 3] = [
    "create table if not exists stagger_lock (cluster varchar(200) not null primary key, fence bigint not null, \
     beat bigint not null, claim text)",
    "create table if not exists stagger_ironic_service (cluster varchar(200) not null, service varchar(200) not null, \
     rel varchar(64) not null, pin varchar(64), state varchar(16) not null, run varchar(200) not null, \
     noted varchar(40) not null, primary key (cluster, service))",
    "create table if not exists stagger_ironic_mark (cluster varchar(200) not null, rel varchar(64) not null, \
     mark varchar(64) not null, detail text not null, noted varchar(40) not null, primary key (cluster, rel, mark))",
];

/// The longest detail that is kept, in bytes.
const LONGEST: usize = 4000;

/// What the lock's row says.
struct Locked {
    fence: u64,
    beat: i64,
    claim: Option<Written>,
}

/// A claim as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    claim: Claim,
    /// How long after a renewal it may be taken over, in milliseconds.
    expires: u64,
}

/// The database of ours.
#[derive(Debug)]
pub struct Book {
    sql: Sql,
    cluster: ClusterName,
    expires: Duration,
    made: AtomicBool,
}

impl Book {
    pub(crate) fn new(sql: Sql, cluster: ClusterName, expires: Duration) -> Self {
        Self {
            sql,
            cluster,
            expires,
            made: AtomicBool::new(false),
        }
    }

    /// One at that URL, for one Ironic.
    ///
    /// # Errors
    /// The URL is none.
    pub fn open(
        url: &str,
        cluster: ClusterName,
        expires: Duration,
        limit: Duration,
    ) -> Result<Self, BackendError> {
        Ok(Self::new(Sql::new(url, false, limit)?, cluster, expires))
    }

    /// How long the lock lasts.
    pub fn expires(&self) -> Duration {
        self.expires
    }

    fn name(&self) -> Value {
        self.cluster.as_str().into()
    }

    async fn make(&self) -> Result<(), BackendError> {
        if self.made.load(Ordering::Relaxed) {
            return Ok(());
        }
        let statements = TABLES.map(|text| Statement::new(text, Vec::new())).into();
        // Making them twice changes nothing.
        let made = self.sql.change("make our tables", statements).await;
        made.map_err(|mut error| {
            error.may_land = false;
            error
        })?;
        self.made.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// All that is written down.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn read(&self) -> Result<Records, BackendError> {
        const TRIED: &str = "read what was installed where";
        self.make().await?;
        let mut records = Records::default();
        let services = "select service, rel, pin, state, run from stagger_ironic_service where cluster = ?";
        for row in self.sql.fetch(TRIED, services, vec![self.name()]).await? {
            let text = |at: usize| text(TRIED, &row, at);
            let state = match text(3)?.as_str() {
                "runs" => RecordState::Runs,
                _ => RecordState::Changing,
            };
            let record = Record {
                release: text(1)?,
                pin: maybe(TRIED, &row, 2)?,
                state,
                run: text(4)?,
            };
            records.services.insert(text(0)?, record);
        }
        let marks = "select rel, mark, detail from stagger_ironic_mark where cluster = ?";
        for row in self.sql.fetch(TRIED, marks, vec![self.name()]).await? {
            let text = |at: usize| text(TRIED, &row, at);
            records
                .marks
                .entry(text(0)?)
                .or_default()
                .insert(text(1)?, text(2)?);
        }
        Ok(records)
    }

    /// Writes down what a service is made to run.
    ///
    /// # Errors
    /// The lock is not ours any more, or the database does not answer.
    pub async fn note(&self, call: &Call, service: &str, record: &Record) -> Result<(), BackendError> {
        let Record {
            release,
            pin,
            state,
            run,
        } = record;
        let state = match state {
            RecordState::Runs => "runs",
            RecordState::Changing => "changing",
        };
        let delete = Statement::new(
            "delete from stagger_ironic_service where cluster = ? and service = ?",
            vec![self.name(), service.into()],
        );
        let insert = Statement::one(
            "insert into stagger_ironic_service (cluster, service, rel, pin, state, run, noted) values (?, ?, ?, ?, ?, ?, ?)",
            vec![
                self.name(),
                service.into(),
                release.as_str().into(),
                Value::Maybe(pin.clone()),
                state.into(),
                run.as_str().into(),
                now(),
            ],
        );
        self.write(
            call,
            &format!("write down what {service} runs"),
            vec![delete, insert],
        )
        .await
    }

    /// Writes down that something was done on the way to a release.
    ///
    /// # Errors
    /// As [`Book::note`].
    pub async fn mark(
        &self,
        call: &Call,
        release: &str,
        mark: &str,
        detail: &str,
    ) -> Result<(), BackendError> {
        let mut end = detail.len().min(LONGEST);
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        let delete = Statement::new(
            "delete from stagger_ironic_mark where cluster = ? and rel = ? and mark = ?",
            vec![self.name(), release.into(), mark.into()],
        );
        let insert = Statement::one(
            "insert into stagger_ironic_mark (cluster, rel, mark, detail, noted) values (?, ?, ?, ?, ?)",
            vec![
                self.name(),
                release.into(),
                mark.into(),
                detail[..end].into(),
                now(),
            ],
        );
        self.write(
            call,
            &format!("write down that {mark} is done"),
            vec![delete, insert],
        )
        .await
    }

    async fn write(
        &self,
        call: &Call,
        tried: &str,
        mut statements: Vec<Statement>,
    ) -> Result<(), BackendError> {
        self.make().await?;
        // It holds the lock's row until the end: nobody takes over in between. It also tells that we live.
        let ours = Statement::one(
            "update stagger_lock set beat = beat + 1 where cluster = ? and fence = ?",
            vec![self.name(), number(call.fence)],
        );
        statements.insert(0, ours);
        if self.sql.change(tried, statements).await? {
            return Ok(());
        }
        let why = format!(
            "the fencing token {} is not that of the lock any more",
            call.fence
        );
        Err(BackendError::permanent(tried, why))
    }

    /// Takes the lock, and returns a token larger than any.
    ///
    /// # Errors
    /// Another holds it, or the database does not answer.
    pub async fn take(&self, claim: &Claim, at_least: u64) -> Result<u64, LockError> {
        const TRIED: &str = "take the lock";
        self.make().await.map_err(LockError::Backend)?;
        let written = Written {
            claim: claim.clone(),
            expires: u64::try_from(self.expires.as_millis()).unwrap_or(u64::MAX),
        };
        let written = serde_json::to_string(&written)
            .map_err(|error| LockError::Backend(BackendError::permanent(TRIED, error.to_string())))?;
        let mut watched: Option<(Locked, Instant)> = None;
        loop {
            let Some(now) = self.locked().await? else {
                let first = Statement::new(
                    "insert into stagger_lock (cluster, fence, beat, claim) values (?, 0, 0, null)",
                    vec![self.name()],
                );
                // Another may have written it meanwhile: it is read again either way.
                if let Err(error) = self.sql.change(TRIED, vec![first]).await {
                    tracing::debug!(%error, "the lock's row");
                    if self.locked().await?.is_none() {
                        return Err(LockError::Backend(error));
                    }
                }
                continue;
            };
            if let Some(held) = now
                .claim
                .as_ref()
                .filter(|held| held.claim.incarnation != claim.incarnation)
            {
                match &watched {
                    Some((seen, _)) if (seen.fence, seen.beat) != (now.fence, now.beat) => {
                        return Err(LockError::Held(held.claim.clone()));
                    }
                    // Only who has watched it unchanged for longer than it lasts takes it: clocks are not compared.
                    Some((_, since)) if since.elapsed() > Duration::from_millis(held.expires) => {}
                    Some(_) => {
                        tokio::time::sleep(self.expires / 30).await;
                        continue;
                    }
                    None => {
                        watched = Some((now, Instant::now()));
                        continue;
                    }
                }
            }
            let fence = now.fence.max(at_least) + 1;
            let take = Statement::one(
                "update stagger_lock set fence = ?, beat = 0, claim = ? where cluster = ? and fence = ? and beat = ?",
                vec![
                    number(fence),
                    written.as_str().into(),
                    self.name(),
                    number(now.fence),
                    Value::Number(now.beat),
                ],
            );
            if self
                .sql
                .change(TRIED, vec![take])
                .await
                .map_err(LockError::Backend)?
            {
                return Ok(fence);
            }
            // Somebody was faster, or renewed it: then that one is watched.
            watched = None;
        }
    }

    /// Says that the holder lives.
    ///
    /// # Errors
    /// Another holds it, or the database does not answer.
    pub async fn renew(&self, fence: u64) -> Result<(), LockError> {
        let beat = Statement::one(
            "update stagger_lock set beat = beat + 1 where cluster = ? and fence = ? and claim is not null",
            vec![self.name(), number(fence)],
        );
        if self
            .sql
            .change("renew the lock", vec![beat])
            .await
            .map_err(LockError::Backend)?
        {
            return Ok(());
        }
        match self.locked().await? {
            Some(Locked {
                claim: Some(other), ..
            }) => Err(LockError::Held(other.claim)),
            Some(locked) => Err(LockError::Lost(format!(
                "the newest fencing token is {}, ours is {fence}",
                locked.fence
            ))),
            None => Err(LockError::Lost("its row is gone".to_owned())),
        }
    }

    /// Gives the lock back. Its token stays, so that the next is larger.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn give_back(&self, fence: u64) -> Result<(), LockError> {
        let back = Statement::new(
            "update stagger_lock set claim = null, beat = beat + 1 where cluster = ? and fence = ?",
            vec![self.name(), number(fence)],
        );
        let changed = self.sql.change("give the lock back", vec![back]).await;
        changed.map(drop).map_err(LockError::Backend)
    }

    async fn locked(&self) -> Result<Option<Locked>, LockError> {
        const TRIED: &str = "read the lock";
        let question = "select fence, beat, claim from stagger_lock where cluster = ?";
        let rows = self.sql.fetch(TRIED, question, vec![self.name()]).await;
        let rows = rows.map_err(LockError::Backend)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || -> Result<Locked, BackendError> {
            let claim = maybe(TRIED, row, 2)?;
            let claim = claim.map(|text| serde_json::from_str(&text)).transpose();
            Ok(Locked {
                fence: u64::try_from(whole(TRIED, row, 0)?).unwrap_or(0),
                beat: whole(TRIED, row, 1)?,
                claim: claim.map_err(|error| {
                    BackendError::permanent(TRIED, error.to_string())
                        .hint("if no stagger is at work, set `claim` to null in `stagger_lock`")
                })?,
            })
        };
        read().map(Some).map_err(LockError::Backend)
    }
}

fn number(fence: u64) -> Value {
    Value::Number(i64::try_from(fence).unwrap_or(i64::MAX))
}

fn now() -> Value {
    Value::Text(format!("{:.0}", Timestamp::now()))
}

fn unread(tried: &str, error: &sqlx::Error) -> BackendError {
    BackendError::permanent(tried, error.to_string())
}

pub(crate) fn text(tried: &str, row: &AnyRow, at: usize) -> Result<String, BackendError> {
    row.try_get(at).map_err(|error| unread(tried, &error))
}

pub(crate) fn maybe(tried: &str, row: &AnyRow, at: usize) -> Result<Option<String>, BackendError> {
    row.try_get(at).map_err(|error| unread(tried, &error))
}

pub(crate) fn whole(tried: &str, row: &AnyRow, at: usize) -> Result<i64, BackendError> {
    row.try_get(at).map_err(|error| unread(tried, &error))
}
