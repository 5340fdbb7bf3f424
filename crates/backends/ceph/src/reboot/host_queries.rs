//! Read-only queries to hosts, many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stagger_core::model::{Fact, check_plain};
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::{Hosts, Ran, last_words};
use stagger_engine::template::filled;
use tokio::task::JoinSet;

use crate::config::{CephSettings, Reboot};

/// How many hosts are asked at once: each may be a session of ssh.
const AT_ONCE: usize = 32;

/// How long a host may take to tell its boot: a connection to one that is off takes minutes to fail.
const TELLS: Duration = Duration::from_secs(30);

/// How long it may take to tell whether it needs a reboot: package managers look through what is installed.
pub(crate) const LOOKS: Duration = Duration::from_mins(2);

/// The longest boot id. The kernel's has 36 characters.
const LONGEST: usize = 64;

/// The boot id of each of these hosts, or why nobody could tell.
pub async fn boots(settings: &CephSettings, hosts: BTreeSet<String>) -> BTreeMap<String, Fact<String>> {
    let CephSettings {
        hosts: shell, reboot, ..
    } = settings;
    let mut found = BTreeMap::new();
    for (host, answer) in ask(shell, &reboot.boot_id(shell), hosts, TELLS).await {
        let boot = match answer.and_then(|ran| boot_of(&ran)) {
            Ok(boot) => Fact::Yes(boot),
            Err(why) => Fact::No(why),
        };
        found.insert(host, boot);
    }
    found
}

/// The boot id of a host.
///
/// # Errors
/// It cannot be reached, or tells none.
pub(crate) async fn boot(shell: &Hosts, reboot: &Reboot, host: &str) -> Result<String, BackendError> {
    let tried = format!("read the boot id of {host}");
    let command = filled(&reboot.boot_id(shell), &[("host", host)])?;
    let ran = run_with_limit(shell, host, &command, TELLS).await?;
    boot_of(&ran).map_err(|why| BackendError::transient(tried, why))
}

fn boot_of(ran: &Ran) -> Result<String, String> {
    let said = last_words(&ran.output);
    if ran.code != 0 {
        return Err(format!("the command for it ended with {}: {said}", ran.code));
    }
    // What a connection prints before is passed over.
    match check_plain(said) {
        Ok(()) if !ran.output.trim().is_empty() && said.len() <= LONGEST => Ok(said.to_owned()),
        Ok(()) | Err(_) => Err(format!("{said:?} is no boot id")),
    }
}

/// Whether each of these hosts needs a reboot, or why nobody could tell.
pub async fn reboots_needed(
    settings: &CephSettings,
    hosts: BTreeSet<String>,
) -> BTreeMap<String, Fact<bool>> {
    let CephSettings {
        hosts: shell, reboot, ..
    } = settings;
    reboots_needed_by(shell, &reboot.reboot_check_command(shell), hosts).await
}

/// The same by a command of the moment, in which `{host}` is replaced.
pub async fn reboots_needed_by(
    shell: &Hosts,
    command: &str,
    hosts: BTreeSet<String>,
) -> BTreeMap<String, Fact<bool>> {
    let mut found = BTreeMap::new();
    for (host, answer) in ask(shell, command, hosts, LOOKS).await {
        let needs = match answer {
            Ok(Ran { code: 0, .. }) => Fact::Yes(true),
            Ok(Ran { code: 1, .. }) => Fact::Yes(false),
            Ok(Ran { code, output }) => {
                Fact::No(format!("the command ended with {code}: {}", last_words(&output)))
            }
            Err(why) => Fact::No(why),
        };
        found.insert(host, needs);
    }
    found
}

/// Which of these hosts are not as they are wanted after their reboot, or do not say.
pub(crate) async fn hosts_failing_check(
    settings: &CephSettings,
    hosts: BTreeSet<String>,
) -> BTreeSet<String> {
    let CephSettings {
        hosts: shell, reboot, ..
    } = settings;
    let Some(command) = reboot.after.as_ref().filter(|_| !hosts.is_empty()) else {
        return BTreeSet::new();
    };
    let answers = ask(shell, command, hosts, LOOKS).await.into_iter();
    answers
        .filter(|(_, answer)| !answer.as_ref().is_ok_and(|ran| ran.code == 0))
        .map(|(host, _)| host)
        .collect()
}

