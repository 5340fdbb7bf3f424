//! Carries visits out: batch after batch, each by jobs.
//!
//! Every batch is decided on fresh facts, and no batch is carried out twice by one call: where the same comes
//! again, the cluster has not yet told of what was done, and it is looked again.

use std::time::Instant;

use futures::future::join_all;
use serde_json::json;
use stagger_engine::backend::{BackendError, Call, Retryability};

use crate::client::{Method, Rapi, encoded};
use crate::commands;
use crate::config::Settings;
use crate::facts::{Doing, Facts, Instance, Role, Storage, in_sync};
use crate::jobs::{Job, Status, Work};
use crate::limits::Limits;
use crate::lock::same_host;
use crate::pacer::Pacer;
use crate::reason::JobReason;
use crate::visit::{self, Batch, Copy, Leaving, Move, Planned, Refusal, Way};

/// So often the cluster is looked at for what was just done.
pub(crate) const LOOKS: u32 = 20;

/// So many tags fit into one request: RAPI takes 8,192 characters in its first line.
const TAGS_AT_ONCE: usize = 60;

/// One call, carried out.
pub struct Visitor<'a> {
    /// The cluster.
    pub rapi: &'a Rapi,
    /// How.
    pub settings: &'a Settings,
    /// For which intent.
    pub call: &'a Call,
    /// What the plan does with the node's instances.
    pub planned: &'a Planned,
    /// How many migrations at once.
    pub limits: &'a Limits,
    /// On which host this process is, as far as that is known.
    pub host: Option<&'a str>,
}

/// How a reboot was sent.
enum Sent {
    /// And that is certain.
    Whole,
    /// And nobody knows whether it arrived.
    Lost(String),
}

/// ssh's own exit code.
pub(crate) const SSH_LOST: i32 = 255;

fn refused(tried: &str, refusal: Refusal) -> BackendError {
    BackendError::permanent(tried, refusal.0)
}

