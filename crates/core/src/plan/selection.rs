//! A selection: a plan for some units of a cluster, with the others left for later.
//!
//! The order of the procedure is kept. A target is cut at the first stage that has units outside the
//! selection: its last unit is not planned, so neither its point of no return nor anything after it is. A
//! later plan, for other units or for all, finds the remaining work by observing the cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::eligible::needs_change;
use super::{PlanningInput, plan_waves};
use crate::model::{Kind, Part, PartName, StageSpec, Target, UnitId};

/// Which units: those that satisfy each list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Of these kinds.
    pub kinds: Vec<Kind>,
    /// These.
    pub units: Vec<UnitId>,
    /// In these failure domains: the level (`rack`), and its name. Of one level any of them, of several levels one of each.
    pub domains: Vec<(String, String)>,
    /// At most so many, in the order in which they are planned; 0: as many as there are.
    pub limit: u32,
}

/// A selection that selects nothing that could be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A unit that is not there.
    #[error("there is no unit {0}")]
    NoUnit(UnitId),
    /// A kind that is not there.
    #[error("there is no unit of kind {kind}; kinds are {}", .known.join(", "))]
    NoKind {
        /// What was given.
        kind: Kind,
        /// What there is.
        known: Vec<String>,
    },
    /// A level that no unit has.
    #[error("no unit has a failure domain {level}; levels are {}", .known.join(", "))]
    NoLevel {
        /// What was given.
        level: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A domain that is not there.
    #[error("there is no {level} {name}; there are {}", name_list(.known))]
    NoDomain {
        /// Its level.
        level: String,
        /// What was given.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Each list names units, and no unit is in all of them.
    #[error("no unit matches the whole selection")]
    Nothing,
    /// Other units come first.
    #[error(
        "{} {} after stage {stage}, which is not finished: {} not selected",
        name_list(.late), if .late.len() == 1 { "comes" } else { "come" }, is_or_are(.missing)
    )]
    OthersFirst {
        /// The stage that is not finished.
        stage: PartName,
        /// Its units that were not selected.
        missing: Vec<String>,
        /// The selected units that come after it.
        late: Vec<String>,
    },
}

/// Names in messages, up to so many.
const SHOWN: usize = 8;

fn name_list(names: &[String]) -> String {
    match names.len() {
        0..=SHOWN => names.join(" "),
        many => format!("{} and {} more", names[..SHOWN].join(" "), many - SHOWN),
    }
}

fn is_or_are(names: &[String]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", name_list(names))
}

impl Selection {
    /// Whether nothing is left out by it.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// The part of the target that is about these units.
    ///
    /// # Errors
    /// What was selected is not there, or cannot be done before other units are.
    pub fn of(&self, ask: &PlanningInput<'_>) -> Result<Target, SelectionError> {
        if self.is_everything() {
            return Ok(ask.target.clone());
        }
        let chosen = self.chosen(ask)?;
        let target = cut(ask, &chosen)?;
        if self.limit == 0 {
            return Ok(target);
        }
        let plan = plan_waves(&PlanningInput {
            target: &target,
            ..*ask
        });
        let waves = plan.stages().flat_map(|stage| &stage.waves);
        let mut first: Vec<&UnitId> = Vec::new();
        for unit in waves.flat_map(|wave| &wave.units) {
            if first.len() < self.limit as usize && !first.contains(&unit) {
                first.push(unit);
            }
        }
        if first.is_empty() {
            // Units that must be skipped are reported.
            return Ok(target);
        }
        let first: BTreeSet<&UnitId> = first.into_iter().collect();
        cut(ask, &first)
    }

