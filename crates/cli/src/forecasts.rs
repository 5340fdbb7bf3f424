//! Forecasts of plans from the journals of earlier runs of the same cluster.

use stagger_core::model::{ClusterId, ClusterName, RunId};
use stagger_core::plan::Plan;
use stagger_core::run::Run;
use stagger_engine::store::{JournalStore, Listed};
use stagger_report::forecast::{EarlierRun, PlanShape, RunForecast, from_runs};

use crate::args::Cli;
use crate::planning::PlanRequest;
use crate::state::{SIMULATED, store, store_location};

/// So many earlier runs tell. More say little more, and each is read whole.
const RUNS: usize = 8;

/// What the last runs of that cluster tell that began before `run`, or all that have ended. A journal that cannot be read tells
/// nothing: a forecast is no reason to refuse.
pub(crate) async fn earlier(
    store: &dyn JournalStore,
    cluster: &ClusterName,
    identity: Option<&ClusterId>,
    run: Option<&RunId>,
) -> Vec<EarlierRun> {
    // Newest first.
    let runs = store.runs().await.unwrap_or_default();
    let before = run.and_then(|run| runs.iter().position(|listed| listed.run == *run));
    let runs = runs.into_iter().skip(before.map_or(0, |place| place + 1));
    let is_played = |run: &RunId| run.as_str().starts_with(SIMULATED);
    let of_it = runs.filter(|listed: &Listed| {
        let same = match (&listed.identity, identity) {
            (Some(one), Some(other)) => one == other,
            (Some(_) | None, _) => listed.cluster == *cluster,
        };
        same && is_played(&listed.run) == run.is_some_and(is_played)
    });
    let of_it: Vec<Listed> = of_it.take(RUNS).collect();
    let mut earlier = Vec::new();
    for listed in of_it {
        if let Ok(journal) = store.journal(&listed.run).await {
            earlier.extend(EarlierRun::of(&journal));
        }
    }
    earlier
}

/// How long a plan takes that is about to be shown or run.
pub(crate) async fn of_plan(cli: &Cli, input: &PlanRequest, plan: &Plan) -> Option<RunForecast> {
    // Who only looks makes no store.
    if !input.policy.barrier || plan.is_empty() || !store_location(cli).ok()?.exists() {
        return None;
    }
    let store = store(cli).await.ok()?;
    let earlier = earlier(&*store, &plan.cluster, None, None).await;
    from_runs(&earlier, &PlanShape::of(plan))
}

/// What earlier runs say of one that goes on: as long as its plan is the same, it is not asked again.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    earlier: Vec<EarlierRun>,
    /// For the plan of that id.
    last: Option<(String, Option<RunForecast>)>,
}

impl Outlook {
    /// By what is in the store.
    pub(crate) async fn of_run(store: &dyn JournalStore, run: &Run) -> Self {
        let start = run.start();
        if run.ended().is_some() {
            return Self::default();
        }
        let identity = start.identity.as_ref();
        Self::new(earlier(store, &start.cluster, identity, Some(&start.run)).await)
    }

    /// By these runs.
    pub(crate) fn new(earlier: Vec<EarlierRun>) -> Self {
        Self { earlier, last: None }
    }

    /// How long the rest takes.
    pub(crate) fn remaining(&mut self, run: &Run) -> Option<RunForecast> {
        if run.ended().is_some() || !run.start().policy.barrier {
            return None;
        }
        let plan = run.plan()?;
        match &self.last {
            Some((id, left)) if *id == plan.id => *left,
            Some(_) | None => {
                let left = from_runs(&self.earlier, &PlanShape::of(plan));
                self.last = Some((plan.id.clone(), left));
                left
            }
        }
    }
}