impl Visitor<'_> {
    /// Asks again what may pass, for as long as a change of the master may take: RAPI is away then, and so it is while it is
    /// restarted. Nothing is changed by what is asked.
    async fn patient<T, F>(&self, ask: impl Fn() -> F) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let begun = Instant::now();
        loop {
            match ask().await {
                Err(error)
                    if error.persistence == Retryability::Transient
                        && begun.elapsed() < self.rapi.pace().failover =>
                {
                    tracing::debug!(%error, "asked again");
                    tokio::time::sleep(self.rapi.pace().poll).await;
                }
                answer => return answer,
            }
        }
    }

    async fn facts(&self) -> Result<Facts, BackendError> {
        self.patient(|| self.rapi.facts()).await
    }

    async fn predecessors(&self) -> Result<Vec<Job>, BackendError> {
        self.patient(|| self.rapi.wait_for_predecessors(self.call)).await
    }

    async fn instance(&self, name: &str) -> Result<Option<Instance>, BackendError> {
        self.patient(|| self.rapi.instance(name)).await
    }

    /// Nobody would go on if the node went away on which this process is. A master is no such node: it hands over.
    fn goes_on_without(&self, node: &str) -> Result<(), BackendError> {
        if self.host.is_none_or(|host| !same_host(host, node)) {
            return Ok(());
        }
        let tried = format!("take {node} out of service");
        Err(
            BackendError::permanent(tried, "stagger itself runs on it, and would go away with it").hint(format!(
                "leave it out with -O {node}, or run stagger elsewhere; on the master it goes on on the successor"
            )),
        )
    }

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
            if self.settings.cluster.visits.drain {
                self.patient(|| self.rapi.wait_for_others()).await?;
            }
            before
        };
        let (mut looked_at_disks, mut begun) = (false, false);
        let mut moved = 0;
        let mut pacer = Pacer::new(&tried);
        let mut alone = None;
        loop {
            let stays = match &alone {
                Some(_) => None,
                None => Some(master.read().await),
            };
            let facts = self.facts().await?;
            // Others may have been waited for long: what the judges have said is too old then, and nothing is begun.
            let is_noted = facts.nodes.get(node).is_some_and(|node| !node.notes.is_empty());
            if !begun && !is_noted {
                self.call.may_begin(&tried)?;
            }
            let visits = &self.settings.cluster.visits;
            if facts
                .nodes
                .get(node)
                .is_some_and(|node| node.role != Role::Master)
            {
                self.goes_on_without(node)?;
            }
            let next =
                visit::enter(&facts, node, visits, self.planned).map_err(|error| refused(&tried, error))?;
            let Some(batch) = next else {
                self.hook("enter", node).await?;
                return Ok(match moved {
                    0 => "nothing had to be moved".to_owned(),
                    moved => format!("{moved} instances moved"),
                });
            };
            let changes_master = matches!(batch, Batch::Failover { .. });
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
            if let Batch::Move(moves) = &batch {
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
        loop {
            let stays = self.limits.master.read().await;
            let boot = match self.rapi.boot(node).await {
                // Who cannot be asked now is asked again.
                Err(error) if error.persistence == Retryability::Transient => {
                    tracing::debug!(%error, node, "asked again");
                    None
                }
                answer => answer?,
            };
            match boot {
                Some(boot) if boot != before => {
                    return Ok(match sent {
                        Some(_) => format!("back after {} s", begun.elapsed().as_secs()),
                        None => "it has booted already".to_owned(),
                    });
                }
                // By a process before, for this very intent.
                Some(_) if sent.is_none() && done_before(&predecessors, &powercycle(node)) => {
                    sent = Some(Sent::Whole);
                }
                Some(_) if sent.is_none() => {
                    let facts = self.facts().await?;
                    // It may have gone away since.
                    if facts.nodes.get(node).is_some_and(|node| node.boot.is_some()) {
                        self.goes_on_without(node)?;
                        visit::may_reboot(&facts, node, &self.settings.cluster.visits, self.planned)
                            .map_err(|error| refused(&tried, error))?;
                        // They were when it was entered; all that it carried was moved since.
                        self.disks_are_in_sync(&facts, node).await?;
                        sent = Some(self.send_reboot(node).await?);
                        begun = Instant::now();
                    }
                }
                Some(_) | None => {}
            }
            drop(stays);
            if begun.elapsed() > self.rapi.pace().reboot {
                let why = match &sent {
                    None => "it does not answer".to_owned(),
                    Some(Sent::Whole) => "it is not back".to_owned(),
                    Some(Sent::Lost(how)) => format!("it is not back, and {how}"),
                };
                let why = format!("{why}, after {} s", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why).hint(format!(
                    "see to {node}; it stays out of service, and its instances where they are"
                )));
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
    }

    async fn send_reboot(&self, node: &str) -> Result<Sent, BackendError> {
        if let Some(command) = &self.settings.cluster.visits.reboot {
            let names = [("node", node)];
            let ran = commands::ran(self.rapi, self.settings, self.call, "reboot", command, &names).await?;
            return match ran.code {
                // So ssh ends where the connection does, which a reboot takes away.
                SSH_LOST => Ok(Sent::Lost(ran.said())),
                _ => ran.whole().map(|_| Sent::Whole),
            };
        }
        let work = Work::new(
            powercycle(node),
            Method::Post,
            format!("/2/nodes/{node}/powercycle"),
        );
        self.rapi.carry_out(self.call, &work).await.map(|_| Sent::Whole)
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
        if is_as_before && !done_before(&predecessors, &powercycle(node)) {
            let visits = &self.settings.cluster.visits;
            if let Err(refusal) = visit::may_reboot(&facts, node, visits, self.planned) {
                self.leave(node).await?;
                return Err(refused(&format!("reboot {node}"), refusal).hint(format!(
                    "{node} was given back and not rebooted; `stagger abort` ends the run, and a new one has its turn again"
                )));
            }
        }
        self.change(node, before).await?;
        self.leave(node).await
    }

    /// Gives a node back.
    ///
    /// # Errors
    /// What could not be done: what was moved away stays there.
    pub async fn leave(&self, node: &str) -> Result<String, BackendError> {
        let tried = format!("give {node} back");
        let stays = self.limits.master.read().await;
        let before = self.predecessors().await?;
        let mut leaving = Leaving::default();
        let mut back = 0;
        let mut pacer = Pacer::new(&tried);
        if self.patient(|| self.rapi.boot(node)).await?.is_some() {
            self.hook("leave", node).await?;
        }
        drop(stays);
        loop {
            let _stays = self.limits.master.read().await;
            let facts = self.facts().await?;
            let next = visit::leave(&facts, node, &leaving).map_err(|error| refused(&tried, error))?;
            let Some(batch) = next else {
                return Ok(match back {
                    0 => "it is back".to_owned(),
                    back => format!("it is back, and {back} instances with it"),
                });
            };
            match &batch {
                Batch::Move(moves) => back = moves.len(),
                Batch::Sync(names) => leaving.synced.extend(names.iter().cloned()),
                Batch::Failover { .. }
                | Batch::Note(_)
                | Batch::Drain { .. }
                | Batch::Replace(_)
                | Batch::Stop(_)
                | Batch::Return(_)
                | Batch::Start(_)
                | Batch::Forget(_)
                | Batch::Look(_) => {}
            }
            if pacer.is_new(&batch)? {
                self.carry_out(node, batch, &before).await?;
            } else {
                tokio::time::sleep(self.rapi.pace().poll).await;
            }
        }
    }

    async fn carry_out(&self, node: &str, batch: Batch, before: &[Job]) -> Result<(), BackendError> {
        let at = format!("/2/nodes/{node}");
        match batch {
            Batch::Failover { to } => crate::master::fail_over(self, node, &to).await,
            Batch::Note(notes) => self.tags(Method::Put, node, &notes.tags()).await,
            // Nothing is done: it is looked again.
            Batch::Look(_) => {
                tokio::time::sleep(self.rapi.pace().poll).await;
                Ok(())
            }
            Batch::Forget(tags) => self.tags(Method::Delete, node, &tags).await,
            Batch::Drain { promotes } => {
                let mut work = Work::new(format!("drain-{node}"), Method::Put, format!("{at}/role"))
                    // A candidate is drained only so: it stops being one.
                    .query("force", "1")
                    .body(json!("drained"));
                if promotes {
                    work = work.query("auto-promote", "1");
                }
                self.job(&work).await
            }
            Batch::Return(was) => {
                let work = Work::new(format!("return-{node}"), Method::Put, format!("{at}/role"))
                    .query("force", "1")
                    .body(json!(was.as_role()));
                self.job(&work).await
            }
            Batch::Move(moves) => {
                let moving = moves.iter().map(|each| self.move_one(each, before));
                all_of("move instances", join_all(moving).await)
            }
            Batch::Replace(copies) => {
                let replacing = copies.iter().map(|each| self.replace_one(each));
                all_of("make second copies elsewhere", join_all(replacing).await)
            }
            Batch::Stop(names) => {
                let stopping = names.iter().map(|name| self.instance_job(name, "shutdown"));
                all_of("shut instances down", join_all(stopping).await)
            }
            Batch::Start(names) => {
                let starting = names.iter().map(|name| self.instance_job(name, "startup"));
                all_of("start instances", join_all(starting).await)
            }
            Batch::Sync(names) => {
                let syncing = names.iter().map(|name| self.sync_one(name));
                all_of("bring disks in sync", join_all(syncing).await)
            }
        }
    }

    async fn job(&self, work: &Work) -> Result<(), BackendError> {
        self.rapi.carry_out(self.call, work).await.map(|_| ())
    }

    async fn instance_job(&self, name: &str, verb: &str) -> Result<(), BackendError> {
        let path = format!("/2/instances/{name}/{verb}");
        let mut work = Work::new(format!("{verb}-{name}"), Method::Put, path);
        if verb == "shutdown" {
            work = work.body(json!({}));
        }
        self.job(&work).await
    }

    async fn tags(&self, method: Method, node: &str, tags: &[String]) -> Result<(), BackendError> {
        for some in tags.chunks(TAGS_AT_ONCE) {
            let mut work = Work::new(format!("note-{node}"), method, format!("/2/nodes/{node}/tags"));
            for tag in some {
                work = work.query("tag", tag);
            }
            self.job(&work).await?;
        }
        Ok(())
    }

    /// An instance is to run there. A mirrored one that is migrated twice is back where it was: so it is
    /// looked at right before, and after its job until the cluster tells that it is there.
    async fn move_one(&self, each: &Move, before: &[Job]) -> Result<(), BackendError> {
        let Move {
            instance,
            from,
            to,
            way,
        } = each;
        let what = format!("migrate-{instance}-to-{to}");
        let _permits = self.limits.take(from, to).await;
        if done_before(before, &what) && self.runs_on(instance, to).await? {
            return Ok(());
        }
        let Some(now) = self.instance(instance).await? else {
            return Ok(());
        };
        if now.primary == *to || now.doing != Doing::Up {
            return Ok(());
        }
        if now.primary != *from {
            let why = format!("{instance} is on {} by now: others moved it", now.primary);
            return Err(BackendError::transient(what, why));
        }
        let body = match way {
            Way::ToSecondary if now.secondary.as_deref() != Some(to) => {
                let why = format!("the other copy of {instance} is not on {to} any more");
                return Err(BackendError::transient(what, why));
            }
            // Ganeti takes no name of a node for these: there is only one.
            Way::ToSecondary => Some(json!({ "mode": "live" })),
            Way::ToNode => Some(json!({ "mode": "live", "target_node": to })),
            Way::WithDowntime => None,
        };
        match body {
            Some(body) => {
                let path = format!("/2/instances/{}/migrate", encoded(instance));
                self.job(&Work::new(&what, Method::Put, path).body(body)).await?;
            }
            None => self.relocate(instance, to).await?,
        }
        if self.runs_on(instance, to).await? {
            return Ok(());
        }
        Err(BackendError::permanent(
            what,
            format!("its job is done, and {instance} does not run on {to}"),
        ))
    }

    /// An instance is stopped, its disks are copied, and it is started there.
    async fn relocate(&self, instance: &str, to: &str) -> Result<(), BackendError> {
        let Some(command) = &self.settings.cluster.visits.relocate else {
            let tried = format!("move {instance} with its disks to {to}");
            return Err(
                BackendError::permanent(tried, "RAPI has no word for that, and there is no command")
                    .hint("give `relocate` under [cluster.visits]"),
            );
        };
        let what = format!("relocate-{instance}-to-{to}");
        let reason = JobReason::new(self.call, &what, 0).to_string();
        let names = [("instance", instance), ("node", to), ("reason", reason.as_str())];
        let ran = self.command(&what, command, &names).await;
        // Its job goes on without the command, which ends at the limit of all commands.
        let jobs = self.rapi.jobs().await;
        let jobs = jobs.map_err(|error| error.of(&what, true).outcome_unknown())?;
        let key = self.call.key();
        let is_ours = |job: &&Job| {
            let reason = job.reason.as_ref();
            reason.is_some_and(|reason| reason.key == key && reason.what == what)
        };
        let Some(job) = jobs.iter().rev().find(is_ours) else {
            return ran;
        };
        let ended = self.rapi.wait(job.id, &what).await?;
        match ended.status {
            Status::Success => Ok(()),
            _ => Err(BackendError::permanent(
                what,
                format!("job {} failed: {}", job.id, ended.why()),
            )),
        }
    }

    /// The second copy of an instance is to be there; its job ends when that is in sync.
    async fn replace_one(&self, each: &Copy) -> Result<(), BackendError> {
        let Copy { instance, from, to } = each;
        let what = format!("copy-{instance}-to-{to}");
        let _permits = self.limits.take(from, to).await;
        let Some(now) = self.instance(instance).await? else {
            return Ok(());
        };
        if now.secondary.as_deref() == Some(to) {
            return Ok(());
        }
        if now.secondary.as_deref() != Some(from) {
            let why = format!("the second copy of {instance} is not on {from} by now: others moved it");
            return Err(BackendError::transient(what, why));
        }
        let path = format!("/2/instances/{}/replace-disks", encoded(instance));
        let body = json!({ "mode": "replace_new_secondary", "remote_node": to });
        self.job(&Work::new(what, Method::Post, path).body(body)).await
    }

    /// Looks for a while whether an instance runs there; one that is gone runs nowhere, and that is fine.
    async fn runs_on(&self, instance: &str, node: &str) -> Result<bool, BackendError> {
        for _ in 0..LOOKS {
            match self.instance(instance).await? {
                Some(now) if now.primary != node => tokio::time::sleep(self.rapi.pace().again).await,
                Some(_) | None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// What Ganeti knows of an instance's disks, by a job.
    async fn disks(&self, name: &str) -> Result<Result<(), String>, BackendError> {
        let _permit = self.limits.look().await;
        let path = format!("/2/instances/{}/info", encoded(name));
        let work = Work::new(format!("look-at-{name}"), Method::Get, path);
        let ended = self.rapi.carry_out(self.call, &work).await?;
        Ok(in_sync(&ended.result[0][name]))
    }

    async fn sync_one(&self, name: &str) -> Result<(), BackendError> {
        let begun = Instant::now();
        let mut activated = false;
        loop {
            let why = match self.disks(name).await? {
                Ok(()) => return Ok(()),
                Err(why) => why,
            };
            if !activated {
                self.instance_job(name, "activate-disks").await?;
                activated = true;
                continue;
            }
            if begun.elapsed() > self.rapi.pace().sync {
                let tried = format!("bring the disks of {name} in sync");
                let why = format!("{why}, after {} s", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why));
            }
            tokio::time::sleep(self.rapi.pace().poll).await;
        }
    }

    /// Before a node goes away, no instance may depend on its copy alone.
    async fn disks_are_in_sync(&self, facts: &Facts, node: &str) -> Result<(), BackendError> {
        let mirrored = facts.instances.values().filter(|instance| {
            instance.storage == Storage::Mirrored && instance.touches(node) && instance.doing == Doing::Up
        });
        let looks = mirrored.map(|instance| async move {
            self.disks(&instance.name).await?.map_err(|why| {
                BackendError::permanent(format!("see whether {node} may go away"), why)
                    .hint("`gnt-instance activate-disks` begins a resync; it is tried again later")
            })
        });
        all_of("look at disks", join_all(looks).await)
    }

    /// Runs a command on this machine, once for the call.
    pub(crate) async fn command(
        &self,
        which: &str,
        command: &str,
        names: &[(&str, &str)],
    ) -> Result<(), BackendError> {
        commands::run(self.rapi, self.settings, self.call, which, command, names)
            .await
            .map(|_| ())
    }

    /// What others have to do around a visit.
    async fn hook(&self, which: &str, node: &str) -> Result<(), BackendError> {
        let hooks = &self.settings.cluster.visits.hooks;
        let hook = if which == "enter" {
            &hooks.enter
        } else {
            &hooks.leave
        };
        match hook {
            Some(command) => self.command(which, command, &[("node", node)]).await,
            None => Ok(()),
        }
    }
}

fn powercycle(node: &str) -> String {
    format!("powercycle-{node}")
}

fn done_before(jobs: &[Job], what: &str) -> bool {
    jobs.iter().any(|job| {
        job.status == Status::Success && job.reason.as_ref().is_some_and(|reason| reason.what == what)
    })
}

/// All results; the first error, with how many more there are. One that may still land stands for all.
fn all_of(tried: &str, results: Vec<Result<(), BackendError>>) -> Result<(), BackendError> {
    let errors: Vec<BackendError> = results.into_iter().filter_map(Result::err).collect();
    let first = errors
        .iter()
        .find(|error| error.outcome_unknown)
        .or_else(|| errors.first())
        .cloned();
    match (first, errors.len()) {
        (None, _) => Ok(()),
        (Some(error), 1) => Err(error),
        (Some(mut error), many) => {
            error.why = format!("{}: {} (and {} more like it)", error.tried, error.why, many - 1);
            tried.clone_into(&mut error.tried);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_may_land_stands_for_all() {
        let no = || Err(BackendError::permanent("a", "no"));
        let lost = Err(BackendError::transient("b", "lost").outcome_unknown());
        let error = all_of("do both", vec![Ok(()), no(), lost, no()]).unwrap_err();
        assert!(error.outcome_unknown);
        assert_eq!(error.to_string(), "do both: b: lost (and 2 more like it)");
        assert!(all_of("do nothing", vec![Ok(())]).is_ok());
    }
}
