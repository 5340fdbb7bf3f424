//! Remarks on a Ganeti cluster beside a plan for it.

use stagger_ganeti::config::{RebootMethod, Visits};
use stagger_ganeti::downtime::downtimes;
use stagger_ganeti::goal::{MaintenanceGoal, Task};
use stagger_ganeti::ignored_tags::ignored_tags;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::recovery::leftovers::GanetiLeftovers;
use stagger_ganeti::release::untested;
use stagger_ganeti::source::ClusterFacts;
use stagger_report::duration;

/// So many nodes are named whose memory or disk does not add up.
const NAMED: usize = 5;

/// A sentence for each thing that is amiss. `visits`: how nodes are visited, of a cluster that answers.
pub(super) fn warnings(facts: &ClusterFacts, visits: Option<&Visits>, task: &Task) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(live), Some(visits)) = (&facts.live, visits) {
        warnings.extend(of_leftovers(&GanetiLeftovers::of(live, &[])));
        if task.is_reboot() && visits.reboot_method() == RebootMethod::Powercycle {
            warnings.push(
                "nodes are powercycled (`reboot = \"powercycle\"`): nothing is synchronized or unmounted before, so what was just \
                 installed may be lost; without `reboot` they are rebooted cleanly"
                    .to_owned(),
            );
        }
        warnings.extend(downtimes(live, visits));
    }
    warnings.extend(ignored_tags(&facts.cluster));
    warnings.extend(missing(&facts.cluster));
    let release = facts.live.as_ref().map(|live| live.release.as_str());
    warnings.extend(release.and_then(untested));
    warnings
}

/// How long moves are expected to take by the cluster's own jobs, if nothing else says it.
pub(super) fn of_jobs(facts: &ClusterFacts, goal: &MaintenanceGoal) -> Option<String> {
    let told = facts
        .jobs
        .times()
        .filter(|(kind, _)| !goal.durations.contains_key(*kind));
    let told: Vec<String> = told
        .map(|(kind, times)| {
            format!(
                "{kind} {} (median of {}; 90 % within {})",
                duration(times.median),
                match times.jobs {
                    1 => "1 job".to_owned(),
                    more => format!("{more} jobs"),
                },
                duration(times.ninth_decile)
            )
        })
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "moves are expected to take as long as the cluster's own jobs did: {}",
            told.join(", ")
        )
    })
}

/// How a node that is held comes back.
pub(super) fn of_hold(task: &Task) -> Option<String> {
    (*task == Task::Hold).then(|| {
        "each node stays empty until `stagger ganeti done NODE` says that its maintenance is done, from any machine with this \
         configuration; jobs of others do not wait"
            .to_owned()
    })
}

/// Which nodes carry notes of other runs: nothing of them is touched.
fn of_leftovers(left: &GanetiLeftovers) -> impl Iterator<Item = String> {
    left.visits.iter().map(|visit| {
        let since = visit
            .notes
            .since
            .map(|since| format!(", since {since}"))
            .unwrap_or_default();
        format!(
            "{} has notes of {}{since}: it is not touched; `stagger ganeti recover {}` cleans up",
            visit.node,
            visit.notes.owner_text(),
            visit.node
        )
    })
}

/// On which nodes memory or disk does not add up: less is free there than should be, and nothing else tells why a plan has no
/// room.
fn missing(cluster: &GanetiCluster) -> Option<String> {
    let missing = cluster.missing();
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|missing| {
            let amounts = [(missing.memory, 512, "memory"), (missing.disk, 1024, "disk")];
            let amounts: Vec<String> = amounts
                .into_iter()
                .filter(|(amount, bound, _)| amount > bound)
                .map(|(amount, _, what)| format!("{amount} MiB of {what}"))
                .collect();
            format!("{} ({})", missing.node, amounts.join(", "))
        })
        .collect();
    if named.is_empty() {
        return None;
    }
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "neither free nor in use, and so not counted on: {}{more}",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use stagger_ganeti::facts::notes::NodeNotes;
    use stagger_ganeti::facts::{GanetiFacts, NodeFacts, NodeRole};
    use stagger_ganeti::loaders::text;
    use stagger_ganeti::rapi::job_history::JobHistory;

    use super::*;

    /// A cluster of one node, with these tags on it.
    fn facts(release: &str, tags: &[&str]) -> ClusterFacts {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let node = NodeFacts {
            name: "node3".to_owned(),
            role: NodeRole::Drained,
            group: "g".to_owned(),
            vm_capable: true,
            notes: NodeNotes::read(&tags),
            boot: None,
        };
        let written =
            "default|g|preferred||\n\nnode3|16384|512|15872|102400|102400|4|N|g|1||N|0|1|1.0\n\n\n\n";
        ClusterFacts {
            at: Timestamp::UNIX_EPOCH,
            cluster: text::read(written).unwrap(),
            live: Some(GanetiFacts {
                at: Timestamp::UNIX_EPOCH,
                cluster: "lab".to_owned(),
                master: "node1".to_owned(),
                release: release.to_owned(),
                nodes: BTreeMap::from([("node3".to_owned(), node)]),
                instances: BTreeMap::new(),
                groups: BTreeMap::new(),
                candidates: None,
            }),
            jobs: JobHistory::default(),
        }
    }

    #[test]
    fn what_is_amiss_is_said_beside_a_plan() {
        let clean = Visits::default();
        let cycled = Visits {
            reboot: Some("powercycle".to_owned()),
            ..Visits::default()
        };
        let said = |facts: &ClusterFacts, visits: &Visits, task: &Task| {
            warnings(facts, Some(visits), task).join("\n")
        };
        let all_well = facts("3.0.2", &[]);
        assert_eq!(said(&all_well, &clean, &Task::Reboot), "");
        assert!(said(&all_well, &cycled, &Task::Reboot).contains("nodes are powercycled"));
        assert_eq!(said(&all_well, &cycled, &Task::Hold), "", "nothing is rebooted");
        let noted = facts(
            "3.1.0~rc2",
            &["stagger:away:2f3c@run-7", "stagger:run:run-7@1795219724"],
        );
        let words = said(&noted, &clean, &Task::Reboot);
        assert!(
            words.contains("node3 has notes of run run-7, since 2026-")
                && words.ends_with("it is not touched; `stagger ganeti recover node3` cleans up"),
            "{words}"
        );
        let unknown = said(&facts("3.2.0", &[]), &clean, &Task::Reboot);
        assert!(unknown.starts_with("Ganeti 3.2.0 is not tested"), "{unknown}");
    }
}
