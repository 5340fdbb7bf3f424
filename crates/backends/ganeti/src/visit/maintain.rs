//! Maintenance of a node other than a reboot, while the node is empty: by a command, or by an operator.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stagger_engine::cluster::{BackendError, Retryability};

use crate::commands;
use crate::facts::GanetiFacts;
use crate::facts::notes::done_tag;
use crate::goal::Task;
use crate::rapi::client::HttpMethod;
use crate::visit;
use crate::visit::perform::ARRIVES;
use crate::visit::visitor::{CUT_OFF, SSH_LOST, Visitor};

/// A node that goes down by its command has fallen silent after that part of the time that a reboot may take: with 900 s, after 15.
/// Systemd ends Ganeti's daemons at once.
const FALLS: u32 = 60;

impl Visitor<'_> {
    /// Runs a command for a node that is out of service, waits until the node answers, and notes there that it had its turn. The
    /// same call again runs no command twice: it reads what came of it. A node that goes down soon after is waited for; where the
    /// connection of the command was lost and the node has booted, that was it.
    ///
    /// # Errors
    /// The node is not out of service, the command does not end with 0, or the node does not answer.
    pub async fn maintain(&self, node: &str, command: &str) -> Result<String, BackendError> {
        let tried = format!("maintain {node}");
        let facts = self.ensure_empty(node, &tried).await?;
        let boot = facts.nodes.get(node).and_then(|node| node.boot.clone());
        if let Some(boot) = &boot {
            let _stays = self.limits.master.read().await;
            self.note_sending(node, boot).await?;
        }
        let names = [("node", node)];
        let ran =
            commands::run_with_outcome(self.rapi, self.settings, self.call, "maintain", command, &names)
                .await?;
        let is_lost = [SSH_LOST, CUT_OFF].contains(&ran.code);
        if is_lost || ran.code == 0 {
            let part = if is_lost { ARRIVES } else { FALLS };
            let limit = self.rapi.pace().reboot / part;
            let falls = self.falls_within(node, boot.as_deref(), limit).await?;
            if !(is_lost && falls) {
                ran.output()?;
            }
        } else {
            ran.output()?;
        }
        self.answers_again(node, &tried).await?;
        let _stays = self.limits.master.read().await;
        self.tags(HttpMethod::Put, node, &[done_tag(&self.call.key())])
            .await?;
        self.forget_turns_before(node).await?;
        Ok("the command has ended".to_owned())
    }

    /// Maintains a node that had no turn once more, and gives the node back. `before`: what was noted there before the run.
    ///
    /// # Errors
    /// As of [`Visitor::maintain`] and [`Visitor::hold`], and what could not be given back.
    pub async fn maintain_again(
        &self,
        node: &str,
        task: &Task,
        before: Option<&BTreeSet<String>>,
    ) -> Result<String, BackendError> {
        let facts = self.facts().await?;
        let had_its_turn = facts.nodes.get(node).is_some_and(|node| {
            let mut done = node.notes.done.iter();
            done.any(|call| before.is_none_or(|before| !before.contains(call)))
        });
        match task {
            Task::Command(command) if !had_its_turn => {
                self.maintain(node, command).await?;
            }
            Task::Hold if !had_its_turn => {
                self.hold(node).await?;
            }
            Task::Command(_) | Task::Hold | Task::Reboot => {}
        }
        self.leave(node).await
    }

    /// Checks that a node is out of service, with its disks in sync elsewhere, before something is done that may take it away.
    pub(crate) async fn ensure_empty(&self, node: &str, tried: &str) -> Result<GanetiFacts, BackendError> {
        let _stays = self.limits.master.read().await;
        self.predecessors().await?;
        let facts = self.facts().await?;
        self.check_not_own_node(node)?;
        let visits = &self.settings.cluster.visits;
        visit::may_reboot(&facts, node, visits, self.planned)
            .map_err(|refusal| BackendError::permanent(tried, refusal.0))?;
        self.disks_are_in_sync(&facts, node).await?;
        Ok(facts)
    }

    /// Whether the node falls silent or boots within that time: a command may end before the reboot that it has asked for begins.
    async fn falls_within(
        &self,
        node: &str,
        boot: Option<&str>,
        limit: Duration,
    ) -> Result<bool, BackendError> {
        let begun = Instant::now();
        loop {
            match self.rapi.boot(node).await {
                Ok(now) if now.as_deref() != boot => return Ok(true),
                Err(error) if error.retryability != Retryability::Transient => return Err(error),
                Ok(_) | Err(_) => {}
            }
            if begun.elapsed() > limit {
                return Ok(false);
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
    }

    /// Waits until a node answers Ganeti, for as long as a reboot may take.
    pub(crate) async fn answers_again(&self, node: &str, tried: &str) -> Result<(), BackendError> {
        let ended = Instant::now();
        while !self.answers(node).await? {
            if ended.elapsed() > self.rapi.pace().reboot {
                let why = format!(
                    "it does not answer {} s after the maintenance",
                    ended.elapsed().as_secs()
                );
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "fix {node}; it stays out of service, and its instances where they are"
                )));
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
        Ok(())
    }

    /// Takes away from a node what says that it had its turn by other calls than this.
    pub(crate) async fn forget_turns_before(&self, node: &str) -> Result<(), BackendError> {
        let done = self.call.key();
        let facts = self.facts().await?;
        let noted = facts.nodes.get(node).map(|node| &node.notes.done);
        let older: Vec<String> = noted
            .into_iter()
            .flatten()
            .filter(|call| **call != done)
            .map(|call| done_tag(call))
            .collect();
        if older.is_empty() {
            return Ok(());
        }
        self.tags(HttpMethod::Delete, node, &older).await
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
