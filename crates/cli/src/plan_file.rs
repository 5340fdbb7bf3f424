//! The file of `plan --out`: a plan, and the flags that it was made with.

use std::path::Path;

use clap::Parser as _;
use serde_json::{Map, Value};
use stagger_core::plan::Plan;

use crate::args::{Cli, Command, Goal};
use crate::documents;
use crate::error::CliError;

/// A plan that was read.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan.
    pub(crate) plan: Plan,
    /// Its flags; `None`: it was written by a release that kept none.
    flags: Option<Vec<String>>,
}

/// The field of the flags.
const FLAGS: &str = "flags";

impl Planned {
    /// Reads such a file.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("read the plan {shown}: {error}")))?;
        let wrong = |why: String| CliError::usage(format!("{shown} is not a plan: {why}"));
        let mut document: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let flags = document.remove(FLAGS).map(serde_json::from_value).transpose();
        let flags = flags.map_err(|error| wrong(format!("its {FLAGS}: {error}")))?;
        let plan = documents::PLAN.read(path, &Value::Object(document).to_string())?;
        Ok(Self { plan, flags })
    }

    /// What was asked for when it was made.
    pub(crate) fn goal(&self, path: &Path) -> Result<Goal, CliError> {
        let shown = path.display();
        let Some(flags) = &self.flags else {
            return Err(
                CliError::usage(format!("{shown} does not say with which flags it was made"))
                    .hint("`stagger plan --out` of this release writes them"),
            );
        };
        let words = ["stagger", "run"].map(str::to_owned);
        let parsed = Cli::try_parse_from(words.iter().chain(flags));
        match parsed.map(|cli| cli.command) {
            Ok(Command::Run(run)) if run.file.is_none() => Ok(run.goal),
            Ok(_) => Err(CliError::usage(format!("the flags of {shown} are none of a run"))),
            Err(error) => Err(CliError::usage(format!(
                "the flags of {shown} are none of this release: {error}"
            ))),
        }
    }
}
