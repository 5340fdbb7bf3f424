//! An outside judge of N+1: the moves of each wave are made in the text, and the real `hcheck` is asked.
//!
//! These are plans of `stagger plan reboot`, where memory is kept; hroller's own rules spend it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use stagger_core::model::{
    Evacuate, EvacuationPolicy, Growth, Limit, LocalGuests, MoveKind, Policy, SharedGuests, Spare, Standbys,
    UnitId,
};
use stagger_core::plan::{Move, PlanningInput, Wave, plan_waves};
use stagger_e2e::ganeti::Htools;
use stagger_ganeti::goal::GanetiRebootGoal;
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::{GanetiCluster, NodeIx, Template};
use stagger_ganeti::target::reboot;
use stagger_ganeti::translate::{View, snapshot};

use crate::case::Case;

/// What was found in the plan of a case.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// How many waves were looked at.
    pub(crate) waves: usize,
    /// Nodes that are up and newly not N+1 happy, with their wave.
    pub(crate) failures: Vec<String>,
}

impl Found {
    pub(crate) fn add_to(&self, (waves, failures): &mut (usize, usize)) {
        *waves += self.waves;
        *failures += self.failures.len();
    }
}

/// Plans for the cluster of a case, and asks about each wave of it.
pub(crate) fn found(case: &Case, spare: Spare, real: &Htools) -> Result<Found> {
    let mut found = Found::default();
    if case.cluster.masters().count() != 1 {
        return Ok(found);
    }
    for wave in waves(case, spare)? {
        found.waves += 1;
        let (before, during) = (without(&case.cluster, &wave), moved(&case.cluster, &wave)?);
        if unhappy(&during, real)? == 0 {
            continue;
        }
        let newly: Vec<String> = who(&during, real)?
            .difference(&who(&before, real)?)
            .cloned()
            .collect();
        if !newly.is_empty() {
            let units: Vec<_> = wave.units.iter().map(UnitId::as_str).collect();
            found
                .failures
                .push(format!("{} while {} are down", newly.join(" "), units.join(" ")));
        }
    }
    Ok(found)
}

/// The waves of a plan in which little but room binds; what else is wished follows from the seed.
fn waves(case: &Case, spare: Spare) -> Result<Vec<Wave>> {
    let of = |every: u64| case.seed.is_multiple_of(every);
    let moving = EvacuationPolicy {
        as_if_down: false,
        local: if of(2) {
            LocalGuests::Relocate
        } else {
            LocalGuests::Accept
        },
        shared: SharedGuests::Sets,
        standbys: Standbys::Capacity,
        spare,
        evacuate: if of(4) {
            Evacuate::Everything
        } else {
            Evacuate::Guests
        },
    };
    let wish = GanetiRebootGoal {
        moving,
        ..GanetiRebootGoal::default()
    };
    let view = View {
        name: "ganeti".parse()?,
        at: Timestamp::UNIX_EPOCH,
        durations: BTreeMap::new(),
        ignore_ipolicy: false,
    };
    let (snapshot, target) = (snapshot(&case.cluster, &view)?, reboot(&case.cluster, &wish)?);
    let policy = Policy {
        max_in_parallel: Limit::Percent(100),
        growth: Growth::None,
        ..Policy::default()
    };
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let made = plan_waves(&PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    });
    Ok(made.stages().flat_map(|stage| stage.waves.clone()).collect())
}

/// The cluster while the nodes of a wave are down, and nothing was moved.
fn without(cluster: &GanetiCluster, wave: &Wave) -> GanetiCluster {
    let mut cluster = cluster.clone();
    for node in &mut cluster.nodes {
        if wave.units.iter().any(|unit| unit.as_str() == node.name) {
            // A node is offline or the master, in the text.
            (node.offline, node.master) = (true, false);
        }
    }
    cluster
}

/// The same with the moves of the wave made.
fn moved(cluster: &GanetiCluster, wave: &Wave) -> Result<GanetiCluster> {
    let mut cluster = without(cluster, wave);
    for a_move in &wave.moves {
        make(&mut cluster, a_move).with_context(|| format!("{a_move:?}"))?;
    }
    Ok(cluster)
}

fn make(cluster: &mut GanetiCluster, a_move: &Move) -> Result<()> {
    let to = cluster
        .nodes
        .iter()
        .position(|node| node.name == a_move.to.as_str());
    let to = NodeIx(to.context("there is no such node")? as u32);
    let mut instances = cluster.instances.iter_mut();
    let instance = instances.find(|instance| instance.name == a_move.guest);
    let instance = instance.context("there is no such instance")?;
    let (memory, disk) = (instance.memory.cast_signed(), instance.disk.cast_signed());
    let from = instance.primary;
    let (left, memory, disk) = match a_move.how {
        MoveKind::Migrate => {
            if instance.template == Template::Drbd {
                instance.secondary = Some(from);
            }
            instance.primary = to;
            (from, memory, 0)
        }
        MoveKind::Relocate => {
            instance.primary = to;
            (from, memory, disk)
        }
        MoveKind::ReplaceStandby => {
            let left = instance.secondary.replace(to);
            (left.context("it has no secondary")?, 0, disk)
        }
    };
    for (node, by) in [(left, 1), (to, -1)] {
        let Some(has) = &mut cluster.nodes[node.0 as usize].resources else {
            continue;
        };
        has.memory_free += by * memory;
        has.disk_free += by * disk;
    }
    Ok(())
}

/// How many nodes that are up `hcheck` finds not N+1 happy.
fn unhappy(cluster: &GanetiCluster, real: &Htools) -> Result<usize> {
    let said = real.run(
        "hcheck",
        &text::write(cluster),
        &["--no-simulation", "--machine-readable"],
    )?;
    let count = said
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("HCHECK_INIT_CLUSTER_N1_FAIL="));
    let count = count.with_context(|| format!("hcheck does not say it: {said:?}"))?;
    count.parse().with_context(|| format!("hcheck says {count:?}"))
}

/// Who these are: `hcheck` counts them, and the table of `hinfo` has a star before each.
fn who(cluster: &GanetiCluster, real: &Htools) -> Result<BTreeSet<String>> {
    let said = real.run("hinfo", &text::write(cluster), &["--print-nodes"])?;
    // hbal and its like print such tables on stderr.
    let both = [said.stdout.as_str(), said.stderr.as_str()].join("\n");
    ensure!(both.contains(" F Name"), "hinfo prints no nodes: {said:?}");
    let stars = both.lines().filter_map(|line| line.strip_prefix(" * "));
    Ok(stars
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}
