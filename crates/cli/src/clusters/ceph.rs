//! A Ceph: the one of the configuration, one that Rook laid out, or answers that were recorded.

mod copy;
mod risks;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use stagger_ceph::api::CephApi;
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::{CephBackend, Memory, hosts_of};
use stagger_ceph::config::{CephSettings, SoftwareByKind};
use stagger_ceph::facts::Facts;
use stagger_ceph::preflight;
use stagger_ceph::target::{TargetPolicy, target_for};
use stagger_ceph::translate::{Baseline, units};
use stagger_core::model::{ClusterId, Part, Policy, Reason, Snapshot, Target};
use stagger_core::plan::Plan;
use stagger_engine::cluster::Backend;
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_risks::{Finding, Risk};
use stagger_sim::ClusterCopy;
use tempfile::TempDir;

use super::guards::GuardHolder;
use super::names::{known, names_are_known};
use super::{Cluster, ManagedCluster, RehearsalInput, RiskReport, RunInput, reachable};
use crate::args::{Cli, Goal, PolicyFlags, RookCluster, Upgrade};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::{PlanRequest, made_for, refusal};

pub(crate) use source::Source;

/// What an inventory of one says that it is.
pub(crate) const SYSTEM: &str = "ceph";

/// A Ceph, not yet looked at.
pub(crate) struct CephCluster<'a> {
    cli: &'a Cli,
    origin: Origin<'a>,
}

/// Where its facts come from.
enum Origin<'a> {
    Config,
    Rook(&'a RookCluster),
    Folder(&'a Path),
    Recorded(&'a Path, Inventory),
}

impl<'a> CephCluster<'a> {
    /// That of the configuration.
    pub(crate) fn of_config(cli: &'a Cli) -> Self {
        Self {
            cli,
            origin: Origin::Config,
        }
    }

    /// One that Rook laid out.
    pub(crate) fn of_rook(cli: &'a Cli, on: &'a RookCluster) -> Self {
        Self {
            cli,
            origin: Origin::Rook(on),
        }
    }

    /// Answers as `ceph … -f json` prints them, in a folder.
    pub(crate) fn in_folder(cli: &'a Cli, folder: &'a Path) -> Self {
        Self {
            cli,
            origin: Origin::Folder(folder),
        }
    }

    /// An inventory that was read from that file.
    pub(crate) fn recorded(cli: &'a Cli, file: &'a Path, inventory: Inventory) -> Self {
        Self {
            cli,
            origin: Origin::Recorded(file, inventory),
        }
    }

    async fn source(&self) -> Result<Source, CliError> {
        match &self.origin {
            Origin::Config => Source::of_config(self.cli),
            Origin::Rook(on) => Source::of_rook(self.cli, on).await,
            Origin::Folder(folder) => Source::in_folder(self.cli, folder),
            Origin::Recorded(file, inventory) => Source::recorded(self.cli, file, inventory),
        }
    }

    /// Looks at it.
    pub(crate) async fn observe(&self) -> Result<ObservedCeph, CliError> {
        let source = self.source().await?;
        let facts = source.facts().await?;
        ObservedCeph::of(source, facts)
    }

    /// Looks at it for that goal: with the policy, and what it permits.
    pub(crate) async fn observe_for(&self, flags: &PolicyFlags) -> Result<(ObservedCeph, Policy), CliError> {
        let observed = self.observe().await?;
        let policy = observed.policy(flags)?;
        Ok((observed.permitting(&policy)?, policy))
    }

    /// The commands that change it, where a configuration was read.
    fn software(&self) -> Option<SoftwareByKind> {
        let is_configured = match self.origin {
            Origin::Config => true,
            // An operator changes it, by no command.
            Origin::Rook(_) => false,
            Origin::Folder(_) | Origin::Recorded(..) => self.cli.config.is_some(),
        };
        let config = is_configured.then(|| config::read(self.cli).ok()).flatten()?;
        Some(config.ceph().ok()?.software)
    }
}

#[async_trait]
impl Cluster for CephCluster<'_> {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        Ok(self.observe().await?.snapshot)
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let source = self.source().await?;
        let (facts, inventory) = source.facts_kept().await?;
        Ok((inventory, ObservedCeph::of(source, facts)?.snapshot))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        let upgrade = goal.upgrade(KIND)?;
        let (observed, policy) = self.observe_for(&goal.policy).await?;
        let target = observed.target(&upgrade.to, &policy)?;
        Ok(PlanRequest {
            risks: observed.risks_of(upgrade, &target).await?,
            target,
            snapshot: observed.snapshot,
            policy,
        })
    }

    async fn risks(&self, files: &[PathBuf], to: Option<&str>) -> Result<Option<RiskReport>, CliError> {
        let observed = self.observe().await?;
        let known = observed.known_risks(files)?;
        Ok(Some(RiskReport {
            cluster: observed.snapshot.cluster().to_string(),
            found: observed.risks(&known, to, &BTreeSet::new()).await,
            known,
        }))
    }

    fn missing_commands(&self, plan: &Plan) -> Vec<Reason> {
        let changed = plan.stages().filter(|stage| !stage.waves.is_empty());
        let kinds = changed.map(|stage| stage.kind.as_str());
        let software = self.software();
        software.map_or_else(Vec::new, |software| preflight::missing_commands(&software, kinds))
    }

    async fn rehearsal_input(&self, goal: &Goal) -> Result<RehearsalInput, CliError> {
        let release = goal.release(KIND)?;
        let (observed, policy) = self.observe_for(&goal.policy).await?;
        Ok(RehearsalInput {
            copy: observed.copy()?,
            planning: PlanRequest {
                target: observed.target(release, &policy)?,
                snapshot: observed.snapshot,
                policy,
                // A copy has none.
                risks: Vec::new(),
            },
        })
    }

    fn carried_out_by(&self) -> Option<&'static str> {
        matches!(self.origin, Origin::Rook(_))
            .then_some("the image in the CephMaintenance: docs/guides/kubernetes.md")
    }
}

