//! The source of a cluster's facts: the cluster, a folder of answers, or an inventory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use stagger_core::model::ClusterName;
use stagger_engine::cluster::{BackendError, Retryability, Source, in_full};
use stagger_engine::inventory::{Inventory, InventoryError};

use crate::api::recorded::Recorded;
use crate::api::saved::{AnswerRecorder, FromSaved, SavedAnswers};
use crate::api::{CephApi, QueryTarget};
use crate::effects::api_error;
use crate::facts::{CephFacts, CollectError, CollectOptions, collect, stores};

/// What an inventory of a Ceph says that it is of.
pub const SYSTEM: &str = "ceph";

/// What answers for a Ceph.
pub struct CephSource {
    api: Arc<dyn CephApi>,
    name: ClusterName,
    /// When the answers were given; `None`: they are given now.
    taken: Option<Timestamp>,
    is_live: bool,
    hint: Option<&'static str>,
    kept: Vec<KeptAnswer>,
}

/// An answer that is kept in an inventory beside those behind the facts.
struct KeptAnswer {
    question: &'static str,
    /// What of the answer may be kept; `None`: nothing.
    keep: Box<KeptPart>,
}

/// From an answer to what of it may be kept.
type KeptPart = dyn Fn(&[u8]) -> Option<Value> + Send + Sync;

impl CephSource {
    /// The cluster that answers there.
    pub fn live(api: Arc<dyn CephApi>, name: ClusterName) -> Self {
        Self {
            api,
            name,
            taken: None,
            is_live: true,
            hint: None,
            kept: Vec::new(),
        }
    }

    /// Answers as `ceph … -f json` prints them, in a folder. They are taken for given now.
    pub fn folder(folder: &Path, name: ClusterName) -> Self {
        Self {
            is_live: false,
            ..Self::live(Arc::new(Recorded::new(folder)), name)
        }
    }

    /// An inventory that was read from that file.
    ///
    /// # Errors
    /// Its answers have another shape.
    pub fn from_inventory(inventory: &Inventory, file: &Path) -> Result<Self, InventoryError> {
        let answers: SavedAnswers = inventory.answers()?;
        let api = Arc::new(FromSaved::new(answers, file));
        Ok(Self {
            taken: Some(inventory.taken),
            ..Self::folder(file, inventory.cluster.clone()).with_api(api)
        })
    }

    /// The same, with what to do where nothing answers.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The same, where the inventory keeps of the monitors' answer to a question what `keep` says.
    #[must_use]
    pub fn keeping(
        mut self,
        question: &'static str,
        keep: impl Fn(&[u8]) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.kept.push(KeptAnswer {
            question,
            keep: Box::new(keep),
        });
        self
    }

    /// What answers.
    pub fn api(&self) -> &Arc<dyn CephApi> {
        &self.api
    }

    fn with_api(mut self, api: Arc<dyn CephApi>) -> Self {
        self.api = api;
        self
    }

    async fn facts_through(&self, api: &dyn CephApi) -> Result<CephFacts, BackendError> {
        let time = self.taken.unwrap_or_else(Timestamp::now);
        let mut facts = facts_at(api, &self.name, time).await.map_err(|mut error| {
            // Asking a file again gives the same answer: it is not out of reach, it is wrong.
            if !self.is_live {
                error.retryability = Retryability::Permanent;
            }
            match self.hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })?;
        if self.is_live {
            stores::ask_mons(api, &mut facts).await;
        }
        Ok(facts)
    }
}

#[async_trait]
impl Source for CephSource {
    type Facts = CephFacts;

    async fn facts(&self) -> Result<CephFacts, BackendError> {
        self.facts_through(&*self.api).await
    }

    async fn inventory(&self) -> Result<(Inventory, CephFacts), BackendError> {
        let wrong =
            |error: serde_json::Error| BackendError::permanent("write the inventory", error.to_string());
        let recorder = AnswerRecorder::new(Arc::clone(&self.api));
        let facts = self.facts_through(&recorder).await?;
        let mut answers = verbatim(&recorder.answers()).map_err(wrong)?;
        for KeptAnswer { question, keep } in &self.kept {
            let answer = self
                .api
                .ask(QueryTarget::Mon, json!({ "prefix": question }))
                .await;
            // Who may not look at it keeps nothing of it.
            let Some(answer) = answer.ok().and_then(|answer| keep(&answer)) else {
                continue;
            };
            let answer = to_raw_value(&json!({ "json": answer })).map_err(wrong)?;
            answers.insert((*question).to_owned(), answer);
        }
        let inventory =
            Inventory::new(SYSTEM, self.name.clone(), facts.collected_at, &answers).map_err(wrong)?;
        Ok((inventory, facts))
    }
}

/// Answers by their questions, as they will be written.
fn verbatim(answers: &SavedAnswers) -> Result<BTreeMap<String, Box<RawValue>>, serde_json::Error> {
    serde_json::from_str(&serde_json::to_string_pretty(answers)?)
}

/// All facts of the cluster of that name, as of that time: that of the observation, where answers come from a file.
///
/// # Errors
/// No answer, an unreadable one, or facts that contradict each other.
pub(crate) async fn facts_at(
    api: &dyn CephApi,
    name: &ClusterName,
    time: Timestamp,
) -> Result<CephFacts, BackendError> {
    let tried = format!("observe the cluster {name}");
    collect(api, &CollectOptions::default(), time)
        .await
        .map_err(|error| match &error {
            CollectError::Api(inner) => api_error(&tried, inner),
            CollectError::Parse(inner) => BackendError::transient(&tried, in_full(inner)),
            CollectError::Contradict { .. } => BackendError::transient(&tried, error.to_string()),
        })
}
