//! The Ceph cluster that the command line names, and the way to reach it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use stagger_ceph::api::Access;
use stagger_ceph::api::session::Session;
use stagger_ceph::config::{CephConfig, CephSettings};
use stagger_ceph::planner::CephPlanner;
use stagger_ceph::risks::CONFIGURATION;
use stagger_ceph::source::{CephSource, SYSTEM};
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::ClusterName;
use stagger_engine::database::StoreLocation;
use stagger_engine::inventory::Inventory;
use stagger_engine::liveness::hostname;
use stagger_risks::{Questions, System, ceph};
use stagger_rook::api::access::{Programs, access};
use stagger_rook::client;
use tempfile::TempDir;

use super::CephSystem;
use crate::args::{Cli, FactsFrom, RookCluster};
use crate::clusters::cluster_handle::ClusterHandle;
use crate::clusters::{read_inventory, unusable};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::risks::load_risks;
use crate::state::store_location;

impl ClusterHandle<CephSystem> {
    /// What the command line names, of a command that is for a Ceph alone.
    pub(crate) async fn open(cli: &Cli, from: &FactsFrom) -> Result<Self, CliError> {
        if from.on.is_given() {
            return Self::of_rook(cli, &from.on).await;
        }
        match &from.from {
            None => Self::of_config(config::read(cli)?, store_location(cli).ok()),
            Some(folder) if folder.is_dir() => Self::in_folder(cli, folder),
            Some(file) => {
                let inventory = read_inventory(file)?;
                if inventory.system != SYSTEM {
                    return Err(CliError::usage(format!(
                        "{} is an inventory of {}; this is for a Ceph cluster",
                        file.display(),
                        inventory.system
                    )));
                }
                Self::from_inventory(cli, file, &inventory)
            }
        }
    }

    /// The cluster of the configuration.
    pub(in crate::clusters) fn of_config(
        config: Config,
        journals: Option<StoreLocation>,
    ) -> Result<Self, CliError> {
        let mut settings = config.ceph()?;
        settings.reboot.own.get_or_insert_with(hostname);
        let source = live(&settings, settings.cluster.access());
        let measures = config.measures()?;
        let mut opened = Self::of(source, settings, Some(config));
        opened.measures = measures;
        opened.system.answers = true;
        opened.system.journals = journals;
        Ok(opened)
    }

    /// Answers as `ceph … -f json` prints them, in a folder.
    pub(in crate::clusters) fn in_folder(cli: &Cli, folder: &Path) -> Result<Self, CliError> {
        let name = named_after(folder)?;
        Self::of_answers(cli, CephSource::folder(folder, name.clone()), name)
    }

    /// An inventory that was read from that file.
    pub(in crate::clusters) fn from_inventory(
        cli: &Cli,
        file: &Path,
        inventory: &Inventory,
    ) -> Result<Self, CliError> {
        let source = CephSource::from_inventory(inventory, file).map_err(|error| unusable(file, &error))?;
        Self::of_answers(cli, source, inventory.cluster.clone())
    }

    /// The Ceph that the `ceph` program of this machine reaches, by no configuration.
    pub(crate) fn by_default_program(name: &str) -> Result<Self, CliError> {
        let name = ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?;
        let settings = settings_of(name, None)?;
        let source = live(&settings, settings.cluster.access());
        Ok(Self::of(source, settings, None))
    }

    /// The Ceph of a cluster that Rook laid out. Programs, policy and health are those of a configuration, where one is named.
    pub(in crate::clusters) async fn of_rook(cli: &Cli, on: &RookCluster) -> Result<Self, CliError> {
        let client = client::connect(on.kubeconfig.as_deref(), on.context.as_deref()).await?;
        let namespace = match &on.namespace {
            Some(given) => given.clone(),
            None => client.default_namespace().to_owned(),
        };
        let name = client::cluster_name(&client, &namespace).await?;
        let name = ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?;
        let config = config_named(cli)?;
        let settings = settings_of(name, config.as_ref())?;
        let (source, folder) = if let Some(before) = on.in_toolbox(&namespace) {
            (live(&settings, by_toolbox(&before)), None)
        } else {
            let (access, folder) = by_monitors(&client, &namespace, &settings).await?;
            let source = live(&settings, access).hint(
                "monitors in a network of pods cannot be reached from outside: --toolbox asks them in Rook's toolbox",
            );
            (source, Some(folder))
        };
        let measures = config.as_ref().map(Config::measures).transpose()?;
        let mut opened = Self::of(source, settings, config);
        opened.measures = measures.flatten();
        opened.system.of_rook = true;
        opened.system.folder = folder;
        Ok(opened)
    }

