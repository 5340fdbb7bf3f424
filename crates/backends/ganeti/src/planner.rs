//! Planning: from a cluster's facts to the input of a plan.

use std::collections::BTreeSet;

use stagger_core::model::{ClusterName, IdError, Policy, Reason, Revision, Snapshot};
use stagger_engine::cluster::names::check_policy_names;
use stagger_engine::cluster::{BackendError, Planned, Planner, PlannerError, Refusal, in_full};

use crate::config::Visits;
use crate::goal::{EvacuationGoal, MaintenanceGoal, Task};
use crate::memory::GanetiMemory;
use crate::source::ClusterFacts;
use crate::target::{TargetError, maintenance, with_guards_and_gates};
use crate::translate::live::live_snapshot;
use crate::translate::{KIND, MAINTAINED, REBOOTED, View, snapshot};

/// The level of failure domains that Ganeti itself names.
const GROUP: &str = "group";

/// Plans for a Ganeti that is called and visited so.
#[derive(Debug, Clone)]
pub struct GanetiPlanner {
    name: ClusterName,
    visits: Visits,
}

impl GanetiPlanner {
    /// For the cluster of that name, whose nodes are visited so.
    pub fn new(name: ClusterName, visits: Visits) -> Self {
        Self { name, visits }
    }

    /// How its nodes are visited.
    pub fn visits(&self) -> &Visits {
        &self.visits
    }

    /// The snapshot of these facts, while instances are evacuated so.
    fn snapshot_for(
        &self,
        facts: &ClusterFacts,
        evacuation: &EvacuationGoal,
    ) -> Result<Snapshot, BackendError> {
        const TRIED: &str = "make sense of the cluster's facts";
        if let Some(live) = &facts.live {
            return live_snapshot(&self.name, live, &facts.cluster, None, evacuation, &self.visits)
                .map_err(|error| BackendError::transient(TRIED, in_full(&error)));
        }
        let view = View {
            name: self.name.clone(),
            at: facts.at,
            durations: evacuation.durations.clone(),
            ignore_ipolicy: evacuation.ignore_ipolicy,
        };
        // A file gives the same again.
        snapshot(&facts.cluster, &view).map_err(|error| BackendError::permanent(TRIED, in_full(&error)))
    }
}

impl Planner for GanetiPlanner {
    type Facts = ClusterFacts;
    type Goal = MaintenanceGoal;
    type Memory = GanetiMemory;

    fn snapshot(&self, facts: &ClusterFacts) -> Result<Snapshot, BackendError> {
        self.snapshot_for(facts, &EvacuationGoal::default())
    }

    fn plan(
        &self,
        facts: &ClusterFacts,
        goal: &MaintenanceGoal,
        policy: &Policy,
    ) -> Result<Planned<GanetiMemory>, PlannerError> {
        let mut evacuation = goal.evacuation();
        for (kind, times) in facts.jobs.times() {
            let estimate = evacuation.durations.entry(kind.clone());
            estimate.or_insert(times.median);
        }
        let snapshot = self.snapshot_for(facts, &evacuation)?;
        check_policy_names(
            &snapshot,
            policy,
            BTreeSet::from([GROUP]),
            &BTreeSet::from([KIND]),
        )?;
        let mut target = maintenance(&facts.cluster, goal).map_err(|error| match error {
            TargetError::Masters { .. } => {
                Refusal(vec![Reason::of_backend("not-one-master", error.to_string())]).into()
            }
            TargetError::Select(_) | TargetError::NoSuchStorage(_) | TargetError::Name(_) => {
                PlannerError::Goal(error.to_string())
            }
        })?;
        let unnamed =
            |error: IdError| BackendError::permanent("name the stage of a maintenance", error.to_string());
        // A file is planned from and not run on: nothing is told of conditions there, and no gate could open.
        if facts.live.is_some() {
            target =
                with_guards_and_gates(target, &goal.task.visits(&self.visits), policy).map_err(unnamed)?;
        }
        let after = match goal.task {
            Task::Reboot => REBOOTED,
            Task::Command(_) | Task::Hold => MAINTAINED,
        };
        let rebooted = Revision::new(after).map_err(unnamed)?;
        let memory = match &facts.live {
            Some(live) => GanetiMemory::of(live, rebooted, evacuation),
            None => GanetiMemory::unknown(rebooted, evacuation),
        };
        Ok(Planned {
            snapshot,
            target,
            memory,
        })
    }
}
