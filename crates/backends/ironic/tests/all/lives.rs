//! Processes that carry a run out on a lab, one after another, through the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stagger_conformance::hasty::Hasty;
pub use stagger_conformance::process::End;
use stagger_conformance::process::{Processes, RunStart};
use stagger_core::model::Policy;
use stagger_core::run::Ending;
use stagger_engine::cluster::Lock as _;
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::goal::UpgradeGoal;

use crate::common::{Setup, policy};
use crate::double::Inner;

/// One process after another on one journal.
pub struct Lives<'a> {
    pub setup: &'a Setup,
    pub to: &'static str,
    pub policy: Policy,
    pub processes: Processes,
    begun: Option<(UpgradeGoal, RunStart)>,
    /// The newest token that was given out.
    token: Arc<AtomicU64>,
}

impl<'a> Lives<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Self {
            to: "29.0.6",
            policy: policy(),
            processes: Processes::in_folder(setup.folder.path()),
            begun: None,
            setup,
            token: Arc::default(),
        }
    }

    /// One process: it starts the run, or resumes it.
    pub async fn live(&mut self) -> End {
        if self.begun.is_none() {
            let facts = self.setup.backend(None).collect_facts().await;
            let upgrade = self.setup.upgrade(&facts, self.to, &self.policy).unwrap();
            let start = RunStart {
                target: upgrade.target,
                policy: self.policy.clone(),
                memory: serde_json::to_value(&upgrade.goal).unwrap(),
            };
            self.begun = Some((upgrade.goal, start));
        }
        let (goal, start) = self.begun.clone().unwrap();
        let (setup, token) = (self.setup, Arc::clone(&self.token));
        let killed = Arc::clone(&setup.lab.killed);
        let life = self.processes.live(
            &start,
            |clock| {
                Arc::new(Hasty {
                    inner: setup.backend(Some(goal)),
                    clock: Arc::clone(clock),
                    retake: Some(Box::new(move |backend: &IronicBackend, claim, at_least| {
                        let last = Arc::clone(&token);
                        Box::pin(async move {
                            // That of a dead process need not be waited out.
                            backend.unlock(claim, last.load(Ordering::SeqCst)).await?;
                            let token = backend.lock(claim, at_least).await?;
                            last.store(token, Ordering::SeqCst);
                            Ok(token)
                        })
                    })),
                })
            },
            killed.notified(),
        );
        life.await
    }

    /// Processes until one comes to an end; how many it took.
    pub async fn until_done(&mut self, what: &str) -> u32 {
        for number in 1..10 {
            match self.live().await {
                End::Killed => {}
                End::Over(Ending::Done) => return number,
                other => panic!("{what}: {other:?}\n{:#?}", self.setup.lab.log()),
            }
        }
        panic!("{what}: it never comes to an end");
    }
}

/// Everything runs the release without a pin, was stopped as often as it had to be, and no request has failed.
pub fn all_is_well(inner: &Inner, release: &str, stops: u32) {
    assert_eq!(inner.violations, [""; 0]);
    for (name, service) in &inner.services {
        assert_eq!(service.runs, Some((release.to_owned(), None)), "{name}");
        assert_eq!(service.installed, release, "{name}");
        assert_eq!(service.pin_file, None, "{name}");
        assert_eq!(service.stops, stops, "{name}");
    }
    let drained: Vec<_> = inner.servers.iter().filter(|(_, drained)| **drained).collect();
    assert!(drained.is_empty(), "{drained:?}");
}
