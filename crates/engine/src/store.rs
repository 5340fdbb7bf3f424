//! The store of journals.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::releases::{Own, document_version};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_versioned::{Chain, Row, Version, Versioned};

use crate::cluster::{LockError, LockRecord};
use crate::liveness::Liveness;

/// A store that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another holder's fencing token is larger: stop at once.
    #[error("fenced out: this process has token {ours}, and the journal of {cluster} has seen {newest}")]
    FencedOut {
        /// Of which cluster.
        cluster: ClusterName,
        /// Ours.
        ours: u64,
        /// The newest.
        newest: u64,
    },
    /// The journal has moved on since it was read.
    #[error("the journal of run {run} is at event {found}, not at {expected}")]
    MovedOn {
        /// Which run.
        run: RunId,
        /// Where it was thought to stand.
        expected: Seq,
        /// Where it stands.
        found: Seq,
    },
    /// What was read is not what was written.
    #[error("the journal of run {run} is damaged after event {last_good}: {why}")]
    Damaged {
        /// Which run.
        run: RunId,
        /// The last event that is as it was written; 0: none.
        last_good: Seq,
        /// What is wrong with the next one.
        why: String,
    },
    /// What was stored is not damaged, and this program does not know it.
    #[error("{what} cannot be read by this release: {why}")]
    OfAnotherRelease {
        /// What was read.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// The schema is not one that this program works on.
    #[error("the store {store} cannot be used as it is: {why}")]
    OtherSchema {
        /// Which store.
        store: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such run.
    #[error("there is no run {0} in this store")]
    NoRun(RunId),
    /// The store itself failed.
    #[error("{tried}: {why}")]
    Failed {
        /// What was tried, on what.
        tried: String,
        /// Why it failed.
        why: String,
    },
}

/// A run as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listed {
    /// Its name.
    #[serde(rename = "id")]
    pub run: RunId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// When it was started.
    pub started: Timestamp,
    /// Its cluster as that knows itself; `None`: it was not asked for when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ClusterId>,
    /// The fencing token of who ended it; `None`: it is not over, or its journal has to be read to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<u64>,
}

/// The recorded process that carries a run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The fencing token.
    pub fence: u64,
    /// Who; `None`: they have said that they stopped.
    pub claim: Option<LockRecord>,
    /// How long ago that was last said, by the store's own clock.
    pub ago: Duration,
    /// How long it counts.
    pub expires: Duration,
}

impl Presence {
    /// Why the run is interrupted, if it is.
    pub fn interruption_reason(&self) -> Option<String> {
        let Self {
            fence: _,
            claim,
            ago,
            expires,
        } = self;
        let Some(claim) = claim else {
            return Some(format!("it was stopped {} s ago", ago.as_secs()));
        };
        let LockRecord { host, process, .. } = claim;
        if claim.pulse() == Liveness::Gone {
            return Some(format!("process {process} on {host} is gone"));
        }
        (ago >= expires).then(|| {
            format!(
                "process {process} on {host} has not renewed its lock for {} s, and it lasts {} s",
                ago.as_secs(),
                expires.as_secs()
            )
        })
    }
}

/// The newest event of a journal, or one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its place.
    pub seq: Seq,
    /// The checksum over all up to there.
    pub sum: String,
}

impl Versioned for Listed {
    const NAME: &'static str = "listed-run";
    const VERSION: Version = document_version(1);
}

impl Own for Listed {
    fn chain() -> &'static Arc<Chain<Self>> {
        static CHAIN: LazyLock<Arc<Chain<Listed>>> =
            LazyLock::new(|| Arc::new(Chain::first().rows_without_version_are_these()));
        &CHAIN
    }
}

impl Listed {
    /// From the columns of a row. A row of another release is listed too, by its key columns; reading its
    /// journal reports the rest.
    pub(crate) fn of_row(row: &ListedRow) -> Result<Self, String> {
        let ListedRow {
            version,
            id,
            cluster,
            started,
            identity,
            ended_by,
        } = row;
        let version = version.as_deref();
        let columns = [("id", id), ("cluster", cluster), ("started", started)];
        let mut fields: Vec<(String, serde_json::Value)> = columns
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.as_str().into()))
            .collect();
        if let Some(identity) = identity {
            fields.push(("identity".to_owned(), identity.as_str().into()));
        }
        if let Some(ended_by) = ended_by {
            fields.push(("ended_by".to_owned(), ended_by.cast_unsigned().into()));
        }
        let chain = Self::chain();
        let known = version
            .and_then(|text| text.parse().ok())
            .filter(|version| chain.can_write(*version));
        let row = Row {
            version: Some(known.unwrap_or(<Self as Versioned>::VERSION)),
            fields: fields.into_iter().collect(),
        };
        let stored = chain.load(row).map_err(|error| error.to_string())?;
        Ok(stored.held.value)
    }
}

/// The columns of a listed run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedRow {
    pub(crate) version: Option<String>,
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) started: String,
    pub(crate) identity: Option<String>,
    pub(crate) ended_by: Option<i64>,
}

/// The lock of a cluster, kept beside the journals, one row a cluster: for a world that has no place for one.
///
/// All times are those of the database.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes it, if it is free or was not renewed in time. Returns a fencing token that is larger than
    /// `at_least` and than all earlier ones.
    async fn lock(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        at_least: u64,
        expires: Duration,
    ) -> Result<u64, LockError>;

    /// Renews it for that time from now on. A renewal that is too late has lost the lock, even if it is still
    /// free.
    async fn renew(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        fence: u64,
        expires: Duration,
    ) -> Result<(), LockError>;

    /// Gives it back. The token stays, so that the next one is larger.
    async fn unlock(&self, cluster: &ClusterName, claim: &LockRecord, fence: u64) -> Result<(), LockError>;
}

