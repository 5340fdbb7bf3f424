//! Planning: from a cluster's facts to the input of a plan.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use stagger_core::model::{Kind, Policy, Snapshot};
use stagger_engine::cluster::names::{check_name, check_policy_names};
use stagger_engine::cluster::{BackendError, Planned, Planner, PlannerError, in_full};

use crate::config::CephSettings;
use crate::facts::CephFacts;
use crate::memory::{CephMemory, hosts_of};
use crate::profile::SoftwareProfile;
use crate::reboot::{self, CephRebootGoal, host_named};
use crate::target::{PgGate, TargetPolicy, target_for};
use crate::translate::{Baseline, Permitted, translate, units};

/// The levels of failure domains that Ceph itself names.
const LEVELS: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];
/// The kinds of daemons that are units, and that of hosts.
const KINDS: [&str; 6] = ["mon", "mgr", "osd", "mds", "rgw", "host"];

/// The goal for a Ceph cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CephGoal {
    /// Its daemons run that release: `18.2.7`, `18` or `reef`.
    Upgrade(String),
    /// Hosts have another boot.
    Reboot(CephRebootGoal),
}

/// Plans for a Ceph of these settings.
#[derive(Debug, Clone)]
pub struct CephPlanner {
    settings: CephSettings,
    pgs: PgGate,
}

impl CephPlanner {
    /// By these settings. `pgs`: when placement groups are well enough to go on.
    pub fn new(settings: CephSettings, pgs: PgGate) -> Self {
        Self { settings, pgs }
    }

    /// By what it plans.
    pub fn settings(&self) -> &CephSettings {
        &self.settings
    }

    /// The host of the cluster on which stagger runs, whose turn is the last.
    fn own_host(&self, facts: &CephFacts) -> Option<String> {
        let own = self.settings.reboot.own.as_deref()?;
        let places = hosts_of(facts);
        host_named(places.values(), own).map(str::to_owned)
    }

    fn target_policy(&self, policy: &Policy) -> TargetPolicy {
        TargetPolicy {
            pgs: self.pgs,
            hold: policy.gate_hold,
            timeout: policy.gate_timeout,
            noout: self.settings.cluster.noout_expires,
            pause: self.settings.cluster.pause.clone(),
            before_rollback: self.settings.software.of("osd").before_rollback.is_some(),
            cephadm: self.settings.software.profile == SoftwareProfile::Cephadm,
            health: self.settings.health.clone(),
        }
    }

    fn plan_reboot(
        &self,
        facts: &CephFacts,
        daemons: &Snapshot,
        goal: &CephRebootGoal,
        policy: &Policy,
    ) -> Result<Planned<CephMemory>, PlannerError> {
        let own = self.own_host(facts);
        let own = own.as_deref();
        let CephSettings { reboot, hosts, .. } = &self.settings;
        let prepares = goal.task.prepare(reboot, hosts).is_some();
        let target = reboot::target(facts, daemons, goal, own, prepares, &self.target_policy(policy))?;
        let snapshot = reboot::snapshot(facts, daemons, goal, own)
            .map_err(|error| BackendError::permanent("name the cluster's hosts", in_full(&error)))?;
        // An order of daemons says nothing of hosts, and is none of another cluster's.
        self.verify(&snapshot, policy)
            .or_else(|unknown| self.verify(daemons, policy).map_err(|_| unknown))?;
        Ok(Planned {
            memory: CephMemory {
                reboot: Some(reboot::boots_before(goal, own)),
                ..self.memory(facts, policy)?
            },
            snapshot,
            target,
        })
    }

    /// Checks the names in a policy for that cluster.
    ///
    /// # Errors
    /// The first that nothing has.
    pub fn verify(&self, snapshot: &Snapshot, policy: &Policy) -> Result<(), PlannerError> {
        let kinds = BTreeSet::from(KINDS);
        check_policy_names(snapshot, policy, LEVELS.into(), &kinds)?;
        for kind in self.settings.cluster.durations.keys() {
            check_name("kind of daemon", kind.as_str(), &kinds)?;
        }
        Ok(())
    }

    /// What a run that begins now keeps of how things were before it.
    ///
    /// # Errors
    /// Facts that make no units.
    pub fn memory(&self, facts: &CephFacts, policy: &Policy) -> Result<CephMemory, BackendError> {
        let units = units(facts, None)
            .map_err(|error| BackendError::permanent("name the cluster's daemons", in_full(&error)))?;
        Ok(CephMemory {
            baseline: Baseline::of(facts, &units),
            hosts: hosts_of(facts),
            interruptions: policy.interruptions.clone(),
            reboot: None,
        })
    }
}

/// The snapshot of these facts. `before`: how things were before a run.
pub(crate) fn snapshot(
    settings: &CephSettings,
    facts: &CephFacts,
    before: Option<&Baseline>,
    permitted: &Permitted,
) -> Result<Snapshot, BackendError> {
    let CephSettings { cluster, health, .. } = settings;
    let durations: BTreeMap<Kind, SignedDuration> = cluster
        .durations
        .iter()
        .map(|(kind, seconds)| (kind.clone(), SignedDuration::from_secs(i64::from(*seconds))))
        .collect();
    translate(&cluster.name, facts, health, before, durations, permitted)
        .map_err(|error| BackendError::transient("make sense of the cluster's facts", in_full(&error)))
}

impl Planner for CephPlanner {
    type Facts = CephFacts;
    type Goal = CephGoal;
    type Memory = CephMemory;

    fn snapshot(&self, facts: &CephFacts) -> Result<Snapshot, BackendError> {
        snapshot(&self.settings, facts, None, &Permitted::default())
    }

    fn plan(
        &self,
        facts: &CephFacts,
        goal: &CephGoal,
        policy: &Policy,
    ) -> Result<Planned<CephMemory>, PlannerError> {
        let permitted = policy.interruptions.iter().cloned().collect();
        let snapshot = snapshot(&self.settings, facts, None, &permitted)?;
        let release = match goal {
            CephGoal::Upgrade(release) => release,
            CephGoal::Reboot(goal) => return self.plan_reboot(facts, &snapshot, goal, policy),
        };
        self.verify(&snapshot, policy)?;
        let target = target_for(facts, snapshot.units(), release, &self.target_policy(policy))?;
        Ok(Planned {
            memory: self.memory(facts, policy)?,
            snapshot,
            target,
        })
    }
}
