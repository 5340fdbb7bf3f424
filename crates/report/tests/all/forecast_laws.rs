//! What holds of every forecast, whatever it was learned from.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use stagger_core::model::{Kind, PartName, RunId};

use stagger_report::forecast::{EarlierRun, PartShape, PlanShape, Samples, accuracy, from_runs};

const KINDS: [&str; 2] = ["mon", "osd"];
const STEP: &str = "require-osd-release";

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn step() -> PartName {
    PartName::new(STEP).unwrap()
}

fn run(number: i64, plan: PlanShape, took: Option<SignedDuration>, samples: Samples) -> EarlierRun {
    let began = Timestamp::from_second(number * 100_000).unwrap();
    EarlierRun::new(
        RunId::new(format!("lab-{number}")).unwrap(),
        began,
        plan,
        took,
        samples,
    )
}

fn samples() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0..100_000_i64, 1..6)
}

/// Runs of which each has seen both kinds, one after another.
fn runs() -> impl Strategy<Value = Vec<EarlierRun>> {
    let one = (
        samples(),
        samples(),
        samples(),
        samples(),
        samples(),
        0..50_000_i64,
    );
    prop::collection::vec(one, 1..5).prop_map(|all| {
        let numbered = (1..).zip(all);
        numbered
            .map(|(number, (mons, osds, rests, steps, gaps, ends))| {
                let samples = Samples {
                    visits: BTreeMap::from([(kind("mon"), mons), (kind("osd"), osds)]),
                    rests: KINDS.map(|name| (kind(name), rests.clone())).into(),
                    steps: BTreeMap::from([(step(), steps)]),
                    gaps,
                    ends,
                };
                run(number, PlanShape::new(Vec::new()), None, samples)
            })
            .collect()
    })
}

fn parts() -> impl Strategy<Value = Vec<PartShape>> {
    let wave = (0..2_usize, 1..9_u32, 0..60_u32).prop_map(|(which, units, only_here)| PartShape::Wave {
        kind: kind(KINDS[which]),
        units,
        planned: 60 + only_here,
        only_here,
    });
    let part = prop_oneof![4 => wave, 1 => Just(PartShape::Step(step()))];
    prop::collection::vec(part, 1..12)
}

fn wave(name: &str) -> PartShape {
    PartShape::Wave {
        kind: kind(name),
        units: 3,
        planned: 60,
        only_here: 0,
    }
}

/// The same runs, where everything took so many times as long.
fn slower(runs: &[EarlierRun], times: i64) -> Vec<EarlierRun> {
    let all = |took: &mut Vec<i64>| took.iter_mut().for_each(|took| *took *= times);
    let mut runs = runs.to_vec();
    for run in &mut runs {
        let samples = &mut run.samples;
        samples.visits.values_mut().for_each(all);
        samples.rests.values_mut().for_each(all);
        samples.steps.values_mut().for_each(all);
        all(&mut samples.gaps);
        samples.ends *= times;
    }
    runs
}

