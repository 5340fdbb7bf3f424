//! The rollback target: what a run has changed returns to its previous release, in the reverse order, as far
//! as possible. A rollback is a plan with the same checks.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use crate::model::{
    Code, GoingBack, Kind, Part, PartName, Policy, Reason, Revision, Snapshot, StageSpec, Target, UnitId,
};

/// The way back, and what has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RollbackTarget {
    /// What can go back.
    pub(super) target: Target,
    /// Units of those kinds that this run has not changed: they are left as they are.
    pub(super) aside: BTreeMap<UnitId, Reason>,
    /// What was changed and cannot go back.
    pub(super) impossible: Vec<(String, Reason)>,
    /// Kinds of which a stage cannot go back.
    stuck: BTreeMap<Kind, Reason>,
}

/// The name of a stage on its way back.
fn rollback_stage_name(stage: &PartName, revision: &Revision) -> PartName {
    PartName::new(format!("{stage}-back-to-{revision}")).unwrap_or_else(|_| stage.clone())
}

impl State {
    /// The way back from here.
    pub(super) fn rollback_target(&self, snapshot: &Snapshot) -> RollbackTarget {
        let mut way = RollbackTarget {
            target: Target {
                title: format!("back from {}", self.start.target.title),
                parts: Vec::new(),
                only: None,
            },
            aside: BTreeMap::new(),
            impossible: Vec::new(),
            stuck: BTreeMap::new(),
        };
        // Behind a one-way door everything stays.
        let mut closed: Option<&PartName> = None;
        for part in self.start.target.parts.iter().rev() {
            match part {
                Part::Step(step) => {
                    if self.steps.contains(&step.name)
                        && let Some(door) = &step.door
                    {
                        closed = Some(&door.name);
                    }
                }
                Part::Stage(stage) => {
                    if let Some(door) = &stage.door_before_last
                        && self.all_changed(stage, snapshot)
                    {
                        closed = Some(&door.name);
                    }
                    self.rollback_stage(stage, closed, snapshot, &mut way);
                }
            }
        }
        way
    }

    fn all_changed(&self, stage: &StageSpec, snapshot: &Snapshot) -> bool {
        snapshot
            .of_kind(&stage.kind)
            .all(|(_, unit)| self.done.contains_key(&unit.id))
    }

    fn rollback_stage(
        &self,
        stage: &StageSpec,
        closed: Option<&PartName>,
        snapshot: &Snapshot,
        way: &mut RollbackTarget,
    ) {
        // Where units stand in several stages, one of which nothing has passed has changed none of them.
        let mut stages = self.start.target.stages();
        let again = stages.any(|other| other.kind == stage.kind && other.name != stage.name);
        if again && !self.earned.contains_key(&stage.name) {
            return;
        }
        let mut revisions: BTreeSet<&Revision> = BTreeSet::new();
        let mut left = 0;
        for (_, unit) in snapshot.of_kind(&stage.kind) {
            if let Some(before) = self.done.get(&unit.id) {
                revisions.insert(before);
                left += 1;
            } else {
                let reason = Reason::new(Code::NotChangedByThisRun, "it stays as it was found");
                way.aside.insert(unit.id.clone(), reason);
            }
        }
        if left == 0 {
            return;
        }
        // What a later stage has made of these units cannot be taken back by going back past it.
        let later = way.stuck.get(&stage.kind).cloned();
        let why_not = match (
            closed,
            later,
            requires_rebuild(&stage.going_back, &self.start.policy),
        ) {
            (Some(door), ..) => Some(Reason::new(
                Code::BehindAOneWayDoor,
                format!(
                    "the point of no return {door} was \
                                                                                   passed"
                ),
            )),
            (None, Some(reason), _) | (None, None, Err(reason)) => Some(reason),
            (None, None, Ok(_)) => None,
        };
        if let Some(reason) = why_not {
            way.stuck.insert(stage.kind.clone(), reason.clone());
            way.impossible
                .push((format!("{left} of stage {}", stage.name), reason));
            return;
        }
        for before in revisions {
            way.target.parts.push(Part::Stage(StageSpec {
                name: rollback_stage_name(&stage.name, before),
                revision: before.clone(),
                door_before_last: None,
                ..stage.clone()
            }));
        }
    }

    /// The stage of that name, on the way there or back.
    pub(super) fn stage(&self, name: &PartName) -> Option<Cow<'_, StageSpec>> {
        self.start.target.stage(name).map(Cow::Borrowed).or_else(|| {
            self.start.target.parts.iter().find_map(|part| {
                let Part::Stage(stage) = part else { return None };
                let before = name
                    .as_str()
                    .strip_prefix(stage.name.as_str())?
                    .strip_prefix("-back-to-")?;
                let revision = Revision::new(before).ok()?;
                Some(Cow::Owned(StageSpec {
                    name: name.clone(),
                    revision,
                    door_before_last: None,
                    ..stage.clone()
                }))
            })
        })
    }
}

/// Whether the rollback rebuilds the unit's data.
///
/// # Errors
/// Why it cannot be rolled back at all.
pub(super) fn requires_rebuild(going_back: &GoingBack, policy: &Policy) -> Result<bool, Reason> {
    match going_back {
        GoingBack::Restart => Ok(false),
        GoingBack::Rebuild { .. } if policy.rebuild_to_go_back => Ok(true),
        GoingBack::Rebuild { cost } => Err(Reason::new(
            Code::GoingBackNeedsARebuild,
            format!("its rollback takes {cost}; set rebuild_to_go_back in [policy] to permit that"),
        )),
        GoingBack::Impossible { why } => Err(Reason::new(Code::GoingBackIsImpossible, why.clone())),
    }
}
