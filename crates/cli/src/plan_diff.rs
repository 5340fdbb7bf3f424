//! Differences between a plan that was shown and the current one.
//!
//! Only actions count: units, waves, moves, points of no return, and skipped units. The generation of the
//! snapshot and forecasts always change.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::UnitId;
use stagger_core::plan::{Plan, PlannedPart, PlannedStage};

use stagger_report::names::{compress, fit};

/// So wide may a list of units be.
const WIDTH: usize = 60;

/// Each thing that differs, in a sentence; none: the same would be done.
pub(crate) fn differences(shown: &Plan, now: &Plan) -> Vec<String> {
    if shown.cluster != now.cluster {
        return vec![format!(
            "the plan is for the cluster {}; this is {}",
            shown.cluster, now.cluster
        )];
    }
    if shown.title != now.title {
        return vec![format!(
            "the plan is for {}, and now it is {}",
            shown.title, now.title
        )];
    }
    let mut found = Vec::new();
    let (before, after) = (parts(shown), parts(now));
    let names: Vec<&str> = shown.parts.iter().chain(&now.parts).map(name).collect();
    let mut seen = BTreeSet::new();
    for name in names.into_iter().filter(|name| seen.insert(*name)) {
        match (before.get(name), after.get(name)) {
            (Some(PlannedPart::Stage(before)), Some(PlannedPart::Stage(after))) => {
                found.extend(of_stage(before, after));
            }
            (Some(PlannedPart::Step(before)), Some(PlannedPart::Step(after))) => {
                if before.door != after.door {
                    found.push(format!("{name}: it is another point of no return"));
                }
            }
            (Some(_), Some(_)) => found.push(format!("{name}: it is a stage in one and a step in the other")),
            (Some(_), None) => found.push(format!("{name}: nothing is left to do")),
            (None, Some(_)) => found.push(format!("{name}: it was not in the plan")),
            (None, None) => {}
        }
    }
    if found.is_empty() && order(shown) != order(now) {
        found.push("stages and steps come in another order".to_owned());
    }
    found.extend(skipped_changes(shown, now));
    if shown
        .interruptions
        .iter()
        .map(|one| &one.name)
        .ne(now.interruptions.iter().map(|one| &one.name))
    {
        found.push("other services are interrupted".to_owned());
    }
    found
}

fn name(part: &PlannedPart) -> &str {
    part.name().as_str()
}

fn parts(plan: &Plan) -> BTreeMap<&str, &PlannedPart> {
    plan.parts.iter().map(|part| (name(part), part)).collect()
}

fn order(plan: &Plan) -> Vec<&str> {
    plan.parts.iter().map(name).collect()
}

fn of_stage(before: &PlannedStage, after: &PlannedStage) -> Vec<String> {
    let name = &after.name;
    let waves = |stage: &PlannedStage| -> BTreeMap<UnitId, usize> {
        let numbered = stage.waves.iter().enumerate();
        let units =
            numbered.flat_map(|(number, wave)| wave.units.iter().map(move |unit| (unit.clone(), number)));
        units.collect()
    };
    let (old, new) = (waves(before), waves(after));
    let list = |units: Vec<UnitId>| fit(&compress(&units), WIDTH);
    let mut found = Vec::new();
    let gone: Vec<UnitId> = old
        .keys()
        .filter(|unit| !new.contains_key(*unit))
        .cloned()
        .collect();
    if !gone.is_empty() {
        found.push(format!("{name}: no longer to be changed: {}", list(gone)));
    }
    let come: Vec<UnitId> = new
        .keys()
        .filter(|unit| !old.contains_key(*unit))
        .cloned()
        .collect();
    if !come.is_empty() {
        found.push(format!("{name}: to be changed as well: {}", list(come)));
    }
    let other = old
        .iter()
        .filter(|(unit, wave)| new.get(*unit).is_some_and(|now| now != *wave));
    let other: Vec<UnitId> = other.map(|(unit, _)| unit.clone()).collect();
    if !other.is_empty() {
        found.push(format!("{name}: in another wave: {}", list(other)));
    }
    if before.going_back != after.going_back {
        found.push(format!("{name}: the rollback differs"));
    }
    if !found.is_empty() {
        return found;
    }
    for (number, (before, after)) in (1..).zip(before.waves.iter().zip(&after.waves)) {
        if before.moves != after.moves {
            found.push(format!("{name}: wave {number} has other moves"));
        }
        if before.door != after.door {
            found.push(format!(
                "{name}: wave {number} has another point of no return before it"
            ));
        }
    }
    found
}

