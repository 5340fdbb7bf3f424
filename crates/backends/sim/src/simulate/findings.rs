//! What the truth may find against a run, by class. Each class is asserted: none of them has a number that is
//! still fine.

use serde::{Deserialize, Serialize};
use stagger_core::run::Ending;

use super::ending::SimEnding;
use crate::world::SimulatedCluster;

/// A class of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A unit was stopped that was not safe to stop, or against what was said.
    UnsafeStop,
    /// The run kept something from serving that it had only to give back.
    UnsafeSeconds,
    /// A call that its sender had given up stopped something that was not safe to stop.
    LateUnsafe,
    /// What served on the target was brought back, with no evidence against the target.
    UndoneWork,
    /// A guard was left behind.
    GuardLeft,
    /// The run could have been finished, or says of itself what is not so.
    WrongEnding,
    /// The journal has lost what was begun, and whoever carried it on was not told.
    Untold,
    /// Played again, it goes another way.
    Unrepeatable,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::UnsafeStop,
        Self::UnsafeSeconds,
        Self::LateUnsafe,
        Self::UndoneWork,
        Self::GuardLeft,
        Self::WrongEnding,
        Self::Untold,
        Self::Unrepeatable,
    ];

    /// As in file names and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnsafeStop => "unsafe-stop",
            Self::UnsafeSeconds => "unsafe-seconds",
            Self::LateUnsafe => "late-unsafe",
            Self::UndoneWork => "undone-work",
            Self::GuardLeft => "guard-left",
            Self::WrongEnding => "wrong-ending",
            Self::Untold => "untold",
            Self::Unrepeatable => "unrepeatable",
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that the truth found against a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulationFinding {
    /// Of which class.
    pub class: Class,
    /// What.
    pub what: String,
}

impl std::fmt::Display for SimulationFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { class, what } = self;
        write!(f, "{class}: {what}")
    }
}

/// Reasons for which a run may stay held although all is healed, where nobody looks after it: each names what a person
/// must decide. Where somebody does there is no such excuse: every state has an exit that a person can take.
const FOR_A_PERSON: [&str; 7] = [
    "going-back-is-impossible",
    "going-back-needs-a-rebuild",
    "guard-failed",
    "rollback-failed",
    "step-failed",
    "units-left-behind",
    "wave-failed",
];

/// All that the truth found against a run that ended so; `looked_after`: a person has done what they could.
pub(crate) fn findings(
    ending: &SimEnding,
    world: &SimulatedCluster,
    looked_after: bool,
) -> Vec<SimulationFinding> {
    let truth = world.truth();
    let of = |class: Class, all: &[String]| -> Vec<SimulationFinding> {
        let each = all.iter().cloned();
        each.map(|what| SimulationFinding { class, what }).collect()
    };
    let mut found = of(Class::UnsafeStop, &truth.violations);
    found.extend(of(Class::UnsafeSeconds, &truth.unsafe_seconds));
    found.extend(of(Class::LateUnsafe, &truth.late_unsafe));
    found.extend(of(Class::UndoneWork, &truth.undone));
    found.extend(of(Class::Untold, &truth.untold));
    if matches!(ending, SimEnding::Over(_)) {
        let guards = world.guards_known().map(ToString::to_string);
        let drained = world.left_drained().map(|unit| format!("{unit} is drained"));
        let left: Vec<String> = guards.chain(drained).collect();
        found.extend(of(Class::GuardLeft, &left));
    }
    found.extend(of(Class::WrongEnding, &wrong_ending(ending, world, looked_after)));
    found
}

fn wrong_ending(ending: &SimEnding, world: &SimulatedCluster, looked_after: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    match ending {
        SimEnding::Endless(why) => wrong.push(format!("it never ends: {why}")),
        SimEnding::Held(why)
            if world.is_healed() && (looked_after || !FOR_A_PERSON.contains(&why.code.code())) =>
        {
            wrong.push(format!("all is well, and it is held: {why}"));
        }
        SimEnding::Held(_) => {}
        SimEnding::Over(over) => {
            for unit in world.stopped_units() {
                wrong.push(format!("the run is over, and {unit} is out of service"));
            }
            match over {
                Ending::Done => {
                    for unit in world.not_on_another_release() {
                        wrong.push(format!("it is done, and {unit} serves on what it ran before"));
                    }
                }
                Ending::Incomplete { left } if left.is_empty() => {
                    wrong.push("it is incomplete, and nothing is left".to_owned());
                }
                Ending::Incomplete { .. } | Ending::RolledBack { .. } | Ending::Aborted => {}
            }
        }
    }
    wrong
}
