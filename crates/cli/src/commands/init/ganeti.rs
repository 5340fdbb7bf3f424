//! A first configuration of a Ganeti: from its address, or from the files that Ganeti keeps on each of its
//! nodes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stagger_engine::supervisor::Identity;
use stagger_ganeti::lock::same_host;
use stagger_ganeti::rapi::fingerprint::presented_fingerprint;

use super::rapi_user::{self, OURS, Password, chosen};
use super::{head, write_new};
use crate::args::{self, Cli, GanetiInitArgs};
use crate::commands::preflight;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Where Ganeti keeps what each node knows of the cluster, and who may use RAPI (`pathutils.DATA_DIR`, `RAPI_USERS_FILE`).
const DATA: &str = "/var/lib/ganeti";
const USERS: &str = "/var/lib/ganeti/rapi/users";
/// Where the password is read from, if nothing else is said.
const PASSWORD: &str = "/etc/stagger/rapi-password";

/// Where the units keep journals (`deploy/systemd`).
const STATE: &str = "/var/lib/stagger";

/// What was found of a Ganeti.
#[derive(Debug, Default)]
pub(super) struct FoundGaneti {
    pub(super) name: String,
    /// Every node that may be master, or the address that was given.
    pub(super) addresses: Vec<String>,
    pub(super) fingerprint: String,
    /// Who may write by RAPI, where that can be read.
    pub(super) user: Option<String>,
    /// By which command root reaches the nodes, as Ganeti itself does; `None`: this machine is none of its nodes.
    pub(super) ssh: Option<String>,
}

/// `ssh` as Ganeti calls it: the key of every host is known by the cluster's name (`ganeti/ssh.py`).
pub(super) fn ssh_of(cluster: &str) -> String {
    format!(
        "ssh -oBatchMode=yes -oConnectTimeout=10 -oGlobalKnownHostsFile={DATA}/known_hosts -oUserKnownHostsFile=/dev/null \
         -oHostKeyAlias={cluster}"
    )
}

/// What a node knows of its cluster.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    cluster: String,
    master: Option<String>,
    candidates: Vec<String>,
}

/// What this machine knows, if it is a node.
fn node(data: &Path) -> Option<Node> {
    let of = |key: &str| std::fs::read_to_string(data.join(format!("ssconf_{key}"))).ok();
    let cluster = of("cluster_name")?.trim().to_owned();
    let list = of("master_candidates").or_else(|| of("master_node"))?;
    let candidates: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    let master = of("master_node").map(|name| name.trim().to_owned());
    (!cluster.is_empty() && !candidates.is_empty()).then_some(Node {
        cluster,
        master,
        candidates,
    })
}

/// The master, if that is another node than this host.
fn other_master(node: Option<&Node>, host: &str) -> Option<String> {
    let master = node?.master.clone()?;
    (!same_host(&master, host)).then_some(master)
}

/// What is found at an address, or on this node.
pub(super) async fn ask(address: Option<&str>, name: Option<&str>) -> Result<FoundGaneti, CliError> {
    let here = node(Path::new(DATA));
    let addresses = match (address, &here) {
        (Some(address), _) => vec![address.to_owned()],
        (None, Some(node)) => node.candidates.clone(),
        (None, None) => {
            return Err(CliError::usage(format!(
                "where the cluster answers is not given, and this machine is none of its nodes: {DATA}/ssconf_cluster_name cannot \
                 be read"
            ))
            .hint("--address HOST, or as root on a node"));
        }
    };
    let mut unreached = None;
    let mut fingerprint = None;
    // All nodes have the same certificate.
    for address in &addresses {
        match presented_fingerprint(address).await {
            Ok(found) => {
                fingerprint = Some(found);
                break;
            }
            Err(error) => unreached = Some(error),
        }
    }
    let fingerprint = match (fingerprint, unreached) {
        (Some(fingerprint), _) => fingerprint,
        (None, Some(error)) => return Err(error.into()),
        (None, None) => return Err(CliError::usage("there is no address to ask")),
    };
    let given = address.map(|address| {
        let host = address.trim_start_matches("https://");
        host.split([':', '/']).next().unwrap_or(host).to_owned()
    });
    let cluster = here.as_ref().map(|node| node.cluster.clone());
    Ok(FoundGaneti {
        name: name.map(str::to_owned).or(given).or(cluster).unwrap_or_default(),
        user: here
            .as_ref()
            .and_then(|_| std::fs::read_to_string(USERS).ok())
            .and_then(|users| chosen(&users))
            .map(|writer| writer.name),
        ssh: here
            .as_ref()
            .filter(|_| address.is_none())
            .map(|node| ssh_of(&node.cluster)),
        addresses,
        fingerprint,
    })
}

