//! Migrations of objects that Rook, or an older release, has left in another form than this release expects.
//!
//! A migration is a step of a run, at its place among the stages. It is done when a condition holds, whatever
//! caused that, so it may be repeated, and where there is nothing to do it is no part of the run.
//! `CONTRIBUTING.md` says when one may be added.

use std::borrow::Borrow;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_core::model::{Condition, ConditionName, IdError, Part, PartName, StepSpec, Target, Verdict};
use stagger_core::view::RunView;

use crate::api::daemons::{self, KIND};
use crate::api::objects::Deployment;

/// Where in a run a migration has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationPoint {
    /// Before all stages.
    Before,
    /// Before the stage of that kind of daemon.
    Between(&'static str),
    /// After all stages.
    After,
}

/// How it is done.
#[derive(Debug, Clone, Copy)]
pub enum MigrationWork {
    /// By a merge patch of each Deployment that needs one.
    Deployments(fn(&Deployment) -> Option<Value>),
    /// By Ceph, whose own steps are compiled into a target where they are needed.
    Ceph,
}

/// One migration.
#[derive(Debug, Clone, Copy)]
pub struct UpgradeMigration {
    /// The name of its step; of Ceph's the beginning.
    pub name: &'static str,
    /// The release of stagger that declares it first.
    pub since: &'static str,
    /// Its place.
    pub place: MigrationPoint,
    /// What it does, and what for.
    pub why: &'static str,
    /// How it is done.
    pub work: MigrationWork,
}

/// All of them, in the order in which they are done at one place.
pub const MIGRATIONS: [UpgradeMigration; 2] = [
    UpgradeMigration {
        name: "daemon-labels",
        since: "0.1.0",
        place: MigrationPoint::Before,
        why: "gives Deployments of older releases of Rook the labels by which daemons are found",
        work: MigrationWork::Deployments(daemon_labels),
    },
    UpgradeMigration {
        name: "require-osd-release",
        since: "0.1.0",
        place: MigrationPoint::After,
        why: "switches on what the new release adds, once every OSD runs it",
        work: MigrationWork::Ceph,
    },
];

/// The labels that a daemon's Deployment should have, if it lacks one. They are not on its pods, so none restarts.
fn daemon_labels(deployment: &Deployment) -> Option<Value> {
    let unit = daemons::unit_of(deployment).ok().flatten()?;
    let (kind, id) = unit.as_str().split_once('.')?;
    let labels = deployment.labels();
    let complete = labels.contains_key(KIND) && labels.contains_key(daemons::ID);
    (!complete).then(|| json!({ "metadata": { "labels": { KIND: kind, daemons::ID: id } } }))
}

/// The migration of that step, and what it does to a Deployment.
pub(crate) fn of_step(step: &PartName) -> Option<fn(&Deployment) -> Option<Value>> {
    let found = MIGRATIONS
        .iter()
        .find(|migration| migration.name == step.as_str())?;
    match found.work {
        MigrationWork::Deployments(patch) => Some(patch),
        MigrationWork::Ceph => None,
    }
}

fn done_when(migration: &UpgradeMigration) -> Result<ConditionName, IdError> {
    ConditionName::new(format!("{}-done", migration.name))
}

/// What the migrations of Deployments have left to do, as conditions.
pub(crate) fn conditions(deployments: &[impl Borrow<Deployment>]) -> Result<Vec<Condition>, IdError> {
    let mut conditions = Vec::new();
    for migration in &MIGRATIONS {
        let MigrationWork::Deployments(patch) = migration.work else {
            continue;
        };
        let mut left = deployments
            .iter()
            .map(Borrow::borrow)
            .filter(|deployment| patch(deployment).is_some());
        let first = left.next().map(ResourceExt::name_any);
        conditions.push(Condition {
            name: done_when(migration)?,
            verdict: if first.is_none() {
                Verdict::Yes
            } else {
                Verdict::No
            },
            why: first.map_or_else(
                || "nothing is left to do".to_owned(),
                |first| format!("{first} and {} more remain", left.count()),
            ),
            but_for: Vec::new(),
        });
    }
    Ok(conditions)
}

