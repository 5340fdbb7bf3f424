//! The only place that knows every backend: makes one from the configuration or from saved facts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use stagger_ceph::api::CephApi;
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::{CephBackend, Memory, hosts_of};
use stagger_ceph::config::{CephSettings, SoftwareByKind};
use stagger_ceph::facts::Facts;
use stagger_ceph::target::{TargetPolicy, target_for};
use stagger_ceph::translate::{Baseline, units};
use stagger_core::model::{ClusterId, Order, Policy, Snapshot, Target};
use stagger_sim::ClusterCopy;
use tempfile::TempDir;

use crate::args::{Cli, From, Wish};
use crate::config::{self, Config};
use crate::copy;
use crate::error::CliError;
use crate::exit::Exit;
use crate::source::Source;

/// A Ceph cluster as seen now, or as it was recorded.
pub(crate) struct World {
    api: Arc<dyn CephApi>,
    settings: CephSettings,
    config: Option<Config>,
    /// What the connection reads, as long as there is one.
    _folder: Option<TempDir>,
    /// The interruptions that a person permits.
    permitted: BTreeSet<String>,
    /// All facts.
    pub(crate) facts: Facts,
    /// What they make.
    pub(crate) snapshot: Snapshot,
}

impl World {
    /// Observes the cluster, or what `--from` names.
    pub(crate) async fn observe(cli: &Cli, from: &From) -> Result<Self, CliError> {
        Self::of(Source::open(cli, from).await?, None).await
    }

    /// The same, with the answers of the cluster written to a file.
    pub(crate) async fn observe_and_save(cli: &Cli, from: &From, file: &Path) -> Result<Self, CliError> {
        Self::of(Source::open(cli, from).await?, Some(file)).await
    }

    async fn of(source: Source, save: Option<&Path>) -> Result<Self, CliError> {
        let facts = match save {
            Some(file) => source.facts_saved(file).await?,
            None => source.facts().await?,
        };
        let Source {
            api,
            settings,
            config,
            folder,
            ..
        } = source;
        let snapshot = CephBackend::new(Arc::clone(&api), settings.clone(), None).snapshot(&facts)?;
        Ok(Self {
            api,
            settings,
            config,
            _folder: folder,
            permitted: BTreeSet::new(),
            facts,
            snapshot,
        })
    }

    /// The same where these interruptions are permitted.
    pub(crate) fn permitting(mut self, policy: &Policy) -> Result<Self, CliError> {
        if !policy.interruptions.is_empty() {
            self.permitted.clone_from(&policy.interruptions);
            self.snapshot = CephBackend::new(Arc::clone(&self.api), self.settings.clone(), None)
                .permitting(policy.interruptions.iter().cloned())
                .snapshot(&self.facts)?;
        }
        Ok(self)
    }

