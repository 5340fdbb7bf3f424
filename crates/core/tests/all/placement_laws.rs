//! Laws of plans for hosts with guests, over random clusters.
use crate::hosts;

use std::collections::BTreeSet;

use hosts::{Case, Mix, Rng, case, mix};
use stagger_core::check::{Fault, check, may_empty};
use stagger_core::model::{
    Evacuate, Growth, Limit, LocalGuests, Maintenance, MoveKind, SharedGuests, Spare, Standbys, UnitId,
    UnitState,
};
use stagger_core::plan::{Plan, PlannedPart, PlannedStage, plan};

fn cases(count: u64, hosts: u64) -> impl Iterator<Item = (u64, Case)> {
    (0..count).map(move |seed| {
        let mut rng = Rng(seed);
        let mix = mix(&mut rng, hosts);
        (seed, case(&mut rng, mix))
    })
}

fn stage(plan: &mut Plan) -> Option<&mut PlannedStage> {
    plan.parts.iter_mut().find_map(|part| match part {
        PlannedPart::Stage(stage) => Some(stage),
        PlannedPart::Step(_) => None,
    })
}

#[test]
fn the_judge_finds_nothing_in_a_plan_of_ours() {
    let mut visited = 0;
    for (seed, case) in cases(6_000, 14) {
        case.ask(None, |ask| {
            let made = plan(ask);
            let findings = check(ask, &made);
            assert!(findings.is_empty(), "seed {seed}: {findings:#?}\n{made:#?}");
            visited += made.units();
        });
    }
    assert!(visited > 10_000, "only {visited} units are visited in all");
}

#[test]
fn the_same_with_many_hosts() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let mix = Mix {
            hosts: 60,
            guests_a_host: 8,
            ..mix(&mut rng, 1)
        };
        let case = case(&mut rng, mix);
        case.ask(None, |ask| {
            let made = plan(ask);
            let findings = check(ask, &made);
            assert!(findings.is_empty(), "seed {seed}: {findings:#?}");
            assert_eq!(made, plan(ask), "same input, same plan");
        });
    }
}

/// The parts of a wave fit as the whole does, with their own moves: while it goes on, some are down and others not yet,
/// or again.
#[test]
fn each_part_of_a_wave_is_permitted_with_its_own_moves() {
    let (mut parts, mut moved) = (0, 0);
    for (seed, mut case) in cases(5_000, 9) {
        case.policy.growth = Growth::None;
        case.policy.max_in_parallel = Limit::Percent(100);
        // Room that is just enough.
        if seed % 2 == 0 {
            for host in &mut case.hosts {
                host.free[0] -= host.free[0] % 10;
            }
        }
        case.ask(None, |ask| {
            let made = plan(ask);
            for wave in made.stages().flat_map(|stage| &stage.waves) {
                let count = wave.units.len().min(6);
                for mask in 1..1_usize << count {
                    let units: Vec<UnitId> = (0..count)
                        .filter(|at| mask & (1 << at) != 0)
                        .map(|at| wave.units[at].clone())
                        .collect();
                    let theirs = wave.moves.iter().filter(|a_move| units.contains(&a_move.from));
                    let moves: Vec<_> = theirs.cloned().collect();
                    parts += usize::from(units.len() < wave.units.len());
                    moved += moves.len();
                    let found = may_empty(ask.snapshot, &case.maintenance, &units, moves);
                    assert_eq!(found, Ok(()), "seed {seed}: {units:?} of {wave:#?}");
                }
            }
        });
    }
    assert!(parts > 10_000 && moved > 10_000, "{parts} parts, {moved} moves");
}

