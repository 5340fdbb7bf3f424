//! The PostgreSQL for tests and benches: that of the root of Ironic, which has one beside its MariaDB.
//!
//! So a machine on which nothing is installed runs them all. Who gives `STAGGER_TEST_POSTGRES` is believed.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{Report, built, ignored};

/// By this the tests know where it is: a folder with `bin/`, or a root with the package in it.
const VARIABLE: &str = "STAGGER_TEST_POSTGRES";

/// The test files that need one. What needs none of their cases is not left out of the quick tests.
pub(crate) const FILES: [&str; 4] = ["all", "stores", "handover", "on_postgres"];

/// Tells a test or a bench where PostgreSQL is. A missing root is built first, which takes minutes.
pub(crate) fn told(command: &mut Command) -> Result<()> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let root = built("ironic-root")
        .arg("--path")
        .output()
        .context("ask ironic-root where it is")?;
    if !root.status.success() {
        bail!(
            "there is no PostgreSQL for tests: {}",
            String::from_utf8_lossy(&root.stderr).trim()
        );
    }
    command.env(VARIABLE, String::from_utf8_lossy(&root.stdout).trim());
    Ok(())
}

/// Runs the tests that need one. Those that take a minute are left to the long run.
pub(crate) fn tests(report: &mut Report) -> Result<()> {
    for file in FILES {
        let mut command = ignored(file, None);
        command.args(["--skip", "stopped_for_a_minute"]);
        told(&mut command)?;
        report.run(&format!("PostgreSQL: {file}"), &mut command)?;
    }
    Ok(())
}
