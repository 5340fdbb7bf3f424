//! The real `hroller` and `stagger hroller --compat=strict`, byte for byte: stdout, stderr, exit code, and the file of `-S`. And
//! the shell tests of Ganeti's own, which both have to pass.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use stagger_e2e::command::output;
use stagger_e2e::ganeti::{Answer, Htools, source};
use stagger_e2e::stagger::binary;
use stagger_ganeti::loaders::generated::{ClusterRng, Shape, cluster};
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::GanetiCluster;

/// A cluster and a question, in the words of the command line.
#[derive(Debug)]
pub(crate) struct Strict {
    seed: u64,
    pub(crate) text: String,
    flags: Vec<String>,
}

impl Strict {
    /// That of a seed: mixed templates and states; two of three are tight.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = ClusterRng(seed);
        let most = rng.pick(&[6, 10, 16, 30, 60]);
        let shape = Shape::any(&mut rng, most);
        let mut drawn = cluster(&mut rng, &shape);
        spoil(&mut rng, &mut drawn);
        let mut flags = Vec::new();
        for (flag, percent) in [
            ("--offline-maintenance", 20),
            ("--full-evacuation", 30),
            ("--skip-non-redundant", 12),
            ("--ignore-non-redundant", 25),
            ("--force", 20),
            ("--print-moves", 80),
            ("--one-step-only", 15),
            ("--no-headers", 30),
            ("-q", 20),
            ("-v", 20),
            ("-vv", 20),
        ] {
            if rng.percent(percent) {
                flags.push(flag.to_owned());
            }
        }
        if rng.percent(20) {
            let group = &drawn.groups[rng.below(drawn.groups.len() as u64) as usize];
            let name = match rng.below(20) {
                0 => "nowhere",
                1..10 => group.uuid.as_str(),
                _ => group.name.as_str(),
            };
            flags.extend(["-G".to_owned(), name.to_owned()]);
        }
        if rng.percent(25) {
            let tags = rng.pick(&["even", "odd", "even,odd", "none"]);
            flags.push(format!("--node-tags={tags}"));
        }
        if rng.percent(25) {
            for _ in 0..=rng.below(3) {
                let node = &drawn.nodes[rng.below(drawn.nodes.len() as u64) as usize];
                let name = if rng.percent(5) {
                    "nobody"
                } else {
                    node.name.as_str()
                };
                flags.extend(["-O".to_owned(), name.to_owned()]);
            }
        }
        // Given twice, the last of them counts.
        if rng.percent(5) {
            let group = &drawn.groups[rng.below(drawn.groups.len() as u64) as usize];
            flags.push(format!("--group={}", group.name));
        }
        if rng.percent(5) {
            flags.push(format!("--node-tags={}", rng.pick(&["even", "odd"])));
        }
        Self {
            seed,
            text: text::write(&drawn),
            flags,
        }
    }

    fn words(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// Whether both answer the same.
    pub(crate) fn compare(&self, real: &Htools) -> Result<bool> {
        let theirs = real.hroller(&self.text, &self.words())?;
        let file = tempfile::NamedTempFile::new().context("make a file")?;
        fs::write(file.path(), &self.text).context("write the cluster")?;
        let mut words = vec!["-t".to_owned(), file.path().display().to_string()];
        words.extend(self.flags.iter().cloned());
        let ours = ours(&words)?;
        ensure!(
            ours == theirs,
            "seed {}, hroller {}\n{}\nours: {ours:#?}\nhroller: {theirs:#?}",
            self.seed,
            self.flags.join(" "),
            self.text
        );
        Ok(theirs.code == 0)
    }
}

/// Less free than there is, nodes that are offline or say nothing, and masters that are missing or too many.
fn spoil(rng: &mut ClusterRng, cluster: &mut GanetiCluster) {
    let tight = rng.percent(66);
    for node in &mut cluster.nodes {
        if rng.percent(2) {
            node.offline = true;
        }
        if rng.percent(1) {
            node.master = !node.master;
        }
        if rng.percent(2) && !node.master {
            node.resources = None;
        }
        if let Some(has) = node.resources.as_mut().filter(|_| tight) {
            has.memory_free = has.memory_free * rng.pick(&[5, 10, 20, 40, 80, 100]) / 100;
            if rng.percent(30) {
                has.disk_free = has.disk_free * rng.pick(&[1, 10, 50]) / 100;
            }
        }
    }
}

