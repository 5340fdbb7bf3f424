//! Checks before a run of this Ironic starts.

use std::collections::BTreeMap;

use stagger_engine::preflight::{Check, HostChecks, Template, ask_hosts};
use stagger_engine::template::filled;

use crate::backend::IronicBackend;
use crate::config::{Commands, IronicConfig, IronicSettings};
use crate::facts::{ApiReport, IronicFacts};
use stagger_core::model::Fact;

const OF_SERVICES: &[&str] = &["service", "kind", "host"];
const OF_INSTALLS: &[&str] = &["service", "kind", "host", "release"];
const OF_PINS: &[&str] = &["service", "kind", "host", "pin"];
const OF_RELEASES: &[&str] = &["release"];
const OF_MIGRATIONS: &[&str] = &["count", "release"];
const OF_SERVERS: &[&str] = &["backend", "server", "state"];

/// What each word is filled with, where only the shell's reading of a command is asked.
const SAMPLES: [(&str, &str); 9] = [
    ("service", "c1"),
    ("kind", "conductor"),
    ("host", "host"),
    ("release", "29.0.6"),
    ("pin", "29.0"),
    ("count", "500"),
    ("backend", "rpc"),
    ("server", "c1"),
    ("state", "ready"),
];

/// A command, and the host on which it is run.
struct OnHost<'a> {
    host: &'a str,
    key: String,
    command: &'a String,
    known: &'static [&'static str],
}

/// Every command of the configuration.
pub fn templates(config: &IronicConfig) -> Vec<Template> {
    let mut found: Vec<Template> = of_services("[cluster.commands]", &config.commands)
        .into_iter()
        .map(|(key, command, known)| Template {
            key,
            command: command.clone(),
            known,
        })
        .collect();
    found.extend(on_hosts(config).into_iter().map(|one| Template {
        key: one.key,
        command: one.command.clone(),
        known: one.known,
    }));
    found
}

/// The commands of a section for services.
fn of_services<'a>(
    section: &str,
    commands: &'a Commands,
) -> Vec<(String, &'a String, &'static [&'static str])> {
    let Commands {
        install,
        versions,
        write_pin,
        remove_pin,
        read_pin,
        stop,
        start,
        ready,
        logs,
    } = commands;
    let all = [
        ("install", install, OF_INSTALLS),
        ("versions", versions, OF_SERVICES),
        ("write_pin", write_pin, OF_PINS),
        ("remove_pin", remove_pin, OF_PINS),
        ("read_pin", read_pin, OF_SERVICES),
        ("stop", stop, OF_SERVICES),
        ("start", start, OF_SERVICES),
        ("ready", ready, OF_SERVICES),
        ("logs", logs, OF_SERVICES),
    ];
    let given = all.into_iter().filter_map(|(key, command, known)| {
        let command = command.as_ref()?;
        Some((format!("{section} {key}"), command, known))
    });
    given.collect()
}

/// All that is run on hosts by a command of its own: services that differ, tools, balancer, hooks.
fn on_hosts(config: &IronicConfig) -> Vec<OnHost<'_>> {
    let mut found = Vec::new();
    let conductors = config
        .conductors
        .iter()
        .map(|one| (&one.name, &one.host, &one.commands));
    let apis = config
        .apis
        .iter()
        .map(|one| (&one.name, &one.host, &one.commands));
    for (name, host, commands) in conductors.chain(apis) {
        for (key, command, known) in of_services(&format!("commands of {name}:"), commands) {
            found.push(OnHost {
                host,
                key,
                command,
                known,
            });
        }
    }
    let (tools, hooks, stopping, balancer) =
        (&config.tools, &config.hooks, &config.stopping, &config.balancer);
    let of_tools = [
        ("[cluster.tools] install", tools.install.as_ref(), OF_RELEASES),
        ("[cluster.tools] check", tools.check.as_ref(), OF_RELEASES),
        ("[cluster.tools] python", tools.python.as_ref(), OF_RELEASES),
        ("[cluster.tools] backup", tools.backup_command(), OF_RELEASES),
        ("[cluster.tools] schema", Some(&tools.schema), OF_RELEASES),
        ("[cluster.tools] migrate", Some(&tools.migrate), OF_MIGRATIONS),
        ("[cluster.hooks] before", hooks.before.as_ref(), OF_RELEASES),
        ("[cluster.hooks] ramdisk", hooks.ramdisk.as_ref(), OF_RELEASES),
        ("[cluster.hooks] clients", hooks.clients.as_ref(), OF_RELEASES),
        ("[cluster.hooks] after", hooks.after.as_ref(), OF_RELEASES),
    ];
    let of_balancer = [
        ("[cluster.balancer] show", Some(&balancer.show), &[][..]),
        ("[cluster.balancer] set", Some(&balancer.set), OF_SERVERS),
        ("[cluster.stopping] hold", stopping.hold.as_ref(), &[]),
        ("[cluster.stopping] let_go", stopping.let_go.as_ref(), &[]),
    ];
    let of_tools = of_tools.map(|one| (tools.host.as_str(), one));
    let of_balancer = of_balancer.map(|one| (balancer.host.as_str(), one));
    for (host, (key, command, known)) in of_tools.into_iter().chain(of_balancer) {
        found.extend(command.map(|command| OnHost {
            host,
            key: key.to_owned(),
            command,
            known,
        }));
    }
    found
}

