//! What a run does with guests: what the plan says, in the intents of their hosts, and not if there is no room any more.

use crate::begun;
use crate::hosts;

use std::collections::BTreeSet;

use hosts::{Case, Mix, Rng, case, mix};
use jiff::Timestamp;
use stagger_core::model::{
    Code, Evacuate, Growth, LocalGuests, Phase, Reason, Revision, UnitId, UnitState, Window,
};
use stagger_core::plan::Move;
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Entry, Event, Outcome, Run, TimedObservation, VisitState,
};

/// A run on a world in which everything works.
struct World {
    case: Case,
    run: Run,
    now: Timestamp,
    /// The moves of each visit that was begun, by its phase.
    intents: Vec<(UnitId, Phase, Vec<Move>)>,
    opened: Vec<(BTreeSet<UnitId>, Vec<Move>)>,
    dropped: u32,
}

impl World {
    fn new(mut case: Case) -> Self {
        case.policy.soak = 0;
        case.policy.canary_soak = 0;
        case.policy.gate_hold = 0;
        let start = begun::start(case.target().parts, case.policy.clone());
        Self {
            case,
            run: begun::run(start),
            now: Timestamp::UNIX_EPOCH,
            intents: Vec::new(),
            opened: Vec::new(),
            dropped: 0,
        }
    }

    fn write(&mut self, event: Event) -> u64 {
        let seq = self.run.seq() + 1;
        let at = self.now;
        self.run.apply(Entry { seq, at, event }).unwrap();
        seq
    }

    /// Goes on until effects like that are to be announced, and does not announce them; `None`: they never are.
    fn announced(&mut self, wanted: impl Fn(&[Effect]) -> bool) -> Option<Vec<Effect>> {
        for _ in 0..200 {
            let snapshot = self.case.snapshot();
            let seen = TimedObservation {
                snapshot: &snapshot,
                as_of: self.run.seq(),
            };
            match self.run.next(self.now, Some(seen)) {
                Decision::Act { fresh, .. } if wanted(&fresh) => return Some(fresh),
                _ if !self.step() => return None,
                _ => {}
            }
        }
        None
    }

    /// One decision carried out; `false`: nothing comes of going on.
    fn step(&mut self) -> bool {
        let snapshot = self.case.snapshot();
        let seen = TimedObservation {
            snapshot: &snapshot,
            as_of: self.run.seq(),
        };
        match self.run.next(self.now, Some(seen)) {
            Decision::Observe => {}
            Decision::Record(events) => {
                for event in events {
                    self.dropped += u32::from(matches!(event, Event::WaveDropped { .. }));
                    if let Event::WaveOpened { stage, units, .. } = &event {
                        let planned = self.run.plan().unwrap().stage(stage).unwrap();
                        let names = units.iter().map(|(unit, _)| unit.clone()).collect();
                        self.opened.push((names, planned.waves[0].moves.clone()));
                    }
                    self.write(event);
                }
            }
            Decision::Judge(sets) => {
                for units in sets {
                    let ours = match self.run.may_stop(&snapshot, &units) {
                        Ok(()) => Answer::Yes,
                        Err(why) => Answer::No { why },
                    };
                    self.write(Event::Judged {
                        units,
                        ours,
                        theirs: Answer::NoOracle,
                        facts: None,
                    });
                }
            }
            Decision::Act { fresh, .. } => {
                for Effect { action, before } in fresh {
                    let intent = self.write(Event::Intent {
                        action: action.clone(),
                        before,
                    });
                    if let Action::Visit {
                        unit,
                        phase,
                        revision,
                        moves,
                    } = action
                    {
                        if phase == Phase::Change {
                            let changed = self.case.units.iter_mut().find(|known| known.id == unit);
                            changed.unwrap().revision = Some(revision);
                        }
                        self.intents.push((unit, phase, moves));
                    }
                    let outcome = Outcome::Done { note: String::new() };
                    self.write(Event::Settled { intent, outcome });
                }
            }
            Decision::Wait {
                until: Some(until), ..
            } => self.now = until,
            Decision::Wait { until: None, .. } | Decision::Hold(_) | Decision::Over(_) => return false,
        }
        true
    }
}

