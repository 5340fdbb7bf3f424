//! `versions`: which daemon runs which release.

use std::collections::BTreeMap;

use stagger_core::model::{Snapshot, UnitId};

use crate::args::{self, Cli};
use crate::clusters::{self, Cluster, VersionReport};
use crate::documents::{self, VersionRow, Versions};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show::services::{row, services as lines_of};
use stagger_report::names::{compress, fit};

/// `versions`
pub(crate) async fn versions(cli: &Cli, args: &args::VersionsArgs) -> Result<Exit, CliError> {
    let from = args::FactsFrom {
        from: args.from.clone(),
        ..args::FactsFrom::default()
    };
    let cluster = clusters::open(cli, &from).await?;
    show(cli, &*cluster, args.all).await
}

/// The same of a cluster that is opened.
pub(super) async fn show(cli: &Cli, cluster: &dyn Cluster, all: bool) -> Result<Exit, CliError> {
    let VersionReport {
        answers,
        snapshot,
        services,
    } = cluster.versions().await?;
    if cli.json {
        let rows = by_release(&snapshot).into_iter();
        let rows = rows.map(|((kind, revision), units)| VersionRow {
            kind,
            revision,
            count: units.len(),
            units,
        });
        print::json(&documents::VERSIONS.of(&Versions {
            versions: rows.collect(),
            services: services.into_iter().map(row).collect::<Result<_, _>>()?,
        }));
    } else if services.is_empty() {
        print_units(&snapshot, all);
    } else {
        for line in lines_of(&services, all) {
            print::data_line(&line);
        }
    }
    Ok(if answers { Exit::Done } else { Exit::Unreachable })
}

fn by_release(snapshot: &Snapshot) -> BTreeMap<(String, String), Vec<UnitId>> {
    let mut by: BTreeMap<(String, String), Vec<UnitId>> = BTreeMap::new();
    for unit in snapshot.units() {
        let revision = unit
            .revision
            .as_ref()
            .map_or("unknown".to_owned(), ToString::to_string);
        by.entry((unit.kind.to_string(), revision))
            .or_default()
            .push(unit.id.clone());
    }
    by
}

fn print_units(snapshot: &Snapshot, all: bool) {
    print::data_line(&format!("{:<6} {:<10} {:>5}  units", "kind", "release", "count"));
    for ((kind, revision), units) in by_release(snapshot) {
        let line = |units: &[UnitId]| {
            let names = fit(&compress(units), print::width().saturating_sub(26));
            print::data_line(&format!("{kind:<6} {revision:<10} {:>5}  {names}", units.len()));
        };
        if all {
            units.chunks(1).for_each(line);
        } else {
            line(&units);
        }
    }
}