/// Puts the migrations that are needed in their places.
pub(crate) fn insert_steps(
    target: &mut Target,
    deployments: &[impl Borrow<Deployment>],
) -> Result<(), IdError> {
    // From the last to the first: each is put before those that are there.
    for migration in MIGRATIONS.iter().rev() {
        let MigrationWork::Deployments(patch) = migration.work else {
            continue;
        };
        if !deployments
            .iter()
            .any(|deployment| patch(deployment.borrow()).is_some())
        {
            continue;
        }
        let step = Part::Step(StepSpec {
            name: PartName::new(migration.name)?,
            done_when: done_when(migration)?,
            before: Vec::new(),
            door: None,
            why: migration.why.to_owned(),
        });
        let is_stage =
            |part: &Part, of: &str| matches!(part, Part::Stage(stage) if stage.kind.as_str() == of);
        let at = match migration.place {
            MigrationPoint::Before => 0,
            MigrationPoint::Between(kind) => target
                .parts
                .iter()
                .position(|part| is_stage(part, kind))
                .unwrap_or(target.parts.len()),
            MigrationPoint::After => target.parts.len(),
        };
        target.parts.insert(at, step);
    }
    Ok(())
}

/// A migration of a run, as the status tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// Its step.
    pub name: String,
    /// What it does, and what for.
    pub why: String,
    /// Whether it is done.
    pub done: bool,
}

/// The migrations of a run and how far they are.
pub(crate) fn statuses(target: &Target, view: &RunView) -> Vec<MigrationStatus> {
    let steps = target.parts.iter().filter_map(|part| match part {
        Part::Step(step) => Some(step),
        Part::Stage(_) => None,
    });
    steps
        .map(|step| MigrationStatus {
            name: step.name.to_string(),
            why: step.why.clone(),
            done: view.completed.contains(&step.name),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(labels: &Value) -> Deployment {
        serde_json::from_value(json!({ "metadata": { "name": "rook-ceph-x", "labels": labels } })).unwrap()
    }

    /// As Rook wrote them before it had labels of its own for this.
    fn old() -> Vec<Deployment> {
        vec![
            deployment(&json!({ "app": "rook-ceph-osd", "ceph-osd-id": "3" })),
            deployment(&json!({ "app": "rook-ceph-mon", "mon": "a" })),
            deployment(&json!({ "app": "rook-ceph-mgr", "ceph_daemon_id": "b" })),
        ]
    }

    #[test]
    fn labels_are_added_from_what_older_ones_say_and_only_once() {
        let patches: Vec<_> = old().iter().filter_map(daemon_labels).collect();
        let labels = |kind: &str, id: &str| json!({ "metadata": { "labels": { "ceph_daemon_type": kind, "ceph_daemon_id": id } } });
        assert_eq!(
            patches,
            [labels("osd", "3"), labels("mon", "a"), labels("mgr", "b")]
        );
        for (mut one, patch) in old().into_iter().zip(patches) {
            let more = patch["metadata"]["labels"].as_object().unwrap();
            for (name, value) in more {
                let value = value.as_str().unwrap().to_owned();
                one.labels_mut().insert(name.clone(), value);
            }
            assert_eq!(daemon_labels(&one), None);
        }
        for other in [
            json!({ "app": "rook-ceph-tools" }),
            json!({ "app": "rook-ceph-osd", "osd": "x" }),
        ] {
            assert_eq!(daemon_labels(&deployment(&other)), None);
        }
    }

    #[test]
    fn what_is_needed_has_its_place_and_nothing_else_has() {
        let empty = || Target {
            title: "t".to_owned(),
            parts: vec![Part::Step(StepSpec {
                name: PartName::new("require-osd-release-20").unwrap(),
                done_when: ConditionName::new("require-osd-release-20").unwrap(),
                before: Vec::new(),
                door: None,
                why: String::new(),
            })],
            only: None,
        };
        let names = |deployments: &[Deployment]| -> Vec<String> {
            let mut target = empty();
            insert_steps(&mut target, deployments).unwrap();
            target.parts.iter().map(|part| part.name().to_string()).collect()
        };
        assert_eq!(names(&old()), ["daemon-labels", "require-osd-release-20"]);
        assert_eq!(names(&[]), ["require-osd-release-20"]);

        let condition = |deployments: &[Deployment]| conditions(deployments).unwrap().remove(0);
        assert_eq!(condition(&[]).verdict, Verdict::Yes);
        let left = condition(&old());
        assert_eq!(
            (left.verdict, left.name.as_str()),
            (Verdict::No, "daemon-labels-done")
        );
        assert!(left.why.contains("2 more"), "{}", left.why);
    }

    #[test]
    fn each_migration_is_found_by_its_step() {
        let found = |name: &str| of_step(&PartName::new(name).unwrap()).is_some();
        assert!(found("daemon-labels") && !found("require-osd-release-20") && !found("x"));
        for migration in MIGRATIONS {
            assert!(
                !migration.why.is_empty() && migration.since.split('.').count() == 3,
                "{}",
                migration.name
            );
        }
    }
}
