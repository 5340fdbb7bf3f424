//! The API against its description, by schemathesis: in a virtual environment of Python's that is kept in the cache by all versions in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::report::{Report, cache, printed, say};
use crate::tools::api_case;

/// All that it needs, as pip resolved it.
const REQUIREMENTS: &str = include_str!("schemathesis.txt");

/// Wheels only: nothing is compiled, and no code of a package runs to install it. The list is complete.
const INSTALL: [&str; 5] = [
    "install",
    "--quiet",
    "--no-deps",
    "--only-binary=:all:",
    "--requirement",
];

/// By this the test knows where the program is. Who gives one is believed.
const VARIABLE: &str = "STAGGER_TEST_SCHEMATHESIS";

/// Runs it.
pub(crate) fn test(report: &mut Report) -> Result<()> {
    let name = "schemathesis: answers that the description does not name";
    let case = "described::every_answer_is_one_that_the_description_names";
    api_case(report, name, VARIABLE, program, case)
}

/// The program; its environment is made if it is missing.
fn program() -> Result<PathBuf> {
    let python =
        printed(Command::new("python3").arg("--version")).context("schemathesis takes python3 with venv")?;
    let folder = folder(&cache()?, &python);
    let program = folder.join("bin/schemathesis");
    let whole = folder.join("whole");
    if !whole.exists() {
        say(&format!("== make {} with what PyPI has", folder.display()));
        make(&folder)?;
        // What is half made is made anew.
        fs::write(&whole, "").with_context(|| format!("write {}", whole.display()))?;
    }
    Ok(program)
}

/// Where it is kept. An environment is bound to the Python that made it.
fn folder(cache: &Path, python: &str) -> PathBuf {
    let mut digest = Sha256::new();
    digest.update(python);
    digest.update(INSTALL.join(" "));
    digest.update(REQUIREMENTS);
    let digest = digest.finalize();
    let key = digest[..4]
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    cache
        .join("tools")
        .join(format!("schemathesis-{}-{key}", version()))
}

/// Which it is, as the list names it.
fn version() -> &'static str {
    let mut lines = REQUIREMENTS.lines();
    lines
        .find_map(|line| line.strip_prefix("schemathesis=="))
        .unwrap_or("unknown")
}

fn make(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).ok();
    let pip = folder.join("bin/pip");
    printed(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let list = folder.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).with_context(|| format!("write {}", list.display()))?;
    printed(Command::new(&pip).args(INSTALL).arg(&list))?;
    printed(Command::new(&pip).arg("check"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_named_and_another_python_is_another_environment() {
        for line in REQUIREMENTS.lines().filter(|line| !line.starts_with('#')) {
            let (name, version) = line.split_once("==").expect("a line names one version");
            assert!(
                !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()),
                "{line}"
            );
        }
        let cache = Path::new("/cache");
        let one = folder(cache, "Python 3.11.2");
        assert!(
            one.starts_with("/cache/tools") && one.to_string_lossy().contains(version()),
            "{one:?}"
        );
        assert_ne!(one, folder(cache, "Python 3.13.5"));
    }
}