#[async_trait]
impl ManagedCluster for CephCluster<'_> {
    async fn run_input(&self, goal: &Goal) -> Result<RunInput, CliError> {
        let upgrade = goal.upgrade(KIND)?;
        let (observed, policy) = self.observe_for(&goal.policy).await?;
        let target = observed.target(&upgrade.to, &policy)?;
        let risks = observed.risks_of(upgrade, &target).await?;
        let memory = observed.memory()?;
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        Ok(RunInput {
            backend: Arc::new(observed.for_run(memory)),
            planning: PlanRequest {
                snapshot: observed.snapshot,
                target,
                policy,
                risks,
            },
            baseline,
        })
    }

    fn backend_of_run(
        &self,
        baseline: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let mut settings = config::read(self.cli)?.ceph()?;
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        let memory = serde_json::from_value(baseline.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of a Ceph cluster: {error}"))
                .hint("a run of `stagger simulate` ended with its simulation, and cannot be carried on")
        })?;
        let api = Arc::new(Session::new(settings.cluster.access()));
        Ok(Arc::new(CephBackend::new(api, settings, Some(memory))))
    }

    async fn preflight(&self, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let settings = config::read(self.cli)?.ceph()?;
        let mut found = preflight::codes(&settings.health);
        let observed = match self.observe().await {
            Ok(observed) => observed,
            Err(error) => {
                found.extend(reachable("cluster", Some(error)));
                return Ok(found);
            }
        };
        let units = observed.snapshot.units();
        found.push(Check::passed(
            "cluster",
            format!("{} daemons, fsid {}", units.len(), observed.facts.fsid),
        ));
        let flags = PolicyFlags::default();
        // A policy that names what there is not is refused here as everywhere.
        let policy = match observed.policy(&flags) {
            Ok(policy) => policy,
            Err(error) => {
                found.extend(reachable("[policy]", Some(error)));
                return Ok(found);
            }
        };
        let kinds = units.iter().map(|unit| unit.kind.as_str());
        for reason in preflight::missing_commands(&settings.software, kinds) {
            found.push(Check::failed("[software]", reason.to_string()));
        }
        found.extend(preflight::look(&settings, &observed.facts, to).await);
        if let Some(release) = to {
            match observed.target(release, &policy) {
                Err(refused) => found.extend(reachable("target", Some(refused))),
                Ok(target) => {
                    let risks = observed.risks_of(&Upgrade::to(release), &target).await?;
                    found.extend(reachable_by(&observed, target, policy, &risks));
                }
            }
        }
        Ok(found)
    }

    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        let settings = config::read(self.cli)?.ceph()?;
        let api = Arc::new(Session::new(settings.cluster.access()));
        let backend = CephBackend::new(api, settings, None);
        Ok(Some(GuardHolder::Ceph(Box::new(backend))))
    }
}

