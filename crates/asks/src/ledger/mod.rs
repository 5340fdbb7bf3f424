//! The asks, grants and claims of clusters, in tables of their own beside the journals.
//!
//! Everything that was written when a call returns is durable. What belongs together is one transaction: a grant is its
//! claim and its answer. All times are those of the database: of a file that is the machine's, since a file has one machine.

mod postgres;
mod rows;
mod sqlite;
mod statements;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName};
use stagger_engine::clock::{Clock, SystemClock};

use crate::ask::{Ask, AskAnswer, AskEnd, AskError, AskId, NewAsk};
use crate::claim::{Claim, ClaimHolder, ClaimRecord};
use rows::{Row, ask, ask_body, claim_body, claimed, fence_of, write_claim};
use statements as sql;

/// A store of asks that could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It does not answer.
    #[error("{tried}: {why}")]
    Failed {
        /// What was tried, on what.
        tried: String,
        /// Why it failed.
        why: String,
    },
    /// What was read is not as this release writes it.
    #[error("{what} cannot be read by this release: {why}")]
    Unreadable {
        /// What was read.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// Nothing answers for that cluster.
    #[error("nothing in this store answers for a cluster {0}")]
    NoCluster(String),
    /// There is no such ask.
    #[error("there is no ask {0}")]
    NoAsk(AskId),
    /// The same key came with another ask.
    #[error("the key was used for another ask")]
    OtherAsk,
    /// The ask itself is wrong.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// What a statement is given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    MaybeText(Option<String>),
    Whole(i64),
    Real(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// One statement of a transaction. Columns of its rows are texts. `{now}` is the database's time.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    sql: &'static str,
    values: Vec<Value>,
    /// If it hits no row, nothing of the transaction is done.
    must_hit: bool,
}

impl Statement {
    fn new(sql: &'static str, values: Vec<Value>) -> Self {
        Self {
            sql,
            values,
            must_hit: false,
        }
    }

    fn must_hit(self) -> Self {
        Self {
            must_hit: true,
            ..self
        }
    }
}

/// The rows of one statement.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// A database, as far as it is needed here.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    /// Now, as far as this machine knows.
    fn now(&self) -> Timestamp;

    /// Carries all of them out in one transaction. `None`: one hit nothing that had to, and nothing was done.
    async fn carry_out(
        &self,
        what: &str,
        statements: Vec<Statement>,
    ) -> Result<Option<Vec<Rows>>, LedgerError>;
}

/// Where the asks of a cluster are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum LedgerLocation {
    /// In a file, for processes of one machine.
    File(PathBuf),
    /// In a database on a server.
    Server {
        /// Its address without a password.
        url: String,
        /// The password; `None`: the environment has it.
        password: Option<String>,
    },
}

impl fmt::Debug for LedgerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerLocation({self})")
    }
}

impl fmt::Display for LedgerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server { url, password: _ } => f.write_str(url),
        }
    }
}

impl LedgerLocation {
    /// Opens it; what is missing is made.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn open(&self) -> Result<AskLedger, LedgerError> {
        match self {
            Self::File(path) => AskLedger::in_file(path),
            Self::Server { url, password } => {
                let database = postgres::Postgres::open(url, password.as_deref()).await?;
                Ok(AskLedger::of(Arc::new(database)))
            }
        }
    }
}

/// A cluster whose hosts can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCluster {
    /// As it knows itself.
    pub identity: ClusterId,
    /// As its configuration calls it.
    pub name: ClusterName,
    /// The process that answers; `None`: none does now.
    pub gate: Option<String>,
}

/// What stands of a cluster, at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// Whoever judges by this claims at this version.
    pub version: u64,
    /// The newest fence.
    pub fence: u64,
    /// Now, by the database.
    pub now: Timestamp,
    /// Claims that count, by their fences.
    pub claims: Vec<ClaimRecord>,
    /// Asks that wait or are granted, the oldest first.
    pub asks: Vec<Ask>,
}

/// The right of one process to answer for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLease {
    /// Of which cluster.
    pub cluster: ClusterId,
    /// It only grows: what an older one writes is refused.
    pub fence: u64,
}

/// Asks, grants and claims.
#[derive(Clone)]
pub struct AskLedger {
    database: Arc<dyn Database>,
}

impl fmt::Debug for AskLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskLedger").finish_non_exhaustive()
    }
}

impl AskLedger {
    fn of(database: Arc<dyn Database>) -> Self {
        Self { database }
    }

