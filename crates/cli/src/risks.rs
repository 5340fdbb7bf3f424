//! Known risks: the files to use, and the accepted ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stagger_core::model::Reason;
use stagger_risks::file::{SHIPPED_NAME, read};
use stagger_risks::{Applies, Risk, RiskEffect, RiskFinding, merge, shipped};

use crate::args::RiskFlags;
use crate::error::CliError;
use crate::exit::Exit;

/// The risks that are heeded: those of the program and those of these files.
pub(crate) fn load_risks<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<Vec<Risk>, CliError> {
    let own = shipped().map_err(|error| CliError::new(Exit::Internal, format!("{SHIPPED_NAME}: {error}")))?;
    let mut all = vec![(SHIPPED_NAME.to_owned(), own)];
    let mut seen = BTreeSet::new();
    for file in files {
        // Named in the configuration and by a flag, it is one file all the same.
        if seen.insert(file) {
            all.push((file.display().to_string(), of_file(file)?));
        }
    }
    merge(all).map_err(|error| CliError::usage(error.to_string()))
}

fn of_file(file: &Path) -> Result<Vec<Risk>, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliError::usage(format!("read the known risks {}: {error}", file.display())))?;
    read(&text).map_err(|error| {
        let mut refused = CliError::usage(format!("the known risks {} are refused", file.display()));
        refused
            .causes
            .push(error.to_string().trim_end().replace('\n', "\n    "));
        refused.hint("docs/guides/risks.md shows such a file")
    })
}

/// The ids that are accepted, each of a risk that is known.
pub(crate) fn accepted_risks(flags: &RiskFlags, known: &[Risk]) -> Result<BTreeSet<String>, CliError> {
    for id in &flags.accept_risk {
        if known.iter().any(|risk| risk.id == *id) {
            continue;
        }
        let likeness = |risk: &Risk| strsim::jaro_winkler(id, &risk.id);
        let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let error = CliError::usage(format!("--accept-risk {id}: there is no such risk"));
        return Err(match nearest {
            Some(nearest) => error.hint(format!(
                "the nearest is {}; `stagger risks` lists all",
                nearest.id
            )),
            None => error,
        });
    }
    Ok(flags.accept_risk.iter().cloned().collect())
}

/// Why no run is begun, by risks that apply and that nobody accepts.
pub(crate) fn refusals(found: &[RiskFinding]) -> Vec<Reason> {
    let refusing = found.iter().filter(|finding| finding.blocks_run());
    refusing
        .map(|finding| Reason::of_backend("known-risk", finding.sentence()))
        .collect()
}

/// What is told of each risk that applies or may, a line each.
pub(crate) fn lines(found: &[RiskFinding]) -> Vec<String> {
    let told = found.iter().filter(|finding| finding.applies != Applies::No);
    told.map(|finding| {
        let RiskFinding {
            id,
            because,
            what,
            remedy,
            source,
            ..
        } = finding;
        let source = source.first().map_or("", String::as_str);
        format!(
            "{id} {}: {what} ({source}); {remedy}",
            consequence(finding, because)
        )
    })
    .collect()
}

/// What comes of a finding.
fn consequence(finding: &RiskFinding, because: &str) -> String {
    match (finding.applies, finding.effect) {
        (Applies::Yes, RiskEffect::Refuse) if finding.accepted => "is accepted".to_owned(),
        (Applies::Yes, RiskEffect::Refuse) => "refuses a run".to_owned(),
        (Applies::Yes, RiskEffect::Warn) => "applies".to_owned(),
        (Applies::Unknown, _) => format!("may apply ({because})"),
        (Applies::No, _) => "does not apply".to_owned(),
    }
}
