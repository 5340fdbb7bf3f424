//! Monitors that Rook does not manage: while one of them has its skip label, Rook skips all of them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use super::Daemons;
use crate::api::daemons::kind_of;
use crate::api::names::DO_NOT_RECONCILE;
use crate::api::objects::Deployment;
use crate::executor::managed_fields::{held_since, holder, skip_label_by_others};

/// So long a monitor may be away before Rook would put another in its place (`MonOutTimeout` in
/// `pkg/operator/ceph/cluster/mon/health.go` of 1.20.6): what a run holds for less is missed by nobody.
const PATIENCE: Duration = Duration::from_mins(10);

/// Why Rook looks after no monitor, since when, and what to do; `None`: it does, or only a moment ago (`checkHealth` in
/// `pkg/operator/ceph/cluster/mon/health.go`, 1.16.9 and 1.20.6).
pub(crate) fn unwatched(daemons: &Daemons, namespace: &str, now: Timestamp) -> Option<String> {
    let labelled: Vec<(&UnitId, &Arc<Deployment>)> = daemons
        .iter()
        .filter(|(unit, one)| kind_of(unit) == "mon" && one.labels().contains_key(DO_NOT_RECONCILE))
        .collect();
    let of_others = labelled
        .iter()
        .find_map(|(unit, one)| Some((unit, one, skip_label_by_others(one)?)));
    if let Some((unit, one, value)) = of_others {
        let name = one.name_any();
        return Some(format!(
            "Rook looks after no monitor, as others have set the label {DO_NOT_RECONCILE}={value} on that of {unit}: one \
             that fails is not replaced. `kubectl -n {namespace} label deployment {name} {DO_NOT_RECONCILE}-` takes it off"
        ));
    }
    let (first, one) = labelled.first()?;
    // One of before it was written down is held for long.
    let since = labelled.iter().filter_map(|(_, one)| held_since(one)).min();
    if since.is_some_and(|since| now.duration_since(since).unsigned_abs() < PATIENCE) {
        return None;
    }
    let when = since.map_or_else(String::new, |since| format!(" since {since:.0}"));
    let more = match labelled.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "Rook looks after no monitor{when}, as {first}{more} wait for their update by CephMaintenance {}: one that fails is not replaced. \
         `stagger status -n {namespace}` says what that waits for; without `updates` in spec.manage the run ends, and Rook has them back \
         and updates them at its own pace",
        holder(one).unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::executor::managed_fields::{HELD_SINCE, labels};

    fn daemon(unit: &str, labels: &Value, since: Option<&str>) -> (UnitId, Arc<Deployment>) {
        let mut metadata =
            json!({ "name": format!("rook-ceph-{}", unit.replace('.', "-")), "labels": labels });
        if let Some(since) = since {
            metadata["annotations"] = json!({ HELD_SINCE: since });
        }
        let deployment = json!({ "metadata": metadata, "spec": { "selector": {}, "template": {} } });
        let deployment = serde_json::from_value(deployment).unwrap();
        (UnitId::new(unit).unwrap(), Arc::new(deployment))
    }

    fn told(daemons: &Daemons, now: &str) -> Option<String> {
        unwatched(daemons, "rook-ceph", now.parse().unwrap())
    }

    /// A run waits for its window among the monitors, for a night.
    #[test]
    fn monitors_that_are_held_for_long_are_told_with_since_when_and_what_to_do() {
        let since = "2026-11-29T10:00:00Z";
        let daemons = Daemons::from([
            daemon("mon.a", &json!({}), None),
            daemon("mon.b", &labels("m"), Some(since)),
            daemon("mon.c", &labels("m"), Some("2026-11-29T10:00:02Z")),
            daemon("osd.1", &labels("m"), Some("2026-11-29T09:00:00Z")),
        ]);
        assert_eq!(told(&daemons, "2026-11-29T10:09:59Z"), None);
        let why = told(&daemons, "2026-11-29T10:10:00Z").unwrap();
        for word in [since, "mon.b and 1 more", "CephMaintenance m", "spec.manage"] {
            assert!(why.contains(word), "{word}: {why}");
        }
        // While OSDs have their turn, Rook has its monitors.
        let later = Daemons::from([
            daemon("mon.a", &json!({}), None),
            daemon("osd.1", &labels("m"), Some(since)),
        ]);
        assert_eq!(told(&later, "2026-11-29T12:00:00Z"), None);
    }

    #[test]
    fn a_label_that_a_person_has_set_on_one_monitor_is_told_at_once() {
        let daemons = Daemons::from([
            daemon("mon.a", &json!({ DO_NOT_RECONCILE: "true" }), None),
            daemon("mon.b", &labels("m"), Some("2026-11-29T10:00:00Z")),
        ]);
        let why = told(&daemons, "2026-11-29T10:00:01Z").unwrap();
        assert!(
            why.contains("label deployment rook-ceph-mon-a ceph.rook.io/do-not-reconcile-"),
            "{why}"
        );
        let osd = Daemons::from([daemon("osd.1", &json!({ DO_NOT_RECONCILE: "true" }), None)]);
        assert_eq!(told(&osd, "2026-11-29T10:00:01Z"), None);
    }
}