#[test]
fn each_host_is_emptied_as_the_plan_says_and_nothing_else_is_moved() {
    let mut moved = 0;
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mix = mix(&mut rng, 10);
        let mut world = World::new(case(&mut rng, mix));
        for _ in 0..400 {
            if !world.step() {
                break;
            }
        }
        let planned: Vec<&Move> = world.opened.iter().flat_map(|(_, moves)| moves).collect();
        for phase in Phase::all() {
            let visits = world.intents.iter().filter(|(_, at, _)| *at == phase);
            let of_intents: BTreeSet<&Move> = visits.clone().flat_map(|(.., moves)| moves).collect();
            assert_eq!(of_intents, planned.iter().copied().collect(), "seed {seed}");
            for (unit, _, moves) in visits {
                assert!(moves.iter().all(|a_move| a_move.from == *unit), "seed {seed}");
            }
        }
        let visited: BTreeSet<&UnitId> = world.intents.iter().map(|(unit, ..)| unit).collect();
        let opened: BTreeSet<&UnitId> = world.opened.iter().flat_map(|(units, _)| units).collect();
        assert_eq!(visited, opened, "seed {seed}");
        assert_eq!(world.dropped, 0, "seed {seed}: nothing has changed");
        moved += planned.len();
    }
    assert!(moved > 300, "only {moved} guests are moved in all");
}

/// Between the plan and its wave a guest has grown, so that it fits nowhere: our own judge says so, and nothing of the
/// wave is touched.
#[test]
fn a_wave_that_has_no_room_any_more_is_dropped() {
    let mut dropped = 0;
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mix = mix(&mut rng, 10);
        let mut world = World::new(case(&mut rng, mix));
        while world.opened.is_empty() && world.step() {}
        let Some((_, moves)) = world.opened.first() else {
            continue;
        };
        let Some(first) = moves.first().cloned() else {
            continue;
        };
        let guest = world
            .case
            .guests
            .iter_mut()
            .find(|guest| guest.name == first.guest)
            .unwrap();
        guest.takes = [1_000_000; 4];
        let before = world.intents.len();
        for _ in 0..3 {
            world.step();
        }
        assert_eq!(world.dropped, 1, "seed {seed}: {first:?}");
        assert_eq!(world.intents.len(), before, "seed {seed}");
        dropped += 1;
    }
    assert!(dropped > 50, "only {dropped} waves");
}

/// One of a wave is empty, the others were not begun in time, and a guest of theirs has grown: whether there is room for it is
/// judged once more.
#[test]
fn who_was_not_begun_in_time_and_has_no_room_any_more_leaves_its_wave() {
    let mut left = 0;
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mix = mix(&mut rng, 10);
        let mut world = World::new(case(&mut rng, mix));
        let Some(entered) = world.announced(|fresh| fresh.len() > 1) else {
            continue;
        };
        let moved = entered[1..].iter().find_map(|effect| match &effect.action {
            Action::Visit { moves, .. } => moves.first().cloned(),
            _ => None,
        });
        let Some(moved) = moved else { continue };
        let intents: Vec<u64> = entered
            .into_iter()
            .map(|effect| world.write(effect.into()))
            .collect();
        for (at, intent) in intents.into_iter().enumerate() {
            let outcome = match at {
                0 => Outcome::Done { note: String::new() },
                _ => Outcome::NotBegun {
                    why: "it waited for others".to_owned(),
                },
            };
            world.write(Event::Settled { intent, outcome });
        }
        let guests = &mut world.case.guests;
        let guest = guests.iter_mut().find(|guest| guest.name == moved.guest).unwrap();
        guest.takes = [1_000_000; 4];
        // The first goes on to its end; then the rest is looked at.
        let is_left = |world: &World| {
            world
                .run
                .set_aside_units()
                .any(|(unit, reason, _)| *unit == moved.from && reason.code == Code::WorldHasMoved)
        };
        assert!(
            (0..20).any(|_| is_left(&world) || !world.step()) && is_left(&world),
            "seed {seed}"
        );
        left += 1;
    }
    assert!(left > 20, "only {left} waves");
}

