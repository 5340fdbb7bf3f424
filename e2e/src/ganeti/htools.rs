//! The real htools, asked about clusters in Ganeti's text format: what ours is compared with.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use super::release::Release;
use super::root::Root;
use crate::command::output;
use crate::folder::Folder;
use crate::machine::Needed;
use crate::sandbox::Sandbox;

/// What the files of all questions that are asked at the same time may take, in bytes.
const DISK: u64 = 500_000_000;

/// A place where they run. Several questions may be asked at the same time.
#[derive(Debug)]
pub struct Htools {
    sandbox: Sandbox,
    // After the sandbox, whose end removes it.
    _folder: Folder,
    root: Root,
    asked: AtomicU64,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// What it printed on stdout.
    pub stdout: String,
    /// What it printed on stderr.
    pub stderr: String,
}

/// Nodes that `hroller` has rebooted at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Their names, in its order.
    pub nodes: Vec<String>,
    /// With `--print-moves`, what is moved before.
    pub moves: Vec<Move>,
}

/// An instance that `hroller` has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Its name.
    pub instance: String,
    /// Its new primary node.
    pub primary: String,
    /// Its new secondary node, if it has one.
    pub secondary: Option<String>,
}

impl Htools {
    /// Makes a place for those of Ganeti 3.0. Nothing of a cluster runs in it.
    ///
    /// # Errors
    /// There is no root and none can be built, or no namespaces.
    pub fn start() -> Result<Self> {
        Self::start_of(Release::V3_0)
    }

    /// Those of a release.
    ///
    /// # Errors
    /// As of [`Htools::start`].
    pub fn start_of(release: Release) -> Result<Self> {
        Needed::Iproute2.ensure()?;
        let root = Root::ensure_of(release)?;
        let folder = Folder::make("htools-", DISK)?;
        let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
        Ok(Self {
            sandbox,
            _folder: folder,
            root,
            asked: AtomicU64::new(0),
        })
    }

    /// The root whose programs these are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Runs `hroller` with options on a cluster in the text format.
    ///
    /// # Errors
    /// It could not be run, or was killed. That it says no is an answer.
    pub fn hroller(&self, cluster: &str, options: &[&str]) -> Result<Answer> {
        self.run("hroller", cluster, options)
    }

    /// Runs one of the htools (`hroller`, `hbal`, `hspace`, `hinfo` …) with `-t` and options.
    ///
    /// # Errors
    /// As of [`Htools::hroller`].
    pub fn run(&self, program: &str, cluster: &str, options: &[&str]) -> Result<Answer> {
        self.on_file(cluster, "data", |path| {
            let mut command = self.sandbox.command_in(&self.root.path, program);
            command.arg("-t").arg(path).args(options);
            command
        })
    }

    /// Runs `hail`, which answers a request in JSON for the place of an instance.
    ///
    /// # Errors
    /// As of [`Htools::hroller`].
    pub fn hail(&self, request: &str) -> Result<Answer> {
        self.on_file(request, "json", |path| {
            let hail = "/usr/lib/ganeti/iallocators/hail";
            let mut command = self.sandbox.command_in(&self.root.path, hail);
            command.arg(path);
            command
        })
    }

    fn on_file(
        &self,
        text: &str,
        suffix: &str,
        command: impl FnOnce(&Path) -> std::process::Command,
    ) -> Result<Answer> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let path = self.sandbox.dir().join(format!("{number}.{suffix}"));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        let mut command = command(&path);
        // Its messages are read.
        let out = output(command.env("LC_ALL", "C.UTF-8"))?;
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        let code = out
            .status
            .code()
            .with_context(|| format!("{command:?} ended with {}", out.status))?;
        Ok(Answer {
            code,
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }
}

impl Answer {
    /// The groups, if this is an answer of `hroller` that has any.
    ///
    /// # Errors
    /// It said no, or what it printed is not understood.
    pub fn groups(&self) -> Result<Vec<Group>> {
        ensure!(
            self.code == 0,
            "hroller ended with {}: {}",
            self.code,
            self.stderr.trim()
        );
        groups(&self.stdout)
    }
}

/// Reads what `hroller` prints: a group on each line, and indented below it the moves.
///
/// With `--one-step-only` each node of the first group has a line; they are one group.
///
/// # Errors
/// A line is not understood.
pub fn groups(text: &str) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let one_step = text.starts_with("'First Reboot Group'");
    for line in text.lines() {
        if line.starts_with('\'') {
            continue;
        }
        if let Some(moved) = line.strip_prefix("  ") {
            let group = groups.last_mut().context("a move before the first group")?;
            group.moves.push(a_move(moved)?);
            continue;
        }
        // None at all is a line of its own too: nodes that were coloured, and then not selected.
        let nodes = line.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        match groups.last_mut() {
            Some(group) if one_step => group.nodes.extend(nodes),
            _ => groups.push(Group {
                nodes: nodes.collect(),
                moves: Vec::new(),
            }),
        }
    }
    Ok(groups)
}

fn a_move(line: &str) -> Result<Move> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (instance, primary, secondary) = match words[..] {
        [instance, primary] => (instance, primary, None),
        [instance, primary, secondary] => (instance, primary, Some(secondary.to_owned())),
        _ => bail!("not understood as a move of hroller: {line:?}"),
    };
    Ok(Move {
        instance: instance.to_owned(),
        primary: primary.to_owned(),
        secondary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str) -> Vec<Vec<String>> {
        groups(text)
            .unwrap()
            .into_iter()
            .map(|group| group.nodes)
            .collect()
    }

    #[test]
    fn groups_are_read() {
        let text = "'Node Reboot Groups'\nnode-01-002,node-01-003\nnode-01-001\n";
        assert_eq!(
            nodes(text),
            [vec!["node-01-002", "node-01-003"], vec!["node-01-001"]]
        );
        let headless = text.split_once('\n').unwrap().1;
        assert_eq!(nodes(headless), nodes(text));
        let one = "'First Reboot Group'\nnode-01-002\nnode-01-003\n";
        assert_eq!(nodes(one), [["node-01-002", "node-01-003"]]);
        assert_eq!(nodes(""), Vec::<Vec<String>>::new());
        assert_eq!(nodes("\na\n"), [vec![], vec!["a"]]);
    }

    #[test]
    fn moves_belong_to_the_group_above() {
        let text = "'Node Reboot Groups'\na,b\n  inst-1 c\n  inst-2 c d\nc,d\n";
        let groups = groups(text).unwrap();
        assert_eq!(groups[0].moves.len(), 2);
        assert_eq!(groups[0].moves[0].secondary, None);
        assert_eq!(
            groups[0].moves[1],
            Move {
                instance: "inst-2".to_owned(),
                primary: "c".to_owned(),
                secondary: Some("d".to_owned()),
            }
        );
        assert_eq!(groups[1].moves, []);
        assert!(super::groups("  inst-1 c\n").is_err());
        assert!(super::groups("a\n  inst-1\n").is_err());
    }

    #[test]
    fn an_error_has_no_groups() {
        let answer = Answer {
            code: 1,
            stdout: String::new(),
            stderr: "Error: Cannot create node graph\n".to_owned(),
        };
        let error = answer.groups().unwrap_err().to_string();
        assert!(error.contains("Cannot create node graph"), "{error}");
    }
}
