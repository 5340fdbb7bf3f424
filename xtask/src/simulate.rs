//! `simulate`: random worlds against the real driver, as many as one likes.

use std::hash::{BuildHasher as _, RandomState};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{built, cargo, root};

/// So many of the first worlds are played twice, to see that they go the same way.
const TWICE: u64 = 100;

/// Each commit plays so many worlds that nobody has played before: it takes half a minute.
const NEW: u64 = 3_000;

/// Builds what plays them for speed, and plays so many worlds. Without a seed one is drawn.
pub(crate) fn simulate(worlds: u64, seed: Option<u64>) -> Result<()> {
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one("seed") >> 1);
    let mut player = cargo(&["run", "--release", "--quiet", "--package", "stagger-sim"]);
    player.args(["--bin", "stagger-worlds", "--"]);
    play(player, worlds, seed)
}

/// The worlds that this commit has for itself, by the program that the tests were built with.
pub(crate) fn new_worlds() -> Result<()> {
    play(built("stagger-worlds"), NEW, seed_of_the_commit()?)
}

fn play(mut player: Command, worlds: u64, seed: u64) -> Result<()> {
    let (worlds, seed, twice) = (worlds.to_string(), seed.to_string(), TWICE.to_string());
    player.args(["--worlds", &worlds, "--seed", &seed, "--twice", &twice]);
    player.args(["--found", "scenarios/found"]);
    let status = player.status().context("start stagger-worlds")?;
    if status.success() {
        return Ok(());
    }
    bail!("the truth has found something in worlds of seed {seed}: see above, and scenarios/found")
}

/// The first digits of the commit: whoever plays it again plays the same worlds.
fn seed_of_the_commit() -> Result<u64> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .output()
        .context("ask git for the commit")?;
    let commit = String::from_utf8_lossy(&output.stdout).into_owned();
    let digits = commit.get(..15).context("git names no commit")?;
    u64::from_str_radix(digits, 16).with_context(|| format!("read the commit {digits}"))
}
