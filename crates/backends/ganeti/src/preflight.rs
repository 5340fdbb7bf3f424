//! Checks before a run of this Ganeti starts.

mod nodes;

use std::collections::BTreeMap;

use stagger_core::model::UnitId;
use stagger_core::run::Answer;
use stagger_engine::preflight::{Check, CheckOutcome, HostChecks, Template, ask_hosts};
use stagger_engine::template::filled;

use crate::commands;
use crate::config::{GanetiSettings, RapiConfig, RebootMethod, Visits, Watcher};
use crate::facts::{GanetiFacts, NodeRole};
use crate::rapi::client::{HttpMethod, Rapi};

/// What commands for a node are filled in with: `{node}`.
pub const OF_NODES: &[&str] = &["node", "master", "reason"];
const OF_MASTERS: &[&str] = &["successor", "master", "reason"];
/// `state` is filled in before any other word, by who knows the folder of journals.
const OF_JOURNALS: &[&str] = &["successor", "master", "reason", "state"];
const OF_MOVES: &[&str] = &["instance", "node", "reason", "master"];
const OF_PAUSES: &[&str] = &["seconds", "master", "reason"];
const OF_THE_MASTER: &[&str] = &["master", "reason"];

/// What each word is filled with, where only the shell's reading of a command is asked.
const SAMPLES: [(&str, &str); 6] = [
    ("node", "node1"),
    ("master", "node1"),
    ("successor", "node2"),
    ("instance", "instance1"),
    ("reason", "stagger"),
    ("seconds", "60"),
];

/// As [`CLEAN_REBOOT`](crate::config::CLEAN_REBOOT) gets to the master.
const REACHES: &str = "ssh -oBatchMode=yes -oConnectTimeout=10 root@{master} true";

/// As it gets from there to a node. How that ended is only in what it prints.
const REACHES_NODE: &str = "said=$(timeout 60 ssh -oBatchMode=yes -oConnectTimeout=10 root@{master} gnt-cluster command -n {node} true 2>&1); \
case \"$said\" in *'return code = 0'*) exit 0;; esac; printf '%s\\n' \"$said\" | grep -v '^-*$' | tr '\\n' ' '; exit 1";

/// What says how nodes are rebooted.
const REBOOT: &str = "[cluster.visits] reboot";

/// As RAPI's documentation has it: the tag is looked at, and not set.
const DRY_RUN: &str = "/2/tags?dry-run=1&tag=stagger:preflight";

/// Every command of the configuration.
pub fn templates(config: &RapiConfig) -> Vec<Template> {
    let visits = &config.visits;
    let of_watcher = |pick: fn(&Watcher) -> &String| visits.watcher.as_ref().map(pick);
    let reboot = match visits.reboot_method() {
        RebootMethod::Command(command) => Some(command.to_owned()),
        RebootMethod::Powercycle => None,
    };
    let all = [
        ("reboot", reboot.as_ref(), OF_NODES),
        ("failover", visits.failover.as_ref(), OF_MASTERS),
        ("copy_journal", visits.copy_journal.as_ref(), OF_JOURNALS),
        ("relocate", visits.relocate.as_ref(), OF_MOVES),
        ("hooks.may_stop", visits.hooks.may_stop.as_ref(), OF_NODES),
        ("hooks.enter", visits.hooks.enter.as_ref(), OF_NODES),
        ("hooks.leave", visits.hooks.leave.as_ref(), OF_NODES),
        ("watcher.pause", of_watcher(|watcher| &watcher.pause), OF_PAUSES),
        (
            "watcher.continue",
            of_watcher(|watcher| &watcher.resume),
            OF_THE_MASTER,
        ),
        ("watcher.info", of_watcher(|watcher| &watcher.info), OF_THE_MASTER),
    ];
    let given = all.into_iter().filter_map(|(key, command, known)| {
        Some(Template {
            key: format!("[cluster.visits] {key}"),
            command: command?.clone(),
            known,
        })
    });
    given.collect()
}

/// Why Ganeti takes no jobs, where its queue is drained: `gnt-cluster upgrade` does that before it changes the release. Whatever
/// else is wrong, who runs is told of it there.
pub async fn drained(rapi: &Rapi) -> Option<String> {
    let said = rapi
        .write(HttpMethod::Put, DRY_RUN, None)
        .await
        .err()?
        .queue_is_closed()?;
    Some(format!(
        "its job queue is drained or full (RAPI answered {said}): `gnt-cluster upgrade` drains it while it brings the cluster to \
         another release, and `gnt-cluster queue drain` does"
    ))
}

/// Whether the user may write, and whether commands can be run on this machine and reach the nodes. Ganeti is given a job that
/// changes nothing.
pub async fn check(settings: &GanetiSettings, rapi: &Rapi, facts: &GanetiFacts) -> Vec<Check> {
    let mut checks = Vec::new();
    let user = "[cluster] user";
    checks.push(match &settings.cluster.user {
        None => Check::failed(user, "it is not set, and without it RAPI permits no writes")
            .hint("a user of ganeti-rapi's file with `write`, and its password in `password_file`"),
        Some(name) => match rapi.write(HttpMethod::Put, DRY_RUN, None).await {
            Ok(_) => Check::passed(user, format!("{name} may write")),
            Err(error) => Check::unreachable(user, error.of(format!("write as {name}"), false)),
        },
    });
    let visits = &settings.cluster.visits;
    let templates = templates(&settings.cluster);
    let mut asked = HostChecks::default();
    for template in &templates {
        checks.extend(may_wait(template, visits));
        match filled(&template.command, &SAMPLES) {
            Ok(line) => asked.add(template.key.clone(), line),
            Err(error) => checks.push(Check::failed(&template.key, error.to_string())),
        }
    }
    // Commands run on this machine: its shell is asked, whatever name is said.
    let asked = BTreeMap::from([("this machine".to_owned(), asked)]);
    checks.extend(ask_hosts(&settings.hosts, asked).await);
    checks.extend(nodes::look(&templates, &SAMPLES, visits, facts).await);
    if visits.reboot.is_none() {
        let reached = reaches_the_master(settings, rapi).await;
        let goes_on = reached.outcome == CheckOutcome::Passed;
        checks.push(reached);
        if goes_on {
            checks.extend(master_reaches_nodes(settings, rapi, facts).await);
        }
    }
    checks
}

