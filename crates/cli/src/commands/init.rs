//! `config init`: a first configuration, with what the cluster says of itself filled in.
//!
//! Asking is apart from writing: [`ceph`], [`ganeti`] and [`ironic`] are pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use stagger_ceph::backend::hosts_of;
use stagger_engine::hosts::Hosts;
use stagger_ganeti::executor::fingerprint::presented_fingerprint;

use crate::args::{Cli, Init, InitKind};
use crate::clusters::ceph::Source;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// `config init`
pub(crate) async fn init(cli: &Cli, args: &Init) -> Result<Exit, CliError> {
    let text = match args.kind {
        InitKind::Ceph => ceph(&ask_ceph(args).await?),
        InitKind::Ganeti => ganeti(&ask_ganeti(args).await?),
        InitKind::Ironic => ironic(args.name.as_deref().unwrap_or("ironic"), address(args)?),
    };
    let Some(file) = &args.out else {
        print::out(text.trim_end());
        return Ok(Exit::Done);
    };
    write_new(file, &text)?;
    let config = match &cli.config {
        Some(_) => String::new(),
        None if file == Path::new("stagger.toml") => String::new(),
        None => format!(" --config {}", file.display()),
    };
    print::talk(&format!(
        "wrote {}\nNext: read it, then `stagger{config} config check`",
        file.display()
    ));
    Ok(Exit::Done)
}

/// What somebody has written is not written over.
fn write_new(file: &Path, text: &str) -> Result<(), CliError> {
    use std::io::Write as _;
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes()))
        .map_err(|error| CliError::usage(format!("write {}: {error}", file.display())))
}

fn address(args: &Init) -> Result<&str, CliError> {
    args.address.as_deref().ok_or_else(|| {
        CliError::usage("where the cluster answers is not given")
            .hint("--address HOST for a Ganeti, --address http://HOST:6385 for an Ironic")
    })
}

/// What was found of a Ceph.
#[derive(Debug, Default)]
struct FoundCeph {
    name: String,
    /// The hosts of its daemons.
    hosts: BTreeSet<String>,
    /// Whether all of them are this machine.
    is_here: bool,
    /// The kinds of its daemons.
    kinds: BTreeSet<String>,
    packages: Packages,
}

/// How software comes to a host.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Packages {
    Apt,
    Dnf,
    #[default]
    Unknown,
}

async fn ask_ceph(args: &Init) -> Result<FoundCeph, CliError> {
    let source = Source::by_the_usual_way("ceph")?;
    let facts = source.facts().await?;
    let by_unit = hosts_of(&facts);
    let hosts: BTreeSet<String> = by_unit.values().cloned().collect();
    let here = stagger_engine::supervisor::Identity::of_this_process().host;
    let is_here = hosts.iter().all(|host| *host == here);
    let shell = if is_here { Vec::new() } else { ssh() };
    let mut packages = Packages::Unknown;
    for host in hosts.iter().take(3) {
        let asked = Hosts {
            shell: shell.clone(),
            ..Hosts::default()
        };
        let question = "command -v apt-get || command -v dnf";
        match asked.ask(host, question).await {
            Ok(ran) if ran.output.ends_with("apt-get") => packages = Packages::Apt,
            Ok(ran) if ran.output.ends_with("dnf") => packages = Packages::Dnf,
            Ok(_) => {}
            Err(error) => print::talk(&format!("{error}: its packages are not known")),
        }
        if packages != Packages::Unknown {
            break;
        }
    }
    let kinds = by_unit.keys().filter_map(|unit| unit.as_str().split_once('.'));
    let short = facts
        .fsid
        .as_str()
        .split('-')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(FoundCeph {
        name: args.name.clone().unwrap_or_else(|| format!("ceph-{short}")),
        kinds: kinds.map(|(kind, _)| kind.to_owned()).collect(),
        hosts,
        is_here,
        packages,
    })
}

fn ssh() -> Vec<String> {
    let words = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=15",
        "--",
        "{host}",
        "sh",
        "-s",
    ];
    words.map(str::to_owned).to_vec()
}

