//! `config`: preflight checks, and the effective configuration.

use std::path::Path;

use stagger_engine::preflight::{Check, CheckOutcome};
use stagger_engine::redact::redact;
use stagger_engine::template::unknown;

use super::{state_folder, store_location};
use crate::args::Cli;
use crate::clusters;
use crate::config::{self, Config};
use crate::documents::{self, ConfigReport};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{notify, print};

/// `config show`
pub(crate) fn show(cli: &Cli) -> Result<Exit, CliError> {
    let config = config::read(cli)?.with_profile();
    let text = toml::to_string_pretty(&config)
        .map_err(|error| CliError::new(Exit::Internal, format!("write the configuration: {error}")))?;
    print::data_line(redact(&text).trim_end());
    Ok(Exit::Done)
}

/// Each receiver of notifications has a test.
async fn of_receivers(config: &Config) -> Result<Vec<Check>, CliError> {
    let told = notify::test(config.receivers(), config.cluster_name().as_str()).await?;
    if told.is_empty() {
        return Ok(vec![Check::warning("notifications", "no [[notify]] section")]);
    }
    let check = |(name, sent): (String, Result<(), String>)| match sent {
        Ok(()) => Check::passed(name, "took a test"),
        Err(why) => Check::failed(name, why),
    };
    Ok(told.into_iter().map(check).collect())
}

/// `config check`
pub(crate) async fn check(cli: &Cli, to: Option<&str>, told: bool) -> Result<Exit, CliError> {
    let path = config::path(cli)?;
    let config = config::read(cli)?;
    let mut checks = vec![Check::passed(path.display().to_string(), "no unknown keys")];
    checks.extend(check_placeholders(&config));
    checks.push(of_store(cli).await);
    checks.extend(clusters::of_config(cli)?.preflight(to).await?);
    if told {
        checks.extend(of_receivers(&config).await?);
    }
    let failed = checks
        .iter()
        .filter(|check| check.outcome == CheckOutcome::Failed)
        .count();
    if cli.json {
        print::json(&documents::CONFIG_CHECK.of(&ConfigReport {
            can_run: failed == 0,
            checks,
        }));
    } else {
        let subjects = checks.iter().map(|check| check.subject.chars().count());
        let width = subjects.max().unwrap_or(0).min(30);
        for check in &checks {
            let word = match check.outcome {
                CheckOutcome::Passed => "ok",
                CheckOutcome::Warning => "warn",
                CheckOutcome::Failed => "FAIL",
            };
            print::data_line(&redact(&format!(
                "{word:<5} {:<width$}  {}",
                check.subject, check.found
            )));
            if let Some(hint) = &check.hint {
                print::data_line(&format!("{:width$}        hint: {hint}", ""));
            }
        }
        let warnings = checks
            .iter()
            .filter(|check| check.outcome == CheckOutcome::Warning)
            .count();
        let warnings = match warnings {
            1 => "1 warning".to_owned(),
            many => format!("{many} warnings"),
        };
        print::data_line(&match failed {
            0 => format!("\nReady for a run; {warnings}."),
            _ => format!(
                "\nA run would fail: {failed} of {} checks failed, {warnings}.",
                checks.len()
            ),
        });
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::No })
}

/// Words in braces that nothing is filled in for. Those that are nearly a known one were refused before.
fn check_placeholders(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for template in config.templates() {
        for name in unknown(&template.command, template.known) {
            let known: Vec<String> = template.known.iter().map(|name| format!("{{{name}}}")).collect();
            checks.push(
                Check::warning(
                    &template.key,
                    format!("{{{name}}} stays as it is: `{}`", template.command),
                )
                .hint(format!("what is filled in there: {}", known.join(" "))),
            );
        }
    }
    checks
}

/// Whether a journal can be kept.
async fn of_store(cli: &Cli) -> Check {
    let place = match store_location(cli) {
        Ok(place) => place,
        Err(error) => return Check::failed("store", error.message),
    };
    let subject = format!("store {place}");
    // A store that is there is opened; one that is not is made by the first run, in a folder that has to be writable.
    if place.exists() {
        return match place.open().await {
            Ok(store) => match store.runs().await {
                Ok(runs) => Check::passed(subject, format!("{} runs", runs.len())),
                Err(error) => Check::failed(subject, error.to_string()),
            },
            Err(error) => Check::failed(subject, error.to_string()),
        };
    }
    let folder = state_folder(cli).ok();
    let existing = folder.as_deref().and_then(nearest_folder);
    match existing {
        Some(folder) if is_writable(folder) => Check::passed(subject, "the first run makes it"),
        Some(folder) => Check::failed(subject, format!("{} is not writable", folder.display()))
            .hint("--state names another folder"),
        None => Check::failed(subject, "there is no folder for it").hint("--state names one"),
    }
}

/// The first folder of the path, from its end, that is there.
fn nearest_folder(path: &Path) -> Option<&Path> {
    path.ancestors()
        .map(|folder| {
            if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            }
        })
        .find(|folder| folder.is_dir())
}

fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}
