//! `status`, `history` and `artifacts`: reports from journals.

use std::path::{Path, PathBuf};

use stagger_core::view;
use stagger_engine::supervisor;

use super::journal::{now, reading, store_of};
use super::{artifacts, run_or_newest, store};
use crate::args::{self, Cli};
use crate::documents::{self, ArtifactList};
use crate::error::CliError;
use crate::exit::Exit;
use crate::forecasts::Outlook;
use crate::print;
use crate::show;
use stagger_report::{Reading, event_text};

/// `status`
pub(crate) async fn status(cli: &Cli, args: &args::StatusArgs) -> Result<Exit, CliError> {
    let store = store(cli).await?;
    let run = run_or_newest(&*store, args.run.as_ref()).await?;
    let Reading { run, history, .. } = reading(&*store, &run).await?;
    let mut seen = view::run(&run, None);
    if let Some(why) = supervisor::interruption_reason(&*store, &run).await? {
        seen = seen.without_a_holder(why);
    }
    let left = Outlook::of_run(&*store, &run).await.remaining(&run);
    if let Some(left) = &left {
        seen.seconds_left = left.seconds;
    }
    if cli.json {
        print::json(&seen);
    } else {
        let now = now(&seen, &history);
        let told = show::status::status(&seen, &history.topology, left.as_ref(), now, args.upgrade);
        let picture = show::status::picture(&history, print::width());
        print::data_line(&(told + &picture));
    }
    Ok(Exit::of(seen.verdict))
}

/// `history`
pub(crate) async fn history(cli: &Cli, args: &args::HistoryArgs) -> Result<Exit, CliError> {
    let store = store_of(cli, &args.kube).await?;
    let Some(run) = &args.run else {
        // A run that cannot be read hides none of the others.
        let mut unreadable = None;
        for listed in store.runs().await? {
            let run = match supervisor::replay(&*store, &listed.run).await {
                Ok(run) => run,
                Err(error) => {
                    let error = CliError::from(error);
                    print::status_line(&format!("{}: {}", listed.run, error.text().trim_end()));
                    unreadable.get_or_insert(error.exit);
                    continue;
                }
            };
            let mut seen = view::run(&run, None);
            if let Some(why) = supervisor::interruption_reason(&*store, &run).await? {
                seen = seen.without_a_holder(why);
            }
            if cli.json {
                print::line(&seen);
            } else {
                print::data_line(&format!(
                    "{}  {:.0}  {}  {}  {}: {}",
                    listed.run, listed.started, listed.cluster, seen.title, seen.verdict, seen.why
                ));
            }
        }
        return Ok(unreadable.unwrap_or(Exit::Done));
    };
    let entries = store.journal(run).await?;
    let mut so_far: Option<stagger_core::run::Run> = None;
    let mut lines = event_text::Lines::default();
    for entry in entries {
        if cli.json {
            print::line(&documents::EVENT.of(&entry));
            continue;
        }
        let illegal = |error| CliError::from(stagger_engine::driver::DriveError::Illegal(error));
        match &mut so_far {
            None => so_far = Some(stagger_core::run::Run::begin(entry.clone()).map_err(illegal)?),
            Some(run) => run.apply(entry.clone()).map_err(illegal)?,
        }
        if let Some(run) = &so_far
            && let Some((word, text)) = lines.line(&entry, run)
        {
            print::data_line(&format!("{:>5}  {:.0}  {word:<9}{text}", entry.seq, entry.at));
        }
    }
    Ok(Exit::Done)
}

/// `artifacts`
pub(crate) async fn show_artifacts(cli: &Cli, args: &args::ArtifactsArgs) -> Result<Exit, CliError> {
    let store = store(cli).await?;
    let run = run_or_newest(&*store, args.run.as_ref()).await?;
    let kept = artifacts(cli)?;
    let failed =
        |error: stagger_engine::artifacts::ArtifactsError| CliError::new(Exit::Internal, error.to_string());
    let folder = kept.of(&run);
    if let Some(file) = &args.bundle {
        let journal: Vec<String> = store
            .journal(&run)
            .await?
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap_or_default())
            .collect();
        let extra = [("journal.jsonl".to_owned(), journal.join("\n").into_bytes())];
        kept.bundle(&run, &extra, file).map_err(failed)?;
    }
    let files = artifact_list(&folder);
    match (&args.bundle, cli.json) {
        (bundle, true) => print::json(&documents::ARTIFACTS.of(&ArtifactList {
            run,
            folder,
            files,
            bundle: bundle.clone(),
        })),
        (Some(bundle), false) => print::data_line(&bundle.display().to_string()),
        (None, false) => {
            print::data_line(&folder.display().to_string());
            for file in files {
                print::data_line(&format!("  {}", file.display()));
            }
        }
    }
    Ok(Exit::Done)
}

/// All files below a run's folder, from there on: one folder for each time that they were gathered.
fn artifact_list(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|times| std::fs::read_dir(times.path()).into_iter().flatten().flatten())
        .map(|file| file.path())
        .map(|file| file.strip_prefix(folder).map(Path::to_owned).unwrap_or(file))
        .collect();
    files.sort();
    files
}