    fn chosen<'a>(&self, ask: &PlanningInput<'a>) -> Result<BTreeSet<&'a UnitId>, SelectionError> {
        let all = ask.snapshot.units();
        let known = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
        if let Some(unit) = self.units.iter().find(|unit| ask.snapshot.find(unit).is_none()) {
            return Err(SelectionError::NoUnit(unit.clone()));
        }
        if let Some(kind) = self
            .kinds
            .iter()
            .find(|kind| all.iter().all(|unit| unit.kind != **kind))
        {
            return Err(SelectionError::NoKind {
                kind: kind.clone(),
                known: known(all.iter().map(|unit| unit.kind.as_str()).collect()),
            });
        }
        let mut levels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (level, name) in &self.domains {
            let names: BTreeSet<&str> = all
                .iter()
                .filter_map(|unit| unit.domains.get(level).map(String::as_str))
                .collect();
            if names.is_empty() {
                let there = all
                    .iter()
                    .flat_map(|unit| unit.domains.keys().map(String::as_str));
                return Err(SelectionError::NoLevel {
                    level: level.clone(),
                    known: known(there.collect()),
                });
            }
            if !names.contains(name.as_str()) {
                return Err(SelectionError::NoDomain {
                    level: level.clone(),
                    name: name.clone(),
                    known: known(names),
                });
            }
            levels.entry(level).or_default().push(name);
        }
        let chosen: BTreeSet<&UnitId> = all
            .iter()
            .filter(|unit| self.kinds.is_empty() || self.kinds.contains(&unit.kind))
            .filter(|unit| self.units.is_empty() || self.units.contains(&unit.id))
            .filter(|unit| {
                levels.iter().all(|(level, names)| {
                    let domain = unit.domains.get(*level);
                    domain.is_some_and(|domain| names.contains(&domain.as_str()))
                })
            })
            .map(|unit| &unit.id)
            .collect();
        if chosen.is_empty() {
            return Err(SelectionError::Nothing);
        }
        Ok(chosen)
    }
}

/// The target up to the first stage that has more to do than is chosen.
fn cut(ask: &PlanningInput<'_>, chosen: &BTreeSet<&UnitId>) -> Result<Target, SelectionError> {
    let mut target = Target {
        title: String::new(),
        parts: Vec::new(),
        only: None,
    };
    let mut parts = ask.target.parts.iter();
    let mut stopped: Option<(&StageSpec, Vec<String>)> = None;
    let mut planned: BTreeSet<&UnitId> = BTreeSet::new();
    for part in parts.by_ref() {
        let Part::Stage(stage) = part else {
            target.parts.push(part.clone());
            continue;
        };
        let (mine, rest) = split_work(ask, stage, chosen);
        planned.extend(mine);
        if rest.is_empty() {
            target.parts.push(part.clone());
            continue;
        }
        target.parts.push(Part::Stage(StageSpec {
            // Its last unit is not among them.
            door_before_last: None,
            ..stage.clone()
        }));
        stopped = Some((stage, rest.into_iter().map(ToString::to_string).collect()));
        break;
    }
    target.title = format!("{} ({} selected)", ask.target.title, planned.len());
    // Units without work are excluded: one may run the revision of a stage that is cut off.
    target.only = Some(planned.iter().map(|unit| (*unit).clone()).collect());
    let Some((stage, missing)) = stopped else {
        return Ok(target);
    };
    let mut late: Vec<String> = Vec::new();
    for part in parts {
        if let Part::Stage(later) = part {
            let (mine, _) = split_work(ask, later, chosen);
            // A unit of several stages is named once.
            let mine = mine.into_iter().filter(|unit| planned.insert(unit));
            late.extend(mine.map(ToString::to_string));
        }
    }
    if late.is_empty() {
        return Ok(target);
    }
    Err(SelectionError::OthersFirst {
        stage: stage.name.clone(),
        missing,
        late,
    })
}

/// The units for which a stage has work: the selected ones, and the others.
fn split_work<'a>(
    ask: &PlanningInput<'a>,
    stage: &'a StageSpec,
    chosen: &BTreeSet<&UnitId>,
) -> (Vec<&'a UnitId>, Vec<&'a UnitId>) {
    ask.snapshot
        .of_kind(&stage.kind)
        .filter(|(_, unit)| needs_change(unit, ask.target, stage))
        .map(|(_, unit)| &unit.id)
        .partition(|unit| chosen.contains(unit))
}
