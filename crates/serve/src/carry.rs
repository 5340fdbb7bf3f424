//! Processes that carry runs on. They know the cluster; this one only starts them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use stagger_core::model::RunId;
use stagger_engine::secrets;
use tokio::process::Command;

/// How a run is carried on that nobody carries out.
#[derive(Debug, Clone)]
pub struct CarryOn {
    /// The program and its words; the name of the run comes after them.
    pub command: Vec<OsString>,
    /// Where what it prints is kept, in a file for each run.
    pub logs: PathBuf,
}

/// Those that were started here and have not ended.
#[derive(Debug)]
pub(crate) struct Carrier {
    how: CarryOn,
    at_work: Arc<Mutex<BTreeSet<RunId>>>,
}

impl Carrier {
    pub(crate) fn new(how: CarryOn) -> Self {
        Self {
            how,
            at_work: Arc::default(),
        }
    }

    /// Starts a process for the run, unless one that was started here is at work on it. It goes on when this process ends.
    pub(crate) fn carry_on(&self, run: &RunId) -> io::Result<()> {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if at_work.contains(run) {
            return Ok(());
        }
        let (program, words) = self
            .how
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("no command is given"))?;
        let log = open(&self.how.logs, run)?;
        let mut child = Command::new(program)
            .args(words)
            .arg(run.as_str())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        at_work.insert(run.clone());
        let (at_work, run) = (Arc::clone(&self.at_work), run.clone());
        tokio::spawn(async move {
            child.wait().await.ok();
            let mut at_work = at_work.lock().unwrap_or_else(PoisonError::into_inner);
            at_work.remove(&run);
        });
        Ok(())
    }
}

/// The file of what a run's processes print. The name of a run may hold any character.
fn open(folder: &Path, run: &RunId) -> io::Result<fs::File> {
    secrets::make_folder(folder)?;
    let name = run
        .as_str()
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    let file = folder.join(format!("{name}.log"));
    secrets::make_own(&file)?;
    OpenOptions::new().append(true).open(file)
}
