//! The Ganeti of the configuration, reached by its RAPI.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName, Policy, RunId, Snapshot};
use stagger_core::run::{Answer, Event, measured};
use stagger_engine::cluster::names::names_are_known;
use stagger_engine::cluster::{Backend, BackendError, Lock as _};
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_ganeti::config::{RebootMethod, Settings, Visits};
use stagger_ganeti::executor::backend::GanetiBackend;
use stagger_ganeti::executor::commands;
use stagger_ganeti::executor::fingerprint::presented_fingerprint;
use stagger_ganeti::executor::leftovers::Leftovers;
use stagger_ganeti::facts::{Facts, facts};
use stagger_ganeti::loaders::rapi::Bodies;
use stagger_ganeti::maintenance::selection::SelectError;
use stagger_ganeti::maintenance::snapshot::live::{Baseline, EvacuationGoal, live_snapshot};
use stagger_ganeti::maintenance::snapshot::{KIND, REBOOTED};
use stagger_ganeti::maintenance::target::with_guards_and_gates;
use stagger_ganeti::model::Cluster as Ganeti;
use stagger_ganeti::preflight;
use stagger_ganeti::release::{INTENT_TO_UPGRADE, untested, upgrade_under_way};

use super::{GanetiAnswers, SYSTEM, goal};
use crate::args::{self, Cli, Goal};
use crate::clusters::guards::GuardHolder;
use crate::clusters::{Cluster, ManagedCluster, RunInput};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;
use crate::print;
use crate::show;
use crate::state::{place, store};

/// So many runs before tell how long things take.
const RUNS: usize = 5;

/// A Ganeti that answers.
pub(crate) struct LiveGaneti<'a> {
    cli: &'a Cli,
    config: Config,
    settings: Settings,
}

/// What was seen of a Ganeti by its RAPI.
pub(super) struct ObservedGaneti {
    /// As visits need it.
    pub(super) facts: Facts,
    /// As planning needs it.
    pub(super) cluster: Ganeti,
}

impl ObservedGaneti {
    /// What that makes.
    pub(super) fn snapshot(
        &self,
        name: &ClusterName,
        wished: &EvacuationGoal,
        visits: &Visits,
    ) -> Result<Snapshot, CliError> {
        live_snapshot(name, &self.facts, &self.cluster, None, wished, visits).map_err(|error| {
            let why = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            BackendError::transient("make sense of the cluster's facts", why).into()
        })
    }
}

/// What a plan is made of, by what was seen.
pub(super) fn planned(
    looked: &ObservedGaneti,
    snapshot: Snapshot,
    visits: &Visits,
    policy: Policy,
    reboot: &args::Reboot,
) -> Result<PlanRequest, CliError> {
    names_are_known(
        &snapshot,
        &policy,
        BTreeSet::from(["group"]),
        &BTreeSet::from([KIND]),
    )?;
    super::warn(&looked.cluster);
    if let Some(why) = untested(&looked.facts.release) {
        print::talk(&format!("warning: {why}"));
    }
    let target = goal::target(&looked.cluster, reboot)?;
    let target = with_guards_and_gates(target, visits, &policy)
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    Ok(PlanRequest {
        snapshot,
        target,
        policy,
        risks: Vec::new(),
    })
}

impl<'a> LiveGaneti<'a> {
    /// That of this configuration.
    pub(crate) fn new(cli: &'a Cli, config: Config, settings: Settings) -> Self {
        Self {
            cli,
            config,
            settings,
        }
    }

    /// A backend that only looks.
    fn backend(&self) -> Result<GanetiBackend, CliError> {
        Ok(GanetiBackend::new(self.settings.clone(), None)?)
    }

    async fn look(&self) -> Result<ObservedGaneti, CliError> {
        let (facts, cluster) = self.backend()?.look().await?;
        Ok(ObservedGaneti { facts, cluster })
    }

    fn snapshot_of(&self, looked: &ObservedGaneti, wished: &EvacuationGoal) -> Result<Snapshot, CliError> {
        let config = &self.settings.cluster;
        looked.snapshot(&config.name, wished, &config.visits)
    }

