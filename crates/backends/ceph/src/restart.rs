//! Restarts of a host's daemons.

use std::collections::BTreeMap;

use stagger_core::model::{Kind, UnitId, check_plain};
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::Hosts;
use stagger_engine::template::filled;

use crate::config::{SoftwareByKind, in_a_shell};
use crate::effects::kind_and_id;
use crate::translate::BaselineDaemon;

/// The kinds of daemons in the order in which a host's are restarted.
const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

/// Whether a restart of `kinds` stops daemons of that kind; no kinds: all.
pub(crate) fn stops_kind(kinds: &[Kind], kind: &str) -> bool {
    kinds.is_empty() || kinds.iter().any(|of| of.as_str() == kind)
}

/// The daemons of a host that are restarted: those that ran before the run, as its baseline has it. What was down stays down.
pub(crate) fn daemons<'a>(
    places: &'a BTreeMap<UnitId, String>,
    ran: &BTreeMap<UnitId, BaselineDaemon>,
    host: &str,
) -> Vec<&'a UnitId> {
    let here = places
        .iter()
        .filter(|(unit, at)| *at == host && ran.contains_key(*unit));
    here.map(|(unit, _)| unit).collect()
}

/// The commands that restart these [`daemons`] of a host, one after another until one fails: `[software]` `restart` for each
/// daemon, or systemd's for each kind that has none.
///
/// # Errors
/// The name of a daemon is none that a command may hold.
pub(crate) fn commands(
    software: &SoftwareByKind,
    hosts: &Hosts,
    daemons: &[&UnitId],
    host: &str,
    kinds: &[Kind],
) -> Result<String, BackendError> {
    let mut all = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| stops_kind(kinds, kind)) {
        let ids = daemons.iter().map(|unit| kind_and_id(unit));
        let ids: Vec<&str> = ids.filter(|(of, _)| *of == kind).map(|(_, id)| id).collect();
        if ids.is_empty() {
            continue;
        }
        // One that names the cluster restarts by the unit that systemd is asked for below: no cluster is asked for its id here.
        if let Some(template) = software
            .of(kind)
            .restart
            .filter(|template| !template.contains("{fsid}"))
        {
            for id in ids {
                let words = [("kind", kind), ("id", id), ("host", host), ("release", "")];
                all.push(filled(&template, &words)?);
            }
            continue;
        }
        for id in &ids {
            check_plain(id).map_err(|why| {
                BackendError::permanent(
                    format!("restart {kind}.{id}"),
                    format!("its name is none that a command may hold: {why}"),
                )
            })?;
        }
        let units = in_a_shell(None, hosts, &by_systemd(kind, &ids));
        all.push(filled(&units, &[("host", host)])?);
    }
    if all.is_empty() {
        return Ok("true".to_owned());
    }
    // Each in a shell of its own: one may end it, and `set -e` means nothing within a list.
    let all: Vec<String> = all.iter().map(|command| format!("({command}\n)")).collect();
    Ok(all.join(" && "))
}

