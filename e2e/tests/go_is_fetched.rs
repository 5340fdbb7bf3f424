//! What the harness fetches where the machine lacks it.

use std::process::Command;

use anyhow::{Result, ensure};
use stagger_e2e::command::run;
use stagger_e2e::kubernetes::go::{RELEASE, fetched};

#[test]
#[ignore = "fetches 72 MB; cargo xtask test --long runs it"]
fn go_is_fetched_where_there_is_none() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join(RELEASE);
    let go = fetched(&place)?;
    let said = run(Command::new(&go).arg("version"))?;
    ensure!(said.contains(RELEASE), "{said}");
    ensure!(fetched(&place)? == go, "it was fetched twice");
    Ok(())
}