    /// What a plan is made of; and the facts behind it.
    async fn look_for(&self, goal: &Goal) -> Result<(PlanRequest, Facts), CliError> {
        let reboot = goal.reboot(self.settings.cluster.name.as_str())?;
        let policy = self.config.policy(&goal.policy)?;
        let looked = self.look().await?;
        let reboot = &self.who_need_it(reboot, &looked).await?;
        tell_of_leftovers(&Leftovers::of(&looked.facts, &[]));
        if self.settings.cluster.visits.reboot_method() == RebootMethod::Powercycle {
            print::talk(
                "warning: nodes are powercycled (`reboot = \"powercycle\"`): nothing is synchronized or unmounted before, so what \
                 was just installed may be lost; without `reboot` they are rebooted cleanly",
            );
        }
        let snapshot = self.snapshot_of(&looked, &self.wished(reboot)?)?;
        let input = planned(&looked, snapshot, &self.settings.cluster.visits, policy, reboot)?;
        Ok((input, looked.facts))
    }

    /// What is wished of instances. Things take as long as they did in the runs before, unless it is said.
    fn wished(&self, reboot: &args::Reboot) -> Result<EvacuationGoal, CliError> {
        let mut wished = goal::wished(reboot)?;
        // Who only looks makes no store.
        if place(self.cli)?.exists() {
            let store = store(self.cli)?;
            let runs = store.runs()?.into_iter();
            let of_it = runs.filter(|listed| listed.cluster == self.settings.cluster.name);
            let journals = of_it
                .take(RUNS)
                .map(|listed| store.journal(&listed.run))
                .collect::<Result<Vec<_>, _>>()?;
            let mut durations = measured(journals.iter().map(Vec::as_slice));
            durations.append(&mut wished.durations);
            wished.durations = durations;
        }
        Ok(wished)
    }

    /// The same for those nodes only that need it: by the word of a command, and by what runs have done already.
    async fn who_need_it(
        &self,
        reboot: &args::Reboot,
        looked: &ObservedGaneti,
    ) -> Result<args::Reboot, CliError> {
        let mut narrowed = reboot.clone();
        if reboot.needs_reboot.is_none() && reboot.since.is_none() {
            return Ok(narrowed);
        }
        if let Some(since) = reboot.since {
            narrowed
                .nodes
                .leave_out
                .extend(self.booted_since(since, &looked.facts)?);
        }
        let meant = |nodes: &args::Nodes| {
            let meant = goal::selection(nodes)?.of(&looked.cluster);
            match meant {
                Ok(meant) => Ok(meant),
                Err(SelectError::Nothing(_)) => Ok(Vec::new()),
                Err(error) => Err(CliError::usage(error.to_string())),
            }
        };
        let backend = self.backend()?;
        if let Some(command) = &reboot.needs_reboot {
            if command.is_empty() {
                return Err(
                    CliError::usage("--needs-reboot has no command of its own for a Ganeti")
                        .hint("--needs-reboot 'ssh root@{node} test -e /var/run/reboot-required'"),
                );
            }
            for node in meant(&narrowed.nodes)? {
                let names = [("node", node.as_str())];
                match commands::ask(backend.rapi(), &self.settings, command, &names).await? {
                    Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => {}
                    Answer::No { .. } => narrowed.nodes.leave_out.push(node.to_string()),
                    Answer::Unknown { why } => {
                        return Err(CliError::new(
                            Exit::Unreachable,
                            format!("whether {node} needs a reboot could not be found out: {why}"),
                        )
                        .hint("--needs-reboot takes a command that exits with 0 if it does and with 1 if it does not"));
                    }
                }
            }
        }
        if meant(&narrowed.nodes)?.is_empty() {
            return Err(CliError::new(
                Exit::No,
                "none of the selected nodes needs a reboot",
            ));
        }
        Ok(narrowed)
    }

    /// The nodes that have booted since a run that began then or later: each run keeps how nodes had booted before it.
    fn booted_since(&self, since: Timestamp, facts: &Facts) -> Result<Vec<String>, CliError> {
        if !place(self.cli)?.exists() {
            return Ok(Vec::new());
        }
        let store = store(self.cli)?;
        let mut before: BTreeSet<(String, String)> = BTreeSet::new();
        for listed in store.runs()? {
            if listed.cluster != self.settings.cluster.name || listed.started < since {
                continue;
            }
            let journal = store.journal(&listed.run)?;
            let Some(Event::Started(start)) = journal.first().map(|entry| &entry.event) else {
                continue;
            };
            if let Ok(memory) = serde_json::from_value::<Baseline>(start.baseline.clone()) {
                before.extend(memory.boots);
            }
        }
        let booted = facts.nodes.values().filter(|node| {
            let mut known = before.iter().filter(|(name, _)| *name == node.name);
            known.any(|(_, boot)| node.boot.as_ref().is_some_and(|now| now != boot))
        });
        Ok(booted.map(|node| node.name.clone()).collect())
    }

