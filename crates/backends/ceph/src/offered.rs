//! Which versions of Ceph hosts can install, by what their repositories list.

use std::collections::{BTreeMap, BTreeSet};

use stagger_engine::hosts::Ran;
use stagger_engine::preflight::Check;
use stagger_engine::template::filled;

use crate::config::CephSettings;
use crate::effects::kind_and_id;
use crate::facts::CephFacts;
use crate::facts::release::{Version, major, name};
use crate::memory::hosts_of;
use crate::reboot::host_queries::{LOOKS, ask_some_at_once};
use stagger_core::model::Fact;

/// How many hosts are asked at once: the command may fetch the lists of packages anew, and all hosts have the same mirror.
const AT_ONCE: usize = 8;

/// What each host can install: the versions that all of its commands list, or why they are not known.
pub type Offered = BTreeMap<String, Fact<BTreeSet<Version>>>;

/// Asks each host by `[software] versions`; empty where no such command is given.
pub async fn offered_versions(settings: &CephSettings, facts: &CephFacts) -> Offered {
    // One question for all kinds whose command is the same.
    let mut questions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut offered = Offered::new();
    for (unit, host) in hosts_of(facts) {
        let (kind, _) = kind_and_id(&unit);
        let Some(template) = settings.software.of(kind).versions else {
            continue;
        };
        match filled(&template, &[("kind", kind)]) {
            Ok(line) => {
                questions.entry(line).or_default().insert(host);
            }
            Err(error) => {
                offered.insert(host, Fact::No(error.to_string()));
            }
        }
    }
    for (line, hosts) in questions {
        for (host, answer) in ask_some_at_once(&settings.hosts, &line, hosts, LOOKS, AT_ONCE).await {
            let listed = answer.and_then(|ran| listed(&line, &ran));
            let both = match (offered.remove(&host), listed) {
                (Some(Fact::No(why)), _) | (_, Err(why)) => Fact::No(why),
                (None, Ok(listed)) => Fact::Yes(listed),
                (Some(Fact::Yes(before)), Ok(listed)) => {
                    Fact::Yes(before.intersection(&listed).cloned().collect())
                }
            };
            offered.insert(host, both);
        }
    }
    offered
}

/// The versions in what a package manager printed: words of three numbers, with or without an epoch before them.
fn listed(command: &str, ran: &Ran) -> Result<BTreeSet<Version>, String> {
    if ran.code != 0 {
        return Err(format!(
            "`{command}` ended with {}: {:.200}",
            ran.code, ran.output
        ));
    }
    let words = ran.output.split(|c: char| c.is_whitespace() || c == '|');
    let version = |word: &str| Version::parse(word.split_once(':').map_or(word, |(_, after)| after));
    Ok(words.filter_map(version).collect())
}

/// Whether a host that lists `listed` can install `wanted`: the same three numbers, and what vendors put behind them if that is
/// asked for.
fn has(listed: &BTreeSet<Version>, wanted: &Version) -> bool {
    let numbers = |version: &Version| (version.major, version.minor, version.patch);
    listed
        .iter()
        .any(|listed| numbers(listed) == numbers(wanted) && listed.rest.starts_with(&wanted.rest))
}

/// Whether every host can install that release.
pub fn check(offered: &Offered, release: &str) -> Vec<Check> {
    let Some(wanted) = Version::parse(release.strip_prefix('v').unwrap_or(release)) else {
        return Vec::new();
    };
    let mut checks = Vec::new();
    for (host, listed) in offered {
        match listed {
            Fact::Yes(listed) if has(listed, &wanted) => {}
            Fact::Yes(listed) => {
                let newest: Vec<String> = listed.iter().rev().take(3).map(ToString::to_string).collect();
                let there = if newest.is_empty() {
                    "they list no version at all".to_owned()
                } else {
                    format!("the newest are {}", newest.join(", "))
                };
                checks.push(
                    Check::failed(host, format!("its repositories do not have {wanted}: {there}"))
                        .hint("[software] `versions` is the command that lists them"),
                );
            }
            Fact::No(why) => checks.push(Check::warning(
                host,
                format!("its repositories could not be read: {why}"),
            )),
        }
    }
    if checks.is_empty() && !offered.is_empty() {
        checks.push(Check::passed(
            "repositories",
            format!("{wanted} can be installed on {} hosts", offered.len()),
        ));
    }
    checks
}

