//! What a journal that was put back from a backup knows nothing of any more.

use stagger_core::model::GuardName;
use stagger_engine::backend::Call;

use super::World;

/// Whether the journal knows of all that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Begun {
    /// It does.
    #[default]
    Known,
    /// It has lost some of it, and nobody has carried the run on since.
    Forgotten,
    /// So it is, and whoever carries the run on was told.
    Told,
}

impl World {
    /// The journal has lost what came after that event.
    pub(crate) fn journal_lost(&mut self, after: u64) {
        self.lost.push((self.fence, after));
        let lost = self.taken_by.iter().filter(|(_, seq)| **seq > after);
        let lost: Vec<_> = lost.map(|(guard, _)| guard.clone()).collect();
        self.orphans.extend(lost);
        self.watched.touched = true;
        for daemon in self.daemons.iter_mut().filter(|daemon| daemon.begun_by > after) {
            // Nothing that the run has tells of it any more.
            daemon.ours_to_give_back = false;
            daemon.begun_by = after;
            self.begun = Begun::Forgotten;
        }
    }

    /// Whether the journal knows nothing of that call any more.
    pub(crate) fn has_lost(&self, call: &Call) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(fence, after)| call.announced <= *fence && call.seq > *after)
    }

    /// Whoever carries the run on was told that the journal is older than the cluster knows.
    pub(crate) fn told_behind(&mut self) {
        if self.begun == Begun::Forgotten {
            self.begun = Begun::Told;
        }
    }

    /// Somebody carries the run on: of what its journal has lost the cluster must have told.
    pub(crate) fn carried_on(&mut self) {
        if std::mem::take(&mut self.begun) == Begun::Forgotten {
            let at = self.elapsed() / 1000;
            let text = format!("at {at} s, the journal has lost what was begun, and nobody was told");
            self.truth.untold.push(text);
        }
    }

    /// The guards that are set now, of which the run knows.
    pub(crate) fn guards_known(&self) -> impl Iterator<Item = &GuardName> {
        let now = self.now;
        let set = self.guards.iter().filter(move |(_, until)| **until > now);
        set.map(|(guard, _)| guard)
            .filter(|guard| !self.orphans.contains(*guard))
            .map(|(name, _)| name)
    }
}