/// Commands of Ganeti whose jobs a drain keeps waiting, so that a command that does not say why it makes them never ends.
const MAKE_JOBS: [&str; 3] = ["gnt-instance", "gnt-node", "gnt-group"];

/// Warns of a command that makes a job and does not give it the reason that passes.
fn may_wait(template: &Template, visits: &Visits) -> Option<Check> {
    let makes_jobs = MAKE_JOBS.iter().any(|program| template.command.contains(program));
    let waits = visits.drain && makes_jobs && !template.command.contains("{reason}");
    waits.then(|| {
        let found = "its job may wait behind stagger's own drain until the command is cut off";
        Check::warning(&template.key, found).hint("add --reason={reason} to it")
    })
}

/// By default nodes are rebooted through the master: whether this machine gets in there should not be found out once a node is empty.
pub async fn reaches_the_master(settings: &GanetiSettings, rapi: &Rapi) -> Check {
    let failed = |why: String| {
        Check::failed(REBOOT, why).hint(format!(
            "nodes are rebooted from the master, by ssh as root: `{REACHES}` has to end with 0; or give a command of your own, or \
             `reboot = \"powercycle\"`"
        ))
    };
    match commands::ask(rapi, settings, REACHES, &[]).await {
        Ok(answer) => match why_not(answer) {
            None => Check::passed(REBOOT, "the master is reached by ssh"),
            Some(why) => failed(why),
        },
        Err(error) => Check::unreachable(REBOOT, error),
    }
}

/// By default a node is rebooted by the master: whether it gets there should not be found out once the node is empty either.
async fn master_reaches_nodes(settings: &GanetiSettings, rapi: &Rapi, facts: &GanetiFacts) -> Vec<Check> {
    let visited = facts.nodes.values().filter(|node| node.role != NodeRole::Offline);
    let nodes: Vec<UnitId> = visited.filter_map(|node| UnitId::new(&node.name).ok()).collect();
    let count = nodes.len();
    let mut answers = commands::ask_each(rapi, settings, REACHES_NODE, nodes).await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    let silent = answers.into_iter().filter_map(|(node, answer)| {
        let why = match answer {
            Ok(answer) => why_not(answer)?,
            Err(error) => error.why,
        };
        let found = format!("the master does not reach it by ssh: {why}");
        let hint =
            format!("on the master `gnt-cluster command -n {node} true` has to print `return code = 0`");
        Some(Check::failed(node.as_str(), found).hint(hint))
    });
    let silent: Vec<Check> = silent.collect();
    if silent.is_empty() {
        return vec![Check::passed(
            REBOOT,
            format!("the master reaches {count} nodes by ssh"),
        )];
    }
    silent
}

/// Why an answer is not yes.
fn why_not(answer: Answer) -> Option<String> {
    match answer {
        Answer::Yes => None,
        Answer::No { why } | Answer::Unknown { why } => Some(why),
        Answer::NoOracle | Answer::Overridden { .. } => Some("no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `gnt-cluster command` ends with 0 whatever became of it on the node.
    #[test]
    fn a_node_is_reached_only_where_it_took_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let ssh = folder.path().join("ssh");
        let tried = |prints: &str| {
            std::fs::write(&ssh, format!("#!/bin/sh\ncat <<'EOF'\n{prints}\nEOF\n")).unwrap();
            std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let command = filled(REACHES_NODE, &[("master", "n1"), ("node", "n2")]).unwrap();
            let ran = std::process::Command::new("sh")
                .args(["-c", &command])
                .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
                .output()
                .unwrap();
            (ran.status.code().unwrap(), String::from_utf8(ran.stdout).unwrap())
        };
        assert_eq!(tried("-----\nnode: n2\n\nreturn code = 0"), (0, String::new()));
        let refused =
            "-----\nnode: n2\nssh: connect to host n2 port 22: No route to host\n\nreturn code = 255";
        let said = "node: n2 ssh: connect to host n2 port 22: No route to host return code = 255 ";
        assert_eq!(tried(refused), (1, said.to_owned()));
        assert_eq!(tried("").0, 1, "nothing was said");
    }

    #[test]
    fn a_command_whose_job_would_wait_is_named() {
        let of = |command: &str| Template {
            key: "[cluster.visits.hooks] enter".to_owned(),
            command: command.to_owned(),
            known: OF_NODES,
        };
        let drains = Visits::default();
        let moves = of("ssh root@{master} gnt-instance migrate -f web");
        assert!(may_wait(&moves, &drains).is_some());
        for passes in [
            "gnt-instance migrate --reason={reason} -f web",
            "ssh root@{node} reboot",
        ] {
            assert_eq!(may_wait(&of(passes), &drains), None, "{passes}");
        }
        let none = Visits {
            drain: false,
            ..drains
        };
        assert_eq!(may_wait(&moves, &none), None);
    }
}
