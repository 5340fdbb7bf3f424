//! Records of installed releases, and the lock: in stagger's own database.
//!
//! A pinned service of the new release cannot be told from one of the old by its answers. So its release is
//! recorded before it is changed and after it serves, under the token of the lock: a process that has lost
//! the lock writes nothing.

mod tables;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use stagger_core::model::{ClusterId, ClusterName};
use stagger_engine::cluster::{Anchor, BackendError, Call, Holder, LockError, LockRecord};
use stagger_engine::liveness::Liveness;
use stagger_engine::supervisor::random_hex;

use self::tables::{TABLES, writes};
use crate::sql::{Sql, Statement, Value};

/// All that is written down of one Ironic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IronicRecords {
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

impl IronicRecords {
    /// Whether that was done on the way to a release.
    pub fn is_marked(&self, release: &str, mark: &str) -> bool {
        self.marks
            .get(release)
            .is_some_and(|marks| marks.contains_key(mark))
    }
}

const WHICH: &str = "find out which Ironic this is";

/// Where a database is, without who asks it and how: one Ironic has one, whatever it is called.
fn place_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let mut place = format!("{}/{path}", host.to_lowercase());
    place.truncate(place.floor_char_boundary(200));
    place
}

/// The longest detail that is kept, in bytes.
const LONGEST: usize = 4000;

/// What the lock's row says.
struct LockRow {
    fence: u64,
    beat: i64,
    claim: Option<StoredLock>,
}

/// A claim as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLock {
    claim: LockRecord,
    /// How long after a renewal it may be taken over, in milliseconds.
    expires: u64,
}

/// The database of ours.
#[derive(Debug)]
pub struct RecordStore {
    sql: Sql,
    cluster: ClusterName,
    /// Where Ironic's own database is.
    place: String,
    expires: Duration,
    known: OnceLock<ReadRecords>,
}

/// Which Ironic the rows are of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadRecords {
    identity: ClusterId,
    /// What its rows are filed under: the name by which it was first called.
    name: String,
}

impl RecordStore {
    /// One at that URL, for the Ironic whose own database is at the other.
    ///
    /// # Errors
    /// The URL is none.
    pub fn open(
        url: &str,
        ironic: &str,
        cluster: ClusterName,
        expires: Duration,
        limit: Duration,
    ) -> Result<Self, BackendError> {
        Ok(Self {
            sql: Sql::new(url, false, limit)?,
            cluster,
            place: place_of(ironic),
            expires,
            known: OnceLock::new(),
        })
    }

    /// How long the lock lasts.
    pub fn expires(&self) -> Duration {
        self.expires
    }

    /// What the rows are filed under.
    fn name(&self) -> Value {
        let known = self.known.get().map(|known| known.name.as_str());
        known.unwrap_or(self.cluster.as_str()).into()
    }