/// What a schedule has down together is bound as a wave is, also where nothing else binds it.
#[test]
fn a_schedule_keeps_to_the_policy() {
    let mut rng = Rng(1);
    let mix = Mix {
        hosts: 8,
        guests_a_host: 0,
        copied: 0,
        shared: 0,
        trouble: 0,
    };
    let mut case = case(&mut rng, mix);
    case.maintenance = Maintenance::default();
    case.policy.growth = Growth::None;
    case.policy.max_in_parallel = Limit::Count(8);
    let found = |case: &Case, made: &Plan| -> Vec<String> {
        let found = case.ask(None, |ask| check(ask, made));
        let broken = found.iter().filter(|one| one.fault == Fault::ScheduleBroken);
        broken.map(|finding| finding.detail.clone()).collect()
    };
    let at_once = |case: &Case| {
        let mut made = case.plan();
        assert_eq!(found(case, &made), [""; 0]);
        let turns = &mut stage(&mut made).unwrap().schedule.as_mut().unwrap().turns;
        for turn in turns {
            turn.start = 0;
        }
        found(case, &made)
    };
    assert_eq!(at_once(&case), [""; 0], "all eight may be down");
    let said = |case: &Case, fault: Fault| {
        let said = at_once(case);
        assert!(
            said.len() == 1 && said[0].contains(&fault.to_string()),
            "{fault} is not in {said:?}"
        );
    };
    let free = case.clone();
    case.policy.max_in_parallel = Limit::Count(2);
    said(&case, Fault::OverParallel);
    case.policy.max_in_parallel = Limit::Count(8);
    case.policy.growth = Growth::Double;
    said(&case, Fault::GrowthSkipped);
    case.policy = free.policy;
    for (at, unit) in case.units.iter_mut().enumerate() {
        unit.domains = [("rack".to_owned(), (at / 2).to_string())].into();
    }
    case.policy.max_domains = [("rack".to_owned(), 2)].into();
    said(&case, Fault::OverDomains);
}

/// Each fault is planted in plans in which there is a place for it, and found by its name.
#[test]
fn planted_faults_are_found() {
    let mut planted = [0_usize; 9];
    for (seed, mut case) in cases(3_000, 12) {
        // As much movement as there can be.
        case.policy.growth = Growth::None;
        case.policy.max_in_parallel = Limit::Percent(100);
        let sound = case.plan();
        let mut expect = |at: usize, fault: Fault, change: &dyn Fn(&mut PlannedStage) -> Option<()>| {
            let mut broken = sound.clone();
            if stage(&mut broken).and_then(change).is_none() {
                return;
            }
            planted[at] += 1;
            let found = case.ask(None, |ask| check(ask, &broken));
            assert!(
                found.iter().any(|finding| finding.fault == fault),
                "seed {seed}: {fault} is not among {found:?}"
            );
        };
        expect(0, Fault::MoveMissing, &|stage| {
            stage.waves.iter_mut().find_map(|wave| wave.moves.pop())?;
            Some(())
        });
        expect(1, Fault::MoveUncalledFor, &|stage| {
            let [one, other] = stage.waves.get_disjoint_mut([0, 1]).ok()?;
            one.moves.push(other.moves.first()?.clone());
            Some(())
        });
        expect(2, Fault::MoveUncalledFor, &|stage| {
            let wave = stage.waves.iter_mut().find(|wave| !wave.moves.is_empty())?;
            wave.moves.push(wave.moves[0].clone());
            Some(())
        });
        expect(3, Fault::MoveAstray, &|stage| {
            let wave = stage
                .waves
                .iter_mut()
                .find(|wave| wave.units.len() > 1 && !wave.moves.is_empty())?;
            let from = wave.moves[0].from.clone();
            wave.moves[0].to = wave.units.iter().find(|unit| **unit != from)?.clone();
            Some(())
        });
        expect(4, Fault::MoveAstray, &|stage| {
            let wave = stage.waves.iter_mut().find(|wave| !wave.moves.is_empty())?;
            wave.moves[0].to = wave.moves[0].from.clone();
            Some(())
        });
        expect(5, Fault::UnitMissing, &|stage| {
            stage
                .waves
                .iter_mut()
                .find(|wave| wave.units.len() > 1)?
                .units
                .pop();
            Some(())
        });
        expect(6, Fault::ScheduleBroken, &|stage| {
            stage.schedule.as_mut()?.turns.pop()?;
            Some(())
        });
        let last = case.maintenance.last.clone();
        expect(7, Fault::LastNotLast, &|stage| {
            let at = stage.waves.iter().position(|wave| {
                Some(&wave.units).is_some_and(|units| last.as_ref().is_some_and(|last| units.contains(last)))
            })?;
            let wave = stage.waves.remove(at);
            stage.waves.first()?;
            stage.waves.insert(0, wave);
            Some(())
        });
        // All waves at once: the schedule that would have everything down together.
        if sound.waves() > 1
            && sound
                .stages()
                .all(|stage| stage.schedule.as_ref().is_some_and(|s| s.turns.len() <= 1000))
        {
            let mut broken = sound.clone();
            let stage = stage(&mut broken).unwrap();
            for turn in &mut stage.schedule.as_mut().unwrap().turns {
                turn.start = 0;
                turn.seconds = 1;
            }
            let together: BTreeSet<&UnitId> = sound
                .stages()
                .flat_map(|s| &s.waves)
                .flat_map(|w| &w.units)
                .collect();
            let pair_broken = case.guests.iter().any(|guest| {
                let of = |host: u32| together.contains(&case.hosts[host as usize].unit);
                guest.standby.is_some_and(|standby| of(standby) && of(guest.host))
            });
            if pair_broken {
                planted[8] += 1;
                let found = case.ask(None, |ask| check(ask, &broken));
                assert!(
                    found.iter().any(|f| f.fault == Fault::ScheduleBroken),
                    "seed {seed}: {found:?}"
                );
            }
        }
    }
    assert!(planted.iter().all(|count| *count > 50), "{planted:?}");
}

