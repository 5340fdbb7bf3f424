//! Two judges: a plain one of what ours answers, from the cluster alone, and the core's own of what hroller answers.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use stagger_core::check::{Fault, Finding, check};
use stagger_core::model::{
    Capacity, Evacuate, EvacuationPolicy, GuestHandling, MoveKind, Part, Standbys, UnitId,
};
use stagger_core::plan::{Move, PlannedPart, PlannedStage, Wave, plan_waves};
use stagger_e2e::ganeti::Group;
use stagger_ganeti::hroller::{HrollerInput, HrollerOptions};
use stagger_ganeti::model::{GanetiCluster, Instance, Status, Template};

use crate::case::Case;

/// A move as it is printed: the instance, its new primary node and its new secondary node.
pub(crate) type Line<'a> = (&'a str, &'a str, Option<&'a str>);

/// A cluster as names, for the rules of the design.
pub(crate) struct Plain<'a> {
    cluster: &'a GanetiCluster,
    options: &'a HrollerOptions,
    nodes: BTreeMap<&'a str, u32>,
}

impl<'a> Plain<'a> {
    pub(crate) fn new(cluster: &'a GanetiCluster, options: &'a HrollerOptions) -> Self {
        let names = cluster.nodes.iter().map(|node| node.name.as_str());
        Self {
            cluster,
            options,
            nodes: names.zip(0_u32..).collect(),
        }
    }

    fn node(&self, name: &str) -> Result<u32> {
        let found = self.nodes.get(name).copied();
        found.with_context(|| format!("there is no node {name}"))
    }

    fn name(&self, node: u32) -> &str {
        &self.cluster.nodes[node as usize].name
    }

    fn is_up(&self, node: u32) -> bool {
        self.cluster.nodes[node as usize].is_up()
    }

