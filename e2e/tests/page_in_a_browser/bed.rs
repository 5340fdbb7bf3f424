//! A browser in a sandbox beside a real `stagger serve`, over a store with journals of real runs; and the script that drives it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Entry, Event};
use stagger_e2e::browser::{self, Browser};
use stagger_e2e::command::say;
use stagger_e2e::folder::Folder;
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::binary;
use stagger_engine::cluster::LockRecord;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::JournalStore;

/// The scripts, as they are here.
const SCRIPTS: [(&str, &str); 3] = [
    ("browser.js", browser::SHARED),
    ("flows.js", include_str!("flows.js")),
    ("large.js", include_str!("large.js")),
];
/// Those who carry runs out say so for that long.
const AT_WORK: Duration = Duration::from_hours(1);
/// A store and a browser's profile take no more of the disk.
const NEEDED: u64 = 2_000_000_000;

/// What a run's journal holds, and what may be written to it later.
pub(crate) struct Journal {
    pub(crate) written: Vec<Entry>,
    pub(crate) more: Vec<Entry>,
    /// Whether somebody says that they carry it out.
    pub(crate) at_work: bool,
}

pub(crate) struct Bed {
    sandbox: Sandbox,
    folder: Folder,
    browser: Browser,
    run: RunId,
    more: Vec<Entry>,
    serve: Child,
}

