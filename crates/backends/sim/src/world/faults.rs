//! Faults come and go, and people mend what they can.

use std::collections::BTreeSet;

use stagger_core::model::UnitId;

use super::{ScheduledEvent, SimulatedCluster};
use crate::scenario::InjectedFault;

impl SimulatedCluster {
    /// Counts a stop of an OSD by the run: faults may wait for it.
    pub(crate) fn osd_stopped_by_run(&mut self) {
        self.osd_stops += 1;
        let ready: Vec<(usize, u32)> = self
            .faults
            .iter()
            .enumerate()
            .filter(|(_, state)| state.armed)
            .filter_map(|(at, state)| {
                let when = state.fault.when()?;
                (when.osd_stop == self.osd_stops).then_some((at, when.at))
            })
            .collect();
        for (at, after) in ready {
            self.faults[at].armed = false;
            self.due(u64::from(after) * 1000, ScheduledEvent::FaultOn(at));
        }
    }

    pub(super) fn fault_on(&mut self, at: usize) {
        self.faults[at].on = true;
        self.changes += 1;
        // Who was down before may have another reason to be, and whom the run could start it cannot now.
        self.watched.touched = true;
        let fault = self.faults[at].fault.clone();
        if let Some(when) = fault.when().filter(|when| when.lasts > 0) {
            self.due(u64::from(when.lasts) * 1000, ScheduledEvent::FaultOff(at));
        }
        match fault {
            InjectedFault::Outage { what, .. } | InjectedFault::HostOff { host: what, .. } => {
                let hit: Vec<usize> = (0..self.daemons.len())
                    .filter(|unit| {
                        let daemon = &self.daemons[*unit];
                        daemon.id.as_str() == what
                            || self.host_name(daemon.host) == what
                            || self.rack_name(daemon.host) == what
                            || self.site_name(daemon.host).as_ref() == Some(&what)
                    })
                    .collect();
                for unit in &hit {
                    self.daemons[*unit].outages += 1;
                    self.daemons[*unit].failed |= self.daemons[*unit].installed != self.daemons[*unit].first;
                    if self.daemons[*unit].up {
                        self.truth.fault_hit(&self.daemons[*unit].id);
                    }
                    self.fall(*unit);
                    // One that was down already is down for another reason now.
                    self.settle(*unit);
                }
                self.faults[at].hit = hit;
            }
            InjectedFault::GuestStarts { guest, .. } => self.start_guest(guest as usize),
            InjectedFault::StalePgs { .. } => {
                self.frozen = Some(self.pgs.iter().map(|pg| pg.missing.clone()).collect());
            }
            _ => {}
        }
    }

    pub(super) fn fault_off(&mut self, at: usize) {
        if !std::mem::take(&mut self.faults[at].on) {
            return;
        }
        self.changes += 1;
        self.watched.touched = true;
        // A machine that boots starts whatever is enabled there, also what somebody had stopped.
        let boots = matches!(self.faults[at].fault, InjectedFault::HostOff { .. });
        for unit in std::mem::take(&mut self.faults[at].hit) {
            let daemon = &mut self.daemons[unit];
            daemon.outages = daemon.outages.saturating_sub(1);
            if daemon.wanted || (boots && daemon.baseline) {
                self.start(unit);
            }
        }
        if matches!(self.faults[at].fault, InjectedFault::StalePgs { .. }) {
            self.frozen = None;
        }
    }

    /// All faults end, and a person starts what ran at first and does not: all but what the run has in
    /// its hands.
    pub fn heal(&mut self, but: &BTreeSet<UnitId>) {
        self.healed = true;
        self.changes += 1;
        self.watched.touched = true;
        for at in 0..self.faults.len() {
            self.fault_off(at);
        }
        self.faults.clear();
        self.agenda.retain(|_, due| {
            !matches!(
                due,
                ScheduledEvent::FaultOn(_)
                    | ScheduledEvent::FaultOff(_)
                    | ScheduledEvent::Crash { .. }
                    | ScheduledEvent::Late(..)
            )
        });
        for unit in 0..self.daemons.len() {
            let daemon = &self.daemons[unit];
            if daemon.drained && !but.contains(&daemon.id) {
                self.give_back(unit);
            } else if daemon.wanted || (daemon.baseline && !but.contains(&daemon.id)) {
                self.start(unit);
            }
        }
    }

    /// Whether a host is off.
    pub(crate) fn is_off(&self, host: u32) -> bool {
        let name = self.host_name(host);
        self.offs().any(|off| *off == name)
    }

    /// The hosts that are off now.
    pub(crate) fn offs(&self) -> impl Iterator<Item = &String> {
        self.faults.iter().filter_map(|state| match &state.fault {
            InjectedFault::HostOff { host, .. } if state.on => Some(host),
            _ => None,
        })
    }

    /// A person starts all that is down, and gives back what is drained, but what the run has in its hands.
    pub(crate) fn start_all(&mut self, but: &BTreeSet<UnitId>) {
        for unit in 0..self.daemons.len() {
            let daemon = &self.daemons[unit];
            if daemon.serves() || daemon.destroyed || but.contains(&daemon.id) || self.is_off(daemon.host) {
                continue;
            }
            if daemon.drained {
                self.give_back(unit);
            } else {
                self.start(unit);
            }
        }
    }

    /// A person lets each pool serve with one less than it has, where that keeps its data.
    pub(crate) fn serve_with_one_less(&mut self) {
        for at in 0..self.spec.pools.len() {
            let groups = self.pgs.iter().filter(|pg| pg.pool == at);
            let there = groups.map(|pg| pg.shards.iter().flatten().count() as u32);
            let Some(least) = there.min() else { continue };
            let pool = &mut self.spec.pools[at];
            let wanted = least.saturating_sub(1).max(pool.k);
            // In as many sites as are left when one is lost.
            let sites = pool.sites.min(self.spec.sites.saturating_sub(1));
            if wanted < pool.min_size || sites < pool.sites {
                pool.min_size = pool.min_size.min(wanted);
                pool.sites = sites;
                self.generation += 1;
                self.watched.touched = true;
            }
        }
    }
}
