//! One program measured from start to end by what the kernel counts for it.
//!
//! The kernel tells how much memory the largest child ever took, so each program is the only child of a process of
//! its own: this one, started again.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// How a program ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Child {
    /// Its exit code.
    pub(crate) code: i32,
    /// Seconds of processor, all threads together.
    pub(crate) cpu: f64,
    /// Seconds on the clock.
    pub(crate) wall: f64,
    /// The most memory that it held, in KiB.
    pub(crate) peak_kb: u64,
    /// What it printed.
    #[serde(default)]
    pub(crate) out: String,
}

impl Child {
    /// Runs a program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(words: &[S]) -> Result<Self> {
        let report = tempfile::NamedTempFile::new().context("make a file for what is measured")?;
        let this = std::env::current_exe().context("find this program")?;
        let output = Command::new(this)
            .arg("measure")
            .arg(report.path())
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("start this program again")?;
        let shown: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        if !output.status.success() {
            bail!("{}: {}", shown.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        let text = std::fs::read_to_string(report.path()).context("read what was measured")?;
        let mut child: Self = serde_json::from_str(&text).context("read what was measured")?;
        child.out = String::from_utf8_lossy(&output.stdout).into_owned();
        if child.code != 0 {
            bail!(
                "`{}` ended with {}: {}",
                shown.join(" "),
                child.code,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(child)
    }
}

/// Runs a program as the only child, with this process's output, and writes what the kernel counted.
pub(crate) fn measure(report: &str, words: &[&str]) -> Result<()> {
    let [program, words @ ..] = words else {
        bail!("there is no program to measure");
    };
    let begun = Instant::now();
    let ended = Command::new(program)
        .args(words)
        .status()
        .with_context(|| format!("start {program}"))?;
    let wall = begun.elapsed().as_secs_f64();
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask what the child took")?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let child = Child {
        code: ended
            .code()
            .with_context(|| format!("{program} ended with {ended}"))?,
        cpu: seconds(used.user_time()) + seconds(used.system_time()),
        wall,
        peak_kb: u64::try_from(used.max_rss()).unwrap_or(0),
        out: String::new(),
    };
    std::fs::write(Path::new(report), serde_json::to_vec(&child)?).with_context(|| format!("write {report}"))
}
