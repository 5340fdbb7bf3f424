//! Judges each second of the world: what the run keeps from serving, and whether it has a reason to go back.

use std::collections::BTreeMap;

use stagger_core::model::Phase;

use super::SimulatedCluster;
use crate::scenario::InjectedFault;

/// How strictly a world judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tolerance {
    /// So long a judgement counts, in seconds: a stop that comes later has no excuse. `None`: nobody has said.
    pub(crate) approval: Option<u64>,
    /// So long the run may keep something from serving that something else has made it so, in seconds: it has to notice,
    /// and what it stopped has to be given back.
    pub(crate) to_notice: u64,
}

impl Tolerance {
    /// Of a world in which processes are killed, paused or cut off, or their journal fails: a lock has to expire, and
    /// whoever follows has to come and to rule out stray calls.
    pub(crate) const USUAL: Self = Self {
        approval: None,
        to_notice: 180,
    };

    /// One process is there all the time: a call that got no answer is made again after a minute at the latest.
    pub(crate) const TO_NOTICE_CALMLY: u64 = 90;
}

/// What is watched, and since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct MonitorState {
    /// What does not serve, and would if the run gave back what it holds: since when.
    kept: BTreeMap<String, u64>,
    /// Something has changed since it was last looked at.
    pub(crate) touched: bool,
}

impl SimulatedCluster {
    /// Time is about to pass with all as it is.
    pub(super) fn watch(&mut self) {
        if self.copy.is_some() || !std::mem::take(&mut self.watched.touched) {
            return;
        }
        let kept = self.units_left_down();
        let now = self.now;
        let before = std::mem::take(&mut self.watched.kept);
        for (what, since) in &before {
            if !kept.contains(what) {
                self.was_kept(what, *since);
            }
        }
        self.watched.kept = kept
            .into_iter()
            .map(|what| {
                let since = before.get(&what).copied().unwrap_or(now);
                (what, since)
            })
            .collect();
    }

    /// The story is over.
    pub(crate) fn watch_the_end(&mut self) {
        for (what, since) in std::mem::take(&mut self.watched.kept) {
            self.was_kept(&what, since);
        }
    }

    fn was_kept(&mut self, what: &str, since: u64) {
        let seconds = (self.now - since) / 1000;
        if seconds > self.grace.to_notice {
            let text = format!(
                "from {} s on {what} did not serve for {seconds} s, and would have if the run had cleared what it holds",
                since / 1000
            );
            self.truth.unsafe_seconds.push(text);
        }
    }

    /// A unit that the run has stopped and not asked to start again, though it could.
    fn is_held(&self, unit: usize) -> bool {
        let daemon = &self.daemons[unit];
        // One that is drained and on its way up was asked to start already.
        let is_out = !daemon.serves() && (daemon.up || !daemon.drained);
        daemon.ours_to_give_back
            && is_out
            && daemon.outages == 0
            && !self.answers_no(unit)
            && !self.said_off.contains(&self.host_name(daemon.host))
            && !self.enter_in_doubt(unit)
    }

    /// One call to drain it had no answer, and each one since is told that its requests do not end: the first may still be under
    /// way, so that one is what is made again, until a person settles it.
    fn enter_in_doubt(&self, unit: usize) -> bool {
        let id = &self.daemons[unit].id;
        let mut faults = self.faults.iter();
        let hangs =
            faults.any(|state| matches!(&state.fault, InjectedFault::DrainHangs { unit, .. } if unit == id));
        let mut faults = self.faults.iter();
        hangs
            && faults.any(|state| match &state.fault {
                InjectedFault::AnswerLost { unit, phase } | InjectedFault::CallLate { unit, phase, .. } => {
                    unit == id && *phase == Phase::Enter && state.used > 0
                }
                _ => false,
            })
    }

    /// Whoever calls it gets no for an answer, or none.
    pub(crate) fn answers_no(&self, unit: usize) -> bool {
        let id = &self.daemons[unit].id;
        self.faults.iter().any(|state| match &state.fault {
            InjectedFault::PerformFails { unit, times, .. } => unit == id && (*times == 0 || state.used > 0),
            InjectedFault::Blind { .. } => state.on,
            _ => false,
        }) || self.is_off(self.daemons[unit].host)
    }

    fn units_left_down(&self) -> Vec<String> {
        if !self.daemons.iter().any(|daemon| daemon.ours_to_give_back) {
            return Vec::new();
        }
        let mut kept = Vec::new();
        for at in 0..self.pgs.len() {
            let pg = &self.pgs[at];
            let pool = &self.spec.pools[pg.pool];
            let (mut up, mut whole, mut up_else, mut whole_else) = (0, 0, 0, 0);
            let (mut there, mut there_else) = (Vec::new(), Vec::new());
            for (osd, missing) in pg.shards.iter().zip(&pg.missing) {
                let Some(osd) = osd.map(|osd| osd as usize) else {
                    continue;
                };
                let is_up = self.daemons[osd].up;
                let would_be_up = is_up || self.is_held(osd);
                if pool.sites > 0 {
                    there.extend(is_up.then_some(osd as u32));
                    there_else.extend(would_be_up.then_some(osd as u32));
                }
                up += u32::from(is_up);
                whole += u32::from(is_up && !missing);
                up_else += u32::from(would_be_up);
                whole_else += u32::from(would_be_up && !missing);
            }
            let serves = |up: u32, whole: u32, there: Vec<u32>| {
                up >= pool.min_size && whole >= pool.k && self.sites(there.into_iter()) >= pool.sites
            };
            if !serves(up, whole, there) && serves(up_else, whole_else, there_else) {
                kept.push(format!("placement group {}", self.pg_name(at)));
            }
        }
        for service in self.services() {
            let up = self
                .members(service)
                .filter(|at| self.daemons[*at].serves())
                .count() as u32;
            let held = self.members(service).filter(|at| self.is_held(*at)).count() as u32;
            if up < service.need && up + held >= service.need {
                kept.push(format!("the service of the {}s", service.kind));
            }
        }
        kept
    }

    /// Whether anything speaks against the release that the run brings: somebody who runs it fell or does not
    /// serve, or did not come up in time; or somebody does not serve, and it was said that the change of it failed.
    pub(crate) fn speaks_against_the_change(&self) -> bool {
        let mut all = self.daemons.iter();
        all.any(|d| d.failed || ((d.change_failed || d.installed != d.first) && !d.up))
    }

    /// The units that the run has stopped and never asked to start again.
    pub(crate) fn stopped_units(&self) -> impl Iterator<Item = &str> {
        let all = self.daemons.iter().enumerate();
        let held = all.filter(|(at, daemon)| {
            self.copy.is_none() && self.is_held(*at) && !daemon.wanted && !daemon.drained
        });
        held.map(|(_, daemon)| daemon.id.as_str())
    }

    /// The units that serve on what they ran at first.
    pub(crate) fn not_on_another_release(&self) -> impl Iterator<Item = &str> {
        let all = self.daemons.iter();
        let same = all.filter(|daemon| daemon.up && daemon.baseline && daemon.runs == daemon.first);
        same.map(|daemon| daemon.id.as_str())
    }
}
