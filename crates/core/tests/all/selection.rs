//! Plans for some units of a cluster, and what is left for another run.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::random;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use random::{DONE, Facts, NEW, Rng};
use stagger_core::check::check;
use stagger_core::model::{Target, UnitId, UnitState, Verdict};
use stagger_core::plan::{Plan, PlannedPart, PlanningInput, Selection, SelectionError, plan};

/// What is selected of the cluster, and the plan for it, which the judge passes.
fn planned(facts: &Facts, selection: &Selection) -> Result<(Target, Plan), SelectionError> {
    let snapshot = facts.snapshot(Timestamp::UNIX_EPOCH);
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = |target| PlanningInput {
        snapshot: &snapshot,
        target,
        policy: &facts.policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    let target = selection.of(&ask(&facts.target))?;
    let made = plan(&ask(&target));
    assert_eq!(check(&ask(&target), &made), []);
    Ok((target, made))
}

/// All of a plan is done.
fn carry_out(facts: &mut Facts, plan: &Plan) -> BTreeSet<UnitId> {
    let mut done = BTreeSet::new();
    for part in &plan.parts {
        match part {
            PlannedPart::Step(_) => {
                facts.conditions.insert(DONE.to_owned(), Verdict::Yes);
            }
            PlannedPart::Stage(stage) => {
                for id in stage.waves.iter().flat_map(|wave| &wave.units) {
                    let unit = facts.unit(id);
                    assert_eq!(unit.state, UnitState::Serving);
                    unit.revision = Some(NEW.parse().unwrap());
                    done.insert(id.clone());
                }
            }
        }
    }
    done
}

fn drawn(rng: &mut Rng) -> Selection {
    let mut selection = Selection::default();
    if rng.percent(40) {
        selection.kinds = vec![rng.pick(&["mon", "mgr", "osd"]).parse().unwrap()];
    }
    for _ in 0..rng.below(3) {
        let domain = *rng.pick(&[("rack", "r0"), ("rack", "r1"), ("host", "h0"), ("host", "h1")]);
        selection.domains.push((domain.0.to_owned(), domain.1.to_owned()));
    }
    if rng.percent(40) {
        selection.limit = 1 + rng.below(4) as u32;
    }
    selection
}

fn is_of(facts: &Facts, selection: &Selection, id: &UnitId) -> bool {
    let unit = facts.units.iter().find(|unit| unit.id == *id).unwrap();
    let of_level = |level: &str| {
        let mut names = selection.domains.iter().filter(|(of, _)| of == level).peekable();
        names.peek().is_none() || names.any(|(_, name)| unit.domains.get(level) == Some(name))
    };
    (selection.kinds.is_empty() || selection.kinds.contains(&unit.kind))
        && of_level("rack")
        && of_level("host")
}

fn on_old<'a>(facts: &'a Facts, kind: &'a str) -> impl Iterator<Item = &'a UnitId> {
    let old = facts.units.iter().filter(move |unit| unit.kind.as_str() == kind);
    let old = old.filter(|unit| unit.revision != Some(NEW.parse().unwrap()));
    old.map(|unit| &unit.id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Only what was selected is planned, in the order of the stages, and never more than was asked for.
    #[test]
    fn only_what_was_selected_is_planned_and_the_order_of_stages_stands(seed: u64) {
        let mut rng = Rng(seed);
        let facts = random::facts(&mut rng);
        let selection = drawn(&mut rng);
        prop_assume!(!selection.is_everything());
        let Ok((target, made)) = planned(&facts, &selection) else { return Ok(()) };
        let mut after = facts.clone();
        let done = carry_out(&mut after, &made);
        for id in &done {
            prop_assert!(is_of(&facts, &selection, id), "{id} of {selection:?}");
        }
        prop_assert!(selection.limit == 0 || done.len() <= selection.limit as usize);
        let left: BTreeSet<&UnitId> = made.left_alone.iter().map(|left| &left.unit).collect();
        let stages = ["mon", "mgr", "osd"];
        for (at, later) in stages.iter().enumerate() {
            let is_begun = done.iter().any(|id| id.as_str().starts_with(later));
            for before in &stages[..at] {
                // Whoever was selected and must be left is told; nobody is passed over.
                let missing = on_old(&after, before).find(|id| !left.contains(id));
                prop_assert!(!is_begun || missing.is_none(), "{later} before {missing:?}");
            }
        }
        let is_whole = stages.iter().all(|kind| on_old(&after, kind).all(|id| left.contains(id)));
        prop_assert!(is_whole || !made.parts.iter().any(|part| matches!(part, PlannedPart::Step(_))));
        let last_mon = made.stages().flat_map(|stage| &stage.waves).any(|wave| wave.door.is_some());
        prop_assert!(!last_mon || on_old(&after, "mon").all(|id| left.contains(id)));
        prop_assert_eq!(target.only.is_some(), true);
    }

    /// What is left over is taken up: by one domain after the other, and then by whoever selects nothing.
    #[test]
    fn what_was_left_is_taken_up_by_a_later_plan(seed: u64) {
        let mut rng = Rng(seed);
        let mut facts = random::healthy(&mut rng);
        let everything: BTreeSet<UnitId> = facts.units.iter().map(|unit| unit.id.clone()).collect();
        let mut done = BTreeSet::new();
        for _ in 0..6 {
            let Ok((_, made)) = planned(&facts, &drawn(&mut rng)) else { continue };
            done.extend(carry_out(&mut facts, &made));
        }
        let (_, rest) = planned(&facts, &Selection::default()).unwrap();
        let left: BTreeSet<UnitId> = rest.left_alone.iter().map(|left| left.unit.clone()).collect();
        let last = carry_out(&mut facts, &rest);
        prop_assert!(done.is_disjoint(&last), "nobody has two turns");
        done.extend(last);
        done.extend(left);
        prop_assert_eq!(done, everything);
    }
}

/// Three monitors, a manager, and OSDs on two hosts of each of two racks.
fn small() -> Facts {
    let mut seed = 0;
    loop {
        let facts = random::healthy(&mut Rng(seed));
        let count = |kind: &str| {
            facts
                .units
                .iter()
                .filter(|unit| unit.kind.as_str() == kind)
                .count()
        };
        if count("mon") == 3 && count("osd") >= 4 {
            return facts;
        }
        seed += 1;
    }
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let facts = small();
    let refused = |selection: Selection| planned(&facts, &selection).unwrap_err().to_string();
    let none = Selection::default;
    assert_eq!(
        refused(Selection {
            units: vec!["osd.99".parse().unwrap()],
            ..none()
        }),
        "there is no unit osd.99"
    );
    assert_eq!(
        refused(Selection {
            kinds: vec!["rgw".parse().unwrap()],
            ..none()
        }),
        "there is no unit of kind rgw; kinds are mgr, mon, osd"
    );
    let domain = |level: &str, name: &str| vec![(level.to_owned(), name.to_owned())];
    assert_eq!(
        refused(Selection {
            domains: domain("row", "1"),
            ..none()
        }),
        "no unit has a failure domain row; levels are host, rack"
    );
    assert_eq!(
        refused(Selection {
            domains: domain("rack", "r9"),
            ..none()
        }),
        "there is no rack r9; there are r0 r1 r2"
    );
    let both = vec!["osd".parse().unwrap()];
    assert_eq!(
        refused(Selection {
            kinds: both,
            units: vec!["mon.0".parse().unwrap()],
            ..none()
        }),
        "no unit matches the whole selection"
    );
}

#[test]
fn others_that_come_first_are_named() {
    let facts = small();
    let osd = Selection {
        units: vec!["osd.1".parse().unwrap()],
        ..Selection::default()
    };
    let why = planned(&facts, &osd).unwrap_err().to_string();
    assert_eq!(
        why,
        "osd.1 comes after stage mon, which is not finished: mon.0 mon.1 mon.2 are not selected"
    );
    // The first of the plan, and no more: nobody comes too late by a limit.
    let first = Selection {
        limit: 2,
        ..Selection::default()
    };
    let (target, made) = planned(&facts, &first).unwrap();
    assert!(target.title.ends_with("(2 selected)"), "{}", target.title);
    assert_eq!(made.stages().flat_map(|stage| &stage.waves).count(), 2);
    assert_eq!(made.parts.len(), 1);
}

/// Nothing of it can be done: that is told, and is no plan with nothing to do.
#[test]
fn a_limit_hides_nobody_who_must_be_left_alone() {
    let mut facts = small();
    for unit in &mut facts.units {
        unit.state = UnitState::Unknown;
    }
    let first = Selection {
        limit: 2,
        ..Selection::default()
    };
    let (_, made) = planned(&facts, &first).unwrap();
    assert_eq!(made.left_alone.len(), facts.units.len());
}
