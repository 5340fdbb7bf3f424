//! Which units caused the failure of a wave, and whether the change ever reached them.

use super::decide::Decision;
use super::event::Event;
use super::gate::{self, ExpectedUnit};
use super::visit::OpenWave;
use crate::model::{Reason, Snapshot, UnitId};

/// The wave fails because of these.
pub(super) fn fails(snapshot: &Snapshot, wave: &OpenWave, units: Vec<UnitId>, reason: Reason) -> Decision {
    let alone = change_never_reached(snapshot, wave, &units);
    Decision::Record(vec![Event::WaveFailed { units, reason, alone }])
}

/// Whether the change never came to those that are to blame, so that nothing speaks against it: they are as they were, or serve
/// on what they ran before.
pub(super) fn change_never_reached(snapshot: &Snapshot, wave: &OpenWave, blamed: &[UnitId]) -> bool {
    let changed = blamed
        .iter()
        .filter_map(|unit| Some((unit, wave.units.get(unit)?)))
        .filter(|(_, visit)| !visit.is_untouched());
    let wanted = changed.map(|(unit, visit)| (unit, ExpectedUnit::On(&visit.before)));
    !blamed.is_empty() && gate::not_serving(wanted, snapshot).is_empty()
}
