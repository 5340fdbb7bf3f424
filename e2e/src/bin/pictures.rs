//! Makes the pictures that the README and the guides show, of a real upgrade: a Ceph of 24 OSDs goes from 18 to 20.

use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use stagger_e2e::browser::{self, Browser};
use stagger_e2e::ceph::{CephSpec, Cluster};
use stagger_e2e::command::{run, say};
use stagger_e2e::folder::Folder;
use stagger_e2e::roots::Release;
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::{Machine, Setup};
use stagger_e2e::terminal::Terminal;
use stagger_e2e::verify;

/// A terminal that fits a page.
const COLUMNS: NonZeroU16 = NonZeroU16::new(104).expect("a size");
/// As many rows as the plan has, and more.
const PLAN: NonZeroU16 = NonZeroU16::new(80).expect("a size");
const SCREEN: NonZeroU16 = NonZeroU16::new(36).expect("a size");

/// As the browser's folder has it.
const SCRIPT: &str = "pictures.js";
/// What a browser's profile takes of the disk at most.
const ROOM: u64 = 1_000_000_000;

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

    let going = machine.start(&[&["run"][..], &upgrade].concat())?;
    machine.stop_when(&going, "the third wave of OSDs", UPGRADE, |journal| {
        Ok(journal.passed("osd").len() >= 2 && journal.visits("osd"))
    })?;
    drawn(&machine.typed(&["watch"])?, SCREEN, "q quit", folder, "watch.svg")?;
    let mut desk = Desk::start(&machine)?;
    desk.draws("page", folder)?;
    going.signal("CONT")?;
    going.end(UPGRADE)?.expect(0)?;
    let report = desk.folder.path().join("report.html");
    run(machine.typed(&["report", "--out"])?.arg(&report))?;
    desk.draws("report", folder)?;
    desk.stop()
}

/// A browser beside a `stagger serve` of the machine's runs.
struct Desk {
    folder: Folder,
    browser: Browser,
    sandbox: Sandbox,
    serve: Child,
    run: String,
}

impl Desk {
    fn start(machine: &Machine) -> Result<Self> {
        let browser = Browser::ensure()?;
        let folder = Folder::make("pictures-", ROOM)?;
        let place = folder.path();
        fs::create_dir(place.join("pictures")).context("make the folder of pictures")?;
        for (name, script) in [("browser.js", browser::SHARED), (SCRIPT, browser::PICTURES)] {
            fs::write(place.join(name), script).with_context(|| format!("write {name}"))?;
        }
        let sandbox = Sandbox::start(place, &[&browser.path])?;
        let socket = place.join("serve.sock");
        let mut serve = machine.typed(&["serve", "--socket"])?;
        let serve = serve
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self {
            run: machine.newest_run()?,
            serve: serve.context("start stagger serve")?,
            folder,
            browser,
            sandbox,
        })
    }

    /// Has the script draw that, and takes the picture.
    fn draws(&mut self, name: &str, to: &Path) -> Result<()> {
        let place = self.folder.path();
        let mut node = self.browser.node(&self.sandbox, place, SCRIPT);
        run(node.env("RUN", &self.run).env("PICTURE", name))?;
        let (picture, to) = (place.join("pictures").join(name), to.join(name));
        let [picture, to] = [picture, to].map(|path| path.with_extension("png"));
        fs::copy(&picture, &to).with_context(|| format!("copy {} to {}", picture.display(), to.display()))?;
        say(format!("{} is made", to.display()));
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        self.serve.kill().context("end stagger serve")?;
        self.serve.wait().context("wait for stagger serve")?;
        self.sandbox.stop()
    }
}

/// What that command shows in a terminal, once that word stands there.
fn drawn(command: &Command, rows: NonZeroU16, word: &str, folder: &Path, name: &str) -> Result<()> {
    let svg = Terminal::start(command, COLUMNS, rows)?.picture_with(word, SOON)?;
    let file = folder.join(name);
    fs::write(&file, svg).with_context(|| format!("write {}", file.display()))?;
    say(format!("{} is made", file.display()));
    Ok(())
}