    /// Which Ironic this is: a row of ours for each database of an Ironic, whatever the configuration calls it.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn identity(&self) -> Result<ClusterId, BackendError> {
        Ok(self.make().await?.identity.clone())
    }

    async fn make(&self) -> Result<&ReadRecords, BackendError> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let statements = TABLES.map(|text| Statement::new(text, Vec::new())).into();
        // Making them twice changes nothing.
        let made = self.sql.change("make our tables", statements).await;
        let unread = |mut error: BackendError| {
            error.outcome_unknown = false;
            error
        };
        made.map_err(unread)?;
        let known = if let Some(known) = self.found().await? {
            known
        } else {
            let id = random_hex(16);
            // Rows of before have the name alone. One that another Ironic has is no name for ours.
            let insert = |name: &str| {
                let values = vec![self.place.as_str().into(), id.as_str().into(), name.into()];
                let text = "insert into stagger_ironic_identity (place, id, name) values (?, ?, ?)";
                self.sql.change(WHICH, vec![Statement::new(text, values)])
            };
            // Somebody may have been faster: what is found then is what there is.
            let mut written = insert(self.cluster.as_str()).await.map(drop);
            if written.is_err() && self.found().await?.is_none() {
                written = insert(&id).await.map(drop);
            }
            match (self.found().await?, written) {
                (Some(known), _) => known,
                (None, Err(error)) => return Err(unread(error)),
                (None, Ok(())) => {
                    return Err(BackendError::transient(
                        WHICH,
                        "its row was written, and is not there",
                    ));
                }
            }
        };
        Ok(self.known.get_or_init(|| known))
    }

    async fn found(&self) -> Result<Option<ReadRecords>, BackendError> {
        let question = "select id, name from stagger_ironic_identity where place = ?";
        let rows = self
            .sql
            .fetch(WHICH, question, vec![self.place.as_str().into()])
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let identity = ClusterId::new(text(WHICH, row, 0)?)
            .map_err(|error| BackendError::permanent(WHICH, error.to_string()))?;
        let name = text(WHICH, row, 1)?;
        Ok(Some(ReadRecords { identity, name }))
    }

    /// Whether the lock and the records can be written: every kind of write is tried, and taken back.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn try_writes(&self) -> Result<(), BackendError> {
        self.make().await?;
        self.sql.try_out("write the lock and the records", writes()).await
    }

    /// Keeps where a journal stands.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        const TRIED: &str = "anchor the journal";
        self.make().await.map_err(LockError::Backend)?;
        let text = serde_json::to_string(anchor)
            .map_err(|error| LockError::Backend(BackendError::permanent(TRIED, error.to_string())))?;
        let statements = vec![
            Statement::new("delete from stagger_anchor where cluster = ?", vec![self.name()]),
            Statement::new(
                "insert into stagger_anchor (cluster, anchor) values (?, ?)",
                vec![self.name(), text.as_str().into()],
            ),
        ];
        let written = self.sql.change(TRIED, statements).await;
        written.map(drop).map_err(LockError::Backend)
    }

    /// Where the journal of the last holder stood.
    ///
    /// # Errors
    /// The database does not answer, or what stands there is no anchor.
    pub async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        const TRIED: &str = "read where the journal stood";
        let read = async {
            self.make().await?;
            let question = "select anchor from stagger_anchor where cluster = ?";
            let rows = self.sql.fetch(TRIED, question, vec![self.name()]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let anchor = serde_json::from_str(&text(TRIED, row, 0)?);
            anchor
                .map(Some)
                .map_err(|error| BackendError::permanent(TRIED, error.to_string()))
        };
        read.await.map_err(LockError::Backend)
    }

    /// Whose claim stands there now.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.make().await.map_err(LockError::Backend)?;
        let written = self.locked().await?.and_then(|locked| locked.claim);
        Ok(written.map(|StoredLock { claim, expires }| Holder {
            claim,
            expires: Duration::from_millis(expires),
        }))
    }

    /// All that is written down.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn read(&self) -> Result<IronicRecords, BackendError> {
        const TRIED: &str = "read what was installed where";
        self.make().await?;
        let mut records = IronicRecords::default();
        let services = "select service, rel, pin, state, run from stagger_ironic_service where cluster = ?";
        for row in self.sql.fetch(TRIED, services, vec![self.name()]).await? {
            let text = |at: usize| text(TRIED, &row, at);
            let state = match text(3)?.as_str() {
                "runs" => RecordState::Runs,
                _ => RecordState::Changing,
            };
            let record = Record {
                release: text(1)?,
                pin: optional_text(TRIED, &row, 2)?,
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

    /// Whether a call is still that of the holder of the lock.
    ///
    /// # Errors
    /// It is not, or nobody could tell within that time.
    pub async fn check_holder(&self, call: &Call, limit: Duration) -> Result<(), String> {
        match tokio::time::timeout(limit, self.locked()).await {
            Ok(Ok(Some(row))) if row.fence == call.fence => Ok(()),
            Ok(Ok(_)) => Err("the lock is not ours any more".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the lock could not be read within {} s", limit.as_secs())),
        }
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
        let insert = Statement::exactly_one(
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
        self.write(call, &format!("record what {service} runs"), vec![delete, insert])
            .await
    }

    /// Writes down that something was done on the way to a release.
    ///
    /// # Errors
    /// As [`RecordStore::note`].
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
        let insert = Statement::exactly_one(
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
        let ours = Statement::exactly_one(
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
    pub async fn take(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        const TRIED: &str = "take the lock";
        self.make().await.map_err(LockError::Backend)?;
        let written = StoredLock {
            claim: claim.clone(),
            expires: u64::try_from(self.expires.as_millis()).unwrap_or(u64::MAX),
        };
        let written = serde_json::to_string(&written)
            .map_err(|error| LockError::Backend(BackendError::permanent(TRIED, error.to_string())))?;
        let mut watched: Option<(LockRow, Instant)> = None;
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
                    // What has provably ended renews nothing any more: there is nothing to watch.
                    _ if held.claim.pulse() == Liveness::Gone => {}
                    Some((seen, _)) if (seen.fence, seen.beat) != (now.fence, now.beat) => {
                        return Err(LockError::Held(Box::new(held.claim.clone())));
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
            let take = Statement::exactly_one(
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
        let beat = Statement::exactly_one(
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
            Some(LockRow {
                claim: Some(other), ..
            }) => Err(LockError::Held(Box::new(other.claim))),
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
    pub async fn release(&self, fence: u64) -> Result<(), LockError> {
        let back = Statement::new(
            "update stagger_lock set claim = null, beat = beat + 1 where cluster = ? and fence = ?",
            vec![self.name(), number(fence)],
        );
        let changed = self.sql.change("release the lock", vec![back]).await;
        changed.map(drop).map_err(LockError::Backend)
    }

    async fn locked(&self) -> Result<Option<LockRow>, LockError> {
        const TRIED: &str = "read the lock";
        let question = "select fence, beat, claim from stagger_lock where cluster = ?";
        let rows = self.sql.fetch(TRIED, question, vec![self.name()]).await;
        let rows = rows.map_err(LockError::Backend)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || -> Result<LockRow, BackendError> {
            let claim = optional_text(TRIED, row, 2)?;
            let claim = claim.map(|text| serde_json::from_str(&text)).transpose();
            Ok(LockRow {
                fence: u64::try_from(integer(TRIED, row, 0)?).unwrap_or(0),
                beat: integer(TRIED, row, 1)?,
                claim: claim.map_err(|error| {
                    BackendError::permanent(TRIED, error.to_string())
                        .hint("if no stagger is running, set `claim` to null in `stagger_lock`")
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

pub(crate) fn optional_text(tried: &str, row: &AnyRow, at: usize) -> Result<Option<String>, BackendError> {
    row.try_get(at).map_err(|error| unread(tried, &error))
}

pub(crate) fn integer(tried: &str, row: &AnyRow, at: usize) -> Result<i64, BackendError> {
    row.try_get(at).map_err(|error| unread(tried, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ironic_is_known_by_where_its_database_is() {
        let same = [
            "mysql://ironic:{password}@DB1:3306/ironic?ssl-mode=required",
            "mariadb://reader@db1:3306/ironic",
        ];
        assert_eq!(same.map(place_of), ["db1:3306/ironic", "db1:3306/ironic"]);
        assert_eq!(
            place_of("sqlite:///var/lib/i@ronic.db?mode=ro"),
            "/var/lib/i@ronic.db"
        );
    }
}
