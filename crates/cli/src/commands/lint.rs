//! `lint`: the policy of schema changes, for any program that follows it.

mod files;

use std::path::{Path, PathBuf};

use stagger_versioned::lint::{
    EXPLANATIONS, Explanation, Finding, Linter, Ordered, Releases, Report, annotations, explain, sarif,
};
use stagger_versioned::{Declared, Manifest};

use crate::args::{Cli, MigrationsArgs, ReportFormat};
use crate::documents::{self, BrokenRule, LintReport, TableLock, WaivedRule};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// What the manifest is called where nobody says otherwise.
const MANIFEST: &str = "releases.toml";

/// So many files that are not judged are named.
const LISTED: usize = 10;

/// `lint migrations`
pub(crate) fn migrations(cli: &Cli, args: &MigrationsArgs) -> Result<Exit, CliError> {
    let manifest = manifest(args)?;
    let ordered = files::read(&args.folder, args.layout)?;
    let linter = Linter {
        releases: releases(manifest.as_ref(), args.since.as_deref(), &ordered)?,
        dialect: args.dialect,
    };
    let report = linter.judge(&ordered.migrations);
    if let Some(file) = &args.release_notes {
        let notes = match report.notes() {
            none if none.is_empty() => none,
            some => some + "\n",
        };
        std::fs::write(file, notes)
            .map_err(|error| CliError::usage(format!("write {}: {error}", file.display())))?;
    }
    show(cli, args, &report, &ordered);
    if manifest.is_none() {
        print::status_line("there is no manifest of releases: each migration is checked as the next release");
    }
    if !ordered.left_out.is_empty() {
        let (first, rest) = ordered.left_out.split_at(ordered.left_out.len().min(LISTED));
        let rest = match rest.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        print::status_line(&format!("not checked: {}{rest}", first.join(", ")));
    }
    Ok(if report.code() == 0 { Exit::Done } else { Exit::No })
}

/// `lint explain`
pub(crate) fn explain_rule(rule: Option<&str>) -> Result<Exit, CliError> {
    let Some(word) = rule else {
        for Explanation { rule, finds, .. } in EXPLANATIONS {
            print::data_line(&format!("{rule:<21} {finds}"));
        }
        return Ok(Exit::Done);
    };
    let Some(explanation) = explain(word) else {
        let known = EXPLANATIONS.map(|explanation| explanation.rule).join(", ");
        return Err(CliError::usage(format!("there is no rule {word:?}")).hint(format!("rules are {known}")));
    };
    let Explanation {
        rule,
        finds,
        why,
        instead,
        bad,
        good,
    } = explanation;
    print::data_line(&format!(
        "{rule}\n\nfinds: {finds}\nwhy: {why}\ninstead: {instead}"
    ));
    for (what, example) in [("found", bad), ("not found", good)] {
        if !example.is_empty() {
            print::data_line(&format!("\n{what}:\n\n    {}", example.replace('\n', "\n    ")));
        }
    }
    Ok(Exit::Done)
}

fn releases<'a>(
    manifest: Option<&'a Manifest>,
    since: Option<&str>,
    ordered: &Ordered,
) -> Result<Releases<'a>, CliError> {
    match (manifest, since) {
        (Some(manifest), since) => {
            let since = since.map(|release| {
                let named = manifest.find(release);
                named.map_err(|unknown| CliError::usage(format!("--since: {unknown}")))
            });
            let since = since.transpose()?.map(|named| named.place);
            Ok(Releases::Declared { manifest, since })
        }
        (None, None) => Ok(Releases::Undeclared { carried_out: 0 }),
        (None, Some(last)) => {
            let carried_out = ordered.applied_count(last).ok_or_else(|| {
                CliError::usage(format!("--since: there is no migration {last:?}"))
                    .hint("without a manifest it is the last migration that was carried out: its file, its version or its revision")
            })?;
            Ok(Releases::Undeclared { carried_out })
        }
    }
}

