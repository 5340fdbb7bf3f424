//! The Ironic of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stagger_core::model::{ClusterId, Policy, Snapshot};
use stagger_engine::backend::Backend;
use stagger_engine::preflight::Check;
use stagger_engine::supervisor::{Identity, SuperviseError};
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::config::{Role, Settings};
use stagger_ironic::preflight;
use stagger_ironic::translate::{Wished, unit_id};
use stagger_ironic::versions::{ServiceVersions, versions};

use super::ganeti::{self, Asked};
use super::run::Prepared;
use crate::args::{self, Cli, From};
use crate::config::{self, Config};
use crate::documents::{self, ServiceRow, VersionRow, Versions};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{print, world};

/// The objects that are shown where not all are asked for.
const SHOWN: [&str; 3] = ["Node", "Port", "Conductor"];

/// An Ironic that answers.
pub(crate) struct Live {
    config: Config,
    settings: Settings,
}

/// What was seen of it, and what is wanted.
struct Seen {
    asked: Asked,
    wished: Wished,
}

impl Live {
    /// That of the configuration, if it is for one.
    pub(crate) fn of_config(cli: &Cli) -> Result<Option<Self>, CliError> {
        if !config::path(cli).is_ok_and(|path| path.exists()) {
            return Ok(None);
        }
        let config = config::read(cli)?;
        Ok(config.ironic().map(|settings| Self { config, settings }))
    }

    /// The same, unless `--from` names a file: there is none of an Ironic.
    pub(crate) fn at(cli: &Cli, from: &From) -> Result<Option<Self>, CliError> {
        if from.from.is_some() || from.on.is_meant() {
            return Ok(None);
        }
        Self::of_config(cli)
    }

    fn backend(&self, wished: Option<Wished>) -> Result<IronicBackend, CliError> {
        Ok(IronicBackend::new(self.settings.clone(), wished)?)
    }

    /// One for a run of that Ironic.
    fn backend_of(&self, identity: Option<&ClusterId>, wished: Wished) -> Result<IronicBackend, CliError> {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        Ok(IronicBackend::new(settings, Some(wished))?)
    }

    /// What there is.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, CliError> {
        let backend = self.backend(None)?;
        let facts = backend.look().await;
        if let Some(why) = facts.silent() {
            return Err(CliError::new(
                Exit::Unreachable,
                format!("nothing of the Ironic answers: {why}"),
            ));
        }
        Ok(backend.snapshot(&facts, None)?)
    }

    /// What a run would miss.
    pub(crate) async fn preflight(&self) -> Result<Vec<Check>, CliError> {
        let facts = self.backend(None)?.look().await;
        let mut checks = preflight::of_facts(&facts);
        checks.extend(preflight::look(&self.settings).await);
        Ok(checks)
    }

    async fn seen(&self, wish: &args::Wish, reboot: &args::Reboot) -> Result<Seen, CliError> {
        ganeti::is_none(reboot)?;
        let policy: Policy = self.config.policy(wish)?;
        let release = wish
            .to
            .as_deref()
            .ok_or_else(|| CliError::usage("the release to go to is not given").hint("--to 29.0.6"))?;
        let backend = self.backend(None)?;
        let facts = backend.look().await;
        let upgrade = backend.upgrade(&facts, release, &policy).map_err(|refusal| {
            let mut error = CliError::refused(&format!("the upgrade to {release}"), &refusal.0);
            if facts.silent().is_some() {
                error.exit = Exit::Unreachable;
            }
            error
        })?;
        let snapshot = backend.snapshot(&facts, Some(&upgrade.wished))?;
        let kinds = BTreeSet::from([Role::Conductor.as_str(), Role::Api.as_str()]);
        world::names_are_known(&snapshot, &policy, BTreeSet::from(["host", "group"]), &kinds)?;
        Ok(Seen {
            asked: Asked {
                snapshot,
                target: upgrade.target,
                policy,
                software: None,
            },
            wished: upgrade.wished,
        })
    }

    /// Snapshot, target and policy for a wish.
    pub(crate) async fn asked(&self, wish: &args::Wish, reboot: &args::Reboot) -> Result<Asked, CliError> {
        Ok(self.seen(wish, reboot).await?.asked)
    }

    /// All that a run begins with.
    pub(crate) async fn prepared(&self, wish: &args::Run) -> Result<Prepared, CliError> {
        let Seen { asked, wished } = self.seen(&wish.wish, &wish.reboot).await?;
        let Asked {
            snapshot,
            target,
            policy,
            software,
        } = asked;
        let identity = self.backend(None)?.identity().await?;
        let baseline = serde_json::to_value(&wished)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        Ok(Prepared {
            snapshot,
            target,
            policy,
            software,
            baseline,
            backend: Arc::new(self.backend_of(Some(&identity), wished)?),
        })
    }

    /// The backend of a run that is in the journal.
    pub(crate) fn resumed(
        &self,
        memory: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let wished: Wished = serde_json::from_value(memory.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of an Ironic: {error}"))
                .hint("is it a run of another cluster? --config names the configuration")
        })?;
        Ok(Arc::new(self.backend_of(identity, wished)?))
    }

    /// `versions`
    pub(crate) async fn versions(&self, cli: &Cli, all: bool) -> Result<Exit, CliError> {
        let backend = self.backend(None)?;
        let facts = backend.look().await;
        let services = versions(&facts, &self.settings.cluster, backend.table());
        // What is written down is shown all the same.
        let exit = facts.silent().map_or(Exit::Done, |_| Exit::Unreachable);
        if cli.json {
            let snapshot = backend.snapshot(&facts, None)?;
            let mut rows: BTreeMap<(String, String), Vec<_>> = BTreeMap::new();
            for unit in snapshot.units() {
                let revision = unit
                    .revision
                    .as_ref()
                    .map_or("unknown", |revision| revision.as_str());
                let key = (unit.kind.to_string(), revision.to_owned());
                rows.entry(key).or_default().push(unit.id.clone());
            }
            let versions = rows.into_iter().map(|((kind, revision), units)| VersionRow {
                kind,
                revision,
                count: units.len(),
                units,
            });
            let services = services.into_iter().map(row).collect::<Result<_, _>>()?;
            print::json(&documents::VERSIONS.of(&Versions {
                versions: versions.collect(),
                services,
            }));
            return Ok(exit);
        }
        print::out(&format!(
            "{:<12} {:<10} {:<10} {:<8} {:<7} {:<8} writes",
            "service", "release", "pin", "RPC cap", "API", "state"
        ));
        for service in services {
            print::out(&line(&service, all));
        }
        Ok(exit)
    }
}

