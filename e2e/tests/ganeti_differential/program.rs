//! The programs themselves: exit codes, and the shape of what they print.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use stagger_e2e::command::output;
use stagger_e2e::ganeti::Htools;
use stagger_e2e::stagger::binary;
use stagger_ganeti::hroller::{OutputOptions, answer};

use crate::case::Case;

/// Runs both with options of what is shown, drawn from the seed.
pub(crate) fn compare(case: &Case, real: &Htools) -> Result<()> {
    let shown = OutputOptions {
        headers: case.seed.is_multiple_of(20),
        one_step_only: case.seed.is_multiple_of(30),
        moves: case.seed.is_multiple_of(40),
    };
    let mut flags = case.words();
    let switches = [
        (!shown.headers, "--no-headers"),
        (shown.one_step_only, "--one-step-only"),
        (shown.moves, "--print-moves"),
    ];
    flags.extend(switches.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag));

    let file = tempfile::NamedTempFile::new().context("make a file")?;
    std::fs::write(file.path(), &case.text).context("write the cluster")?;
    let mut command = Command::new(binary()?);
    command.arg("hroller").arg("-t").arg(file.path()).args(&flags);
    let ours = output(&mut command)?;
    let stdout = String::from_utf8_lossy(&ours.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&ours.stderr).into_owned();
    let theirs = real.hroller(&case.text, &flags)?;
    match answer(&case.cluster, &case.options) {
        Ok(answer) => {
            // Who goes by the code alone does not take a node that is left out for one that is rebooted.
            let code = i32::from(!answer.left_out.is_empty());
            ensure!(
                ours.status.code() == Some(code),
                "the program ends with {}: {stderr}",
                ours.status
            );
            let lines = answer.lines(shown).join("\n");
            ensure!(
                stdout.trim_end() == lines,
                "the program prints {stdout:?}, and the library {lines:?}"
            );
            for warning in &answer.warnings {
                ensure!(
                    stderr.contains(&format!("Warning: {warning}")),
                    "{warning:?} is not in {stderr:?}"
                );
            }
            if theirs.code == 0 {
                same_shape(&stdout, &theirs.stdout)?;
            }
        }
        Err(error) => {
            ensure!(
                ours.status.code() == Some(1) && stdout.is_empty(),
                "{}: {stdout:?}",
                ours.status
            );
            ensure!(stderr.contains(&format!("Error: {error}")), "{stderr:?}");
            if theirs.code == 1 {
                ensure!(theirs.stdout.is_empty(), "hroller prints {:?}", theirs.stdout);
            }
        }
    }
    Ok(())
}

/// The same header, and lines of the same kinds: a group, or below it two or three names behind two spaces.
fn same_shape(ours: &str, theirs: &str) -> Result<()> {
    let header = |text: &str| {
        text.lines()
            .find(|line| line.starts_with('\''))
            .map(str::to_owned)
    };
    ensure!(
        header(ours) == header(theirs),
        "headers: ours {:?}, hroller's {:?}",
        header(ours),
        header(theirs)
    );
    for text in [ours, theirs] {
        for line in text.lines().filter(|line| !line.starts_with('\'')) {
            let words: Vec<&str> = line.split(' ').collect();
            let is_move = matches!(words[..], ["", "", _, _] | ["", "", _, _, _]);
            ensure!(
                is_move || words.len() == 1,
                "neither a group nor a move: {line:?}"
            );
        }
    }
    Ok(())
}
