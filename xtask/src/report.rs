//! What was run, how it ended, how long it took; and one plain summary.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _, PipeReader, Write as _, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

/// The checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// Where programs are built.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The folder outside the checkout where real systems and tools are kept.
pub(crate) fn cache() -> Result<PathBuf> {
    std::env::var_os("STAGGER_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("XDG_CACHE_HOME").map(|home| PathBuf::from(home).join("stagger")))
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/stagger")))
        .context("there is no cache folder")
}

/// `cargo`, in the checkout.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    // What `cargo run` tells this program of itself would make build scripts that look at it run again, and
    // everything above them be built again, at each change from `cargo` to `cargo xtask`.
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// `cargo`, on the whole workspace with what the library of versions does only if it is asked to. Always with the same
/// features, or everything above a dependency of theirs would be built again.
pub(crate) fn workspace(command: &str, more: &[&str]) -> Command {
    let features =
        "stagger-versioned/derive,stagger-versioned/lint,stagger-versioned/shapes,stagger-versioned/store";
    let mut words = vec![command, "--workspace", "--features", features];
    words.extend(more);
    cargo(&words)
}

/// What a test file leaves out of the quick tests, or one case of it.
pub(crate) fn ignored(file: &str, case: Option<&str>) -> Command {
    // Of the workspace, as everything was built; of one package, its dependencies would be built again.
    let mut command = workspace("test", &["--quiet", "--test", file, "--"]);
    cases_of(&mut command, case);
    command
}

/// The same of a test program by itself, for whoever must not wait until no other `cargo` is at work.
///
/// # Errors
/// The file is not built, or there are several of that name.
pub(crate) fn ignored_of_program(file: &str, case: Option<&str>) -> Result<Command> {
    #[derive(serde::Deserialize)]
    struct Artifact {
        target: Target,
        manifest_path: PathBuf,
        executable: Option<PathBuf>,
    }
    #[derive(serde::Deserialize)]
    struct Target {
        kind: Vec<String>,
        name: String,
    }
    static BUILT: OnceLock<Vec<Artifact>> = OnceLock::new();
    if BUILT.get().is_none() {
        // As the quick tests were built: other words would build other things.
        let words = ["--no-run", "--quiet", "--message-format", "json"];
        let messages = printed(&mut workspace("test", &words))?;
        // There are messages of other kinds between them.
        let artifacts = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
            .filter(|artifact| artifact.target.kind == ["test"]);
        BUILT.set(artifacts.collect()).ok();
    }
    let all = BUILT.get().into_iter().flatten();
    let mut of_name = all.filter(|artifact| artifact.target.name == file);
    let (one, more) = (of_name.next(), of_name.next());
    ensure!(more.is_none(), "several test programs are called {file}");
    let one = one.with_context(|| format!("no test program is called {file}"))?;
    let program = one.executable.as_ref();
    let mut command = Command::new(program.with_context(|| format!("{file} is not built"))?);
    // As `cargo test` starts it.
    let package = one
        .manifest_path
        .parent()
        .context("a manifest is in its package's folder")?;
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package);
    cases_of(&mut command, case);
    Ok(command)
}

/// Which cases of a test program, and with what.
fn cases_of(command: &mut Command, case: Option<&str>) {
    command.args(["--ignored", "--nocapture", "--test-threads", "1"]);
    if let Some(case) = case {
        command.args(["--exact", case]);
    }
    let binary = target_folder().join("debug/stagger");
    say(&format!(
        "   with {}",
        binary.strip_prefix(root()).unwrap_or(&binary).display()
    ));
    command.env("STAGGER_BIN", binary);
}

/// So long one step on a real system takes at most: several times what any of them took.
const LIMIT: &str = "25m";

/// The same, ended with all that it started if it hangs: whoever waits for the whole would learn nothing. It is a group of its own, which a
/// terminal's Ctrl-C does not reach, so it ends with this program, too.
pub(crate) fn limited(command: &Command) -> Command {
    let mut within = Command::new("setpriv");
    within
        .args([
            "--pdeathsig",
            "TERM",
            "timeout",
            "--verbose",
            "--kill-after=1m",
            LIMIT,
        ])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => within.env(name, value),
            None => within.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        within.current_dir(folder);
    }
    within
}

/// A program of this workspace, as `cargo build --workspace` left it. `cargo run --package` would build its
/// dependencies once more, with the features that this package alone asks for.
pub(crate) fn built(program: &str) -> Command {
    let mut command = Command::new(target_folder().join("debug").join(program));
    command.current_dir(root());
    command
}

/// What a program prints, without the end of its last line.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command
        .current_dir(root())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What a program prints, if it succeeds.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A line for people.
