//! The nodes of a reboot beyond the flags: which nodes need it, by a command or by earlier runs; and the
//! durations of earlier runs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use stagger_core::model::UnitId;
use stagger_core::run::{Answer, Event, measured_durations};
use stagger_ganeti::commands;
use stagger_ganeti::facts::GanetiFacts;
use stagger_ganeti::goal::MaintenanceGoal;
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::selection::{NodeSelection, SelectError};
use stagger_ganeti::source::ClusterFacts;

use super::GanetiSystem;
use crate::clusters::goals::NodeMaintenance;
use crate::error::CliError;
use crate::exit::Exit;
use crate::state::{store, store_location};

/// So many runs before tell how long things take.
const RUNS: usize = 5;

impl GanetiSystem<'_> {
    /// The goal for those nodes that need a reboot. Things take as long as they did in the runs before, unless flags say how long.
    pub(super) async fn narrow(
        &self,
        mut wanted: MaintenanceGoal,
        reboot: &NodeMaintenance<'_>,
        facts: &ClusterFacts,
    ) -> Result<MaintenanceGoal, CliError> {
        let selection = &mut wanted.reboot.selection;
        if let (Some(since), Some(live)) = (reboot.since, &facts.live) {
            selection.leave_out.extend(self.booted_since(since, live).await?);
        }
        if reboot.needs_reboot == Some("") {
            return Err(
                CliError::usage("--needs-reboot has no default command on Ganeti: give one")
                    .hint("--needs-reboot 'ssh root@{node} test -e /var/run/reboot-required'"),
            );
        }
        if let Some(command) = reboot.needs_reboot {
            self.leave_out_by(command, selection, facts).await?;
        }
        let is_narrowed = reboot.since.is_some() || reboot.needs_reboot.is_some();
        if is_narrowed && selected_nodes(selection, &facts.cluster)?.is_empty() {
            return Err(CliError::new(
                Exit::No,
                "none of the selected nodes needs a reboot",
            ));
        }
        self.learn_durations(&mut wanted).await?;
        Ok(wanted)
    }

    /// Leaves out the nodes for which that command exits with 1. Who is silent is not asked: nothing is done there anyway.
    async fn leave_out_by(
        &self,
        command: &str,
        selection: &mut NodeSelection,
        facts: &ClusterFacts,
    ) -> Result<(), CliError> {
        let backend = self.read_only_backend()?;
        let settings = self.settings()?;
        let answers = |node: &UnitId| match &facts.live {
            Some(live) => live
                .nodes
                .get(node.as_str())
                .is_some_and(|node| node.boot.is_some()),
            None => true,
        };
        let mut asked = selected_nodes(selection, &facts.cluster)?;
        asked.retain(answers);
        for (node, answer) in commands::ask_each(backend.rapi(), settings, command, asked).await {
            match answer? {
                Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => {}
                Answer::No { .. } => selection.leave_out.push(node.to_string()),
                Answer::Unknown { why } => {
                    return Err(CliError::new(
                        Exit::Unreachable,
                        format!("whether {node} needs a reboot could not be found out: {why}"),
                    )
                    .hint(format!(
                        "--needs-reboot takes a command that exits with 0 if it does and with 1 if it does not; `-O {node}` leaves \
                         the node out"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The nodes that have booted since a visit or a run that began then or later: each visit notes on its node how it had booted
    /// before, and each run keeps that of all nodes in its journal, where one is here.
    async fn booted_since(&self, since: Timestamp, facts: &GanetiFacts) -> Result<Vec<String>, CliError> {
        let before = self.boots_of_runs(since).await?;
        let booted = facts.nodes.values().filter(|node| {
            let Some(now) = &node.boot else { return false };
            let mut known = before.iter().filter(|(name, _)| *name == node.name);
            known.any(|(_, boot)| now != boot) || node.notes.booted_since(since, now)
        });
        Ok(booted.map(|node| node.name.clone()).collect())
    }

    /// Each node with a boot id that it had before a run that began then or later.
    async fn boots_of_runs(&self, since: Timestamp) -> Result<BTreeSet<(String, String)>, CliError> {
        if !store_location(self.cli)?.exists() {
            return Ok(BTreeSet::new());
        }
        let store = store(self.cli).await?;
        let name = &self.settings()?.cluster.name;
        let mut before: BTreeSet<(String, String)> = BTreeSet::new();
        for listed in store.runs().await? {
            if listed.cluster != *name || listed.started < since {
                continue;
            }
            let journal = store.journal(&listed.run).await?;
            let Some(Event::Started(start)) = journal.first().map(|entry| &entry.event) else {
                continue;
            };
            if let Ok(memory) = serde_json::from_value::<GanetiMemory>(start.baseline.clone()) {
                before.extend(memory.boots);
            }
        }
        Ok(before)
    }

    async fn learn_durations(&self, wanted: &mut MaintenanceGoal) -> Result<(), CliError> {
        // Who only looks makes no store.
        if !store_location(self.cli)?.exists() {
            return Ok(());
        }
        let store = store(self.cli).await?;
        let name = &self.settings()?.cluster.name;
        let mut runs = store.runs().await?;
        runs.retain(|listed| listed.cluster == *name);
        runs.truncate(RUNS);
        let mut journals = Vec::with_capacity(runs.len());
        for listed in runs {
            journals.push(store.journal(&listed.run).await?);
        }
        let mut durations = measured_durations(journals.iter().map(Vec::as_slice));
        durations.append(&mut wanted.durations);
        wanted.durations = durations;
        Ok(())
    }
}

/// The nodes that are meant; none, where each condition leaves some and all together leave nothing.
fn selected_nodes(selection: &NodeSelection, cluster: &GanetiCluster) -> Result<Vec<UnitId>, CliError> {
    match selection.of(cluster) {
        Ok(meant) => Ok(meant),
        Err(SelectError::Nothing(_)) => Ok(Vec::new()),
        Err(error) => Err(CliError::usage(error.to_string())),
    }
}