    /// In that file.
    ///
    /// # Errors
    /// It cannot be opened or made.
    pub fn in_file(path: &Path) -> Result<Self, LedgerError> {
        Self::in_file_by(path, Arc::new(SystemClock))
    }

    /// In that file, by a clock that may be virtual.
    ///
    /// # Errors
    /// It cannot be opened or made.
    pub fn in_file_by(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, LedgerError> {
        Ok(Self::of(Arc::new(sqlite::Sqlite::open(path, clock)?)))
    }

    async fn all(&self, what: &str, statements: Vec<Statement>) -> Result<Option<Vec<Rows>>, LedgerError> {
        self.database.carry_out(what, statements).await
    }

    async fn one(&self, what: &str, statement: Statement) -> Result<Rows, LedgerError> {
        let all = self.all(what, vec![statement]).await?;
        Ok(all.and_then(|mut rows| rows.pop()).unwrap_or_default())
    }

    /// Makes a cluster known. Its name may change, its identity does not.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn register(&self, cluster: &ClusterId, name: &ClusterName) -> Result<(), LedgerError> {
        let values = vec![cluster.as_str().into(), name.as_str().into()];
        let statement = Statement::new(sql::REGISTER, values);
        self.one("register the cluster in", statement).await.map(|_| ())
    }