    /// What was recorded is judged by the configuration, where one is named.
    fn of_answers(cli: &Cli, source: CephSource, name: ClusterName) -> Result<Self, CliError> {
        let config = config_named(cli)?;
        let settings = settings_of(name, config.as_ref())?;
        Ok(Self::of(source, settings, config))
    }

    fn of(source: CephSource, settings: CephSettings, config: Option<Config>) -> Self {
        let api = Arc::clone(source.api());
        // Files of risks are read where they are asked for: one that cannot be read keeps nobody from resuming a run.
        let files = config
            .as_ref()
            .map_or_else(Vec::new, |config| config.risks.clone());
        let source = source.keeping(CONFIGURATION, move |answer| settings_of_risks(&files, answer));
        let gate = config.as_ref().map(Config::pg_gate).unwrap_or_default();
        Self {
            system: CephSystem {
                api,
                settings: settings.clone(),
                is_configured: config.is_some(),
                answers: false,
                journals: None,
                of_rook: false,
                folder: None,
            },
            source: Box::new(source),
            planner: CephPlanner::new(settings, gate),
            config,
            measures: None,
        }
    }
}

/// Of the monitors' configuration what known risks ask for, and no more.
fn settings_of_risks(files: &[PathBuf], answer: &[u8]) -> Option<Value> {
    let known = match load_risks(files) {
        Ok(known) => known,
        Err(error) => {
            print::status_line(&format!(
                "warning: no settings are saved for known risks: {}",
                error.message
            ));
            return None;
        }
    };
    let options = Questions::options_of(&known, System::Ceph);
    if options.is_empty() {
        return None;
    }
    ceph::settings_kept(answer, &options)
}

/// The configuration, where the command line names one.
fn config_named(cli: &Cli) -> Result<Option<Config>, CliError> {
    cli.config.is_some().then(|| config::read(cli)).transpose()
}

fn live(settings: &CephSettings, access: Access) -> CephSource {
    CephSource::live(Arc::new(Session::new(access)), settings.cluster.name.clone())
}

/// Through monitors that are reached from here; the key is in that folder meanwhile.
async fn by_monitors(
    client: &kube::Client,
    namespace: &str,
    settings: &CephSettings,
) -> Result<(Access, TempDir), CliError> {
    let folder = tempfile::tempdir()
        .map_err(|error| CliError::usage(format!("make a folder for the key of Ceph: {error}")))?;
    let programs = Programs {
        ceph: settings.cluster.ceph.clone(),
        python: settings.cluster.python.clone(),
    };
    let access = access(client, namespace, folder.path(), &programs)
        .await
        .map_err(|error| {
            CliError::caused(Exit::Unreachable, &error).hint(
                "it takes `get` of the ConfigMap rook-ceph-mon-endpoints and the Secret rook-ceph-mon in that namespace; \
                 --toolbox needs neither",
            )
        })?;
    Ok((access, folder))
}

/// Through the programs of Rook's toolbox, which has a configuration and a key of its own.
fn by_toolbox(before: &[String]) -> Access {
    let program = |name: &str| [before, &[name.to_owned()]].concat();
    Access {
        ceph: program("ceph"),
        python: Some(program("python3")),
        ..Access::default()
    }
}

/// A folder is called what its cluster is called.
fn named_after(folder: &Path) -> Result<ClusterName, CliError> {
    let name = folder
        .file_name()
        .map_or("recorded".to_owned(), |name| name.to_string_lossy().into_owned());
    ClusterName::new(name.replace(char::is_whitespace, "-"))
        .map_err(|error| CliError::usage(error.to_string()))
}

/// The settings for answers of that cluster: the configuration's, with its own name.
fn settings_of(cluster: ClusterName, config: Option<&Config>) -> Result<CephSettings, CliError> {
    if let Some(config) = config {
        let mut settings = config.ceph()?;
        settings.cluster.name = cluster;
        return Ok(settings);
    }
    let text = format!("name = {:?}", cluster.as_str());
    let cluster: CephConfig =
        toml::from_str(&text).map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    Ok(CephSettings {
        cluster,
        hosts: stagger_engine::hosts::Hosts::default(),
        software: stagger_ceph::config::SoftwareByKind::default(),
        health: HealthPolicy::default(),
        reboot: stagger_ceph::config::Reboot::default(),
    })
}