/// `ironic record`
pub(crate) async fn record(
    cli: &Cli,
    service: &str,
    release: &str,
    pin: Option<&str>,
) -> Result<Exit, CliError> {
    let live = Live::of_config(cli)?.ok_or_else(|| {
        CliError::usage("the configuration is not for an Ironic").hint("--config names the one that is")
    })?;
    let by = Identity::of_this_process();
    let backend = live.backend(None)?;
    let written = backend.write_down(&by, service, release, pin).await;
    written.map_err(SuperviseError::Lock)?;
    live.versions(cli, false).await
}

fn state(service: &ServiceVersions) -> String {
    format!("{:?}", service.state).to_lowercase()
}

fn line(service: &ServiceVersions, all: bool) -> String {
    let name = &service.service;
    let state = state(service);
    let Some(runs) = &service.runs else {
        let why = service.why.as_deref().unwrap_or_default();
        return format!(
            "{name:<12} {:<10} {:<10} {:<8} {:<7} {state:<8} {why}",
            "unknown", "?", "?", "?"
        );
    };
    let written = runs
        .objects
        .iter()
        .filter(|(object, _)| all || SHOWN.contains(&object.as_str()));
    let objects: Vec<String> = written
        .map(|(object, version)| format!("{object} {version}"))
        .collect();
    let pin = runs.pin.as_deref().unwrap_or("none");
    let why = service
        .why
        .as_ref()
        .map_or(String::new(), |why| format!("; {why}"));
    let (cap, api, release) = (runs.rpc_cap.to_string(), runs.api.to_string(), &runs.release);
    let objects = objects.join(", ");
    format!("{name:<12} {release:<10} {pin:<10} {cap:<8} {api:<7} {state:<8} {objects}{why}")
}

fn row(service: ServiceVersions) -> Result<ServiceRow, CliError> {
    let unit = unit_id(service.kind, &service.service).map_err(|error| CliError::usage(error.to_string()))?;
    let runs = service.runs;
    let objects = runs.iter().flat_map(|runs| &runs.objects);
    Ok(ServiceRow {
        unit,
        state: service.state,
        objects: objects
            .map(|(object, version)| (object.clone(), version.to_string()))
            .collect(),
        release: runs.as_ref().map(|runs| runs.release.clone()),
        pin: runs.as_ref().and_then(|runs| runs.pin.clone()),
        api: runs.as_ref().map(|runs| runs.api.to_string()),
        rpc_cap: runs.as_ref().map(|runs| runs.rpc_cap.to_string()),
        why: service.why,
    })
}