/// Merging waves without placing anew is found where it breaks anything, and the schedule never takes longer
/// than the waves.
#[test]
fn a_schedule_is_never_longer_than_its_waves() {
    let (mut shorter, mut all) = (0, 0);
    for (seed, mut case) in cases(2_000, 14) {
        case.policy.canary_soak = 0;
        let made = case.plan();
        for stage in made.stages() {
            let waves: u32 = stage.waves.iter().map(|wave| wave.seconds).sum();
            let schedule = stage.schedule.as_ref().unwrap();
            assert!(
                schedule.seconds <= waves,
                "seed {seed}: {} s instead of {waves} s",
                schedule.seconds
            );
            all += 1;
            shorter += usize::from(schedule.seconds < waves);
        }
    }
    assert!(shorter * 10 > all, "{shorter} of {all} are shorter");
}

/// After a wave has been carried out and all is back, the new plan has no more waves than were left.
#[test]
fn a_plan_that_is_carried_on_never_gets_longer() {
    for (seed, mut case) in cases(1_500, 13) {
        case.policy.growth = Growth::None;
        let mut parent = case.plan();
        while parent.waves() > 0 {
            let Some(done) = parent.stages().next().map(|stage| stage.waves[0].units.clone()) else {
                break;
            };
            for unit in &mut case.units {
                if done.contains(&unit.id) {
                    unit.revision = Some("after".parse().unwrap());
                }
            }
            let next = case.ask(Some(&parent), plan);
            assert!(
                next.waves() < parent.waves(),
                "seed {seed}: {} waves after {}",
                next.waves(),
                parent.waves()
            );
            parent = next;
        }
        let again = case.plan();
        assert!(again.is_empty(), "seed {seed}: {again:?}");
    }
}

/// Who is left alone because there is no room really has none: no way to place its guests passes the predicate.
#[test]
fn few_waves_as_brute_force_finds_them() {
    let mut beaten = 0;
    let mut compared = 0;
    for seed in 0..1_200 {
        let mut rng = Rng(seed);
        let mix = Mix {
            hosts: 2 + rng.below(4),
            guests_a_host: 2,
            trouble: 0,
            ..mix(&mut rng, 1)
        };
        let mut case = case(&mut rng, mix);
        case.policy.growth = Growth::None;
        case.policy.max_in_parallel = Limit::Percent(100);
        case.maintenance.last = None;
        case.maintenance.one_at_a_time.clear();
        case.maintenance.moving.shared = SharedGuests::Sets;
        case.maintenance.moving.evacuate = Evacuate::Guests;
        if case.guests.len() > 7 {
            continue;
        }
        let made = case.plan();
        let todo: Vec<u32> = (0..case.hosts.len() as u32)
            .filter(|host| {
                let unit = &case.hosts[*host as usize].unit;
                let meant = case
                    .maintenance
                    .only
                    .as_ref()
                    .is_none_or(|only| only.contains(unit));
                meant && case.maintenance.moving.forbids(&case.capacity(), *host).is_none()
            })
            .collect();
        let truth = brute::Truth::new(&case);
        let possible: Vec<u32> = todo.iter().copied().filter(|host| truth.fits(&[*host])).collect();
        compared += 1;
        let fewest = truth.fewest(&possible);
        if made.units() < possible.len() || made.waves() > fewest {
            beaten += 1;
        }
        assert!(made.units() <= possible.len(), "seed {seed}");
        if made.units() == possible.len() {
            assert!(
                made.waves() >= fewest,
                "seed {seed}: fewer waves than are possible"
            );
            assert!(
                made.at_least() as usize <= fewest,
                "seed {seed}: {} claimed, {fewest} found",
                made.at_least()
            );
        }
    }
    assert!(compared > 500, "{compared}");
    assert!(beaten * 100 <= compared, "beaten {beaten} times of {compared}");
}

