//! Faults that appear later and outside the wave: the wave is not rolled back because of them.

use super::decide::Decision;
use super::event::Event;
use super::state::State;
use super::visit::{OpenWave, VisitState};
use crate::model::{Code, Reason, Snapshot, Unit, UnitId, UnitState};

impl State {
    /// Holds until the gates open: while every unit of the wave serves as it should, what shuts them is no evidence
    /// against the change (law 10).
    pub(super) fn hold_for_gates(&self, why: &Reason) -> Decision {
        let lost = self.wave.iter().flat_map(|wave| &wave.units);
        let lost: Vec<String> = lost
            .filter_map(|(unit, visit)| {
                let VisitState::Lost { why, .. } = &visit.state else {
                    return None;
                };
                Some(format!("{unit}: {why}"))
            })
            .collect();
        let detail = match lost.as_slice() {
            [] => format!("every unit of the wave serves as it should, and {}", why.detail),
            lost => format!(
                "{}; `stagger resume {}` once it is back; the others of the wave serve, and {}",
                lost.join("; "),
                self.start.run,
                why.detail
            ),
        };
        self.hold_while(Code::GatesShut, Some(detail))
            .unwrap_or_else(|| self.hold(Reason::new(Code::GatesShut, why.detail.clone())))
    }

    /// Holds while units outside the wave that served when it was opened do not serve; `None`: there
    /// are none.
    ///
    /// The visits of the wave were done, and its gates stayed shut for `why`. Taking its units back would
    /// stop more while the cluster is weaker than it was, and heal nothing; one that is down too most
    /// likely has the same cause. Once the fault is gone recovery gets the time that a wave's gates have.
    pub(super) fn hold_for_outside(
        &self,
        snapshot: &Snapshot,
        wave: &OpenWave,
        why: &Reason,
    ) -> Option<Decision> {
        let fallen: Vec<&Unit> = units_down_outside_wave(snapshot, wave).collect();
        if fallen.is_empty() {
            return self.hold_while(Code::FaultOutsideTheWave, None);
        }
        let names: Vec<_> = fallen.iter().take(8).map(|unit| unit.id.as_str()).collect();
        let more = match fallen.len() {
            0..=8 => String::new(),
            many => format!(" and {} more", many - 8),
        };
        let detail = format!(
            "{}{more} failed outside the open wave, which is not rolled back: {}",
            names.join(" "),
            why.detail
        );
        self.hold_while(Code::FaultOutsideTheWave, Some(detail))
    }

    /// Holds while units of the wave do not serve, or had a failed visit, and must be skipped: as when a node
    /// was cordoned in mid-wave. `None`: there are none.
    ///
    /// No action on them can help before that is over, and their state says nothing about the change. So they
    /// are not restarted, the wave's timeout does not run, and it is not rolled back.
    pub(super) fn hold_for_skipped_units(&self, snapshot: &Snapshot, wave: &OpenWave) -> Option<Decision> {
        let stuck = |id: &UnitId| {
            let unit = snapshot.unit(snapshot.find(id)?);
            let why = unit.untouchable.as_ref()?;
            let failed = wave.units.get(id).is_some_and(|visit| visit.failed().is_some());
            (failed || unit.state != UnitState::Serving).then(|| format!("{id}: {}", why.detail))
        };
        let stuck: Vec<String> = wave.units.keys().filter_map(stuck).collect();
        self.hold_while(Code::WaveLeftAlone, (!stuck.is_empty()).then(|| stuck.join("; ")))
    }

    /// Held for that reason while there is something to say, then released; `None`: neither.
    fn hold_while(&self, code: Code, detail: Option<String>) -> Option<Decision> {
        let was_held = self.held.as_ref().is_some_and(|(held, _)| held.code == code);
        match detail {
            None => was_held.then(|| Decision::Record(vec![Event::Released])),
            Some(detail) => {
                let why = Reason::new(code, detail);
                Some(if was_held {
                    Decision::Wait { until: None, why }
                } else {
                    Decision::Record(vec![Event::Held { reason: why }])
                })
            }
        }
    }
}

/// Units outside the wave that served when it was opened, and do not serve now.
fn units_down_outside_wave<'a>(snapshot: &'a Snapshot, wave: &'a OpenWave) -> impl Iterator<Item = &'a Unit> {
    snapshot
        .units()
        .iter()
        .filter(|unit| unit.state != UnitState::Serving)
        .filter(|unit| !wave.units.contains_key(&unit.id) && !wave.not_serving.contains(&unit.id))
}