/// Journals, the fencing tokens that guard them, and what people ask of runs.
///
/// When a call returns, what it wrote is durable: it survives the end of the process and of the
/// machine. A write that is dropped before may be there or not: ask the journal.
#[async_trait]
pub trait JournalStore: Send + Sync {
    /// The newest fencing token seen of a cluster; 0 if none.
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError>;

    /// Whether it can be written now, found out by a write that changes nothing. A store that has no such write says yes.
    async fn can_be_written(&mut self, _cluster: &ClusterName) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes this the newest fencing token of a cluster: appends with older ones are refused from
    /// now on.
    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError>;

    /// Begins a journal. Until it has returned, the run has not begun.
    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError>;

    /// Appends events in one piece: all of them or none.
    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError>;

    /// The whole journal of a run, verified.
    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError>;

    /// All runs, the newest first.
    async fn runs(&self) -> Result<Vec<Listed>, StoreError>;

    /// Leaves a command for the process that carries the run out.
    async fn ask(
        &mut self,
        run: &RunId,
        at: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError>;

    /// The pending commands, oldest first, with their ids.
    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError>;

    /// Records that the journal has all commands up to that id.
    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError>;

    /// A journal's position: at that event, or at its newest. `Ok(None)`: it has no such event. Earlier rows
    /// are not verified. A store without checksums answers as if it did not have the run.
    async fn mark(&self, run: &RunId, _at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        Err(StoreError::NoRun(run.clone()))
    }

    /// A second handle to the same store, for lock renewals while the driver writes; `None`: there can be
    /// only one.
    async fn beside(&self) -> Result<Option<Box<dyn JournalStore>>, StoreError> {
        Ok(None)
    }

    /// Records that this process carries a run out, as of now. A store without presence records nothing.
    async fn beat(
        &mut self,
        _run: &RunId,
        _fence: u64,
        _claim: &LockRecord,
        _expires: Duration,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    /// Clears that record, unless another process has made one since.
    async fn clear_presence(&mut self, _run: &RunId, _fence: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// The process that carries a run out; `None`: none was ever recorded.
    async fn presence(&self, _run: &RunId) -> Result<Option<Presence>, StoreError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::{ProcessIdentity, hostname};

    const EXPIRES: u64 = 60;

    fn presence(claim: Option<LockRecord>, ago: u64) -> Presence {
        Presence {
            fence: 1,
            claim,
            ago: Duration::from_secs(ago),
            expires: Duration::from_secs(EXPIRES),
        }
    }

    fn claim(process: u32, life: Option<ProcessIdentity>) -> LockRecord {
        LockRecord {
            incarnation: "1".to_owned(),
            run: RunId::new("r").unwrap(),
            host: hostname(),
            process,
            since: Timestamp::UNIX_EPOCH,
            life,
        }
    }

    #[test]
    fn who_has_stopped_or_is_gone_or_renews_nothing_is_not_at_work() {
        let stopped = presence(None, 5).interruption_reason();
        assert_eq!(stopped.as_deref(), Some("it was stopped 5 s ago"));

        let me = std::process::id();
        let mut another = ProcessIdentity::of(me).unwrap();
        another.begun -= 1;
        let gone = presence(Some(claim(me, Some(another))), 0).interruption_reason();
        assert!(gone.is_some_and(|why| why.ends_with("is gone")));

        for life in [None, ProcessIdentity::of(me)] {
            let claim = claim(me, life);
            assert_eq!(
                presence(Some(claim.clone()), EXPIRES - 1).interruption_reason(),
                None
            );
            let late = presence(Some(claim), EXPIRES).interruption_reason();
            let told = "has not renewed its lock for 60 s, and it lasts 60 s";
            assert!(late.is_some_and(|why| why.ends_with(told)));
        }
    }

    /// A store that can do what every store must, and nothing more.
    struct Plain;

    #[async_trait]
    impl JournalStore for Plain {
        async fn fence(&self, _: &ClusterName) -> Result<u64, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn raise(&mut self, _: &ClusterName, _: u64, _: &str) -> Result<(), StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn begin(
            &mut self,
            _: &ClusterName,
            _: u64,
            _: Timestamp,
            _: Event,
        ) -> Result<Entry, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn append(
            &mut self,
            _: &RunId,
            _: u64,
            _: Seq,
            _: Timestamp,
            _: Vec<Event>,
        ) -> Result<Vec<Entry>, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn journal(&self, _: &RunId) -> Result<Vec<Entry>, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn ask(&mut self, _: &RunId, _: Timestamp, _: &Command, _: &str) -> Result<(), StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn pending_commands(&self, _: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
            unreachable!("nobody asks for it")
        }
        async fn acknowledge_commands(&mut self, _: &RunId, _: i64) -> Result<(), StoreError> {
            unreachable!("nobody asks for it")
        }
    }

    /// That it has no such event would mean that a journal was put back.
    #[tokio::test]
    async fn a_store_without_checksums_does_not_say_that_an_event_is_missing() {
        let run = RunId::new("r").unwrap();
        assert!(matches!(Plain.mark(&run, Some(1)).await, Err(StoreError::NoRun(of)) if of == run));
        assert_eq!(Plain.presence(&run).await.unwrap(), None);
    }
}
