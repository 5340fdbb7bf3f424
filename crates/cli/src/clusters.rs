//! The registry of clusters, and the only place that knows every backend: a configuration, a file or a
//! namespace on the command line is opened as a [`Cluster`], and commands continue from there.

pub(crate) mod ceph;
mod cluster_handle;
pub(crate) mod ganeti;
mod goals;
pub(crate) mod guards;
pub(crate) mod ironic;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, Reason, RunId, Snapshot};
use stagger_core::plan::Plan;
use stagger_engine::cluster::Backend;
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_ironic::versions::ServiceVersions;
use stagger_risks::{Risk, RiskFinding};
use stagger_sim::ClusterCopy;

use crate::args::{Cli, FactsFrom, GoalArgs};
use crate::config;
use crate::error::CliError;
use crate::planning::PlanRequest;
use crate::state::store_location;
pub(crate) use cluster_handle::ClusterHandle;
use guards::GuardHolder;

/// Seconds between two looks in the copy of a cluster.
const POLL: u32 = 2;

/// All that a run begins with.
pub(crate) struct RunInput {
    /// What it plans by.
    pub(crate) planning: PlanRequest,
    /// The backend's memory of how things were before.
    pub(crate) baseline: serde_json::Value,
    /// What carries it out.
    pub(crate) backend: Arc<dyn Backend>,
}

/// All that a rehearsal begins with.
pub(crate) struct RehearsalInput {
    /// What it plans by.
    pub(crate) planning: PlanRequest,
    /// The cluster that is played.
    pub(crate) copy: ClusterCopy,
}

/// Which release each unit runs, and what services write and accept, where that is more than a release.
pub(crate) struct VersionReport {
    /// Whether anything of the cluster answers; else only what was written down is known.
    pub(crate) answers: bool,
    /// The units.
    pub(crate) snapshot: Snapshot,
    /// The services of an Ironic.
    pub(crate) services: Vec<ServiceVersions>,
}

/// Known risks, and what is found of them.
pub(crate) struct RiskReport {
    /// What the cluster is called.
    pub(crate) cluster: String,
    /// All risks that are heeded.
    pub(crate) known: Vec<Risk>,
    /// What is found of those on its way.
    pub(crate) found: Vec<RiskFinding>,
}

/// A cluster that is looked at and planned for: one that answers, or one that was recorded.
#[async_trait]
pub(crate) trait Cluster: Send + Sync {
    /// What there is.
    async fn snapshot(&self) -> Result<Snapshot, CliError>;

    /// All that it answers in one look, to be saved; and what that makes.
    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError>;

    /// What a plan to that goal is made of.
    async fn planning_input(&self, goal: &GoalArgs) -> Result<PlanRequest, CliError>;

    /// What a plan is made of, and a copy of the cluster on which it is rehearsed.
    async fn rehearsal_input(&self, goal: &GoalArgs) -> Result<RehearsalInput, CliError>;

    /// Which release each unit runs.
    async fn versions(&self) -> Result<VersionReport, CliError>;

    /// Known risks on the way to that release, or to any; those of these files too. `None`: it is not upgraded.
    async fn risks(&self, files: &[PathBuf], to: Option<&str>) -> Result<Option<RiskReport>, CliError>;

    /// The commands that a run of this plan needs and the configuration does not give.
    fn missing_commands(&self, plan: &Plan) -> Vec<Reason>;

    /// How a plan is carried out where no `stagger run` does it.
    fn external_runner(&self) -> Option<&'static str>;
}

/// A cluster of a configuration, on which runs are carried out.
#[async_trait]
pub(crate) trait ManagedCluster: Cluster {
    /// What a run to that goal begins with.
    async fn run_input(&self, goal: &GoalArgs) -> Result<RunInput, CliError>;

