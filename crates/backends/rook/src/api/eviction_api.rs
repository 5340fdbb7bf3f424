//! The answer of the Kubernetes eviction API about a pod, from the current PodDisruptionBudgets.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

/// A pod that somebody asks to evict.
pub(crate) struct Evictee<'a> {
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// Whether it waits to be started.
    pub(crate) is_pending: bool,
    pub(crate) is_ready: bool,
}

/// The answer of the eviction API about it (`canIgnorePDB` and `checkAndDecrement` in
/// `pkg/registry/core/pod/storage/eviction.go` of Kubernetes).
///
/// # Errors
/// A refusal, with the reason.
pub(crate) fn may_be_evicted<'b>(
    pod: &Evictee<'_>,
    budgets: impl IntoIterator<Item = &'b PodDisruptionBudget>,
) -> Result<(), String> {
    if pod.is_pending {
        return Ok(());
    }
    let over = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        selector.is_some_and(|selector| selector.matches(pod.labels))
    };
    let over: Vec<&PodDisruptionBudget> = budgets.into_iter().filter(over).collect();
    let [budget] = over[..] else {
        if over.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = over.iter().map(|budget| budget.name_any()).collect();
        return Err(format!(
            "the PodDisruptionBudgets {} are all over it, which the eviction API answers with an error: one has to go",
            names.join(" and ")
        ));
    };
    let name = budget.name_any();
    let status = budget.status.clone().unwrap_or_default();
    let [allowed, healthy, wanted, all] = [
        status.disruptions_allowed,
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
    ]
    .map(Option::unwrap_or_default);
    let policy = budget
        .spec
        .as_ref()
        .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    if !pod.is_ready && (policy == Some("AlwaysAllow") || (healthy >= wanted && wanted > 0)) {
        return Ok(());
    }
    if status.observed_generation < budget.metadata.generation {
        return Err(format!(
            "PodDisruptionBudget {name} was changed, and is not counted anew yet"
        ));
    }
    if allowed > 0 {
        return Ok(());
    }
    Err(format!(
        "PodDisruptionBudget {name} lets none go: {healthy} of {all} pods are ready, and {wanted} have to be"
    ))
}
