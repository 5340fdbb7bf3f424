//! Plans: a run starts only the first wave of the newest plan.

use std::collections::BTreeSet;

use stagger_core::model::UnitId;
use stagger_core::plan::{Plan, PlannedPart, PlannedStage, Wave};
use stagger_core::run::{Action, Command, Ending, Event};

use super::{Breach, Journal};

/// The newest plan, while nothing has happened since that asks for another.
#[derive(Default)]
pub(super) struct NewestPlan<'a>(Option<&'a Plan>);

impl<'a> NewestPlan<'a> {
    /// One event more.
    pub(super) fn after(&mut self, event: &'a Event) {
        match event {
            Event::Planned { plan } => self.0 = Some(plan),
            Event::WavePassed
            | Event::WaveWentBack
            | Event::WaveDropped { .. }
            | Event::StepPassed { .. }
            | Event::SetAside { .. }
            | Event::LeaseTaken { .. }
            | Event::JournalBehind
            | Event::Asked {
                command: Command::Resume | Command::Rollback,
                ..
            } => self.0 = None,
            _ => {}
        }
    }

    /// The stage that comes next, with its next wave.
    pub(super) fn wave(&self) -> Option<(&'a PlannedStage, &'a Wave)> {
        match self.0?.parts.first()? {
            PlannedPart::Stage(stage) => Some((stage, stage.waves.first()?)),
            PlannedPart::Step(_) => None,
        }
    }
}

pub(super) fn binding(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut newest = NewestPlan::default();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let why = match &entry.event {
            Event::WaveOpened { stage, units, .. } => {
                count += 1;
                let opened: BTreeSet<&UnitId> = units.iter().map(|(unit, _)| unit).collect();
                match newest.wave() {
                    None => Some(format!(
                        "no plan since the last wave or step starts with a wave of {stage}"
                    )),
                    Some((planned, _)) if planned.name != *stage => {
                        Some(format!("the plan starts with {}, not with {stage}", planned.name))
                    }
                    Some((_, wave)) => (wave.units.iter().collect::<BTreeSet<_>>() != opened)
                        .then(|| "the plan starts with a wave of other units".to_owned()),
                }
            }
            Event::Intent {
                action: Action::Step { step },
                ..
            } => {
                count += 1;
                let first = newest.0.and_then(|plan| plan.parts.first());
                let is_first = matches!(first, Some(PlannedPart::Step(planned)) if planned.name == *step);
                (!is_first).then(|| format!("no plan since the last wave or step starts with {step}"))
            }
            _ => None,
        };
        broken.extend(why.map(|why| Breach { seq: entry.seq, why }));
        newest.after(&entry.event);
    }
    (count, broken)
}

pub(super) fn limits(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut newest = NewestPlan::default();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let begun = match &entry.event {
            Event::WaveOpened { units, .. } | Event::WaveJoined { units, .. } => units.len(),
            _ => 0,
        };
        if begun > 0 {
            count += 1;
            if let Some((stage, _)) = newest.wave()
                && u32::try_from(begun).is_ok_and(|begun| begun > stage.parallel)
            {
                let why = format!(
                    "{begun} units of {} are started, and at most {} may be down together",
                    stage.name, stage.parallel
                );
                broken.push(Breach { seq: entry.seq, why });
            }
        }
        newest.after(&entry.event);
    }
    (count, broken)
}

pub(super) fn ending(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut newest: Option<&Plan> = None;
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        match &entry.event {
            Event::Planned { plan } => newest = Some(plan),
            Event::Ended { outcome } => {
                count += 1;
                let left = newest.map(|plan| plan.waves() + plan.left_alone.len());
                let why = match (outcome, left) {
                    (Ending::Done, None) => "it is done, and was never planned".to_owned(),
                    (Ending::Done, Some(1..)) => "it is done, and its last plan has units left".to_owned(),
                    _ => continue,
                };
                broken.push(Breach { seq: entry.seq, why });
            }
            _ => {}
        }
    }
    (count, broken)
}
