//! Builds what is missing of the roots of Ceph 16, 18 and 20, and prints where they are.

use anyhow::Result;
use stagger_e2e::command::say;
use stagger_e2e::roots::{Release, ensure};

fn main() -> Result<()> {
    for root in ensure(&Release::ALL)? {
        say(format!(
            "Ceph {} {} {}",
            root.release,
            root.version,
            root.path.display()
        ));
    }
    Ok(())
}