/// Found by the simulator: a process ended while nodes were being emptied, and before another took over somebody had started a
/// guest where theirs were to go.
#[test]
fn who_takes_over_judges_what_is_being_emptied_as_if_it_were_at_home() {
    let mut judged = 0;
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mix = mix(&mut rng, 10);
        let mut world = World::new(case(&mut rng, mix));
        let Some(entered) = world.announced(|fresh| fresh.iter().any(|effect| !moves(effect).is_empty()))
        else {
            continue;
        };
        let units: Vec<UnitId> = entered
            .iter()
            .filter_map(|effect| effect.action.unit().cloned())
            .collect();
        let all: Vec<Move> = entered.iter().flat_map(moves).cloned().collect();
        for effect in entered {
            world.write(effect.into());
        }
        world.write(Event::LeaseTaken {
            fence: 2,
            holder: "another".to_owned(),
        });
        // Nothing has changed, and they may be emptied still.
        assert_eq!(
            world.run.may_stop(&world.case.snapshot(), &units),
            Ok(()),
            "seed {seed}"
        );
        let guests = &mut world.case.guests;
        let guest = guests
            .iter_mut()
            .find(|guest| guest.name == all[0].guest)
            .unwrap();
        guest.takes = [1_000_000; 4];
        let ours = world.run.may_stop(&world.case.snapshot(), &units);
        assert!(ours.is_err(), "seed {seed}: {all:?}");
        judged += 1;
    }
    assert!(judged > 50, "only {judged} waves");
}

fn moves(effect: &Effect) -> &[Move] {
    match &effect.action {
        Action::Visit { moves, .. } => moves,
        _ => &[],
    }
}

/// A world in which visits take their time, and what is moved is elsewhere meanwhile.
struct Slow {
    world: World,
    rng: Rng,
    /// Announced and not settled.
    open: Vec<(u64, UnitId, Phase, Vec<Move>)>,
    joined: u32,
    most_down: usize,
}

impl Slow {
    fn place(&self, unit: &UnitId) -> u32 {
        let hosts = &self.world.case.hosts;
        hosts.iter().position(|host| host.unit == *unit).unwrap() as u32
    }

    /// A guest runs there now; one with two copies has changed its sides.
    fn put(&mut self, guest: &str, to: &UnitId) {
        let to = self.place(to);
        let case = &mut self.world.case;
        let guest = case.guests.iter_mut().find(|known| known.name == guest).unwrap();
        let from = std::mem::replace(&mut guest.host, to);
        if guest.standby.is_some() {
            assert_eq!(guest.standby, Some(to), "a copy is elsewhere");
            guest.standby = Some(from);
        }
        let takes = guest.takes;
        for (resource, takes) in takes.iter().enumerate().take(3) {
            case.hosts[from as usize].free[resource] += takes;
            case.hosts[to as usize].free[resource] -= takes;
        }
    }

    fn settle_one(&mut self) {
        let at = self.rng.below(self.open.len() as u64) as usize;
        let (intent, unit, phase, moves) = self.open.remove(at);
        let host = self.place(&unit) as usize;
        let set = |case: &mut Case, state| {
            case.units
                .iter_mut()
                .find(|known| known.id == unit)
                .unwrap()
                .state = state;
            case.hosts[host].takes = state == UnitState::Serving;
        };
        match phase {
            Phase::Prepare => {}
            Phase::Enter => {
                set(&mut self.world.case, UnitState::Down);
                for a_move in &moves {
                    self.put(&a_move.guest, &a_move.to);
                }
            }
            Phase::Change => {
                let units = &mut self.world.case.units;
                let changed = units.iter_mut().find(|known| known.id == unit).unwrap();
                changed.revision = Some("after".parse().unwrap());
            }
            Phase::Leave => {
                set(&mut self.world.case, UnitState::Serving);
                for a_move in moves.iter().rev() {
                    self.put(&a_move.guest, &unit);
                }
            }
        }
        let outcome = Outcome::Done { note: String::new() };
        self.world.write(Event::Settled { intent, outcome });
        self.judge();
    }

