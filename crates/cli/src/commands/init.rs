//! `config init`: a first configuration, filled in from the cluster's own answers.
//!
//! Queries are apart from the output: [`ceph`], [`ganeti::configuration`] and [`ironic`] are pure.

pub(crate) mod ganeti;
mod rapi_user;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use stagger_ceph::memory::hosts_of;
use stagger_engine::hosts::Hosts;
use stagger_ironic::client::conductors_at;

use crate::args::{Cli, InitArgs, InitKind};
use crate::clusters::ClusterHandle;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// `config init`
pub(crate) async fn init(cli: &Cli, args: &InitArgs) -> Result<Exit, CliError> {
    let text = match args.kind {
        InitKind::Ceph => ceph(&ask_ceph(args).await?),
        InitKind::Ganeti => {
            let found = ganeti::ask(args.address.as_deref(), args.name.as_deref()).await?;
            ganeti::configuration(&found)
        }
        InitKind::Ironic => ironic(&ask_ironic(args).await?),
    };
    let Some(file) = &args.out else {
        print::data_line(text.trim_end());
        return Ok(Exit::Done);
    };
    write_new(file, &text)?;
    let config = match &cli.config {
        Some(_) => String::new(),
        None if file == Path::new("stagger.toml") => String::new(),
        None => format!(" --config {}", file.display()),
    };
    print::status_line(&format!(
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

fn address(args: &InitArgs) -> Result<&str, CliError> {
    args.address.as_deref().ok_or_else(|| {
        CliError::usage("where the cluster answers is not given")
            .hint("--address HOST for Ganeti, --address http://HOST:6385 for Ironic")
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
    /// Images, by cephadm.
    Cephadm,
    Dnf,
    #[default]
    Unknown,
}

async fn ask_ceph(args: &InitArgs) -> Result<FoundCeph, CliError> {
    let ceph = ClusterHandle::by_default_program("ceph")?;
    let facts = ceph.source.facts().await?;
    let by_unit = hosts_of(&facts);
    let hosts: BTreeSet<String> = by_unit.values().cloned().collect();
    let here = stagger_engine::supervisor::Identity::current_process().host;
    let is_here = hosts.iter().all(|host| *host == here);
    let shell = if is_here { Vec::new() } else { ssh() };
    let orchestrator = facts.orchestrator.get().and_then(Option::as_deref);
    let mut packages = match orchestrator {
        Some("cephadm") => Packages::Cephadm,
        _ => Packages::Unknown,
    };
    for host in hosts.iter().take(3) {
        if packages != Packages::Unknown {
            break;
        }
        let asked = Hosts {
            shell: shell.clone(),
            ..Hosts::default()
        };
        let question = "command -v apt-get || command -v dnf";
        match asked.ask(host, question).await {
            Ok(ran) if ran.output.ends_with("apt-get") => packages = Packages::Apt,
            Ok(ran) if ran.output.ends_with("dnf") => packages = Packages::Dnf,
            Ok(_) => {}
            Err(error) => print::status_line(&format!("{error}: its packages are not known")),
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
    match found.packages {
        Packages::Apt => text.push_str(
            "# Packages of Debian, or of whoever builds them in the same way. One package of Ceph means all of a host's, and what they \
             depend on:\n# `stagger config show` prints the commands, and each can be given here: [software.all] upgrade = ...\n\
             [software]\nprofile = \"debian\"\n",
        ),
        Packages::Cephadm => text.push_str(
            "# cephadm manages this cluster: images are pulled, and daemons restarted from them, as cephadm would; see `stagger config \
             show`.\n[software]\nprofile = \"cephadm\"\n# image = \"quay.io/ceph/ceph:v{release}\"   # of a registry of your own\n",
        ),
        Packages::Dnf => commands(&mut text, found, |package| {
            format!("dnf -y update '{package}-{{release}}*'")
        }),
        Packages::Unknown => commands(&mut text, found, |package| {
            format!("echo 'install {package} {{release}} here'; exit 1")
        }),
    }
    text
}

/// Commands for hosts of which no profile is known. `install`: what installs a package.
fn commands(text: &mut String, found: &FoundCeph, install: impl Fn(&str) -> String) {
    text.push_str(
        "# `upgrade` makes {release} what the next start runs and restarts nothing; `restart` stops and starts the daemon.\n\
         # Packages of Ceph share files: see that yours restart no daemon by themselves.\n",
    );
    let _ = writeln!(text, "[software.all]\nupgrade = {:?}", install("ceph-{kind}"));
    // What can be installed: of `--to 20` the newest, and `config check --to` looks for the release.
    if found.packages == Packages::Dnf {
        text.push_str("versions = \"dnf -q --showduplicates list ceph-base\"\n");
    }
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
}

/// What was found of an Ironic.
#[derive(Debug)]
struct FoundIronic {
    name: String,
    endpoint: String,
    /// What its API lists, or why not.
    conductors: Result<Vec<String>, String>,
}

async fn ask_ironic(args: &InitArgs) -> Result<FoundIronic, CliError> {
    let endpoint = address(args)?;
    let token = std::env::var("OS_TOKEN").ok();
    Ok(FoundIronic {
        name: args.name.clone().unwrap_or_else(|| "ironic".to_owned()),
        endpoint: endpoint.to_owned(),
        conductors: conductors_at(endpoint, token.as_deref())
            .await
            .map(|found| found.into_keys().collect()),
    })
}

fn ironic(found: &FoundIronic) -> String {
    let FoundIronic {
        name,
        endpoint,
        conductors,
    } = found;
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
         \n",
    );
    text.push_str(&sections_of(conductors));
    text.push_str(
        "[[cluster.apis]]\n\
         name = \"a1\"\n\
         host = \"h1\"\n\
         url = \"http://10.0.1.1:6385\"\n\
         servers = [\"api/a1\"]\n\
         \n\
         [cluster.tools]\n\
         host = \"h1\"\n\
         backup = \"echo 'save the database of Ironic here, or write backup = none'; exit 1\"\n\
         # python = \"/opt/ironic-{release}/bin/python3\"        # asked what the new release lists: pins, its schema\n\
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

/// The sections of conductors.
fn sections_of(conductors: &Result<Vec<String>, String>) -> String {
    let section = |text: &mut String, name: &str, host: &str, registered: &str| {
        let _ = writeln!(
            text,
            "[[cluster.conductors]]\nname = {name:?}\nhost = {host:?}\nregistered = {registered:?}\n\
             servers = [\"rpc1/{name}\", \"rpc2/{name}\"]\n"
        );
    };
    let mut text = String::new();
    match conductors {
        Ok(found) if !found.is_empty() => {
            text.push_str("# Each conductor that the API lists. See that `host` is reached, and name its places at the balancer.\n");
            for (at, registered) in (1..).zip(found) {
                let host = registered.split(':').next().unwrap_or(registered);
                section(&mut text, &format!("c{at}"), host, registered);
            }
        }
        unknown => {
            text.push_str(
                "# Each conductor, as `GET /v1/conductors` lists it, and its places at the balancer.\n",
            );
            if let Err(why) = unknown {
                let _ = writeln!(
                    text,
                    "# It was asked, and did not answer: {}",
                    why.replace('\n', " ")
                );
            }
            section(&mut text, "c1", "h1", "10.0.1.1");
        }
    }
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

    /// The configuration, each command of which can be read by a shell.
    fn taken(text: &str) -> config::Config {
        let config = config::parse(text, Path::new("stagger.toml"))
            .unwrap_or_else(|error| panic!("{}\n{text}", error.text()));
        for template in config.templates() {
            let read = std::process::Command::new("sh")
                .args(["-n", "-c", &template.command])
                .output()
                .unwrap();
            assert!(read.status.success(), "{}: {}", template.key, template.command);
        }
        config
    }

    #[test]
    fn what_is_written_for_a_ceph_is_taken() {
        for packages in [Packages::Apt, Packages::Cephadm, Packages::Dnf, Packages::Unknown] {
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
        for is_node in [false, true] {
            let found = ganeti::FoundGaneti {
                name: "gnt".to_owned(),
                addresses: vec!["gnt.example.org".to_owned()],
                fingerprint: "AB:".repeat(31) + "AB",
                user: is_node.then(|| "admin".to_owned()),
                ssh: is_node.then(|| ganeti::ssh_of("gnt.example.org")),
            };
            let settings = taken(&ganeti::configuration(&found)).ganeti().unwrap();
            let visits = &settings.cluster.visits;
            assert_eq!(visits.failover.is_some() && visits.watcher.is_some(), is_node);
            assert_eq!(visits.copy_journal.is_some(), is_node);
            let reboot = visits.reboot.clone().unwrap_or_default();
            assert_eq!(
                reboot.contains("-oHostKeyAlias=gnt.example.org root@{node}"),
                is_node,
                "{reboot}"
            );
        }
        for conductors in [
            Err("401:\nno token".to_owned()),
            Ok(Vec::new()),
            Ok(["a", "b"].map(str::to_owned).to_vec()),
        ] {
            let count = conductors.as_ref().map_or(1, |found| found.len().max(1));
            let found = FoundIronic {
                name: "bm".to_owned(),
                endpoint: "http://10.0.0.1:6385".to_owned(),
                conductors,
            };
            let settings = taken(&ironic(&found)).ironic().unwrap();
            assert_eq!(settings.cluster.conductors.len(), count);
        }
    }
}
