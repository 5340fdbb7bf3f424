//! Laws of the order, of granting, and of the forecast, against brute force on small worlds.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use stagger_asks::queue::{Queued, RunningClaim, forecast, in_order, look_at};
use stagger_asks::scene::Scene;
use stagger_core::model::Ix;

use crate::toy::Toy;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn ixs(set: &BTreeSet<usize>) -> Vec<Ix> {
    set.iter().map(|at| Ix(*at as u32)).collect()
}

fn is_safe(toy: &Toy, down: &BTreeSet<usize>) -> bool {
    toy.budgets
        .iter()
        .all(|(members, limit)| members.iter().filter(|at| down.contains(at)).count() <= *limit as usize)
}

/// Whether a set breaks no budget that it touches: one that is broken already blocks its own members alone.
fn permits(toy: &Toy, down: &BTreeSet<usize>, set: &BTreeSet<usize>) -> bool {
    toy.budgets.iter().all(|(members, limit)| {
        let adds = members
            .iter()
            .filter(|at| set.contains(at) && !down.contains(at))
            .count();
        let was = members.iter().filter(|at| down.contains(at)).count();
        adds == 0 || was + adds <= *limit as usize
    })
}

const UNITS: usize = 7;

fn world() -> impl Strategy<Value = Toy> {
    let budget = (prop::collection::btree_set(0..UNITS, 1..4), 1_u32..3);
    prop::collection::vec(budget, 1..7).prop_map(|budgets| {
        let budgets = budgets
            .into_iter()
            .map(|(members, limit)| (members.into_iter().collect(), limit));
        Toy::new(UNITS, budgets.collect())
    })
}

fn set() -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::btree_set(0..UNITS, 1..3)
}

/// One who asks: when, what, for how long, and for how long it can wait.
#[derive(Debug, Clone)]
struct Arrival {
    at: i64,
    set: BTreeSet<usize>,
    hold: i64,
    waits: Option<i64>,
    /// It is back after that share of its time, in percent.
    takes: i64,
}

const LONGEST: i64 = 60;

fn arrival() -> impl Strategy<Value = Arrival> {
    (
        0..600_i64,
        set(),
        1..=LONGEST,
        prop::option::of(200..2000_i64),
        1..=100_i64,
    )
        .prop_map(|(at, set, hold, waits, takes)| Arrival {
            at,
            set,
            hold,
            waits,
            takes,
        })
}

