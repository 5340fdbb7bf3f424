//! Where facts come from: the cluster, a folder of recorded answers, or a saved snapshot.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::api::saved::{FromSaved, Recorder, Saved, write_whole};
use stagger_ceph::api::session::Session;
use stagger_ceph::api::{Access, CephApi};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings};
use stagger_ceph::facts::{Facts, stores};
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::ClusterName;
use stagger_rook::api::access::{Programs, access};
use stagger_rook::client;
use tempfile::TempDir;

use crate::args::{Cli, From, OnKubernetes};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;

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
    /// What `--from` names, or a cluster of Rook, or else the cluster of the configuration.
    pub(crate) async fn open(cli: &Cli, from: &From) -> Result<Self, CliError> {
        if from.on.is_meant() {
            return Self::of_rook(cli, &from.on).await;
        }
        let Some(path) = &from.from else {
            let config = config::read(cli)?;
            let settings = config.ceph()?;
            return Ok(Self {
                api: Arc::new(Session::new(settings.cluster.access())),
                settings,
                config: Some(config),
                taken: None,
                live: true,
                folder: None,
            });
        };
        let (api, cluster, taken): (Arc<dyn CephApi>, _, _) = if path.is_dir() {
            (Arc::new(Recorded::new(path)), named_after(path)?, None)
        } else {
            let saved = read_saved(path)?;
            let (cluster, taken) = (saved.cluster.clone(), Some(saved.taken));
            (Arc::new(FromSaved::new(saved, path)), cluster, taken)
        };
        // What was recorded is judged by the configuration, where one is named.
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
    async fn of_rook(cli: &Cli, on: &OnKubernetes) -> Result<Self, CliError> {
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

    /// All facts, with the answers behind them written to that file.
    pub(crate) async fn facts_saved(&self, file: &Path) -> Result<Facts, CliError> {
        let recorder = Arc::new(Recorder::new(Arc::clone(&self.api)));
        let facts = self
            .facts_through(Arc::clone(&recorder) as Arc<dyn CephApi>)
            .await?;
        let saved = recorder.saved(self.settings.cluster.name.clone(), facts.collected_at);
        let bytes = saved
            .to_json()
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        write_whole(file, &bytes)
            .map_err(|error| CliError::usage(format!("write the snapshot to {}: {error}", file.display())))?;
        Ok(facts)
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

fn read_saved(path: &Path) -> Result<Saved, CliError> {
    let bytes = std::fs::read(path).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no file or folder {}", path.display()),
            _ => format!("read {}: {error}", path.display()),
        };
        CliError::usage(why).hint(
            "--from takes a file that `stagger observe --save FILE` wrote, or a folder of answers as `ceph … -f json` prints them",
        )
    })?;
    Saved::read(&bytes).map_err(|error| {
        let mut refused = CliError::usage(format!("{} cannot be planned from", path.display()));
        refused.causes.push(error.to_string());
        refused
            .causes
            .extend(std::error::Error::source(&error).map(ToString::to_string));
        refused.hint(error.hint())
    })
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
