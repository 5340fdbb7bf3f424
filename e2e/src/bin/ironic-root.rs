//! Builds the root of Ironic if it is missing. Its versions go to stdout, where it is to stderr; with `--path` only where it
//! is, to stdout.

use std::env;

use anyhow::{Context as _, Result};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Release, Root};

#[expect(
    clippy::print_stdout,
    reason = "which versions these are is data, and so is where"
)]
fn main() -> Result<()> {
    let root = Root::ensure(&Release::USUAL)?;
    if env::args().nth(1).is_some_and(|word| word == "--path") {
        println!("{}", root.path.display());
        return Ok(());
    }
    say(format!("{} is in {}", root.version, root.path.display()));
    let packages = root.packages()?;
    let debian = |package: &str| {
        let version = packages.get(package);
        version.with_context(|| format!("{package} is not among the packages of {}", root.path.display()))
    };
    println!(
        "Ironic {}, MariaDB {}, haproxy {}",
        Release::USUAL.map(Release::version).join(" and "),
        debian("mariadb-server")?,
        debian("haproxy")?
    );
    Ok(())
}
