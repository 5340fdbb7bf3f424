//! The configuration with which a Ceph is upgraded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::Setting;
use crate::ceph::Cluster;
use crate::roots::Release;

/// What the tests vary. The default is quick: short holds, doors that open by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// `ask` or seconds after which doors open by themselves.
    pub doors: Doors,
    /// `max_in_parallel`.
    pub max_in_parallel: &'static str,
    /// Whether the first waves are small.
    pub growth: bool,
    /// `canary_soak`, in seconds.
    pub canary_soak: u32,
    /// `gate_hold`, in seconds.
    pub gate_hold: u32,
    /// `gate_timeout`, in seconds.
    pub gate_timeout: u32,
    /// `on_failure`: rollback, continue or stop.
    pub on_failure: &'static str,
    /// `rebuild_to_go_back`.
    pub rebuild_to_go_back: bool,
    /// After so many seconds without renewal the lock may be taken over.
    pub lock_expires: u32,
    /// `noout` goes by itself after so many seconds.
    pub noout_expires: u32,
    /// A host may take so many seconds to be back.
    pub reboot_timeout: u32,
    /// Whether the commands around a reboot are given: `before`, `patch` and `after` write a line each to `turns`, `after` says no
    /// while the host has a file `old-kernel`, and `power` starts a host that stays away.
    pub around_reboots: bool,
    /// The port of a Prometheus on this machine, whose value for `suffering` may be 0.8 at most.
    pub prometheus: Option<u16>,
}

/// How one-way doors are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doors {
    /// By a person.
    Ask,
    /// By themselves, after so many seconds.
    AutoAfter(u32),
}

impl Doors {
    /// As `doors` in the configuration.
    pub(super) fn text(self) -> String {
        match self {
            Self::Ask => "\"ask\"".to_owned(),
            Self::AutoAfter(seconds) => format!("{{ auto-after = {seconds} }}"),
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            doors: Doors::AutoAfter(1),
            max_in_parallel: "100%",
            growth: true,
            canary_soak: 2,
            gate_hold: 1,
            gate_timeout: 120,
            on_failure: "rollback",
            rebuild_to_go_back: false,
            // While a mon is replaced on a busy machine the others write nothing for ten seconds and more.
            lock_expires: 30,
            noout_expires: 1200,
            reboot_timeout: 120,
            around_reboots: false,
            prometheus: None,
        }
    }
}

impl Setup {
    /// One in which a daemon that crashes ten seconds after its start is noticed by its wave's gates.
    pub fn patient() -> Self {
        Self {
            gate_hold: 12,
            gate_timeout: 30,
            lock_expires: 30,
            ..Self::default()
        }
    }

    /// One whose lock is as long as by default: it outlasts the elections of a cluster in stretch mode.
    pub fn over_sites() -> Self {
        Self {
            lock_expires: 60,
            ..Self::default()
        }
    }
}

impl Setting for Setup {
    type Cluster = Cluster;

    fn folder(cluster: &Cluster) -> &Path {
        cluster.dir()
    }

    /// The cluster's own programs lead in.
    fn program(&self, _: &Cluster, _: &Path, binary: &Path) -> Result<Vec<String>> {
        Ok(vec![binary.display().to_string()])
    }

    fn text(&self, cluster: &Cluster, _: &Path) -> Result<String> {
        let Self {
            doors,
            max_in_parallel,
            growth,
            canary_soak,
            gate_hold,
            gate_timeout,
            on_failure,
            rebuild_to_go_back,
            lock_expires,
            noout_expires,
            reboot_timeout,
            around_reboots,
            prometheus,
        } = self;
        let dir = cluster.dir().display();
        let root = cluster.root(cluster.begun_with())?.path.display();
        let doors = doors.text();
        let growth = if *growth { "double" } else { "none" };
        let unavoidable: BTreeSet<_> = Release::ALL
            .iter()
            .flat_map(|release| release.unavoidable_health_codes())
            .collect();
        let unavoidable: Vec<_> = unavoidable.into_iter().collect();
        let mut text = String::new();
        write!(
            text,
            r#"[cluster]
kind = "ceph"
name = "lab"
ceph = ["{dir}/ceph"]
python = ["{dir}/enter", "chroot", "{root}", "/usr/bin/python3"]
conf = "{dir}/ceph.conf"
lock_expires = {lock_expires}
noout_expires = {noout_expires}

[policy]
max_in_parallel = "{max_in_parallel}"
growth = "{growth}"
canary_soak = {canary_soak}
gate_hold = {gate_hold}
gate_timeout = {gate_timeout}
doors = {doors}
on_failure = "{on_failure}"
rebuild_to_go_back = {rebuild_to_go_back}
interruptions = ["mgr", "mds", "rgw"]

[health]
accept = {unavoidable:?}

[hosts]
shell = ["{dir}/enter", "sh", "-s"]
folder = "{dir}/stagger"
timeout = 120

[software.all]
upgrade = "r={{release}}; {dir}/daemonctl use {{kind}} {{id}} ${{r%%.*}}"
restart = "{restart}"
rebuild = "r={{release}}; {rebuild}"
logs = "tail -n 200 {dir}/log/*{{kind}}.{{id}}.log"

[software.osd]
before_rollback = "[ ! -e {dir}/releases/20 ] || {dir}/daemonctl plain-wal osd {{id}} 20"
"#,
            restart = told(&dir, "daemonctl restart {kind} {id}"),
            rebuild = told(&dir, "daemonctl rebuild {kind} {id} ${r%%.*}"),
        )?;
        if cluster.spec().named_hosts {
            write!(
                text,
                r#"
[reboot]
command = "{dir}/hostctl reboot {{host}}"
boot_id = "{dir}/hostctl boot-id {{host}}"
timeout = {reboot_timeout}
self = "{OWN_HOST}"
"#
            )?;
            if *around_reboots {
                write!(
                    text,
                    r#"prepare = "echo prepare {{host}} >>{dir}/turns"
before = "echo before {{host}} >>{dir}/turns"
patch = "echo patch {{host}} >>{dir}/turns"
after = "[ ! -e {dir}/hosts/{{host}}/old-kernel ] && echo after {{host}} >>{dir}/turns"
power = "rm {dir}/hosts/{{host}}/stays-away && echo power {{host}} >>{dir}/turns"
"#
                )?;
            }
        }
        if let Some(port) = prometheus {
            write!(
                text,
                r#"
[gates.prometheus]
url = "http://127.0.0.1:{port}"

[[gates.metric]]
name = "suffering"
query = "suffering"
max = 0.8
"#
            )?;
        }
        Ok(text)
    }
}

/// The host on which stagger counts itself, where hosts have names.
pub const OWN_HOST: &str = "host2";

/// A command that writes down when it begins and ends, so that a test sees what was done at once.
fn told(dir: &impl std::fmt::Display, command: &str) -> String {
    format!(
        "echo begin {{kind}}.{{id}} >>{dir}/visits; {dir}/{command}; c=$?; \
         echo end {{kind}}.{{id}} >>{dir}/visits; exit $c"
    )
}
