//! Mistakes that are planted into a configuration that is good, for `stagger config check` to find.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::Machine;

/// A mistake.
#[derive(Debug, Clone, Copy)]
pub struct Planted<'a> {
    /// A piece of the good configuration; empty: its end.
    pub good: &'a str,
    /// What stands there instead.
    pub bad: &'a str,
    /// What is said of it.
    pub says: &'a str,
}

/// Mistakes that can be made in the configuration of any cluster.
const GENERAL: &[Planted<'_>] = &[
    Planted {
        good: "kind = \"",
        bad: "kind = \"x",
        says: "unknown variant",
    },
    Planted {
        good: "name = \"lab\"",
        bad: "name = \"la b\"",
        says: "la b",
    },
    Planted {
        good: "",
        bad: "[polcy]\nmax_in_parallel = 1",
        says: "did you mean `policy`?",
    },
    Planted {
        good: "lock_expires = ",
        bad: "lock_expires = -",
        says: "invalid value",
    },
    Planted {
        good: "on_failure = \"",
        bad: "on_failure = \"x",
        says: "unknown variant `x",
    },
    Planted {
        good: "max_in_parallel = \"",
        bad: "max_in_parallel = \"150%\" # \"",
        says: "\"150%\" is not a limit",
    },
];

impl Machine {
    /// The machine's configuration passes, and each mistake is found in it: one at a time, those of every configuration too.
    ///
    /// # Errors
    /// The good one does not pass, or a mistake is not found; or there is no such piece to spoil.
    pub fn finds_planted(&self, words: &[&str], planted: &[Planted<'_>]) -> Result<()> {
        let check = [&["config", "check"], words].concat();
        let good = fs::read_to_string(self.config()).context("reading the configuration")?;
        self.call(&check)?.expect(0)?;
        let found = GENERAL
            .iter()
            .chain(planted)
            .try_for_each(|mistake| self.finds(&check, &good, mistake));
        fs::write(self.config(), good).context("writing the good configuration again")?;
        found
    }

    fn finds(&self, check: &[&str], good: &str, mistake: &Planted<'_>) -> Result<()> {
        let Planted {
            good: piece,
            bad,
            says,
        } = mistake;
        let spoilt = if piece.is_empty() {
            format!("{good}\n{bad}\n")
        } else {
            ensure!(
                good.contains(piece),
                "there is no {piece:?} in the configuration:\n{good}"
            );
            good.replacen(piece, bad, 1)
        };
        fs::write(self.config(), spoilt).context("writing a configuration with a mistake")?;
        let ended = self.call(check)?;
        let shown = format!("{}\n{}", ended.out, ended.said);
        ensure!(
            shown.contains(says),
            "{piece:?} was made {bad:?}, and nothing said {says:?}:\n{shown}"
        );
        // A warning keeps no run from beginning.
        let told = shown
            .lines()
            .any(|line| line.starts_with("FAIL") && line.contains(says))
            || shown.starts_with("error")
            || ended.said.starts_with("error");
        let warned = shown
            .lines()
            .any(|line| line.starts_with("warn") && line.contains(says));
        let code = ended.code;
        ensure!(
            (told && code.is_some_and(|code| code != 0)) || (warned && code == Some(0)),
            "{bad:?} was told with the exit code {code:?}:\n{shown}"
        );
        Ok(())
    }
}
