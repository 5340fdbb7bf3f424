//! Builds what is missing of the roots of Ganeti 3.0 and 3.1. Their versions go to stdout, where they are to stderr.

use anyhow::Result;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Release, Root};

#[expect(clippy::print_stdout, reason = "which versions these are is data")]
fn main() -> Result<()> {
    for release in Release::ALL {
        let root = Root::ensure_of(release)?;
        say(format!("{} is in {}", root.version, root.path.display()));
        println!("Ganeti {}", root.version);
    }
    Ok(())
}