proptest! {
    // Each is a thousand draws.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// The same runs and plan give the same forecast, whatever the order of the runs.
    #[test]
    fn a_forecast_is_always_the_same(runs in runs(), parts in parts()) {
        let plan = PlanShape::new(parts);
        let one = from_runs(&runs, &plan);
        prop_assert_eq!(one, from_runs(&runs, &plan));
        let mut turned = runs;
        turned.reverse();
        prop_assert_eq!(one, from_runs(&turned, &plan));
    }

    /// No draw is shorter than if all took the shortest that was seen, none is longer than if all took the longest.
    #[test]
    fn a_forecast_is_between_the_shortest_and_the_longest(runs in runs(), mut parts in parts()) {
        parts.push(wave("osd"));
        let plan = PlanShape::new(parts.clone());
        let Some(found) = from_runs(&runs, &plan) else {
            return Err(TestCaseError::fail("nothing was learned"));
        };
        let of = |pick: &dyn Fn(&mut dyn Iterator<Item = i64>) -> i64| {
            let all = |take: &dyn Fn(&EarlierRun) -> Vec<i64>| pick(&mut runs.iter().flat_map(take));
            let mut sum = all(&|run| vec![run.samples.ends]);
            sum += (i64::try_from(parts.len()).unwrap() - 1) * all(&|run| run.samples.gaps.clone());
            for part in &parts {
                sum += match part {
                    PartShape::Step(name) => all(&|run| run.samples.steps[name].clone()),
                    PartShape::Wave { kind, only_here, .. } => {
                        let visit = all(&|run| run.samples.visits[kind].clone());
                        visit + all(&|run| run.samples.rests[kind].clone()) + i64::from(*only_here) * 1_000
                    }
                };
            }
            sum
        };
        let shortest = of(&|all| all.min().unwrap());
        let longest = of(&|all| all.max().unwrap());
        prop_assert!(found.seconds <= found.seconds_90);
        prop_assert!(found.seconds * 1_000 >= shortest);
        prop_assert!((found.seconds_90 - 1) * 1_000 < longest + 1);
    }

    /// One more wave, or one more unit in a wave, never makes it shorter.
    #[test]
    fn more_to_do_takes_no_less(runs in runs(), mut parts in parts(), more in 1..5_u32) {
        parts.push(wave("osd"));
        let before = from_runs(&runs, &PlanShape::new(parts.clone())).unwrap();
        let mut wider = parts.clone();
        for part in &mut wider {
            if let PartShape::Wave { units, .. } = part {
                *units += more;
            }
        }
        let wider = from_runs(&runs, &PlanShape::new(wider)).unwrap();
        prop_assert!(wider.seconds >= before.seconds && wider.seconds_90 >= before.seconds_90);
        parts.push(wave("mon"));
        let longer = from_runs(&runs, &PlanShape::new(parts)).unwrap();
        prop_assert!(longer.seconds >= before.seconds && longer.seconds_90 >= before.seconds_90);
    }

    /// Where all took three times as long, so will this.
    #[test]
    fn a_forecast_grows_with_what_it_was_learned_from(runs in runs(), parts in parts()) {
        let only_known = parts.into_iter().map(|part| match part {
            PartShape::Wave { kind, units, planned, .. } => PartShape::Wave { kind, units, planned, only_here: 0 },
            PartShape::Step(name) => PartShape::Step(name),
        });
        let mut parts: Vec<PartShape> = only_known.collect();
        parts.push(wave("mon"));
        let plan = PlanShape::new(parts);
        let one = from_runs(&runs, &plan).unwrap();
        let three = from_runs(&slower(&runs, 3), &plan).unwrap();
        prop_assert!((three.seconds - 3 * one.seconds).abs() <= 3);
        prop_assert!((three.seconds_90 - 3 * one.seconds_90).abs() <= 3);
    }
}

/// Three runs, in each of which everything took one time: then nothing is left to chance but which run it is like.
#[test]
fn what_makes_a_whole_run_slow_stays_together() {
    let one = |number: i64, took: i64| {
        let samples = Samples {
            visits: BTreeMap::from([(kind("osd"), vec![took * 1_000])]),
            rests: BTreeMap::from([(kind("osd"), vec![took * 1_000])]),
            ..Samples::default()
        };
        let plan = PlanShape::new(vec![wave("osd"); 4]);
        run(number, plan, Some(SignedDuration::from_secs(8 * took)), samples)
    };
    let runs = [one(1, 10), one(2, 10), one(3, 100)];
    let plan = PlanShape::new(vec![wave("osd"); 4]);
    let found = from_runs(&runs, &plan).unwrap();
    assert_eq!((found.seconds, found.seconds_90), (80, 800));
    assert_eq!(found.text(), "1 min 20 s, 90 % under 13 min");
    // The second was foretold by the first to the second; the third by nobody.
    let found = accuracy(&runs);
    assert_eq!((found.runs, found.told, found.under_90), (3, 2, 1));
    // Plans said 240 s: too much by 200 % twice, and too little by 70 % once.
    assert_eq!(found.planned, Some(200.0));
    assert_eq!(found.learned, Some(45.0));
}

#[test]
fn of_what_was_never_seen_nothing_is_learned() {
    let plan = PlanShape::new(vec![wave("osd")]);
    assert_eq!(from_runs(&[], &plan), None);
    let found = accuracy(&[]);
    assert_eq!((found.runs, found.planned, found.learned), (0, None, None));
}
