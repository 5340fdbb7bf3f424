//! Maintenance of a node other than a reboot: a command, run while the node is empty.

use std::collections::BTreeSet;
use std::time::Instant;

use stagger_engine::cluster::{BackendError, Retryability};

use crate::client::Method;
use crate::facts::notes::done_tag;
use crate::visit;
use crate::visitor::Visitor;

impl Visitor<'_> {
    /// Runs a command for a node that is out of service, waits until the node answers, and notes there that it had its turn. The
    /// same call again runs no command twice: it reads what came of it.
    ///
    /// # Errors
    /// The node is not out of service, the command does not end with 0, or the node does not answer.
    pub async fn maintain(&self, node: &str, command: &str) -> Result<String, BackendError> {
        let tried = format!("maintain {node}");
        {
            let _stays = self.limits.master.read().await;
            self.predecessors().await?;
            let facts = self.facts().await?;
            // A command may take it away, as a reboot does.
            self.goes_on_without(node)?;
            let visits = &self.settings.cluster.visits;
            visit::may_reboot(&facts, node, visits, self.planned)
                .map_err(|refusal| BackendError::permanent(&tried, refusal.0))?;
            self.disks_are_in_sync(&facts, node).await?;
        }
        self.command("maintain", command, &[("node", node)]).await?;
        let ended = Instant::now();
        while !self.answers(node).await? {
            if ended.elapsed() > self.rapi.pace().reboot {
                let why = format!(
                    "it does not answer {} s after the command",
                    ended.elapsed().as_secs()
                );
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "see to {node}; it stays out of service, and its instances where they are"
                )));
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
        let _stays = self.limits.master.read().await;
        let done = self.call.key();
        self.tags(Method::Put, node, &[done_tag(&done)]).await?;
        let facts = self.facts().await?;
        let noted = facts.nodes.get(node).map(|node| &node.notes.done);
        let older: Vec<String> = noted
            .into_iter()
            .flatten()
            .filter(|call| **call != done)
            .map(|call| done_tag(call))
            .collect();
        if !older.is_empty() {
            self.tags(Method::Delete, node, &older).await?;
        }
        Ok("the command has ended".to_owned())
    }

    /// Runs the command once more for a node that had no turn by it, and gives the node back. `before`: what was noted there
    /// before the run.
    ///
    /// # Errors
    /// As of [`Visitor::maintain`], and what could not be given back.
    pub async fn maintain_again(
        &self,
        node: &str,
        command: &str,
        before: Option<&BTreeSet<String>>,
    ) -> Result<String, BackendError> {
        let facts = self.facts().await?;
        let had_its_turn = facts.nodes.get(node).is_some_and(|node| {
            let mut done = node.notes.done.iter();
            done.any(|call| before.is_none_or(|before| !before.contains(call)))
        });
        if !had_its_turn {
            self.maintain(node, command).await?;
        }
        self.leave(node).await
    }

    /// Whether it answers Ganeti now. Who cannot be asked now is asked again.
    async fn answers(&self, node: &str) -> Result<bool, BackendError> {
        match self.rapi.boot(node).await {
            Ok(boot) => Ok(boot.is_some()),
            Err(error) if error.retryability == Retryability::Transient => {
                tracing::debug!(%error, node, "asked again");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