/// Whether that names one version, and not a release that has several.
pub fn is_a_version(release: &str) -> bool {
    Version::parse(release.strip_prefix('v').unwrap_or(release)).is_some()
}

/// The newest version of a release that every host can install: of `20`, `v20` or `tentacle`. `None`: another version is asked
/// for by its numbers, or no host says what it can install, or they have none in common.
pub fn newest(offered: &Offered, release: &str) -> Option<Version> {
    let text = release.strip_prefix('v').unwrap_or(release);
    let wanted = major(&text.to_lowercase()).or_else(|| text.parse().ok())?;
    name(wanted)?;
    let mut all = offered.values().map(Fact::get);
    let mut common = all.next()??.clone();
    for listed in all {
        let listed = listed?;
        common.retain(|version| has(listed, version));
    }
    let of_it = common.into_iter().filter(|version| version.major == wanted);
    let numbers = of_it.map(|version| Version {
        // Packages of the same version differ in what is behind it, by the distribution of the host.
        rest: String::new(),
        ..version
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADISON: &str = " ceph-base | 20.2.4-1~bpo12+1 | https://download.ceph.com/debian-20.2.4 bookworm/main\n \
                           ceph-base | 18.2.7-1~bpo12+1 | https://deb.example.org bookworm/main";
    const DNF: &str = "Available Packages\nceph-base.x86_64   2:20.2.1-0.el9   ceph\nceph-base.x86_64   2:20.2.4-0.el9   ceph\n";

    fn of(output: &str) -> Fact<BTreeSet<Version>> {
        let ran = Ran {
            code: 0,
            output: output.to_owned(),
        };
        Fact::Yes(listed("x", &ran).unwrap())
    }

    #[test]
    fn what_package_managers_print_is_read() {
        let offered = Offered::from([("h1".to_owned(), of(MADISON)), ("h2".to_owned(), of(DNF))]);
        let found = |release: &str| {
            check(&offered, release)
                .into_iter()
                .map(|check| check.found)
                .collect::<Vec<_>>()
        };
        assert_eq!(found("20.2.4"), ["20.2.4 can be installed on 2 hosts"]);
        assert_eq!(
            found("v18.2.7"),
            ["its repositories do not have 18.2.7: the newest are 20.2.4-0.el9, 20.2.1-0.el9"]
        );
        assert_eq!(found("20"), [""; 0], "which version is meant is found before");
    }

    #[test]
    fn a_release_means_the_newest_version_that_all_hosts_have() {
        let mut offered = Offered::from([("h1".to_owned(), of(MADISON)), ("h2".to_owned(), of(MADISON))]);
        let newest =
            |offered: &Offered, release: &str| newest(offered, release).map(|version| version.to_string());
        for release in ["20", "v20", "tentacle", "Tentacle"] {
            assert_eq!(newest(&offered, release).as_deref(), Some("20.2.4"), "{release}");
        }
        assert_eq!(newest(&offered, "19"), None, "nobody has it");
        assert_eq!(newest(&offered, "20.2.1"), None, "it says which");
        offered.insert("h3".to_owned(), of("ceph-base | 20.2.1-1 | x"));
        assert_eq!(newest(&offered, "20"), None, "they have none in common");
        offered.insert("h3".to_owned(), Fact::No("no route to host".to_owned()));
        assert_eq!(newest(&offered, "20"), None, "one does not say");
        let told = check(&offered, "20.2.4");
        assert_eq!(
            told[0].found,
            "its repositories could not be read: no route to host"
        );
    }

    #[test]
    fn a_command_that_fails_is_told() {
        let ran = Ran {
            code: 100,
            output: "E: no such package".to_owned(),
        };
        assert_eq!(
            listed("apt-cache", &ran).unwrap_err(),
            "`apt-cache` ended with 100: E: no such package"
        );
    }
}
