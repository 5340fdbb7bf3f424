//! The only place that knows every backend: makes one from the configuration or from saved facts.

use std::path::Path;
use std::sync::Arc;

use stagger_ceph::api::CephApi;
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::{CephBackend, Memory, hosts_of};
use stagger_ceph::config::{CephConfig, CephSettings};
use stagger_ceph::facts::Facts;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy, units};
use stagger_core::model::{ClusterName, Policy, Snapshot, Target};

use crate::args::{Cli, From, Wish};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;

/// A Ceph cluster as seen now, or as it was recorded.
pub(crate) struct World {
    api: Arc<dyn CephApi>,
    settings: CephSettings,
    config: Option<Config>,
    /// All facts.
    pub(crate) facts: Facts,
    /// What they make.
    pub(crate) snapshot: Snapshot,
}

impl World {
    /// Observes the cluster, or reads a folder of recorded answers.
    pub(crate) async fn observe(cli: &Cli, from: &From) -> Result<Self, CliError> {
        let (api, settings, config): (Arc<dyn CephApi>, _, _) = match &from.from {
            Some(folder) if folder.is_dir() => (Arc::new(Recorded::new(folder)), recorded(folder)?, None),
            Some(other) => {
                return Err(CliError::usage(format!(
                    "{} is not a folder of recorded answers",
                    other.display()
                )));
            }
            None => {
                let config = config::read(cli)?;
                let settings = config.ceph();
                (
                    Arc::new(Session::new(settings.cluster.access())),
                    settings,
                    Some(config),
                )
            }
        };
        let config = match config {
            // A recorded cluster is judged by the configuration, where one is named.
            None if cli.config.is_some() => Some(config::read(cli)?),
            other => other,
        };
        let backend = CephBackend::new(Arc::clone(&api), settings.clone(), None);
        let facts = backend.facts().await?;
        let snapshot = backend.snapshot(&facts)?;
        Ok(Self {
            api,
            settings,
            config,
            facts,
            snapshot,
        })
    }

    /// The policy: the configuration's with the flags over it.
    pub(crate) fn policy(&self, wish: &Wish) -> Result<Policy, CliError> {
        match &self.config {
            Some(config) => config.policy(wish),
            None => config::over(Policy::default(), wish),
        }
    }

    /// What the wish takes.
    pub(crate) fn target(&self, wish: &Wish, policy: &Policy) -> Result<Target, CliError> {
        let release = wish
            .to
            .as_deref()
            .ok_or_else(|| CliError::usage("the release to go to is not given").hint("--to 18.2.7"))?;
        let wanted = TargetPolicy {
            pgs: self.config.as_ref().map(Config::pg_gate).unwrap_or_default(),
            hold: policy.gate_hold,
            timeout: policy.gate_timeout,
            noout: self.settings.cluster.noout_expires,
            health: self.settings.health.clone(),
        };
        target(&self.facts, release, &wanted)
            .map_err(|refusal| CliError::refused(&format!("the upgrade to {release}"), &refusal.0))
    }

    /// What a run keeps of how things were before it.
    pub(crate) fn memory(&self) -> Result<Memory, CliError> {
        let units =
            units(&self.facts, None).map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        Ok(Memory {
            baseline: Baseline::of(&self.facts, &units),
            hosts: hosts_of(&self.facts),
        })
    }

    /// A backend for a run that began with that memory.
    pub(crate) fn for_run(&self, memory: Memory) -> CephBackend {
        CephBackend::new(Arc::clone(&self.api), self.settings.clone(), Some(memory))
            .lock_over(session(&self.settings))
    }
}

/// A backend for a run that is in the journal, without observing first.
pub(crate) fn resumed(cli: &Cli, memory: &serde_json::Value) -> Result<CephBackend, CliError> {
    let settings = config::read(cli)?.ceph();
    let memory = serde_json::from_value(memory.clone()).map_err(|error| {
        CliError::new(
            Exit::Internal,
            format!("the run's memory cannot be read: {error}"),
        )
    })?;
    let (api, lock) = (session(&settings), session(&settings));
    Ok(CephBackend::new(api, settings, Some(memory)).lock_over(lock))
}

fn session(settings: &CephSettings) -> Arc<dyn CephApi> {
    Arc::new(Session::new(settings.cluster.access()))
}

fn recorded(folder: &Path) -> Result<CephSettings, CliError> {
    let name = folder
        .file_name()
        .map_or("recorded".to_owned(), |name| name.to_string_lossy().into_owned());
    let name = ClusterName::new(name.replace(char::is_whitespace, "-"))
        .map_err(|error| CliError::usage(error.to_string()))?;
    let text = format!("name = {:?}", name.as_str());
    let cluster: CephConfig =
        toml::from_str(&text).map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    Ok(CephSettings {
        cluster,
        hosts: stagger_engine::hosts::Hosts::default(),
        software: stagger_ceph::config::SoftwareByKind::default(),
        health: HealthPolicy::default(),
    })
}