    /// Nothing that runs is on what is down, nothing is over-full, and no pair is down.
    fn judge(&mut self) {
        let case = &self.world.case;
        let down: BTreeSet<u32> = (0_u32..)
            .zip(&case.hosts)
            .filter(|(_, host)| {
                let unit = case.units.iter().find(|unit| unit.id == host.unit);
                unit.unwrap().state != UnitState::Serving
            })
            .map(|(at, _)| at)
            .collect();
        self.most_down = self.most_down.max(down.len());
        for guest in &case.guests {
            let pair_is_down = guest.standby.is_some_and(|standby| down.contains(&standby));
            assert!(
                !(down.contains(&guest.host) && pair_is_down),
                "both copies of {} are down",
                guest.name
            );
            assert!(
                !(guest.runs && down.contains(&guest.host)),
                "{} went down",
                guest.name
            );
        }
        for host in &case.hosts {
            // Processors and spindles may be overrun by what one host alone sends to its standbys.
            assert!(host.free[0] >= 0, "{host:?} is over-full");
        }
    }

    /// Beside others that are done and others that are changed; and never the last one.
    fn may_join(&self, units: &[(UnitId, Revision)]) {
        let visits = || self.world.run.wave().unwrap().units.values();
        assert!(visits().any(|visit| visit.state == VisitState::Done));
        assert!(visits().any(|visit| visit.state != VisitState::Done));
        let last = self.world.case.maintenance.last.as_ref();
        assert!(
            !units.iter().any(|(unit, _)| Some(unit) == last),
            "{last:?} joins"
        );
        let is_first = self.world.run.waves_passed() == 0;
        assert!(!is_first || self.world.case.policy.growth == Growth::None);
        let parent = self.world.run.plan().unwrap().parent.clone();
        assert!(is_first || parent.is_some(), "a plan carries on the one before");
    }

    fn step(&mut self) -> bool {
        let snapshot = self.world.case.snapshot();
        let seen = TimedObservation {
            snapshot: &snapshot,
            as_of: self.world.run.seq(),
        };
        match self.world.run.next(self.world.now, Some(seen)) {
            Decision::Act { fresh, .. } => {
                let nothing_new = fresh.is_empty();
                for Effect { action, before } in fresh {
                    let Action::Visit {
                        unit, phase, moves, ..
                    } = action.clone()
                    else {
                        panic!("{action:?}")
                    };
                    let intent = self.world.write(Event::Intent { action, before });
                    self.open.push((intent, unit, phase, moves));
                }
                if nothing_new || self.rng.percent(50) {
                    self.settle_one();
                }
                true
            }
            Decision::Record(events) => {
                for event in events {
                    if let Event::WaveJoined { units, .. } = &event {
                        self.joined += 1;
                        self.may_join(units);
                    }
                    assert!(!matches!(event, Event::WaveDropped { .. }), "{event:?}");
                    self.world.write(event);
                }
                true
            }
            _ => self.world.step(),
        }
    }
}

/// A cluster whose hosts may be empty one after another, in a run without barriers.
fn without_barriers(seed: u64) -> Option<Slow> {
    let mut rng = Rng(seed);
    let mix = Mix {
        hosts: 4 + rng.below(8),
        trouble: 0,
        ..mix(&mut rng, 1)
    };
    let mut case = case(&mut rng, mix);
    case.maintenance.flowing = true;
    case.maintenance.moving.as_if_down = false;
    case.maintenance.moving.evacuate = Evacuate::Guests;
    case.maintenance.moving.local = LocalGuests::Accept;
    let over_full = case.hosts.iter().any(|host| host.free[0] < 0);
    (!over_full).then(|| Slow {
        world: World::new(case),
        rng: Rng(seed + 1),
        open: Vec::new(),
        joined: 0,
        most_down: 0,
    })
}

/// Hosts join as others are done, and at every moment what is down may be down together.
#[test]
fn without_barriers_hosts_join_as_others_are_done() {
    let (mut joined, mut ended) = (0, 0);
    for seed in 0..600 {
        let Some(mut slow) = without_barriers(seed) else {
            continue;
        };
        let before = slow.world.case.guests.clone();
        let over = (0..3_000).any(|_| !slow.step());
        assert!(over, "seed {seed}: it never ends");
        assert_eq!(slow.world.case.guests, before, "seed {seed}: all are back");
        joined += slow.joined;
        ended += 1;
    }
    assert!(ended > 100 && joined > 100, "{joined} joined in {ended} runs");
}

