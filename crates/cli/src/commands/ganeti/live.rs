//! The Ganeti of the configuration, reached by its RAPI.

use std::collections::BTreeSet;
use std::sync::Arc;

use stagger_core::model::{ClusterId, Snapshot};
use stagger_core::run::measured;
use stagger_engine::backend::Backend;
use stagger_ganeti::cluster::Cluster;
use stagger_ganeti::rapi::Bodies;
use stagger_ganeti::translate::{KIND, REBOOTED};
use stagger_ganeti_rapi::backend::GanetiBackend;
use stagger_ganeti_rapi::config::Settings;
use stagger_ganeti_rapi::facts::Facts;
use stagger_ganeti_rapi::target::carried_out;
use stagger_ganeti_rapi::translate::{Memory, Wished};

use super::Asked;
use crate::args::{self, Cli};
use crate::commands::run::Prepared;
use crate::commands::{place, store};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::world;

/// So many runs before tell how long things take.
const RUNS: usize = 5;

/// A Ganeti that answers.
pub(crate) struct Live {
    config: Config,
    settings: Settings,
}

/// What was seen of it.
pub(super) struct Seen {
    facts: Facts,
    cluster: Cluster,
    /// What that makes.
    pub(super) snapshot: Snapshot,
}

impl Live {
    /// That of the configuration, if it is for one. Where there is no configuration, nobody meant a Ganeti.
    pub(crate) fn of_config(cli: &Cli) -> Result<Option<Self>, CliError> {
        if !config::path(cli).is_ok_and(|path| path.exists()) {
            return Ok(None);
        }
        let config = config::read(cli)?;
        Ok(config.ganeti().map(|settings| Self { config, settings }))
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A backend that only looks.
    pub(crate) fn backend(&self) -> Result<GanetiBackend, CliError> {
        Ok(GanetiBackend::new(self.settings.clone(), None)?)
    }

    /// What there is.
    pub(super) async fn look(&self, wished: Wished) -> Result<Seen, CliError> {
        let backend = self.backend()?;
        let (facts, cluster) = backend.look().await?;
        let snapshot = backend.snapshot(&facts, &cluster, &wished)?;
        Ok(Seen {
            facts,
            cluster,
            snapshot,
        })
    }

    /// Snapshot, target and policy for a wish; and the facts behind them.
    pub(super) async fn asked(
        &self,
        cli: &Cli,
        wish: &args::Wish,
        reboot: &args::Reboot,
    ) -> Result<(Asked, Facts), CliError> {
        super::is_meant(reboot, self.settings.cluster.name.as_str())?;
        let policy = self.config.policy(wish)?;
        let seen = self.look(self.wished(cli, reboot)?).await?;
        world::names_are_known(
            &seen.snapshot,
            &policy,
            BTreeSet::from(["group"]),
            &BTreeSet::from([KIND]),
        )?;
        super::warn(&seen.cluster);
        let target = super::target(&seen.cluster, reboot)?;
        let visits = &self.settings.cluster.visits;
        let target = carried_out(target, visits, &policy)
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        let asked = Asked {
            snapshot: seen.snapshot,
            target,
            policy,
            software: None,
        };
        Ok((asked, seen.facts))
    }

    /// All that a run begins with.
    pub(crate) async fn prepared(&self, cli: &Cli, wish: &args::Run) -> Result<Prepared, CliError> {
        let (asked, facts) = self.asked(cli, &wish.wish, &wish.reboot).await?;
        let Asked {
            snapshot,
            target,
            policy,
            software,
        } = asked;
        self.can_carry_out(&wish.reboot)?;
        let rebooted = REBOOTED
            .parse()
            .map_err(|_| CliError::new(Exit::Internal, format!("{REBOOTED} is no revision")))?;
        let memory = Memory::of(&facts, rebooted, self.wished(cli, &wish.reboot)?);
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        let identity = self.backend()?.identity().await?;
        let backend = GanetiBackend::new(self.of(Some(&identity)), Some(memory))?;
        Ok(Prepared {
            snapshot,
            target,
            policy,
            software,
            baseline,
            backend: Arc::new(backend),
        })
    }

    /// What is wished of instances. Things take as long as they did in the runs before, unless it is said.
    fn wished(&self, cli: &Cli, reboot: &args::Reboot) -> Result<Wished, CliError> {
        let mut wished = super::wished(reboot)?;
        // Who only looks makes no store.
        if place(cli)?.exists() {
            let store = store(cli)?;
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

    /// The settings for runs of that cluster.
    fn of(&self, identity: Option<&ClusterId>) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        settings
    }

    /// The backend of a run that is in the journal.
    pub(crate) fn resumed(
        &self,
        memory: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let memory: Memory = serde_json::from_value(memory.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of a Ganeti: {error}"))
                .hint("is it a run of another cluster? --config names the configuration")
        })?;
        Ok(Arc::new(GanetiBackend::new(self.of(identity), Some(memory))?))
    }
}

/// The cluster whose RAPI is there, as the configuration reaches it if there is one: its user, and whom it trusts.
pub(crate) async fn cluster_at(cli: &Cli, address: &str, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let settings = match Live::of_config(cli)? {
        Some(mut live) => {
            live.settings.cluster.addresses = vec![address.to_owned()];
            live.settings
        }
        None => Settings::to_look_at(address).map_err(|error| CliError::usage(error.to_string()))?,
    };
    let backend = GanetiBackend::new(settings, None)?;
    let body = async |path: &str| {
        match backend.rapi().get(path).await {
        Ok(answer) => Ok(answer.to_string()),
        Err(error) => Err(CliError::from(error.of("look at the cluster", false)).hint(
            "a configuration says whom to trust: `ca` or `fingerprint`, and `user` where RAPI wants one (--config)",
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
