//! `config`: what a run would miss, looked at before it begins; and what the configuration comes to.

use std::path::Path;

use stagger_ceph::preflight as ceph;
use stagger_engine::preflight::{Check, Outcome};
use stagger_engine::redact::redact;
use stagger_engine::template::unknown;

use super::ganeti::live::Live;
use super::{ironic, look, place, state_folder};
use crate::args::{self, Cli, From};
use crate::config::{self, Config};
use crate::documents::{self, ConfigChecked};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::world::World;

/// `config show`
pub(crate) fn show(cli: &Cli) -> Result<Exit, CliError> {
    let config = config::read(cli)?;
    let text = toml::to_string_pretty(&config)
        .map_err(|error| CliError::new(Exit::Internal, format!("write the configuration: {error}")))?;
    print::out(redact(&text).trim_end());
    Ok(Exit::Done)
}

/// `config check`
pub(crate) async fn check(cli: &Cli, to: Option<&str>) -> Result<Exit, CliError> {
    let path = config::path(cli)?;
    let config = config::read(cli)?;
    let mut checks = vec![Check::passed(path.display().to_string(), "every key is known")];
    checks.extend(odd_words(&config));
    checks.push(of_store(cli));
    checks.extend(Box::pin(of_cluster(cli, &config, to)).await?);
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed)
        .count();
    if cli.json {
        print::json(&documents::CONFIG_CHECK.of(&ConfigChecked {
            can_run: failed == 0,
            checks,
        }));
    } else {
        let subjects = checks.iter().map(|check| check.subject.chars().count());
        let width = subjects.max().unwrap_or(0).min(30);
        for check in &checks {
            let word = match check.outcome {
                Outcome::Passed => "ok",
                Outcome::Warning => "warn",
                Outcome::Failed => "FAIL",
            };
            print::out(&redact(&format!(
                "{word:<5} {:<width$}  {}",
                check.subject, check.found
            )));
            if let Some(hint) = &check.hint {
                print::out(&format!("{:width$}        hint: {hint}", ""));
            }
        }
        let warnings = checks
            .iter()
            .filter(|check| check.outcome == Outcome::Warning)
            .count();
        let warnings = match warnings {
            1 => "1 warning".to_owned(),
            many => format!("{many} warnings"),
        };
        print::out(&match failed {
            0 => format!("\nA run would have what it needs; {warnings}."),
            _ => format!(
                "\nA run would fail: {failed} of {} checks failed, {warnings}.",
                checks.len()
            ),
        });
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::No })
}

/// Words in braces that nothing is filled in for. Those that are nearly a known one were refused before.
fn odd_words(config: &Config) -> Vec<Check> {
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
fn of_store(cli: &Cli) -> Check {
    let place = match place(cli) {
        Ok(place) => place,
        Err(error) => return Check::failed("store", error.message),
    };
    let subject = format!("store {place}");
    // A store that is there is opened; one that is not is made by the first run, in a folder that has to be writable.
    if place.exists() {
        return match place.open() {
            Ok(store) => match store.runs() {
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

async fn of_cluster(cli: &Cli, config: &Config, to: Option<&str>) -> Result<Vec<Check>, CliError> {
    let wish = args::Wish {
        to: to.map(str::to_owned),
        ..args::Wish::default()
    };
    if let Some(live) = Live::of_config(cli)? {
        return of_ganeti(&live).await;
    }
    if let Some(live) = ironic::Live::of_config(cli)? {
        let mut checks = live.preflight().await?;
        if to.is_some() {
            checks.extend(reached(
                "target",
                live.asked(&wish, &args::Reboot::default()).await.err(),
            ));
        }
        return Ok(checks);
    }
    Box::pin(of_ceph(cli, config, &wish)).await
}

async fn of_ganeti(live: &Live) -> Result<Vec<Check>, CliError> {
    let backend = live.backend()?;
    let subject = "cluster";
    let mut checks = match backend.look().await {
        Ok((facts, cluster)) => vec![Check::passed(
            subject,
            format!("{} nodes; its master is {}", cluster.nodes.len(), facts.master),
        )],
        Err(error) => return Ok(vec![Check::unreachable(subject, error)]),
    };
    checks.extend(stagger_ganeti_rapi::preflight::look(live.settings(), backend.rapi()).await);
    Ok(checks)
}

async fn of_ceph(cli: &Cli, config: &Config, wish: &args::Wish) -> Result<Vec<Check>, CliError> {
    let settings = config.ceph()?;
    let mut checks = ceph::codes(&settings.health);
    let world = match World::observe(cli, &From::default()).await {
        Ok(world) => world,
        Err(error) => {
            checks.extend(reached("cluster", Some(error)));
            return Ok(checks);
        }
    };
    checks.push(Check::passed(
        "cluster",
        format!(
            "{} daemons, fsid {}",
            world.snapshot.units().len(),
            world.facts.fsid
        ),
    ));
    // A policy that names what there is not is refused here as everywhere.
    let policy = match world.policy(wish) {
        Ok(policy) => policy,
        Err(error) => {
            checks.extend(reached("[policy]", Some(error)));
            return Ok(checks);
        }
    };
    let kinds: Vec<&str> = world
        .snapshot
        .units()
        .iter()
        .map(|unit| unit.kind.as_str())
        .collect();
    for reason in ceph::missing_commands(&settings.software, kinds.into_iter()) {
        checks.push(Check::failed("[software]", reason.to_string()));
    }
    checks.extend(ceph::look(&settings, &world.facts, wish.to.as_deref()).await);
    if wish.to.is_some() {
        let made = world.target(wish, &policy).and_then(|target| {
            let mut policy = policy.clone();
            let plan = look::made_for(wish, &world.snapshot, &target, &mut policy)?;
            match look::refusal(&world.snapshot, &plan, &policy) {
                Some(refusal) => Err(refusal),
                None => Ok(()),
            }
        });
        checks.extend(reached("target", made.err()));
    }
    Ok(checks)
}

/// What an error says, a check for each of its causes.
fn reached(subject: &str, error: Option<CliError>) -> Vec<Check> {
    let Some(error) = error else {
        return vec![Check::passed(subject, "it can be reached")];
    };
    let hint = error.hints.first().cloned();
    let mut checks: Vec<Check> = match error.causes.as_slice() {
        [] => vec![Check::failed(subject, error.message)],
        causes => causes
            .iter()
            .map(|cause| Check::failed(subject, format!("{}: {cause}", error.message)))
            .collect(),
    };
    if let (Some(last), Some(hint)) = (checks.last_mut(), hint) {
        last.hint = Some(hint);
    }
    checks
}
