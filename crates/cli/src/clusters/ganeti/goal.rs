//! The goal that the flags of a reboot give.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stagger_core::model::{Evacuate, EvacuationPolicy, Kind, LocalGuests, SharedGuests, Spare, Standbys};
use stagger_engine::template::unknown;
use stagger_ganeti::goal::{GanetiRebootGoal, MaintenanceGoal, Task};
use stagger_ganeti::model::Template;
use stagger_ganeti::preflight::OF_NODES;
use stagger_ganeti::selection::NodeSelection;
use stagger_ganeti::translate::KIND;

use crate::args::{self, NonDrbd, SharedSecondary};
use crate::clusters::goals::{NodeMaintenance, Work};
use crate::config::nearest_of;
use crate::error::CliError;

/// What is wanted of a cluster.
pub(super) fn maintenance(asked: &NodeMaintenance<'_>) -> Result<MaintenanceGoal, CliError> {
    let args = asked.visit;
    let task = match asked.work {
        Work::Reboot => Task::Reboot,
        Work::Command(command) => Task::Command(for_each_node("--command", command)?),
        Work::Hold => Task::Hold,
    };
    if let Some(command) = asked.needs_reboot.filter(|command| !command.is_empty()) {
        for_each_node("--needs-reboot", command)?;
    }
    Ok(MaintenanceGoal {
        task,
        reboot: GanetiRebootGoal {
            selection: selection(&args.nodes)?,
            moving: moving(args),
            local_storage: templates(&args.local_storage)?,
        },
        ignore_ipolicy: args.ignore_ipolicy,
        durations: durations(&args.takes)?,
    })
}

/// A command that names the node for which it is run, and nothing that nobody fills in.
fn for_each_node(flag: &str, command: &str) -> Result<String, CliError> {
    if !command.contains("{node}") {
        return Err(
            CliError::usage(format!("{flag} does not say {{node}}: {command}"))
                .hint("it is run on this machine, once for each node: ssh root@{node} …"),
        );
    }
    let Some(name) = unknown(command, OF_NODES).into_iter().next() else {
        return Ok(command.to_owned());
    };
    let meant = nearest_of(name, OF_NODES.iter().copied())
        .map(|meant| format!("; did you mean {{{meant}}}?"))
        .unwrap_or_default();
    let known: Vec<String> = OF_NODES.iter().map(|known| format!("{{{known}}}")).collect();
    Err(CliError::usage(format!(
        "{flag}: nothing is filled in for {{{name}}}{meant}\n    {command}"
    ))
    .hint(format!(
        "there are: {}; braces that are the command's own need a blank: {{ {name} }}",
        known.join(", ")
    )))
}

/// Refuses what only a cluster that answers can tell.
pub(super) fn refuse_live_flags(args: &NodeMaintenance<'_>) -> Result<(), CliError> {
    if args.needs_reboot.is_some() || args.since.is_some() {
        return Err(CliError::usage(
            "--needs-reboot and --since need a cluster that answers; this one is in a file",
        )
        .hint("leave out --from, or name the nodes with --nodes"));
    }
    Ok(())
}

/// Which nodes are meant.
pub(crate) fn selection(nodes: &args::Nodes) -> Result<NodeSelection, CliError> {
    let matching = nodes.matching.as_deref().map(regex::Regex::new).transpose();
    Ok(NodeSelection {
        groups: nodes.groups.clone(),
        tags: nodes.node_tags.clone(),
        matching: matching.map_err(|error| {
            let mut refused = CliError::usage("--matching is no regular expression");
            refused.causes.push(error.to_string().replace('\n', "\n    "));
            refused
        })?,
        nodes: nodes.nodes.clone(),
        leave_out: nodes.leave_out.clone(),
    })
}

fn moving(args: &args::VisitArgs) -> EvacuationPolicy {
    EvacuationPolicy {
        as_if_down: args.assume_down,
        local: if args.move_non_redundant {
            LocalGuests::Relocate
        } else if args.accept_non_redundant {
            LocalGuests::Accept
        } else {
            LocalGuests::Skip
        },
        shared: args.non_drbd.into(),
        standbys: args.shared_secondary.into(),
        spare: if args.spend_spare {
            Spare::Spend
        } else {
            Spare::Keep
        },
        evacuate: if args.full_evacuation {
            Evacuate::Everything
        } else {
            Evacuate::Guests
        },
    }
}

impl std::convert::From<NonDrbd> for SharedGuests {
    fn from(way: NonDrbd) -> Self {
        match way {
            NonDrbd::One => Self::One,
            NonDrbd::Rolling => Self::Rolling,
            NonDrbd::Sets => Self::Sets,
        }
    }
}

impl std::convert::From<SharedSecondary> for Standbys {
    fn from(rule: SharedSecondary) -> Self {
        match rule {
            SharedSecondary::Capacity => Self::Capacity,
            SharedSecondary::Exclude => Self::Exclude,
        }
    }
}

fn templates(words: &[String]) -> Result<Vec<Template>, CliError> {
    let known: Vec<&str> = Template::ALL.iter().map(|template| template.word()).collect();
    words
        .iter()
        .map(|word| {
            Template::of_word(word).ok_or_else(|| {
                CliError::usage(format!("--local-storage {word:?} is no disk template"))
                    .hint(format!("there are: {}", known.join(", ")))
            })
        })
        .collect()
}

/// `--takes node=300,migrate=20`
fn durations(given: &[String]) -> Result<BTreeMap<Kind, SignedDuration>, CliError> {
    const KNOWN: [&str; 4] = [KIND, "migrate", "relocate", "replace-standby"];
    given
        .iter()
        .map(|text| {
            let parsed = text.split_once('=').and_then(|(what, seconds)| {
                let known = KNOWN.contains(&what).then(|| Kind::new(what).ok())??;
                Some((
                    known,
                    SignedDuration::from_secs(i64::from(seconds.parse::<u32>().ok()?)),
                ))
            });
            parsed.ok_or_else(|| {
                CliError::usage(format!("--takes {text:?} is not OPERATION=SECONDS"))
                    .hint(format!("write node=300; there are: {}", KNOWN.join(", ")))
            })
        })
        .collect()
}
