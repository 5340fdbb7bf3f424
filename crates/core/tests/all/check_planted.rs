//! The judge finds nothing in our plans, and each fault that is planted in one.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::random;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use random::{Facts, Rng};
use stagger_core::check::{Fault, check};
use stagger_core::model::{Growth, Limit, Part, UnitId, UnitState};
use stagger_core::plan::{LeftAlone, Plan, PlannedPart, PlannedStage, PlanningInput};

fn judge(facts: &Facts, plan: &Plan) -> BTreeSet<Fault> {
    let snapshot = facts.snapshot(Timestamp::UNIX_EPOCH);
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &facts.target,
        policy: &facts.policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    check(&ask, plan)
        .into_iter()
        .map(|finding| finding.fault)
        .collect()
}

fn stage<'a>(plan: &'a mut Plan, kind: &str) -> Option<&'a mut PlannedStage> {
    plan.parts.iter_mut().find_map(|part| match part {
        PlannedPart::Stage(stage) if stage.kind.as_str() == kind => Some(stage),
        PlannedPart::Stage(_) | PlannedPart::Step(_) => None,
    })
}

/// All units of a stage in its first wave.
fn in_one(stage: &mut PlannedStage) {
    let all: Vec<UnitId> = stage.waves.iter().flat_map(|wave| wave.units.clone()).collect();
    stage.waves.truncate(1);
    stage.waves[0].units = all;
}

type Plant = fn(&mut Facts, &mut Plan) -> Option<()>;

/// Each plants one fault where the plan has room for it.
const PLANTS: [(Fault, Plant); 14] = [
    (Fault::UnitTwice, |_, plan| {
        let stage = stage(plan, "osd")?;
        let unit = stage.waves.first()?.units.first()?.clone();
        stage.waves.last_mut()?.units.push(unit);
        Some(())
    }),
    (Fault::UnitMissing, |_, plan| {
        stage(plan, "osd")?.waves.last_mut()?.units.pop().map(|_| ())
    }),
    (Fault::UnitUncalledFor, |facts, plan| {
        let done = facts.units.iter().find(|unit| {
            unit.kind.as_str() == "osd" && unit.revision.as_ref().is_some_and(|r| r.as_str() == random::NEW)
        })?;
        stage(plan, "osd")?.waves.last_mut()?.units.push(done.id.clone());
        Some(())
    }),
    (Fault::OverBudget, |facts, plan| {
        let stage = stage(plan, "osd")?;
        in_one(stage);
        let snapshot = facts.snapshot(Timestamp::UNIX_EPOCH);
        let set: Vec<_> = stage.waves[0]
            .units
            .iter()
            .filter_map(|id| snapshot.find(id))
            .collect();
        snapshot
            .budgets()
            .permit(&snapshot.down(), &set)
            .is_err()
            .then_some(())
    }),
    (Fault::OverParallel, |facts, plan| {
        let stage = stage(plan, "osd")?;
        facts.policy.max_in_parallel = Limit::Count(1);
        in_one(stage);
        (stage.waves[0].units.len() > 1).then_some(())
    }),
    (Fault::OverDomains, |facts, plan| {
        let stage = stage(plan, "osd")?;
        in_one(stage);
        facts.policy.max_domains = [("host".to_owned(), 1)].into();
        let host =
            |id: &UnitId| facts.units.iter().find(|unit| unit.id == *id).unwrap().domains["host"].clone();
        let hosts: BTreeSet<_> = stage.waves[0].units.iter().map(host).collect();
        let down = facts.units.iter().filter(|unit| unit.state != UnitState::Serving);
        let already: BTreeSet<_> = down.map(|unit| unit.domains["host"].clone()).collect();
        (!hosts.is_subset(&already) && hosts.union(&already).count() > 1).then_some(())
    }),
    (Fault::OverReducedRedundancy, |facts, plan| {
        let stage = stage(plan, "osd")?;
        in_one(stage);
        facts.policy.max_reduced_redundancy = Some(1);
        let wave = &stage.waves[0].units;
        let touches = |units: &[UnitId]| {
            let has = |(unit, _): &(stagger_core::model::Ix, u32)| units.contains(&facts.units[unit.at()].id);
            facts
                .budgets
                .iter()
                .filter(|(.., members)| members.iter().any(has))
                .map(|(group, name, ..)| random::share(group, name))
                .sum::<u32>()
        };
        let osds = facts.units.iter().filter(|unit| unit.kind.as_str() == "osd");
        let most = osds.map(|unit| touches(std::slice::from_ref(&unit.id))).max()?;
        (touches(wave) > most).then_some(())
    }),
    (Fault::StageOrder, |_, plan| {
        (plan.parts.len() > 1).then(|| plan.parts.swap(0, 1))
    }),
    (Fault::WaitHidden, |_, plan| {
        let mut left = plan.left_alone.iter_mut();
        left.find_map(|left| left.needed_by.take()).map(|_| ())
    }),
    (Fault::TwoAtOnce, |_, plan| {
        let stage = stage(plan, "mon")?;
        in_one(stage);
        (stage.waves[0].units.len() > 1).then_some(())
    }),
    (Fault::GrowthSkipped, |facts, plan| {
        facts.policy.growth = Growth::Double;
        let stage = stage(plan, "osd")?;
        in_one(stage);
        (stage.waves[0].units.len() > 1).then_some(())
    }),
    (Fault::DoorUnmarked, |_, plan| {
        let marked = stage(plan, "mon").and_then(|stage| stage.waves.last_mut()?.door.take());
        let step = plan.parts.iter_mut().find_map(|part| match part {
            PlannedPart::Step(step) => step.door.take(),
            PlannedPart::Stage(_) => None,
        });
        marked.or(step).map(|_| ())
    }),
    (Fault::DoorWithoutGate, |facts, _| {
        facts.target.parts.iter_mut().find_map(|part| match part {
            Part::Step(step) => {
                step.before.clear();
                Some(())
            }
            Part::Stage(_) => None,
        })
    }),
    (Fault::PrecedenceBroken, |facts, plan| {
        let stage = stage(plan, "mgr")?;
        stage.waves.reverse();
        let active = stage.waves.first()?.units.first()?.clone();
        (stage.waves.len() > 1 && facts.unit(&active).precedence > 0).then_some(())
    }),
];

