//! Units that are drained before they are changed: hosts of guests, and services behind a balancer.
//!
//! Such a unit goes out of service while it is up: guests leave it, or no request comes to it any more. Then it is rebooted or
//! restarted, and given back. Whoever leaves it drained keeps it out of service.

use stagger_core::model::{Drained, MoveKind, Phase, Revision, Snapshot, UnitId};
use stagger_core::plan::Move;
use stagger_core::run::Action;
use stagger_engine::cluster::{BackendError, Call};

use super::{CopiedState, SimulatedCluster};
use crate::scenario::InjectedFault;

/// So long a call waits for what it has restarted, in seconds.
const LONGEST_WAIT: u32 = 120;

impl SimulatedCluster {
    /// Whether units are drained before they are changed.
    pub(crate) fn drains(&self) -> bool {
        let copied = self.copy.as_ref().is_some_and(CopiedState::drains);
        self.carried.is_some() || self.spec.balanced.is_some() || copied
    }

    /// How many milliseconds a call takes there, and how many its answer takes then, beside the way.
    pub(crate) fn durations(&self, action: &Action) -> (u64, u64) {
        if !self.drains() {
            return (0, 0);
        }
        match action {
            Action::Visit {
                phase: Phase::Enter | Phase::Leave,
                moves,
                ..
            } => {
                let seconds = moves.iter().map(|a_move| u64::from(self.move_takes(a_move.how)));
                let moves = seconds.sum::<u64>() * 1000;
                // In a copy it is begun when it comes there, however long it goes on: an approval may be younger than that.
                if self.copy.is_some() {
                    (0, moves)
                } else {
                    (moves, 0)
                }
            }
            Action::Visit {
                phase: Phase::Change,
                unit,
                ..
            }
            | Action::Restart { unit }
            | Action::GoBack { unit, .. } => {
                let at = self.by_id.get(unit);
                // How long it takes in a copy is known, however long it is.
                let longest = self.copy.as_ref().map_or(LONGEST_WAIT, |_| u32::MAX);
                let seconds = at.map_or(0, |at| self.until_up(*at).min(longest));
                // A start takes up to a quarter more than usual.
                (0, u64::from(seconds) * 1250 + 1)
            }
            Action::Visit {
                phase: Phase::Prepare,
                ..
            }
            | Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => (0, 0),
        }
    }

    /// How many seconds a move takes.
    fn move_takes(&self, how: MoveKind) -> u32 {
        match &self.copy {
            Some(copy) => copy.move_takes(how),
            None => self.spec.guests.as_ref().map_or(0, |spec| spec.migrate),
        }
    }

    /// Why a visit cannot be carried out, with as much of it done as there is: it was taken out of service, and no more.
    /// Of a call that has failed so its host tells the same whenever it comes again. Who gives back only looks whether the unit
    /// answers, and looks anew each time, as real ones do.
    pub(crate) fn stops_half_way(&mut self, call: &Call, action: &Action) -> Result<(), BackendError> {
        let Action::Visit {
            unit, phase, moves, ..
        } = action
        else {
            return Ok(());
        };
        let Some(at) = self.by_id.get(unit).copied().filter(|_| self.drains()) else {
            return Ok(());
        };
        let key = call.key();
        if self.effects.contains(&key) {
            return Ok(());
        }
        let Some(why) = self.interrupted_drain(at, *phase, moves) else {
            return Ok(());
        };
        if *phase != Phase::Leave {
            self.failed.insert(key.clone(), why.clone());
        }
        Err(BackendError::transient(format!("call {key}"), why))
    }

