//! Queries to the hosts of a Ceph cluster before a reboot is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use stagger_ceph::config::CephSettings;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::memory::CephMemory;
use stagger_ceph::reboot::{self, CephRebootGoal, HostTask};
use stagger_core::model::{ClusterName, Fact, Kind, Snapshot};
use stagger_core::run::Event;
use stagger_engine::database::StoreLocation;

use crate::args::{self, Select};
use crate::error::CliError;
use crate::exit::Exit;

/// The hosts that may be meant: those that are named, or all that carry a daemon.
pub(super) fn candidate_hosts(
    facts: &CephFacts,
    daemons: &Snapshot,
    select: &Select,
) -> Result<BTreeSet<String>, CliError> {
    let all = reboot::names(facts, daemons);
    let named = select.hosts();
    if let Some(unknown) = named.iter().find(|host| !all.contains(*host)) {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        return Err(
            CliError::usage(format!("no daemon of the cluster is on a host {unknown}"))
                .hint(format!("there are: {}", all.join(", "))),
        );
    }
    if named.is_empty() {
        return Ok(all);
    }
    Ok(named.iter().cloned().collect())
}

/// Those of the hosts that carry a daemon of these kinds; no kinds: all of them.
pub(super) fn with_daemons(
    facts: &CephFacts,
    daemons: &Snapshot,
    mut hosts: BTreeSet<String>,
    kinds: &[Kind],
) -> Result<BTreeSet<String>, CliError> {
    if kinds.is_empty() {
        return Ok(hosts);
    }
    let there: BTreeSet<&str> = daemons.units().iter().map(|unit| unit.kind.as_str()).collect();
    if let Some(unknown) = kinds.iter().find(|kind| !there.contains(kind.as_str())) {
        let there: Vec<&str> = there.into_iter().collect();
        return Err(
            CliError::usage(format!("the cluster has no daemon of kind {unknown}"))
                .hint(format!("it has: {}", there.join(", "))),
        );
    }
    let carry = reboot::with_daemons(facts, daemons, kinds);
    hosts.retain(|host| carry.contains(host));
    if hosts.is_empty() {
        let kinds: Vec<&str> = kinds.iter().map(Kind::as_str).collect();
        let why = format!(
            "none of the selected hosts has a daemon of kind {}",
            kinds.join(", ")
        );
        return Err(CliError::new(Exit::No, why));
    }
    Ok(hosts)
}

/// How a cluster's hosts are reached, and where journals of earlier runs are.
pub(super) struct HostAccess<'a> {
    pub(super) settings: &'a CephSettings,
    /// `None`: there is no place for any.
    pub(super) journals: Option<&'a StoreLocation>,
}

/// The goal with what these hosts answer. `reached`: `None`, where the cluster was recorded.
pub(super) async fn ask(
    reached: Option<HostAccess<'_>>,
    asked: &args::RebootArgs,
    mut hosts: BTreeSet<String>,
) -> Result<CephRebootGoal, CliError> {
    let is_narrowed = asked.needs_reboot.is_some() || asked.since.is_some() || asked.up_for.is_some();
    let Some(HostAccess { settings, journals }) = reached else {
        if is_narrowed {
            return Err(CliError::usage(
                "--needs-reboot, --up-for and --since need hosts that answer; this cluster is a recorded one",
            )
            .hint("leave out --from, or name the hosts with --host"));
        }
        return Ok(CephRebootGoal::default());
    };
    let nobody = |hosts: &BTreeSet<String>, why: String| {
        let is_empty = hosts.is_empty();
        is_empty.then(|| CliError::new(Exit::No, why)).map_or(Ok(()), Err)
    };
    if let Some(since) = asked.since {
        let boots = reboot::host_queries::boots(settings, hosts.clone()).await;
        let journals = journals.ok_or_else(|| {
            CliError::usage("--since reads journals of earlier runs, and there is no place for journals")
                .hint("--state names a folder")
        })?;
        let before = boots_before(journals, &settings.cluster.name, since).await?;
        hosts.retain(|host| !has_booted(host, &before, &boots));
        nobody(
            &hosts,
            format!("every selected host has booted since the runs that started at {since} or later"),
        )?;
    }
    if let Some(least) = asked.up_for {
        let uptimes = reboot::host_queries::uptimes(settings, hosts.clone()).await;
        let is_old = |uptime: &Duration| uptime.as_secs() >= least.0;
        hosts = hosts_with_answer(hosts, &uptimes, is_old, |host, why| {
            CliError::new(
                Exit::Unreachable,
                format!("for how long {host} has been up could not be found out: {why}"),
            )
            .hint("[reboot] uptime is the command that prints it, in seconds; --host plans for hosts by their names")
        })?;
        nobody(
            &hosts,
            format!("none of the selected hosts has been up for {least} or longer"),
        )?;
    }
    if let Some(command) = &asked.needs_reboot {
        let answers = if command.is_empty() {
            reboot::host_queries::reboots_needed(settings, hosts.clone()).await
        } else {
            by_command(settings, command, hosts.clone()).await?
        };
        hosts = hosts_with_answer(hosts, &answers, |needs| *needs, unknown)?;
        nobody(&hosts, "none of the selected hosts needs a reboot".to_owned())?;
    }
    Ok(CephRebootGoal {
        boots: Some(reboot::host_queries::boots(settings, hosts.clone()).await),
        only: is_narrowed.then_some(hosts),
        task: HostTask::default(),
    })
}