fn queued(arrival: &Arrival) -> Queued {
    Queued {
        set: ixs(&arrival.set),
        asked: at(arrival.at),
        until: arrival.waits.map(|waits| at(arrival.at + waits)),
        is_patient: true,
        hold: SignedDuration::from_secs(arrival.hold),
        kept_free_since: None,
        unfit_since: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The quick answer is that of the constraint predicate, whatever is down and claimed.
    #[test]
    fn a_set_fits_exactly_when_the_predicate_permits_it(
        toy in world(), broken in prop::collection::btree_set(0..UNITS, 0..3),
        claims in prop::collection::vec(set(), 0..3), asked in set(),
    ) {
        let snapshot = toy.snapshot(&broken);
        let claims: Vec<(u64, Vec<Ix>)> = (1..).zip(claims.iter().map(ixs)).collect();
        let scene = Scene::new(&snapshot, &claims);
        let claimed: BTreeSet<usize> =
            claims.iter().flat_map(|(_, set)| set).map(|at| at.at()).collect();
        prop_assume!(asked.is_disjoint(&claimed));
        let down: BTreeSet<usize> = broken.union(&claimed).copied().collect();
        let by_core = snapshot
            .budgets()
            .permit(&snapshot.down().with(&ixs(&claimed)), &ixs(&asked))
            .is_ok();
        prop_assert_eq!(scene.fits(&ixs(&asked)).is_ok(), by_core);
        prop_assert_eq!(by_core, permits(&toy, &down, &asked));
    }

    /// What was claimed and is back leaves no trace.
    #[test]
    fn a_claim_that_is_released_is_as_if_it_had_never_been(
        toy in world(), first in set(), second in set(), asked in set(),
    ) {
        let snapshot = toy.snapshot(&BTreeSet::new());
        let mut scene = Scene::new(&snapshot, &[(1, ixs(&first))]);
        scene.claim(2, &ixs(&second));
        scene.release(2, &ixs(&second));
        let never = Scene::new(&snapshot, &[(1, ixs(&first))]);
        prop_assert_eq!(scene.fits(&ixs(&asked)), never.fits(&ixs(&asked)));
    }

    /// Random arrivals, holders that are back early or use all of their time: never an unsafe union, and each one's turn
    /// comes, however many come after it.
    #[test]
    fn no_union_is_unsafe_and_nobody_starves(
        toy in world(), arrivals in prop::collection::vec(arrival(), 1..40), patience in 0..120_i64,
    ) {
        let patience = SignedDuration::from_secs(patience);
        let snapshot = toy.snapshot(&BTreeSet::new());
        let none = BTreeSet::new();
        let arrivals: Vec<Arrival> =
            arrivals.into_iter().filter(|one| permits(&toy, &none, &one.set)).collect();
        let mut waiting: Vec<(usize, Queued)> = Vec::new();
        let mut running: BTreeMap<u64, (usize, i64)> = BTreeMap::new();
        let mut starts: BTreeMap<usize, i64> = BTreeMap::new();
        let mut fence = 0;
        for now in 0..20_000_i64 {
            running.retain(|_, (_, ends)| *ends > now);
            waiting.extend(
                arrivals.iter().enumerate().filter(|(_, one)| one.at == now).map(|(n, one)| (n, queued(one))),
            );
            let claims: Vec<(u64, Vec<Ix>)> =
                running.iter().map(|(fence, (n, _))| (*fence, ixs(&arrivals[*n].set))).collect();
            let mut scene = Scene::new(&snapshot, &claims);
            let queue: Vec<Queued> = waiting.iter().map(|(_, one)| one.clone()).collect();
            let mut granted = BTreeSet::new();
            for place in in_order(&queue) {
                let (n, one) = &mut waiting[place];
                if look_at(&mut scene, one, at(now), patience, fence).is_ok() {
                    fence += 1;
                    scene.claim(fence, &one.set);
                    let takes = (arrivals[*n].hold * arrivals[*n].takes / 100).max(1);
                    running.insert(fence, (*n, now + takes));
                    starts.insert(*n, now);
                    granted.insert(*n);
                }
            }
            waiting.retain(|(n, _)| !granted.contains(n));
            let down: BTreeSet<usize> =
                running.values().flat_map(|(n, _)| arrivals[*n].set.iter().copied()).collect();
            prop_assert!(is_safe(&toy, &down), "{:?} at {}", down, now);
            if waiting.is_empty() && now > 600 {
                break;
            }
        }
        for (n, one) in arrivals.iter().enumerate() {
            let start = starts.get(&n);
            prop_assert!(start.is_some(), "{:?} never had its turn", one);
            let start = *start.unwrap();
            let ours = queued(one);
            // Those before it in the order, and what ran when it had waited enough: each takes its time once.
            let before = arrivals.iter().map(queued).filter(|other| other.order() <= ours.order()).count();
            let before = i64::try_from(before).unwrap();
            let enough = ours.waits_enough_at(patience).duration_since(at(0)).as_secs();
            let bound = enough + (before + 1) * (LONGEST + 1) + 1;
            prop_assert!(start <= bound, "{:?} waited until {}, at most {}", one, start, bound);
        }
    }

    /// The forecast is a schedule that can be kept, and says no earlier time than there can be.
    #[test]
    fn a_forecast_can_be_kept_and_is_never_too_early(
        toy in world(), held in prop::collection::vec((set(), 1..100_i64), 0..3),
        arrivals in prop::collection::vec(arrival(), 1..12), patience in 0..300_i64,
    ) {
        let snapshot = toy.snapshot(&BTreeSet::new());
        let mut scene = Scene::new(&snapshot, &[]);
        let mut running = Vec::new();
        for (fence, (set, ends)) in (1..).zip(&held) {
            if scene.fits(&ixs(set)).is_ok() {
                scene.claim(fence, &ixs(set));
                running.push(RunningClaim { fence, set: ixs(set), ends: at(*ends) });
            }
        }
        let queue: Vec<Queued> = arrivals
            .iter()
            .map(|one| queued(&Arrival { at: 0, ..one.clone() }))
            .collect();
        let patience = SignedDuration::from_secs(patience);
        let starts = forecast(&scene, &running, &queue, at(0), patience, 100);
        let none = BTreeSet::new();
        let mut events: BTreeSet<i64> = BTreeSet::from([0]);
        let seconds = |time: Timestamp| time.duration_since(at(0)).as_secs();
        for ((one, start), arrival) in queue.iter().zip(&starts).zip(&arrivals) {
            // One that fits alone has a time, and no other has one.
            prop_assert_eq!(start.is_some(), permits(&toy, &none, &arrival.set));
            let Some(start) = start else { continue };
            events.insert(seconds(*start));
            // As soon as what runs permits it, if nobody else asked.
            let soonest = events_of(&running)
                .into_iter()
                .find(|time| {
                    let down: BTreeSet<usize> = running
                        .iter()
                        .filter(|one| seconds(one.ends) > *time)
                        .flat_map(|one| one.set.iter().map(|at| at.at()))
                        .collect();
                    down.is_disjoint(&arrival.set) && permits(&toy, &down, &arrival.set)
                })
                .unwrap();
            prop_assert!(seconds(*start) >= soonest, "{:?} at {:?}, possible at {}", one, start, soonest);
        }
        for time in events {
            let of_asks = queue.iter().zip(&starts).filter_map(|(one, start)| {
                let start = seconds((*start)?);
                (start <= time && time < start + one.hold.as_secs()).then_some(&one.set)
            });
            let of_running = running.iter().filter(|one| seconds(one.ends) > time).map(|one| &one.set);
            let mut down = BTreeSet::new();
            for unit in of_asks.chain(of_running).flatten() {
                prop_assert!(down.insert(unit.at()), "{:?} is down twice at {}", unit, time);
            }
            prop_assert!(is_safe(&toy, &down), "{:?} at {}", down, time);
        }
    }
}

fn events_of(running: &[RunningClaim]) -> Vec<i64> {
    let ends = running.iter().map(|one| one.ends.duration_since(at(0)).as_secs());
    let all: BTreeSet<i64> = std::iter::once(0).chain(ends).collect();
    all.into_iter().collect()
}

/// A wide ask between two neighbours that never rest: it waits for its patience, and then they wait for it.
#[test]
fn a_stream_of_small_ones_does_not_keep_a_large_one_out() {
    let toy = Toy::new(2, vec![(vec![0], 1), (vec![1], 1), (vec![0, 1], 2)]);
    let snapshot = toy.snapshot(&BTreeSet::new());
    let patience = SignedDuration::from_secs(30);
    let mut large = queued(&Arrival {
        at: 0,
        set: BTreeSet::from([0, 1]),
        hold: 10,
        waits: None,
        takes: 100,
    });
    let small = |now: i64, unit: usize| {
        queued(&Arrival {
            at: now,
            set: BTreeSet::from([unit]),
            hold: 10,
            waits: None,
            takes: 100,
        })
    };
    let mut running: Vec<(u64, Vec<Ix>, i64)> = vec![(1, vec![Ix(0)], 10), (2, vec![Ix(1)], 15)];
    let mut fence = 2;
    for now in 0..200 {
        running.retain(|(_, _, ends)| *ends > now);
        let claims: Vec<(u64, Vec<Ix>)> = running
            .iter()
            .map(|(fence, set, _)| (*fence, set.clone()))
            .collect();
        let mut scene = Scene::new(&snapshot, &claims);
        if look_at(&mut scene, &mut large, at(now), patience, fence).is_ok() {
            assert!((30..=50).contains(&now), "it had its turn at {now}");
            return;
        }
        for unit in 0..2 {
            let mut one = small(now, unit);
            if look_at(&mut scene, &mut one, at(now), patience, fence).is_ok() {
                fence += 1;
                scene.claim(fence, &one.set);
                running.push((fence, one.set, now + 10));
            }
        }
    }
    panic!("it never had its turn");
}
