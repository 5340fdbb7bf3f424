//! The program as a plugin of kubectl, installed by the real krew.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use stagger_e2e::command::{output, run};
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::{Plane, krew};
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::binary;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
#[ignore = "needs root and Go, builds krew once; cargo xtask test --long runs it"]
fn krew_installs_the_plugin() -> Result<()> {
    let krew = krew::program()?;
    let folder = Folder::make("kubectl-plugin-", 1_000_000_000)?;
    let made = folder.path().join("made");
    let mut packing = Command::new(env!("CARGO"));
    packing.current_dir(ROOT).args(["xtask", "krew"]);
    packing
        .arg(binary()?)
        .arg("https://example.com/stagger")
        .arg(&made);
    run(&mut packing)?;
    let archive = fs::read_dir(&made)?
        .filter_map(|one| Some(one.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .context("no archive was made")?;

    let root = folder.path().join("krew");
    let mut installing = Command::new(krew);
    installing.env("KREW_ROOT", &root).env("HOME", folder.path());
    installing.arg("install").arg("--archive").arg(&archive);
    installing
        .arg("--manifest")
        .arg(made.join("stagger.yaml"))
        .stdin(Stdio::null());
    run(&mut installing)?;

    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let mut path = OsString::from(root.join("bin"));
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut asking = plane.kubectl();
    asking.env("PATH", path);
    let said = output(asking.args(["stagger", "status", "-n", "rook-ceph"]))?;
    let text = String::from_utf8_lossy(&said.stderr);
    ensure!(
        said.status.code() == Some(2) && text.contains("Rook is not installed"),
        "{said:?}"
    );
    Ok(())
}
