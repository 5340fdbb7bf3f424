//! Makes a virtual Ganeti cluster, says how to work on it, and holds it open.

use std::io::{Read as _, stdin};

use anyhow::Result;
use clap::Parser;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, GanetiSpec, OPERATOR};

/// A real, throwaway Ganeti cluster of virtual nodes on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// How many nodes.
    #[arg(long, default_value_t = GanetiSpec::default().nodes)]
    nodes: u32,
    /// How fast DRBD devices are resynchronised, in MiB/s; 0 is at once.
    #[arg(long, default_value_t = GanetiSpec::default().sync_rate)]
    sync_rate: u32,
    /// Leave the cluster's folder (volumes, logs) when it ends.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Cluster::boot(GanetiSpec {
        nodes: args.nodes,
        sync_rate: args.sync_rate,
        ..GanetiSpec::default()
    })?;
    if args.keep {
        cluster.sandbox().keep_folder()?;
    }
    for lap in cluster.laps() {
        say(format!("{:6.1} s  {}", lap.until.as_secs_f64(), lap.part));
    }
    let dir = cluster.dir().display();
    say(format!("folder      {dir}"));
    say(format!("memory      {} MB", cluster.memory()? >> 20));
    say(format!("inside      {}", cluster.sandbox().prefix().join(" ")));
    say(format!("a command   {dir}/node node1 run gnt-node list"));
    say(format!("power       {dir}/node node2 reboot|crash|start|status"));
    say(format!("ssh         {dir}/ssh root@node2 gnt-cluster getmaster"));
    say(format!(
        "remote API  {} as {} with {}, inside",
        cluster.rapi_url(),
        OPERATOR.0,
        cluster.ca().display()
    ));
    say("It ends when stdin closes, or on Ctrl-C.");
    let mut buffer = [0_u8; 256];
    while stdin().read(&mut buffer)? > 0 {}
    cluster.ensure_machine_untouched()?;
    cluster.stop(args.keep)
}