fn ceph(found: &FoundCeph) -> String {
    let mut text = head("docs/guides/ceph.md");
    let _ = writeln!(text, "[cluster]\nkind = \"ceph\"\nname = {:?}", found.name);
    text.push_str(
        "# ceph = [\"ssh\", \"admin1\", \"ceph\"]   # where `ceph` is not to be had on this machine\n\
         # user = \"client.admin\"\n\
         \n\
         [policy]\n\
         # max_in_parallel = \"15%\"             # a count, or a percentage of all of a kind\n\
         # doors = { auto-after = 3600 }       # pass points of no return by itself, after so many seconds\n\
         # [[policy.windows]]                  # when a wave may start\n\n",
    );
    let hosts: Vec<&str> = found.hosts.iter().map(String::as_str).collect();
    let _ = writeln!(text, "# {} hosts: {}", hosts.len(), hosts.join(", "));
    if found.is_here {
        text.push_str("# All daemons run on this machine, so commands run here.\n[hosts]\n# shell = ");
    } else {
        text.push_str("[hosts]\nshell = ");
    }
    let words: Vec<String> = ssh().iter().map(|word| format!("{word:?}")).collect();
    let _ = writeln!(text, "[{}]\n", words.join(", "));
    text.push_str(
        "# `upgrade` makes {release} what the next start runs and restarts nothing; `restart` stops and starts the daemon.\n\
         # Packages of Ceph share files: see that yours restart no daemon by themselves.\n",
    );
    let install = |package: &str| match found.packages {
        Packages::Apt => {
            format!("apt-get -o DPkg::Lock::Timeout=600 install -y --only-upgrade '{package}={{release}}*'")
        }
        Packages::Dnf => format!("dnf -y update '{package}-{{release}}*'"),
        Packages::Unknown => format!("echo 'install {package} {{release}} here'; exit 1"),
    };
    let _ = writeln!(text, "[software.all]\nupgrade = {:?}", install("ceph-{kind}"));
    text.push_str(
        "restart = \"systemctl reset-failed 'ceph-{kind}@{id}'; systemctl restart 'ceph-{kind}@{id}'\"\n\
         logs = \"journalctl --no-pager -n 500 -u 'ceph-{kind}@{id}'\"\n",
    );
    if found.kinds.contains("rgw") {
        let _ = writeln!(
            text,
            "\n[software.rgw]\nupgrade = {:?}\nrestart = \"systemctl restart 'ceph-radosgw@rgw.{{id}}'\"",
            install("radosgw")
        );
    }
    text
}

/// What was found of a Ganeti.
#[derive(Debug)]
struct FoundGaneti {
    name: String,
    address: String,
    fingerprint: String,
}

async fn ask_ganeti(args: &Init) -> Result<FoundGaneti, CliError> {
    let address = address(args)?;
    let fingerprint = presented_fingerprint(address).await?;
    let host = address.trim_start_matches("https://");
    let host = host.split([':', '/']).next().unwrap_or(host);
    Ok(FoundGaneti {
        name: args.name.clone().unwrap_or_else(|| host.to_owned()),
        address: address.to_owned(),
        fingerprint,
    })
}

fn ganeti(found: &FoundGaneti) -> String {
    let mut text = head("docs/reference/ganeti.md");
    let FoundGaneti {
        name,
        address,
        fingerprint,
    } = found;
    let _ = writeln!(
        text,
        "[cluster]\nkind = \"ganeti\"\nname = {name:?}\naddresses = [{address:?}]   # better: every node that may be master\n\
         # What answered there presented this certificate. Compare it on the master:\n\
         # openssl x509 -in /var/lib/ganeti/rapi.pem -noout -fingerprint -sha256\n\
         fingerprint = {fingerprint:?}"
    );
    text.push_str(
        "user = \"stagger\"                       # with `write` in ganeti-rapi's file of users\n\
         password_file = \"/etc/stagger/rapi-password\"   # its first line; nobody else may read it\n\
         \n\
         [cluster.visits]\n\
         # Nodes are rebooted cleanly, by ssh through the master; this is another way. RAPI's own, which syncs no disks: \"powercycle\".\n\
         # reboot = \"ssh root@{node} systemctl reboot\"\n\
         # The master is left alone unless there is a command that makes another one:\n\
         # failover = \"ssh root@{successor} gnt-cluster master-failover --yes-do-it\"\n\
         # relocate = \"ssh root@{master} gnt-instance move -f --reason={reason} -n {node} {instance}\"\n\
         \n\
         # [cluster.visits.watcher]\n\
         # pause = \"ssh root@{master} gnt-cluster watcher pause {seconds}\"\n\
         # continue = \"ssh root@{master} gnt-cluster watcher continue\"\n\
         # info = \"ssh root@{master} gnt-cluster watcher info\"\n",
    );
    text
}