    /// Instances that count under these options.
    fn instances(&self) -> impl Iterator<Item = &'a Instance> {
        let ignored = self.options.ignore_non_redundant;
        self.cluster
            .instances
            .iter()
            .filter(move |instance| !ignored || instance.template == Template::Drbd)
    }

    /// Whether it has to go on running while its node is down.
    fn runs(&self, instance: &Instance) -> bool {
        instance.status.may_run() && !self.options.offline_maintenance
    }

    /// Whether the moves of an instance are ours to print.
    fn moves(&self, instance: &Instance) -> bool {
        self.runs(instance) && (!is_local(instance) || self.options.move_non_redundant)
    }

    /// Why a node is left out, if the reason that is given holds.
    pub(crate) fn reason_holds(&self, node: &str, slug: &str) -> Result<bool> {
        let at = self.node(node)?;
        let mut on = self.instances().filter(|instance| instance.primary.0 == at);
        Ok(match slug {
            "non-redundant-running" => on.any(|i| self.runs(i) && is_local(i)),
            "guest-stuck" => {
                let lost = |i: &Instance| {
                    self.runs(i) && matches!(i.status, Status::ErrorWrongNode | Status::ErrorNodeDown)
                };
                // Of two nodes with its disks it may be on either; what is not where it should be, on any.
                let may_be_here = |i: &Instance| match i.template {
                    Template::Drbd => i.secondary.is_some_and(|node| node.0 == at),
                    _ => i.status == Status::ErrorWrongNode,
                };
                on.any(lost) || self.instances().any(|i| lost(i) && may_be_here(i))
            }
            "never-ok-to-stop" => {
                !self.options.offline_maintenance
                    && self.pairs().any(|(one, other)| {
                        (one == at && !self.is_up(other)) || (other == at && !self.is_up(one))
                    })
            }
            // Its instances alone are too much for one of their secondaries.
            "no-room" => {
                let mut to: BTreeMap<u32, i64> = BTreeMap::new();
                for instance in on.filter(|i| self.runs(i)) {
                    if let Some(secondary) = instance.secondary {
                        *to.entry(secondary.0).or_default() += instance.memory.cast_signed();
                    }
                }
                to.into_iter().any(|(node, comes)| comes > self.free(node))
            }
            _ => false,
        })
    }

    /// The two nodes of each mirrored instance.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.cluster.instances.iter().filter_map(|instance| {
            let secondary = instance.secondary?;
            (instance.template == Template::Drbd).then_some((instance.primary.0, secondary.0))
        })
    }

    /// Memory that is free: what is said to be, or what is left by the sum, if that is less.
    fn free(&self, node: u32) -> i64 {
        let Some(has) = self.cluster.nodes[node as usize].resources else {
            return 0;
        };
        let used: u64 = self
            .instances()
            .filter(|instance| instance.primary.0 == node && instance.status.may_run())
            .map(|instance| instance.memory)
            .sum();
        has.memory_free
            .min(has.memory.cast_signed() - (has.memory_own + used).cast_signed())
    }

    /// The rules of the design for all groups: sets, order, moves, memory.
    pub(crate) fn sound(&self, case: &Case, groups: &[Group], left: &BTreeSet<&str>) -> Result<()> {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        for group in groups {
            ensure!(!group.nodes.is_empty(), "an empty group");
            let set = group.nodes.iter().map(|name| self.node(name));
            let set = set.collect::<Result<BTreeSet<u32>>>()?;
            ensure!(set.len() == group.nodes.len(), "a node stands twice in {group:?}");
            self.apart(&set).with_context(|| format!("in {group:?}"))?;
            self.moved(group, &set).with_context(|| format!("in {group:?}"))?;
            for node in set {
                ensure!(seen.insert(node), "{} is in two groups", self.name(node));
            }
        }
        let chosen: BTreeSet<u32> = case.chosen().into_iter().collect();
        for node in &chosen {
            let is_left = left.contains(self.name(*node));
            ensure!(
                seen.contains(node) != is_left,
                "{} is in no group, or in one and left out",
                self.name(*node)
            );
        }
        ensure!(
            seen.is_subset(&chosen),
            "a node that is not selected is in a group"
        );
        self.in_order(groups)
    }

    /// The largest group first, but that of the master last, and the master last in it.
    fn in_order(&self, groups: &[Group]) -> Result<()> {
        let master = self.cluster.masters().next().map(|node| node.name.as_str());
        let has_master = |group: &Group| group.nodes.iter().any(|name| Some(name.as_str()) == master);
        let sizes = groups
            .iter()
            .filter(|group| !has_master(group))
            .map(|group| group.nodes.len());
        ensure!(sizes.is_sorted_by(|a, b| a >= b), "not the largest group first");
        let mut before_last = groups.iter().rev().skip(1);
        ensure!(
            !before_last.any(has_master),
            "the master is not in the last group"
        );
        if let Some(last) = groups.last().filter(|group| has_master(group)) {
            ensure!(
                last.nodes.last().map(String::as_str) == master,
                "the master is not the last of its group"
            );
        }
        Ok(())
    }

    /// The two rules of edges.
    fn apart(&self, set: &BTreeSet<u32>) -> Result<()> {
        for (one, other) in self.pairs() {
            let (a, b) = (self.name(one), self.name(other));
            ensure!(
                !(set.contains(&one) && set.contains(&other)),
                "{a} and {b} have an instance in common"
            );
            // Where nothing runs, nothing is lost with the node that is left.
            ensure!(
                self.options.offline_maintenance
                    || (!set.contains(&one) || self.is_up(other))
                        && (!set.contains(&other) || self.is_up(one)),
                "{a} and {b} have an instance in common, and one is down already"
            );
        }
        if self.options.shared_secondary != Standbys::Exclude {
            return Ok(());
        }
        let mut behind: BTreeMap<u32, u32> = BTreeMap::new();
        for instance in self.instances().filter(|instance| self.runs(instance)) {
            let primary = instance.primary.0;
            if let Some(secondary) = instance.secondary.filter(|_| set.contains(&primary)) {
                let first = *behind.entry(secondary.0).or_insert(primary);
                ensure!(
                    first == primary,
                    "{} and {} have the secondary {} in common",
                    self.name(first),
                    self.name(primary),
                    self.name(secondary.0)
                );
            }
        }
        Ok(())
    }

    /// Who has to move does, once and to where it may, nobody else does, and all of it fits.
    fn moved(&self, group: &Group, set: &BTreeSet<u32>) -> Result<()> {
        let mut lines: BTreeMap<&str, Line<'_>> = BTreeMap::new();
        for a_move in &group.moves {
            let line = (
                a_move.instance.as_str(),
                a_move.primary.as_str(),
                a_move.secondary.as_deref(),
            );
            ensure!(lines.insert(line.0, line).is_none(), "{} is moved twice", line.0);
        }
        let mut memory: BTreeMap<u32, i64> = BTreeMap::new();
        let mut disk: BTreeMap<u32, i64> = BTreeMap::new();
        for instance in self.instances() {
            let goes = set.contains(&instance.primary.0);
            let loses_copy = instance.secondary.is_some_and(|node| set.contains(&node.0));
            let line = lines.remove(instance.name.as_str());
            let mirrored = instance.template == Template::Drbd;
            let printed = self.moves(instance)
                && if mirrored {
                    self.options.full_evacuation && (goes || (loses_copy && self.is_up(instance.primary.0)))
                } else {
                    goes
                };
            ensure!(
                printed == line.is_some(),
                "{} {}",
                instance.name,
                if printed {
                    "is not moved"
                } else {
                    "is moved, and should not be"
                }
            );
            if goes
                && mirrored
                && self.runs(instance)
                && let Some(secondary) = instance.secondary
            {
                *memory.entry(secondary.0).or_default() += instance.memory.cast_signed();
            }
            let Some((_, primary, secondary)) = line else {
                continue;
            };
            let primary = self.node(primary)?;
            if mirrored {
                let runs_on = if goes {
                    instance.secondary.context("no secondary")?
                } else {
                    instance.primary
                };
                ensure!(primary == runs_on.0, "{} does not run there", instance.name);
                let new = self.node(secondary.context("no new secondary")?)?;
                ensure!(new != primary, "{} has both copies on one node", instance.name);
                self.may_go(instance, new, set)?;
                *disk.entry(new).or_default() += instance.disk.cast_signed();
            } else {
                ensure!(secondary.is_none(), "{} has no secondary", instance.name);
                self.may_go(instance, primary, set)?;
                *memory.entry(primary).or_default() += instance.memory.cast_signed();
                if is_local(instance) {
                    *disk.entry(primary).or_default() += instance.disk.cast_signed();
                }
            }
        }
        if let Some(name) = lines.keys().next() {
            bail!("{name} is no instance that counts");
        }
        for (node, comes) in memory {
            ensure!(
                comes <= self.free(node),
                "{comes} MiB come to {}, which has {}",
                self.name(node),
                self.free(node)
            );
        }
        for (node, comes) in disk {
            let free = self.cluster.nodes[node as usize]
                .resources
                .map_or(0, |has| has.disk_free);
            ensure!(
                comes <= free,
                "{comes} MiB of disk come to {}, which has {free}",
                self.name(node)
            );
        }
        Ok(())
    }

    fn may_go(&self, instance: &Instance, to: u32, set: &BTreeSet<u32>) -> Result<()> {
        let node = &self.cluster.nodes[to as usize];
        let home = self.cluster.node(instance.primary).group;
        ensure!(
            node.is_up()
                && !set.contains(&to)
                && node.group == home
                && !self.options.selection.leave_out.contains(&node.name),
            "{} cannot go to {}",
            instance.name,
            node.name
        );
        Ok(())
    }
}

