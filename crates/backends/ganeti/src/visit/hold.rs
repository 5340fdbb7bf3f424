//! A node's visit that waits until an operator marks the node as done.

use stagger_engine::cluster::{BackendError, Retryability};

use crate::facts::notes::{Notes, done_tag};
use crate::rapi::client::HttpMethod;
use crate::visit::visitor::Visitor;

impl Visitor<'_> {
    /// Waits until a person says that a node is done, and until it answers. The node is out of service before, and what becomes of
    /// it meanwhile is the person's.
    ///
    /// # Errors
    /// The node is not out of service, does not answer once it is done, or RAPI refuses what is asked.
    pub async fn hold(&self, node: &str) -> Result<String, BackendError> {
        let tried = format!("wait for the maintenance of {node}");
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
            self.tags(HttpMethod::Put, node, &waits.tags()).await?;
        }
        let done = done_tag(&call);
        while !self.has_tag(node, &done).await? {
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
        self.answers_again(node, &tried).await?;
        let _stays = self.limits.master.read().await;
        self.forget_turns_before(node).await?;
        Ok("an operator confirmed that it is done".to_owned())
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
