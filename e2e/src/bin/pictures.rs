//! Makes the pictures that the README and the guides show, of a real upgrade: a Ceph of 24 OSDs goes from 18 to 20.

use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use stagger_e2e::ceph::{CephSpec, Cluster};
use stagger_e2e::command::say;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Setup};
use stagger_e2e::terminal::Terminal;
use stagger_e2e::verify;

/// A terminal that fits a page.
const COLUMNS: NonZeroU16 = NonZeroU16::new(104).expect("a size");
/// As many rows as the plan has, and more.
const PLAN: NonZeroU16 = NonZeroU16::new(80).expect("a size");
const SCREEN: NonZeroU16 = NonZeroU16::new(36).expect("a size");

const SOON: Duration = Duration::from_secs(30);
const UPGRADE: Duration = Duration::from_mins(15);

#[derive(Debug, Parser)]
struct Args {
    /// The folder of the pictures.
    folder: PathBuf,
}

fn main() -> Result<()> {
    let Args { folder } = Args::parse();
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    say("a Ceph 18 is started");
    let cluster = Cluster::boot_with(
        Release::Reef,
        CephSpec::default(),
        &[Release::Reef, Release::Tentacle],
    )?;
    let made = pictures(&cluster, &folder);
    let stopped = cluster.stop(false);
    made?;
    stopped
}

fn pictures(cluster: &Cluster, folder: &Path) -> Result<()> {
    let setup = Setup {
        // The run is stopped while its picture is drawn.
        lock_expires: 120,
        ..Setup::default()
    };
    let machine = Machine::new(cluster, "you", &setup)?;
    let to = verify::version(cluster, Release::Tentacle)?;
    let upgrade = ["upgrade", "--to", to.as_str()];

    let plan = machine.typed(&[&["plan"][..], &upgrade].concat())?;
    drawn(&plan, PLAN, "Next:", folder, "plan.svg")?;

    let run = machine.start(&[&["run"][..], &upgrade].concat())?;
    machine.stop_when(&run, "the third wave of OSDs", UPGRADE, |journal| {
        Ok(journal.passed("osd").len() >= 2 && journal.visits("osd"))
    })?;
    drawn(
        &machine.command(&["watch"]),
        SCREEN,
        "q quit",
        folder,
        "watch.svg",
    )?;
    run.signal("CONT")?;
    run.end(UPGRADE)?.expect(0)?;
    Ok(())
}

/// What that command shows in a terminal, once that word stands there.
fn drawn(command: &Command, rows: NonZeroU16, word: &str, folder: &Path, name: &str) -> Result<()> {
    let svg = Terminal::start(command, COLUMNS, rows)?.picture_with(word, SOON)?;
    let file = folder.join(name);
    fs::write(&file, svg).with_context(|| format!("write {}", file.display()))?;
    say(format!("{} is made", file.display()));
    Ok(())
}
