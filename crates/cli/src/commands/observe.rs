//! `observe`: the state of a cluster, shown or saved.

use std::collections::BTreeMap;

use stagger_core::model::{Snapshot, UnitState, Verdict};
use stagger_engine::inventory::write_whole;

use crate::args::{self, Cli};
use crate::clusters;
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// `observe`
pub(crate) async fn observe(cli: &Cli, args: &args::ObserveArgs) -> Result<Exit, CliError> {
    let cluster = clusters::open(cli, &args.from).await?;
    let Some(file) = &args.save else {
        return Ok(show_snapshot(cli, &cluster.snapshot().await?));
    };
    let (inventory, snapshot) = cluster.inventory().await?;
    let bytes = inventory
        .to_json()
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    write_whole(file, &bytes)
        .map_err(|error| CliError::usage(format!("write the inventory to {}: {error}", file.display())))?;
    Ok(show_snapshot(cli, &snapshot))
}

fn show_snapshot(cli: &Cli, snapshot: &Snapshot) -> Exit {
    if cli.json {
        print::json(&documents::SNAPSHOT.of(snapshot));
        return Exit::Done;
    }
    print::data_line(&format!(
        "{}  {}, observed {:.0}",
        snapshot.cluster(),
        snapshot.generation(),
        snapshot.observed_at()
    ));
    let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for unit in snapshot.units() {
        let counts = kinds.entry(unit.kind.as_str()).or_default();
        match unit.state {
            UnitState::Serving => counts[0] += 1,
            UnitState::Down => counts[1] += 1,
            UnitState::Unknown => counts[2] += 1,
        }
    }
    for (kind, [serving, down, unknown]) in kinds {
        print::data_line(&format!(
            "  {kind:<6} {serving} serving, {down} down, {unknown} unknown"
        ));
    }
    for absent in snapshot.absent() {
        print::data_line(&format!("  absent {}: {}", absent.unit, absent.reason));
    }
    print::data_line(&format!("  {} budgets", snapshot.budgets().len()));
    for condition in snapshot.conditions() {
        let mark = match condition.verdict {
            Verdict::Yes => '+',
            Verdict::No => 'x',
            Verdict::Unknown => '?',
        };
        print::data_line(&format!(
            "  {mark} {:<24} {:<8} {}",
            condition.name, condition.verdict, condition.why
        ));
    }
    Exit::Done
}
