//! The alert rules by promtool: that of Debian's package, unpacked in the cache and not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::report::{Report, cache, printed, say};
use crate::tools::api_case;

const PACKAGE: &str = "prometheus";

/// By this the test knows where the program is. Who gives one is believed.
const VARIABLE: &str = "STAGGER_TEST_PROMTOOL";

/// Runs it.
pub(crate) fn test(report: &mut Report) -> Result<()> {
    let case = "alerts::prometheus_takes_the_rules_and_what_it_is_told";
    api_case(report, "promtool: alert rules", VARIABLE, program, case)
}

/// The program of the version that this machine's apt would install; it is fetched if it is missing.
fn program() -> Result<PathBuf> {
    let policy = printed(Command::new("apt-cache").args(["policy", PACKAGE]))?;
    let version = candidate(&policy).with_context(|| {
        format!("apt knows no package {PACKAGE}: `apt-get update` asks Debian's archive what there is")
    })?;
    let folder = cache()?.join("tools").join(format!("{PACKAGE}-{version}"));
    let program = folder.join("usr/bin/promtool");
    if !program.exists() {
        say(&format!(
            "== unpack {PACKAGE} {version} into {}",
            folder.display()
        ));
        fetch(&folder, version)?;
    }
    Ok(program)
}

/// The version that apt would install.
fn candidate(policy: &str) -> Option<&str> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then_some(version)
}

/// Unpacks it beside its place, and then in it: what is half there is nowhere.
fn fetch(folder: &Path, version: &str) -> Result<()> {
    let tools = folder.parent().context("a folder of tools")?;
    fs::create_dir_all(tools).with_context(|| format!("make {}", tools.display()))?;
    let scratch = tempfile::tempdir_in(tools).context("make a folder")?;
    printed(
        Command::new("apt-get")
            // The folder is ours alone, and apt's own user cannot write there.
            .args([
                "-o",
                "APT::Sandbox::User=root",
                "download",
                &format!("{PACKAGE}={version}"),
            ])
            .current_dir(scratch.path()),
    )?;
    let archive = fs::read_dir(scratch.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .with_context(|| format!("apt has fetched no {PACKAGE}"))?;
    let unpacked = scratch.path().join("unpacked");
    printed(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&archive)
            .arg(&unpacked),
    )?;
    fs::rename(&unpacked, folder).with_context(|| format!("put it at {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::candidate;

    #[test]
    fn what_apt_would_install_is_read_from_its_policy() {
        let known = "prometheus:\n  Installed: (none)\n  Candidate: 2.42.0+ds-5+deb12u1\n  Version table:\n";
        assert_eq!(candidate(known), Some("2.42.0+ds-5+deb12u1"));
        assert_eq!(
            candidate("prometheus:\n  Installed: (none)\n  Candidate: (none)\n"),
            None
        );
        assert_eq!(candidate(""), None);
    }
}
