//! What the hosts of a Ceph are asked before a reboot of them is planned.

use std::collections::{BTreeMap, BTreeSet};

use stagger_ceph::config::CephSettings;
use stagger_ceph::facts::{Facts, Known};
use stagger_ceph::reboot::{self, RebootGoal};
use stagger_core::model::Snapshot;

use crate::args::{self, Select};
use crate::error::CliError;
use crate::exit::Exit;

/// The hosts that may be meant: those that are named, or all that carry a daemon.
pub(super) fn meant(
    facts: &Facts,
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

/// The goal with what these hosts answer. `settings`: how they are reached; `None`: the cluster was recorded.
pub(super) async fn ask(
    settings: Option<&CephSettings>,
    asked: &args::Reboot,
    hosts: BTreeSet<String>,
) -> Result<RebootGoal, CliError> {
    let Some(settings) = settings else {
        if asked.needs_reboot.is_some() {
            return Err(CliError::usage(
                "--needs-reboot asks hosts that answer, and this cluster was recorded",
            )
            .hint("leave out --from, or name the hosts with --host"));
        }
        return Ok(RebootGoal::default());
    };
    let Some(command) = &asked.needs_reboot else {
        return Ok(RebootGoal {
            only: None,
            boots: Some(reboot::ask::boots(settings, hosts).await),
        });
    };
    let answers = if command.is_empty() {
        reboot::ask::needed(settings, hosts.clone()).await
    } else {
        by_command(settings, command, hosts.clone()).await?
    };
    let mut only = BTreeSet::new();
    for host in hosts {
        match answers.get(&host) {
            Some(Known::Yes(true)) => {
                only.insert(host);
            }
            Some(Known::Yes(false)) => {}
            Some(Known::No(why)) => return Err(unknown(&host, why)),
            None => return Err(unknown(&host, "it was not heard of")),
        }
    }
    if only.is_empty() {
        return Err(CliError::new(
            Exit::No,
            "none of the selected hosts needs a reboot",
        ));
    }
    Ok(RebootGoal {
        boots: Some(reboot::ask::boots(settings, only.clone()).await),
        only: Some(only),
    })
}

async fn by_command(
    settings: &CephSettings,
    command: &str,
    hosts: BTreeSet<String>,
) -> Result<BTreeMap<String, Known<bool>>, CliError> {
    let shell = &settings.hosts;
    if shell.shell.is_empty() && !command.contains("{host}") {
        return Err(CliError::usage(
            "--needs-reboot would ask this machine for every host: there is no [hosts] shell",
        )
        .hint("name {host} in the command: --needs-reboot 'ssh {host} test -e /var/run/reboot-required'"));
    }
    Ok(reboot::ask::needed_by(shell, command, hosts).await)
}

fn unknown(host: &str, why: &str) -> CliError {
    CliError::new(
        Exit::Unreachable,
        format!("whether {host} needs a reboot could not be found out: {why}"),
    )
    .hint("the command exits with 0 if it does and with 1 if it does not; --host plans for hosts by their names")
}
