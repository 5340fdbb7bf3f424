//! The software of a host by Debian's packages, as the profile of that name has it: the same scripts, past stagger.

use anyhow::{Context, Result};
use stagger_ceph::profile::SoftwareProfile;
use stagger_engine::template::filled;

use super::root::Repository;
use crate::hosts::host::Host;

/// Gives a host the packages of a release of Ceph, `20.2.4`; no daemon is restarted.
///
/// # Errors
/// The host refuses, with its reason.
pub fn upgrade(host: &Host, release: &str) -> Result<String> {
    let script = SoftwareProfile::Debian.software("osd").upgrade;
    run(host, script, "", release)
}

/// Takes a host back to the packages of that release, which were there before an upgrade.
///
/// # Errors
/// The same.
pub fn rollback(host: &Host, release: &str) -> Result<String> {
    let script = SoftwareProfile::Debian.software("osd").rollback;
    run(host, script, "", release)
}

/// Stops an OSD, and makes its data readable for the older release.
///
/// # Errors
/// The same.
pub fn before_rollback(host: &Host, osd: u64, release: &str) -> Result<String> {
    let script = SoftwareProfile::Debian.software("osd").before_rollback;
    run(host, script, &osd.to_string(), release)
}

/// Restarts a daemon by its unit.
///
/// # Errors
/// The same.
pub fn restart(host: &Host, kind: &str, id: &str) -> Result<String> {
    let script = SoftwareProfile::Debian.software(kind).restart;
    run(host, script, id, "")
}

/// Gives apt one more source.
///
/// # Errors
/// The host does not answer.
pub fn add_source(host: &Host, repository: Repository) -> Result<()> {
    let (suite, source) = (repository.suite(), repository.source());
    host.run(&format!("echo '{source}' >/etc/apt/sources.list.d/{suite}.list"))
        .map(drop)
}

fn run(host: &Host, script: Option<String>, id: &str, release: &str) -> Result<String> {
    let script = script.context("the profile has no such command")?;
    let words = [("id", id), ("release", release)];
    let words: Vec<_> = words.into_iter().filter(|(_, word)| !word.is_empty()).collect();
    let script = filled(&script, &words).map_err(|error| anyhow::anyhow!("{error}"))?;
    host.run_program(&script, &[])
}