/// Restarts the units of these daemons that are loaded: those of packages, or of cephadm with the cluster's id in their names. That
/// there is none is an error, since nothing would have been restarted. Gateways are called otherwise in their units than in the
/// cluster: all of the host's are meant.
fn by_systemd(kind: &str, ids: &[&str]) -> String {
    let units: Vec<String> = if kind == "rgw" {
        vec!["\"ceph-radosgw@*.service\" \"ceph-*@rgw.*.service\"".to_owned()]
    } else {
        let of = |id: &&str| format!("\"ceph-{kind}@{id}.service\" \"ceph-*@{kind}.{id}.service\"");
        ids.iter().map(of).collect()
    };
    format!(
        "'units=$(systemctl list-units --all --plain --no-legend {} | cut -d \" \" -f 1) && [ -n \"$units\" ] || \
         {{ echo \"systemd has no units of {kind}\"; exit 1; }}; systemctl restart $units'",
        units.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(names: &[&str]) -> Vec<UnitId> {
        names.iter().map(|name| UnitId::new(*name).unwrap()).collect()
    }

    /// Seen: the unit of an OSD whose disk was dead failed, and with it the restart of its host.
    #[test]
    fn what_was_down_before_the_run_is_not_restarted() {
        let places = [("mon.a", "h1"), ("osd.1", "h1"), ("osd.2", "h1"), ("osd.3", "h2")];
        let places: BTreeMap<UnitId, String> = places
            .into_iter()
            .map(|(unit, host)| (UnitId::new(unit).unwrap(), host.to_owned()))
            .collect();
        // OSD 2 was down, and the host of OSD 9 is not known any more.
        let ran = [
            ("mon.a", "mon"),
            ("osd.1", "osd"),
            ("osd.3", "osd"),
            ("osd.9", "osd"),
        ];
        let ran: BTreeMap<UnitId, BaselineDaemon> = ran
            .into_iter()
            .map(|(unit, kind)| {
                let daemon = BaselineDaemon {
                    kind: Kind::new(kind).unwrap(),
                    revision: None,
                    domains: BTreeMap::new(),
                };
                (UnitId::new(unit).unwrap(), daemon)
            })
            .collect();
        let of = |host: &str| -> Vec<&str> {
            let daemons = daemons(&places, &ran, host);
            daemons.into_iter().map(UnitId::as_str).collect()
        };
        assert_eq!(of("h1"), ["mon.a", "osd.1"]);
        assert_eq!(of("h2"), ["osd.3"]);
        assert_eq!(of("h3"), Vec::<&str>::new());
    }

    #[test]
    fn daemons_of_cephadm_are_restarted_by_their_units() {
        let software: SoftwareByKind =
            serde_json::from_value(serde_json::json!({ "profile": "cephadm" })).unwrap();
        let (osd, hosts) = (units(&["osd.1"]), Hosts::default());
        let command = commands(&software, &hosts, &osd.iter().collect::<Vec<_>>(), "h1", &[]).unwrap();
        assert!(command.contains("ceph-*@osd.1.service"), "{command}");
        assert!(
            !command.contains("{fsid}") && !command.contains("unit.image"),
            "{command}"
        );
    }

    #[test]
    fn each_daemon_of_the_host_by_its_own_command() {
        let software: SoftwareByKind =
            serde_json::from_value(serde_json::json!({ "all": { "restart": "svc {kind} {id} {host}" } }))
                .unwrap();
        let ran = units(&["mon.a", "osd.1", "osd.2"]);
        let ran: Vec<&UnitId> = ran.iter().collect();
        let of = |kinds: &[Kind]| commands(&software, &Hosts::default(), &ran, "h1", kinds).unwrap();
        assert_eq!(
            of(&[]),
            "(svc mon a h1\n) && (svc osd 1 h1\n) && (svc osd 2 h1\n)"
        );
        assert_eq!(of(&[Kind::new("mon").unwrap()]), "(svc mon a h1\n)");
    }

    /// Where no command is given the units of systemd are restarted, and a host without any is an error.
    #[test]
    fn a_kind_without_a_command_is_restarted_by_systemd() {
        let folder = tempfile::tempdir().unwrap();
        let systemctl = folder.path().join("systemctl");
        let script = "#!/bin/sh\n[ \"$1\" = list-units ] && { cat $0.units; exit; }\necho \"$@\" >>$0.log\n";
        std::fs::write(&systemctl, script).unwrap();
        std::fs::set_permissions(&systemctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let there = Hosts {
            shell: vec!["ssh".to_owned(), "{host}".to_owned(), "sh".to_owned()],
            ..Hosts::default()
        };
        let osds = [Kind::new("osd").unwrap()];
        let ran = units(&["mon.a", "osd.1", "osd.2"]);
        let ran: Vec<&UnitId> = ran.iter().collect();
        let script = commands(&SoftwareByKind::default(), &there, &ran, "h1", &osds).unwrap();
        // What did not run before, as an OSD whose disk is dead, is not among them.
        assert!(
            script.contains("\"ceph-osd@1.service\" \"ceph-*@osd.1.service\" \"ceph-osd@2.service\""),
            "{script}"
        );
        let run = |units: &str| {
            std::fs::write(folder.path().join("systemctl.units"), units).unwrap();
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            std::process::Command::new("sh")
                .arg("-c")
                .arg(&script)
                .env("PATH", path)
                .output()
                .unwrap()
        };
        let none = run("");
        assert!(!none.status.success());
        assert_eq!(
            String::from_utf8(none.stdout).unwrap(),
            "systemd has no units of osd\n"
        );
        assert!(
            run("ceph-osd@1.service loaded active running x\nceph-osd@2.service loaded failed failed y\n")
                .status
                .success()
        );
        let log = std::fs::read_to_string(folder.path().join("systemctl.log")).unwrap();
        assert_eq!(log, "restart ceph-osd@1.service ceph-osd@2.service\n");

        let here = commands(&SoftwareByKind::default(), &Hosts::default(), &ran, "h1", &osds).unwrap();
        assert!(
            here.starts_with("(ssh -oBatchMode=yes h1 'units=$(systemctl "),
            "{here}"
        );
    }
}
