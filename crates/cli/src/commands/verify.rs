//! `verify`: whether a journal keeps the laws, by other means than those that wrote it.

use std::io::BufRead as _;
use std::path::Path;

use serde_json::{Map, Value};
use stagger_core::run::Entry;
use stagger_report::{Verification, verify};

use super::{store, which};
use crate::args::{self, Cli};
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// `verify`
pub(crate) fn verify_run(cli: &Cli, args: &args::Verify) -> Result<Exit, CliError> {
    let (entries, from) = if let Some(file) = &args.from {
        (journal_file(file)?, file.display().to_string())
    } else {
        let store = store(cli)?;
        let run = which(&*store, args.run.as_ref())?;
        (store.journal(&run)?, format!("the journal of {run}"))
    };
    let verified = verify(&entries)
        .ok_or_else(|| CliError::usage(format!("{from} does not begin with the start of a run")))?;
    if cli.json {
        print::json(&documents::VERIFICATION.of(&verified));
    } else {
        print::out(&shown(&verified));
    }
    Ok(if verified.holds() { Exit::Done } else { Exit::No })
}

/// Events, one a line: `journal.jsonl` of `artifacts --bundle`, or what `history RUN --json` prints.
fn journal_file(file: &Path) -> Result<Vec<Entry>, CliError> {
    let shown = file.display();
    let opened = std::fs::File::open(file);
    let opened = opened.map_err(|error| CliError::usage(format!("{shown} cannot be read: {error}")))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(std::io::BufReader::new(opened).lines()) {
        let line = line.map_err(|error| CliError::usage(format!("{shown} cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |error: serde_json::Error| {
            CliError::usage(format!(
                "line {number} of {shown} is no event of a journal: {error}"
            ))
            .hint("`stagger history RUN --json` prints a journal")
        };
        entries.push(entry(&line).map_err(wrong)?);
    }
    Ok(entries)
}

/// An event in its place, with or without the name of the document before it.
fn entry(line: &str) -> Result<Entry, serde_json::Error> {
    let mut fields: Map<String, Value> = serde_json::from_str(line)?;
    fields.remove("schema");
    let seq = serde_json::from_value(fields.remove("seq").unwrap_or_default())?;
    let at = serde_json::from_value(fields.remove("at").unwrap_or_default())?;
    let event = serde_json::from_value(fields.into())?;
    Ok(Entry { seq, at, event })
}

/// The verdict first, then each law, and where it is broken.
fn shown(verified: &Verification) -> String {
    let Verification {
        run, events, over, ..
    } = verified;
    let verdict = match verified.laws.iter().map(|verdict| verdict.broken.len()).sum() {
        0 => "HOLDS   every law".to_owned(),
        1 => "BROKEN  in 1 place".to_owned(),
        places => format!("BROKEN  in {places} places"),
    };
    let so_far = if *over { "" } else { "; the run is not over" };
    let mut lines = vec![
        format!("{verdict}, run {run}, {events} events{so_far}"),
        String::new(),
    ];
    for verdict in &verified.laws {
        let word = if verdict.broken.is_empty() { "ok" } else { "BROKEN" };
        lines.push(format!(
            "  {word:<6}  {:<19} {:>6}  {}",
            verdict.law.slug(),
            verdict.looked_at,
            verdict.law.sentence()
        ));
        let broken = verdict.broken.iter();
        lines.extend(broken.map(|breach| format!("          event {}: {}", breach.seq, breach.why)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use stagger_report::Law;

    #[test]
    fn a_law_has_one_name_for_people_and_in_documents() {
        for law in Law::ALL {
            assert_eq!(serde_json::to_value(law).unwrap(), law.slug());
        }
    }
}