/// A Ceph cluster as seen now, or as it was recorded.
pub(crate) struct ObservedCeph {
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

impl ObservedCeph {
    fn of(source: Source, facts: Facts) -> Result<Self, CliError> {
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
    fn policy(&self, flags: &PolicyFlags) -> Result<Policy, CliError> {
        let policy = match &self.config {
            Some(config) => config.policy(flags)?,
            None => config::over(Policy::default(), flags)?,
        };
        let kinds = BTreeSet::from(KINDS);
        names_are_known(&self.snapshot, &policy, LEVELS.into(), &kinds)?;
        for kind in self.settings.cluster.durations.keys() {
            known("kind of daemon", kind.as_str(), &kinds)?;
        }
        Ok(policy)
    }

    /// The stages and steps that lead there.
    pub(crate) fn target(&self, release: &str, policy: &Policy) -> Result<Target, CliError> {
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

    /// The risks that are heeded: those of the program, of the configuration, and of these files.
    fn known_risks(&self, files: &[PathBuf]) -> Result<Vec<Risk>, CliError> {
        let configured = self.config.iter().flat_map(|config| &config.risks);
        crate::risks::known(configured.chain(files))
    }

    /// What is found of the known risks of that upgrade. The target has the release that was meant: `v18.2.7`, `18` or `reef` may
    /// have been asked for.
    async fn risks_of(&self, upgrade: &Upgrade, target: &Target) -> Result<Vec<Finding>, CliError> {
        let known = self.known_risks(&upgrade.risks.risks)?;
        let accepted = crate::risks::accepted(&upgrade.risks, &known)?;
        let to = target.parts.iter().find_map(|part| match part {
            Part::Stage(stage) => Some(stage.revision.as_str()),
            Part::Step(_) => None,
        });
        Ok(self.risks(&known, to.or(Some(&upgrade.to)), &accepted).await)
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

/// Whether a run to that target can begin, and the known risks that keep nobody from it.
fn reachable_by(observed: &ObservedCeph, target: Target, policy: Policy, risks: &[Finding]) -> Vec<Check> {
    let mut input = PlanRequest {
        snapshot: observed.snapshot.clone(),
        target,
        policy,
        risks: risks.to_vec(),
    };
    let made = made_for(&PolicyFlags::default(), &mut input);
    let refused = made.and_then(|plan| refusal(&input, &plan).map_or(Ok(()), Err));
    let told: Vec<Finding> = risks.iter().filter(|risk| !risk.refuses()).cloned().collect();
    let lines = crate::risks::lines(&told).into_iter();
    let mut checks = reachable("target", refused.err());
    checks.extend(lines.map(|line| Check::warning("known risk", line)));
    checks
}

/// What it is called where another goal is given.
const KIND: &str = "a Ceph";
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