/// Whether its disks are on its node only.
pub(crate) fn is_local(instance: &Instance) -> bool {
    matches!(instance.template, Template::Plain | Template::File)
}

/// What the core's judge says of hroller's groups under our rules, without the nodes that are `left` out. Moves of what
/// is down are left out too: that hroller makes them is known.
pub(crate) fn findings(
    question: &HrollerInput,
    left: &BTreeSet<&str>,
    groups: &[Group],
) -> Result<Vec<Finding>> {
    let ask = question.ask();
    let capacity = ask.snapshot.capacity().context("no hosts and guests")?;
    let stage = ask.target.parts.iter().find_map(|part| match part {
        Part::Stage(stage) => Some(stage),
        Part::Step(_) => None,
    });
    let stage = stage.context("no stage")?;
    let moving = stage.maintenance.as_ref().context("no maintenance")?.moving;
    let mut waves = Vec::new();
    for group in groups {
        let names = group.nodes.iter().filter(|name| !left.contains(name.as_str()));
        let mut units = names
            .map(|name| UnitId::new(name.as_str()))
            .collect::<Result<Vec<UnitId>, _>>()?;
        if units.is_empty() {
            continue;
        }
        units.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
        waves.push(Wave {
            moves: their_moves(capacity, moving, &units, group)?,
            units,
            door: None,
            seconds: 0,
        });
    }
    let mut plan = plan_waves(&ask);
    plan.parts = vec![PlannedPart::Stage(PlannedStage {
        name: stage.name.clone(),
        kind: stage.kind.clone(),
        revision: stage.revision.clone(),
        all: ask.snapshot.units().len() as u32,
        parallel: u32::MAX,
        waves,
        at_least: 0,
        at_least_because: String::new(),
        going_back: stage.going_back.clone(),
        schedule: None,
    })];
    let of_rules = |finding: &Finding| {
        matches!(
            finding.fault,
            Fault::OverBudget
                | Fault::OverRoom
                | Fault::MoveMissing
                | Fault::MoveAstray
                | Fault::StandbyShared
                | Fault::UnitUncalledFor
        )
    };
    Ok(check(&ask, &plan).into_iter().filter(of_rules).collect())
}