/// Those of the hosts whose answer is of the right sort. One that did not answer is an error.
fn hosts_with_answer<T>(
    hosts: BTreeSet<String>,
    answers: &BTreeMap<String, Fact<T>>,
    is_meant: impl Fn(&T) -> bool,
    silent: impl Fn(&str, &str) -> CliError,
) -> Result<BTreeSet<String>, CliError> {
    let mut meant = BTreeSet::new();
    for host in hosts {
        match answers.get(&host) {
            Some(Fact::Yes(answer)) if is_meant(answer) => {
                meant.insert(host);
            }
            Some(Fact::Yes(_)) => {}
            Some(Fact::No(why)) => return Err(silent(&host, why)),
            None => return Err(silent(&host, "it has not answered")),
        }
    }
    Ok(meant)
}

/// The boot of each host before runs of that cluster that began then or later: each run keeps what hosts had booted before it.
async fn boots_before(
    journals: &StoreLocation,
    cluster: &ClusterName,
    since: Timestamp,
) -> Result<BTreeSet<(String, String)>, CliError> {
    let mut before = BTreeSet::new();
    if !journals.exists() {
        return Ok(before);
    }
    let store = journals.open().await?;
    for listed in store.runs().await? {
        if listed.cluster != *cluster || listed.started < since {
            continue;
        }
        let journal = store.journal(&listed.run).await?;
        let Some(Event::Started(start)) = journal.first().map(|entry| &entry.event) else {
            continue;
        };
        if let Ok(memory) = serde_json::from_value::<CephMemory>(start.baseline.clone()) {
            before.extend(memory.reboot.into_iter().flat_map(|reboot| reboot.boots));
        }
    }
    Ok(before)
}

/// Whether a host has another boot now than it had before one of those runs. Of one that does not answer nobody can tell.
fn has_booted(
    host: &str,
    before: &BTreeSet<(String, String)>,
    boots: &BTreeMap<String, Fact<String>>,
) -> bool {
    let Some(now) = boots.get(host).and_then(Fact::get) else {
        return false;
    };
    before.iter().any(|(known, boot)| known == host && boot != now)
}

async fn by_command(
    settings: &CephSettings,
    command: &str,
    hosts: BTreeSet<String>,
) -> Result<BTreeMap<String, Fact<bool>>, CliError> {
    let shell = &settings.hosts;
    if shell.shell.is_empty() && !command.contains("{host}") {
        return Err(CliError::usage(
            "--needs-reboot would ask this machine for every host: there is no [hosts] shell",
        )
        .hint("name {host} in the command: --needs-reboot 'ssh {host} test -e /var/run/reboot-required'"));
    }
    Ok(reboot::host_queries::reboots_needed_by(shell, command, hosts).await)
}

fn unknown(host: &str, why: &str) -> CliError {
    CliError::new(
        Exit::Unreachable,
        format!("whether {host} needs a reboot could not be found out: {why}"),
    )
    .hint("the command exits with 0 if it does and with 1 if it does not; --host plans for hosts by their names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_booted_that_has_another_boot_than_before_a_run_of_the_campaign() {
        let before: BTreeSet<(String, String)> = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]
            .map(|(host, boot)| (host.to_owned(), boot.to_owned()))
            .into();
        let boots: BTreeMap<String, Fact<String>> = [
            ("a", Fact::Yes("2")),
            ("b", Fact::Yes("1")),
            ("c", Fact::No("no route".to_owned())),
            ("d", Fact::Yes("1")),
        ]
        .map(|(host, boot)| match boot {
            Fact::Yes(boot) => (host.to_owned(), Fact::Yes(boot.to_owned())),
            Fact::No(why) => (host.to_owned(), Fact::No(why)),
        })
        .into();
        let booted = |host: &&str| has_booted(host, &before, &boots);
        let all = ["a", "b", "c", "d", "e"];
        assert_eq!(all.iter().filter(|host| booted(host)).collect::<Vec<_>>(), [&"a"]);
    }
}
