//! A first configuration of a Ganeti: from its address, or from what Ganeti itself keeps on each of its nodes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stagger_ganeti::fingerprint::presented_fingerprint;

use super::{head, write_new};
use crate::args::{self, Cli, GanetiInit};
use crate::commands::preflight;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Where Ganeti keeps what each node knows of the cluster, and who may use RAPI (`pathutils.DATA_DIR`, `RAPI_USERS_FILE`).
const DATA: &str = "/var/lib/ganeti";
const USERS: &str = "/var/lib/ganeti/rapi/users";
/// Where the password is read from, if nothing else is said.
const PASSWORD: &str = "/etc/stagger/rapi-password";

/// What was found of a Ganeti.
#[derive(Debug, Default)]
pub(super) struct FoundGaneti {
    pub(super) name: String,
    /// Every node that may be master, or the address that was given.
    pub(super) addresses: Vec<String>,
    pub(super) fingerprint: String,
    /// Who may write by RAPI, where that can be read.
    pub(super) user: Option<String>,
    /// Whether this machine is one of its nodes, from which root reaches the others by ssh.
    pub(super) is_node: bool,
}

/// What a node knows of its cluster.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    cluster: String,
    candidates: Vec<String>,
}

/// What this machine knows, if it is a node.
fn node(data: &Path) -> Option<Node> {
    let of = |key: &str| std::fs::read_to_string(data.join(format!("ssconf_{key}"))).ok();
    let cluster = of("cluster_name")?.trim().to_owned();
    let list = of("master_candidates").or_else(|| of("master_node"))?;
    let candidates: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    (!cluster.is_empty() && !candidates.is_empty()).then_some(Node { cluster, candidates })
}

/// The users with `write` in ganeti-rapi's file: a name, a password or its digest, and options in each line.
fn writers(users: &str) -> Vec<String> {
    let lines = users.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let mut options = words.skip(1).flat_map(|word| word.split(','));
            options.any(|option| option == "write").then(|| name.to_owned())
        })
        .collect()
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
            .and_then(|users| writers(&users).into_iter().next()),
        is_node: here.is_some() && address.is_none(),
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
        is_node,
    } = found;
    let better = if *is_node {
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
         password_file = {PASSWORD:?}   # its first line; nobody else may read it",
        user.as_deref().unwrap_or("stagger"),
    );
    let hash = if *is_node { "" } else { "# " };
    let _ = write!(
        text,
        "\n[cluster.visits]\n\
         # By ssh, as Ganeti itself reaches its nodes. RAPI's powercycle does not sync disks.\n\
         {hash}reboot = \"ssh root@{{node}} systemctl reboot\"\n\
         # The master is left alone unless there is a command that makes another one:\n\
         {hash}failover = \"ssh root@{{successor}} gnt-cluster master-failover\"\n\
         # relocate = \"ssh root@{{master}} gnt-instance move -f --reason={{reason}} -n {{node}} {{instance}}\"\n\
         \n\
         {hash}[cluster.visits.watcher]\n\
         {hash}pause = \"ssh root@{{master}} gnt-cluster watcher pause {{seconds}}\"\n\
         {hash}continue = \"ssh root@{{master}} gnt-cluster watcher continue\"\n\
         {hash}info = \"ssh root@{{master}} gnt-cluster watcher info\"\n"
    );
    text
}

/// `ganeti init`: writes the configuration, and looks at once whether a run could begin with it.
pub(crate) async fn init(cli: &Cli, args: &GanetiInit) -> Result<Exit, CliError> {
    let found = ask(args.address.as_deref(), args.name.as_deref()).await?;
    let file = args.out.clone().unwrap_or_else(|| PathBuf::from("stagger.toml"));
    write_new(&file, &configuration(&found))?;
    print::talk(&format!("wrote {}", file.display()));
    if !Path::new(PASSWORD).exists() {
        let user = found.user.as_deref().unwrap_or("stagger");
        print::talk(&format!(
            "note: {PASSWORD} is missing: put the password of {user} there, with `chmod 600`; {USERS} on the master has a line `{user} \
             PASSWORD write`"
        ));
    }
    let checked = Cli {
        config: Some(file),
        state: cli.state.clone(),
        json: cli.json,
        command: args::Command::Config(args::Config::Check {
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
    }

    #[test]
    fn who_may_write_is_read_from_the_file_of_users() {
        let users = "# name password options\nlooker geheim\nmon {HA1}0123 read\nstagger x write\nboth y read,write\n";
        assert_eq!(writers(users), ["stagger", "both"]);
    }
}
