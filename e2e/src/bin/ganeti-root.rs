//! Builds the root of Ganeti 3.0 if it is missing: that of the story. Cases for another release build theirs. Its version goes
//! to stdout, where it is to stderr.

use anyhow::Result;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::Root;

#[expect(clippy::print_stdout, reason = "which version this is is data")]
fn main() -> Result<()> {
    let root = Root::ensure()?;
    say(format!("{} is in {}", root.version, root.path.display()));
    println!("Ganeti {}", root.version);
    Ok(())
}
