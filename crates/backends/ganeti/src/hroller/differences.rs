//! Differences from the answer of Ganeti's hroller, and why: only those that concern this answer.

use stagger_core::check::{Fault, check};
use stagger_core::model::{Part, Spare, Target};
use stagger_core::plan::Plan;

use super::{HrollerInput, HrollerOptions, RebootGroup};
use crate::model::{Instance, NodeIx, Template};

/// So many names stand in a line.
const NAMED: usize = 5;

/// The differences, each in one line.
pub(super) fn differences(
    question: &HrollerInput,
    options: &HrollerOptions,
    made: &Plan,
    groups: &[RebootGroup],
) -> Vec<String> {
    let mut words = instances(question, options);
    match made.left_alone.len() {
        0 => {}
        1 => words.push("one node is left out that hroller has in its groups: see the warning".to_owned()),
        several => words.push(format!(
            "{several} nodes are left out that hroller has in its groups: see the warnings"
        )),
    }
    if groups.len() > 1 {
        words.push(
            "which nodes go together: hroller takes the best of three greedy colourings; here the fewest groups are searched for, so that there may be fewer, or other ones".to_owned(),
        );
    }
    if groups.iter().any(|group| !group.moves.is_empty()) {
        words.push(
            "where instances go: hroller takes the first node with free memory; here the load stays balanced, and ratios of processors and spindles, exclusion tags, and what other nodes keep for a failure (N+1) are kept".to_owned(),
        );
    }
    words.extend(reserve_used(question, made));
    words
}

/// Instances with which hroller does what ours does not.
fn instances(question: &HrollerInput, options: &HrollerOptions) -> Vec<String> {
    let cluster = &question.cluster;
    let mut down = Vec::new();
    let mut copies = Vec::new();
    let mut shut = Vec::new();
    let mut local = Vec::new();
    let mut elsewhere = Vec::new();
    let selected = |node: NodeIx| question.selected.contains(&node.0);
    // It colours all nodes between the first and the last that are selected, the others as well.
    let between = question.selected.first().zip(question.selected.last());
    let coloured = |node: NodeIx| between.is_some_and(|(first, last)| (*first..=*last).contains(&node.0));
    for instance in cluster.instances.iter().filter(|instance| !instance.forthcoming) {
        let mirrored = instance.template == Template::Drbd;
        if mirrored && !options.full_evacuation {
            continue;
        }
        let mut nodes = vec![instance.primary];
        nodes.extend(instance.secondary.filter(|_| mirrored));
        let name = instance.name.as_str();
        if !nodes.iter().copied().any(selected) {
            if nodes.into_iter().any(coloured) {
                elsewhere.push(name);
            }
        } else if !instance.status.may_run() {
            let list = if mirrored { &mut copies } else { &mut down };
            list.push(name);
        } else if options.offline_maintenance {
            shut.push(name);
        } else if is_local(instance) && !options.move_non_redundant {
            local.push(name);
        }
    }
    let mut words = Vec::new();
    let mut say = |names: &[&str], line: &dyn Fn(&str) -> String| {
        if !names.is_empty() {
            words.push(line(&listed(names)));
        }
    };
    say(&down, &|names| {
        format!("down, and not moved, though hroller moves them: {names}")
    });
    say(&copies, &|names| {
        format!("down, and kept on both their nodes, though hroller takes them off: {names}")
    });
    say(&shut, &|names| {
        format!("--offline-maintenance: here nothing runs, so nothing is moved; hroller moves {names}")
    });
    say(&local, &|names| {
        format!(
            "on the disks of one node, so that they cannot be migrated, though hroller says where to: {names}; their nodes are left out, or --move-non-redundant"
        )
    });
    say(&elsewhere, &|names| {
        format!(
            "on nodes that are not selected, and not moved, though hroller moves them, and may split groups because of them: {names}"
        )
    });
    words
}

pub(super) fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(" ");
    match names.len().checked_sub(NAMED) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// Not a difference to hroller, but to our own plans, and nobody should take one for the other: under its rules the
/// instances of one node may use up what their secondary keeps for another.
fn reserve_used(question: &HrollerInput, made: &Plan) -> Option<String> {
    let mut keeps: Target = question.target.clone();
    for part in &mut keeps.parts {
        if let Part::Stage(stage) = part
            && let Some(maintenance) = &mut stage.maintenance
        {
            maintenance.moving.spare = Spare::Keep;
        }
    }
    let mut ask = question.ask();
    ask.target = &keeps;
    let waves = check(&ask, made)
        .into_iter()
        .filter(|finding| finding.fault == Fault::OverRoom)
        .count();
    let groups = match waves {
        0 => return None,
        1 => "one of the groups".to_owned(),
        several => format!("{several} of the groups"),
    };
    Some(format!(
        "from `stagger plan reboot`, not from hroller: in {groups} a secondary uses up memory that it keeps for the failure of another node (N+1)"
    ))
}

fn is_local(instance: &Instance) -> bool {
    instance.storage() == stagger_core::model::Storage::Local
}
