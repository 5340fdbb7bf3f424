//! The moves of instances and their disks in a visit, one by one, with their waits.

use std::time::Instant;

use futures::future::join_all;
use serde_json::json;
use stagger_core::model::Storage;
use stagger_engine::cluster::{BackendError, Retryability};

use crate::config::{MigrationMode, MigrationRule};
use crate::facts::{GanetiFacts, RunState, in_sync};
use crate::rapi::client::{HttpMethod, encoded};
use crate::rapi::jobs::{GanetiJob, JobRequest, JobStatus};
use crate::rapi::reason::JobReason;
use crate::visit::pacer::LOOKS;
use crate::visit::visitor::Visitor;
use crate::visit::{Copy, InstanceMove, MoveMethod};

impl Visitor<'_> {
    pub(crate) async fn instance_job(&self, name: &str, verb: &str) -> Result<(), BackendError> {
        let path = format!("/2/instances/{name}/{verb}");
        let mut work = JobRequest::new(format!("{verb}-{name}"), HttpMethod::Put, path);
        if verb == "shutdown" {
            work = work.body(json!({}));
        }
        self.job(&work).await
    }

    /// An instance is to run there. A mirrored one that is migrated twice is back where it was: so it is
    /// looked at right before, and after its job until the cluster tells that it is there.
    pub(crate) async fn move_one(
        &self,
        each: &InstanceMove,
        before: &[GanetiJob],
    ) -> Result<(), BackendError> {
        let InstanceMove {
            instance,
            from,
            to,
            way,
        } = each;
        let what = format!("migrate-{instance}-to-{to}");
        let _permits = self.limits.take(from, to).await;
        if finished_before(before, &what) && self.runs_on(instance, to).await? {
            return Ok(());
        }
        let Some(now) = self.instance(instance).await? else {
            return Ok(());
        };
        if now.primary == *to || now.doing != RunState::Up {
            return Ok(());
        }
        if now.primary != *from {
            let why = format!("{instance} is on {} by now: others moved it", now.primary);
            return Err(BackendError::transient(what, why));
        }
        let rule = self.settings.cluster.visits.migration_of(instance);
        let mut how = json!({ "mode": rule.map_or(MigrationMode::Live, |rule| rule.mode).as_str() });
        if let Some(rule) = rule {
            how["allow_failover"] = json!(rule.allow_failover);
            how["ignore_hvversions"] = json!(rule.ignore_hvversions);
        }
        let body = match way {
            MoveMethod::ToSecondary if now.secondary.as_deref() != Some(to) => {
                let why = format!("the other copy of {instance} is not on {to} any more");
                return Err(BackendError::transient(what, why));
            }
            // Ganeti takes no name of a node for these: there is only one.
            MoveMethod::ToSecondary => Some(how),
            MoveMethod::ToNode => {
                how["target_node"] = json!(to);
                Some(how)
            }
            MoveMethod::WithDowntime => None,
        };
        match body {
            Some(body) => {
                let path = format!("/2/instances/{}/migrate", encoded(instance));
                let migrated = self
                    .job(&JobRequest::new(&what, HttpMethod::Put, path).body(body))
                    .await;
                migrated.map_err(|error| match permitting_rule(instance, rule) {
                    Some(hint) if error.retryability == Retryability::Permanent && error.hint.is_none() => {
                        error.hint(hint)
                    }
                    Some(_) | None => error,
                })?;
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
        let is_ours = |job: &&GanetiJob| {
            let reason = job.reason.as_ref();
            reason.is_some_and(|reason| reason.key == key && reason.what == what)
        };
        let Some(job) = jobs.iter().rev().find(is_ours) else {
            return ran;
        };
        let ended = self.rapi.wait(job.id, &what).await?;
        match ended.status {
            JobStatus::Success => Ok(()),
            _ => Err(BackendError::permanent(
                what,
                format!("job {} failed: {}", job.id, ended.error_text()),
            )),
        }
    }

    /// The second copy of an instance is to be there; its job ends when that is in sync.
    pub(crate) async fn replace_one(&self, each: &Copy) -> Result<(), BackendError> {
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
        self.job(&JobRequest::new(what, HttpMethod::Post, path).body(body))
            .await
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
        let _permit = self.limits.disk_query_permit().await;
        let path = format!("/2/instances/{}/info", encoded(name));
        let work = JobRequest::new(format!("look-at-{name}"), HttpMethod::Get, path);
        let ended = self.rapi.carry_out(self.call, &work).await?;
        Ok(in_sync(&ended.result[0][name]))
    }

    pub(crate) async fn sync_one(&self, name: &str) -> Result<(), BackendError> {
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
    pub(crate) async fn disks_are_in_sync(
        &self,
        facts: &GanetiFacts,
        node: &str,
    ) -> Result<(), BackendError> {
        let mirrored = facts.instances.values().filter(|instance| {
            instance.storage == Storage::Copied && instance.uses_node(node) && instance.doing == RunState::Up
        });
        let looks = mirrored.map(|instance| async move {
            self.disks(&instance.name).await?.map_err(|why| {
                BackendError::permanent(format!("see whether {node} may go away"), why)
                    .hint("`gnt-instance activate-disks` starts a resync; it is tried again later")
            })
        });
        all_of("look at disks", join_all(looks).await)
    }
}

/// What may be permitted beside what is permitted already.
fn permitting_rule(instance: &str, rule: Option<&MigrationRule>) -> Option<String> {
    let ways = [
        (
            "`mode = \"non-live\"`",
            rule.is_some_and(|rule| rule.mode == MigrationMode::NonLive),
        ),
        (
            "`allow_failover = true`",
            rule.is_some_and(|rule| rule.allow_failover),
        ),
        (
            "`ignore_hvversions = true`",
            rule.is_some_and(|rule| rule.ignore_hvversions),
        ),
    ];
    let left: Vec<&str> = ways
        .into_iter()
        .filter_map(|(way, is_permitted)| (!is_permitted).then_some(way))
        .collect();
    if left.is_empty() {
        return None;
    }
    let whose = match rule {
        None => "a rule under [[cluster.visits.migrate]] says what may be done".to_owned(),
        Some(rule) => format!(
            "its rule under [[cluster.visits.migrate]], `matching = \"{}\"`, may permit more",
            rule.matching
        ),
    };
    Some(format!(
        "where {instance} cannot be migrated so, {whose}: {}",
        left.join(" or ")
    ))
}

pub(crate) fn finished_before(jobs: &[GanetiJob], what: &str) -> bool {
    jobs.iter().any(|job| {
        job.status == JobStatus::Success && job.reason.as_ref().is_some_and(|reason| reason.what == what)
    })
}

/// All results; the first error, with how many more there are. One that may still land stands for all.
pub(crate) fn all_of(tried: &str, results: Vec<Result<(), BackendError>>) -> Result<(), BackendError> {
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
