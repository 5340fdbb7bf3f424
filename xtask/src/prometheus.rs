//! The alert rules by promtool, and gates on a real Prometheus and Alertmanager: those of Debian's packages, unpacked in the cache and
//! not installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::report::{Report, cache, ignored, printed, say};
use crate::tools::api_case;

/// By these the tests know where the programs are. Who gives one is believed.
const PROMTOOL: &str = "STAGGER_TEST_PROMTOOL";
const PROMETHEUS: &str = "STAGGER_TEST_PROMETHEUS";
const ALERTMANAGER: &str = "STAGGER_TEST_ALERTMANAGER";

/// Runs both.
pub(crate) fn test(report: &mut Report) -> Result<()> {
    let case = "alerts::prometheus_takes_the_rules_and_what_it_is_told";
    api_case(
        report,
        "promtool: alert rules",
        PROMTOOL,
        || program("prometheus", "promtool"),
        case,
    )?;
    let name = "gates on a real Prometheus and Alertmanager";
    let given = |variable: &str, bring: fn() -> Result<PathBuf>| match std::env::var_os(variable) {
        Some(given) => Ok(PathBuf::from(given)),
        None => bring(),
    };
    let prometheus = given(PROMETHEUS, || program("prometheus", "prometheus"));
    let both = prometheus.and_then(|prometheus| Ok((prometheus, given(ALERTMANAGER, alertmanager)?)));
    match both {
        Ok((prometheus, alertmanager)) => {
            let mut command = ignored("real", None);
            command
                .env(PROMETHEUS, prometheus)
                .env(ALERTMANAGER, alertmanager);
            report.run(name, &mut command)?;
        }
        Err(error) => report.skipped(name, &format!("{error:#}")),
    }
    Ok(())
}

/// Debian's Alertmanager reads a template at a place that only an installed package has: a program that starts it where it sees one.
fn alertmanager() -> Result<PathBuf> {
    const PACKAGE: &str = "prometheus-alertmanager";
    let program = program(PACKAGE, PACKAGE)?;
    let package = program
        .ancestors()
        .nth(3)
        .context("a program is in a package's folder")?;
    let started = package.join("started-in-place");
    let script = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount -t overlay overlay -o lowerdir={share}:/usr/share /usr/share && exec \"$0\" \"$@\"' \
         {program} \"$@\"\n",
        share = package.join("usr/share").display(),
        program = program.display(),
    );
    fs::write(&started, script).with_context(|| format!("write {}", started.display()))?;
    fs::set_permissions(&started, PermissionsExt::from_mode(0o755))
        .with_context(|| format!("let {} be started", started.display()))?;
    Ok(started)
}

/// The program of the version of a package that this machine's apt would install; it is fetched if it is missing.
pub(crate) fn program(package: &str, file: &str) -> Result<PathBuf> {
    let policy = printed(Command::new("apt-cache").args(["policy", package]))?;
    let version = candidate(&policy).with_context(|| {
        format!("apt knows no package {package}: `apt-get update` asks Debian's archive what there is")
    })?;
    let folder = cache()?.join("tools").join(format!("{package}-{version}"));
    let program = folder.join("usr/bin").join(file);
    if !program.exists() {
        say(&format!(
            "== unpack {package} {version} into {}",
            folder.display()
        ));
        fetch(&folder, package, version)?;
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
fn fetch(folder: &Path, package: &str, version: &str) -> Result<()> {
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
                &format!("{package}={version}"),
            ])
            .current_dir(scratch.path()),
    )?;
    let archive = fs::read_dir(scratch.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .with_context(|| format!("apt has fetched no {package}"))?;
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
