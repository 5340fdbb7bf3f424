//! One call on a node, with its context.

use std::time::Instant;

use stagger_engine::cluster::{BackendError, Call, Retryability};

use crate::commands;
use crate::config::GanetiSettings;
use crate::facts::{GanetiFacts, InstanceFacts};
use crate::lock::same_host;
use crate::rapi::client::Rapi;
use crate::rapi::jobs::{GanetiJob, JobRequest};
use crate::visit::PlannedMoves;
use crate::visit::limits::MigrationLimits;

/// ssh's own exit code.
pub(crate) const SSH_LOST: i32 = 255;

/// What a command ends with that was cut off at its limit.
pub(crate) const CUT_OFF: i32 = 124;

/// One call, carried out.
pub struct Visitor<'a> {
    /// The cluster.
    pub rapi: &'a Rapi,
    /// How.
    pub settings: &'a GanetiSettings,
    /// For which intent.
    pub call: &'a Call,
    /// What the plan does with the node's instances.
    pub planned: &'a PlannedMoves,
    /// How many migrations at once.
    pub limits: &'a MigrationLimits,
    /// On which host this process is, as far as that is known.
    pub host: Option<&'a str>,
}

impl Visitor<'_> {
    /// Asks again what may pass, for as long as a change of the master may take: RAPI is away then, and so it is while it is
    /// restarted. Nothing is changed by what is asked.
    pub(crate) async fn retry_while_unavailable<T, F>(&self, ask: impl Fn() -> F) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let begun = Instant::now();
        loop {
            match ask().await {
                Err(error)
                    if error.retryability == Retryability::Transient
                        && begun.elapsed() < self.rapi.pace().failover =>
                {
                    tracing::debug!(%error, "asked again");
                    tokio::time::sleep(self.rapi.pace().poll).await;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) async fn facts(&self) -> Result<GanetiFacts, BackendError> {
        self.retry_while_unavailable(|| self.rapi.facts()).await
    }

    pub(crate) async fn predecessors(&self) -> Result<Vec<GanetiJob>, BackendError> {
        self.retry_while_unavailable(|| self.rapi.wait_for_predecessors(self.call))
            .await
    }

    pub(crate) async fn instance(&self, name: &str) -> Result<Option<InstanceFacts>, BackendError> {
        self.retry_while_unavailable(|| self.rapi.instance(name)).await
    }

    /// Nobody would go on if the node went away on which this process is. A master is no such node: it hands over.
    pub(crate) fn check_not_own_node(&self, node: &str) -> Result<(), BackendError> {
        if self.host.is_none_or(|host| !same_host(host, node)) {
            return Ok(());
        }
        let tried = format!("take {node} out of service");
        Err(
            BackendError::permanent(tried, "stagger itself runs on it, and would stop with it").hint(format!(
                "leave it out with -O {node}, or run stagger elsewhere; on the master it continues on the successor"
            )),
        )
    }

    pub(crate) async fn job(&self, work: &JobRequest) -> Result<(), BackendError> {
        self.rapi.carry_out(self.call, work).await.map(|_| ())
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
    pub(crate) async fn hook(&self, which: &str, node: &str) -> Result<(), BackendError> {
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