fn skipped_changes(shown: &Plan, now: &Plan) -> Vec<String> {
    let of = |plan: &Plan| -> BTreeMap<(UnitId, String), String> {
        let left = plan.left_alone.iter();
        left.map(|left| {
            let key = (left.unit.clone(), left.stage.to_string());
            (key, left.reason.code.code().to_owned())
        })
        .collect()
    };
    let (old, new) = (of(shown), of(now));
    let mut found = Vec::new();
    for ((unit, stage), reason) in &new {
        if old.get(&(unit.clone(), stage.clone())) != Some(reason) {
            found.push(format!("{stage}: {unit} is skipped ({reason})"));
        }
    }
    for (unit, stage) in old.keys().filter(|key| !new.contains_key(*key)) {
        found.push(format!("{stage}: {unit} is no longer skipped"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(waves: &Value, left_alone: &Value) -> Plan {
        let waves = waves.as_array().unwrap().iter();
        let waves: Vec<Value> = waves
            .map(|units| json!({ "units": units, "seconds": 60 }))
            .collect();
        let osds = json!({ "stage": {
            "name": "osd", "kind": "osd", "revision": "18.2.7", "all": 4, "parallel": 2, "waves": waves, "at_least": 1,
            "at_least_because": "", "going_back": { "how": "restart" },
        } });
        let release = json!({ "step": { "name": "require-osd-release-18", "why": "" } });
        serde_json::from_value(json!({
            "document": "plan", "version": 1, "id": "0", "cluster": "lab", "title": "ceph 16.2.15 to 18.2.7",
            "generation": "osdmap 1", "parts": [osds, release], "left_alone": left_alone,
            "search": { "seed": 1, "steps": 1 },
        }))
        .unwrap()
    }

    fn usual() -> Plan {
        plan(&json!([["osd.0", "osd.1"], ["osd.2"]]), &json!([]))
    }

    #[test]
    fn what_moves_by_itself_is_no_difference() {
        let mut now = usual();
        now.id = "1".to_owned();
        now.generation = "osdmap 2".to_owned();
        for part in &mut now.parts {
            if let PlannedPart::Stage(stage) = part {
                stage.waves[0].seconds = 90;
            }
        }
        assert_eq!(differences(&usual(), &now), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_named() {
        let others = |waves: Value| differences(&usual(), &plan(&waves, &json!([])));
        assert_eq!(
            others(json!([["osd.0"], ["osd.1", "osd.2"]])),
            ["osd: in another wave: osd.1"]
        );
        assert_eq!(
            others(json!([["osd.0", "osd.1"], ["osd.3"]])),
            [
                "osd: no longer to be changed: osd.2",
                "osd: to be changed as well: osd.3"
            ]
        );
        let left = json!([{ "unit": "osd.2", "stage": "osd", "reason": { "slug": "unit-down", "detail": "it is down" } }]);
        let now = plan(&json!([["osd.0", "osd.1"]]), &left);
        assert_eq!(
            differences(&usual(), &now),
            [
                "osd: no longer to be changed: osd.2",
                "osd: osd.2 is skipped (unit-down)"
            ]
        );
        assert_eq!(differences(&now, &usual())[1], "osd: osd.2 is no longer skipped");
    }

    #[test]
    fn another_cluster_goal_or_order_is_named() {
        let mut now = usual();
        now.parts.reverse();
        assert_eq!(
            differences(&usual(), &now),
            ["stages and steps come in another order"]
        );
        now.parts.pop();
        assert_eq!(differences(&usual(), &now), ["osd: nothing is left to do"]);
        now.title = "ceph 16.2.15 to 18.2.8".to_owned();
        assert_eq!(differences(&usual(), &now).len(), 1);
        now.cluster = "prod".parse().unwrap();
        assert!(differences(&usual(), &now)[0].contains("for the cluster lab; this is prod"));
    }
}
