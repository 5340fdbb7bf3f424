//! A fault that comes later, outside the open wave: it is not the wave's, and the wave does not go back
//! because of it.

use super::decide::Decision;
use super::event::Event;
use super::state::{OpenWave, State};
use crate::model::{Reason, Snapshot, Unit, UnitState};

/// Why a run is held whose wave serves, while something else has failed since it was opened.
pub(super) const FAULT_OUTSIDE: &str = "fault-outside-the-wave";

impl State {
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
        let was_held = self
            .held
            .as_ref()
            .is_some_and(|(held, _)| held.slug == FAULT_OUTSIDE);
        let fallen: Vec<&Unit> = fallen_outside(snapshot, wave).collect();
        if fallen.is_empty() {
            return was_held.then(|| Decision::Record(vec![Event::Released]));
        }
        let names: Vec<_> = fallen.iter().take(8).map(|unit| unit.id.as_str()).collect();
        let more = match fallen.len() {
            0..=8 => String::new(),
            many => format!(" and {} more", many - 8),
        };
        let reason = Reason::new(
            FAULT_OUTSIDE,
            format!(
                "{}{more} served when the wave was opened and do not now; the wave stays as it is: {}",
                names.join(" "),
                why.detail
            ),
        );
        Some(if was_held {
            Decision::Wait {
                until: None,
                why: reason,
            }
        } else {
            Decision::Record(vec![Event::Held { reason }])
        })
    }
}

/// What is not of the wave, served when it was opened, and does not now.
fn fallen_outside<'a>(snapshot: &'a Snapshot, wave: &'a OpenWave) -> impl Iterator<Item = &'a Unit> {
    snapshot
        .units()
        .iter()
        .filter(|unit| unit.state != UnitState::Serving)
        .filter(|unit| !wave.units.contains_key(&unit.id) && !wave.not_serving.contains(&unit.id))
}
