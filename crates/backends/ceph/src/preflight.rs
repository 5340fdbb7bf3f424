//! Checks before a run of this cluster starts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use stagger_core::model::{Fact, Reason};
use stagger_engine::preflight::{Check, HostChecks, Template, ask_hosts};
use stagger_engine::template::filled;

use crate::api::{CephApi, QueryTarget};
use crate::config::{CephSettings, Reboot, SoftwareByKind};
use crate::effects::kind_and_id;
use crate::facts::CephFacts;
use crate::health_codes;
use crate::offered;
use crate::reboot::host_queries;
use crate::software::Software;
use crate::translate::HealthPolicy;
use crate::translate::hosts::HOST;

/// What commands of `[software]` are filled with.
const KNOWN: &[&str] = &["kind", "id", "host", "release", "fsid", "image"];

/// A release as it may be filled in, where none is given.
const ANY_RELEASE: &str = "20.2.4";

/// Each command by its key.
fn commands(software: &Software) -> [(&'static str, Option<&String>); 7] {
    let Software {
        upgrade,
        versions,
        restart,
        before_rollback,
        rollback,
        rebuild,
        logs,
    } = software;
    [
        ("upgrade", upgrade.as_ref()),
        ("versions", versions.as_ref()),
        ("restart", restart.as_ref()),
        ("before_rollback", before_rollback.as_ref()),
        ("rollback", rollback.as_ref()),
        ("rebuild", rebuild.as_ref()),
        ("logs", logs.as_ref()),
    ]
}

/// Every command of the configuration.
pub fn templates(software: &SoftwareByKind) -> Vec<Template> {
    let SoftwareByKind {
        profile: _,
        image: _,
        all,
        mon,
        mgr,
        osd,
        mds,
        rgw,
    } = software;
    let sections = [
        ("all", all),
        ("mon", mon),
        ("mgr", mgr),
        ("osd", osd),
        ("mds", mds),
        ("rgw", rgw),
    ];
    let mut found = Vec::new();
    for (section, software) in sections {
        for (key, command) in commands(software) {
            found.extend(command.map(|command| Template {
                key: format!("[software.{section}] {key}"),
                command: command.clone(),
                known: KNOWN,
            }));
        }
    }
    found
}

/// Every command by which hosts are rebooted.
pub fn templates_of_reboot(reboot: &Reboot) -> Vec<Template> {
    let given = reboot.configured_commands().into_iter();
    let given = given.filter_map(|(key, command)| Some((key, command?)));
    given
        .map(|(key, command)| Template {
            key: format!("[reboot] {key}"),
            command: command.clone(),
            known: &["host"],
        })
        .collect()
}

/// What no run that changes daemons of these kinds could do, as no command is given for it.
pub fn missing_commands<'a>(software: &SoftwareByKind, kinds: impl Iterator<Item = &'a str>) -> Vec<Reason> {
    // A host is rebooted by commands that need not be given.
    let kinds: BTreeSet<&str> = kinds.filter(|kind| *kind != HOST).collect();
    let mut reasons = Vec::new();
    for kind in kinds {
        let of_kind = software.of(kind);
        let needed = [("upgrade", &of_kind.upgrade), ("restart", &of_kind.restart)];
        let missing = needed.into_iter().filter(|(_, command)| command.is_none());
        let missing: Vec<&str> = missing.map(|(key, _)| key).collect();
        if !missing.is_empty() {
            let missing = missing.join("` and `");
            reasons.push(Reason::of_backend(
                "command-missing",
                format!("{kind}: set `{missing}` in [software.{kind}] or [software.all]"),
            ));
        }
    }
    reasons
}

/// Whether the lock and the guards can be written: one key beside theirs is set, and removed again.
pub async fn may_write(api: &dyn CephApi) -> Check {
    const SUBJECT: &str = "[cluster] user";
    const KEY: &str = "stagger/preflight";
    let set = json!({ "prefix": "config-key set", "key": KEY, "val": "stagger config check" });
    let remove = json!({ "prefix": "config-key rm", "key": KEY });
    for command in [set, remove] {
        if let Err(error) = api.ask(QueryTarget::Mon, command).await {
            return Check::failed(SUBJECT, format!("it may not write config-key: {error}"))
                .hint("a run keeps its lock there: the user's capabilities for monitors must permit `config-key set`, as `mon 'allow *'` does");
        }
    }
    Check::passed(SUBJECT, "it may write the lock")
}

