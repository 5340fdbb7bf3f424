//! The views for `--json`, HTTP and the status of custom resources: a run's state in short. No list has one
//! entry for each unit of a large cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{ClusterName, Code, PartName, Phase, Reason, RunId, UnitId};
use crate::plan::{Plan, PlannedPart};
use crate::run::{Action, Ending, Run};

/// One word that says whether you are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Verdict")
)]
#[serde(rename_all = "kebab-case")]
pub enum RunVerdict {
    /// It continues by itself.
    Running,
    /// It waits, and continues by itself when what it waits for is there.
    Held,
    /// It would continue by itself, and no process carries it out.
    Interrupted,
    /// It continues only when you act.
    NeedsYou,
    /// Every unit serves on the target.
    Done,
    /// It is over elsewhere than at its target.
    Ended,
}

impl std::fmt::Display for RunVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Running => "RUNNING",
            Self::Held => "HELD",
            Self::Interrupted => "INTERRUPTED",
            Self::NeedsYou => "NEEDS YOU",
            Self::Done => "DONE",
            Self::Ended => "ENDED",
        })
    }
}

/// A run at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunView {
    /// `{"name": "run", "version": 1}`.
    pub schema: Schema,
    /// Which run.
    pub run: RunId,
    /// Of which cluster.
    pub cluster: ClusterName,
    /// What it is to do.
    pub title: String,
    /// One word.
    pub verdict: RunVerdict,
    /// One sentence: why.
    pub why: String,
    /// When it continues, or gives up waiting, though nothing changes. Absent: unknown, or it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The place of its last event.
    pub seq: u64,
    /// Fencing token and incarnation of who carries it out.
    pub holder: String,
    /// Units that it has changed.
    pub changed: usize,
    /// Waves passed, and waves that are still planned.
    pub waves_passed: u32,
    /// Waves still planned, the open one included.
    pub waves_left: usize,
    /// Forecast of the remaining time, in seconds.
    pub seconds_left: i64,
    /// Steps and stages that are completed, in order.
    pub completed: Vec<PartName>,
    /// What it is at.
    pub current: Option<Current>,
    /// Units set aside, grouped by their reason.
    pub left_alone: Vec<Group>,
    /// How it ended.
    pub ending: Option<Ending>,
}

impl RunView {
    /// The newest version of the document.
    pub const VERSION: u32 = 1;

    /// The view of a run that is interrupted: automatic continuation does not happen. A run that is over or
    /// needs the operator is unchanged.
    #[must_use]
    pub fn without_a_holder(mut self, why: impl Into<String>) -> Self {
        match self.verdict {
            RunVerdict::Running | RunVerdict::Held | RunVerdict::Interrupted => {
                self.verdict = RunVerdict::Interrupted;
                self.why = why.into();
                self.until = None;
            }
            RunVerdict::NeedsYou | RunVerdict::Done | RunVerdict::Ended => {}
        }
        self
    }
}

/// Name and version of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
}

/// What a run is at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Current {
    /// The stage.
    pub stage: PartName,
    /// Since when the wave is open.
    pub since: Timestamp,
    /// Its units, by progress.
    pub units: BTreeMap<String, Vec<UnitId>>,
    /// The gates that are shut, with their why.
    pub shut: Vec<(String, String)>,
}

/// Units with the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Why.
    pub reason: Reason,
    /// How many.
    pub count: usize,
    /// The first of them, at most 20.
    pub units: Vec<String>,
}

const SHOWN: usize = 20;

/// What a run waits for.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// For what.
    pub why: &'a Reason,
    /// When it continues or times out although nothing changes; `None`: unknown.
    pub until: Option<Timestamp>,
}

/// A run at a glance. `waiting`: what its driver waits for, if that is known.
pub fn run(run: &Run, waiting: Option<Waiting<'_>>) -> RunView {
    let (fence, holder) = run.holder();
    let (verdict, why) = verdict(run, waiting.map(|waiting| waiting.why));
    let waits = matches!(verdict, RunVerdict::Running | RunVerdict::Held);
    let open = run.wave().map(|wave| &wave.stage);
    let rest: &[PlannedPart] = run.plan().map_or(&[], |plan| &plan.parts);
    let waves_left = run.plan().map_or(0, Plan::waves);
    let ahead: Vec<&PartName> = rest
        .iter()
        .map(|part| match part {
            PlannedPart::Stage(stage) => &stage.name,
            PlannedPart::Step(step) => &step.name,
        })
        .collect();
    let completed = run
        .start()
        .target
        .parts
        .iter()
        .map(crate::model::Part::name)
        .filter(|name| run.plan().is_some() && !ahead.contains(name) && open != Some(*name))
        .cloned()
        .collect();
    RunView {
        schema: Schema {
            name: "run".to_owned(),
            version: RunView::VERSION,
        },
        run: run.start().run.clone(),
        cluster: run.start().cluster.clone(),
        title: run.start().target.title.clone(),
        verdict,
        why,
        until: waiting.filter(|_| waits).and_then(|waiting| waiting.until),
        started: run.started_at(),
        ended_at: run.ended_at(),
        seq: run.seq(),
        holder: format!("token {fence}, {holder}"),
        changed: run.changed(),
        waves_passed: run.waves_passed(),
        waves_left: if run.ended().is_some() { 0 } else { waves_left },
        seconds_left: run
            .plan()
            .filter(|_| run.ended().is_none())
            .map_or(0, |plan| plan.forecast().as_secs()),
        completed,
        current: current(run),
        left_alone: skipped_groups(run),
        ending: run.ended().cloned(),
    }
}

