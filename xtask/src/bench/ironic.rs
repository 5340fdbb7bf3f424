//! A real Ironic upgraded by `stagger`, beside the same upgrade by hand in the same run.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::report::{root, say, target_folder, workspace};
use crate::test::must_be_root;

/// What `ironic-bench` measured of one upgrade.
#[derive(Debug, Deserialize)]
struct Figures {
    way: String,
    from: String,
    to: String,
    seconds: f64,
    requests: u64,
    ours: usize,
    of_ironic: usize,
    applied: usize,
    longest: f64,
    wrong: u64,
}

/// Runs the bench and writes `docs/bench-ironic.md`.
pub(crate) fn bench() -> Result<()> {
    must_be_root()?;
    // What is measured is Ironic's own work: how stagger is built makes no difference.
    if !workspace("build", &["--quiet", "--bin", "stagger", "--bin", "ironic-bench"])
        .status()?
        .success()
    {
        bail!("it does not build");
    }
    let built = target_folder().join("debug");
    let ran = Command::new(built.join("ironic-bench"))
        .env("STAGGER_BIN", built.join("stagger"))
        .stderr(Stdio::inherit())
        .output()
        .context("start ironic-bench")?;
    if !ran.status.success() {
        bail!("ironic-bench ended with {}", ran.status);
    }
    let figures: Vec<Figures> =
        serde_json::from_slice(&ran.stdout).context("read what ironic-bench measured")?;
    let page = page(&figures);
    std::fs::write(root().join("docs/bench-ironic.md"), &page).context("write docs/bench-ironic.md")?;
    say(&page);
    Ok(())
}

fn page(all: &[Figures]) -> String {
    let mut text = "# Bench on Ironic\n\n\
         Written by `cargo xtask bench ironic`; not by hand. A real Ironic, two conductors and two API services, MariaDB and\n\
         haproxy, under the load of five kinds of clients, carried from one release to the next: by hand, as carefully as it can\n\
         be done, and by `stagger`; each on a cluster of its own, one after the other in the same run. Both drain a service\n\
         before they stop it. By hand no gate is waited for but that a service is alive, and nobody looks at rows.\n\n\
         | upgrade | way | seconds | requests | failed, ours | failed, Ironic's own | of these applied | longest request | writes lost |\n\
         |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for figures in all {
        let Figures {
            way,
            from,
            to,
            seconds,
            requests,
            ours,
            of_ironic,
            applied,
            longest,
            wrong,
        } = figures;
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "| {from} to {to} | {way} | {seconds:.0} | {requests} | {ours} | {of_ironic} | {applied} | {longest:.1} s | {wrong} |"
        );
    }
    text.push_str(
        "\nIronic's own failures are those whose answer and whose line in the log have the signature of a known defect: from 29.0\n\
         to 32.0 a `PATCH` of a node is answered with 500 while both releases run (`Version 1.2 of TraitList is not supported`).\n\
         A write that was not applied is never counted as one of these.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::{Figures, page};

    #[test]
    fn each_upgrade_has_a_row() {
        let figures = Figures {
            way: "by hand".to_owned(),
            from: "26.1.6".to_owned(),
            to: "29.0.6".to_owned(),
            seconds: 103.4,
            requests: 5000,
            ours: 0,
            of_ironic: 0,
            applied: 0,
            longest: 1.23,
            wrong: 0,
        };
        assert!(
            page(&[figures])
                .contains("| 26.1.6 to 29.0.6 | by hand | 103 | 5000 | 0 | 0 | 0 | 1.2 s | 0 |\n")
        );
    }
}
