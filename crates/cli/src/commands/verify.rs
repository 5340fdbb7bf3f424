//! `verify`: whether a journal keeps the laws, independently of the code that wrote it.

use stagger_report::{Verification, verify};

use super::journal::{NamedJournal, journal, no_start};
use crate::args::{self, Cli};
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// `verify`
pub(crate) async fn verify_run(cli: &Cli, args: &args::VerifyArgs) -> Result<Exit, CliError> {
    let NamedJournal { entries, from } = journal(cli, &args.of).await?;
    let verified = verify(&entries).ok_or_else(|| no_start(&from))?;
    if cli.json {
        print::json(&documents::VERIFICATION.of(&verified));
    } else {
        print::data_line(&report_text(&verified));
    }
    Ok(if verified.holds() { Exit::Done } else { Exit::No })
}

/// The verdict first, then each law, and where it is broken.
fn report_text(verified: &Verification) -> String {
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
