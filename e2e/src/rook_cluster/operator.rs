//! Rook's operator: waited for, killed, restarted, scaled.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{LOOK, NAMESPACE, RookCluster};
use crate::command::output;

/// The Deployment of the operator.
pub const OPERATOR: &str = "rook-ceph-operator";

/// What it logs when it has gone through a cluster.
const RECONCILED: &str = "done reconciling ceph cluster";

impl RookCluster {
    /// Waits until the operator's pod is ready.
    ///
    /// # Errors
    /// It is not within two minutes.
    pub fn wait_for_operator(&self) -> Result<()> {
        let rollout = ["rollout", "status", "deployment", OPERATOR, "-n", NAMESPACE];
        self.plane
            .ask(&[&rollout[..], &["--timeout=120s"]].concat())
            .context("Rook's operator does not run")
            .map(drop)
    }

    /// Waits until the operator that runs now has gone once through the whole cluster, by its own words.
    ///
    /// # Errors
    /// It has not in time.
    pub fn wait_reconciled(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let words = ["logs", "deployment/rook-ceph-operator", "-n", NAMESPACE];
            let log = output(self.plane.kubectl().args(words))?;
            if String::from_utf8_lossy(&log.stdout).contains(RECONCILED) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < limit,
                "not within {} s: Rook's operator has gone through the cluster",
                limit.as_secs()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Kills the operator as a machine without power would, and waits for the one after it.
    ///
    /// # Errors
    /// There is none, or the one after it does not start.
    pub fn kill_operator(&self) -> Result<()> {
        let pods = ["delete", "pod", "-l", "app=rook-ceph-operator", "-n", NAMESPACE];
        self.plane
            .ask(&[&pods[..], &["--grace-period=0", "--force"]].concat())?;
        self.wait_for_operator()
    }

    /// Ends the operator and starts another, as an administrator does.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart_operator(&self) -> Result<()> {
        self.plane
            .ask(&["rollout", "restart", "deployment", OPERATOR, "-n", NAMESPACE])?;
        self.wait_for_operator()
    }

    /// Gives the operator so many pods: none, or one again. Waits until it is so.
    ///
    /// # Errors
    /// It is not so within two minutes.
    pub fn scale_operator(&self, replicas: u32) -> Result<()> {
        let count = format!("--replicas={replicas}");
        self.plane
            .ask(&["scale", "deployment", OPERATOR, "-n", NAMESPACE, &count])?;
        let pods = ["wait", "pod", "-l", "app=rook-ceph-operator", "-n", NAMESPACE];
        if replicas == 0 {
            self.plane
                .ask(&[&pods[..], &["--for=delete", "--timeout=120s"]].concat())?;
        }
        self.wait_for_operator()
    }
}
