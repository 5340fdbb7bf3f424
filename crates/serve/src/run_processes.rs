//! Processes that start runs and continue them. They know the cluster; this process only starts them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use stagger_core::model::{ClusterName, RunId};
use stagger_engine::secrets;
use tokio::process::Command;
use tokio::sync::oneshot;

/// The length of a process's output that is reported: its end.
const TOLD: u64 = 4 << 10;

/// How processes are started that carry runs out.
#[derive(Debug, Clone)]
pub struct RunLauncher {
    /// The program, and its words before `resume`, for a run of a cluster that is none of the following.
    pub command: Vec<OsString>,
    /// The same for each cluster whose configuration is known; before `run` too. Of no other is a run begun.
    pub clusters: BTreeMap<ClusterName, Vec<OsString>>,
    /// Where what they print is kept, in a file for each run that is carried on and each cluster of which one is begun.
    pub logs: PathBuf,
}

/// The work of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Run(RunId),
    /// It begins a run of that cluster, and carries it out.
    Cluster(ClusterName),
}

/// Those that were started here and have not ended.
#[derive(Debug)]
pub(crate) struct RunStarter {
    how: RunLauncher,
    at_work: Arc<Mutex<BTreeSet<Work>>>,
}

/// Prevents another process for the same work while it is held.
#[derive(Debug)]
struct AtWork {
    all: Arc<Mutex<BTreeSet<Work>>>,
    work: Work,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.work);
    }
}

/// A process that begins a run.
pub(crate) struct StartedProcess {
    /// Its exit status. If it carries the run out, that is hours away.
    pub(crate) ended: oneshot::Receiver<io::Result<ExitStatus>>,
    log: PathBuf,
    /// Where it began to write there.
    from: u64,
}

impl StartedProcess {
    /// The end of what it has printed.
    pub(crate) fn output_tail(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let end = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(self.from.max(end.saturating_sub(TOLD))))?;
            let mut bytes = Vec::new();
            file.take(TOLD).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        read().unwrap_or_else(|error| format!("{} cannot be read: {error}", self.log.display()))
    }
}

impl RunStarter {
    pub(crate) fn new(how: RunLauncher) -> Self {
        Self {
            how,
            at_work: Arc::default(),
        }
    }

    /// Whether runs of that cluster are begun from here.
    pub(crate) fn begins(&self, cluster: &ClusterName) -> bool {
        self.how.clusters.contains_key(cluster)
    }

    /// Starts a process for the run, unless one that was started here works on it. It outlives this process.
    pub(crate) fn carry_on(&self, cluster: &ClusterName, run: &RunId) -> io::Result<()> {
        let Some(at_work) = self.claim(Work::Run(run.clone())) else {
            return Ok(());
        };
        let log = self.file(run.as_str(), "log");
        let words = [OsString::from("resume"), run.as_str().into()];
        self.start(at_work, cluster, &words, &log, None)?;
        Ok(())
    }

    /// Starts a process that starts a run of exactly that plan; `None`: one that was started here works on
    /// it.
    pub(crate) fn begin(
        &self,
        cluster: &ClusterName,
        plan: &[u8],
        by: &str,
    ) -> io::Result<Option<StartedProcess>> {
        let Some(at_work) = self.claim(Work::Cluster(cluster.clone())) else {
            return Ok(None);
        };
        let (plan_file, log) = (
            self.file(cluster.as_str(), "plan.json"),
            self.file(cluster.as_str(), "begun.log"),
        );
        secrets::make_folder(&self.how.logs)?;
        secrets::create(&plan_file)?.write_all(plan)?;
        let words = [
            OsString::from("run"),
            plan_file.clone().into(),
            "--yes".into(),
            // As one word: whatever it begins with, it is no flag.
            format!("--asked-by={by}").into(),
        ];
        let from = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let ended = self.start(at_work, cluster, &words, &log, Some(plan_file))?;
        Ok(Some(StartedProcess { ended, log, from }))
    }

    /// The right to start a process for that; `None`: one that was started here works on it.
    fn claim(&self, work: Work) -> Option<AtWork> {
        let mut all = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(work.clone()).then(|| AtWork {
            all: Arc::clone(&self.at_work),
            work,
        })
    }

    /// How it ended, once it has. `gone_after`: a file that nobody needs when it has ended.
    fn start(
        &self,
        at_work: AtWork,
        cluster: &ClusterName,
        words: &[OsString],
        log: &Path,
        gone_after: Option<PathBuf>,
    ) -> io::Result<oneshot::Receiver<io::Result<ExitStatus>>> {
        let command = self.how.clusters.get(cluster).unwrap_or(&self.how.command);
        let (program, first) = command
            .split_first()
            .ok_or_else(|| io::Error::other("no command is given"))?;
        let log = open(&self.how.logs, log)?;
        let mut child = Command::new(program)
            .args(first)
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let (ending, ended) = oneshot::channel();
        tokio::spawn(async move {
            let status = child.wait().await;
            if let Some(file) = gone_after {
                fs::remove_file(file).ok();
            }
            drop(at_work);
            // There may be no receiver any more.
            ending.send(status).ok();
        });
        Ok(ended)
    }

    /// The file of a run or a cluster. Their names may hold any character.
    fn file(&self, name: &str, end: &str) -> PathBuf {
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        self.how.logs.join(format!("{name}.{end}"))
    }
}

/// A file to which what a process prints is added.
fn open(folder: &Path, file: &Path) -> io::Result<File> {
    secrets::make_folder(folder)?;
    secrets::ensure_private_file(file)?;
    OpenOptions::new().append(true).open(file)
}
