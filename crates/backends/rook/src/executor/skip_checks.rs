//! `skipUpgradeChecks`: which checks are skipped, and which are not.
//!
//! Every gate counts as open, except those on irreversible steps: the releases that daemons run and that the
//! cluster demands, and the monitors' quorum. No placement group counts as a budget. That applies to one OSD
//! at a time: a set is never stopped unchecked. Monitors, managers, metadata servers and gateways keep their
//! budgets.

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::pg::PgMap;
use stagger_core::model::{Condition, Fact, Kind, Limit, Policy, UnitId, Verdict};
use stagger_core::run::Answer;

/// The facts, as if no placement group were there.
pub(crate) fn without_groups(facts: &CephFacts) -> CephFacts {
    CephFacts {
        pgs: Fact::Yes(PgMap::default()),
        ..facts.clone()
    }
}

/// The conditions as they are taken.
pub(crate) fn apply(conditions: &mut [Condition]) {
    const KEPT: [&str; 4] = ["quorum", "require-osd-release-", "min-mon-release-", "osds-run-"];
    for condition in conditions {
        let kept = KEPT.iter().any(|name| condition.name.as_str().starts_with(name));
        if !kept && condition.verdict != Verdict::Yes {
            condition.verdict = Verdict::Yes;
            condition.why = format!("skipped by skipUpgradeChecks: {}", condition.why);
        }
    }
}

/// The policy: one OSD at a time, beside those that are down already, and as far as that gets.
pub(crate) fn policy(policy: &Policy, osds_down: u32) -> Policy {
    let mut policy = policy.clone();
    if let Ok(osd) = Kind::new("osd") {
        policy.max_in_parallel_of.insert(osd, Limit::Count(osds_down + 1));
    }
    policy.max_reduced_redundancy = None;
    policy.partial = true;
    policy
}

/// What is taken for the answer about these, and what a person should know of it.
pub(crate) fn answer(units: &[UnitId], said: Result<Answer, String>) -> (Answer, Option<String>) {
    let why = match &said {
        Ok(Answer::Yes | Answer::NoOracle | Answer::Overridden { .. }) => None,
        Ok(Answer::No { why } | Answer::Unknown { why }) | Err(why) => Some(why.clone()),
    };
    match (units, why) {
        ([one], why) if one.as_str().starts_with("osd.") => {
            let said = why.map_or_else(|| "Ceph lets it go".to_owned(), |why| format!("Ceph says: {why}"));
            let note = format!("{one} is stopped without checks, by skipUpgradeChecks. {said}");
            (Answer::NoOracle, Some(note))
        }
        (units, _) if units.iter().any(|unit| unit.as_str().starts_with("osd.")) => {
            let why = "unchecked, OSDs are stopped one at a time".to_owned();
            (Answer::No { why }, None)
        }
        (_, _) => match said {
            Ok(answer) => (answer, None),
            Err(why) => (Answer::Unknown { why }, None),
        },
    }
}

#[cfg(test)]
mod tests {
    use stagger_core::model::ConditionName;

    use super::*;

    fn units(names: &[&str]) -> Vec<UnitId> {
        names.iter().map(|name| UnitId::new(*name).unwrap()).collect()
    }

    #[test]
    fn one_osd_goes_whatever_is_said_and_a_set_never() {
        let no = || {
            Ok(Answer::No {
                why: "pg 1.2 would be inactive".to_owned(),
            })
        };
        let (answered, note) = answer(&units(&["osd.3"]), no());
        assert_eq!(answered, Answer::NoOracle);
        let note = note.unwrap();
        assert!(note.contains("osd.3") && note.contains("pg 1.2"), "{note}");
        let (answered, note) = answer(&units(&["osd.3"]), Err("no answer in 60 s".to_owned()));
        assert!(answered == Answer::NoOracle && note.unwrap().contains("60 s"));
        let (answered, note) = answer(&units(&["osd.3"]), Ok(Answer::Yes));
        assert!(answered == Answer::NoOracle && note.is_some(), "each use is told");
        for said in [no(), Ok(Answer::Yes)] {
            let (answered, note) = answer(&units(&["osd.3", "osd.4"]), said);
            assert!(matches!(answered, Answer::No { .. }) && note.is_none());
        }
    }

    #[test]
    fn what_is_no_osd_is_judged_as_ever() {
        for said in [
            Answer::Yes,
            Answer::No {
                why: "the last one".to_owned(),
            },
        ] {
            assert_eq!(answer(&units(&["mds.a"]), Ok(said.clone())), (said, None));
        }
        let (answered, _) = answer(&units(&["mon.a"]), Err("x".to_owned()));
        assert!(matches!(answered, Answer::Unknown { .. }));
    }

    #[test]
    fn what_cannot_be_undone_is_still_looked_at() {
        let all = [
            "health",
            "pgs-clean",
            "quorum",
            "osds-run-20",
            "min-mon-release-20",
            "osds-up-in",
        ];
        let mut conditions: Vec<Condition> = all
            .iter()
            .map(|name| {
                Condition::new(
                    ConditionName::new(*name).unwrap(),
                    Verdict::Unknown,
                    "nobody knows",
                )
            })
            .collect();
        apply(&mut conditions);
        let open: Vec<&str> = conditions
            .iter()
            .filter(|condition| condition.verdict == Verdict::Yes)
            .map(|condition| condition.name.as_str())
            .collect();
        assert_eq!(open, ["health", "pgs-clean", "osds-up-in"]);
        assert!(conditions[0].why.contains("skipUpgradeChecks: nobody knows"));
    }

    #[test]
    fn the_limit_is_one_beside_what_is_down() {
        let osd = Kind::new("osd").unwrap();
        let limit = |down| policy(&Policy::default(), down).max_in_parallel_of[&osd];
        assert_eq!((limit(0), limit(2)), (Limit::Count(1), Limit::Count(3)));
    }
}