pub(crate) fn say(text: &str) {
    // Nobody reads on: that is no reason to fail.
    writeln!(std::io::stderr(), "{text}").ok();
}

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// It was not run again: it is known to pass.
    Known,
    /// Cases of it lack something that cannot be had here, and said so.
    Skipped,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Passed | Self::Known => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skip",
        }
    }
}

/// One thing that was run.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// What it said of its failure, or why it was not run.
    pub(crate) why: Vec<String>,
    /// Its cases that were not run, as it printed.
    skipped: Vec<String>,
}

/// Everything that was run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    begun: Instant,
    /// Stands before each line, where other things run beside it; else empty.
    lane: &'static str,
}

/// What stands before each line of something that runs beside others, and what it is.
type Lane<'a> = (&'static str, &'a (dyn Fn(&mut Report) -> Result<()> + Sync));

impl Default for Report {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            begun: Instant::now(),
            lane: "",
        }
    }
}

impl Report {
    /// Runs things side by side, each in a report of its own whose lines begin with its name; then their rows stand here, in
    /// the order in which they were given.
    pub(crate) fn beside<const N: usize>(&mut self, lanes: [Lane<'_>; N]) -> Result<()> {
        std::thread::scope(|scope| {
            let running = lanes.map(|(lane, run)| {
                scope.spawn(move || {
                    let mut own = Self {
                        lane,
                        ..Self::default()
                    };
                    run(&mut own).map(|()| own.rows)
                })
            });
            for lane in running {
                let rows = lane
                    .join()
                    .map_err(|_| anyhow!("what runs beside the rest broke"))?;
                self.rows.extend(rows?);
            }
            Ok(())
        })
    }

    /// Runs cases on real systems. Those that lack something that cannot be had here say so, and are counted as skipped.
    pub(crate) fn cases(&mut self, name: &str, command: &mut Command) -> Result<Outcome> {
        let outcome = self.run(name, command)?;
        if let Some(row) = self.rows.last_mut()
            && outcome == Outcome::Passed
            && !row.skipped.is_empty()
        {
            row.outcome = Outcome::Skipped;
            row.why = std::mem::take(&mut row.skipped);
            return Ok(Outcome::Skipped);
        }
        Ok(outcome)
    }

    /// Runs a program to its end; its output is shown as it comes.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) -> Result<Outcome> {
        say(&format!("{}== {name}", self.lane));
        if std::io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let begun = Instant::now();
        // One pipe for both, so that what it prints is seen in the order in which it was printed.
        let (output, ours) = pipe().context("make a pipe")?;
        let mut child = command
            .stdout(ours.try_clone().context("make a pipe")?)
            .stderr(ours)
            .spawn()
            .with_context(|| format!("start {name}: {command:?}"))?;
        // The command keeps its ends of the pipe, and with them open the pipe would have no end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let Shown { last, skipped } = show(output, self.lane);
        let ok = child
            .wait()
            .with_context(|| format!("wait for {name}"))?
            .success();
        let (outcome, why) = if ok {
            (Outcome::Passed, Vec::new())
        } else {
            (Outcome::Failed, why(last.into()))
        };
        self.add(name, outcome, begun.elapsed(), why);
        if let Some(row) = self.rows.last_mut() {
            row.skipped = skipped;
        }
        Ok(outcome)
    }

    /// Does something to its end.
    pub(crate) fn done(&mut self, name: &str, what: impl FnOnce() -> Result<()>) {
        say(&format!("{}== {name}", self.lane));
        let begun = Instant::now();
        let mut why = Vec::new();
        if let Err(error) = what() {
            why.push(format!("error: {error:#}"));
            say(&format!("{}{}", self.lane, why[0]));
        }
        let outcome = if why.is_empty() {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        self.add(name, outcome, begun.elapsed(), why);
    }

    /// What need not be done, and why.
    pub(crate) fn known(&mut self, name: &str, why: &str) {
        say(&format!("{}== {name}: not run again, {why}", self.lane));
        let why = vec![format!("not run again: {why}")];
        self.add(name, Outcome::Known, Duration::ZERO, why);
    }

    /// What cannot be done here, and why.
    pub(crate) fn skipped(&mut self, name: &str, why: &str) {
        say(&format!("{}== {name}: skipped, {why}", self.lane));
        self.add(name, Outcome::Skipped, Duration::ZERO, vec![why.to_owned()]);
    }

    fn add(&mut self, name: &str, outcome: Outcome, took: Duration, why: Vec<String>) {
        self.rows.push(Row {
            name: name.to_owned(),
            outcome,
            took,
            why,
            skipped: Vec::new(),
        });
    }

    /// Whether something failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.rows.iter().any(|row| row.outcome == Outcome::Failed)
    }