fn ironic(name: &str, endpoint: &str) -> String {
    let mut text = head("docs/guides/ironic.md");
    let _ = writeln!(
        text,
        "[cluster]\nkind = \"ironic\"\nname = {name:?}\nendpoint = {endpoint:?}"
    );
    text.push_str(
        "# token = \"openstack token issue -f value -c id\"      # not needed with noauth\n\
         database = \"mysql://reader:{password}@db/ironic\"      # read only; postgres:// too\n\
         ours = \"mysql://stagger:{password}@db/stagger\"        # the lock, and what was installed where\n\
         password_file = \"/etc/stagger/db-password\"\n\
         installed = \"29.0.6\"                                  # what runs now: `ironic-conductor --version`\n\
         \n\
         [cluster.commands]\n\
         install = \"echo 'install {release} of {service} here, without a restart'; exit 1\"\n\
         write_pin = \"printf '[DEFAULT]\\\\npin_release_version = %s\\\\n' {pin} > /etc/ironic/{service}-pin.conf\"\n\
         remove_pin = \": > /etc/ironic/{service}-pin.conf\"\n\
         read_pin = \"sed -n 's/^pin_release_version *= *//p' /etc/ironic/{service}-pin.conf\"\n\
         stop = \"systemctl stop ironic-{kind}\"\n\
         start = \"systemctl start ironic-{kind}\"\n\
         logs = \"journalctl --no-pager -n 500 -u ironic-{kind}\"\n\
         \n\
         # Each conductor, as `GET /v1/conductors` lists it, and its places at the balancer.\n\
         [[cluster.conductors]]\n\
         name = \"c1\"\n\
         host = \"h1\"\n\
         registered = \"10.0.1.1\"\n\
         servers = [\"rpc1/c1\", \"rpc2/c1\"]\n\
         \n\
         [[cluster.apis]]\n\
         name = \"a1\"\n\
         host = \"h1\"\n\
         url = \"http://10.0.1.1:6385\"\n\
         servers = [\"api/a1\"]\n\
         \n\
         [cluster.tools]\n\
         host = \"h1\"\n\
         schema = \"ironic-dbsync upgrade\"\n\
         migrate = \"ironic-dbsync online_data_migrations --max-count {count}\"\n\
         \n\
         [cluster.balancer]\n\
         host = \"lb1\"\n\
         show = \"echo 'show stat' | socat - /run/haproxy/admin.sock\"\n\
         set = \"echo 'set server {backend}/{server} state {state}' | socat - /run/haproxy/admin.sock\"\n\
         \n",
    );
    let words: Vec<String> = ssh().iter().map(|word| format!("{word:?}")).collect();
    let _ = writeln!(text, "[hosts]\nshell = [{}]", words.join(", "));
    text
}

fn head(guide: &str) -> String {
    format!(
        "# Written by `stagger config init` of stagger {}. {guide} shows every key.\n\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn taken(text: &str) -> config::Config {
        config::parse(text, Path::new("stagger.toml"))
            .unwrap_or_else(|error| panic!("{}\n{text}", error.text()))
    }

    #[test]
    fn what_is_written_for_a_ceph_is_taken() {
        for packages in [Packages::Apt, Packages::Dnf, Packages::Unknown] {
            for is_here in [true, false] {
                let found = FoundCeph {
                    name: "prod".to_owned(),
                    hosts: ["n1", "n2"].map(str::to_owned).into(),
                    is_here,
                    kinds: ["mon", "rgw"].map(str::to_owned).into(),
                    packages,
                };
                let settings = taken(&ceph(&found)).ceph().unwrap();
                assert_eq!(settings.hosts.shell.is_empty(), is_here);
                for kind in ["mon", "rgw"] {
                    let software = settings.software.of(kind);
                    assert!(
                        software.upgrade.is_some() && software.restart.is_some() && software.logs.is_some()
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_written_for_a_ganeti_or_an_ironic_is_taken() {
        let found = FoundGaneti {
            name: "gnt".to_owned(),
            address: "gnt.example.org".to_owned(),
            fingerprint: "AB:".repeat(31) + "AB",
        };
        taken(&ganeti(&found)).ganeti().unwrap();
        taken(&ironic("bm", "http://10.0.0.1:6385")).ironic().unwrap();
    }
}
