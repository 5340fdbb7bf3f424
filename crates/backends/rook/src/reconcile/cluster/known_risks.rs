//! The effect of known risks on an update that is about to start.

use stagger_risks::{Applies, RiskFinding};

use crate::observability::blocked::Blocked;
use crate::observability::events::{self, EventRecord};

/// The Events that tell of those which apply, or may.
///
/// # Errors
/// One of them refuses, and is not accepted by its id: nothing is begun.
pub(super) fn risk_events(found: &[RiskFinding]) -> Result<Vec<EventRecord>, Blocked> {
    let refusing = found.iter().filter(|finding| finding.blocks_run());
    let refusing: Vec<String> = refusing.map(RiskFinding::sentence).collect();
    if !refusing.is_empty() {
        return Err(Blocked::temporary(
            "KnownRisk",
            format!(
                "{}; spec.updatePolicy.acceptedRisks accepts a risk by its id",
                refusing.join("; ")
            ),
        ));
    }
    let met = found.iter().filter(|finding| finding.applies != Applies::No);
    Ok(met
        .map(|finding| events::known_risk(finding.sentence()))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;
    use stagger_risks::{ClusterAnswer, Metadata, RiskFacts, System, UpgradePath, ceph, judge, shipped};

    use super::*;

    /// What is found on the way from 16.2.15 to a release, of OSDs with BlueStore.
    fn found(to: &str, metadata: ClusterAnswer<Vec<Metadata>>, accepted: &[&str]) -> Vec<RiskFinding> {
        let way = UpgradePath {
            system: System::Ceph,
            running: BTreeSet::from([Some("16.2.15".to_owned())]),
            to: Some(to.to_owned()),
        };
        let cluster = RiskFacts {
            metadata: BTreeMap::from([("osd".to_owned(), metadata)]),
            daemons: ClusterAnswer::Yes(BTreeMap::from([("osd".to_owned(), 3)])),
            settings: ClusterAnswer::Yes(Vec::new()),
            ..RiskFacts::unknown("it was not asked")
        };
        let accepted: BTreeSet<String> = accepted.iter().map(|&id| id.to_owned()).collect();
        judge(&shipped().unwrap(), &way, &cluster, &accepted)
    }

    fn bluestore() -> ClusterAnswer<Vec<Metadata>> {
        let answer = json!([{ "id": 0, "osd_objectstore": "bluestore" }]).to_string();
        ceph::metadata("osd", answer.as_bytes())
    }

    /// The Event that tells of one of them.
    fn event(found: &[RiskFinding], id: &str) -> EventRecord {
        let one = found.iter().find(|finding| finding.id == id).unwrap();
        events::known_risk(one.sentence())
    }

    #[test]
    fn what_refuses_keeps_an_update_from_being_begun_until_it_is_accepted() {
        let blocked = risk_events(&found("18.2.5", bluestore(), &[])).unwrap_err();
        assert_eq!(blocked.reason, "KnownRisk");
        assert!(blocked.why.starts_with("ceph-18.2.5-bluefs: "), "{}", blocked.why);
        assert!(blocked.why.contains("acceptedRisks"), "{}", blocked.why);
        let another = risk_events(&found("18.2.5", bluestore(), &["ceph-17.2.8-bluefs"]));
        assert!(another.is_err(), "another one was accepted");
        let accepted = found("18.2.5", bluestore(), &["ceph-18.2.5-bluefs"]);
        assert_eq!(
            risk_events(&accepted).unwrap(),
            [event(&accepted, "ceph-18.2.5-bluefs")]
        );
        assert_eq!(risk_events(&found("18.2.7", bluestore(), &[])).unwrap(), []);
    }

    #[test]
    fn of_what_warns_or_may_apply_an_event_tells() {
        let warns = found("19.2.0", bluestore(), &[]);
        let told_of = risk_events(&warns).unwrap();
        assert!(
            told_of.contains(&event(&warns, "ceph-19.2.0-balancer")),
            "{told_of:?}"
        );
        let may = found("18.2.5", ClusterAnswer::No("it gave no answer".to_owned()), &[]);
        assert_eq!(risk_events(&may).unwrap(), [event(&may, "ceph-18.2.5-bluefs")]);
    }
}
