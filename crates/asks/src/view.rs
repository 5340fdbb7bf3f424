//! An ask as it is shown: over HTTP, by `--json`, and to people.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, UnitId};

use crate::ask::{Ask, AskEnd, AskId, AskState, NewAsk};
use crate::ledger::AskedCluster;

/// An ask, and what came of it so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskDocument {
    /// Its name.
    pub id: AskId,
    /// Of which cluster.
    pub cluster: ClusterName,
    /// Whether a gate answers for the cluster now. Without one nothing is granted.
    pub answered_for: bool,
    /// Who asks.
    pub by: String,
    /// The hosts.
    pub hosts: BTreeSet<String>,
    /// The units.
    pub units: BTreeSet<UnitId>,
    /// For how many seconds.
    #[serde(rename = "for")]
    pub hold: u32,
    /// It is of no use after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What for.
    pub why: String,
    /// Since when.
    pub asked: Timestamp,
    /// What came of it.
    pub state: AskStateWord,
    /// Why not now, or how it ended; in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the plan over all who ask has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
    /// So many are before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
    /// The fence of its grant: it only grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Until when it is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<AskEnd>,
}

/// Where an ask stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AskStateWord {
    /// Not now.
    Waiting,
    /// It may.
    Granted,
    /// It is over.
    Ended,
}

impl AskDocument {
    /// Of an ask of that cluster.
    pub fn of(ask: &Ask, cluster: &AskedCluster) -> Self {
        let NewAsk {
            cluster: _,
            asker,
            key: _,
            hosts,
            units,
            hold,
            until,
            lapses: _,
            why,
            run: _,
        } = ask.wanted.clone();
        let mut document = Self {
            id: ask.id.clone(),
            cluster: cluster.name.clone(),
            answered_for: cluster.gate.is_some(),
            by: asker,
            hosts,
            units,
            hold,
            until,
            why,
            asked: ask.asked,
            state: AskStateWord::Waiting,
            reason: None,
            earliest: None,
            ahead: None,
            fence: None,
            expires: None,
            ended: None,
        };
        match &ask.state {
            AskState::Waiting(answer) => {
                document.reason = Some(answer.why.clone()).filter(|why| !why.is_empty());
                document.earliest = answer.earliest;
                document.ahead = document.reason.as_ref().map(|_| answer.ahead);
            }
            AskState::Granted(grant) => {
                document.state = AskStateWord::Granted;
                document.fence = Some(grant.fence);
                document.expires = Some(grant.expires);
            }
            AskState::Ended { how, at: _, why } => {
                document.state = AskStateWord::Ended;
                document.ended = Some(*how);
                document.reason = Some(why.clone()).filter(|why| !why.is_empty());
            }
        }
        document
    }
}

impl AskDocument {
    /// In a line: `not now: …; 14:20 UTC at the earliest, 5 before you`.
    pub fn line(&self) -> String {
        let reason = self.reason.as_deref();
        match (self.state, self.expires, self.ended) {
            (AskStateWord::Granted, Some(expires), _) => {
                format!(
                    "granted until {:.0} (fence {})",
                    expires,
                    self.fence.unwrap_or_default()
                )
            }
            (AskStateWord::Granted, None, _) => "granted".to_owned(),
            (AskStateWord::Waiting, ..) => {
                let Some(reason) = reason else {
                    return if self.answered_for {
                        "not judged yet".to_owned()
                    } else {
                        format!("nobody answers for {}: `stagger gate` does", self.cluster)
                    };
                };
                let when = self
                    .earliest
                    .map(|at| format!("; {} UTC at the earliest", at.strftime("%H:%M")))
                    .unwrap_or_default();
                format!(
                    "not now: {reason}{when}, {} before you",
                    self.ahead.unwrap_or_default()
                )
            }
            (AskStateWord::Ended, _, how) => {
                let how = how.map_or("over", AskEnd::as_str);
                reason.map_or_else(|| how.to_owned(), |reason| format!("{how}: {reason}"))
            }
        }
    }
}
