//! The laws of planning, on random clusters.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::random;

use std::collections::BTreeMap;

use proptest::prelude::*;
use random::{DONE, Facts, NEW, Rng};
use stagger_core::model::{Code, Ix, Order, UnitState, Verdict};
use stagger_core::plan::{Plan, PlannedPart, PlanningInput, plan, plan_until};

/// Carries out the first wave, or the first step.
fn carry_out(facts: &mut Facts, plan: &Plan, earned: &mut BTreeMap<stagger_core::model::PartName, u32>) {
    facts.generation += 1;
    match plan.parts.first().unwrap() {
        PlannedPart::Step(_) => {
            facts.conditions.insert(DONE.to_owned(), Verdict::Yes);
        }
        PlannedPart::Stage(stage) => {
            for id in &stage.waves[0].units {
                let unit = facts.unit(id);
                unit.state = UnitState::Serving;
                unit.revision = Some(NEW.parse().unwrap());
            }
            *earned.entry(stage.name.clone()).or_insert(0) += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Law 5: after each wave, planned again with its parent, never more waves than the parent had
    /// left. Law 6: at the end, planning again gives nothing to do.
    #[test]
    fn carried_out_to_the_end_it_never_grows_and_then_is_empty(seed: u64) {
        let mut facts = random::facts(&mut Rng(seed));
        let mut earned = BTreeMap::new();
        let mut plan = facts.plan(&earned, None);
        // Once all that can be done is done, nothing waits for them any more.
        let left = |plan: &Plan| -> Vec<_> {
            let left = plan.left_alone.iter();
            left.map(|left| (left.unit.clone(), left.stage.clone(), left.reason.clone())).collect()
        };
        let left_alone = left(&plan);
        let mut steps = 0;
        while !plan.is_empty() {
            steps += 1;
            prop_assert!(steps < 200);
            let waves = plan.waves();
            let was_wave = matches!(plan.parts[0], PlannedPart::Stage(_));
            carry_out(&mut facts, &plan, &mut earned);
            let next = facts.plan(&earned, Some(&plan));
            prop_assert_eq!(next.parent.as_ref(), Some(&plan.id));
            let shape = |plan: &Plan| -> Vec<_> {
                plan.stages().map(|s| (s.name.to_string(), s.waves.iter().map(|w| w.units.len()).collect::<Vec<_>>())).collect()
            };
            prop_assert!(
                next.waves() + usize::from(was_wave) <= waves,
                "{:?} after {:?}; {:?}",
                shape(&next),
                shape(&plan),
                facts.policy
            );
            prop_assert!(next.at_least() as usize <= next.waves());
            plan = next;
        }
        prop_assert_eq!(left(&plan), left_alone);
    }

    /// In which order a backend lists units and budgets makes no difference.
    #[test]
    fn the_order_of_the_facts_does_not_matter(seed: u64) {
        let mut rng = Rng(seed);
        let facts = random::facts(&mut rng);
        let mut places: Vec<usize> = (0..facts.units.len()).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let mut shuffled = facts.clone();
        shuffled.units = places.iter().map(|at| facts.units[*at].clone()).collect();
        for (.., members) in &mut shuffled.budgets {
            for (unit, _) in members.iter_mut() {
                *unit = Ix(places.iter().position(|at| *at == unit.at()).unwrap() as u32);
            }
            members.reverse();
        }
        let earned = BTreeMap::new();
        prop_assert_eq!(facts.plan(&earned, None).id, shuffled.plan(&earned, None).id);
    }

    /// Law 12: a unit that turns out to be never safe to stop costs the others no wave. The plan before is
    /// the parent, as it is in a run: a search from nothing may find a wave more or less.
    #[test]
    fn a_starving_unit_starves_nobody(seed: u64) {
        let mut rng = Rng(seed);
        let mut facts = random::healthy(&mut rng);
        facts.policy.order = Order::FewestWaves;
        facts.policy.max_reduced_redundancy = None;
        let earned = BTreeMap::new();
        let before = facts.plan(&earned, None);
        let osds = facts.units.iter().position(|unit| unit.kind.as_str() == "osd").unwrap() as u64;
        let starving = Ix((osds + rng.below(facts.units.len() as u64 - osds)) as u32);
        facts.budgets.push(("placement group".to_owned(), "9.0".to_owned(), 0, vec![(starving, 1)]));
        let after = facts.plan(&earned, Some(&before));
        let id = &facts.units[starving.at()].id;
        prop_assert!(after.left_alone.iter().any(|left| left.unit == *id && left.reason.code == Code::NeverOkToStop));
        prop_assert!(after.waves() <= before.waves(), "{} waves, {} without it", after.waves(), before.waves());
        prop_assert_eq!(after.units() + 1, before.units());
    }

    /// Law 11: a plan that was searched for until a clock rang is made again by the steps that stand in it.
    #[test]
    fn a_plan_by_the_clock_is_a_plan_by_steps(seed: u64, questions in 1_u32..40) {
        let mut facts = random::facts(&mut Rng(seed));
        let mut left = questions;
        let mut stop = || {
            left = left.saturating_sub(1);
            left == 0
        };
        let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
        let snapshot = facts.snapshot(jiff::Timestamp::UNIX_EPOCH);
        let (target, policy) = (facts.target.clone(), facts.policy.clone());
        let ask = PlanningInput { snapshot: &snapshot, target: &target, policy: &policy, aside: &aside, earned: &earned, parent: None };
        if let Some(by_clock) = plan_until(&ask, &mut stop) {
            facts.policy.search.steps = by_clock.search.steps;
            let policy = facts.policy.clone();
            prop_assert_eq!(by_clock, plan(&PlanningInput { policy: &policy, ..ask }));
        }
    }

    /// Law 11: the same input gives the same bytes, and a plan comes back from its document.
    #[test]
    fn same_input_same_bytes(seed: u64) {
        let facts = random::facts(&mut Rng(seed));
        let earned = BTreeMap::new();
        let text = serde_json::to_string(&facts.plan(&earned, None)).unwrap();
        prop_assert_eq!(&text, &serde_json::to_string(&facts.plan(&earned, None)).unwrap());
        let back: Plan = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(text, serde_json::to_string(&back).unwrap());
    }
}
