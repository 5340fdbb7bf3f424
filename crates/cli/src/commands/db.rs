//! `db`: administration of the store of journals.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use stagger_core::run::Run;
use stagger_engine::database::{Counted, StoreLocation, StoreReader};
use stagger_versioned::store::StoreError as RowsError;
use stagger_versioned::store::migrate::{End, Failed, Limits, Progress};

use super::store_location;
use crate::args::{Cli, DbCommand, OnlineDataMigrationsArgs};
use crate::documents::{self, MigrationReport, MigrationRows, StoreReport, StoredRows};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Where nobody watches, progress is told so often.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// `db`
pub(crate) async fn db(cli: &Cli, args: &DbCommand) -> Result<Exit, CliError> {
    let place = store_location(cli)?;
    match args {
        DbCommand::Upgrade => upgrade(cli, &place).await,
        DbCommand::Version => {
            show(cli, &store_report(&place).await?);
            Ok(Exit::Done)
        }
        DbCommand::Copy { to } => copy(&place, to),
        DbCommand::Check => check(cli, &place).await,
        DbCommand::OnlineDataMigrations(args) => migrate(cli, &place, args).await,
    }
}

async fn upgrade(cli: &Cli, place: &StoreLocation) -> Result<Exit, CliError> {
    let was = place.upgrade().await?;
    let mut after = store_report(place).await?;
    after.was = was;
    if cli.json {
        print::json(&documents::STORE.of(&after));
        return Ok(Exit::Done);
    }
    let revision = after.revision;
    print::data_line(&match was {
        0 => format!("{place}: made, with the schema of revision {revision}"),
        was if was < revision => format!("{place}: the schema went from revision {was} to {revision}"),
        _ => format!("{place}: the schema is at revision {revision} already"),
    });
    Ok(Exit::Done)
}

/// What can be seen without reading a journal.
async fn store_report(place: &StoreLocation) -> Result<StoreReport, CliError> {
    let database = open_reader(place).await?;
    let (revision, newest) = (
        database.revision().await.map_err(|error| failed(&error))?,
        place.newest(),
    );
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    if revision < newest {
        wrong.push(format!(
            "the schema is at revision {revision}, and this program works on {newest}: run `stagger db upgrade`"
        ));
    } else {
        for Counted { table, object, count } in database.versions().await.map_err(|error| failed(&error))? {
            let unreadable = count.readable.err().map(|why| why.to_string());
            if let Some(why) = &unreadable {
                wrong.push(format!("{} rows of {table}: {why}", count.rows));
            }
            rows.push(StoredRows {
                table: table.to_owned(),
                object: object.to_owned(),
                version: count.version,
                rows: count.rows,
                unreadable,
            });
        }
    }
    database.close().await;
    Ok(StoreReport {
        store: place.to_string(),
        was: revision,
        revision,
        newest,
        rows,
        wrong,
    })
}

async fn open_reader(place: &StoreLocation) -> Result<StoreReader, CliError> {
    if !place.exists() {
        return Err(no_store(place));
    }
    place.inspect().await.map_err(|error| failed(&error))
}

fn no_store(place: &StoreLocation) -> CliError {
    CliError::usage(format!("there is no store at {place}"))
        .hint("`stagger db upgrade` makes one, and so does the first run")
}

fn show(cli: &Cli, seen: &StoreReport) {
    if cli.json {
        print::json(&documents::STORE.of(seen));
        return;
    }
    print::data_line(&format!("store   {}", seen.store));
    print::data_line(&format!("schema  revision {} of {}", seen.revision, seen.newest));
    for rows in &seen.rows {
        print::data_line(&format!(
            "rows    {:<8} {:<11} {:<8} {}",
            rows.table,
            rows.object,
            rows.version.as_deref().unwrap_or("none"),
            rows.rows
        ));
    }
    if seen.rows.iter().any(|rows| rows.version.is_none()) {
        print::status_line(
            "rows without a version are read as 1.0; `stagger db online-data-migrations` records it",
        );
    }
}

async fn check(cli: &Cli, place: &StoreLocation) -> Result<Exit, CliError> {
    let mut seen = store_report(place).await?;
    // A schema that is behind would be brought up by being opened.
    if seen.revision >= seen.newest {
        let store = place.open().await?;
        for listed in store.runs().await? {
            let replayed = store
                .journal(&listed.run)
                .await
                .map_err(|error| error.to_string());
            let replayed =
                replayed.and_then(|entries| Run::replay(entries).map_err(|error| error.to_string()));
            if let Err(why) = replayed {
                seen.wrong.push(format!("run {}: {why}", listed.run));
            }
        }
    }
    show(cli, &seen);
    for wrong in &seen.wrong {
        print::status_line(&format!("WRONG  {wrong}"));
    }
    Ok(if seen.wrong.is_empty() {
        Exit::Done
    } else {
        Exit::No
    })
}

fn copy(place: &StoreLocation, to: &Path) -> Result<Exit, CliError> {
    if !place.exists() {
        return Err(no_store(place));
    }
    if let StoreLocation::Server(_) = place {
        return Err(CliError::usage(format!("{place} is a database on a server"))
            .hint("`pg_dump` copies it while others work"));
    }
    if to.exists() {
        return Err(CliError::usage(format!("{} is there already", to.display()))
            .hint("name a file that is not there, or remove it"));
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(CliError::usage(format!("{} is no folder", folder.display())).hint("make it first"));
    }
    place.copy(to)?;
    print::data_line(&format!("{place}: copied to {}", to.display()));
    Ok(Exit::Done)
}

