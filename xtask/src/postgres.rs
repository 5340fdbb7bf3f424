//! The PostgreSQL for tests and benches: that of the root of Ironic, which has one beside its MariaDB.
//!
//! So a machine on which nothing is installed runs them all. Who gives `STAGGER_TEST_POSTGRES` is believed.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{Report, built, cargo, ignored, limited};

/// By this the tests know where it is: a folder with `bin/`, or a root with the package in it.
const VARIABLE: &str = "STAGGER_TEST_POSTGRES";

/// The test files that need one. What needs none of their cases is not left out of the quick tests.
pub(crate) const FILES: [&str; 5] = ["all", "stores", "handover", "on_postgres", "inventory_upgrade"];

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

/// Runs the tests that need one. Those that take minutes are left to the long run. `mariadb`: and those of the library on MariaDB.
pub(crate) fn tests(report: &mut Report, mariadb: bool) -> Result<()> {
    for file in FILES {
        let mut command = ignored(file, None);
        command.args(["--skip", "stopped_for_a_minute", "--skip", "at_each_request"]);
        told(&mut command)?;
        report.run(&format!("PostgreSQL: {file}"), &mut limited(&command))?;
    }
    if !mariadb {
        return Ok(());
    }
    // Not with the workspace, so that its dependencies are built again: with MariaDB the library has one more kind of database, which nothing of stagger knows.
    let mut command = cargo(&["test", "--quiet", "--package", "stagger-versioned"]);
    command.args(["--features", "mysql", "--test", "all", "--"]);
    command.args(["--ignored", "--nocapture", "stores::all_of_it_on_mariadb"]);
    told(&mut command)?;
    report.run("MariaDB: all", &mut command)?;
    Ok(())
}