    /// The backend for a run that is in the journal, by the memory that it keeps.
    fn backend_of_run(
        &self,
        baseline: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError>;

    /// The backend by which others are answered who ask to take hosts down. Where the system is planned for by its hosts, its
    /// units are those.
    async fn gate_backend(&self) -> Result<Arc<dyn Backend>, CliError>;

    /// What a run would miss, beside what is true of every cluster. `to`: and whether that release can be reached.
    async fn preflight(&self, to: Option<&str>) -> Result<Vec<Check>, CliError>;

    /// What is to be said when that run is over, of what it has left in the cluster and of where guests are by now.
    async fn final_findings(
        &self,
        run: &RunId,
        baseline: &serde_json::Value,
    ) -> Result<Vec<String>, CliError>;

    /// Who keeps its guards; `None`: there are none that outlive a visit.
    fn guards(&self) -> Result<Option<GuardHolder>, CliError>;

    /// Whether a unit on its machines carries runs on whose process died.
    fn resumes_automatically(&self) -> bool;
}

/// What the command line names.
pub(crate) async fn open<'a>(cli: &'a Cli, from: &'a FactsFrom) -> Result<Box<dyn Cluster + 'a>, CliError> {
    if from.on.is_given() {
        return Ok(Box::new(ClusterHandle::of_rook(cli, &from.on).await?));
    }
    match &from.from {
        Some(path) => of_file(cli, path),
        None => Ok(of_config(cli)?),
    }
}

/// The cluster of the configuration.
pub(crate) fn of_config(cli: &Cli) -> Result<Box<dyn ManagedCluster + '_>, CliError> {
    let config = config::read(cli)?;
    if let Some(settings) = config.ganeti() {
        return Ok(Box::new(ClusterHandle::<ganeti::GanetiSystem<'_>>::of_config(
            cli, config, settings,
        )?));
    }
    if let Some(settings) = config.ironic() {
        return Ok(Box::new(ClusterHandle::<ironic::IronicSystem>::of_config(
            config, settings,
        )?));
    }
    Ok(Box::new(ClusterHandle::<ceph::CephSystem>::of_config(
        config,
        store_location(cli).ok(),
    )?))
}

/// A cluster in a file or folder. Which kind is told by what is there, since nobody should have to say it twice.
fn of_file<'a>(cli: &'a Cli, path: &'a Path) -> Result<Box<dyn Cluster + 'a>, CliError> {
    if let Some(described) = ClusterHandle::<ganeti::GanetiSystem<'_>>::of_tools(cli, path)? {
        return Ok(Box::new(described));
    }
    if path.is_dir() {
        return Ok(Box::new(ClusterHandle::in_folder(cli, path)?));
    }
    let inventory = read_inventory(path)?;
    match inventory.system.as_str() {
        stagger_ceph::source::SYSTEM => Ok(Box::new(ClusterHandle::<ceph::CephSystem>::from_inventory(
            cli, path, &inventory,
        )?)),
        stagger_ganeti::source::SYSTEM => Ok(Box::new(
            ClusterHandle::<ganeti::GanetiSystem<'_>>::from_inventory(cli, path, &inventory)?,
        )),
        stagger_ironic::source::SYSTEM => Ok(Box::new(
            ClusterHandle::<ironic::IronicSystem>::from_inventory(cli, path, &inventory)?,
        )),
        other => Err(CliError::usage(format!(
            "{} is an inventory of {other}, which this release does not support",
            path.display()
        ))),
    }
}

/// Reads an inventory.
pub(crate) fn read_inventory(path: &Path) -> Result<Inventory, CliError> {
    let bytes = std::fs::read(path).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no file or folder {}", path.display()),
            _ => format!("read {}: {error}", path.display()),
        };
        CliError::usage(why).hint(
            "--from takes an inventory of `stagger observe --save FILE`, a folder of `ceph … -f json` outputs, or a \
             Ganeti text file",
        )
    })?;
    Inventory::read(&bytes).map_err(|error| unusable(path, &error))
}

/// An inventory from which nothing can be planned.
pub(crate) fn unusable(path: &Path, error: &stagger_engine::inventory::InventoryError) -> CliError {
    let mut refused = CliError::usage(format!("{} cannot be planned from", path.display()));
    refused.causes.push(error.to_string());
    refused
        .causes
        .extend(std::error::Error::source(error).map(ToString::to_string));
    refused.hint(error.hint())
}

/// What an error says, a check for each of its causes.
fn reachable(subject: &str, error: Option<CliError>) -> Vec<Check> {
    let Some(error) = error else {
        return vec![Check::passed(subject, "it can be reached")];
    };
    let hint = error.hints.first().cloned();
    let mut checks: Vec<Check> = match error.causes.as_slice() {
        [] => vec![Check::failed(subject, error.message)],
        causes => causes
            .iter()
            .map(|cause| Check::failed(subject, format!("{}: {cause}", error.message)))
            .collect(),
    };
    if let (Some(last), Some(hint)) = (checks.last_mut(), hint) {
        last.hint = Some(hint);
    }
    checks
}
