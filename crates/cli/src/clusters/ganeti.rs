//! A Ganeti cluster: that of the configuration, an inventory of it, or files of Ganeti's own tools.

mod goal;
mod htools;
mod node_selection;
mod remarks;
mod source;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, Reason, RunId};
use stagger_engine::cluster::Backend;
use stagger_engine::preflight::{Check, CheckOutcome};
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::config::GanetiSettings;
use stagger_ganeti::goal::MaintenanceGoal;
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::planner::GanetiPlanner;
use stagger_ganeti::preflight;
use stagger_ganeti::recovery::leftovers::GanetiLeftovers;
use stagger_ganeti::release::{INTENT_TO_UPGRADE, untested, upgrade_under_way};
use stagger_ganeti::source::ClusterFacts;

use super::cluster_handle::{ClusterHandle, ClusterSystem, ManagedSystem};
use super::guards::GuardHolder;
use crate::args::{Cli, GoalArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show;

pub(crate) use goal::selection;
pub(crate) use htools::{bodies_at, cluster_at, luxi_at, request_at, text_at};
pub(crate) use source::recovery_backend;

/// What a Ganeti does its own way.
pub(crate) struct GanetiSystem<'a> {
    /// Names the journals of earlier runs.
    cli: &'a Cli,
    /// What messages call it: by its name, or by that of a file.
    called: String,
    /// How it is reached; `None`: it was recorded.
    settings: Option<GanetiSettings>,
}

impl GanetiSystem<'_> {
    fn settings(&self) -> Result<&GanetiSettings, CliError> {
        self.settings.as_ref().ok_or_else(|| {
            CliError::new(
                Exit::Internal,
                format!("{} was recorded, and is not reached", self.called),
            )
        })
    }

    /// A backend that only looks.
    fn read_only_backend(&self) -> Result<GanetiBackend, CliError> {
        Ok(GanetiBackend::new(self.settings()?.clone(), None)?)
    }

    /// Refuses a cluster that is itself brought to another release, and asks about a release that no test knows.
    async fn can_be_relied_on(&self, release: &str, accepted: bool) -> Result<(), CliError> {
        let under_way = match upgrade_under_way(Path::new(INTENT_TO_UPGRADE)).map_err(CliError::usage)? {
            None => preflight::drained(self.read_only_backend()?.rapi()).await,
            found => found,
        };
        refuse_during_upgrade(under_way)?;
        let Some(why) = untested(release) else {
            return Ok(());
        };
        if accepted {
            return Ok(());
        }
        if std::io::stdin().is_terminal() && print::ask(&format!("{why}. Run all the same?")) {
            return Ok(());
        }
        Err(CliError::new(Exit::No, format!("not started: {why}"))
            .hint("--accept-untested-release runs all the same; try it on one node first: --nodes NODE"))
    }

    /// Refuses reboots of which none would come about.
    async fn can_reboot(&self) -> Result<(), CliError> {
        let settings = self.settings()?;
        if settings.cluster.visits.reboot.is_some() {
            return Ok(());
        }
        let reached = preflight::reaches_the_master(settings, self.read_only_backend()?.rapi()).await;
        if reached.outcome == CheckOutcome::Passed {
            return Ok(());
        }
        let refused = CliError::new(Exit::No, format!("not started: {}", reached.found));
        Err(match reached.hint {
            Some(hint) => refused.hint(hint),
            None => refused,
        })
    }
}

/// Refuses while that is so: a run is neither begun nor carried on.
fn refuse_during_upgrade(under_way: Option<String>) -> Result<(), CliError> {
    let Some(why) = under_way else { return Ok(()) };
    Err(CliError::new(Exit::No, format!("not started: {why}"))
        .hint("`gnt-cluster upgrade --resume` ends an upgrade that was interrupted; `gnt-cluster queue info` shows the queue"))
}

