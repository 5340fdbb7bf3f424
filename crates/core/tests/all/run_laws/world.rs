//! The world that a run walks through, and the people in it.

use stagger_core::model::{Code, Phase, UnitId, UnitState, Verdict};
use stagger_core::run::{Action, Command, Event, Outcome};

use super::Walk;
use crate::random::{DONE, HEALTH, OLD};

impl Walk {
    /// Carries out what was announced, as far as it goes well.
    pub(super) fn perform(&mut self, action: &Action) -> Outcome {
        if self.rng.percent(self.trouble) {
            return Outcome::Failed {
                why: "it was drawn".to_owned(),
            };
        }
        self.facts.generation += 1;
        match action {
            Action::TakeGuard { guard, units, .. } => {
                self.guards.insert(format!("{guard} {units:?}"));
            }
            Action::DropGuard { guard, units } => {
                self.guards.remove(&format!("{guard} {units:?}"));
            }
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => {
                let (fails, unit) = (self.rng.percent(self.trouble), self.facts.unit(unit));
                match phase {
                    Phase::Prepare => {}
                    Phase::Enter => unit.state = UnitState::Down,
                    Phase::Change => unit.revision = Some(revision.clone()),
                    Phase::Leave if fails => {}
                    Phase::Leave => unit.state = UnitState::Serving,
                }
            }
            Action::Restart { unit } => self.facts.unit(unit).state = UnitState::Serving,
            Action::GoBack { unit, revision, .. } => {
                let unit = self.facts.unit(unit);
                unit.state = UnitState::Serving;
                unit.revision = Some(revision.clone());
            }
            Action::Step { .. } => {
                self.facts.conditions.insert(DONE.to_owned(), Verdict::Yes);
            }
            Action::Collect { .. } => {}
        }
        Outcome::Done { note: String::new() }
    }

    /// Whatever happens beside the run.
    pub(super) fn world_goes_on(&mut self) {
        let trouble = self.trouble;
        if self.rng.percent(trouble) {
            let verdict = *self.rng.pick(&[Verdict::No, Verdict::Unknown]);
            let name = (*self.rng.pick(&HEALTH)).to_owned();
            self.facts.conditions.insert(name, verdict);
        }
        if self.rng.percent(50) {
            for name in HEALTH {
                self.facts.conditions.insert(name.to_owned(), Verdict::Yes);
            }
        }
        if self.rng.percent(trouble) {
            let at = self.rng.below(self.facts.units.len() as u64) as usize;
            self.facts.units[at].state = *self.rng.pick(&[UnitState::Down, UnitState::Unknown]);
            self.facts.generation += 1;
        } else if self.rng.percent(30) {
            let all = self.facts.units.iter_mut();
            for unit in all.filter(|unit| trouble == 0 && unit.state == UnitState::Unknown) {
                unit.state = UnitState::Serving;
            }
            // What is in the hands of the run stays there.
            let in_hand: Vec<UnitId> = self
                .run
                .wave()
                .map(|w| w.units.keys().cloned().collect())
                .unwrap_or_default();
            for unit in self
                .facts
                .units
                .iter_mut()
                .filter(|unit| !in_hand.contains(&unit.id))
            {
                unit.state = UnitState::Serving;
                unit.revision.get_or_insert_with(|| OLD.parse().unwrap());
            }
            self.facts.generation += 1;
        }
        if self.trouble > 0 && self.rng.percent(1) {
            let command = self
                .rng
                .pick(&[Command::Pause, Command::Rollback, Command::Abort, Command::Resume])
                .clone();
            self.ask(command);
        }
        if self.rng.percent(2) {
            let fence = self.run.holder().0 + 1;
            self.reach("takeover");
            self.seen = None;
            if self.run.ended().is_none() {
                self.append(vec![Event::LeaseTaken {
                    fence,
                    holder: "next".to_owned(),
                }]);
            }
        }
    }

    fn ask(&mut self, command: Command) {
        if self.run.ended().is_none() {
            self.append(vec![Event::Asked {
                command,
                by: "walk".to_owned(),
            }]);
        }
    }

    /// What a person does about a run that is held.
    pub(super) fn person(&mut self) {
        if self.trouble == 0 {
            // Nothing fails any more: what the run names as down is started by hand.
            for unit in &mut self.facts.units {
                unit.state = UnitState::Serving;
            }
        }
        let door = match self.run.held().map(|(reason, _)| reason.clone()) {
            Some(reason) if reason.code == Code::OneWayDoor => {
                if reason.detail.contains("last-mon") {
                    "last-mon"
                } else {
                    "require"
                }
            }
            Some(reason) if reason.code == Code::UnitsLeftBehind => {
                return self.person_looks_at(&reason.detail);
            }
            Some(_) | None => return self.ask(Command::Resume),
        };
        self.reach("approve");
        self.ask(Command::Approve {
            door: door.parse().unwrap(),
        });
    }

    /// What a person does about units that were left behind: mend them, accept it where that is offered, or end it.
    fn person_looks_at(&mut self, detail: &str) {
        let word = detail
            .split([' ', '`'])
            .find(|word| word.starts_with("left-behind-"));
        match (self.rng.below(10), word) {
            (0..=5, Some(word)) => {
                self.reach("accepted");
                let door = word.parse().unwrap();
                self.ask(Command::Approve { door });
            }
            (5 | 6, _) => {
                for unit in &mut self.facts.units {
                    unit.state = UnitState::Serving;
                    unit.untouchable = None;
                    unit.revision.get_or_insert_with(|| OLD.parse().unwrap());
                }
                self.facts.generation += 1;
                self.ask(Command::Resume);
            }
            (9, _) => self.ask(Command::Abort),
            _ => self.ask(Command::Resume),
        }
    }
}
