//! `risks`: known risks of releases, and those that apply to a cluster.

use stagger_risks::{Applies, RiskEffect};

use crate::args::{self, Cli};
use crate::clusters::{self, RiskReport};
use crate::config;
use crate::documents::{self, KnownRisks, RiskRow};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::risks::load_risks;

/// `risks`
pub(crate) async fn risks(cli: &Cli, args: &args::ListRisksArgs) -> Result<Exit, CliError> {
    let is_named = args.from.from.is_some() || args.from.on.is_given();
    let report = if is_named || config::path(cli).is_ok() {
        let cluster = clusters::open(cli, &args.from).await?;
        cluster.risks(&args.risks, args.to.as_deref()).await?
    } else {
        None
    };
    let document = match report {
        Some(report) => of_cluster(&report),
        None => KnownRisks {
            cluster: None,
            risks: load_risks(&args.risks)?
                .iter()
                .map(|risk| RiskRow::of(risk, None))
                .collect(),
        },
    };
    if cli.json {
        print::json(&documents::RISKS.of(&document));
    } else {
        show(&document);
    }
    Ok(Exit::Done)
}

/// Those on its way in the order in which they were found, then the others.
fn of_cluster(report: &RiskReport) -> KnownRisks {
    let RiskReport {
        cluster,
        known,
        found,
    } = report;
    let met = found.iter().filter_map(|finding| {
        let risk = known.iter().find(|risk| risk.id == finding.id)?;
        Some(RiskRow::of(risk, Some(finding)))
    });
    let others = known
        .iter()
        .filter(|risk| !found.iter().any(|finding| finding.id == risk.id));
    KnownRisks {
        cluster: Some(cluster.clone()),
        risks: met.chain(others.map(|risk| RiskRow::of(risk, None))).collect(),
    }
}

fn show(document: &KnownRisks) {
    let KnownRisks { cluster, risks } = document;
    match cluster {
        Some(cluster) => {
            let count = |applies| risks.iter().filter(|risk| risk.applies == Some(applies)).count();
            print::data_line(&format!(
                "{cluster}: {} of {} known risks apply, {} may",
                count(Applies::Yes),
                risks.len(),
                count(Applies::Unknown)
            ));
        }
        None => print::data_line(&format!(
            "{} known risks; no cluster was looked at: --config or --from names one",
            risks.len()
        )),
    }
    let (met, others): (Vec<_>, Vec<_>) = risks
        .iter()
        .partition(|risk| risk.applies.is_some() || cluster.is_none());
    for risk in met {
        print_risk(risk);
    }
    if others.is_empty() {
        return;
    }
    print::data_line("\nNot on its way:");
    for risk in others {
        print::data_line(&format!("  {}  {}", risk.id, risk.what));
    }
}

/// All of a risk, a line for each part.
fn print_risk(risk: &RiskRow) {
    let effect = match risk.effect {
        RiskEffect::Refuse => "refuses",
        RiskEffect::Warn => "warns",
    };
    let applies = risk.applies.map(|applies| match applies {
        Applies::Yes => "applies",
        Applies::Unknown => "may apply",
        Applies::No => "does not apply",
    });
    let mut head = format!("\n{} {effect}", risk.id);
    if let (Some(applies), Some(because)) = (applies, &risk.because) {
        head = format!("{head}, {applies} ({because})");
    }
    print::data_line(&head);
    print::data_line(&format!("  from    {} to {}", risk.from, risk.to));
    print::data_line(&format!("  what    {}", risk.what));
    print::data_line(&format!("  do      {}", risk.remedy));
    for source in &risk.source {
        print::data_line(&format!("  source  {source}"));
    }
}
