//! Holds a real Ceph cluster open, to be looked at and worked on by hand.
//!
//! It ends, and everything with it, when its stdin closes or on Ctrl-C.
//! Figures of the load come only when stdin closes: nothing is left to ask after Ctrl-C.

use std::io::{Read as _, stdin};

use anyhow::Result;
use clap::Parser;
use stagger_e2e::ceph::{CephSpec, Cluster};
use stagger_e2e::command::say;
use stagger_e2e::load::Load;
use stagger_e2e::roots::Release;

/// Boots a throwaway Ceph cluster and holds it until stdin closes or Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// The release to begin with: 16, 18 or 20.
    #[arg(long, default_value = "16")]
    release: Release,
    /// Releases to which it can be moved.
    #[arg(long, value_delimiter = ',', default_value = "16,18,20")]
    releases: Vec<Release>,
    /// How many OSDs, on 12 hosts in 3 racks.
    #[arg(long, default_value_t = CephSpec::default().osds)]
    osds: u32,
    /// Two data centres in stretch mode instead: 12 OSDs on 6 hosts, 5 monitors.
    #[arg(long, conflicts_with = "osds")]
    stretch: bool,
    /// Run clients with load all the while, tell of failures, and print their figures at the end.
    #[arg(long)]
    load: bool,
    /// Leave the cluster's folder (stores, logs) when it ends.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let spec = if args.stretch {
        CephSpec::stretched()
    } else {
        CephSpec {
            osds: args.osds,
            ..CephSpec::default()
        }
    };
    let cluster = Cluster::boot_with(args.release, spec, &args.releases)?;
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
    say(format!("any command {dir}/enter COMMAND…"));
    say(format!("ceph        {dir}/ceph status"));
    say(format!(
        "daemons     {dir}/enter {dir}/daemonctl use|start|stop|restart|status|release|plain-wal|rebuild KIND ID [RELEASE]"
    ));
    let load = args.load.then(|| Load::start(&cluster)).transpose()?;
    say("It ends when stdin closes, or on Ctrl-C.");
    let mut buffer = [0_u8; 256];
    while stdin().read(&mut buffer)? > 0 {}
    if let Some(load) = load {
        say(format!("{}", load.stop()?));
    }
    cluster.stop(args.keep)
}