async fn migrate(
    cli: &Cli,
    place: &StoreLocation,
    args: &OnlineDataMigrationsArgs,
) -> Result<Exit, CliError> {
    let database = open_reader(place).await?;
    let revision = database.revision().await.map_err(|error| failed(&error))?;
    if revision < place.newest() {
        return Err(CliError::new(
            Exit::NeedsYou,
            format!("the schema of {place} is at revision {revision}, and has no place for versions"),
        )
        .hint("`stagger db upgrade` brings it up"));
    }
    let migrated = if args.dry_run {
        let left = database
            .remaining_rows()
            .await
            .map_err(|error| migration_error(&error))?;
        let end = if left.iter().all(|(_, left)| *left == 0) {
            End::Done
        } else {
            End::More
        };
        let each = left.into_iter().map(|(name, left)| MigrationRows {
            name,
            done: 0,
            left,
            stuck: Vec::new(),
        });
        (end, each.collect())
    } else {
        let limits = Limits {
            max_count: args.max_count,
            batch: args.batch,
        };
        let mut teller = ProgressReporter::new();
        let report = database
            .migrate(limits, |progress| teller.report_progress(progress))
            .await;
        teller.end();
        let report = report.map_err(|error| migration_error(&error))?;
        let each = report.each.into_iter().map(|each| MigrationRows {
            name: each.name,
            done: each.done,
            left: each.left,
            stuck: each.stuck.iter().map(ToString::to_string).collect(),
        });
        (report.end, each.collect())
    };
    database.close().await;
    Ok(migration_report(cli, args, place, migrated))
}

fn migration_report(
    cli: &Cli,
    args: &OnlineDataMigrationsArgs,
    place: &StoreLocation,
    (end, migrations): (End, Vec<MigrationRows>),
) -> Exit {
    let (word, exit) = match end {
        End::Done => ("done", Exit::Done),
        End::More => ("more", Exit::More),
        End::Stuck => ("stuck", Exit::NeedsYou),
        End::NoProgress => ("no-progress", Exit::NeedsYou),
    };
    if cli.json {
        print::json(&documents::MIGRATED.of(&MigrationReport {
            store: place.to_string(),
            end: word.to_owned(),
            migrations,
        }));
        return exit;
    }
    for MigrationRows {
        name,
        done,
        left,
        stuck,
    } in &migrations
    {
        print::data_line(&format!("{name:<20} {done} done, {left} left"));
        for row in stuck {
            print::data_line(&format!("  stuck  {row}"));
        }
    }
    match end {
        End::Done => {}
        End::More if args.dry_run => print::status_line("nothing was changed: run it without --dry-run"),
        End::More => print::status_line("more rows are left: run it again"),
        End::Stuck => print::status_line("NEEDS YOU  these rows cannot be migrated as they are"),
        End::NoProgress => print::status_line(
            "NEEDS YOU  rows are left, and no fewer than before: a stagger of the previous release still writes here",
        ),
    }
    exit
}

/// How wide a bar is, in characters.
const BAR: usize = 24;

/// A bar of which so many percent are full; the whole of it only when all is done.
fn bar(percent: u64) -> String {
    let full = usize::try_from(percent.min(100)).unwrap_or(100) * BAR / 100;
    format!("[{}{}]", "#".repeat(full), " ".repeat(BAR - full))
}

/// Tells how far it is: by a bar in one line on a terminal, now and then elsewhere.
struct ProgressReporter {
    terminal: bool,
    told: Option<Instant>,
}

impl ProgressReporter {
    fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            told: None,
        }
    }

    fn report_progress(&mut self, progress: Progress<'_>) {
        let Progress { name, done, of } = progress;
        let percent = (done * 100).checked_div(of).unwrap_or(100).min(100);
        if self.terminal {
            let bar = bar(percent);
            print::raw(&format!("\r{name}  {bar}  {done} of {of}, {percent} %\u{1b}[K"));
            self.told = Some(Instant::now());
        } else if self.told.get_or_insert_with(Instant::now).elapsed() >= HEARTBEAT {
            print::status_line(&format!("{name}  {done} of {of}, {percent} %"));
            self.told = Some(Instant::now());
        }
    }

    fn end(&self) {
        if self.terminal && self.told.is_some() {
            print::raw("\r\u{1b}[K");
        }
    }
}

fn failed(error: &RowsError) -> CliError {
    let exit = if matches!(error, RowsError::NoStore { .. }) {
        Exit::Usage
    } else {
        Exit::Unreachable
    };
    CliError::caused(exit, error)
}

fn migration_error(error: &Failed) -> CliError {
    let exit = match error.code() {
        1 => Exit::No,
        4 => Exit::Unreachable,
        _ => Exit::Internal,
    };
    CliError::caused(exit, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0), "[                        ]");
        assert_eq!(bar(50), "[############            ]");
        assert_eq!(bar(99), "[####################### ]");
        assert_eq!(bar(100), "[########################]");
    }
}
