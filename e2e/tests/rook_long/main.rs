//! Cases of a cluster that Rook laid out, each on a real Kubernetes with real Ceph daemons in its pods, under
//! load.

mod cost;
mod drains;
mod growth;
mod system;
mod upgrades;
mod wishes;

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use stagger_e2e::case::Phases;
use stagger_e2e::laid_out::{LaidOut, Operator, in_pods};
use stagger_e2e::roots::Release;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

/// A case on release 18 alone, with an operator that has nothing to do yet.
fn on_18(name: &str, work: impl FnOnce(&LaidOut, Operator, &mut Phases) -> Result<()>) -> Result<()> {
    in_pods(name, AGENT, Release::Reef, &[Release::Reef], |cluster, phases| {
        let operator = Operator::start(cluster, "one", Release::Reef)?;
        cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
        work(cluster, operator, phases)
    })
}

/// Asks for an image, and for quick waves.
fn ask_for(cluster: &LaidOut, image: &str) -> Result<()> {
    cluster.patch_cluster(&json!({ "spec": {
        "cephVersion": { "image": image },
        "updatePolicy": {
            "doorsOpenAfterMinutes": 0,
            "osds": { "maxInParallelPerCluster": "100%", "soakSeconds": 0 },
        },
    } }))
}