    /// The policy: the configuration's with the flags over it.
    pub(crate) fn policy(&self, wish: &Wish) -> Result<Policy, CliError> {
        let policy = match &self.config {
            Some(config) => config.policy(wish)?,
            None => config::over(Policy::default(), wish)?,
        };
        let kinds = BTreeSet::from(KINDS);
        names_are_known(&self.snapshot, &policy, LEVELS.into(), &kinds)?;
        for kind in self.settings.cluster.durations.keys() {
            known("kind of daemon", kind.as_str(), &kinds)?;
        }
        Ok(policy)
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
            pause: self.settings.cluster.pause.clone(),
            before_rollback: self.settings.software.of("osd").before_rollback.is_some(),
            health: self.settings.health.clone(),
        };
        target_for(&self.facts, self.snapshot.units(), release, &wanted)
            .map_err(|refusal| CliError::refused(&format!("the upgrade to {release}"), &refusal.0))
    }

    /// The commands that change it, where a configuration was read.
    pub(crate) fn software(&self) -> Option<SoftwareByKind> {
        self.config.as_ref().map(|_| self.settings.software.clone())
    }

    /// What a run keeps of how things were before it.
    pub(crate) fn memory(&self) -> Result<Memory, CliError> {
        let units =
            units(&self.facts, None).map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        Ok(Memory {
            baseline: Baseline::of(&self.facts, &units),
            hosts: hosts_of(&self.facts),
            interruptions: self.permitted.clone(),
        })
    }

    /// All that the simulator takes over of it, judged as a run would that begins now.
    pub(crate) fn copy(&self) -> Result<ClusterCopy, CliError> {
        let memory = self.memory()?;
        let seen = CephBackend::new(Arc::clone(&self.api), self.settings.clone(), Some(memory));
        let poll = u32::try_from(self.settings.cluster.poll).unwrap_or(u32::MAX);
        Ok(copy::of(&self.facts, seen.snapshot(&self.facts)?, poll))
    }

    /// A backend for a run that began with that memory.
    pub(crate) fn for_run(&self, memory: Memory) -> CephBackend {
        let mut settings = self.settings.clone();
        // What is no name is no fsid either: then the run is refused when it asks for the identity.
        if let Ok(identity) = ClusterId::new(self.facts.fsid.as_str()) {
            settings.hosts = settings.hosts.of_identity(&identity);
        }
        CephBackend::new(Arc::clone(&self.api), settings, Some(memory))
    }
}

/// The levels that Ceph itself names.
const LEVELS: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];
/// The kinds of daemons that are units.
const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

/// A bound on what there is not would bind nothing, and nobody would notice. What this cluster lacks and
/// another may have is no mistake: such levels of failure domains are given, and so are all kinds of units.
pub(crate) fn names_are_known<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
    mut levels: BTreeSet<&'a str>,
    kinds: &BTreeSet<&str>,
) -> Result<(), CliError> {
    let units = snapshot.units();
    levels.extend(
        units
            .iter()
            .flat_map(|unit| unit.domains.keys())
            .map(String::as_str),
    );
    let by = match &policy.order {
        Order::ByDomain(level) => Some(level),
        Order::FewestWaves | Order::List(_) => None,
    };
    for level in by.into_iter().chain(policy.max_domains.keys()) {
        known("level of failure domains", level, &levels)?;
    }
    if let Order::List(listed) = &policy.order {
        let units = units.iter().map(|unit| unit.id.as_str()).collect();
        for unit in listed {
            known("unit in this cluster", unit.as_str(), &units)?;
        }
    }
    for kind in policy.max_in_parallel_of.keys() {
        known("kind of daemon", kind.as_str(), kinds)?;
    }
    Ok(())
}

/// As many names are listed to choose from.
const FEW: usize = 12;

/// Whether a name of the policy is one of those that there can be.
fn known(what: &str, name: &str, known: &BTreeSet<&str>) -> Result<(), CliError> {
    if known.contains(name) {
        return Ok(());
    }
    let all: Vec<&str> = known.iter().copied().collect();
    let error = CliError::usage(format!(
        "the configuration names {name:?}, and there is no such {what}"
    ));
    let nearest = all
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    Err(match nearest {
        Some(nearest) if all.len() > FEW => error.hint(format!("the nearest is {nearest}")),
        Some(nearest) => error.hint(format!("the nearest is {nearest}; there are: {}", all.join(", "))),
        None => error,
    })
}

/// A backend for a run that is in the journal, without observing first.
pub(crate) fn resumed(
    cli: &Cli,
    memory: &serde_json::Value,
    identity: Option<&ClusterId>,
) -> Result<CephBackend, CliError> {
    let mut settings = config::read(cli)?.ceph()?;
    if let Some(identity) = identity {
        settings.hosts = settings.hosts.of_identity(identity);
    }
    let memory = serde_json::from_value(memory.clone()).map_err(|error| {
        CliError::usage(format!("the run keeps no memory of a Ceph cluster: {error}"))
            .hint("a run of `stagger simulate` ended with its simulation, and cannot be carried on")
    })?;
    let api = Arc::new(Session::new(settings.cluster.access()));
    Ok(CephBackend::new(api, settings, Some(memory)))
}
