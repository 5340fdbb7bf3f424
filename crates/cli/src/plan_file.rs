//! The file of `plan --out`: a plan, and the flags that it was made with.

use std::path::Path;

use clap::Parser as _;
use serde_json::{Map, Value};
use stagger_core::plan::Plan;

use crate::args::{Cli, CliCommand, GoalArgs, RunArgs};
use crate::documents;
use crate::error::CliError;

/// A plan that was read.
#[derive(Debug)]
pub(crate) struct SavedPlan {
    /// The plan.
    pub(crate) plan: Plan,
    /// Its flags; `None`: it was written by a release that kept none.
    flags: Option<Vec<String>>,
}

/// The flags with the goal before them, which was a flag itself once: `--to 18.2.7` alone, or `--reboot`.
fn as_goal(flags: &[String]) -> Vec<String> {
    const REBOOT: &str = "--reboot";
    let is_goal = flags.first().is_some_and(|word| !word.starts_with('-'));
    let goal = match is_goal {
        true => None,
        false if flags.iter().any(|word| word == REBOOT) => Some("reboot".to_owned()),
        false => Some("upgrade".to_owned()),
    };
    let others = flags.iter().filter(|word| *word != REBOOT).cloned();
    goal.into_iter().chain(others).collect()
}

/// The field of the flags.
const FLAGS: &str = "flags";
/// The fields of what was told beside the plan, which is looked at anew.
const BESIDE: [&str; 2] = ["risks", "learned"];

impl SavedPlan {
    /// Reads such a file.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("read the plan {shown}: {error}")))?;
        let wrong = |why: String| CliError::usage(format!("{shown} is not a plan: {why}"));
        let mut document: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for field in BESIDE {
            document.remove(field);
        }
        let flags = document.remove(FLAGS).map(serde_json::from_value).transpose();
        let flags = flags.map_err(|error| wrong(format!("its {FLAGS}: {error}")))?;
        let plan = documents::PLAN.read(path, &Value::Object(document).to_string())?;
        Ok(Self { plan, flags })
    }

    /// What was asked for when it was made.
    pub(crate) fn goal(&self, path: &Path) -> Result<GoalArgs, CliError> {
        let shown = path.display();
        let Some(flags) = &self.flags else {
            return Err(
                CliError::usage(format!("{shown} does not say with which flags it was made"))
                    .hint("`stagger plan --out` of this release writes them"),
            );
        };
        let words = ["stagger", "run"].map(str::to_owned);
        let parsed = Cli::try_parse_from(words.into_iter().chain(as_goal(flags)));
        match parsed.map(|cli| cli.command) {
            Ok(CliCommand::Run(RunArgs {
                file: None,
                goal: Some(goal),
                ..
            })) => Ok(goal.goal()),
            Ok(_) => Err(CliError::usage(format!("the flags of {shown} are none of a run"))),
            Err(error) => Err(CliError::usage(format!(
                "the flags of {shown} are none of this release: {error}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::as_goal;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_of_before_goals_had_words_of_their_own_are_read() {
        for (written, read) in [
            (
                "--to 18.2.7 --interrupt mgr",
                "upgrade --to 18.2.7 --interrupt mgr",
            ),
            (
                "--max-in-parallel 2 --reboot --nodes n1",
                "reboot --max-in-parallel 2 --nodes n1",
            ),
            ("upgrade --to 18.2.7", "upgrade --to 18.2.7"),
            ("reboot", "reboot"),
        ] {
            assert_eq!(as_goal(&words(written)), words(read));
        }
    }
}