/// Whether the codes of `[health]` are Ceph's.
pub fn codes(policy: &HealthPolicy) -> Vec<Check> {
    let lists = [("accept", &policy.accept), ("block", &policy.block)];
    let mut checks = Vec::new();
    for (key, codes) in lists {
        for code in codes.iter().filter(|code| !health_codes::is_known(code)) {
            let subject = format!("[health] {key}");
            checks.push(Check::warning(
                subject,
                format!("Ceph 16 to 20 know no health check {code}"),
            ));
        }
    }
    checks
}

/// What a run would miss on its hosts: one look at each, which changes nothing.
pub async fn check_hosts(settings: &CephSettings, facts: &CephFacts, release: Option<&str>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut asked: BTreeMap<String, HostChecks> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for (unit, host) in crate::memory::hosts_of(facts) {
        let of_host = asked.entry(host.clone()).or_default();
        let (kind, id) = kind_and_id(&unit);
        // On a host one daemon of each kind stands for all of them.
        if !kinds.insert((host.clone(), kind.to_owned())) {
            continue;
        }
        let words = [
            ("kind", kind),
            ("id", id),
            ("host", host.as_str()),
            ("release", release.unwrap_or(ANY_RELEASE)),
        ];
        for (key, command) in commands(&settings.software.of(kind)) {
            match command.map(|command| filled(command, &words)) {
                None => {}
                Some(Ok(line)) => of_host.add(format!("`{key}` of {unit}"), line),
                Some(Err(error)) => checks.push(Check::failed(&host, error.to_string())),
            }
        }
    }
    if let Some(release) = release {
        checks.extend(offered::check(
            &offered::offered_versions(settings, facts).await,
            release,
        ));
    }
    let CephSettings { hosts, reboot, .. } = settings;
    if hosts.shell.is_empty() {
        checks.extend(ask_hosts(hosts, asked).await);
        return checks;
    }
    for (host, of_host) in &mut asked {
        // The power of a host is cut from this machine.
        let given = reboot
            .configured_commands()
            .into_iter()
            .filter(|(key, _)| *key != "power");
        for (key, command) in given {
            match command.map(|command| filled(command, &[("host", host)])) {
                None => {}
                Some(Ok(line)) => of_host.add(format!("[reboot] {key}"), line),
                Some(Err(error)) => checks.push(Check::failed(host, error.to_string())),
            }
        }
    }
    let names = asked.keys().cloned().collect();
    checks.extend(ask_hosts(hosts, asked).await);
    checks.push(boots(settings, names).await);
    checks
}

/// Whether each host tells its boot, without which none is rebooted.
async fn boots(settings: &CephSettings, hosts: BTreeSet<String>) -> Check {
    const SUBJECT: &str = "[reboot] boot_id";
    let count = hosts.len();
    let told = host_queries::boots(settings, hosts).await;
    let silent: Vec<String> = told
        .into_iter()
        .filter_map(|(host, boot)| match boot {
            Fact::Yes(_) => None,
            Fact::No(why) => Some(format!("{host}: {why}")),
        })
        .collect();
    if silent.is_empty() {
        return Check::passed(SUBJECT, format!("{count} hosts report their boot id"));
    }
    Check::warning(SUBJECT, silent.join("; ")).hint("`run reboot` would skip these hosts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_ceph_has_not_are_told() {
        let policy = HealthPolicy {
            accept: ["POOL_NO_REDUNDANCY", "SLOW_OP"].map(str::to_owned).into(),
            block: ["OSD_RACK_DOWN"].map(str::to_owned).into(),
        };
        let found: Vec<String> = codes(&policy).into_iter().map(|check| check.found).collect();
        assert_eq!(found, ["Ceph 16 to 20 know no health check SLOW_OP"]);
    }

    #[test]
    fn each_command_has_a_key() {
        let software = serde_json::json!({ "all": { "upgrade": "a {relase}" }, "osd": { "restart": "b" } });
        let software: SoftwareByKind = serde_json::from_value(software).unwrap();
        let keys: Vec<String> = templates(&software).into_iter().map(|one| one.key).collect();
        assert_eq!(keys, ["[software.all] upgrade", "[software.osd] restart"]);
    }
}