    /// Refuses before anything begins what would fail in the middle.
    fn can_carry_out(&self, reboot: &args::Reboot) -> Result<(), CliError> {
        if reboot.move_non_redundant && self.settings.cluster.visits.relocate.is_none() {
            return Err(CliError::usage(
                "--move-non-redundant needs a command, since Ganeti's RAPI cannot move disks",
            )
            .hint("give `relocate` under [cluster.visits]"));
        }
        Ok(())
    }

    /// Refuses a cluster that is itself brought to another release, and asks about a release that no test knows.
    async fn ganeti_can_be_relied_on(&self, facts: &Facts, reboot: &args::Reboot) -> Result<(), CliError> {
        let under_way = match upgrade_under_way(Path::new(INTENT_TO_UPGRADE)).map_err(CliError::usage)? {
            None => preflight::drained(self.backend()?.rapi()).await,
            found => found,
        };
        if let Some(why) = under_way {
            return Err(CliError::new(Exit::No, format!("not begun: {why}"))
                .hint("`gnt-cluster upgrade --resume` ends an upgrade that was interrupted; `gnt-cluster queue info` shows the queue"));
        }
        let Some(why) = untested(&facts.release) else {
            return Ok(());
        };
        if reboot.accept_untested_release {
            return Ok(());
        }
        if std::io::stdin().is_terminal() && print::ask(&format!("{why}. Run all the same?")) {
            return Ok(());
        }
        Err(CliError::new(Exit::No, format!("not begun: {why}"))
            .hint("--accept-untested-release runs all the same; try it on one node first: --nodes NODE"))
    }

    /// The settings for runs of that cluster.
    fn of(&self, identity: Option<&ClusterId>) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        settings
    }
}

#[async_trait]
impl Cluster for LiveGaneti<'_> {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.snapshot_of(&self.look().await?, &EvacuationGoal::default())
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let (at, answers) = self.backend()?.rapi().answers_to_keep().await?;
        let wrong = |error| CliError::caused(Exit::Unreachable, &error);
        let looked = ObservedGaneti {
            cluster: answers.cluster().map_err(wrong)?,
            facts: facts(at, answers.clone()).map_err(wrong)?,
        };
        let name = self.settings.cluster.name.clone();
        let inventory = Inventory::new(SYSTEM, name, at, &GanetiAnswers::Rapi(answers))
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        Ok((inventory, self.snapshot_of(&looked, &EvacuationGoal::default())?))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        Ok(self.look_for(goal).await?.0)
    }
}

#[async_trait]
impl ManagedCluster for LiveGaneti<'_> {
    async fn run_input(&self, goal: &Goal) -> Result<RunInput, CliError> {
        let (planning, facts) = self.look_for(goal).await?;
        let reboot = goal.reboot(self.settings.cluster.name.as_str())?;
        self.can_carry_out(reboot)?;
        self.ganeti_can_be_relied_on(&facts, reboot).await?;
        let rebooted = REBOOTED
            .parse()
            .map_err(|_| CliError::new(Exit::Internal, format!("{REBOOTED} is no revision")))?;
        let memory = Baseline::of(&facts, rebooted, self.wished(reboot)?);
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        let identity = self.backend()?.identity().await?;
        let backend = GanetiBackend::new(self.of(Some(&identity)), Some(memory))?;
        Ok(RunInput {
            planning,
            baseline,
            backend: Arc::new(backend),
        })
    }

    fn backend_of_run(
        &self,
        baseline: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let memory: Baseline = serde_json::from_value(baseline.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of a Ganeti: {error}"))
                .hint("is it a run of another cluster? --config names the configuration")
        })?;
        Ok(Arc::new(GanetiBackend::new(self.of(identity), Some(memory))?))
    }

    async fn preflight(&self, _to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let backend = self.backend()?;
        let subject = "cluster";
        let mut checks = match backend.look().await {
            Ok((facts, cluster)) => vec![Check::passed(
                subject,
                format!("{} nodes; its master is {}", cluster.nodes.len(), facts.master),
            )],
            Err(error) => return Ok(vec![Check::unreachable(subject, error)]),
        };
        checks.extend(preflight::look(&self.settings, backend.rapi()).await);
        Ok(checks)
    }

    async fn look_back(&self, run: &RunId, baseline: &serde_json::Value) -> Result<Vec<String>, CliError> {
        let looked = self.look().await?;
        let mut lines = Vec::new();
        if let Ok(memory) = serde_json::from_value::<Baseline>(baseline.clone()) {
            let moved = memory.not_at_home(&looked.facts);
            lines.push(match moved.as_slice() {
                [] => format!(
                    "every instance that ran before is on its original primary ({} compared)",
                    memory.homes.len()
                ),
                moved => format!("NOT ON ITS ORIGINAL PRIMARY  {}", moved.join("; ")),
            });
        }
        let left = Leftovers::of(&looked.facts, &[]).of_run(run);
        if !left.visits.is_empty() {
            lines.push(format!(
                "this run has left behind:\n{}",
                show::leftovers::leftovers(&left)
            ));
            lines.push("`stagger ganeti recover` gives it back".to_owned());
        }
        Ok(lines)
    }

    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        Ok(Some(GuardHolder::Ganeti(Box::new(self.backend()?))))
    }
}

