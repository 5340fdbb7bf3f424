//! Where the facts of a Ceph come from: the cluster, a folder of recorded answers, or an inventory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::saved::{Answers, FromSaved, Recorder};
use stagger_ceph::api::session::Session;
use stagger_ceph::api::{Access, CephApi};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings};
use stagger_ceph::facts::{Facts, stores};
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::ClusterName;
use stagger_engine::inventory::Inventory;
use stagger_rook::api::access::{Programs, access};
use stagger_rook::client;
use tempfile::TempDir;

use super::SYSTEM;
use super::risks::{CONFIGURATION, configuration_kept};
use crate::args::{Cli, FactsFrom, RookCluster};
use crate::clusters::{read_inventory, unusable};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::risks::known;

/// Something that answers as a cluster does.
pub(crate) struct Source {
    /// What answers.
    pub(crate) api: Arc<dyn CephApi>,
    /// How it is judged.
    pub(crate) settings: CephSettings,
    /// The configuration, if one was read.
    pub(crate) config: Option<Config>,
    /// When the answers were given; `None`: they are given now.
    taken: Option<Timestamp>,
    /// The cluster itself, and not a file.
    live: bool,
    /// Configuration and key of the connection, while it is there.
    pub(crate) folder: Option<TempDir>,
}

impl Source {
    /// What the command line names, of a command that is for a Ceph alone.
    pub(crate) async fn open(cli: &Cli, from: &FactsFrom) -> Result<Self, CliError> {
        if from.on.is_meant() {
            return Self::of_rook(cli, &from.on).await;
        }
        match &from.from {
            None => Self::of_config(cli),
            Some(folder) if folder.is_dir() => Self::in_folder(cli, folder),
            Some(file) => {
                let inventory = read_inventory(file)?;
                if inventory.system != SYSTEM {
                    return Err(CliError::usage(format!(
                        "{} is an inventory of {}, and this is for a Ceph",
                        file.display(),
                        inventory.system
                    )));
                }
                Self::recorded(cli, file, &inventory)
            }
        }
    }

    /// The cluster of the configuration.
    pub(super) fn of_config(cli: &Cli) -> Result<Self, CliError> {
        let config = config::read(cli)?;
        let settings = config.ceph()?;
        Ok(Self {
            api: Arc::new(Session::new(settings.cluster.access())),
            settings,
            config: Some(config),
            taken: None,
            live: true,
            folder: None,
        })
    }

    /// Answers as `ceph … -f json` prints them, in a folder.
    pub(super) fn in_folder(cli: &Cli, folder: &Path) -> Result<Self, CliError> {
        Self::of_answers(cli, Arc::new(Recorded::new(folder)), named_after(folder)?, None)
    }

    /// An inventory that was read from that file.
    pub(super) fn recorded(cli: &Cli, file: &Path, inventory: &Inventory) -> Result<Self, CliError> {
        let answers = inventory.answers().map_err(|error| unusable(file, &error))?;
        let api = Arc::new(FromSaved::new(answers, file));
        Self::of_answers(cli, api, inventory.cluster.clone(), Some(inventory.taken))
    }

    /// What was recorded is judged by the configuration, where one is named.
    fn of_answers(
        cli: &Cli,
        api: Arc<dyn CephApi>,
        cluster: ClusterName,
        taken: Option<Timestamp>,
    ) -> Result<Self, CliError> {
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        Ok(Self {
            api,
            settings: settings_of(cluster, config.as_ref())?,
            config,
            taken,
            live: false,
            folder: None,
        })
    }

    /// The Ceph that the `ceph` program of this machine reaches, by no configuration.
    pub(crate) fn by_the_usual_way(name: &str) -> Result<Self, CliError> {
        let name = ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?;
        let settings = settings_of(name, None)?;
        Ok(Self {
            api: Arc::new(Session::new(settings.cluster.access())),
            settings,
            config: None,
            taken: None,
            live: true,
            folder: None,
        })
    }

    /// The Ceph of a cluster that Rook laid out. Programs, policy and health are those of a configuration, where one is named.
    pub(super) async fn of_rook(cli: &Cli, on: &RookCluster) -> Result<Self, CliError> {
        let client = client::connect(on.kubeconfig.as_deref(), on.context.as_deref()).await?;
        let namespace = match &on.namespace {
            Some(given) => given.clone(),
            None => client.default_namespace().to_owned(),
        };
        let name = client::name_of_cluster(&client, &namespace).await?;
        let name = ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?;
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        let settings = settings_of(name, config.as_ref())?;
        let (access, folder) = if let Some(before) = on.in_toolbox(&namespace) {
            (by_toolbox(&before), None)
        } else {
            let (access, folder) = by_monitors(&client, &namespace, &settings).await?;
            (access, Some(folder))
        };
        Ok(Self {
            api: Arc::new(Session::new(access)),
            settings,
            config,
            taken: None,
            live: true,
            folder,
        })
    }

    /// All facts.
    pub(crate) async fn facts(&self) -> Result<Facts, CliError> {
        self.facts_through(Arc::clone(&self.api)).await
    }

    /// All facts, with the answers behind them.
    pub(super) async fn facts_kept(&self) -> Result<(Facts, Inventory), CliError> {
        let recorder = Arc::new(Recorder::new(Arc::clone(&self.api)));
        let facts = self
            .facts_through(Arc::clone(&recorder) as Arc<dyn CephApi>)
            .await?;
        let name = self.settings.cluster.name.clone();
        let wrong = |error: serde_json::Error| CliError::new(Exit::Internal, error.to_string());
        let mut kept = verbatim(&recorder.answers()).map_err(wrong)?;
        let configured = self.config.iter().flat_map(|config| &config.risks);
        if let Some(settings) = configuration_kept(&*self.api, &known(configured)?).await {
            let answer = to_raw_value(&json!({ "json": settings })).map_err(wrong)?;
            kept.insert(CONFIGURATION.to_owned(), answer);
        }
        let inventory = Inventory::new(SYSTEM, name, facts.collected_at, &kept).map_err(wrong)?;
        Ok((facts, inventory))
    }

    async fn facts_through(&self, api: Arc<dyn CephApi>) -> Result<Facts, CliError> {
        let backend = CephBackend::new(Arc::clone(&api), self.settings.clone(), None);
        let time = self.taken.unwrap_or_else(Timestamp::now);
        let facts = backend.facts_of(time).await.map_err(|error| {
            let mut error = CliError::from(error);
            // Asking a file again gives the same answer: it is not out of reach, it is wrong.
            if !self.live {
                error.exit = Exit::Usage;
            }
            // Of a cluster of Rook's, whose monitors are asked from here.
            if self.folder.is_some() {
                return error.hint("monitors in a network of pods cannot be reached from outside: --toolbox asks them in Rook's toolbox");
            }
            error
        });
        let mut facts = facts?;
        if self.live {
            stores::ask_mons(&*api, &mut facts).await;
        }
        Ok(facts)
    }
}

/// Answers by their questions, as they will be written.
fn verbatim(answers: &Answers) -> Result<BTreeMap<String, Box<RawValue>>, serde_json::Error> {
    serde_json::from_str(&serde_json::to_string_pretty(answers)?)
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
    })
}
