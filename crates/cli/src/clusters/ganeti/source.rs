//! The Ganeti cluster that the command line names, and the way to reach it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::value::RawValue;
use stagger_core::model::{ClusterId, ClusterName};
use stagger_engine::cluster::Lock as _;
use stagger_engine::inventory::Inventory;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::config::GanetiSettings;
use stagger_ganeti::loaders::rapi::{FILES, without_parameters};
use stagger_ganeti::planner::GanetiPlanner;
use stagger_ganeti::source::{LiveGaneti, RecordedError, RecordedGaneti};

use super::GanetiSystem;
use super::htools::{no_text, text_of};
use crate::args::Cli;
use crate::clusters::cluster_handle::ClusterHandle;
use crate::clusters::unusable;
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::state::state_folder;

impl<'a> ClusterHandle<GanetiSystem<'a>> {
    /// That of this configuration.
    pub(in crate::clusters) fn of_config(
        cli: &'a Cli,
        config: Config,
        mut settings: GanetiSettings,
    ) -> Result<Self, CliError> {
        let copy = &mut settings.cluster.visits.copy_journal;
        if let Some(command) = copy.take() {
            *copy = Some(with_state(&command, &state_folder(cli)?)?);
        }
        let cluster = &settings.cluster;
        Ok(Self {
            source: Box::new(LiveGaneti::new(&settings)?),
            planner: GanetiPlanner::new(cluster.name.clone(), cluster.visits.clone()),
            system: GanetiSystem {
                cli,
                called: cluster.name.to_string(),
                settings: Some(settings),
            },
            measures: config.measures()?,
            config: Some(config),
        })
    }

    /// What Ganeti's own tools have written there, if that is what it is: its text format, or a folder of bodies of RAPI.
    pub(in crate::clusters) fn of_tools(cli: &'a Cli, path: &Path) -> Result<Option<Self>, CliError> {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        let name = || {
            let name = stem.to_string_lossy().replace(char::is_whitespace, "-");
            ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))
        };
        let recorded = if path.is_dir() {
            if !FILES.iter().all(|file| path.join(file).is_file()) {
                return Ok(None);
            }
            RecordedGaneti::bodies(name()?, bodies_of(path)?)
        } else {
            if !starts_as_text(path) {
                return Ok(None);
            }
            RecordedGaneti::text(name()?, text_of(path)?)
        };
        let recorded = recorded.map_err(|error| unreadable(path, &error))?;
        Self::of_recorded(cli, path, recorded).map(Some)
    }

    /// An inventory that was read from that file.
    pub(in crate::clusters) fn from_inventory(
        cli: &'a Cli,
        path: &Path,
        inventory: &Inventory,
    ) -> Result<Self, CliError> {
        let recorded = RecordedGaneti::read(inventory).map_err(|error| unreadable(path, &error))?;
        Self::of_recorded(cli, path, recorded)
    }

    /// What was recorded is judged by the configuration, where one is named.
    fn of_recorded(cli: &'a Cli, path: &Path, recorded: RecordedGaneti) -> Result<Self, CliError> {
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        let settings = config.as_ref().zip(cli.config.as_ref()).map(|(config, file)| {
            config.ganeti().ok_or_else(|| {
                CliError::usage(format!(
                    "the configuration {} is for another kind of cluster; {} is a Ganeti cluster",
                    file.display(),
                    path.display()
                ))
                .hint("leave out --config; use flags instead")
            })
        });
        let visits = settings
            .transpose()?
            .map(|settings| settings.cluster.visits)
            .unwrap_or_default();
        Ok(Self {
            planner: GanetiPlanner::new(recorded.name().clone(), visits),
            source: Box::new(recorded),
            system: GanetiSystem {
                cli,
                called: path.display().to_string(),
                settings: None,
            },
            measures: None,
            config,
        })
    }
}

/// The command with the folder in which the journals of this process are, for its word `{state}`.
fn with_state(command: &str, state: &Path) -> Result<String, CliError> {
    if !command.contains("{state}") {
        return Ok(command.to_owned());
    }
    let state = std::path::absolute(state)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match state.to_str() {
        Some(state) if state.chars().all(plain) => Ok(command.replace("{state}", state)),
        Some(_) | None => Err(CliError::usage(format!(
            "`copy_journal` has {{state}}, and {} is no plain path for a shell",
            state.display()
        ))
        .hint("--state names another folder")),
    }
}

/// The settings for runs of that cluster.
pub(super) fn of_identity(settings: &GanetiSettings, identity: Option<&ClusterId>) -> GanetiSettings {
    let mut settings = settings.clone();
    if let Some(identity) = identity {
        settings.hosts = settings.hosts.of_identity(identity);
    }
    settings
}

/// The Ganeti of the configuration, to give back what runs have left in it.
pub(crate) async fn recovery_backend(cli: &Cli) -> Result<GanetiBackend, CliError> {
    let Some(settings) = config::read(cli)?.ganeti() else {
        return Err(CliError::usage("the configuration is not for a Ganeti cluster")
            .hint("--config names the configuration of its cluster"));
    };
    let identity = GanetiBackend::new(settings.clone(), None)?.identity().await?;
    Ok(GanetiBackend::new(of_identity(&settings, Some(&identity)), None)?)
}

fn unreadable(path: &Path, error: &RecordedError) -> CliError {
    match error {
        RecordedError::Inventory(error) => unusable(path, error),
        RecordedError::Text(error) => no_text(path, error.to_string()),
        RecordedError::Bodies(error) => CliError::caused(Exit::Usage, error),
        RecordedError::Facts(error) => CliError::caused(Exit::Usage, error),
    }
}

/// Its first line is a group: fields between bars, of which the third is an allocation policy.
fn starts_as_text(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = std::fs::File::open(path).map(|file| file.take(4096).read_to_end(&mut start));
    if !matches!(read, Ok(Ok(_))) {
        return false;
    }
    let start = String::from_utf8_lossy(&start);
    let first = start.lines().next().unwrap_or_default();
    !first.trim_start().starts_with(['{', '[']) && first.split('|').count() >= 4
}

/// The bodies in a folder, as an inventory keeps them.
fn bodies_of(folder: &Path) -> Result<BTreeMap<String, Box<RawValue>>, CliError> {
    let bodies = FILES.into_iter().map(|file| {
        let path = folder.join(file);
        let wrong = |why: String| CliError::usage(format!("read {}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let body = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let body = serde_json::value::to_raw_value(&without_parameters(body));
        Ok((file.to_owned(), body.map_err(|error| wrong(error.to_string()))?))
    });
    bodies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: a run with journals elsewhere was handed over with older ones of the folder that was written there.
    #[test]
    fn the_journals_that_go_along_are_those_of_this_process() {
        let filled = with_state("tar -c {state}/copy.db", Path::new("/srv/own")).unwrap();
        assert_eq!(filled, "tar -c /srv/own/copy.db");
        assert_eq!(
            with_state("copy {successor}", Path::new("/a b")).unwrap(),
            "copy {successor}"
        );
        let refused = with_state("cd {state}", Path::new("/a b; id")).unwrap_err();
        assert!(refused.message.contains("no plain path"), "{}", refused.message);
    }
}