/// The configuration.
pub(super) fn configuration(found: &FoundGaneti) -> String {
    let mut text = head("docs/reference/ganeti.md");
    let FoundGaneti {
        name,
        addresses,
        fingerprint,
        user,
        ssh,
    } = found;
    let better = if ssh.is_some() {
        ""
    } else {
        "   # better: every node that may be master"
    };
    let _ = writeln!(
        text,
        "[cluster]\nkind = \"ganeti\"\nname = {name:?}\naddresses = {addresses:?}{better}\n\
         # What answered there presented this certificate. Compare it on the master:\n\
         # openssl x509 -in /var/lib/ganeti/rapi.pem -noout -fingerprint -sha256\n\
         fingerprint = {fingerprint:?}\n\
         user = {:?}                       # with `write` in {USERS}\n\
         password_file = {PASSWORD:?}   # its first line; only its owner may read it",
        user.as_deref().unwrap_or("stagger"),
    );
    let hash = if ssh.is_some() { "" } else { "# " };
    let ssh = ssh.as_deref().unwrap_or("ssh");
    let _ = write!(
        text,
        "\n[cluster.visits]\n\
         # By ssh, as Ganeti itself reaches its nodes. RAPI's powercycle does not sync disks.\n\
         {hash}reboot = \"{ssh} root@{{node}} systemctl reboot\"\n\
         # The master is skipped unless there is a command that makes another node the master:\n\
         # The queue goes along: a node that was drained or down lacks jobs of that time, and as master it would not have them.\n\
         {hash}failover = \"{ssh} root@{{master}} 'cd {DATA}/queue && tar -c job-* serial' | {ssh} root@{{successor}} \
         'tar -x -C {DATA}/queue && gnt-cluster master-failover'\"\n\
         # Where stagger itself runs on the master: its journal goes to the next one, where the units look for it.\n\
         {hash}copy_journal = \"cd {{state}} && rm -f copy.db && stagger --state . db copy copy.db && mkdir -p artifacts && \
         tar -c copy.db artifacts | {ssh} root@{{successor}} 'mkdir -p -m 700 {STATE} && cd {STATE} && tar -x && rm -f journal.db* && \
         mv copy.db journal.db'\"\n\
         # relocate = \"{ssh} root@{{master}} gnt-instance move -f --reason={{reason}} -n {{node}} {{instance}}\"\n\
         \n\
         {hash}[cluster.visits.watcher]\n\
         {hash}pause = \"{ssh} root@{{master}} gnt-cluster watcher pause {{seconds}}\"\n\
         {hash}continue = \"{ssh} root@{{master}} gnt-cluster watcher continue\"\n\
         {hash}info = \"{ssh} root@{{master}} gnt-cluster watcher info\"\n"
    );
    text
}

/// What became of the password of RAPI's user, in words.
fn password_text(found: &FoundGaneti, password: Option<&Password>) -> String {
    let user = found.user.as_deref().unwrap_or(OURS);
    let missing = format!("note: {PASSWORD} is missing: put the password of {user} there, with `chmod 600`");
    match password {
        Some(Password::Kept) => format!("{PASSWORD} is there, and was left as it is"),
        Some(Password::Written) => format!("wrote {PASSWORD}: the password of {user}, from {USERS}"),
        Some(Password::Added) => format!(
            "added {user} to {USERS}, and wrote {PASSWORD}; `gnt-cluster redist-conf` copies the former to the other master candidates"
        ),
        Some(Password::Missing) => format!("{missing}; --make-user adds a user to {USERS} who may write"),
        None if Path::new(PASSWORD).exists() => format!("{PASSWORD} is there, and was left as it is"),
        None => format!("{missing}; {USERS} on the master has a line `{user} PASSWORD write`"),
    }
}