/// For how long each of these hosts has been up, or why nobody could tell.
pub async fn uptimes(settings: &CephSettings, hosts: BTreeSet<String>) -> BTreeMap<String, Fact<Duration>> {
    let CephSettings {
        hosts: shell, reboot, ..
    } = settings;
    let mut found = BTreeMap::new();
    for (host, answer) in ask(shell, &reboot.uptime(shell), hosts, TELLS).await {
        let uptime = match answer.and_then(|ran| uptime_of(&ran)) {
            Ok(uptime) => Fact::Yes(uptime),
            Err(why) => Fact::No(why),
        };
        found.insert(host, uptime);
    }
    found
}

fn uptime_of(ran: &Ran) -> Result<Duration, String> {
    let said = last_words(&ran.output);
    if ran.code != 0 {
        return Err(format!("the command for it ended with {}: {said}", ran.code));
    }
    let first = said.split_whitespace().next().unwrap_or_default();
    let seconds = first.parse::<f64>().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{said:?} does not start with seconds"))
}

/// Asks a host, and waits no longer than that.
pub(super) async fn run_with_limit(
    shell: &Hosts,
    host: &str,
    command: &str,
    limit: Duration,
) -> Result<Ran, BackendError> {
    match tokio::time::timeout(limit, shell.ask(host, command)).await {
        Ok(answer) => answer,
        Err(_) => Err(BackendError::transient(
            format!("ask {host} `{command}`"),
            format!("no answer within {} s", limit.as_secs()),
        )),
    }
}

/// Asks each host the same.
async fn ask(
    shell: &Hosts,
    command: &str,
    hosts: BTreeSet<String>,
    limit: Duration,
) -> BTreeMap<String, Result<Ran, String>> {
    ask_some_at_once(shell, command, hosts, limit, AT_ONCE).await
}

/// The same, of so many hosts at once.
pub(crate) async fn ask_some_at_once(
    shell: &Hosts,
    command: &str,
    hosts: BTreeSet<String>,
    limit: Duration,
    at_once: usize,
) -> BTreeMap<String, Result<Ran, String>> {
    let mut waiting = hosts.into_iter();
    let mut asking = JoinSet::new();
    let mut found = BTreeMap::new();
    loop {
        while asking.len() < at_once
            && let Some(host) = waiting.next()
        {
            match filled(command, &[("host", &host)]) {
                Err(error) => {
                    found.insert(host, Err(error.to_string()));
                }
                Ok(command) => {
                    let shell = shell.clone();
                    asking.spawn(async move {
                        let answer = run_with_limit(&shell, &host, &command, limit).await;
                        (host, answer.map_err(|error| error.to_string()))
                    });
                }
            }
        }
        match asking.join_next().await {
            None => return found,
            Some(Ok((host, answer))) => {
                found.insert(host, answer);
            }
            Some(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // Nobody heard of that host: it is missing in the answer.
            Some(Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, output: &str) -> Ran {
        Ran {
            code,
            output: output.to_owned(),
        }
    }

    /// Each counts those that are at work while it is.
    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_hosts_are_asked_at_once_than_that() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let command = format!("mkdir {at}/{{host}} && ls {at} | wc -l && rmdir {at}/{{host}}");
        let hosts: BTreeSet<String> = (0..16).map(|number| format!("h{number}")).collect();
        let answers = ask_some_at_once(&Hosts::default(), &command, hosts.clone(), LOOKS, 2).await;
        assert_eq!(answers.keys().cloned().collect::<BTreeSet<_>>(), hosts);
        for (host, answer) in answers {
            let ran = answer.unwrap();
            let count: usize = ran.output.trim().parse().unwrap();
            assert!(ran.code == 0 && (1..=2).contains(&count), "{host}: {ran:?}");
        }
    }

    #[test]
    fn an_uptime_is_the_first_word_in_seconds() {
        assert_eq!(
            uptime_of(&ran(0, "Welcome!\n93784.22 180000.11\n")),
            Ok(Duration::from_millis(93_784_220))
        );
        assert_eq!(uptime_of(&ran(0, "61")), Ok(Duration::from_secs(61)));
        for (code, output) in [(0, ""), (0, "up 3 days"), (0, "-1"), (0, "NaN"), (1, "60")] {
            assert!(uptime_of(&ran(code, output)).is_err(), "{code} {output:?}");
        }
    }

    #[test]
    fn a_boot_id_is_the_last_word_that_a_host_prints() {
        let boot = "7b2c0a52-4f0e-4d4b-9d55-0d3a8f1f3a11";
        assert_eq!(
            boot_of(&ran(0, &format!("Welcome!\n{boot}\n"))),
            Ok(boot.to_owned())
        );
        for (code, output) in [(0, ""), (0, "no such file or directory"), (1, boot), (255, "")] {
            assert!(boot_of(&ran(code, output)).is_err(), "{code} {output:?}");
        }
    }
}
