//! The real `stagger`, as a person at a machine of their own runs it on a test cluster.
//!
//! A [`Machine`] is a configuration and a folder for journals. Two of them on one cluster are two people
//! with two laptops. Everything goes through the binary; nothing of it is linked in. What differs between the kinds
//! of clusters is a [`Setting`]: what the configuration says, and what a program takes to reach the cluster.

mod cephadm_hosts;
mod config;
mod ganeti;
mod inventory;
mod ironic;
mod journal;
mod package_hosts;
mod planted;
mod running;

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub use cephadm_hosts::CephadmSetup;
pub use config::{Doors, OWN_HOST, Setup};
pub use ganeti::{GanetiSetup, is_failing_over};
pub use ironic::{IronicSetup, Way};
pub use journal::{Journal, Wave};
pub use package_hosts::PackageHostsSetup;
pub use planted::Planted;
pub use running::{Ended, Running};

use crate::command::{last_lines, output, shown};

/// With what `stagger` works on the clusters of one kind.
pub trait Setting {
    /// The kind.
    type Cluster;

    /// The cluster's folder.
    fn folder(cluster: &Self::Cluster) -> &Path;

    /// The configuration of a machine whose own folder that is. Files that it names are made there.
    ///
    /// # Errors
    /// A file cannot be written.
    fn text(&self, cluster: &Self::Cluster, own: &Path) -> Result<String>;

    /// The program and the words before its own, so that it runs where it reaches the cluster.
    ///
    /// # Errors
    /// The program cannot be brought there.
    fn program(&self, cluster: &Self::Cluster, own: &Path, binary: &Path) -> Result<Vec<String>>;
}

/// A machine from which a cluster is worked on: its configuration, and its folder of journals.
#[derive(Debug)]
pub struct Machine {
    program: Vec<String>,
    folder: PathBuf,
}

impl Machine {
    /// A machine of that name. Its files live in the cluster's folder and go with it.
    ///
    /// # Errors
    /// They cannot be written, or there is no program.
    pub fn new<S: Setting>(cluster: &S::Cluster, name: &str, setup: &S) -> Result<Self> {
        let folder = S::folder(cluster).join("machines").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let machine = Self {
            program: setup.program(cluster, &folder, &binary()?)?,
            folder,
        };
        machine.configure(cluster, setup)?;
        Ok(machine)
    }

