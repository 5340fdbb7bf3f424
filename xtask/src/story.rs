//! A story of each real system. One that passed on this machine with the very inputs that it would be run with now is
//! not run again, and the summary says so.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::report::{Outcome, Report, cache, ignored_of_program, limited, root, said};

/// One case on a real system, or all of a file.
#[derive(Debug)]
pub(crate) struct Story {
    name: &'static str,
    /// The test file.
    file: &'static str,
    case: Option<&'static str>,
    /// The crates that it covers beside [`SHARED`].
    crates: &'static [&'static str],
}

const KUBERNETES: &[&str] = &["crates/backends/ceph", "crates/backends/rook", "deploy"];

/// All of them, in the order in which they are run.
pub(crate) const STORIES: [Story; 10] = [
    Story {
        name: "Ceph: the story on a real cluster",
        file: "ceph_story",
        case: None,
        crates: &["crates/backends/ceph"],
    },
    Story {
        name: "Ceph: the story beside a real cephadm",
        file: "cephadm_story",
        case: None,
        crates: &["crates/backends/ceph"],
    },
    Story {
        name: "Ganeti: the story on a real cluster",
        file: "ganeti_story",
        case: None,
        crates: &["crates/backends/ganeti"],
    },
    Story {
        name: "Ironic: the story on a real cluster",
        file: "ironic_story",
        case: None,
        crates: &["crates/backends/ironic"],
    },
    Story {
        name: "Kubernetes: the definitions on a real API server",
        file: "kubernetes_api",
        case: None,
        crates: KUBERNETES,
    },
    Story {
        name: "Kubernetes: the operator on a real API server without Ceph",
        file: "operator_alone",
        case: None,
        crates: KUBERNETES,
    },
    Story {
        name: "Kubernetes: the story on a real cluster laid out by Rook",
        file: "rook_story",
        case: None,
        crates: KUBERNETES,
    },
    Story {
        name: "Kubernetes: the story beside the real Rook",
        file: "rook_beside",
        case: Some("stagger_updates_while_rook_runs"),
        crates: KUBERNETES,
    },
    Story {
        name: "Ganeti: reboot groups beside those of the real hroller",
        file: "ganeti_differential",
        case: Some("hundreds_of_clusters_as_hroller_sees_them"),
        crates: &["crates/backends/ganeti"],
    },
    Story {
        name: "The page in a real browser",
        file: "page_in_a_browser",
        case: Some("what_a_person_does_with_the_page"),
        crates: &["crates/report", "crates/serve"],
    },
];

/// What each of them covers: what all systems share, the harness, and what it is all built with.
const SHARED: [&str; 11] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "crates/asks",
    "crates/cli",
    "crates/core",
    "crates/engine",
    "crates/gates",
    "crates/versioned",
    "e2e",
    "rust-toolchain.toml",
];

impl Story {
    /// Whether it has a Kubernetes of its own.
    pub(crate) fn is_of_kubernetes(&self) -> bool {
        self.crates == KUBERNETES
    }

    /// Runs it, or tells since when there is no need. `versions` are those of the real systems' roots.
    pub(crate) fn run(&self, report: &mut Report, versions: &[String], again: bool) -> Result<()> {
        let inputs = self.inputs(versions)?;
        let passed = self.passed()?;
        let before = std::fs::read_to_string(&passed).unwrap_or_default();
        if let Some(when) = before.strip_prefix(&inputs).filter(|_| !again) {
            report.known(
                self.name,
                &format!("it passed with these inputs at {}", when.trim()),
            );
            return Ok(());
        }
        // It may fail now with what it passed with before: then it is no longer known to pass.
        std::fs::write(&passed, "").with_context(|| format!("write {}", passed.display()))?;
        let program = ignored_of_program(self.file, self.case)?;
        if report.cases(self.name, &mut limited(&program))? == Outcome::Passed {
            let when = said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?;
            std::fs::write(&passed, format!("{inputs} {when}\n"))
                .with_context(|| format!("write {}", passed.display()))?;
        }
        Ok(())
    }

    /// The file that says with which inputs it passed last, and when; empty while it does not.
    fn passed(&self) -> Result<PathBuf> {
        let folder = cache()?.join("passed");
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder.join(self.file))
    }

    /// The digest of all that it is made of, changes that are not committed included.
    fn inputs(&self, versions: &[String]) -> Result<String> {
        let words = [
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
        ];
        let listed = Command::new("git")
            .args(words)
            .args(SHARED.iter().chain(self.crates))
            .current_dir(root())
            .output()
            .context("ask git for the files")?;
        let listed = String::from_utf8(listed.stdout).context("read the names of files")?;
        let mut files: Vec<_> = listed.split_terminator('\0').collect();
        files.sort_unstable();
        files.dedup();
        ensure!(!files.is_empty(), "git knows none of the files of {}", self.name);
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        add(format!("{self:?} {versions:?}").as_bytes());
        for file in files {
            add(file.as_bytes());
            match std::fs::read(root().join(file)) {
                Ok(content) => add(&content),
                // Deleted, and still known to git.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("read {file}")),
            }
        }
        Ok(digest
            .finalize()
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_covered_and_another_version_is_another_input() {
        for story in &STORIES {
            for folder in SHARED.iter().chain(story.crates) {
                assert!(root().join(folder).exists(), "{folder}");
            }
            let file = root().join("e2e/tests").join(story.file);
            assert!(
                file.join("main.rs").exists() || file.with_extension("rs").exists(),
                "{file:?}"
            );
            let one = story.inputs(&["Ceph 20.2.4".to_owned()]).expect("files are read");
            assert_eq!(
                one,
                story.inputs(&["Ceph 20.2.4".to_owned()]).expect("files are read")
            );
            assert_ne!(
                one,
                story.inputs(&["Ceph 20.2.5".to_owned()]).expect("files are read")
            );
        }
        // Who adds a system says which story covers it. The simulator has its own worlds.
        for entry in std::fs::read_dir(root().join("crates/backends")).expect("there are backends") {
            let name = entry.expect("an entry").file_name();
            let folder = format!("crates/backends/{}", name.to_string_lossy());
            let covered = STORIES
                .iter()
                .any(|story| story.crates.contains(&folder.as_str()));
            assert!(covered || folder.ends_with("/sim"), "{folder}");
        }
    }
}
