//! A case on a cluster laid out, under load.

use std::path::Path;

use anyhow::{Result, ensure};

use super::CephInPods;
use crate::case::{Phases, case, loaded};
use crate::ceph::CephSpec;
use crate::command::say;
use crate::roots::Release;

/// A case on a cluster of the usual shape, in pods, under load. `agent` is the `node-agent`. At the end the
/// clients are asked: no operation may have failed, and everything that was written must be there.
///
/// # Errors
/// The case fails, or a client saw something.
pub fn in_pods(
    name: &str,
    agent: &str,
    release: Release,
    releases: &[Release],
    work: impl FnOnce(&CephInPods, &mut Phases) -> Result<()>,
) -> Result<()> {
    in_pods_of(CephSpec::default(), name, agent, release, releases, work)
}

/// The same on a cluster of another shape.
///
/// # Errors
/// The case fails, or a client saw something.
pub fn in_pods_of(
    spec: CephSpec,
    name: &str,
    agent: &str,
    release: Release,
    releases: &[Release],
    work: impl FnOnce(&CephInPods, &mut Phases) -> Result<()>,
) -> Result<()> {
    case(name, || {
        let mut phases = Phases::begin();
        let cluster = CephInPods::start(release, spec, releases, Path::new(agent))?;
        phases.lap("Ceph in pods");
        let result = loaded(&cluster.ceph, &mut phases, |phases| work(&cluster, phases));
        if result.is_err() {
            say(cluster.ceph.logs_tail());
            say(cluster.operators_tail());
            say(cluster
                .plane
                .ask(&["get", "pods", "-A", "-o", "wide"])
                .unwrap_or_default());
        }
        let dir = cluster.ceph.dir().to_owned();
        drop(cluster);
        phases.print();
        result?;
        ensure!(!dir.exists(), "{} is left", dir.display());
        Ok(())
    })
}
