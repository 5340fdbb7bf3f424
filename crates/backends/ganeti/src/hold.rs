//! A node that stays empty until an operator marks it as done.
//!
//! The wait is a tag of the node, and so is the mark. Both outlive processes and the master, and may be
//! written from any machine that reaches RAPI; no process of the run needs to live meanwhile.

use serde_json::Value;
use stagger_core::model::RunId;
use stagger_engine::cluster::BackendError;

use crate::backend::GanetiBackend;
use crate::facts::GanetiFacts;
use crate::facts::notes::done_tag;
use crate::rapi::client::{HttpMethod, encoded};
use crate::rapi::jobs::JobStatus;
use crate::rapi::reason::BY_A_PERSON;

/// A node that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingNode {
    /// The node.
    pub node: String,
    /// The run whose visit it is.
    pub run: Option<RunId>,
    /// The calls that wait.
    calls: Vec<String>,
}

/// The nodes that wait for a person, in the order of their names; a node twice, where two runs wait for it.
pub fn waiting(facts: &GanetiFacts) -> Vec<WaitingNode> {
    let visits = facts
        .nodes
        .values()
        .flat_map(|node| node.notes.visits().map(move |notes| (node, notes)));
    let waiting = visits.map(|(node, notes)| WaitingNode {
        node: node.name.clone(),
        run: notes.run.clone(),
        calls: notes.waits.difference(&node.notes.done).cloned().collect(),
    });
    waiting.filter(|waiting| !waiting.calls.is_empty()).collect()
}

impl GanetiBackend {
    /// The nodes that wait for a person.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn waiting(&self) -> Result<Vec<WaitingNode>, BackendError> {
        let (facts, _) = self.observe_cluster().await?;
        Ok(waiting(&facts))
    }

    /// Says that a node is done: its visit goes on. No lock is needed for it.
    ///
    /// # Errors
    /// The cluster cannot be asked, or the job fails.
    pub async fn mark_done(&self, node: &WaitingNode) -> Result<(), BackendError> {
        let WaitingNode { node, calls, .. } = node;
        let tried = format!("say that {node} is done");
        let tags = calls
            .iter()
            .map(|call| format!("&tag={}", encoded(&done_tag(call))));
        let tags: String = tags.collect();
        let path = format!("/2/nodes/{node}/tags?reason={}{tags}", encoded(BY_A_PERSON));
        let submitted = self.rapi().write(HttpMethod::Put, &path, None).await;
        let submitted = submitted.map_err(|error| error.of(&tried, true))?;
        let job = match &submitted {
            Value::Number(id) => id.as_u64(),
            // Older releases say the number as a text.
            Value::String(id) => id.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let Some(job) = job else {
            return Err(
                BackendError::transient(tried, format!("{submitted} is not a job")).outcome_unknown(),
            );
        };
        let ended = self.rapi().wait(job, &tried).await?;
        if ended.status == JobStatus::Success {
            return Ok(());
        }
        Err(BackendError::permanent(
            tried,
            format!("job {job} ended with {}", ended.error_text()),
        ))
    }
}
