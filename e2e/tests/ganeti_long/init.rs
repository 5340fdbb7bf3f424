//! A first configuration, made on a node, and a run with it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, Made, OPERATOR};
use stagger_e2e::stagger::binary;

use super::{case, ensure_none_powercycled};

/// The node's own `/etc` and `/var/lib`, in which things may be installed: those of the root are every node's. What Ganeti has
/// there stays where it is.
const INSTALLED: &str = r#"own=$GANETI_ROOTDIR/installed
for folder in etc var/lib; do
    mkdir -p "$own/$folder" "$own/work/$folder"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$own/$folder,workdir=$own/work/$folder" "/$folder"
done
mount --bind "$GANETI_ROOTDIR/var/lib/ganeti" /var/lib/ganeti
exec "$@" 2>&1"#;

/// Without what a run waits for although nothing comes of it here: calls of a predecessor, and a new kernel that shows its faults
/// later.
fn in_a_hurry(text: &str) -> String {
    let kind = "kind = \"ganeti\"\n";
    text.replacen(kind, &format!("{kind}timeout = 30\n"), 1)
        + "\n[hosts]\ntimeout = 60\n\n[policy]\nsoak = 0\ncanary_soak = 0\ngate_hold = 1\n"
}

/// Runs `stagger` as root on the master, which must succeed. Gives what it said.
fn on_node(cluster: &Cluster, stagger: &Path, words: &[&str]) -> Result<String> {
    let (stagger, state) = (stagger.display().to_string(), cluster.dir().join("state"));
    let state = state.display().to_string();
    let command = ["sh", "-c", INSTALLED, "sh", &stagger, "--state", &state];
    cluster.on("node1", &[&command[..], words].concat())
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn what_is_written_on_a_node_carries_a_run() -> Result<()> {
    case(3, "what_is_written_on_a_node_carries_a_run", |cluster, phases| {
        cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        // Of the machine's files a node sees nothing but the cluster's folder.
        let stagger = cluster.dir().join("stagger");
        fs::copy(binary()?, &stagger).with_context(|| format!("copying {}", stagger.display()))?;
        let config = cluster.dir().join("stagger.toml").display().to_string();
        let said = on_node(cluster, &stagger, &["ganeti", "init", "--out", &config])?;
        say(&said);
        for sentence in [
            "wrote /etc/stagger/rapi-password: the password of stagger, from /var/lib/ganeti/rapi/users",
            "ssh reaches root@node1",
            "ssh reaches root@node2",
            "ssh reaches root@node3",
            "3 nodes; its master is node1",
        ] {
            ensure!(said.contains(sentence), "it did not say {sentence:?}");
        }
        let password = cluster.dir().join("node1/installed/etc/stagger/rapi-password");
        let kept =
            fs::read_to_string(&password).with_context(|| format!("reading {}", password.display()))?;
        let mode = fs::metadata(&password)?.permissions().mode() & 0o777;
        ensure!(
            kept.trim() == OPERATOR.1 && mode == 0o600,
            "{kept:?} with mode {mode:o}"
        );
        let text = fs::read_to_string(&config).with_context(|| format!("reading {config}"))?;
        say(&text);
        for part in [
            "name = \"cluster\"",
            "user = \"stagger\"",
            "\"node1\"",
            "\"node2\"",
            "\"node3\"",
        ] {
            ensure!(text.contains(part), "no {part}");
        }
        phases.lap("written, and found to be good");
        // The reboot and the pause of the watcher are commands of that file.
        fs::write(&config, in_a_hurry(&text)).with_context(|| format!("writing {config}"))?;
        let words = ["--config", &config, "run", "reboot", "--nodes", "node2", "--yes"];
        say(on_node(cluster, &stagger, &words)?);
        phases.lap("rebooted with it");
        ensure_none_powercycled(cluster)?;
        cluster.ensure_rebooted(&before, &["node2"])
    })
}