/// Says which nodes carry notes of other runs: nothing of them is touched.
fn tell_of_leftovers(left: &Leftovers) {
    for visit in &left.visits {
        let since = visit
            .notes
            .since
            .map(|since| format!(", since {since}"))
            .unwrap_or_default();
        print::talk(&format!(
            "warning: {} has notes of {}{since}: nothing of it is touched; `stagger ganeti recover {}` gives it back",
            visit.node,
            visit.notes.whose(),
            visit.node
        ));
    }
}

/// The Ganeti of the configuration, to give back what runs have left in it.
pub(crate) async fn to_recover(cli: &Cli) -> Result<GanetiBackend, CliError> {
    let config = config::read(cli)?;
    let Some(settings) = config.ganeti() else {
        return Err(CliError::usage("the configuration is not of a Ganeti")
            .hint("--config names the configuration of its cluster"));
    };
    let live = LiveGaneti::new(cli, config, settings);
    let identity = live.backend()?.identity().await?;
    Ok(GanetiBackend::new(live.of(Some(&identity)), None)?)
}

/// The cluster whose RAPI is there, as the configuration reaches it if there is one: its user, and whom it trusts. Where any
/// certificate is accepted, no password is sent.
pub(crate) async fn cluster_at(
    cli: Option<&Cli>,
    address: &str,
    kvm_node_memory: u64,
    any_certificate: bool,
) -> Result<Ganeti, CliError> {
    let configured = match cli {
        Some(cli) if !any_certificate => config::ganeti(cli)?,
        _ => None,
    };
    let settings = if let Some(mut settings) = configured {
        settings.cluster.addresses = vec![address.to_owned()];
        settings
    } else {
        let mut settings =
            Settings::to_look_at(address).map_err(|error| CliError::usage(error.to_string()))?;
        if any_certificate && !address.starts_with("http://") {
            let fingerprint = presented_fingerprint(address).await?;
            print::talk(&format!(
                "stagger: unsafe: any certificate of {address} is accepted; this one's fingerprint is {fingerprint}"
            ));
            settings.cluster.fingerprint = Some(fingerprint);
        }
        settings
    };
    let backend = GanetiBackend::new(settings, None)?;
    let body = async |path: &str| {
        match backend.rapi().get(path).await {
        Ok(answer) => Ok(answer.to_string()),
        Err(error) => Err(CliError::from(error.of("look at the cluster", false)).hint(
            "a configuration says whom to trust: `ca` or `fingerprint`, and `user` where RAPI wants one (--config); for hroller also --accept-any-certificate",
        )),
    }
    };
    let bodies = Bodies {
        info: body("/2/info").await?,
        groups: body("/2/groups?bulk=1").await?,
        nodes: body("/2/nodes?bulk=1").await?,
        instances: body("/2/instances?bulk=1").await?,
    };
    bodies
        .cluster_with(kvm_node_memory)
        .map_err(|error| CliError::caused(Exit::Unreachable, &error))
}
