//! Profiles: the commands of `[software]` for hosts of a known kind, so that a site gives only what is its own.

use serde::{Deserialize, Serialize};

use crate::software::Software;

/// How the hosts of a site get their software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SoftwareProfile {
    /// By commands of the site's own.
    #[default]
    Custom,
    /// By Debian's packages, and systemd. One package of Ceph means all of a host's, and what they depend on: the first daemon of a
    /// host that is prepared changes the software of all of them, and each starts it with its own restart.
    Debian,
    /// By cephadm: each daemon is a container of its own, whose image is pulled ahead. Its unit is written anew as cephadm would, and
    /// cephadm is left in agreement.
    Cephadm,
}

impl SoftwareProfile {
    /// What a kind of daemon is changed by, where the configuration says nothing else; empty: nothing is known.
    pub fn software(self, kind: &str) -> Software {
        match self {
            Self::Custom => Software::default(),
            Self::Debian => debian(kind),
            Self::Cephadm => cephadm(kind),
        }
    }

    /// Whether the software of a daemon is that of its host: all daemons of a host have it at once.
    pub fn is_of_host(self) -> bool {
        match self {
            Self::Custom | Self::Cephadm => false,
            Self::Debian => true,
        }
    }
}

fn debian(kind: &str) -> Software {
    let unit = match kind {
        "mon" | "mgr" | "osd" | "mds" => format!("ceph-{kind}@{{id}}.service"),
        "rgw" => "ceph-radosgw@rgw.{id}.service".to_owned(),
        _ => return Software::default(),
    };
    Software {
        upgrade: Some(include_str!("profile/debian/upgrade.sh").to_owned()),
        versions: Some("apt-get -q update >&2; apt-cache madison ceph-common".to_owned()),
        // The units may be started three times in half an hour, which counts what an operator does too: it begins anew.
        restart: Some(format!(
            "systemctl reset-failed '{unit}' 2>/dev/null; systemctl restart '{unit}'"
        )),
        before_rollback: (kind == "osd")
            .then(|| include_str!("profile/debian/before_rollback.sh").to_owned()),
        rollback: Some(include_str!("profile/debian/rollback.sh").to_owned()),
        rebuild: None,
        logs: Some(format!("journalctl --no-pager -n 500 -u '{unit}'")),
    }
}

fn cephadm(kind: &str) -> Software {
    if !["mon", "mgr", "osd", "mds", "rgw"].contains(&kind) {
        return Software::default();
    }
    Software {
        upgrade: Some(include_str!("profile/cephadm/upgrade.sh").to_owned()),
        restart: Some(include_str!("profile/cephadm/restart.sh").to_owned()),
        logs: Some("journalctl --no-pager -n 500 -u 'ceph-{fsid}@{kind}.{id}.service'".to_owned()),
        ..Software::default()
    }
}

#[cfg(test)]
mod tests {
    use stagger_engine::template::filled;

    use super::*;

    #[test]
    fn scripts_are_filled_with_the_release_and_nothing_else() {
        let words = [
            ("kind", "osd"),
            ("id", "3"),
            ("host", "h1"),
            ("release", "20.2.4"),
        ];
        let software = SoftwareProfile::Debian.software("osd");
        for script in [&software.upgrade, &software.rollback, &software.before_rollback] {
            let script = script.as_ref().unwrap();
            let filled = filled(script, &words).unwrap();
            assert!(filled.contains("release='20.2.4'"), "{filled}");
            // What else is in braces is awk's, and the shell's.
            let undone = filled
                .replace("release='20.2.4'", "release='{release}'")
                .replace("osd='3'", "osd='{id}'");
            assert_eq!(undone, *script);
        }
        let restart = software.restart.unwrap();
        assert_eq!(
            filled(&restart, &words).unwrap(),
            "systemctl reset-failed 'ceph-osd@3.service' 2>/dev/null; systemctl restart 'ceph-osd@3.service'"
        );
    }

    #[test]
    fn kinds_without_units_have_no_commands() {
        assert_eq!(
            SoftwareProfile::Debian.software("rbd-mirror"),
            Software::default()
        );
        assert_eq!(SoftwareProfile::Custom.software("osd"), Software::default());
    }
}