#[test]
fn nothing_is_found_in_our_plans_and_each_planted_fault_is() {
    let mut planted: BTreeMap<Fault, u32> = BTreeMap::new();
    for seed in 0..1_500 {
        let facts = random::facts(&mut Rng(seed));
        let plan = facts.plan(&BTreeMap::new(), None);
        assert_eq!(judge(&facts, &plan), BTreeSet::new(), "seed {seed}: {plan:#?}");
        for (fault, plant) in PLANTS {
            let (mut facts, mut plan) = (facts.clone(), plan.clone());
            if plant(&mut facts, &mut plan).is_some() {
                *planted.entry(fault).or_insert(0) += 1;
                assert!(
                    judge(&facts, &plan).contains(&fault),
                    "seed {seed}: {fault:?} was not found"
                );
            }
        }
    }
    for (fault, _) in PLANTS {
        assert!(
            planted.get(&fault).is_some_and(|times| *times > 50),
            "{fault:?} was hardly planted: {planted:?}"
        );
    }
}

#[test]
fn a_unit_both_in_a_wave_and_left_alone_is_found() {
    let facts = random::healthy(&mut Rng(3));
    let mut plan = facts.plan(&BTreeMap::new(), None);
    let (unit, name) = {
        let stage = stage(&mut plan, "mon").unwrap();
        (stage.waves[0].units[0].clone(), stage.name.clone())
    };
    let reason = stagger_core::model::Reason::of_backend("being-replaced", "by hand");
    plan.left_alone.push(LeftAlone {
        needed_by: None,
        unit,
        stage: name,
        reason,
    });
    assert!(judge(&facts, &plan).contains(&Fault::UnitTwice));
}
