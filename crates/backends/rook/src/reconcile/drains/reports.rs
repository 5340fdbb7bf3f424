//! Reports on drains: status and Events.

use std::collections::{BTreeMap, BTreeSet};

use stagger_engine::cluster::BackendError;
use tokio::time::Instant;

use super::daemons::waiting;
use super::{DRAIN_BLOCKED, DrainReconciler, NOT_SEEN_TO, PATIENCE};
use crate::api::names;
use crate::disruption::budgets;
use crate::disruption::drains::{DesiredBudgets, EvictableOsds, OsdState};
use crate::observability::status::DrainStatus;

impl DrainReconciler {
    /// The Deployments of which it is not clear which daemon they run. Here, as this goes on beside a run.
    pub(super) fn report_unknown_deployments(&self) {
        let (_, wrong) = self.watched.daemons();
        let wrong = wrong.into_iter().map(|why| (why.clone(), why)).collect();
        self.writer.set_problems("DeploymentUnclear", wrong);
    }

    /// The monitors, metadata servers and gateways that a drain waits for, where drains are ours; what passes at once is not told.
    pub(super) fn report_waiting(&mut self) {
        let mut now = if self.ours {
            waiting(&self.watched, &self.evidence.recent_refusals())
        } else {
            BTreeMap::new()
        };
        self.waiting.retain(|pod, _| now.contains_key(pod));
        now.retain(|pod, _| {
            let since = self.waiting.entry(pod.clone()).or_insert_with(Instant::now);
            since.elapsed() >= PATIENCE
        });
        self.writer.set_problems(DRAIN_BLOCKED, now);
    }

    pub(super) fn report_two_managers(&self, both: bool) {
        let why = "Rook's operator runs, and spec.disruptionManagement.managePodBudgets of the CephCluster is true: Rook manages \
                   the PodDisruptionBudgets, and nothing is done about drains here; set it to false";
        let said = both.then(|| (self.name.clone(), why.to_owned()));
        self.writer
            .set_problems("RookManagesBudgets", said.into_iter().collect());
    }

    /// Of a pod under two budgets no eviction is granted, whatever they say.
    pub(super) fn report_foreign_budgets(&self) {
        let found = budgets::foreign_osd_budgets(&self.watched.budgets(), &self.watched.pods());
        let why = |name: String| {
            let why = format!(
                "PodDisruptionBudget {name} selects pods of OSDs as {} does, so the API server evicts no pod that both select (500); delete it, or have it \
                 select others",
                names::DEFAULT_BUDGET
            );
            (name, why)
        };
        self.writer
            .set_problems("BudgetOfOthers", found.into_iter().map(why).collect());
    }

    pub(super) fn report_failure(&mut self, error: &BackendError) {
        if self.failing.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return;
        }
        let hint = error.hint.as_ref().map(|hint| format!("; {hint}"));
        let why = format!(
            "{error}{}; until that is well no OSD may be evicted, or, where the API server takes no write, no more than before",
            hint.unwrap_or_default()
        );
        self.writer
            .set_problems(NOT_SEEN_TO, BTreeMap::from([(self.name.clone(), why)]));
    }

    /// The OSDs of which nobody knows with which others they may go.
    pub(super) fn report_unplaced_osds(&self, osds: &[OsdState], level: Option<&str>) {
        let level = level.unwrap_or_default();
        let label = names::topology(level);
        let why = |osd: &OsdState| {
            let id = osd.id;
            let name = format!("{}-{id}", names::OSD_APP);
            let why = format!(
                "Deployment {name} has no label {label}, so osd.{id} may not be evicted while any other is down; set \
                 the label, in its pod template too, to its {level} in the CRUSH map"
            );
            (name, why)
        };
        let unplaced = osds
            .iter()
            .filter(|osd| !level.is_empty() && osd.domain.is_none());
        self.writer
            .set_problems("OsdUnplaced", unplaced.map(why).collect());
    }

    pub(super) fn report_budgets(&self, wanted: &DesiredBudgets, osds: &[OsdState]) {
        let draining: BTreeSet<String> = wanted.memory.draining.keys().cloned().collect();
        let something = !wanted.blocked.is_empty() || !wanted.noout.is_empty() || !draining.is_empty();
        let is_free = |osd: &OsdState| match &wanted.open {
            EvictableOsds::Any => true,
            EvictableOsds::Only(open) => open.contains(&osd.id),
        };
        let waiting: BTreeSet<String> = osds
            .iter()
            .filter(|osd| osd.cordoned.is_some() && osd.serves && !is_free(osd))
            .filter_map(|osd| osd.domain.clone())
            .filter(|domain| wanted.blocked.contains_key(domain))
            .collect();
        // Of a domain that is waited for it is known what keeps just that one.
        let first = waiting.first().and_then(|domain| wanted.blocked.get(domain));
        let why = first.or_else(|| wanted.blocked.values().next());
        let told = something.then(|| DrainStatus {
            blocked: wanted.blocked.keys().take(20).cloned().collect(),
            blocked_count: wanted.blocked.len(),
            why: why.cloned().unwrap_or_default(),
            draining,
            waiting,
            noout: wanted.noout.clone(),
        });
        self.writer.update(|now| now.drains = told);
    }
}
