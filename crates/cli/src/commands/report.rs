//! `report`: a run as one HTML page.

use stagger_core::view;
use stagger_engine::driver::DriveError;
use stagger_engine::supervisor;
use stagger_report::event_text::event_lines;
use stagger_report::forecast::{EarlierRun, Forecasts};
use stagger_report::page::RunReport;
use stagger_report::{History, page, verify};

use super::journal::{NamedJournal, journal, no_start};
use crate::args::{self, Cli};
use crate::error::CliError;
use crate::exit::Exit;
use crate::final_findings;
use crate::forecasts;
use crate::print;
use crate::state::{artifacts, store};

/// `report`
pub(crate) async fn report(cli: &Cli, args: &args::ReportArgs) -> Result<Exit, CliError> {
    if cli.json {
        let error = CliError::usage("a report is an HTML page; there is no JSON of it");
        return Err(
            error.hint("`status --json`, `verify --json` and `history RUN --json` have what it is made of")
        );
    }
    let NamedJournal { entries, from } = journal(cli, &args.of).await?;
    let verification = verify(&entries).ok_or_else(|| no_start(&from))?;
    // Of a journal that somebody has damaged there is a report too.
    let (readable, broken) = match event_lines(&entries) {
        Ok(_) => (&entries[..], None),
        Err(broken) => {
            let sound = entries.iter().position(|entry| entry.seq == broken.seq);
            (&entries[..sound.unwrap_or(0)], Some(broken))
        }
    };
    let told = event_lines(readable).map_err(DriveError::Illegal)?;
    let (Some((run, lines)), Some(history)) = (told, History::of(readable)) else {
        return Err(no_start(&from));
    };
    let mut seen = view::run(&run, None);
    let mut earlier = Vec::new();
    let mut after = Vec::new();
    // Who carries out what a file or a cluster tells of is not known here, nor are earlier runs.
    if args.of.from.is_none() && !args.of.kube.is_given() {
        let store = store(cli).await?;
        if let Some(why) = supervisor::interruption_reason(&*store, &run).await? {
            seen = seen.without_a_holder(why);
        }
        let start = run.start();
        after = final_findings::load(&artifacts(cli)?, &start.run);
        let identity = start.identity.as_ref();
        earlier = forecasts::earlier(&*store, &start.cluster, identity, Some(&start.run)).await;
    }
    let told = EarlierRun::of(readable).map(|run| Forecasts::of(&run, &earlier));
    let page = page(&RunReport {
        forecasts: told.as_ref(),
        view: &seen,
        history: &history,
        verification: &verification,
        lines: &lines,
        broken: broken.as_ref(),
        look_back: &after,
        version: env!("CARGO_PKG_VERSION"),
    });
    match &args.out {
        None => print::data_line(&page),
        Some(file) => std::fs::write(file, page)
            .map_err(|error| CliError::usage(format!("{} cannot be written: {error}", file.display())))?,
    }
    Ok(Exit::Done)
}
