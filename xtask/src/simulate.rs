//! `simulate`: random worlds against the real driver, as many as one likes, and a million of them in the long run.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::report::{built, cargo, root, say};

/// Each commit plays so many worlds that nobody has played before: some seconds.
const NEW: u64 = 3_000;

/// So many of the first worlds are played twice, to see that they go the same way to the byte: all of a commit's.
const TWICE: u64 = NEW;

/// The case of the long run that plays a million.
pub(crate) const MILLION: &str = "a_million_random_worlds";

/// Builds what plays them for speed, and plays so many worlds. Without a seed one is drawn.
pub(crate) fn simulate(worlds: u64, seed: Option<u64>) -> Result<()> {
    play(player(), worlds, seed.unwrap_or_else(drawn))
}

fn player() -> Command {
    let mut player = cargo(&["run", "--release", "--quiet", "--package", "stagger-sim"]);
    player.args(["--bin", "stagger-worlds", "--"]);
    player
}

fn drawn() -> u64 {
    RandomState::new().hash_one("seed") >> 1
}

/// Plays a million of a seed that is drawn now. Returns whether nothing was found, and what was printed of them.
pub(crate) fn a_million() -> Result<(bool, String)> {
    let mut player = asked(player(), 1_000_000, drawn());
    let mut playing = player
        .stdout(Stdio::piped())
        .spawn()
        .context("start stagger-worlds")?;
    let mut printed = String::new();
    let lines = playing.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufReader::lines) {
        let line = line.context("read what stagger-worlds prints")?;
        say(&line);
        printed.push_str(&line);
        printed.push('\n');
    }
    let ended = playing.wait().context("wait for stagger-worlds")?;
    Ok((ended.success(), printed))
}

/// The worlds that this commit has for itself, by the program that the tests were built with.
pub(crate) fn new_worlds() -> Result<()> {
    play(built("stagger-worlds"), NEW, seed_of_the_commit()?)
}

fn asked(mut player: Command, worlds: u64, seed: u64) -> Command {
    let (worlds, seed, twice) = (worlds.to_string(), seed.to_string(), TWICE.to_string());
    player.args(["--worlds", &worlds, "--seed", &seed, "--twice", &twice]);
    player.args(["--found", "scenarios/found"]);
    player
}

fn play(player: Command, worlds: u64, seed: u64) -> Result<()> {
    let status = asked(player, worlds, seed)
        .status()
        .context("start stagger-worlds")?;
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
