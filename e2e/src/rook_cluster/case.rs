//! A case beside the real Rook.

use std::path::Path;

use anyhow::{Result, ensure};

use super::RookCluster;
use crate::case::{Phases, case, ensure_gone};
use crate::command::say;
use crate::loop_devices;
use crate::rook_program::{Availability, find};

use super::RookSpec;

/// A case on a cluster that Rook laid out. Whatever happens, the cluster is gone afterwards, and nothing of it is left.
/// Where Rook cannot be had it is not run, and `case NAME skipped WHY` is printed.
///
/// # Errors
/// The case fails, or something is left.
pub fn beside_rook(
    name: &str,
    agent: &str,
    spec: RookSpec,
    work: impl FnOnce(&RookCluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    let mut rooks = Vec::new();
    for release in [Some(spec.rook), spec.next_rook].into_iter().flatten() {
        match find(release)? {
            Availability::Here(rook) => rooks.push(rook),
            Availability::Missing(why) => {
                say(format!("case {name} skipped {}", why.replace('\n', " ")));
                return Ok(());
            }
        }
    }
    case(name, || {
        let mut phases = Phases::begin();
        let cluster = RookCluster::start(rooks, spec, Path::new(agent))?;
        phases.lap("laid out by Rook");
        let result = work(&cluster, &mut phases);
        if result.is_err() {
            // Apart from the error, which would drown in it.
            say(cluster.tail());
        }
        let dir = cluster.dir().to_owned();
        let stopped = cluster.stop();
        phases.lap("ended");
        phases.print();
        result?;
        stopped?;
        ensure_gone(&dir)?;
        let left = loop_devices::left(&dir)?;
        ensure!(left.is_empty(), "loop devices are left on {left:?}");
        Ok(())
    })
}