/// Clusters where nothing can be chosen: there the answer is exactly the fewest.
#[test]
fn without_a_choice_the_answer_is_exact() {
    for seed in 0..1_500 {
        let mut rng = Rng(seed);
        let mix = Mix {
            hosts: 2 + rng.below(5),
            guests_a_host: 3,
            copied: 100,
            shared: 0,
            trouble: 0,
        };
        let mut case = case(&mut rng, mix);
        case.policy.growth = Growth::None;
        case.policy.max_in_parallel = Limit::Percent(100);
        case.maintenance.last = None;
        case.maintenance.one_at_a_time.clear();
        case.maintenance.only = None;
        case.maintenance.moving.evacuate = Evacuate::Guests;
        case.maintenance.moving.local = LocalGuests::Accept;
        for guest in &mut case.guests {
            guest.stuck = None;
            guest.elsewhere = false;
            if guest.standby.is_none() {
                guest.runs = false;
            }
        }
        for host in &mut case.hosts {
            host.takes = true;
        }
        let truth = brute::Truth::new(&case);
        let all: Vec<u32> = (0..case.hosts.len() as u32).collect();
        let possible: Vec<u32> = all.into_iter().filter(|host| truth.fits(&[*host])).collect();
        let made = case.plan();
        assert_eq!(made.units(), possible.len(), "seed {seed}");
        let fewest = truth.fewest(&possible);
        assert_eq!(made.waves(), fewest, "seed {seed}");
        assert!(made.at_least() as usize <= fewest, "seed {seed}");
    }
}

#[test]
fn what_the_kept_memory_costs_is_only_ever_more() {
    let mut more = 0;
    for (seed, mut case) in cases(800, 9) {
        case.policy.growth = Growth::None;
        case.maintenance.moving.spare = Spare::Keep;
        let kept = case.plan();
        case.maintenance.moving.spare = Spare::Spend;
        let spent = case.plan();
        assert!(spent.units() >= kept.units(), "seed {seed}");
        more += usize::from(spent.units() > kept.units());
        case.maintenance.moving.standbys = Standbys::Exclude;
        let excluded = case.plan();
        assert!(
            excluded.waves() >= spent.waves() || excluded.units() < spent.units(),
            "seed {seed}"
        );
    }
    assert!(more > 20, "{more}");
}

#[test]
fn whoever_is_down_stays_where_it_is() {
    for (seed, case) in cases(1_000, 12) {
        let down: BTreeSet<&str> = case
            .guests
            .iter()
            .filter(|guest| !guest.runs)
            .map(|guest| guest.name.as_str())
            .collect();
        let made = case.plan();
        for wave in made.stages().flat_map(|stage| &stage.waves) {
            let moved: BTreeSet<&str> = wave.moves.iter().map(|a_move| a_move.guest.as_str()).collect();
            assert!(moved.is_disjoint(&down), "seed {seed}");
            if case.maintenance.moving.as_if_down {
                assert!(wave.moves.is_empty(), "seed {seed}");
            }
            // Its two hosts are never down together all the same.
            for guest in case.guests.iter().filter(|guest| !guest.runs) {
                let visited = |host: u32| wave.units.contains(&case.hosts[host as usize].unit);
                assert!(
                    !(visited(guest.host) && guest.standby.is_some_and(visited)),
                    "seed {seed}"
                );
            }
            let relocated = wave.moves.iter().any(|a_move| a_move.how == MoveKind::Relocate);
            assert!(
                !relocated || case.maintenance.moving.local == LocalGuests::Relocate,
                "seed {seed}"
            );
        }
        let serving = case
            .units
            .iter()
            .filter(|unit| unit.state == UnitState::Serving)
            .count();
        assert!(made.units() <= serving);
    }
}

