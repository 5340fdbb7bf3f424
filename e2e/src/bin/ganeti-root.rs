//! Builds the root of Ganeti if it is missing. Its version goes to stdout, where it is to stderr.

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