    /// The summary, and whether all is well.
    pub(crate) fn summary(&self) -> bool {
        say("\nsummary");
        for Row {
            name,
            outcome,
            took,
            why,
            ..
        } in &self.rows
        {
            say(&format!("  {:<6} {:>6}  {name}", outcome.word(), minutes(*took)));
            for line in why {
                say(&format!("                  | {line}"));
            }
        }
        let count = |outcome| self.rows.iter().filter(|row| row.outcome == outcome).count();
        let total: Duration = self.rows.iter().map(|row| row.took).sum();
        say(&format!(
            "  {:<6} {:>6}  by the clock; {} added up",
            "",
            minutes(self.begun.elapsed()),
            minutes(total)
        ));
        match count(Outcome::Known) {
            0 => {}
            known => say(&format!("{known} not run again")),
        }
        let (passed, failed) = (count(Outcome::Passed), count(Outcome::Failed));
        let skipped = count(Outcome::Skipped);
        writeln!(
            std::io::stdout(),
            "{passed} passed, {failed} failed, {skipped} skipped"
        )
        .ok();
        !self.has_failures()
    }
}

/// Minutes and seconds: `12:07`.
fn minutes(took: Duration) -> String {
    let seconds = took.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// So many of the last lines are looked through for the reason of a failure.
const REMEMBERED: usize = 400;
/// And so many of them, at most, stand in the summary.
const TOLD: usize = 12;

/// What a program printed, as far as it is told again.
struct Shown {
    /// The end of it.
    last: VecDeque<String>,
    /// Its cases that were not run, each with the reason.
    skipped: Vec<String>,
}

/// Passes on what a program prints, each line behind the name of its lane.
fn show(output: PipeReader, lane: &str) -> Shown {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let (mut last, mut skipped) = (VecDeque::new(), Vec::new());
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // In one piece, so that no line of another lane comes between.
        std::io::stderr()
            .write_all(&[lane.as_bytes(), &line].concat())
            .ok();
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        skipped.extend(skips(&text).map(str::to_owned));
        last.push_back(text);
        if last.len() > REMEMBERED {
            last.pop_front();
        }
        line.clear();
    }
    Shown { last, skipped }
}

/// `NAME skipped WHY` of a line `case NAME skipped WHY`, before which the harness may have put its dots.
fn skips(line: &str) -> Option<&str> {
    let said = line.trim_start_matches('.').strip_prefix("case ")?;
    (said.split(' ').nth(1) == Some("skipped")).then_some(said)
}

/// The lines that tell why: from the first word of an error on, else the last ones.
fn why(said: Vec<String>) -> Vec<String> {
    let tells = |line: &String| {
        ["Error: ", "error: ", "error[", "---- ", "timeout: "]
            .iter()
            .any(|word| line.starts_with(word))
            || line.contains("panicked at")
    };
    let from = said
        .iter()
        .position(tells)
        .unwrap_or(said.len().saturating_sub(TOLD));
    let lines = said.into_iter().skip(from).filter(|line| !line.is_empty());
    lines.take(TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_why_in_the_summary() {
        let mut report = Report::default();
        let script = "seq 500; echo 'Error: the disk is full' >&2; echo after; exit 3";
        let ok = report.run("one", Command::new("sh").args(["-c", script]));
        assert_eq!(ok.expect("sh starts"), Outcome::Failed);
        assert_eq!(report.rows[0].why, ["Error: the disk is full", "after"]);
    }

    #[test]
    fn what_could_not_be_run_is_no_success() {
        let mut report = Report::default();
        let script = "echo 'case one ok 1.0'; printf .; echo 'case two skipped there is no Rook' >&2";
        let outcome = report.cases("some", Command::new("sh").args(["-c", script]));
        assert_eq!(outcome.expect("sh starts"), Outcome::Skipped);
        assert_eq!(report.rows[0].why, ["two skipped there is no Rook"]);
        assert!(report.summary(), "it is no failure either");
    }

    #[test]
    fn what_is_limited_is_the_same() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $ONE $PWD ${HOME-none}"]);
        command.env("ONE", "1").env_remove("HOME").current_dir("/");
        assert_eq!(printed(&mut limited(&command)).expect("it ends"), "1 / none");
    }

    #[test]
    fn without_a_word_of_an_error_the_last_lines_are_told() {
        let told = why((0..30).map(|n| n.to_string()).collect());
        assert_eq!(told.len(), TOLD);
        assert_eq!(told.last().map(String::as_str), Some("29"));
    }
}