fn show(cli: &Cli, args: &MigrationsArgs, report: &Report, ordered: &Ordered) {
    let down = ordered.down.len();
    if cli.json {
        print::json(&documents::LINT.of(&document(report, down)));
        return;
    }
    match args.format {
        ReportFormat::Sarif => {
            print::json(&sarif(report, env!("CARGO_PKG_VERSION")));
            return;
        }
        ReportFormat::Github => annotations(report).iter().for_each(|line| print::data_line(line)),
        ReportFormat::Text => {
            for finding in &report.findings {
                print::data_line(&finding.to_string());
            }
            let notes = report.notes();
            if args.release_notes.is_none() && !notes.is_empty() {
                if !report.findings.is_empty() {
                    print::data_line("");
                }
                print::data_line(&notes);
            }
        }
    }
    let files = match report.judged {
        0 => "no migration to check".to_owned(),
        1 => "1 migration".to_owned(),
        many => format!("{many} migrations"),
    };
    let down = match down {
        0 => String::new(),
        1 => ", 1 down file left out".to_owned(),
        many => format!(", {many} down files left out"),
    };
    let waived = match report.waived.len() {
        0 => String::new(),
        1 => "; 1 waiver".to_owned(),
        many => format!("; {many} waivers"),
    };
    let found = match report.findings.len() {
        0 => "services of the release before work on".to_owned(),
        1 => "a rule is broken".to_owned(),
        many => format!("rules are broken {many} times"),
    };
    print::status_line(&format!("{files}{down}: {found}{waived}"));
}

fn document(report: &Report, down: usize) -> LintReport {
    let broken = |finding: &Finding| BrokenRule {
        file: finding.file.clone(),
        line: finding.line,
        rule: finding.rule.as_str().to_owned(),
        why: finding.rule.to_string(),
        instead: finding.rule.instead().to_owned(),
    };
    let waived = report.waived.iter().map(|waived| WaivedRule {
        release: waived.release.clone(),
        file: waived.finding.file.clone(),
        line: waived.finding.line,
        rule: waived.finding.rule.as_str().to_owned(),
        why: waived.finding.rule.to_string(),
        reason: waived.reason.clone(),
    });
    let locks = report.locks.iter().map(|taken| TableLock {
        release: taken.release.clone(),
        file: taken.file.clone(),
        line: taken.line,
        table: taken.lock.table.clone(),
        what: taken.lock.what.clone(),
        mode: taken.lock.mode.to_string(),
        long: taken.lock.long,
        instead: taken.lock.instead.map(str::to_owned),
    });
    LintReport {
        findings: report.findings.iter().map(broken).collect(),
        waived: waived.collect(),
        locks: locks.collect(),
        down,
    }
}

/// The manifest that is named, or that stands where it usually does; a project that has none is judged without.
fn manifest(args: &MigrationsArgs) -> Result<Option<Manifest>, CliError> {
    let Some(path) = args.manifest.clone().or_else(|| default_folder(&args.folder)) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CliError::usage(format!("read the manifest {}: {error}", path.display())))?;
    let refused = |why: String| {
        let mut refused = CliError::usage(format!("the manifest {} is refused", path.display()));
        refused.causes.push(why.trim_end().replace('\n', "\n    "));
        refused
    };
    let declared: Declared = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let manifest = Manifest::new(declared).map_err(|faults| refused(faults.to_string()))?;
    Ok(Some(manifest))
}

fn default_folder(folder: &Path) -> Option<PathBuf> {
    let places = [folder.join(MANIFEST), folder.join("..").join(MANIFEST)];
    places.into_iter().find(|place| place.exists())
}

#[cfg(test)]
mod tests {
    use stagger_versioned::lint::Layout;

    use super::*;

    #[test]
    fn the_schemas_of_our_own_stores_keep_to_the_policy() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(crates.join("core/releases.toml")).unwrap();
        let declared: Declared = toml::from_str(&text).unwrap();
        let manifest = Manifest::new(declared).unwrap();
        for database in ["postgres", "sqlite"] {
            let ordered = files::read(&crates.join("engine/schema").join(database), None).unwrap();
            let migrations = &ordered.migrations;
            assert!(!migrations.is_empty(), "{database} has no migrations");
            let linter = Linter {
                releases: Releases::Declared {
                    manifest: &manifest,
                    since: None,
                },
                dialect: None,
            };
            let report = linter.judge(migrations);
            let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            assert!(found.is_empty(), "{database}: {found:#?}");
        }
    }

    #[test]
    fn a_layout_without_sql_is_refused_with_a_way_to_get_some() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a1_first.py"), "down_revision = None\n").unwrap();
        let refused = files::read(folder.path(), None).unwrap_err();
        assert!(refused.text().contains("alembic upgrade"), "{}", refused.text());
        std::fs::write(folder.path().join("1.sql"), "SELECT 1").unwrap();
        let refused = files::read(folder.path(), Some(Layout::Diesel)).unwrap_err();
        assert!(refused.text().contains("layout of diesel"), "{}", refused.text());
        let ordered = files::read(folder.path(), None).unwrap();
        assert_eq!((ordered.migrations.len(), ordered.left_out.len()), (1, 1));
    }
}
