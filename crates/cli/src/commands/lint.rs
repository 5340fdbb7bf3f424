//! `lint migrations`: the policy of schema changes, for any program that keeps to it.

use std::path::{Path, PathBuf};

use stagger_versioned::lint::{Finding, Migration, Report, lint};
use stagger_versioned::{Declared, Manifest};

use crate::args::{Cli, Migrations};
use crate::documents::{self, BrokenRule, LintReport, TableLock, WaivedRule};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// What the manifest is called where nobody says otherwise.
const MANIFEST: &str = "releases.toml";

/// `lint migrations`
pub(crate) fn migrations(cli: &Cli, args: &Migrations) -> Result<Exit, CliError> {
    let manifest = manifest(args)?;
    let since = match &args.since {
        None => None,
        Some(release) => {
            let named = manifest
                .find(release)
                .map_err(|unknown| CliError::usage(format!("--since: {unknown}")))?;
            Some(named.place)
        }
    };
    let migrations = read(&args.folder)?;
    let report = lint(&migrations, &manifest, since);
    if let Some(file) = &args.release_notes {
        let notes = match report.notes() {
            none if none.is_empty() => none,
            some => some + "\n",
        };
        std::fs::write(file, notes)
            .map_err(|error| CliError::usage(format!("write {}: {error}", file.display())))?;
    }
    show(cli, args, &report);
    Ok(if report.code() == 0 { Exit::Done } else { Exit::No })
}

fn show(cli: &Cli, args: &Migrations, report: &Report) {
    if cli.json {
        print::json(&documents::LINT.of(&document(report)));
        return;
    }
    for finding in &report.findings {
        print::out(&finding.to_string());
    }
    let notes = report.notes();
    if args.release_notes.is_none() && !notes.is_empty() {
        if !report.findings.is_empty() {
            print::out("");
        }
        print::out(&notes);
    }
    let files = match report.judged {
        0 => "no migration to judge".to_owned(),
        1 => "1 migration".to_owned(),
        many => format!("{many} migrations"),
    };
    let down = match report.down {
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
    print::talk(&format!("{files}{down}: {found}{waived}"));
}

fn document(report: &Report) -> LintReport {
    let broken = |finding: &Finding| BrokenRule {
        file: finding.file.clone(),
        line: finding.line,
        rule: finding.rule.word().to_owned(),
        why: finding.rule.to_string(),
        instead: finding.rule.instead().to_owned(),
    };
    let waived = report.waived.iter().map(|waived| WaivedRule {
        release: waived.release.clone(),
        file: waived.finding.file.clone(),
        line: waived.finding.line,
        rule: waived.finding.rule.word().to_owned(),
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
        down: report.down,
    }
}

fn manifest(args: &Migrations) -> Result<Manifest, CliError> {
    let path = match &args.manifest {
        Some(path) => path.clone(),
        None => usual(&args.folder)?,
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CliError::usage(format!("read the manifest {}: {error}", path.display())))?;
    let refused = |why: String| {
        let mut refused = CliError::usage(format!("the manifest {} is refused", path.display()));
        refused.causes.push(why.trim_end().replace('\n', "\n    "));
        refused
    };
    let declared: Declared = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    Manifest::new(declared).map_err(|faults| refused(faults.to_string()))
}

fn usual(folder: &Path) -> Result<PathBuf, CliError> {
    let places = [folder.join(MANIFEST), folder.join("..").join(MANIFEST)];
    places
        .iter()
        .find(|place| place.exists())
        .cloned()
        .ok_or_else(|| {
            CliError::usage(format!(
                "there is no manifest of releases at {} or {}",
                places[0].display(),
                places[1].display()
            ))
            .hint("--manifest names another place; docs/guides/versioned.md shows a manifest")
        })
}

/// The migrations in the order in which they are carried out.
fn read(folder: &Path) -> Result<Vec<Migration>, CliError> {
    let failed = |path: &Path, error: std::io::Error| {
        CliError::usage(format!("read the migrations of {}: {error}", path.display()))
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_some_and(|ending| ending == "sql") {
            names.push(path);
        }
    }
    if names.is_empty() {
        return Err(CliError::usage(format!(
            "there is no migration in {}: no file ends in .sql",
            folder.display()
        )));
    }
    names.sort();
    let each = names.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        Ok(Migration {
            file: path.display().to_string(),
            text,
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_of_our_own_stores_keep_to_the_policy() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(crates.join("core/releases.toml")).unwrap();
        let declared: Declared = toml::from_str(&text).unwrap();
        let manifest = Manifest::new(declared).unwrap();
        for database in ["postgres", "sqlite"] {
            let migrations = read(&crates.join("engine/schema").join(database)).unwrap();
            assert!(!migrations.is_empty(), "{database} has no migrations");
            let report = lint(&migrations, &manifest, None);
            let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "{database}: {told:#?}");
        }
    }
}