    fn interrupted_drain(&mut self, unit: usize, phase: Phase, moves: &[Move]) -> Option<String> {
        let daemon = &self.daemons[unit];
        let id = daemon.id.clone();
        match phase {
            Phase::Leave if !daemon.up => {
                return Some(format!("{id} does not answer: it stays out of service"));
            }
            Phase::Enter if !daemon.up && self.carried.is_some() => {
                return Some(format!("{id} does not answer: repair it first"));
            }
            Phase::Change => {
                let who = self.foreign_guest(unit)?;
                return Some(format!("{id} is not out of service any more: {who} runs there"));
            }
            Phase::Enter => {}
            Phase::Prepare | Phase::Leave => return None,
        }
        let is_away = |a_move: &Move| {
            let to = self.by_id.get(&a_move.to);
            to.is_none_or(|to| !self.daemons[*to].serves())
        };
        if let Some(moved) = moves.iter().position(is_away) {
            self.enter(unit, &moves[..moved]);
            return Some(format!("{} is not in service", moves[moved].to));
        }
        let (fault, moved) = self.faults.iter().enumerate().find_map(|(fault, state)| {
            let is_left = |times: u32| times == 0 || state.used < times;
            match &state.fault {
                InjectedFault::DrainHangs { unit: of, times } if *of == id && is_left(*times) => {
                    Some((fault, 0))
                }
                InjectedFault::MoveFails { guest, times } if is_left(*times) => {
                    let place = moves.iter().position(|a_move| a_move.guest == *guest);
                    place.map(|place| (fault, place))
                }
                _ => None,
            }
        })?;
        self.faults[fault].used += 1;
        self.enter(unit, &moves[..moved]);
        Some(format!("{id} is drained, and what is on it does not leave"))
    }

    /// Takes a unit out of service.
    pub(crate) fn enter(&mut self, unit: usize, moves: &[Move]) {
        for a_move in moves {
            self.move_away(unit, a_move);
        }
        if self.daemons[unit].serves() {
            self.judge_drain(unit, moves);
        }
        let is_noted = self.carried.is_some();
        let daemon = &mut self.daemons[unit];
        daemon.drained = true;
        daemon.drained_by = self.caller.clone().filter(|_| is_noted);
        self.stands_otherwise(unit);
    }

    /// Changes a unit that is out of service, by a restart.
    pub(crate) fn change(&mut self, unit: usize, revision: &Revision) {
        if self.daemons[unit].serves() {
            self.judge_stop(unit, "restart");
        }
        self.judge_reboot(unit);
        self.fall(unit);
        self.count_down();
        self.daemons[unit].installed = revision.clone();
        self.start(unit);
    }

    /// Gives a unit back.
    pub(crate) fn leave(&mut self, unit: usize) {
        self.bring_back(unit);
        let daemon = &mut self.daemons[unit];
        daemon.drained = false;
        daemon.drained_by = None;
        daemon.leaves_when_up = false;
        self.stands_otherwise(unit);
        self.start(unit);
    }

    /// The corrective step: it is restarted if that has not been done, and given back once it is up.
    pub(crate) fn restart_and_leave(&mut self, unit: usize, wanted: &Revision) -> String {
        let daemon = &self.daemons[unit];
        let is_changed = daemon.runs == *wanted && (daemon.up || daemon.starting);
        if !is_changed && daemon.up && !self.running_on(unit).is_empty() {
            // As the real one: it is given back as it was.
            self.leave(unit);
            return "it was returned to service, and not restarted".to_owned();
        }
        if !is_changed && !self.daemons[unit].starting {
            self.change(unit, wanted);
        }
        self.give_back(unit);
        "restarted".to_owned()
    }

    /// Gives a unit back as soon as it is up.
    pub(crate) fn give_back(&mut self, unit: usize) {
        if self.daemons[unit].up {
            self.leave(unit);
        } else {
            self.daemons[unit].leaves_when_up = true;
            self.start(unit);
        }
    }

    fn stands_otherwise(&mut self, unit: usize) {
        self.watched.touched = true;
        self.generation += 1;
        self.settle(unit);
    }

    /// The units that answer and are drained, as everybody sees it.
    pub(crate) fn drained_units(&self) -> impl Iterator<Item = Drained> {
        let all = self.daemons.iter().filter(|daemon| daemon.drained && daemon.up);
        all.map(|daemon| Drained {
            unit: daemon.id.clone(),
            by: daemon.drained_by.clone(),
        })
    }