    /// All clusters that can be asked for, by name.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn clusters(&self) -> Result<Vec<AskedCluster>, LedgerError> {
        let rows = self
            .one("list the clusters of", Statement::new(sql::CLUSTERS, Vec::new()))
            .await?;
        rows.into_iter()
            .map(|row| {
                let mut row = Row::of("a cluster", row);
                Ok(AskedCluster {
                    identity: row.parsed()?,
                    name: row.parsed()?,
                    gate: row.maybe(),
                })
            })
            .collect()
    }

    /// The cluster of that name; of no name, the only one that there is.
    ///
    /// # Errors
    /// There is none, or several.
    pub async fn cluster_named(&self, name: Option<&ClusterName>) -> Result<AskedCluster, LedgerError> {
        let all = self.clusters().await?;
        let mut like = all
            .iter()
            .filter(|cluster| name.is_none_or(|name| cluster.name == *name));
        match (like.next(), like.next()) {
            (Some(one), None) => Ok(one.clone()),
            (None, _) => Err(LedgerError::NoCluster(
                name.map_or_else(|| "(none is registered)".to_owned(), ToString::to_string),
            )),
            (Some(_), Some(_)) => Err(LedgerError::NoCluster(format!(
                "without a name: there are {}",
                all.iter()
                    .map(|cluster| cluster.name.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// What stands of a cluster.
    ///
    /// # Errors
    /// The store does not answer, or the cluster is not known.
    pub async fn board(&self, cluster: &ClusterId) -> Result<Board, LedgerError> {
        // The version first: claims that are newer than it are found out when something is claimed by it.
        let of = || vec![cluster.as_str().into()];
        let rows = self
            .all(
                "read the asks of",
                vec![
                    Statement::new(sql::STANDING, of()),
                    Statement::new(sql::CLAIMS, of()),
                    Statement::new(sql::OPEN_ASKS, of()),
                ],
            )
            .await?
            .unwrap_or_default();
        let mut rows = rows.into_iter();
        let standing = rows.next().unwrap_or_default().into_iter().next();
        let standing = standing.ok_or_else(|| LedgerError::NoCluster(cluster.to_string()))?;
        let mut standing = Row::of("a cluster", standing);
        let (version, fence, now) = (standing.whole()?, standing.whole()?, standing.time()?);
        let claims = rows.next().unwrap_or_default();
        let asks = rows.next().unwrap_or_default();
        Ok(Board {
            version,
            fence,
            now,
            claims: claims.into_iter().map(claimed).collect::<Result<_, _>>()?,
            asks: asks.into_iter().map(ask).collect::<Result<_, _>>()?,
        })
    }

    /// Puts an ask. The same key of the same asker gives the ask that is there already.
    ///
    /// # Errors
    /// It is not to be meant, the key was used for another, or the store does not answer.
    pub async fn place(&self, wanted: &NewAsk) -> Result<Ask, LedgerError> {
        wanted.verify(self.database.now())?;
        let id = AskId::new_random()?;
        let body = ask_body(wanted)?;
        let statement = Statement::new(
            sql::PLACE,
            vec![
                id.as_str().into(),
                wanted.cluster.as_str().into(),
                wanted.asker.as_str().into(),
                Value::MaybeText(wanted.key.clone()),
                Value::Text(body),
            ],
        );
        self.one("write an ask to", statement).await?;
        if let Some(key) = &wanted.key {
            let values = vec![
                wanted.cluster.as_str().into(),
                wanted.asker.as_str().into(),
                key.as_str().into(),
            ];
            let rows = self
                .one("read an ask of", Statement::new(sql::ASK_BY_KEY, values))
                .await?;
            let found = rows.into_iter().next().ok_or(LedgerError::NoAsk(id))?;
            let found = ask(found)?;
            return if found.wanted == *wanted {
                Ok(found)
            } else {
                Err(LedgerError::OtherAsk)
            };
        }
        self.ask(&id).await
    }

    /// One who waits wants something else now, and keeps its age.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn ask_anew(&self, id: &AskId, wanted: &NewAsk) -> Result<(), LedgerError> {
        let values = vec![id.as_str().into(), Value::Text(ask_body(wanted)?)];
        let statement = Statement::new(sql::ASK_ANEW, values);
        self.one("write an ask to", statement).await.map(|_| ())
    }

    /// One ask.
    ///
    /// # Errors
    /// There is none, or the store does not answer.
    pub async fn ask(&self, id: &AskId) -> Result<Ask, LedgerError> {
        let rows = self
            .one(
                "read an ask of",
                Statement::new(sql::ASK, vec![id.as_str().into()]),
            )
            .await?;
        rows.into_iter()
            .next()
            .map_or_else(|| Err(LedgerError::NoAsk(id.clone())), ask)
    }

    /// The newest asks of a cluster, whatever came of them; at most so many.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn history(&self, cluster: &ClusterId, most: u32) -> Result<Vec<Ask>, LedgerError> {
        let values = vec![cluster.as_str().into(), Value::Whole(i64::from(most))];
        let rows = self
            .one("list the asks of", Statement::new(sql::HISTORY, values))
            .await?;
        rows.into_iter().map(ask).collect()
    }

    /// Claims, if no other claim came since that version. `None`: one did, and nothing was claimed.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn claim(
        &self,
        cluster: &ClusterId,
        version: u64,
        holder: &ClaimHolder,
        claim: &Claim,
        lasts: Duration,
    ) -> Result<Option<u64>, LedgerError> {
        let done = self
            .all(
                "write a claim to",
                vec![
                    Statement::new(
                        sql::NEXT_VERSION,
                        vec![cluster.as_str().into(), Value::Whole(version.cast_signed())],
                    )
                    .must_hit(),
                    write_claim(cluster, holder, claim, lasts)?,
                ],
            )
            .await?;
        done.map(|rows| fence_of(&rows)).transpose()
    }

    /// Grants an ask: its claim and its answer at once, if no other claim came since that version and this process still
    /// answers for the cluster. `None`: nothing was done.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn grant(
        &self,
        lease: &GateLease,
        version: u64,
        id: &AskId,
        claim: &Claim,
        lasts: Duration,
    ) -> Result<Option<u64>, LedgerError> {
        let cluster = &lease.cluster;
        let holder = ClaimHolder::Grant(id.clone());
        let done = self
            .all(
                "write a grant to",
                vec![
                    Statement::new(
                        sql::NEXT_VERSION_OF_GATE,
                        vec![
                            cluster.as_str().into(),
                            Value::Whole(version.cast_signed()),
                            Value::Whole(lease.fence.cast_signed()),
                        ],
                    )
                    .must_hit(),
                    Statement::new(
                        sql::GRANT,
                        vec![
                            id.as_str().into(),
                            cluster.as_str().into(),
                            Value::Real(lasts.as_secs_f64()),
                        ],
                    )
                    .must_hit(),
                    write_claim(cluster, &holder, claim, lasts)?,
                ],
            )
            .await?;
        done.map(|rows| fence_of(&rows)).transpose()
    }

    /// Says why not now, of several at once. Those that do not wait any more stay as they are.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn answer(&self, answers: &[(AskId, AskAnswer)]) -> Result<(), LedgerError> {
        let statements = answers.iter().map(|(id, answer)| {
            let text = serde_json::to_string(answer).unwrap_or_default();
            Statement::new(sql::ANSWER, vec![id.as_str().into(), Value::Text(text)])
        });
        let statements: Vec<Statement> = statements.collect();
        for some in statements.chunks(1_000) {
            self.all("write answers to", some.to_vec()).await?;
        }
        Ok(())
    }

    /// Records that what was granted was seen down.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn saw_down(&self, id: &AskId) -> Result<(), LedgerError> {
        let statement = Statement::new(sql::SEEN_DOWN, vec![id.as_str().into()]);
        self.one("write to", statement).await.map(|_| ())
    }

    /// The time of a grant of which nothing is down yet begins anew. `false`: there is no such grant.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn extend(&self, id: &AskId, lasts: Duration) -> Result<bool, LedgerError> {
        let lasts = || Value::Real(lasts.as_secs_f64());
        let holder = ClaimHolder::Grant(id.clone()).to_string();
        let done = self
            .all(
                "extend a grant in",
                vec![
                    Statement::new(sql::EXTEND, vec![id.as_str().into(), lasts()]).must_hit(),
                    Statement::new(sql::EXTEND_CLAIM, vec![Value::Text(holder), lasts()]).must_hit(),
                ],
            )
            .await?;
        Ok(done.is_some())
    }

    /// Ends an ask, and with it its claim; whether it was open.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn end(&self, id: &AskId, how: AskEnd, why: &str) -> Result<bool, LedgerError> {
        let holder = ClaimHolder::Grant(id.clone()).to_string();
        let done = self
            .all(
                "end an ask in",
                vec![
                    Statement::new(
                        sql::END,
                        vec![id.as_str().into(), how.as_str().into(), why.into()],
                    )
                    .must_hit(),
                    Statement::new(sql::DROP_CLAIMS_OF, vec![Value::Text(holder)]),
                ],
            )
            .await?;
        Ok(done.is_some())
    }

    /// Renews a claim for that time from now on. `false`: it is over, and its holder has to claim again.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn renew(&self, cluster: &ClusterId, fence: u64, lasts: Duration) -> Result<bool, LedgerError> {
        let values = vec![
            cluster.as_str().into(),
            Value::Whole(fence.cast_signed()),
            Value::Real(lasts.as_secs_f64()),
        ];
        let renewed = self
            .all(
                "renew a claim in",
                vec![Statement::new(sql::RENEW, values).must_hit()],
            )
            .await?;
        Ok(renewed.is_some())
    }

    /// Makes a claim smaller; of nothing, it is dropped.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn shrink(&self, cluster: &ClusterId, fence: u64, to: &Claim) -> Result<(), LedgerError> {
        let of = vec![cluster.as_str().into(), Value::Whole(fence.cast_signed())];
        let statement = if to.is_empty() {
            Statement::new(sql::DROP_CLAIM, of)
        } else {
            let body = claim_body(to)?;
            Statement::new(sql::SHRINK, [of, vec![Value::Text(body)]].concat())
        };
        self.one("write a claim to", statement).await.map(|_| ())
    }

    /// Takes the right to answer for a cluster, if nobody has it. `None`: somebody has.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn take_gate(
        &self,
        cluster: &ClusterId,
        who: &str,
        lasts: Duration,
    ) -> Result<Option<GateLease>, LedgerError> {
        let values = vec![
            cluster.as_str().into(),
            who.into(),
            Value::Real(lasts.as_secs_f64()),
        ];
        let taken = self
            .all(
                "take the gate in",
                vec![Statement::new(sql::TAKE_GATE, values).must_hit()],
            )
            .await?;
        let fence = taken.map(|rows| fence_of(&rows)).transpose()?;
        Ok(fence.map(|fence| GateLease {
            cluster: cluster.clone(),
            fence,
        }))
    }

    /// Keeps that right for so long from now on. `false`: it is lost.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn keep_gate(&self, lease: &GateLease, lasts: Duration) -> Result<bool, LedgerError> {
        let values = vec![
            lease.cluster.as_str().into(),
            Value::Whole(lease.fence.cast_signed()),
            Value::Real(lasts.as_secs_f64()),
        ];
        let kept = self
            .all(
                "keep the gate in",
                vec![Statement::new(sql::KEEP_GATE, values).must_hit()],
            )
            .await?;
        Ok(kept.is_some())
    }

    /// Gives that right back.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn leave_gate(&self, lease: &GateLease) -> Result<(), LedgerError> {
        let values = vec![
            lease.cluster.as_str().into(),
            Value::Whole(lease.fence.cast_signed()),
        ];
        let statement = Statement::new(sql::LEAVE_GATE, values);
        self.one("leave the gate in", statement).await.map(|_| ())
    }
}
