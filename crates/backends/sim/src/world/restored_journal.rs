//! What a journal that was put back from a backup knows nothing of any more.

use stagger_core::model::GuardName;
use stagger_engine::cluster::Call;

use super::SimulatedCluster;

/// Whether the journal knows of all that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum JournalState {
    /// It does.
    #[default]
    Known,
    /// It has lost some of it, and nobody has carried the run on since.
    Forgotten,
    /// So it is, and whoever carries the run on was told.
    Told,
}

impl SimulatedCluster {
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
            self.begun = JournalState::Forgotten;
        }
    }

    /// A call was on its way when the journal was put back to before it: what it does is lost as if it had been done by then.
    /// Whoever takes the lock next has to be told, and nobody who has taken it since.
    pub(crate) fn record_lost_call(&mut self, unit: usize, call: &Call) {
        self.daemons[unit].ours_to_give_back = false;
        if call.fence == self.fence {
            self.begun = JournalState::Forgotten;
        }
    }

    /// Whether the journal knows nothing of that call any more.
    pub(crate) fn is_lost(&self, call: &Call) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(fence, after)| call.announced <= *fence && call.seq > *after)
    }

    /// Whoever carries the run on was told that the journal is older than the cluster knows.
    pub(crate) fn record_behind(&mut self) {
        if self.begun == JournalState::Forgotten {
            self.begun = JournalState::Told;
        }
    }

    /// Somebody carries the run on: of what its journal has lost the cluster must have told.
    pub(crate) fn resume(&mut self) {
        if std::mem::take(&mut self.begun) == JournalState::Forgotten {
            let at = self.elapsed() / 1000;
            let text = format!("at {at} s, the journal has lost what was started, and did not report it");
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

#[cfg(test)]
mod tests {
    use stagger_core::model::{Phase, RunId};
    use stagger_core::run::Action;

    use super::*;

    /// One manager of two is stopped by a call that was announced at that place under the first token.
    fn stopped(world: &mut SimulatedCluster, seq: u64) {
        let now = world.time();
        world.snapshot(now).unwrap();
        let call = Call {
            run: RunId::new("r").unwrap(),
            seq,
            announced: 1,
            fence: 1,
            deadline: None,
        };
        let enter = Action::Visit {
            unit: "mgr.a".parse().unwrap(),
            phase: Phase::Enter,
            revision: "2".parse().unwrap(),
            moves: Vec::new(),
        };
        world.perform(&call, &enter).unwrap();
    }

    fn world() -> SimulatedCluster {
        let spec = "name = 'lab'\nrelease = '1'\nracks = 2\nhosts_per_rack = 1\nosds_per_host = 0\nmons = 0\nmgrs = 2";
        let mut world = SimulatedCluster::new(toml::from_str(spec).unwrap(), Vec::new()).unwrap();
        world.fence = 1;
        world
    }

    #[test]
    fn what_the_journal_knows_of_is_to_be_given_back() {
        let mut world = world();
        stopped(&mut world, 5);
        assert_eq!(world.stopped_units().collect::<Vec<_>>(), ["mgr.a"]);
        world.journal_lost(5);
        assert_eq!(world.stopped_units().count(), 1, "it is the last that was left");
        world.journal_lost(4);
        assert_eq!(world.stopped_units().count(), 0, "nothing tells of it any more");
    }

    #[test]
    fn what_was_on_its_way_when_the_journal_was_put_back_is_lost_like_what_was_there() {
        for is_there in [true, false] {
            let mut world = world();
            if is_there {
                stopped(&mut world, 5);
            }
            world.journal_lost(4);
            if !is_there {
                stopped(&mut world, 5);
            }
            assert_eq!(world.stopped_units().count(), 0, "{is_there}");
            world.resume();
            assert_eq!(world.truth().untold.len(), 1, "{is_there}");
        }
    }

    #[test]
    fn what_was_lost_and_told_is_not_lost_again_when_the_journal_is_put_back_again() {
        let mut world = world();
        world.journal_lost(4);
        stopped(&mut world, 9);
        world.fence = 2;
        world.record_behind();
        world.resume();
        // What whoever followed has written is all there.
        world.journal_lost(7);
        world.resume();
        assert_eq!(world.truth().untold, Vec::<String>::new());
    }
}
