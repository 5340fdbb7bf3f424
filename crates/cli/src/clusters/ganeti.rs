//! A Ganeti: the one of the configuration, an inventory of it, or what Ganeti's own tools write.

mod files;
mod goal;
pub(crate) mod live;
mod recorded;

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stagger_core::model::{ClusterName, Policy, Snapshot};
use stagger_engine::inventory::Inventory;
use stagger_ganeti::facts::Answers;
use stagger_ganeti::loaders::rapi::{Bodies, FILES, KVM_NODE_MEMORY};
use stagger_ganeti::maintenance::snapshot::{View, snapshot};
use stagger_ganeti::model::Cluster as Ganeti;
use stagger_ganeti::unheeded::unheeded;

use super::{Cluster, unusable};
use crate::args::{self, Cli, Goal};
use crate::config;
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;
use crate::print;
use goal::{durations, target};

pub(crate) use files::{bodies_at, luxi_at, request_at, text_at};
pub(crate) use goal::selection;

/// What an inventory of one says that it is.
pub(crate) const SYSTEM: &str = "ganeti";

/// What an inventory keeps of a Ganeti.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GanetiAnswers {
    /// What its RAPI answered.
    Rapi(Answers),
    /// Its text format, as `hroller -S` writes it.
    Text(String),
    /// Bodies of RAPI, in files.
    Bodies(BTreeMap<String, Box<RawValue>>),
}

/// A Ganeti as a file or folder describes it: without what only RAPI tells, as boot ids.
pub(crate) struct GanetiFile<'a> {
    cli: &'a Cli,
    path: &'a Path,
    name: ClusterName,
    /// When it was asked; files say nothing of it, and the same file makes the same plan.
    at: Timestamp,
    kept: GanetiAnswers,
    cluster: Ganeti,
}

impl<'a> GanetiFile<'a> {
    /// What is there, if it is a Ganeti.
    pub(crate) fn at(cli: &'a Cli, path: &'a Path) -> Result<Option<Self>, CliError> {
        let (kept, cluster) = if path.is_dir() {
            if !FILES.iter().all(|file| path.join(file).is_file()) {
                return Ok(None);
            }
            let bodies = files::bodies_kept(path)?;
            let cluster = cluster_of_bodies(&bodies)?;
            (GanetiAnswers::Bodies(bodies), cluster)
        } else {
            if !files::starts_as_text(path) {
                return Ok(None);
            }
            let text = files::text_of(path)?;
            let cluster = files::cluster_of_text(path, &text)?;
            (GanetiAnswers::Text(text), cluster)
        };
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        let name = stem.to_string_lossy().replace(char::is_whitespace, "-");
        let name = ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?;
        Self::of(cli, path, (name, Timestamp::UNIX_EPOCH), kept, cluster).map(Some)
    }

    fn of(
        cli: &'a Cli,
        path: &'a Path,
        (name, at): (ClusterName, Timestamp),
        kept: GanetiAnswers,
        cluster: Ganeti,
    ) -> Result<Self, CliError> {
        if let Some(config) = &cli.config
            && config::read(cli)?.ganeti().is_none()
        {
            return Err(CliError::usage(format!(
                "the configuration {} is for another kind of cluster, and {} is a Ganeti",
                config.display(),
                path.display()
            ))
            .hint("leave out --config; flags say what is wished"));
        }
        Ok(Self {
            cli,
            path,
            name,
            at,
            kept,
            cluster,
        })
    }

    fn snapshot_for(&self, reboot: Option<&args::Reboot>) -> Result<Snapshot, CliError> {
        let view = View {
            name: self.name.clone(),
            at: self.at,
            durations: reboot.map_or_else(|| Ok(BTreeMap::new()), |reboot| durations(&reboot.takes))?,
            ignore_ipolicy: reboot.is_some_and(|reboot| reboot.ignore_ipolicy),
        };
        snapshot(&self.cluster, &view).map_err(|error| CliError::caused(Exit::Usage, &error))
    }
}

#[async_trait]
impl Cluster for GanetiFile<'_> {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.snapshot_for(None)
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let inventory = Inventory::new(SYSTEM, self.name.clone(), self.at, &self.kept)
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        Ok((inventory, self.snapshot_for(None)?))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        let reboot = goal.reboot(&self.path.display().to_string())?;
        goal::can_be_told_from_a_file(reboot)?;
        warn(&self.cluster);
        let policy = if self.cli.config.is_some() {
            config::read(self.cli)?.policy(&goal.policy)?
        } else {
            config::over(Policy::default(), &goal.policy)?
        };
        Ok(PlanRequest {
            snapshot: self.snapshot_for(Some(reboot))?,
            target: target(&self.cluster, reboot)?,
            policy,
            risks: Vec::new(),
        })
    }
}

/// An inventory of a Ganeti that was read from that file.
pub(crate) fn recorded<'a>(
    cli: &'a Cli,
    path: &'a Path,
    inventory: &Inventory,
) -> Result<Box<dyn Cluster + 'a>, CliError> {
    let kept: GanetiAnswers = inventory.answers().map_err(|error| unusable(path, &error))?;
    let cluster = match &kept {
        GanetiAnswers::Rapi(answers) => {
            let recorded = recorded::GanetiInventory::new(cli, path, inventory, answers.clone())?;
            return Ok(Box::new(recorded));
        }
        GanetiAnswers::Text(text) => files::cluster_of_text(path, text)?,
        GanetiAnswers::Bodies(bodies) => cluster_of_bodies(bodies)?,
    };
    let named = (inventory.cluster.clone(), inventory.taken);
    Ok(Box::new(GanetiFile::of(cli, path, named, kept, cluster)?))
}

/// The cluster that such bodies describe, by the names of their files.
fn cluster_of_bodies(bodies: &BTreeMap<String, Box<RawValue>>) -> Result<Ganeti, CliError> {
    let body = |file: &str| bodies.get(file).map_or("null", |body| body.get()).to_owned();
    let [groups, nodes, instances, info] = FILES.map(body);
    let bodies = Bodies {
        groups,
        nodes,
        instances,
        info,
    };
    let cluster = bodies.cluster_with(KVM_NODE_MEMORY);
    cluster.map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Says which tags are not heeded, and on which nodes memory or disk does not add up: less is free there than should be, and
/// nothing else tells why a plan has no room.
fn warn(cluster: &Ganeti) {
    const NAMED: usize = 5;
    for unheeded in unheeded(cluster) {
        print::talk(&format!("warning: {unheeded}"));
    }
    let missing = cluster.missing();
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|missing| {
            let amounts = [(missing.memory, 512, "memory"), (missing.disk, 1024, "disk")];
            let amounts: Vec<String> = amounts
                .into_iter()
                .filter(|(amount, bound, _)| amount > bound)
                .map(|(amount, _, what)| format!("{amount} MiB of {what}"))
                .collect();
            format!("{} ({})", missing.node, amounts.join(", "))
        })
        .collect();
    if named.is_empty() {
        return;
    }
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    print::talk(&format!(
        "warning: neither free nor in use, and so not counted on: {}{more}",
        named.join(", ")
    ));
}
