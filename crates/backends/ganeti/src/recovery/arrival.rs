//! A reboot or a command of a dead process may still be on its way to its node: nothing is restored there
//! before that is ruled out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stagger_engine::cluster::BackendError;

use crate::backend::GanetiBackend;
use crate::facts::GanetiFacts;
use crate::recovery::leftovers::VisitLeftover;
use crate::visit::perform::ARRIVES;

/// Whether something that was sent to a node may still take it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// Nothing was sent, or the node has booted since.
    Over,
    /// It answers as before.
    MayCome,
    /// It is silent.
    Down,
}

fn arrival(facts: &GanetiFacts, visit: &VisitLeftover) -> Arrival {
    let (Some(sent), Some(node)) = (&visit.notes.sent, facts.nodes.get(&visit.node)) else {
        return Arrival::Over;
    };
    match &node.boot {
        None => Arrival::Down,
        Some(now) if now == sent => Arrival::MayCome,
        Some(_) => Arrival::Over,
    }
}

impl GanetiBackend {
    /// For how long a node is watched that answers as before something was sent to it. Of commands that a process of this machine
    /// has begun nothing is left by then; those of another may run for as long as any command.
    pub(super) fn arrival_timeout(&self, all_are_of_here: bool) -> Duration {
        let pace = self.settings().pace;
        let arrives = pace.reboot / ARRIVES;
        if all_are_of_here {
            return arrives;
        }
        arrives.max(Duration::from_secs(self.settings().hosts.timeout) + pace.call)
    }

    /// Waits until nothing that was sent can take a node of these visits away any more. A node that falls silent meanwhile is waited
    /// for as long as a reboot may take; one that is silent from the first look on is not.
    pub(super) async fn arrivals(
        &self,
        visits: &[VisitLeftover],
        patience: Duration,
    ) -> Result<(), BackendError> {
        let begun = Instant::now();
        let mut answered: BTreeSet<&str> = BTreeSet::new();
        loop {
            let (facts, _) = self.observe_cluster().await?;
            let (mut may_come, mut is_awaited) = (false, false);
            for visit in visits {
                match arrival(&facts, visit) {
                    Arrival::Over => {}
                    Arrival::MayCome => {
                        answered.insert(&visit.node);
                        may_come = true;
                    }
                    Arrival::Down => is_awaited |= answered.contains(visit.node.as_str()),
                }
            }
            let waited = begun.elapsed();
            let back = patience + self.settings().pace.reboot;
            let goes_on = (may_come && waited < patience) || (is_awaited && waited < back);
            if !goes_on {
                return Ok(());
            }
            tokio::time::sleep(self.settings().pace.poll).await;
        }
    }
}
