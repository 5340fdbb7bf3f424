//! Carries visits out: batch after batch, each by jobs.
//!
//! Every batch is decided on fresh facts, and one call carries no batch out twice: where the same batch
//! recurs, the cluster does not show the result yet, and it is observed again.

use std::time::Instant;

use futures::future::join_all;
use serde_json::json;
use stagger_core::model::{RunId, UnitId};
use stagger_engine::cluster::{BackendError, Retryability};

use crate::commands;
use crate::config::{DrainScope, RebootMethod};
use crate::drain_scope::names_of;
use crate::facts::NodeRole;
use crate::facts::notes::Notes;
use crate::rapi::client::HttpMethod;
use crate::rapi::jobs::{GanetiJob, JobRequest};
use crate::visit::master::fail_over;
use crate::visit::moves::{all_of, finished_before};
use crate::visit::pacer::Pacer;
use crate::visit::visitor::{CUT_OFF, SSH_LOST, Visitor};
use crate::visit::{self, JobBatch, LeaveProgress, VisitRefusal};

/// So many tags fit into one request: RAPI takes 8,192 characters in its first line.
const TAGS_AT_ONCE: usize = 60;

/// A reboot of which nobody knows whether it arrived has not, if the node answers on for that part of the time that a reboot may
/// take: with 900 s, longer than systemd waits for a service that does not end.
pub(crate) const ARRIVES: u32 = 8;

/// How a reboot was sent.
enum RebootDelivery {
    /// And that is certain.
    Whole,
    /// And nobody knows whether it arrived.
    Lost(String),
}

fn refusal_error(tried: &str, refusal: VisitRefusal) -> BackendError {
    BackendError::permanent(tried, refusal.0)
}

