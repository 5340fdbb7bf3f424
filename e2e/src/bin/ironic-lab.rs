//! Makes an Ironic with two conductors and two APIs, says how to work on it, and holds it open.
//!
//! Figures of the load come only when stdin closes: nothing is left to ask after Ctrl-C.

use std::io::{Read as _, stdin};

use anyhow::Result;
use clap::Parser;
use stagger_e2e::command::{say, shown};
use stagger_e2e::ironic::{API_PORT, Cluster, DATABASE, DATABASE_READER, IronicSpec, Load, Release};
use stagger_e2e::stagger::{Doors, IronicSetup, Machine};

/// A real, throwaway Ironic with fake hardware on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// The release to begin with: 26.1, 29.0 or 32.0; with `--later` 29.0, 35.0, 36.0 or 39.0.
    #[arg(long, default_value_t = IronicSpec::default().release)]
    release: Release,
    /// Have the later releases in its root.
    #[arg(long)]
    later: bool,
    /// Run clients with load all the while, and print their figures at the end.
    #[arg(long)]
    load: bool,
    /// Leave the cluster's folder (database, logs) when it ends.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Cluster::boot(IronicSpec {
        release: args.release,
        releases: if args.later {
            &Release::LATER
        } else {
            &Release::USUAL
        },
        ..IronicSpec::default()
    })?;
    if args.keep {
        cluster.sandbox().keep_folder()?;
    }
    for lap in cluster.laps() {
        say(format!("{:6.1} s  {}", lap.until.as_secs_f64(), lap.part));
    }
    let dir = cluster.dir().display();
    let (reader, password) = DATABASE_READER;
    say(format!("folder      {dir}"));
    say(format!("memory      {} MB", cluster.memory()? >> 20));
    say(format!("inside      {}", cluster.sandbox().prefix().join(" ")));
    say(format!("any command {dir}/enter COMMAND…"));
    say(format!(
        "API         {dir}/enter curl http://127.0.0.1:{API_PORT}/v1/nodes"
    ));
    say(format!(
        "database    {dir}/enter mariadb -h 127.0.0.1 -u {reader} -p{password} {DATABASE}"
    ));
    say(format!(
        "services    {dir}/ironicctl c1|c2|a1|a2 drain|stop|install|pin|start|give-back|status"
    ));
    say(format!("balancer    {dir}/ironicctl balancer ask show stat"));
    // It goes without, where the program was not built.
    let setup = IronicSetup {
        doors: Doors::Ask,
        ..IronicSetup::default()
    };
    match Machine::new(&cluster, "you", &setup) {
        Ok(machine) => say(format!("stagger     {}", shown(&machine.command(&["versions"])))),
        Err(error) => say(format!("stagger     {error:#}")),
    }
    let load = args.load.then(|| Load::start(&cluster)).transpose()?;
    say("It ends when stdin closes, or on Ctrl-C.");
    let mut buffer = [0_u8; 256];
    while stdin().read(&mut buffer)? > 0 {}
    if let Some(load) = load {
        let report = load.stop()?;
        say(format!("{report}"));
        let log = cluster.log()?;
        let judged = report.judge(&log);
        say(format!(
            "Ironic's own: {:?}; ours: {}",
            judged.defects(),
            judged.ours.len()
        ));
    }
    cluster.stop(args.keep)
}
