//! The cluster's folder: what each node has, and the scripts by which it is worked on.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::root::Root;
use super::spec::{self, GanetiSpec};
use crate::certificates::Authority;
use crate::files::{put, script};
use crate::sandbox::Sandbox;

const NODECTL: &str = include_str!("nodectl.sh");
const STAND_INS: &str = include_str!("stand_ins.py");

/// `reboot` as a person types it on a node. It has ended when the node goes down, as where systemd is.
const REBOOT: &str = "#!/bin/sh\nhome=$(dirname \"$(dirname \"$0\")\")\n\
    setsid sh -c 'sleep 1; exec \"$0\" \"$1\" reboot' \"$(dirname \"$home\")/nodectl\" \"$(basename \"$home\")\" \
    </dev/null >/dev/null 2>&1 &\n";

/// The one word of systemd that is meant for a node.
const SYSTEMCTL: &str = "#!/bin/sh\n[ \"$*\" = reboot ] && exec \"$(dirname \"$0\")/reboot\"\n\
    echo \"systemctl: there is no systemd here: $*\" >&2\nexit 1\n";

/// The path of a Unix socket may have 107 bytes; the longest below a cluster's folder has fewer than 52.
const LONGEST_DIR: usize = 55;

/// What an operator of the remote API has: name, password.
pub(super) const OPERATOR: (&str, &str) = ("stagger", "secret");
/// One who may only read.
pub(super) const READER: (&str, &str) = ("reader", "secret");

/// The authority of the remote API's certificate.
pub(super) const CA: &str = "ca.pem";

/// Who may use the remote API, on each node.
pub(super) const USERS: &str = "var/lib/ganeti/rapi/users";

/// The users that a cluster is made with.
pub(super) fn users() -> String {
    format!(
        "{} {} write\n{} {} read\n",
        OPERATOR.0, OPERATOR.1, READER.0, READER.1
    )
}

/// Writes everything that does not need the cluster to run.
pub(super) fn write(dir: &Path, spec: &GanetiSpec) -> Result<()> {
    ensure!(
        dir.as_os_str().len() <= LONGEST_DIR,
        "the cluster folder {} is too long for sockets in it; set STAGGER_CACHE to a shorter path",
        dir.display()
    );
    // Not all of Ganeti's daemons run as root.
    fs::set_permissions(dir, Permissions::from_mode(0o755))
        .with_context(|| format!("opening {}", dir.display()))?;
    for folder in ["fault", "lib", "rbd", "shared"] {
        make(&dir.join(folder))?;
    }
    script(&dir.join("nodectl"), NODECTL)?;
    put(&dir.join("lib/stand_ins.py"), STAND_INS)?;
    put(&dir.join("nodes.json"), &spec.settings().to_string())?;
    put(&dir.join("sync-rate"), &spec.sync_rate.to_string())?;
    put(&dir.join("boot-seconds"), &spec.boot_seconds.to_string())?;
    for name in spec.names() {
        node(dir, &name)?;
    }
    certificate(dir, spec)
}

/// A node as it is before it is part of a cluster.
fn node(dir: &Path, name: &str) -> Result<()> {
    let home = dir.join(name);
    for folder in [
        "bin",
        "drbd",
        "etc/default",
        "etc/ganeti",
        "lv",
        "srv/ganeti/file-storage",
        "var/lib/ganeti/rapi",
        "var/lock",
        "var/log/ganeti",
        "var/run/ganeti",
    ] {
        make(&home.join(folder))?;
    }
    let shared = home.join("srv/ganeti/shared-file-storage");
    symlink(dir.join("shared"), &shared).with_context(|| format!("linking {}", shared.display()))?;
    put(&home.join("etc/ganeti/file-storage-paths"), "/srv/ganeti\n")?;
    // A daemon that may not be swapped out would be one too many of them.
    let settings = format!(
        "NODED_ARGS='--no-mlock'\nexport GANETI_ROOTDIR='{}'\nexport GANETI_HOSTNAME='{name}'\n",
        home.display()
    );
    put(&home.join("etc/default/ganeti"), &settings)?;
    put(&home.join(USERS), &users())?;
    script(&home.join("bin/reboot"), REBOOT)?;
    script(&home.join("bin/systemctl"), SYSTEMCTL)?;
    // Who comes by ssh is on this node, and on no other.
    let sshd = format!(
        "Port 22\nHostKey /etc/ssh/ssh_host_rsa_key\nAuthorizedKeysFile /root/.ssh/authorized_keys\n\
         PermitRootLogin yes\nUsePAM no\nPrintMotd no\nPidFile none\nMaxStartups 100\n\
         SetEnv GANETI_ROOTDIR={home} GANETI_HOSTNAME={name} \
         PATH={home}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
        home = home.display()
    );
    put(&home.join("etc/sshd_config"), &sshd)
}

/// The certificate of the remote API. Ganeti takes the one that is there, and gives it to every node that is added.
fn certificate(dir: &Path, spec: &GanetiSpec) -> Result<()> {
    let authority = Authority::new()?;
    let mut names = vec![spec::CLUSTER.to_owned(), spec::CLUSTER_ADDRESS.to_owned()];
    for number in 1..=spec.nodes {
        names.extend([spec::name(number), spec::address(number)]);
    }
    let server = authority.server(names)?;
    put(&dir.join(CA), &authority.pem())?;
    put(
        &dir.join(spec::name(1)).join("var/lib/ganeti/rapi.pem"),
        &(server.key + &server.certificate),
    )
}

/// Writes the scripts that lead in from outside.
pub(super) fn write_entrances(sandbox: &Sandbox, root: &Root) -> Result<()> {
    let dir = sandbox.dir();
    let entrance = |what: &str, command: &str| sandbox.entrance(&root.path, what, command);
    let nodectl = format!("'{}'", dir.join("nodectl").display());
    script(
        &dir.join("node"),
        &entrance(
            "node NODE run|start|crash|reboot|status [WORD…]: see nodectl.",
            &nodectl,
        )?,
    )?;
    script(
        &dir.join("ssh"),
        &entrance("ssh as from a machine beside the nodes.", "ssh")?,
    )
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}