/// Hosts wait for each other only where that is wanted: of the run, or of all runs by policy.
#[test]
fn with_barriers_no_host_joins() {
    for (flowing, barrier, joins) in [(false, true, false), (false, false, true), (true, true, true)] {
        let mut joined = 0;
        for mut slow in (0..100).filter_map(without_barriers) {
            slow.world.case.maintenance.flowing = flowing;
            slow.world.case.policy.barrier = barrier;
            slow.world = World::new(slow.world.case);
            while slow.step() {}
            joined += slow.joined;
        }
        assert_eq!(joined > 0, joins, "{joined} joined");
    }
}

/// Whoever is under way comes to its end, and nobody more is begun.
#[test]
fn no_host_joins_once_a_person_is_wanted_or_has_asked_for_an_end() {
    let asked = |command| Event::Asked {
        command,
        by: "anna@ops1".to_owned(),
    };
    let why = || Reason::new(Code::GatesShut, "as somebody found");
    for stop in [
        asked(Command::Pause),
        asked(Command::Abort),
        asked(Command::Rollback),
        Event::Held { reason: why() },
    ] {
        let mut stopped = 0;
        for mut slow in (0..200).filter_map(without_barriers) {
            while slow.joined == 0 && slow.step() {}
            if slow.joined == 0 {
                continue;
            }
            slow.world.write(stop.clone());
            // Whoever is in the wave has its turn, and is waited for.
            while slow.world.run.wave().is_some() && slow.step() {}
            assert_eq!(slow.joined, 1, "{stop:?}");
            stopped += 1;
        }
        assert!(stopped > 20, "{stopped}");
    }
}

/// A wave that was begun inside a window is finished after it.
#[test]
fn no_host_joins_outside_the_windows_of_policy() {
    let window = serde_json::json!({ "from": "22:00", "until": "23:00", "zone": "UTC" });
    let window: Window = serde_json::from_value(window).unwrap();
    let mut stopped = 0;
    for mut slow in (0..100).filter_map(without_barriers) {
        slow.world.case.policy.windows = vec![window.clone()];
        slow.world = World::new(slow.world.case);
        slow.world.now = Timestamp::from_second(22 * 3600).unwrap();
        let _ = (0..600).any(|_| slow.joined > 0 || !slow.step());
        if slow.joined == 0 {
            continue;
        }
        // What is planned takes its time, and would end after it.
        slow.world.now = Timestamp::from_second(23 * 3600 - 1).unwrap();
        let _ = (0..300).any(|_| slow.world.run.wave().is_none() || !slow.step());
        assert_eq!(slow.joined, 1);
        stopped += 1;
    }
    assert!(stopped > 5, "{stopped}");
}

/// What is done and fails is no room that was made.
#[test]
fn no_host_joins_while_one_that_is_done_does_not_serve() {
    let mut fallen = 0;
    for mut slow in (0..200).filter_map(without_barriers) {
        let next = |slow: &Slow| {
            let snapshot = slow.world.case.snapshot();
            let as_of = slow.world.run.seq();
            let seen = TimedObservation {
                snapshot: &snapshot,
                as_of,
            };
            slow.world.run.next(slow.world.now, Some(seen))
        };
        let is_asked = |slow: &Slow| {
            let visits = slow.world.run.wave().map(|wave| &wave.units);
            let is_done = visits.is_some_and(|all| all.values().any(|visit| visit.state == VisitState::Done));
            is_done && matches!(next(slow), Decision::Judge(_))
        };
        let found = (0..600).any(|_| is_asked(&slow) || !slow.step());
        if !found || !is_asked(&slow) {
            continue;
        }
        let visits = &slow.world.run.wave().unwrap().units;
        let done = visits.iter().find(|(_, visit)| visit.state == VisitState::Done);
        let done = done.unwrap().0.clone();
        let units = &mut slow.world.case.units;
        units.iter_mut().find(|unit| unit.id == done).unwrap().state = UnitState::Down;
        assert!(!matches!(next(&slow), Decision::Judge(_)), "{done} is down");
        fallen += 1;
    }
    assert!(fallen > 20, "only {fallen}");
}