#[async_trait]
impl ClusterSystem for GanetiSystem<'_> {
    type Planner = GanetiPlanner;

    const KIND: &'static str = "a Ganeti cluster";

    fn goal(&self, goal: &GoalArgs) -> Result<MaintenanceGoal, CliError> {
        let asked = goal.maintenance(&self.called)?;
        if self.settings.is_none() {
            goal::refuse_live_flags(&asked)?;
        }
        goal::maintenance(&asked)
    }

    async fn goal_by_asking(
        &self,
        wanted: MaintenanceGoal,
        goal: &GoalArgs,
        _planner: &GanetiPlanner,
        facts: &ClusterFacts,
    ) -> Result<MaintenanceGoal, CliError> {
        if self.settings.is_none() {
            return Ok(wanted);
        }
        self.narrow(wanted, &goal.maintenance(&self.called)?, facts).await
    }

    fn refusal_error(&self, _goal: &MaintenanceGoal, _facts: &ClusterFacts, reasons: &[Reason]) -> CliError {
        CliError::refused("the maintenance", reasons)
    }

    fn remarks(&self, planner: &GanetiPlanner, facts: &ClusterFacts, goal: &MaintenanceGoal) -> Vec<String> {
        let visits = self.settings.is_some().then(|| planner.visits());
        let warnings = remarks::warnings(facts, visits, &goal.task).into_iter();
        warnings
            .map(|warning| format!("warning: {warning}"))
            .chain(remarks::of_jobs(facts, goal).map(|note| format!("note: {note}")))
            .chain(remarks::of_hold(&goal.task).map(|note| format!("note: {note}")))
            .collect()
    }
}

#[async_trait]
impl ManagedSystem for GanetiSystem<'_> {
    fn backend(
        &self,
        memory: Option<GanetiMemory>,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        if memory.is_some() {
            refuse_during_upgrade(upgrade_under_way(Path::new(INTENT_TO_UPGRADE)).map_err(CliError::usage)?)?;
        }
        let settings = source::of_identity(self.settings()?, identity);
        Ok(Arc::new(GanetiBackend::new(settings, memory)?))
    }

    async fn may_begin(&self, goal: &GoalArgs, facts: &ClusterFacts) -> Result<(), CliError> {
        let visit = goal.maintenance(&self.called)?.visit;
        if visit.move_non_redundant && self.settings()?.cluster.visits.relocate.is_none() {
            return Err(CliError::usage(
                "--move-non-redundant needs a command, since Ganeti's RAPI cannot move disks",
            )
            .hint("give `relocate` under [cluster.visits]"));
        }
        let release = facts.live.as_ref().map_or("", |live| live.release.as_str());
        self.can_be_relied_on(release, visit.accept_untested_release)
            .await?;
        if self.goal(goal)?.task.is_reboot() {
            self.can_reboot().await?;
        }
        Ok(())
    }

    async fn preflight(opened: &ClusterHandle<Self>, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        if to.is_some() {
            return Err(CliError::usage(
                "--to is for a Ceph or Ironic cluster, and this is a Ganeti cluster",
            )
            .hint("leave it out: what a reboot of its nodes needs is checked"));
        }
        let system = &opened.system;
        let subject = "cluster";
        let ClusterFacts { cluster, live, .. } = match opened.source.facts().await {
            Ok(facts) => facts,
            Err(error) => return Ok(vec![Check::unreachable(subject, error)]),
        };
        let master: Vec<&str> = cluster.masters().map(|node| node.name.as_str()).collect();
        let nodes = cluster.nodes.len();
        let mut checks = vec![Check::passed(
            subject,
            format!("{nodes} nodes; its master is {}", master.join(", ")),
        )];
        // What was recorded is not reached, and `settings` says so.
        let settings = system.settings()?;
        if let Some(live) = &live {
            checks.extend(preflight::check(settings, system.read_only_backend()?.rapi(), live).await);
        }
        Ok(checks)
    }

    async fn final_findings(
        opened: &ClusterHandle<Self>,
        run: &RunId,
        memory: Option<GanetiMemory>,
    ) -> Result<Vec<String>, CliError> {
        let Some(live) = opened.source.facts().await?.live else {
            return Ok(Vec::new());
        };
        let mut lines = Vec::new();
        if let Some(memory) = memory {
            let moved = memory.displaced_instances(&live);
            lines.push(match moved.as_slice() {
                [] => format!(
                    "every instance that ran before is on its original primary ({} compared)",
                    memory.homes.len()
                ),
                moved => format!("NOT ON ITS ORIGINAL PRIMARY  {}", moved.join("; ")),
            });
        }
        // What could not be given back of guards is told too.
        let filters = opened.system.read_only_backend()?.rapi().filters().await;
        let left = GanetiLeftovers::of(&live, &filters.unwrap_or_default()).of_run(run);
        if !left.is_restored() {
            lines.push(format!(
                "this run still holds:\n{}",
                show::leftovers::leftovers(&left)
            ));
            lines.push("`stagger ganeti recover` cleans it up".to_owned());
        }
        Ok(lines)
    }

    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        Ok(Some(GuardHolder::Ganeti(Box::new(self.read_only_backend()?))))
    }

    fn resumes_automatically(&self) -> bool {
        true
    }
}
