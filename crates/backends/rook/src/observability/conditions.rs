//! The conditions of a CephMaintenance, by Kubernetes' API conventions.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::maintenance::StatusCondition;
use crate::observability::status::ClusterStatus;

/// The reason of what is as it should be.
const FINE: &str = "AsExpected";
/// What keeps anything from being done for a cluster at all, or from knowing how it is.
const AWAY: [&str; 9] = [
    "MissingRights",
    "DrainsNotSeenTo",
    "CannotBeAsked",
    "CephNotReachable",
    "OperatorTooOld",
    "NoCephCluster",
    "AnotherIsObeyed",
    // What is managed is not done while they stand.
    "RookManagesBudgets",
    "ProvisioningBesideRook",
];

/// The reason of one whose updates are not managed, and that runs something else than it names.
pub(crate) const OBSERVING: &str = "Observing";

/// The conditions of what is told. What was so `before` is so since then.
///
/// - `Available`: the cluster is seen, and what is managed of it is seen to.
/// - `Progressing`: an update is under way.
/// - `Degraded`: something is wrong beside that, each object in a sentence.
/// - `Blocked`: an update cannot go on by itself, or must not begin.
/// - `UpToDate`: every daemon is as asked for.
pub(crate) fn of(told: &ClusterStatus, before: &[StatusCondition], now: Timestamp) -> Vec<StatusCondition> {
    let (reason, message) = (told.reason.as_str(), told.message.as_str());
    let away = told
        .troubles
        .iter()
        .find(|(reason, _)| AWAY.contains(reason))
        .map(|(reason, objects)| (*reason, sentences(objects)))
        .or_else(|| AWAY.contains(&reason).then(|| (reason, message.to_owned())));
    let troubles: Vec<String> = told.troubles.values().map(sentences).collect();
    let condition = |kind: &str, holds: bool, reason: &str, message: String| {
        let status = if holds { "True" } else { "False" };
        let same = before.iter().find(|one| one.kind == kind && one.status == status);
        let since = same.and_then(|one| one.last_transition_time.clone());
        StatusCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: if reason.is_empty() { FINE } else { reason }.to_owned(),
            message,
            observed_generation: Some(told.generation),
            last_transition_time: Some(
                since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ),
        }
    };
    let of_phase = |kind: &str, phase: &str| condition(kind, told.phase == phase, reason, message.to_owned());
    vec![
        // One that is only observed is ready, whatever its daemons run.
        condition(
            "UpToDate",
            told.phase == "Ready" && reason != OBSERVING,
            reason,
            message.to_owned(),
        ),
        of_phase("Progressing", "Progressing"),
        of_phase("Blocked", "Blocked"),
        match away {
            Some((reason, why)) => condition("Available", false, reason, why),
            None => condition("Available", true, FINE, String::new()),
        },
        match told.troubles.keys().next() {
            Some(first) => condition("Degraded", true, first, troubles.join("; ")),
            None => condition("Degraded", false, FINE, String::new()),
        },
    ]
}

/// The reason of the phase.
pub(crate) fn reason(conditions: &[StatusCondition]) -> Option<&str> {
    conditions
        .iter()
        .find(|one| one.kind == "UpToDate")
        .map(|one| one.reason.as_str())
}

/// What is wrong with objects, at most five of them.
fn sentences(objects: &BTreeMap<String, String>) -> String {
    const NAMED: usize = 5;
    let named: Vec<&str> = objects.values().take(NAMED).map(String::as_str).collect();
    match objects.len().checked_sub(NAMED) {
        None | Some(0) => named.join("; "),
        Some(more) => format!("{}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(phase: &str, reason: &str) -> ClusterStatus {
        ClusterStatus {
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            message: "why".to_owned(),
            generation: 3,
            ..ClusterStatus::default()
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn holds(conditions: &[StatusCondition]) -> Vec<&str> {
        let holding = conditions.iter().filter(|one| one.status == "True");
        holding.map(|one| one.kind.as_str()).collect()
    }

    #[test]
    fn a_condition_is_so_since_it_turned_and_not_since_it_was_written() {
        let first = of(&told("Progressing", "UpgradeRuns"), &[], at(0));
        assert_eq!(holds(&first), ["Progressing", "Available"]);
        let second = of(&told("Progressing", "UpgradeWaits"), &first, at(60));
        let third = of(&told("Ready", "UpToDate"), &second, at(120));
        assert_eq!(holds(&third), ["UpToDate", "Available"]);
        let since = |conditions: &[StatusCondition], kind: &str| {
            let found = conditions.iter().find(|one| one.kind == kind).unwrap();
            found.last_transition_time.clone().unwrap()
        };
        assert_eq!(since(&second, "Progressing"), "1970-01-01T00:00:00Z");
        assert_eq!(since(&third, "Progressing"), "1970-01-01T00:02:00Z");
        assert_eq!(since(&third, "Available"), "1970-01-01T00:00:00Z");
        assert!(third.iter().all(|one| one.observed_generation == Some(3)));
        // Nobody updates it here, and it does not run what it names.
        assert_eq!(holds(&of(&told("Ready", OBSERVING), &[], at(0))), ["Available"]);
        // A reason is never empty: the API server would refuse it where it is checked.
        assert!(
            of(&ClusterStatus::default(), &[], at(0))
                .iter()
                .all(|one| !one.reason.is_empty())
        );
    }

    #[test]
    fn what_is_wrong_is_degraded_and_what_cannot_be_seen_is_not_available() {
        let mut now = told("Ready", "UpToDate");
        let objects = |name: &str| BTreeMap::from([(name.to_owned(), format!("{name} is wrong"))]);
        now.troubles.insert("OsdUnplaced", objects("osd.1"));
        let conditions = of(&now, &[], at(0));
        assert_eq!(holds(&conditions), ["UpToDate", "Available", "Degraded"]);
        now.troubles.insert("DrainsNotSeenTo", objects("drains"));
        let conditions = of(&now, &[], at(0));
        assert_eq!(holds(&conditions), ["UpToDate", "Degraded"]);
        let degraded = conditions.iter().find(|one| one.kind == "Degraded").unwrap();
        assert_eq!(degraded.message, "drains is wrong; osd.1 is wrong");
        for reason in AWAY {
            assert_eq!(
                holds(&of(&told("Blocked", reason), &[], at(0))),
                ["Blocked"],
                "{reason}"
            );
        }
    }
}