    /// The units that are drained, though they answer, and could be given back: by what was last seen, and now. Of one that did
    /// not answer then and has come up since, nobody could know.
    pub(crate) fn left_drained(&self) -> impl Iterator<Item = &UnitId> {
        let all = self.daemons.iter().enumerate();
        let left = all.filter(|(at, daemon)| daemon.drained && daemon.up && !self.answers_no(*at));
        let seen = self.last_shown();
        let was_seen = move |id: &UnitId| {
            let is_there = |seen: &Snapshot| seen.drained().iter().any(|drained| drained.unit == *id);
            seen.as_ref().is_none_or(is_there)
        };
        left.map(|(_, daemon)| &daemon.id).filter(move |id| was_seen(id))
    }
}

#[cfg(test)]
mod tests {
    use stagger_core::model::{RunId, Storage};

    use super::*;
    use crate::scenario::{BalancedSpec, GuestSpec, GuestsSpec, Level, PoolSpec, SimSpec, node_name};

    fn spec() -> SimSpec {
        toml::from_str("name = 'lab'\nrelease = '1'\nracks = 2\nhosts_per_rack = 2\nosds_per_host = 0\nmons = 0\nmgrs = 0")
            .unwrap()
    }

    /// Three nodes; a guest of 2 GiB on the first.
    fn nodes(memory: u32, faults: Vec<InjectedFault>) -> SimulatedCluster {
        let guest = GuestSpec {
            node: 0,
            standby: None,
            storage: Storage::Shared,
            runs: true,
            memory: 2_048,
            stuck: false,
        };
        let guests = GuestsSpec {
            memory: vec![4_096, memory, 4_096],
            migrate: 0,
            moving: stagger_core::model::EvacuationPolicy::default(),
            last: None,
            guests: vec![guest],
        };
        let spec = SimSpec {
            guests: Some(guests),
            ..spec()
        };
        seen(SimulatedCluster::new(spec, faults).unwrap())
    }

    /// After an observation, as each judgement is.
    fn seen(mut world: SimulatedCluster) -> SimulatedCluster {
        let now = world.time();
        world.snapshot(now).unwrap();
        world
    }

    fn visit(unit: UnitId, phase: Phase, moves: Vec<Move>) -> Action {
        Action::Visit {
            unit,
            phase,
            revision: "2".parse().unwrap(),
            moves,
        }
    }

    fn call(world: &mut SimulatedCluster, seq: u64, action: &Action) -> Result<String, BackendError> {
        let call = Call {
            run: RunId::new("r").unwrap(),
            seq,
            announced: 1,
            fence: 1,
            deadline: None,
        };
        world.perform(&call, action)
    }

    fn host_of_the_guest(world: &SimulatedCluster) -> u32 {
        world.capacity().unwrap().unwrap().guest(0).host
    }

    fn to_the_second() -> Vec<Move> {
        vec![Move {
            guest: "guest-0".to_owned(),
            how: MoveKind::Migrate,
            from: node_name(0).unwrap(),
            to: node_name(1).unwrap(),
        }]
    }

    #[test]
    fn a_node_is_emptied_rebooted_and_filled_again() {
        let mut world = nodes(4_096, Vec::new());
        let node = node_name(0).unwrap();
        call(&mut world, 1, &visit(node.clone(), Phase::Enter, to_the_second())).unwrap();
        assert_eq!((host_of_the_guest(&world), world.daemons[0].serves()), (1, false));
        call(
            &mut world,
            2,
            &visit(node.clone(), Phase::Change, to_the_second()),
        )
        .unwrap();
        let leave = visit(node, Phase::Leave, to_the_second());
        assert!(call(&mut world, 3, &leave).is_err(), "it is not up yet");
        while !world.daemons[0].up {
            world.go_on();
        }
        call(&mut world, 3, &leave).unwrap();
        assert_eq!((host_of_the_guest(&world), world.daemons[0].serves()), (0, true));
        assert_eq!(world.truth().violations, Vec::<String>::new());
        assert_eq!(world.truth().stops, 1);
    }

