//! Builds what is missing of the roots of Ceph 16, 18 and 20. Their versions go to stdout, where they are
//! to stderr.

use anyhow::Result;
use stagger_e2e::command::say;
use stagger_e2e::roots::{Release, ensure};

#[expect(clippy::print_stdout, reason = "which versions these are is data")]
fn main() -> Result<()> {
    for root in ensure(&Release::ALL)? {
        say(format!("{} is in {}", root.version, root.path.display()));
        println!("Ceph {} {}", root.release, root.version);
    }
    Ok(())
}