/// What ours answers under hroller's name.
fn ours(words: &[String]) -> Result<Answer> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let named = folder.path().join("hroller");
    std::os::unix::fs::symlink(fs::canonicalize(binary()?)?, &named).context("name it hroller")?;
    let out = output(Command::new(&named).arg("--no-warn").args(words))?;
    Ok(Answer {
        code: out.status.code().context("it was killed")?,
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// One of Ganeti's shell tests: a command line, what it prints, and its exit code.
#[derive(Debug)]
struct ShellTest {
    command: String,
    stdout: Option<String>,
    stderr: Option<String>,
    code: i32,
}

/// Reads tests of `shelltestrunner`: a command, `>>>` and its output (`>>>2` for errors), `>>>=` and its exit code.
fn shell_tests(text: &str) -> Result<Vec<ShellTest>> {
    let mut tests: Vec<ShellTest> = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    let mut into_errors = None;
    for line in text.lines() {
        let test = tests.last_mut();
        if line.starts_with("./test/hs/") {
            tests.push(ShellTest {
                command: line.to_owned(),
                stdout: None,
                stderr: None,
                code: 0,
            });
        } else if let Some(rest) = line.strip_prefix(">>>") {
            let test = test.context("an output before the first command")?;
            if let Some(errors) = into_errors.take() {
                let said = Some(lines.join("\n"));
                if errors {
                    test.stderr = said;
                } else {
                    test.stdout = said;
                }
            }
            lines.clear();
            if let Some(code) = rest.strip_prefix('=') {
                test.code = code
                    .trim()
                    .parse()
                    .with_context(|| format!("{line:?} has no exit code"))?;
                continue;
            }
            into_errors = Some(rest.starts_with('2'));
            let first = rest.trim_start_matches('2');
            lines.extend(Some(first).filter(|first| !first.is_empty()));
        } else if into_errors.is_some() {
            lines.push(line);
        }
    }
    Ok(tests)
}

/// Whether an output is as the test has it: the same lines, or a pattern between slashes.
fn fits(wanted: Option<&str>, said: &str) -> Result<bool> {
    let Some(wanted) = wanted else { return Ok(true) };
    if let Some(pattern) = wanted.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        return Ok(Regex::new(&format!("(?m){pattern}"))?.is_match(said));
    }
    Ok(said.trim_end() == wanted.trim_end())
}

/// How many of the tests the real one passes, ours, and how many there are.
pub(crate) fn shell_tests_passed(real: &Htools) -> Result<(usize, usize, usize)> {
    let source = source::ensure()?;
    let path = source.join("test/hs/shelltests/htools-hroller.test");
    let tests = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let tests = shell_tests(&tests)?;
    let (mut theirs, mut mine) = (0, 0);
    for test in &tests {
        let data = source.join("test/data/htools").display().to_string();
        let words: Vec<String> = test
            .command
            .split_whitespace()
            .skip(1)
            .map(|word| word.replace("$TESTDATA_DIR", &data))
            .collect();
        let passes = |answer: &Answer| -> Result<bool> {
            Ok(answer.code == test.code
                && fits(test.stdout.as_deref(), &answer.stdout)?
                && fits(test.stderr.as_deref(), &answer.stderr)?)
        };
        mine += usize::from(passes(&ours(&words)?)?);
        theirs += usize::from(passes(&asked(real, &words)?)?);
    }
    Ok((theirs, mine, tests.len()))
}

/// What the real one answers to words that name a file outside of its root.
fn asked(real: &Htools, words: &[String]) -> Result<Answer> {
    let Some(at) = words.iter().position(|word| word == "-t") else {
        bail!("{words:?} names no file");
    };
    let file = words.get(at + 1).context("-t without a file")?;
    let text = fs::read_to_string(Path::new(file)).with_context(|| format!("read {file}"))?;
    let others: Vec<&str> = words
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != at && *place != at + 1)
        .map(|(_, word)| word.as_str())
        .collect();
    real.hroller(&text, &others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_test_is_read() {
        let text = "./test/hs/hroller -t $TESTDATA_DIR/a\n>>>/^n.\nm$/\n>>>= 0\n\n./test/hs/hroller -x\n>>>2\nError: no\n>>>=1\n";
        let tests = shell_tests(text).unwrap();
        assert_eq!(tests.len(), 2);
        assert_eq!(tests[0].stdout.as_deref(), Some("/^n.\nm$/"));
        assert_eq!(
            (tests[1].stderr.as_deref(), tests[1].code),
            (Some("Error: no"), 1)
        );
        assert!(fits(tests[0].stdout.as_deref(), "n1\nm\n").unwrap());
        assert!(!fits(tests[0].stdout.as_deref(), "n1\nk\n").unwrap());
    }
}
