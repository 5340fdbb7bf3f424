//! What must never be, whatever is late, lost, paused or killed.

use serde::{Deserialize, Serialize};

use super::book::Book;
use super::rails::Setup;
use super::system::System;

/// A law of the run protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Law {
    /// The budget of one is never exceeded.
    OneDownAtMost,
    /// What has passed its wave is not taken down again.
    DoneStaysDone,
    /// The rows of the journal carry tokens that only grow.
    TokensOnlyGrow,
    /// No effect of an older token changes a unit after the newer holder's first effect on it.
    NewerThenNeverOlder,
    /// Every intent is settled or open, and no unit has two that are open.
    OneIntentAUnit,
    /// The command of an intent runs once, and never beside another on the same unit.
    EffectOnce,
    /// No unit is down without its guard.
    GuardWhileDown,
    /// When the run is over, all guards are given back.
    GuardGivenBack,
    /// Every append can follow those before it.
    JournalMakesSense,
    /// Nothing is stopped on a word of the judges that is older than what has gone down since.
    NoOldWord,
    /// From everywhere the end can be reached.
    EndReachable,
}

/// The first law that this state breaks.
pub(crate) fn broken(setup: &Setup, book: &Book, system: &System) -> Option<Law> {
    let journal = book.fold(system.journal);
    let units = &system.world.units;
    let over = journal.run.ended().is_some();
    let found = [
        (
            Law::OneDownAtMost,
            units.iter().filter(|unit| !unit.up).count() > 1,
        ),
        (
            Law::DoneStaysDone,
            units
                .iter()
                .zip(journal.passed)
                .any(|(unit, passed)| passed && !unit.up),
        ),
        (Law::OneIntentAUnit, journal.twice_open),
        (
            Law::GuardWhileDown,
            setup.guard && units.iter().any(|unit| !unit.up && !unit.guarded),
        ),
        (Law::GuardGivenBack, over && units.iter().any(|unit| unit.guarded)),
    ];
    let broken = found
        .into_iter()
        .find(|(law, broken)| *broken && setup.watches(*law));
    broken.map(|(law, _)| law)
}