/// What the first look at it says: each thing that did not answer.
pub fn of_facts(facts: &IronicFacts) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut told = |subject: &str, why: Option<&String>, found: &str| {
        checks.push(match why {
            Some(why) => Check::failed(subject, why),
            None => Check::passed(subject, found),
        });
    };
    told("conductors", unknown(&facts.conductors), "its API lists them");
    told("Ironic's database", unknown(&facts.database), "it can be read");
    told("our own database", unknown(&facts.records), "it can be read");
    told("balancer", unknown(&facts.balancer), "its servers are listed");
    for (name, says) in &facts.apis {
        let why = match says {
            ApiReport::Offers(_) => None,
            ApiReport::Away(why) | ApiReport::Unclear(why) => Some(why),
        };
        told(&format!("API {name}"), why, "it answers");
    }
    for (name, pin) in &facts.pins {
        told(&format!("pin of {name}"), unknown(pin), "it can be read");
    }
    checks
}

/// Whether the lock and the records can be written, which leaves nothing there. `None`: they cannot be read either, which
/// [`of_facts`] tells.
pub async fn may_write(settings: &IronicSettings, facts: &IronicFacts) -> Option<Check> {
    const SUBJECT: &str = "[cluster] ours";
    facts.records.get()?;
    let tried = async {
        let backend = IronicBackend::new(settings.clone(), None)?;
        backend.book().try_writes().await
    };
    Some(match tried.await {
        Ok(()) => Check::passed(SUBJECT, "it may write the lock and the records"),
        Err(error) => Check::failed(SUBJECT, format!("it may not write the lock and the records: {}", error.why))
            .hint("the user of that database has to have `create`, `select`, `insert`, `update` and `delete` on its tables"),
    })
}

/// Why something is not known, if it is not.
fn unknown<T>(known: &Fact<T>) -> Option<&String> {
    match known {
        Fact::Yes(_) => None,
        Fact::No(why) => Some(why),
    }
}

/// One look at each host, which changes nothing.
pub async fn check_hosts(settings: &IronicSettings) -> Vec<Check> {
    let config = &settings.cluster;
    let mut by_host: BTreeMap<String, HostChecks> = BTreeMap::new();
    for host in config.hosts() {
        by_host.entry(host.to_owned()).or_default();
    }
    let mut checks = Vec::new();
    let mut add =
        |host: &str, key: String, command: &str, words: &[(&str, &str)]| match filled(command, words) {
            Ok(line) => by_host.entry(host.to_owned()).or_default().add(key, line),
            Err(error) => checks.push(Check::failed(host, format!("{key}: {error}"))),
        };
    for service in config.services() {
        let own = [
            ("service", service.name),
            ("kind", service.role.as_str()),
            ("host", service.host),
        ];
        let words = [&own[..], &SAMPLES].concat();
        for (key, command, _) in of_services("", &service.commands) {
            add(
                service.host,
                format!("`{}` of {}", key.trim(), service.name),
                command,
                &words,
            );
        }
    }
    for one in on_hosts(config)
        .into_iter()
        .filter(|one| one.key.starts_with('['))
    {
        add(one.host, one.key, one.command, &SAMPLES);
    }
    checks.extend(ask_hosts(&settings.hosts, by_host).await);
    checks
}
