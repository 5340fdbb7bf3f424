//! The memory of an operator with the programs that it starts, as that of a pod: by a control group of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Where the memory controller is, and the file with the most that was taken: of the first version, and of the second.
const CONTROLLERS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.max_usage_in_bytes"),
    ("/sys/fs/cgroup", "memory.peak"),
];
/// How the names of groups of a bench begin.
const PREFIX: &str = "stagger-bench-";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A control group with an operator in it, and a look at its processes again and again. It goes when this is dropped and they
/// have ended.
#[derive(Debug)]
pub(super) struct PodMemory {
    folder: PathBuf,
    peak: &'static str,
    seen: Arc<AtomicU64>,
    looking: JoinHandle<()>,
}

impl PodMemory {
    /// Puts a process into a group of its own; what it starts from then on is in it as well.
    pub(super) fn begin(pid: u32) -> Result<Self> {
        let controller = CONTROLLERS
            .iter()
            .find(|(base, _)| Path::new(base).join("cgroup.procs").exists());
        let (base, peak) = controller.context("the kernel counts the memory of no group")?;
        remove_empty(base);
        let folder = Path::new(base).join(format!("{PREFIX}{pid}"));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let seen = Arc::new(AtomicU64::new(0));
        let looking = tokio::spawn(look(folder.clone(), Arc::clone(&seen)));
        let this = Self {
            folder,
            peak,
            seen,
            looking,
        };
        this.put(pid)?;
        Ok(this)
    }

    fn put(&self, pid: u32) -> Result<()> {
        let procs = self.folder.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).with_context(|| format!("writing {}", procs.display()))
    }

    /// The most so far, in kB: by the group, or what its processes have mapped, whichever is more. The group does not count
    /// files that were in memory before.
    pub(super) fn peak_kb(&self) -> Result<u64> {
        let path = self.folder.join(self.peak);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let bytes: u64 = text
            .trim()
            .parse()
            .with_context(|| format!("{} is {text:?}", path.display()))?;
        Ok((bytes / 1024).max(self.seen.load(Ordering::Relaxed)))
    }
}

impl Drop for PodMemory {
    fn drop(&mut self) {
        self.looking.abort();
        // While a process is in it, it stays; the bench's machine has one directory more then.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Groups of benches that were killed: their processes have ended, and the same number may come again in a sandbox.
fn remove_empty(base: &str) {
    for group in fs::read_dir(base).into_iter().flatten().flatten() {
        if group.file_name().to_string_lossy().starts_with(PREFIX) {
            // One with a process in it stays.
            fs::remove_dir(group.path()).ok();
        }
    }
}

async fn look(folder: PathBuf, seen: Arc<AtomicU64>) {
    loop {
        seen.fetch_max(mapped(&folder), Ordering::Relaxed);
        sleep(LOOK).await;
    }
}

/// What the processes of a group have mapped, in kB: what several share is counted once.
fn mapped(folder: &Path) -> u64 {
    let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids: BTreeSet<&str> = procs.lines().collect();
    pids.into_iter()
        .filter_map(|pid| {
            // One that has just ended has none.
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        })
        .sum()
}