/// The closing sentence of a completed run: for all units, or for the selected ones.
pub fn all_serve(selected: bool) -> &'static str {
    if selected {
        "every selected unit serves on the target"
    } else {
        "every unit serves on the target"
    }
}

fn verdict(run: &Run, waiting: Option<&Reason>) -> (RunVerdict, String) {
    match run.ended() {
        Some(Ending::Done) => {
            return (
                RunVerdict::Done,
                all_serve(run.start().target.only.is_some()).to_owned(),
            );
        }
        Some(Ending::Incomplete { left }) => {
            let left = format!("done; {} skipped{}", left.len(), next_after_partial_run(run));
            return (RunVerdict::Ended, left);
        }
        Some(Ending::RolledBack { reason }) => {
            return (
                RunVerdict::Ended,
                format!("rolled back: {reason}{}", next_after_partial_run(run)),
            );
        }
        Some(Ending::Aborted) => {
            return (
                RunVerdict::Ended,
                format!("aborted{}", next_after_partial_run(run)),
            );
        }
        None => {}
    }
    if let Some((reason, _)) = run.held() {
        let by_itself = [Code::GatesShut, Code::WaveLeftAlone].contains(&reason.code);
        return (
            if by_itself {
                RunVerdict::Held
            } else {
                RunVerdict::NeedsYou
            },
            reason.to_string(),
        );
    }
    match waiting {
        Some(reason)
            if matches!(
                reason.code,
                Code::OutsideWindow | Code::UnitsSetAside | Code::ClusterUnreachable
            ) =>
        {
            (RunVerdict::Held, reason.to_string())
        }
        Some(reason) => (RunVerdict::Running, reason.to_string()),
        None => (RunVerdict::Running, "in progress".to_owned()),
    }
}

/// What to do after a run that ended with some units on the target and others not.
fn next_after_partial_run(run: &Run) -> String {
    match mixed(run) {
        Some(next) => format!("; {next}"),
        None => String::new(),
    }
}

/// The next command after a run that ended with units on different releases; `None`: all run the same, or the
/// run continues.
pub fn mixed(run: &Run) -> Option<String> {
    let ending = run.ended().filter(|ending| **ending != Ending::Done)?;
    // An operator who aborts a run knows why.
    let once = if *ending == Ending::Aborted {
        ""
    } else {
        ", once the cause is fixed"
    };
    (run.changed() > 0).then(|| {
        format!(
            "{} of its units are on the target: the same `stagger run` changes the rest{once}",
            run.changed()
        )
    })
}

fn current(run: &Run) -> Option<Current> {
    let wave = run.wave()?;
    let mut units: BTreeMap<String, Vec<UnitId>> = BTreeMap::new();
    for (unit, visit) in &wave.units {
        let doing = run.open().find_map(|(_, action)| match action {
            Action::Visit { unit: at, phase, .. } if at == unit => Some(match phase {
                Phase::Prepare => "preparing",
                Phase::Enter => "entering",
                Phase::Change => "changing",
                Phase::Leave => "leaving",
            }),
            Action::Restart { unit: at } if at == unit => Some("restarting"),
            Action::GoBack { unit: at, .. } if at == unit => Some("going back"),
            Action::Visit { .. }
            | Action::Restart { .. }
            | Action::GoBack { .. }
            | Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => None,
        });
        let word = match (doing, &visit.went_back, visit.failed(), visit.since) {
            (Some(doing), ..) => doing,
            (None, Some(Ok(())), ..) => "back",
            (None, Some(Err(_)), ..) | (None, None, Some(_), _) => "failed",
            (None, None, None, Some(_)) => "changed",
            (None, None, None, None) => "next",
        };
        units.entry(word.to_owned()).or_default().push(unit.clone());
    }
    let shut = run.gates().map_or_else(Vec::new, |(shut, _)| {
        shut.iter()
            .map(|(name, why)| (name.to_string(), why.clone()))
            .collect()
    });
    Some(Current {
        stage: wave.stage.clone(),
        since: wave.opened,
        units,
        shut,
    })
}

fn skipped_groups(run: &Run) -> Vec<Group> {
    let planned = run.plan().map_or(&[][..], |plan| &plan.left_alone);
    group(planned.iter().map(|left| (left.unit.to_string(), &left.reason)))
}

/// What has the same reason, together.
pub fn group<'a>(units: impl Iterator<Item = (String, &'a Reason)>) -> Vec<Group> {
    let mut groups: BTreeMap<&Reason, Vec<String>> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for (unit, reason) in units {
        // One may stand in several stages, and is one unit even so.
        if told.insert((reason, unit.clone())) {
            groups.entry(reason).or_default().push(unit);
        }
    }
    groups
        .into_iter()
        .map(|(reason, mut units)| {
            let count = units.len();
            units.truncate(SHOWN);
            Group {
                reason: reason.clone(),
                count,
                units,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_two_stages_is_left_once() {
        let down = Reason::new(Code::UnitDown, "it was already down");
        let left = ["api.a1", "api.a2", "api.a1"].map(|unit| (unit.to_owned(), &down));
        let [group] = &group(left.into_iter())[..] else {
            panic!("one reason")
        };
        assert_eq!(
            (group.count, group.units.join(" ")),
            (2, "api.a1 api.a2".to_owned())
        );
    }
}