/// What hroller does to empty these units: what it prints, and the migrations of DRBD, which it does not print.
fn their_moves(
    capacity: &Capacity,
    moving: EvacuationPolicy,
    units: &[UnitId],
    group: &Group,
) -> Result<Vec<Move>> {
    let printed: BTreeMap<&str, &stagger_e2e::ganeti::Move> = group
        .moves
        .iter()
        .map(|a_move| (a_move.instance.as_str(), a_move))
        .collect();
    let (mut first, mut copies) = (Vec::new(), Vec::new());
    for unit in units {
        let host = capacity
            .find(unit)
            .with_context(|| format!("{unit} is no host"))?;
        for guest in capacity
            .guests_on(host)
            .iter()
            .map(|guest| capacity.guest(*guest))
        {
            let line = printed.get(guest.name.as_str());
            let (how, to) = match (moving.turn(guest), guest.standby, line) {
                (GuestHandling::ToStandby, Some(standby), _) => {
                    (MoveKind::Migrate, capacity.host(standby).unit.clone())
                }
                (GuestHandling::Anywhere, _, Some(line)) => {
                    (MoveKind::Migrate, UnitId::new(line.primary.as_str())?)
                }
                (GuestHandling::WithDowntime, _, Some(line)) => {
                    (MoveKind::Relocate, UnitId::new(line.primary.as_str())?)
                }
                _ => continue,
            };
            first.push(Move {
                guest: guest.name.clone(),
                how,
                from: unit.clone(),
                to,
            });
        }
        if moving.evacuate != Evacuate::Everything {
            continue;
        }
        for guest in capacity
            .guests_on(host)
            .iter()
            .chain(capacity.guests_with_standby(host))
            .map(|guest| capacity.guest(*guest))
        {
            let new = printed
                .get(guest.name.as_str())
                .and_then(|line| line.secondary.as_deref());
            if let (GuestHandling::ToStandby, Some(new)) = (moving.turn(guest), new) {
                copies.push(Move {
                    guest: guest.name.clone(),
                    how: MoveKind::ReplaceStandby,
                    from: unit.clone(),
                    to: UnitId::new(new)?,
                });
            }
        }
    }
    first.append(&mut copies);
    Ok(first)
}
