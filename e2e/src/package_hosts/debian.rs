//! The software of a host by Debian's packages: prepared ahead, installed without any daemon being restarted, taken back to what
//! was there. The programs are for the shell of the host, as root; each says in its head what it takes and does.

use anyhow::Result;

use super::host::Host;

/// Downloads what an installation needs and what its rollback needs, and tells what it would change.
pub const PREPARE: &str = include_str!("debian/prepare.sh");
/// Installs what was prepared.
pub const INSTALL: &str = include_str!("debian/install.sh");
/// Restarts units.
pub const RESTART: &str = include_str!("debian/restart.sh");
/// Puts back the versions that were there.
pub const ROLLBACK: &str = include_str!("debian/rollback.sh");

/// What an installation changes: a package, the version that is there, and the one to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageChange {
    /// The package.
    pub name: String,
    /// None: it is not there yet.
    pub from: Option<String>,
    /// The version to come.
    pub to: String,
}

/// Prepares a host for the installation of a version of Ceph's packages.
///
/// # Errors
/// The host refuses, with its reason.
pub fn prepare(host: &Host, version: &str) -> Result<Vec<PackageChange>> {
    let said = host.run_program(PREPARE, &[version])?;
    let change = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(PackageChange {
            name: words.next()?,
            from: words.next().filter(|from| from != "-"),
            to: words.next()?,
        })
    };
    Ok(said.lines().filter_map(change).collect())
}

/// Installs what was prepared.
///
/// # Errors
/// The same.
pub fn install(host: &Host, version: &str) -> Result<()> {
    host.run_program(INSTALL, &[version]).map(drop)
}

/// Restarts units of systemd.
///
/// # Errors
/// The same.
pub fn restart(host: &Host, units: &[&str]) -> Result<()> {
    host.run_program(RESTART, units).map(drop)
}

/// Takes a host back from a version to what was there before.
///
/// # Errors
/// The same.
pub fn rollback(host: &Host, version: &str) -> Result<()> {
    host.run_program(ROLLBACK, &[version]).map(drop)
}