mod brute {
    //! The truth by trying everything.

    use super::Case;
    use stagger_core::model::{Capacity, GuestHandling, Migration, MoveKind, Standbys};

    pub(crate) struct Truth<'a> {
        case: &'a Case,
        capacity: Capacity,
    }

    impl<'a> Truth<'a> {
        pub(crate) fn new(case: &'a Case) -> Self {
            Self {
                case,
                capacity: case.capacity(),
            }
        }

        /// Whether these hosts can go down together in any way.
        pub(crate) fn fits(&self, set: &[u32]) -> bool {
            let moving = &self.case.maintenance.moving;
            let guests = self.capacity.guests();
            let both = guests
                .iter()
                .any(|guest| set.contains(&guest.host) && guest.standby.is_some_and(|s| set.contains(&s)));
            if both {
                return false;
            }
            if moving.standbys == Standbys::Exclude {
                for standby in 0..self.capacity.hosts().len() as u32 {
                    let mut from: Vec<u32> = self
                        .capacity
                        .guests_with_standby(standby)
                        .iter()
                        .map(|guest| &guests[*guest as usize])
                        .filter(|guest| {
                            moving.turn(guest) == GuestHandling::ToStandby && set.contains(&guest.host)
                        })
                        .map(|guest| guest.host)
                        .collect();
                    from.dedup();
                    if from.len() > 1 {
                        return false;
                    }
                }
            }
            let going: Vec<u32> = (0..guests.len() as u32)
                .filter(|at| {
                    let guest = &guests[*at as usize];
                    set.contains(&guest.host) && moving.turn(guest) != GuestHandling::Stays
                })
                .collect();
            self.any_way(set, &going, &mut Vec::new())
        }

        fn any_way(&self, set: &[u32], going: &[u32], migrations: &mut Vec<Migration>) -> bool {
            let moving = &self.case.maintenance.moving;
            let Some((first, rest)) = going.split_first() else {
                return self.capacity.permit(moving, &[], set, migrations).is_ok();
            };
            let guest = self.capacity.guest(*first);
            let to: Vec<u32> = match moving.turn(guest) {
                GuestHandling::ToStandby => guest.standby.into_iter().collect(),
                GuestHandling::Anywhere | GuestHandling::WithDowntime => (0..self.capacity.hosts().len()
                    as u32)
                    .filter(|host| {
                        let to = self.capacity.host(*host);
                        to.takes && to.pool == self.capacity.host(guest.host).pool && !set.contains(host)
                    })
                    .collect(),
                GuestHandling::Stays => Vec::new(),
            };
            let how = if moving.turn(guest) == GuestHandling::WithDowntime {
                MoveKind::Relocate
            } else {
                MoveKind::Migrate
            };
            to.into_iter().any(|to| {
                migrations.push(Migration {
                    guest: *first,
                    how,
                    to,
                });
                let found = self.any_way(set, rest, migrations);
                migrations.pop();
                found
            })
        }

        /// The fewest waves, by trying all splits.
        pub(crate) fn fewest(&self, hosts: &[u32]) -> usize {
            let masks = 1_usize << hosts.len();
            let members = |mask: usize| -> Vec<u32> {
                (0..hosts.len())
                    .filter(|at| mask & (1 << at) != 0)
                    .map(|at| hosts[at])
                    .collect()
            };
            let fits: Vec<bool> = (0..masks).map(|mask| self.fits(&members(mask))).collect();
            let mut fewest = vec![usize::MAX; masks];
            fewest[0] = 0;
            for mask in 1..masks {
                let mut wave = mask;
                while wave > 0 {
                    if fits[wave] && fewest[mask & !wave] != usize::MAX {
                        fewest[mask] = fewest[mask].min(fewest[mask & !wave] + 1);
                    }
                    wave = (wave - 1) & mask;
                }
            }
            fewest[masks - 1]
        }
    }
}
