//! `ceph ok-to-stop`: stagger's own oracle by itself.

use std::path::Path;

use stagger_ceph::oktostop::{Maps, load, report};
use stagger_core::model::Fact;

use crate::args::{Cli, FactsFrom};
use crate::clusters::ClusterHandle;
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Whether these OSDs may stop together. Exit 0 yes, 1 no, 2 an id that does not exist.
pub(crate) async fn ok_to_stop(
    cli: &Cli,
    ids: &[String],
    max: Option<usize>,
    from: &FactsFrom,
) -> Result<Exit, CliError> {
    let mut set = Vec::with_capacity(ids.len());
    for id in ids {
        let number = id.strip_prefix("osd.").unwrap_or(id).parse::<u32>();
        set.push(
            number.map_err(|_| CliError::usage(format!("{id:?} is not an OSD")).hint("write 3 or osd.3"))?,
        );
    }
    let maps = match from.from.as_deref().filter(|path| path.is_dir()) {
        Some(folder) => in_folder(folder)?,
        None => read_maps(cli, from).await?,
    };
    let oracle = maps.oracle();
    let unknown = |error: stagger_ceph::oktostop::NoSuchOsd| CliError::usage(error.to_string());
    let (verdict, largest) = match max {
        Some(max) => {
            let largest = oracle
                .largest(&set, u32::try_from(max).unwrap_or(u32::MAX))
                .map_err(unknown)?;
            (largest.verdict.clone(), Some(largest))
        }
        None => (oracle.ask(&set).map_err(unknown)?, None),
    };
    if cli.json {
        print::json(&documents::OK_TO_STOP.of(&report(&verdict, largest.as_ref())));
    } else {
        let names: Vec<_> = verdict.osds.iter().map(|osd| format!("osd.{osd}")).collect();
        let bad = verdict.blocking_groups();
        if verdict.ok() {
            print::data_line(&format!("yes: {} may stop together", names.join(" ")));
        } else if bad.is_empty() {
            print::data_line(&format!(
                "no: {} placement groups are unknown",
                verdict.unknown.len()
            ));
        } else {
            let shown: Vec<_> = bad.iter().take(10).map(ToString::to_string).collect();
            let more = if bad.len() > 10 { " …" } else { "" };
            print::data_line(&format!(
                "no: {} would break {} placement groups: {}{more}",
                names.join(" "),
                bad.len(),
                shown.join(" ")
            ));
        }
        if let Some(largest) = &largest {
            print::data_line(&format!(
                "{} OSDs; Ceph's own walk finds {}, no set has more than {}",
                largest.verdict.osds.len(),
                largest.by_ceph_walk,
                largest.upper_bound
            ));
        }
    }
    Ok(if verdict.ok() { Exit::Done } else { Exit::No })
}

/// Of a folder only the three answers are read that the oracle needs.
fn in_folder(folder: &Path) -> Result<Maps, CliError> {
    load(folder).map_err(|error| {
        CliError::caused(Exit::Usage, &error).hint(
            "the folder holds pg_dump.json, osd_dump.json and osd_tree.json, as `ceph … -f json` prints them",
        )
    })
}

async fn read_maps(cli: &Cli, from: &FactsFrom) -> Result<Maps, CliError> {
    let facts = ClusterHandle::open(cli, from).await?.source.facts().await?;
    match facts.pgs {
        Fact::Yes(pgs) => Ok(Maps {
            pgs,
            osds: facts.osds,
            tree: facts.tree,
        }),
        Fact::No(why) => Err(CliError::new(
            Exit::Unreachable,
            format!("the placement groups are unknown: {why}"),
        )),
    }
}