/// Whether root reaches a node by that command, in words.
async fn ssh_result(ssh: &str, node: &str) -> String {
    let asked = tokio::process::Command::new("sh")
        .args(["-c", &format!("{ssh} root@{node} true")])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    match asked {
        Ok(output) if output.status.success() => format!("ssh reaches root@{node}"),
        Ok(output) => format!(
            "note: ssh does not reach root@{node}, as commands of the configuration do: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => format!("note: ssh cannot be run: {error}"),
    }
}

/// `ganeti init`: writes the configuration, and looks at once whether a run could begin with it.
pub(crate) async fn init(cli: &Cli, args: &GanetiInitArgs) -> Result<Exit, CliError> {
    let mut found = ask(args.address.as_deref(), args.name.as_deref()).await?;
    if args.make_user && found.ssh.is_none() {
        return Err(
            CliError::usage("--make-user is for a node of the cluster, and this machine is none").hint(
                format!("as root on the master, or add a line `{OURS} PASSWORD write` to {USERS} there"),
            ),
        );
    }
    // RAPI reads that of the master, and `redist-conf` would write it over the others.
    if let Some(master) = other_master(node(Path::new(DATA)).as_ref(), &Identity::current_process().host)
        .filter(|_| args.make_user)
    {
        return Err(CliError::usage(format!(
            "--make-user adds to {USERS} of the master, which is {master}, and this machine is another node"
        ))
        .hint(format!("as root on {master}: `stagger ganeti init --make-user`")));
    }
    let password = found
        .ssh
        .is_some()
        .then(|| rapi_user::ensure(Path::new(USERS), Path::new(PASSWORD), args.make_user))
        .transpose()?;
    if password == Some(Password::Added) {
        found.user = Some(OURS.to_owned());
    }
    let file = args.out.clone().unwrap_or_else(|| PathBuf::from("stagger.toml"));
    write_new(&file, &configuration(&found))?;
    print::status_line(&format!("wrote {}", file.display()));
    print::status_line(&password_text(&found, password.as_ref()));
    if let Some(ssh) = &found.ssh {
        for node in &found.addresses {
            print::status_line(&ssh_result(ssh, node).await);
        }
    }
    let checked = Cli {
        config: Some(file),
        state: cli.state.clone(),
        json: cli.json,
        command: args::CliCommand::Config(args::ConfigCommand::Check {
            to: None,
            notify: false,
        }),
    };
    preflight::check(&checked, None, false).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_its_cluster_and_who_may_be_master() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(node(data.path()), None);
        std::fs::write(data.path().join("ssconf_cluster_name"), "gnt.example.org\n").unwrap();
        assert_eq!(node(data.path()), None);
        std::fs::write(
            data.path().join("ssconf_master_candidates"),
            "n1.example.org\nn2.example.org\n",
        )
        .unwrap();
        let known = node(data.path()).unwrap();
        assert_eq!(known.cluster, "gnt.example.org");
        assert_eq!(known.candidates, ["n1.example.org", "n2.example.org"]);
        // Who the master is need not be known; where it is, another node is not taken for it.
        assert_eq!(other_master(Some(&known), "n2"), None);
        std::fs::write(data.path().join("ssconf_master_node"), "n1.example.org\n").unwrap();
        let known = node(data.path());
        assert_eq!(
            other_master(known.as_ref(), "n2").as_deref(),
            Some("n1.example.org")
        );
        assert_eq!(other_master(known.as_ref(), "n1"), None);
        assert_eq!(other_master(None, "n1"), None);
    }
}