    #[test]
    fn a_guest_that_goes_down_with_its_node_is_found() {
        let mut world = nodes(4_096, Vec::new());
        call(
            &mut world,
            1,
            &visit(node_name(0).unwrap(), Phase::Change, Vec::new()),
        )
        .unwrap();
        assert_eq!(
            world.truth().violations.len(),
            1,
            "{:?}",
            world.truth().violations
        );
        assert!(world.truth().violations[0].contains("guest-0 run there"));
    }

    #[test]
    fn a_node_with_more_guests_than_memory_is_found() {
        let mut world = nodes(1_024, Vec::new());
        call(
            &mut world,
            1,
            &visit(node_name(0).unwrap(), Phase::Enter, to_the_second()),
        )
        .unwrap();
        assert!(world.truth().violations[0].contains("node-1 has more guests than memory"));
    }

    #[test]
    fn a_node_whose_guest_does_not_leave_is_drained_and_could_be_given_back() {
        let fails = InjectedFault::MoveFails {
            guest: "guest-0".to_owned(),
            times: 1,
        };
        let mut world = nodes(4_096, vec![fails]);
        let enter = visit(node_name(0).unwrap(), Phase::Enter, to_the_second());
        assert!(call(&mut world, 1, &enter).is_err());
        assert_eq!(host_of_the_guest(&world), 0);
        assert_eq!(world.left_drained().count(), 0, "nobody has seen it yet");
        let mut world = seen(world);
        assert_eq!(
            world.left_drained().map(UnitId::as_str).collect::<Vec<_>>(),
            ["node-0"]
        );
        call(
            &mut world,
            2,
            &visit(node_name(0).unwrap(), Phase::Leave, to_the_second()),
        )
        .unwrap();
        assert_eq!(world.left_drained().count(), 0);
    }

    #[test]
    fn the_last_of_a_group_that_is_drained_is_found() {
        let balanced = BalancedSpec {
            conductors: vec![0, 1, 0],
            apis: 2,
            held: false,
        };
        let spec = SimSpec {
            balanced: Some(balanced),
            ..spec()
        };
        let mut world = seen(SimulatedCluster::new(spec, Vec::new()).unwrap());
        for (seq, unit) in (1..).zip(["conductor.a", "api.b"]) {
            call(
                &mut world,
                seq,
                &visit(unit.parse().unwrap(), Phase::Enter, Vec::new()),
            )
            .unwrap();
        }
        assert_eq!(world.truth().violations, Vec::<String>::new());
        for (seq, unit) in (3..).zip(["conductor.b", "conductor.c", "api.a"]) {
            call(
                &mut world,
                seq,
                &visit(unit.parse().unwrap(), Phase::Enter, Vec::new()),
            )
            .unwrap();
        }
        assert_eq!(
            world.truth().violations.len(),
            3,
            "{:?}",
            world.truth().violations
        );
    }

    #[test]
    fn the_last_osd_of_a_site_that_is_stopped_is_found() {
        let pool = PoolSpec {
            name: "p".to_owned(),
            size: 4,
            min_size: 2,
            k: 1,
            domain: Level::Host,
            sites: 2,
            pgs: 1,
        };
        let spec = SimSpec {
            osds_per_host: 1,
            mons: 3,
            mgrs: 1,
            sites: 2,
            pools: vec![pool],
            ..spec()
        };
        let mut world = seen(SimulatedCluster::new(spec, Vec::new()).unwrap());
        for (seq, osd) in (1..).zip(["osd.0", "osd.1"]) {
            assert_eq!(world.truth().violations, Vec::<String>::new());
            call(
                &mut world,
                seq,
                &visit(osd.parse().unwrap(), Phase::Enter, Vec::new()),
            )
            .unwrap();
        }
        assert!(world.truth().violations[0].contains("OSDs in 1 sites left"));
        let mons = world
            .daemons
            .iter()
            .filter(|daemon| daemon.kind.as_str() == "mon");
        let sites: Vec<_> = mons.map(|mon| world.site_name(mon.host)).collect();
        assert_eq!(sites[2], None, "the tiebreaker");
    }
}
