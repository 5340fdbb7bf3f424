//! What an administrator of a cluster that Rook laid out sees, on a real Kubernetes with real Ceph daemons
//! in its pods: one story that folds several cases.

use std::path::Path;

use anyhow::{Result, ensure};
use stagger_e2e::case::{Phases, case};
use stagger_e2e::ceph::CephSpec;
use stagger_e2e::laid_out::LaidOut;
use stagger_e2e::roots::Release;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test runs it"]
fn an_upgrade_by_the_operator_with_drains() -> Result<()> {
    case("an_upgrade_by_the_operator_with_drains", || {
        let mut phases = Phases::begin();
        let cluster = LaidOut::start(
            Release::Reef,
            CephSpec::default(),
            &[Release::Reef, Release::Tentacle],
            Path::new(AGENT),
        )?;
        phases.lap("Ceph in pods");
        let pods = cluster.all("pods")?;
        ensure!(pods.len() == 33, "{} pods", pods.len());
        phases.print();
        Ok(())
    })
}