    /// From now on this is its configuration. Its journals stay.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure<S: Setting>(&self, cluster: &S::Cluster, setup: &S) -> Result<()> {
        let text = setup.text(cluster, &self.folder)?;
        let config = self.config();
        fs::write(&config, text).with_context(|| format!("writing {}", config.display()))
    }

    fn config(&self) -> PathBuf {
        self.folder.join("stagger.toml")
    }

    /// The folder of its journals.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The program with these words, to be run in whatever way. Nobody is there to be asked whether a run may begin.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        command.arg("--config").arg(self.config());
        command.arg("--state").arg(self.state()).args(words);
        if words.first() == Some(&"run") {
            command.arg("--yes");
        }
        command
    }

    /// The program as a person types it in the machine's own folder: the configuration and the journals are where it looks by itself.
    ///
    /// # Errors
    /// The folder of journals cannot be put there.
    pub fn typed(&self, words: &[&str]) -> Result<Command> {
        let (state, there) = (self.state(), self.folder.join("stagger"));
        fs::create_dir_all(&state).with_context(|| format!("making {}", state.display()))?;
        if !there.exists() {
            symlink(&state, &there).with_context(|| format!("making {}", there.display()))?;
        }
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).args(words);
        command
            .current_dir(&self.folder)
            .env("XDG_STATE_HOME", &self.folder);
        Ok(command)
    }

    /// Runs it to its end, whatever that is.
    pub fn call(&self, words: &[&str]) -> Result<Ended> {
        let mut command = self.command(words);
        let out = output(&mut command)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended {
            command: shown(&command),
            code: out.status.code(),
            out: text(&out.stdout),
            said: text(&out.stderr),
        })
    }

    /// Runs it with `--json`; it must end with 0, and what it prints is one document.
    pub fn json(&self, words: &[&str]) -> Result<Value> {
        let ended = self.call(&[words, &["--json"]].concat())?.expect(0)?;
        serde_json::from_str(&ended.out)
            .with_context(|| format!("`{}` printed no JSON: {:.300}", ended.command, ended.out))
    }

    /// Starts it as a process that goes on beside the test.
    pub fn start(&self, words: &[&str]) -> Result<Running> {
        Running::start(&mut self.command(words))
    }

    /// The waves of a stage in the plan for a goal: `upgrade --to VERSION`.
    pub fn planned(&self, wish: &[&str], stage: &str) -> Result<Vec<Vec<String>>> {
        let plan = self.json(&[&["plan"][..], wish].concat())?;
        let parts = plan["parts"].as_array().context("a plan without parts")?;
        let stage = parts
            .iter()
            .filter_map(|part| part.get("stage"))
            .find(|found| found["name"] == stage)
            .with_context(|| format!("a plan without the stage {stage}"))?;
        let waves = stage["waves"].as_array().context("a stage without waves")?;
        let units = |wave: &Value| {
            let units = wave["units"].as_array().into_iter().flatten();
            units.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Ok(waves.iter().map(units).collect())
    }

    /// The newest run of this machine.
    pub fn newest_run(&self) -> Result<String> {
        let ended = self.call(&["history", "--json"])?.expect(0)?;
        let first = ended
            .out
            .lines()
            .next()
            .context("there is no run in the history")?;
        let run: Value = serde_json::from_str(first).context("a line of the history")?;
        let name = run["run"].as_str().context("a run without a name")?;
        Ok(name.to_owned())
    }

    /// The journal of the newest run, as it stands now.
    pub fn journal(&self) -> Result<Journal> {
        let run = self.newest_run()?;
        let ended = self.call(&["history", &run, "--json"])?.expect(0)?;
        Journal::read(&run, &ended.out)
    }

    /// Waits until the journal is at a point, and gives it; not where the run was only passing by.
    ///
    /// By the journal, not by what is printed: how progress is shown may change any day. The run is
    /// stopped (SIGSTOP) to look a second time, and stays stopped: whoever kills it there kills it at
    /// just that point, on a machine of any speed.
    pub fn stop_when(
        &self,
        run: &Running,
        what: &str,
        limit: Duration,
        mut there: impl FnMut(&Journal) -> Result<bool>,
    ) -> Result<Journal> {
        let begun = Instant::now();
        let mut look = || match self.journal() {
            Ok(journal) => Ok(there(&journal)?.then_some(journal)),
            // There is none until the run has the lock.
            Err(_) => Ok::<_, anyhow::Error>(None),
        };
        loop {
            if look()?.is_some() {
                run.signal("STOP")?;
                if let Some(journal) = look()? {
                    return Ok(journal);
                }
                run.signal("CONT")?;
            }
            ensure!(
                begun.elapsed() < limit,
                "not at {what} within {} s; the end of the history:\n{}",
                limit.as_secs(),
                self.history_tail(20)
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a daemon of a kind is being worked on, and stops the run there, as
    /// [`Machine::stop_when`] does.
    pub fn stop_in_visit(&self, run: &Running, kind: &str, limit: Duration) -> Result<Journal> {
        self.stop_when(run, &format!("a visit of a {kind}"), limit, |journal| {
            Ok(journal.visits(kind))
        })
    }

    /// Resumes to the end. Where the cluster is out of reach it is tried again, as the guide says.
    pub fn resume_to_the_end(&self, limit: Duration) -> Result<Ended> {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let ended = self.start(&["resume"])?.end(left)?;
            if ended.code != Some(4) {
                return Ok(ended);
            }
            thread::sleep(Duration::from_secs(2));
        }
    }

    /// The end of the newest run's history in words, for the message of a failed test.
    pub fn history_tail(&self, lines: usize) -> String {
        let history = || {
            let run = self.newest_run()?;
            Ok::<_, anyhow::Error>(self.call(&["history", &run])?.out)
        };
        history().map_or_else(|error| format!("{error:#}"), |text| last_lines(&text, lines))
    }
}

/// The program: `STAGGER_BIN`, or what was built last in this checkout.
pub fn binary() -> Result<PathBuf> {
    if let Some(given) = env::var_os("STAGGER_BIN") {
        let given = PathBuf::from(given);
        ensure!(
            given.is_file(),
            "STAGGER_BIN is {}, and there is no such file",
            given.display()
        );
        return Ok(given);
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    let built = |profile: &str| {
        let path = target.join(profile).join("stagger");
        let time = fs::metadata(&path).and_then(|file| file.modified()).ok()?;
        Some((time, path))
    };
    let newest = ["debug", "release"].into_iter().filter_map(built).max();
    let (_, path) = newest.with_context(|| {
        format!(
            "there is no stagger in {}: `cargo build -p stagger-cli` builds it; STAGGER_BIN names another",
            target.display()
        )
    })?;
    Ok(path)
}

/// Whether a line of progress has that word, and its text begins so.
pub fn says(line: &str, word: &str, text: &str) -> bool {
    let mut words = line.split_once(' ').map_or("", |(_, rest)| rest).splitn(2, ' ');
    words.next() == Some(word) && words.next().unwrap_or_default().trim_start().starts_with(text)
}
