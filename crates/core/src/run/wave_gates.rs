//! Waits between waves: gates and approvals.

use jiff::{SignedDuration, Timestamp};

use super::decide::Decision;
use super::event::Event;
use super::gate;
use super::state::State;
use crate::model::{Code, ConditionName, Door, Doors, Gate, Reason, Snapshot};

impl State {
    pub(super) fn wait_for_door(&self, now: Timestamp, door: Option<&Door>) -> Option<Decision> {
        let door = door.filter(|door| !self.doors.contains(&door.name))?;
        match self.start.policy.doors {
            Doors::Ask => {
                let run = &self.start.run;
                let detail = format!("{}; `stagger approve {run} {}` passes it", door.why, door.name);
                Some(self.hold(Reason::new(Code::OneWayDoor, detail)))
            }
            Doors::AutoAfter(seconds) => {
                let since = self.last_wave.as_ref().map_or(self.started_at, |last| last.at);
                let soak = SignedDuration::from_secs(i64::from(seconds));
                let until = since.saturating_add(soak).unwrap_or(Timestamp::MAX);
                let why = Reason::new(Code::DoorSoaking, format!("{} opens by itself", door.name));
                (now < until).then_some(Decision::Wait {
                    until: Some(until),
                    why,
                })
            }
        }
    }

    /// Waits until the gates are open. After their timeout the run is held, and continues by itself when they
    /// open.
    pub(super) fn wait_for_gates(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        gates: &[Gate],
        at_once: bool,
    ) -> Option<Decision> {
        self.wait_until_open(
            now,
            snapshot,
            gates,
            &gate::closed_gates(gates, snapshot),
            at_once,
        )
    }

    /// The same before a wave, with one more thing that has to be so.
    pub(super) fn wait_for_gates_and(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        gates: &[Gate],
        shut_too: Option<(ConditionName, String)>,
    ) -> Option<Decision> {
        let mut shut = gate::closed_gates(gates, snapshot);
        shut.extend(shut_too);
        self.wait_until_open(now, snapshot, gates, &shut, true)
    }

    fn wait_until_open(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        gates: &[Gate],
        shut: &[(ConditionName, String)],
        at_once: bool,
    ) -> Option<Decision> {
        let turned = || Decision::Record(vec![Event::GatesTurned { shut: shut.to_vec() }]);
        let Some(before) = &self.gates else {
            return (!shut.is_empty() || !at_once).then(turned);
        };
        let names = |gates: &[(ConditionName, String)]| -> Vec<_> {
            gates.iter().map(|(name, _)| name.clone()).collect()
        };
        if names(&before.shut) != names(shut) {
            return Some(turned());
        }
        let holds = gates.iter().map(|gate| gate.hold).max().unwrap_or_default();
        if shut.is_empty() {
            let until = before.since.saturating_add(holds).unwrap_or(Timestamp::MAX);
            // What was seen counts: an answer that took long tells of the time when it was asked for.
            if snapshot.observed_at() < until && !at_once {
                let why = Reason::new(
                    Code::GatesHolding,
                    "all gates are open; they must stay so for a while",
                );
                return Some(Decision::Wait {
                    until: Some(until),
                    why,
                });
            }
            // What it is held by for another reason, as a door, the gates do not release.
            return self
                .held
                .as_ref()
                .filter(|(held, _)| held.code == Code::GatesShut)
                .map(|_| Decision::Record(vec![Event::Released]));
        }
        let text: Vec<_> = shut.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let reason = Reason::new(Code::GatesShut, text.join("; "));
        let usual = SignedDuration::from_secs(i64::from(self.start.policy.gate_timeout));
        let timeout = gates.iter().map(|gate| gate.timeout).max().unwrap_or(usual);
        let until = before.since.saturating_add(timeout).unwrap_or(Timestamp::MAX);
        Some(match &self.held {
            None if until <= now => Decision::Record(vec![Event::Held { reason }]),
            None => Decision::Wait {
                until: Some(until),
                why: reason,
            },
            Some(_) => Decision::Wait {
                until: None,
                why: reason,
            },
        })
    }
}