impl Visitor<'_> {
    /// Takes a node out of service.
    ///
    /// # Errors
    /// What could not be done.
    pub async fn enter(&self, node: &str) -> Result<String, BackendError> {
        let tried = format!("take {node} out of service");
        let master = &self.limits.master;
        let before = {
            let _stays = master.read().await;
            let before = self.predecessors().await?;
            let visits = &self.settings.cluster.visits;
            if visits.drain {
                let names = match visits.drain_scope {
                    DrainScope::Cluster => None,
                    DrainScope::Wave => {
                        let this = UnitId::new(node)
                            .map_err(|error| BackendError::permanent(&tried, error.to_string()))?;
                        names_of(&self.facts().await?, &[this])
                    }
                };
                self.retry_while_unavailable(|| self.rapi.wait_for_others(names.as_ref()))
                    .await?;
            }
            before
        };
        let (mut looked_at_disks, mut begun) = (false, false);
        let mut moved = 0;
        let mut pacer = Pacer::new(&tried);
        let mut alone = None;
        // One time for all that is noted: with another at each look it would be noted again.
        let mut begun_at = None;
        loop {
            let stays = match &alone {
                Some(_) => None,
                None => Some(master.read().await),
            };
            let mut facts = self.facts().await?;
            facts.at = *begun_at.get_or_insert(facts.at);
            // Others may have been waited for long: what the judges have said is too old then, and nothing is begun.
            let of_this_run = Some(&self.call.run);
            let noted = facts.nodes.get(node).map(|node| node.notes.of(of_this_run));
            let is_noted = noted.is_some_and(|notes| !notes.is_empty());
            if !begun && !is_noted {
                self.call.may_begin(&tried)?;
            }
            let visits = &self.settings.cluster.visits;
            if facts
                .nodes
                .get(node)
                .is_some_and(|node| node.role != NodeRole::Master)
            {
                self.check_not_own_node(node)?;
            }
            let next = visit::enter(&facts, node, visits, self.planned)
                .map_err(|error| refusal_error(&tried, error))?;
            let Some(batch) = next else {
                self.hook("enter", node).await?;
                return Ok(match moved {
                    0 => "nothing had to be moved".to_owned(),
                    moved => format!("{moved} instances moved"),
                });
            };
            let changes_master = matches!(batch, JobBatch::Failover { .. });
            if changes_master != alone.is_some() {
                // Looked at again then: the successor may have been taken out of service meanwhile.
                drop(stays);
                alone = if changes_master {
                    Some(master.write().await)
                } else {
                    None
                };
                continue;
            }
            if !looked_at_disks {
                self.disks_are_in_sync(&facts, node).await?;
                looked_at_disks = true;
            }
            if let JobBatch::Move(moves) = &batch {
                moved = moves.len();
            }
            if pacer.is_new(&batch)? {
                begun = true;
                self.carry_out(node, batch, &before).await?;
            } else {
                tokio::time::sleep(self.rapi.pace().poll).await;
            }
        }
    }

    /// Reboots a node, and waits until its boot id is another than `before`. It is sent when the node answers.
    ///
    /// # Errors
    /// It carries instances that run, or does not come back.
    pub async fn change(&self, node: &str, before: &str) -> Result<String, BackendError> {
        let tried = format!("reboot {node}");
        let predecessors = {
            let _stays = self.limits.master.read().await;
            self.predecessors().await?
        };
        let mut begun = Instant::now();
        let mut sent = None;
        // Ever since it was sent.
        let mut answered = false;
        loop {
            let stays = self.limits.master.read().await;
            let boot = match self.rapi.boot(node).await {
                // Who cannot be asked now is asked again.
                Err(error) if error.retryability == Retryability::Transient => {
                    tracing::debug!(%error, node, "asked again");
                    None
                }
                answer => answer?,
            };
            answered = boot.is_some() && (answered || sent.is_none());
            match boot {
                Some(boot) if boot != before => {
                    return Ok(match sent {
                        Some(_) => format!("back after {} s", begun.elapsed().as_secs()),
                        None => "it has booted already".to_owned(),
                    });
                }
                // By a process before, for this very intent.
                Some(_) if sent.is_none() && finished_before(&predecessors, &powercycle(node)) => {
                    sent = Some(RebootDelivery::Whole);
                }
                Some(_) if sent.is_none() => {
                    let facts = self.facts().await?;
                    // It may have gone away since.
                    if facts.nodes.get(node).is_some_and(|node| node.boot.is_some()) {
                        self.check_not_own_node(node)?;
                        visit::may_reboot(&facts, node, &self.settings.cluster.visits, self.planned)
                            .map_err(|error| refusal_error(&tried, error))?;
                        // They were when it was entered; all that it carried was moved since.
                        self.disks_are_in_sync(&facts, node).await?;
                        let noted = facts
                            .nodes
                            .get(node)
                            .map(|node| node.notes.of(Some(&self.call.run)));
                        if noted.is_none_or(|notes| notes.sent.as_deref() != Some(before)) {
                            self.note_sending(node, before).await?;
                        }
                        sent = Some(self.send_reboot(node).await?);
                        begun = Instant::now();
                    }
                }
                Some(_) | None => {}
            }
            drop(stays);
            if let Some(RebootDelivery::Lost(how)) = &sent
                && answered
                && begun.elapsed() > self.rapi.pace().reboot / ARRIVES
            {
                let why = format!(
                    "it did not arrive: the node answers as before, {} s after that {how}",
                    begun.elapsed().as_secs()
                );
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "see that {node} can be reached by ssh, from the master too; it stays out of service until then"
                )));
            }
            if begun.elapsed() > self.rapi.pace().reboot {
                let why = match &sent {
                    None => "it does not answer".to_owned(),
                    Some(RebootDelivery::Whole) if answered => {
                        "it answers as before: the reboot was taken, and did not happen".to_owned()
                    }
                    Some(RebootDelivery::Whole) => "it is not back".to_owned(),
                    Some(RebootDelivery::Lost(how)) => format!("it is not back, and {how}"),
                };
                let why = format!("{why}, after {} s", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "fix {node}; it stays out of service, and its instances where they are"
                )));
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
    }

    /// Notes that the node may be on its way down from now on: whoever gives it back without the journal waits for that.
    pub(crate) async fn note_sending(&self, node: &str, boot: &str) -> Result<(), BackendError> {
        let sent = Notes {
            run: Some(self.call.run.clone()),
            sent: Some(boot.to_owned()),
            ..Notes::default()
        };
        self.tags(HttpMethod::Put, node, &sent.tags()).await
    }

    async fn send_reboot(&self, node: &str) -> Result<RebootDelivery, BackendError> {
        if let RebootMethod::Command(command) = self.settings.cluster.visits.reboot_method() {
            let names = [("node", node)];
            let ran =
                commands::run_with_outcome(self.rapi, self.settings, self.call, "reboot", command, &names)
                    .await?;
            return match ran.code {
                // So ssh ends where the connection does, which a reboot takes away; or it waits for an answer that never comes.
                SSH_LOST | CUT_OFF => Ok(RebootDelivery::Lost(ran.outcome_text())),
                _ => ran.output().map(|_| RebootDelivery::Whole),
            };
        }
        let work = JobRequest::new(
            powercycle(node),
            HttpMethod::Post,
            format!("/2/nodes/{node}/powercycle"),
        );
        self.rapi
            .carry_out(self.call, &work)
            .await
            .map(|_| RebootDelivery::Whole)
    }

    /// Reboots a node once more, or waits for it if it is on its way, and gives it back. One that has not been rebooted and may
    /// not be is given back as it is.
    ///
    /// # Errors
    /// What could not be done, and why it may not be rebooted.
    pub async fn restart(&self, node: &str, before: &str) -> Result<String, BackendError> {
        let predecessors = self.predecessors().await?;
        let facts = self.facts().await?;
        let is_as_before = facts
            .nodes
            .get(node)
            .is_some_and(|node| node.boot.as_deref() == Some(before));
        if is_as_before && !finished_before(&predecessors, &powercycle(node)) {
            let visits = &self.settings.cluster.visits;
            if let Err(refusal) = visit::may_reboot(&facts, node, visits, self.planned) {
                self.leave(node).await?;
                return Err(refusal_error(&format!("reboot {node}"), refusal).hint(format!(
                    "{node} was returned and not rebooted; `stagger abort` ends the run, and a new run reboots it"
                )));
            }
        }
        self.change(node, before).await?;
        self.leave(node).await
    }

    /// Gives a node back, as far as the call's own run took it.
    ///
    /// # Errors
    /// What could not be done: what was moved away stays there.
    pub async fn leave(&self, node: &str) -> Result<String, BackendError> {
        self.restore_node(node, Some(&self.call.run)).await
    }

    /// Gives back what the visit of that run took from a node; `None`: that of a run that is not named.
    ///
    /// # Errors
    /// As of [`Visitor::leave`].
    pub async fn restore_node(&self, node: &str, run: Option<&RunId>) -> Result<String, BackendError> {
        let tried = format!("return {node} to service");
        let stays = self.limits.master.read().await;
        let before = self.predecessors().await?;
        let mut leaving = LeaveProgress::default();
        let mut back = 0;
        let mut pacer = Pacer::new(&tried);
        if self
            .retry_while_unavailable(|| self.rapi.boot(node))
            .await?
            .is_some()
        {
            self.hook("leave", node).await?;
        }
        drop(stays);
        loop {
            let _stays = self.limits.master.read().await;
            let facts = self.facts().await?;
            let next =
                visit::leave(&facts, node, run, &leaving).map_err(|error| refusal_error(&tried, error))?;
            let Some(batch) = next else {
                return Ok(match back {
                    0 => "it is back".to_owned(),
                    back => format!("it is back, and {back} instances with it"),
                });
            };
            match &batch {
                JobBatch::Move(moves) => back = moves.len(),
                JobBatch::Sync(names) => leaving.synced.extend(names.iter().cloned()),
                JobBatch::Failover { .. }
                | JobBatch::Note(_)
                | JobBatch::Drain { .. }
                | JobBatch::Replace(_)
                | JobBatch::Stop(_)
                | JobBatch::Return(_)
                | JobBatch::Start(_)
                | JobBatch::Forget(_)
                | JobBatch::Look(_) => {}
            }
            if pacer.is_new(&batch)? {
                self.carry_out(node, batch, &before).await?;
            } else {
                tokio::time::sleep(self.rapi.pace().poll).await;
            }
        }
    }

    async fn carry_out(&self, node: &str, batch: JobBatch, before: &[GanetiJob]) -> Result<(), BackendError> {
        let at = format!("/2/nodes/{node}");
        match batch {
            JobBatch::Failover { to } => fail_over(self, node, &to).await,
            JobBatch::Note(notes) => self.tags(HttpMethod::Put, node, &notes.tags()).await,
            // Nothing is done: it is looked again.
            JobBatch::Look(_) => {
                tokio::time::sleep(self.rapi.pace().poll).await;
                Ok(())
            }
            JobBatch::Forget(tags) => self.tags(HttpMethod::Delete, node, &tags).await,
            JobBatch::Drain { promotes } => {
                let mut work =
                    JobRequest::new(format!("drain-{node}"), HttpMethod::Put, format!("{at}/role"))
                        // A candidate is drained only so: it stops being one.
                        .query("force", "1")
                        .body(json!("drained"));
                if promotes {
                    work = work.query("auto-promote", "1");
                }
                self.job(&work).await
            }
            JobBatch::Return(was) => {
                let work = JobRequest::new(format!("return-{node}"), HttpMethod::Put, format!("{at}/role"))
                    .query("force", "1")
                    .body(json!(was.as_role()));
                self.job(&work).await
            }
            JobBatch::Move(moves) => {
                let moving = moves.iter().map(|each| self.move_one(each, before));
                all_of("move instances", join_all(moving).await)
            }
            JobBatch::Replace(copies) => {
                let replacing = copies.iter().map(|each| self.replace_one(each));
                all_of("make second copies elsewhere", join_all(replacing).await)
            }
            JobBatch::Stop(names) => {
                let stopping = names.iter().map(|name| self.instance_job(name, "shutdown"));
                all_of("shut instances down", join_all(stopping).await)
            }
            JobBatch::Start(names) => {
                let starting = names.iter().map(|name| self.instance_job(name, "startup"));
                all_of("start instances", join_all(starting).await)
            }
            JobBatch::Sync(names) => {
                let syncing = names.iter().map(|name| self.sync_one(name));
                all_of("bring disks in sync", join_all(syncing).await)
            }
        }
    }

    pub(crate) async fn tags(
        &self,
        method: HttpMethod,
        node: &str,
        tags: &[String],
    ) -> Result<(), BackendError> {
        for some in tags.chunks(TAGS_AT_ONCE) {
            let mut work = JobRequest::new(format!("note-{node}"), method, format!("/2/nodes/{node}/tags"));
            for tag in some {
                work = work.query("tag", tag);
            }
            self.job(&work).await?;
        }
        Ok(())
    }
}

fn powercycle(node: &str) -> String {
    format!("powercycle-{node}")
}
