//! A node that stays empty until a person says that it is done.
//!
//! That it waits is a tag of the node, and so is the word of the person. Both outlive processes and the master, and may be
//! written from any machine that reaches RAPI; no process of the run needs to live meanwhile.

use serde_json::Value;
use stagger_core::model::RunId;
use stagger_engine::cluster::{BackendError, Retryability};

use crate::backend::GanetiBackend;
use crate::client::{Method, encoded};
use crate::facts::Facts;
use crate::facts::notes::{Notes, done_tag};
use crate::jobs::Status;
use crate::reason::BY_A_PERSON;
use crate::visitor::Visitor;

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
pub fn waiting(facts: &Facts) -> Vec<WaitingNode> {
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

impl Visitor<'_> {
    /// Waits until a person says that a node is done, and until it answers. The node is out of service before, and what becomes of
    /// it meanwhile is the person's.
    ///
    /// # Errors
    /// The node is not out of service, does not answer once it is done, or RAPI refuses what is asked.
    pub async fn hold(&self, node: &str) -> Result<String, BackendError> {
        let tried = format!("wait for a person who works on {node}");
        let call = self.call.key();
        let facts = self.facts().await?;
        let noted = facts
            .nodes
            .get(node)
            .map(|this| this.notes.of(Some(&self.call.run)));
        // A process before waited already: the person may have taken the node away since.
        if !noted.is_some_and(|notes| notes.waits.contains(&call)) {
            self.ensure_empty(node, &tried).await?;
            let waits = Notes {
                run: Some(self.call.run.clone()),
                waits: [call.clone()].into(),
                ..Notes::default()
            };
            let _stays = self.limits.master.read().await;
            self.tags(Method::Put, node, &waits.tags()).await?;
        }
        let done = done_tag(&call);
        while !self.has_tag(node, &done).await? {
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
        self.answers_again(node, &tried).await?;
        let _stays = self.limits.master.read().await;
        self.forget_turns_before(node).await?;
        Ok("a person says that it is done".to_owned())
    }

    /// Whether a node has that tag now. Who cannot be asked now is asked again, for as long as it takes: a person may reboot the
    /// master too.
    async fn has_tag(&self, node: &str, tag: &str) -> Result<bool, BackendError> {
        match self.rapi.get(&format!("/2/nodes/{node}/tags")).await {
            Ok(tags) => Ok(tags
                .as_array()
                .is_some_and(|tags| tags.iter().any(|each| each == tag))),
            Err(error) => {
                let error = error.of(format!("look at the tags of {node}"), false);
                if error.retryability != Retryability::Transient {
                    return Err(error);
                }
                tracing::debug!(%error, node, "asked again");
                Ok(false)
            }
        }
    }
}

impl GanetiBackend {
    /// The nodes that wait for a person.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn waiting(&self) -> Result<Vec<WaitingNode>, BackendError> {
        let (facts, _) = self.look().await?;
        Ok(waiting(&facts))
    }

    /// Says that a node is done: its visit goes on. No lock is needed for it.
    ///
    /// # Errors
    /// The cluster cannot be asked, or the job fails.
    pub async fn done(&self, node: &WaitingNode) -> Result<(), BackendError> {
        let WaitingNode { node, calls, .. } = node;
        let tried = format!("say that {node} is done");
        let tags = calls
            .iter()
            .map(|call| format!("&tag={}", encoded(&done_tag(call))));
        let tags: String = tags.collect();
        let path = format!("/2/nodes/{node}/tags?reason={}{tags}", encoded(BY_A_PERSON));
        let submitted = self.rapi().write(Method::Put, &path, None).await;
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
        if ended.status == Status::Success {
            return Ok(());
        }
        Err(BackendError::permanent(
            tried,
            format!("job {job} ended with {}", ended.why()),
        ))
    }
}
