//! The daemons of the simulated cluster: how they start, fall and stand in for each other.

use stagger_core::model::{Kind, Revision, RunId, UnitId};
use stagger_core::plan::Move;

use super::{ScheduledEvent, SimulatedCluster};
use crate::rng::hash;
use crate::scenario::{FailsOn, InjectedFault};

/// A daemon as it truly is.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, in any combination"
)]
#[derive(Debug, Clone)]
pub(crate) struct SimDaemon {
    pub(crate) id: UnitId,
    pub(crate) kind: Kind,
    pub(crate) host: u32,
    /// Its number, if it is an OSD.
    pub(crate) osd: Option<u32>,
    pub(crate) out: bool,
    /// It is in the books only.
    pub(crate) destroyed: bool,
    /// Units of its kind stand in for each other within this group.
    pub(crate) group: u32,
    /// What it ran at first.
    pub(crate) first: Revision,
    /// What it starts when it starts.
    pub(crate) installed: Revision,
    /// What it runs, or ran last.
    pub(crate) runs: Revision,
    pub(crate) up: bool,
    /// Somebody wants it to run.
    pub(crate) wanted: bool,
    pub(crate) starting: bool,
    /// How many outages keep it down.
    pub(crate) outages: u32,
    /// Was up when all began.
    pub(crate) baseline: bool,
    /// The run stopped it, and what it missed since is not made good yet.
    pub(crate) ours: bool,
    /// The run stopped it, and has not asked it to start again.
    pub(crate) ours_to_give_back: bool,
    /// It is up, and kept from serving: its guests are elsewhere, or no request comes to it.
    pub(crate) drained: bool,
    /// Whose visit that is, as it is noted there.
    pub(crate) drained_by: Option<RunId>,
    /// The place of what was done to it last, in the journal.
    pub(crate) begun_by: u64,
    /// What was moved away from it, as it is noted there.
    pub(crate) away: Vec<Move>,
    /// It is given back as soon as it is up.
    pub(crate) leaves_when_up: bool,
    /// It fell, or did not come up as it usually does, on the release that it was changed to.
    pub(crate) failed: bool,
    /// Somebody tried to change it, and was told that it failed.
    pub(crate) change_failed: bool,
    /// Counts its starts and stops, so that what was due for one of them is not taken for another.
    pub(crate) turn: u64,
}

impl SimDaemon {
    /// Whether it does what it is there for.
    pub(crate) fn serves(&self) -> bool {
        self.up && !self.drained
    }
}

impl SimulatedCluster {
    /// A unit begins to start what is installed on it, if it does not run it.
    pub(crate) fn start(&mut self, unit: usize) {
        self.watched.touched = true;
        let late = self.slowness(unit) > 0;
        let daemon = &mut self.daemons[unit];
        daemon.wanted = true;
        daemon.ours_to_give_back &= daemon.drained;
        daemon.failed |= late && daemon.installed != daemon.first;
        if daemon.up || daemon.starting || daemon.outages > 0 {
            return;
        }
        daemon.starting = true;
        daemon.turn += 1;
        let turn = daemon.turn;
        let usual = self.usual_start(unit);
        let slow = self.slowness(unit);
        let spread = hash(&[self.spec.seed, unit as u64, turn]) % (u64::from(usual) * 250 + 1);
        self.due(
            u64::from(usual + slow) * 1000 + spread,
            ScheduledEvent::Up { unit, turn },
        );
    }

    /// From start to up, in seconds.
    pub(crate) fn until_up(&self, unit: usize) -> u32 {
        self.usual_start(unit) + self.slowness(unit)
    }

    /// From start to serving, in seconds.
    fn usual_start(&self, unit: usize) -> u32 {
        let daemon = &self.daemons[unit];
        match &self.copy {
            Some(copy) => copy.start(&daemon.kind),
            None if daemon.osd.is_some() => self.spec.seconds.restart_osd,
            None => self.spec.seconds.restart,
        }
    }

    fn slowness(&self, unit: usize) -> u32 {
        let id = &self.daemons[unit].id;
        self.faults
            .iter()
            .map(|state| match &state.fault {
                InjectedFault::Slow { unit, seconds } if unit == id => *seconds,
                _ => 0,
            })
            .sum()
    }

    fn fails_on(&self, unit: usize, on: FailsOn) -> bool {
        on == FailsOn::Any || self.daemons[unit].installed != self.daemons[unit].first
    }

    /// A unit has started, unless something keeps it from that.
    pub(super) fn finish_start(&mut self, unit: usize) {
        let id = self.daemons[unit].id.clone();
        self.daemons[unit].starting = false;
        let mut crash = None;
        for state in &self.faults {
            match &state.fault {
                InjectedFault::NeverReturns { unit: of, on } if *of == id && self.fails_on(unit, *on) => {
                    self.daemons[unit].failed = true;
                    return;
                }
                InjectedFault::Crashes {
                    unit: of,
                    after,
                    again,
                    on,
                } if *of == id && self.fails_on(unit, *on) => crash = Some((*after, *again)),
                _ => {}
            }
        }
        let daemon = &mut self.daemons[unit];
        daemon.up = true;
        daemon.runs = daemon.installed.clone();
        let turn = daemon.turn;
        self.generation += 1;
        if let Some((after, again)) = crash {
            self.due(
                u64::from(after) * 1000,
                ScheduledEvent::Crash { unit, turn, again },
            );
        }
        if self.daemons[unit].osd.is_some() {
            let recovery = u64::from(self.spec.seconds.recovery) * 1000;
            self.due(recovery, ScheduledEvent::Recovered { unit, turn });
            self.write_on(unit);
            self.settle(unit);
        }
        self.elect();
        self.watched.touched = true;
        if self.daemons[unit].leaves_when_up {
            self.leave(unit);
        }
    }

    /// A unit goes down, by whatever cause.
    pub(crate) fn fall(&mut self, unit: usize) {
        let daemon = &mut self.daemons[unit];
        daemon.turn += 1;
        daemon.starting = false;
        if !daemon.up {
            return;
        }
        daemon.up = false;
        self.watched.touched = true;
        self.generation += 1;
        self.write_on(unit);
        self.settle(unit);
        self.elect();
    }

    /// Another manager takes over from one that is down.
    pub(super) fn elect(&mut self) {
        if self.active_mgr.is_some_and(|mgr| self.daemons[mgr].up) {
            return;
        }
        let was = self.active_mgr;
        self.active_mgr = self.daemons.iter().position(|d| d.kind.as_str() == "mgr" && d.up);
        if was.is_some() || self.now > 0 {
            self.blind_until = self.now + u64::from(self.spec.seconds.blind) * 1000;
        }
    }

    /// The first metadata servers that are up are active.
    pub(crate) fn is_active(&self, unit: usize) -> bool {
        match self.daemons[unit].kind.as_str() {
            "mgr" => self.active_mgr == Some(unit),
            "mds" => {
                let before = self.daemons[..unit]
                    .iter()
                    .filter(|d| d.kind.as_str() == "mds" && d.up);
                self.daemons[unit].up && (before.count() as u32) < self.spec.mds_ranks
            }
            _ => false,
        }
    }
}
