//! Checks before a run of this Ganeti starts.

use std::collections::BTreeMap;

use stagger_core::run::Answer;
use stagger_engine::preflight::{Check, HostChecks, Template, ask_hosts};
use stagger_engine::template::filled;

use crate::commands;
use crate::config::{GanetiSettings, RapiConfig, RebootMethod, Visits, Watcher};
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

/// Whether the user may write, and whether commands can be run on this machine. Ganeti is given a job that changes nothing.
pub async fn check(settings: &GanetiSettings, rapi: &Rapi) -> Vec<Check> {
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
    let mut asked = HostChecks::default();
    for template in templates(&settings.cluster) {
        checks.extend(may_wait(&template, &settings.cluster.visits));
        match filled(&template.command, &SAMPLES) {
            Ok(line) => asked.add(template.key, line),
            Err(error) => checks.push(Check::failed(template.key, error.to_string())),
        }
    }
    // Commands run on this machine: its shell is asked, whatever name is said.
    let asked = BTreeMap::from([("this machine".to_owned(), asked)]);
    checks.extend(ask_hosts(&settings.hosts, asked).await);
    if settings.cluster.visits.reboot.is_none() {
        checks.push(reaches_the_master(settings, rapi).await);
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
    const SUBJECT: &str = "[cluster.visits] reboot";
    let failed = |why: String| {
        Check::failed(SUBJECT, why).hint(format!(
            "nodes are rebooted from the master, by ssh as root: `{REACHES}` has to end with 0; or give a command of your own, or \
             `reboot = \"powercycle\"`"
        ))
    };
    match commands::ask(rapi, settings, REACHES, &[]).await {
        Ok(Answer::Yes) => Check::passed(SUBJECT, "the master is reached by ssh"),
        Ok(Answer::No { why } | Answer::Unknown { why }) => failed(why),
        Ok(Answer::NoOracle | Answer::Overridden { .. }) => failed("no answer".to_owned()),
        Err(error) => Check::unreachable(SUBJECT, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