impl Bed {
    /// Serves these runs. Of the first more is written when the script asks for it.
    pub(crate) fn start(journals: Vec<Journal>) -> Result<Self> {
        let browser = Browser::ensure()?;
        let program = binary()?;
        let folder = Folder::make("page-", NEEDED)?;
        let place = folder.path().to_owned();
        let sandbox = Sandbox::start(&place, &[&browser.path])?;
        fs::create_dir(place.join("state")).context("making the folder of the store")?;
        let mut first = None;
        for journal in journals {
            let run = in_runtime(write(&place.join("state/journal.db"), &journal))?;
            first.get_or_insert((run, journal.more));
        }
        let (run, more) = first.context("no journal")?;
        let serve = sandbox
            .command(&program)
            .arg("--state")
            .arg(place.join("state"))
            .arg("serve")
            .arg("--socket")
            .arg(place.join("serve.sock"))
            .current_dir(&place)
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.join("serve.log")).context("making the log")?)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        for (name, text) in SCRIPTS {
            fs::write(place.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        Ok(Self {
            sandbox,
            folder,
            browser,
            run,
            more,
            serve,
        })
    }

    fn place(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a script of ours, and does what it asks for. Pictures and figures go to `artifacts`.
    pub(crate) fn script(&mut self, name: &str, artifacts: &Path) -> Result<()> {
        let place = self.place().to_owned();
        let pictures = place.join("pictures");
        fs::create_dir_all(&pictures).context("making the folder of pictures")?;
        let mut node = self
            .browser
            .node(&self.sandbox, &place, name)
            .env("RUN", self.run.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting node")?;
        let mut to = node.stdin.take().context("no stdin")?;
        let from = BufReader::new(node.stdout.take().context("no stdout")?);
        for line in from.lines() {
            let line = line.context("reading what the script says")?;
            let Some(asked) = line.strip_prefix("@ask ") else {
                say(&line);
                continue;
            };
            let answer = match self.asked(asked) {
                Ok(answer) => answer,
                Err(error) => format!("failed: {error:#}"),
            };
            writeln!(to, "{answer}").context("answering the script")?;
        }
        let ended = node.wait().context("waiting for node")?;
        fs::create_dir_all(artifacts).with_context(|| format!("making {}", artifacts.display()))?;
        for picture in fs::read_dir(&pictures).context("reading the pictures")? {
            let picture = picture?.path();
            let to = artifacts.join(picture.file_name().unwrap_or_default());
            fs::copy(&picture, &to).with_context(|| format!("copying to {}", to.display()))?;
        }
        say(format!("pictures are in {}", artifacts.display()));
        if !ended.success() {
            let log = fs::read_to_string(place.join("serve.log")).unwrap_or_default();
            bail!("{name} ended with {ended}; serve said:\n{log}");
        }
        Ok(())
    }

    fn asked(&mut self, asked: &str) -> Result<String> {
        let store = self.place().join("state/journal.db");
        let away = self.place().join("state/away.db");
        match asked.split_once(' ').unwrap_or((asked, "")) {
            ("write", count) => {
                let count: usize = count.parse().context("how many events")?;
                ensure!(
                    count <= self.more.len(),
                    "only {} events are left",
                    self.more.len()
                );
                let events: Vec<Entry> = self.more.drain(..count).collect();
                in_runtime(append(&mut SqliteStore::open(&store)?, &self.run, &events))?;
                Ok("written".to_owned())
            }
            // Where the file was is a folder: it cannot be opened, nor made anew.
            ("lose", _) => {
                fs::rename(&store, &away).context("taking the store away")?;
                fs::create_dir(&store).context("putting a folder in its place")?;
                Ok("lost".to_owned())
            }
            ("find", _) => {
                fs::remove_dir(&store).context("removing the folder")?;
                fs::rename(&away, &store).context("putting the store back")?;
                Ok("found".to_owned())
            }
            ("asked", _) => {
                let asked =
                    in_runtime(async { Ok(SqliteStore::open(&store)?.pending_commands(&self.run).await?) })?;
                let words = asked.iter().map(|(_, command, _)| stagger_words(command));
                Ok(words.collect::<Vec<_>>().join(","))
            }
            (other, _) => bail!("nobody knows {other:?}"),
        }
    }

    /// Ends all of it.
    pub(crate) fn stop(mut self) -> Result<()> {
        let place = self.place().to_owned();
        self.sandbox.stop()?;
        self.serve.wait().context("waiting for serve to end")?;
        ensure!(!place.exists(), "{} is left", place.display());
        Ok(())
    }
}

fn stagger_words(command: &stagger_core::run::Command) -> String {
    use stagger_core::run::Command;
    match command {
        Command::Pause => "pause".to_owned(),
        Command::Resume => "resume".to_owned(),
        Command::Abort => "abort".to_owned(),
        Command::Rollback => "rollback".to_owned(),
        Command::Approve { door } => format!("approve {door}"),
        Command::Confirm { .. } | Command::Settle { .. } => format!("{command:?}"),
    }
}

/// Waits for a store.
fn in_runtime<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(future)
}

/// Writes a journal as far as it goes at first.
async fn write(file: &Path, journal: &Journal) -> Result<RunId> {
    let mut store = SqliteStore::open(file)?;
    let first = journal.written.first().context("an empty journal")?;
    let Event::Started(start) = &first.event else {
        bail!("a journal begins with the start of a run");
    };
    let (cluster, run): (ClusterName, RunId) = (start.cluster.clone(), start.run.clone());
    store.raise(&cluster, 1, "test").await?;
    store.begin(&cluster, 1, first.at, first.event.clone()).await?;
    append(&mut store, &run, &journal.written[1..]).await?;
    if journal.at_work {
        let claim = LockRecord {
            incarnation: "test".to_owned(),
            run: run.clone(),
            host: "ops1".to_owned(),
            process: 1,
            since: Timestamp::now(),
            life: None,
        };
        store.beat(&run, 1, &claim, AT_WORK).await?;
    }
    Ok(run)
}

/// Events of one time in one piece.
async fn append(store: &mut SqliteStore, run: &RunId, entries: &[Entry]) -> Result<()> {
    for piece in entries.chunk_by(|one, other| one.at == other.at) {
        let events = piece.iter().map(|entry| entry.event.clone()).collect();
        store
            .append(run, 1, piece[0].seq - 1, piece[0].at, events)
            .await?;
    }
    Ok(())
}
