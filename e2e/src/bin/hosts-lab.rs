//! Boots hosts with systemd, sshd and Debian's packages of Ceph, says how to work on them, and holds them open.

use std::io::{Read as _, stdin};

use anyhow::Result;
use clap::Parser;
use stagger_e2e::command::say;
use stagger_e2e::package_hosts::root::Repository;
use stagger_e2e::package_hosts::{Cluster, HostsSpec};

/// A real, throwaway Ceph cluster on hosts of its own on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// How many hosts. The first three have a monitor, the first two a manager.
    #[arg(long, default_value_t = HostsSpec::default().hosts)]
    hosts: u32,
    /// How many OSDs each has.
    #[arg(long, default_value_t = HostsSpec::default().osds_per_host)]
    osds_per_host: u32,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Cluster::boot(HostsSpec {
        hosts: args.hosts,
        osds_per_host: args.osds_per_host,
        ..HostsSpec::default()
    })?;
    say(format!("healthy     after {:.1} s", cluster.took().as_secs_f64()));
    let dir = cluster.dir().display();
    say(format!("folder      {dir}"));
    say(format!("a command   {dir}/ssh h1 ceph status"));
    say(format!("a reboot    {dir}/ssh h2 systemctl reboot"));
    for repository in [Repository::Patched, Repository::Next] {
        let version = cluster.root().version(repository)?;
        say(format!("to install  {version}: {}", repository.source()));
    }
    say("It ends when stdin closes, or on Ctrl-C.");
    let mut buffer = [0_u8; 256];
    while stdin().read(&mut buffer)? > 0 {}
    cluster.stop()
}
