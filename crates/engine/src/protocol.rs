//! The rules that keep a driver the only writer, as plain functions. The driver follows them, and the model
//! checker (`tests/model.rs`) explores their consequences.

use std::collections::BTreeSet;
use std::time::Duration;

use stagger_core::model::{Part, Target, UnitId};
use stagger_core::run::{Action, Outcome, Seq};

use crate::cluster::{BackendError, Fencing, Retryability};
use crate::redact::redact;

/// What a new holder does before its first effect, so that no call of a holder before does harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakingOver {
    /// The fence is raised on these.
    pub raise: Vec<UnitId>,
    /// The wait after that, by whose end bounded calls have ended.
    pub wait: Duration,
}

/// What a new holder does first. Journal first means that only an open intent can have a stray call.
///
/// A conditional call is no exception: where the new holder finds nothing to change, or does not reach
/// the unit, the generation stays as it was, and a call of the holder before still fits.
pub fn takeover<'a>(
    open: impl IntoIterator<Item = &'a Action>,
    rail: impl Fn(&Action) -> Fencing,
) -> TakingOver {
    let mut first = TakingOver {
        raise: Vec::new(),
        wait: Duration::ZERO,
    };
    for action in open {
        match rail(action) {
            Fencing::Fenced | Fencing::Conditional => first.raise.extend(units_of(action)),
            Fencing::Bounded(time) => first.wait = first.wait.max(time),
        }
    }
    first
}

/// Whether a holder before may have calls under way of which our journals know nothing: between the newest token whose
/// holder went on (`ruled_out`) and the one that it gave us (`given`) the cluster has given out one that is not among those of
/// which a journal of ours says that they were `taken`.
///
/// A holder that only took the lock has ruled out nothing: what it had found out it has not acted upon. Nor has it to be
/// ruled out: it has announced nothing.
pub fn may_have_stray_calls(ruled_out: u64, taken: &BTreeSet<u64>, given: u64) -> bool {
    (ruled_out.saturating_add(1)..given).any(|token| !taken.contains(&token))
}

/// How long an earlier holder may have calls under way that only time ends, if its target was like this one
/// and its announcements are unknown.
pub fn longest_bound(target: &Target, units: &[UnitId], rail: impl Fn(&Action) -> Fencing) -> Duration {
    let whole = target.parts.iter().flat_map(|part| match part {
        Part::Stage(stage) => stage
            .guards
            .iter()
            .map(|guard| Action::TakeGuard {
                guard: guard.name.clone(),
                units: Vec::new(),
                expires: 0,
            })
            .collect(),
        Part::Step(step) => vec![Action::Step {
            step: step.name.clone(),
        }],
    });
    let stages = || {
        target.parts.iter().filter_map(|part| match part {
            Part::Stage(stage) => Some(stage),
            Part::Step(_) => None,
        })
    };
    let visits = stages().flat_map(|stage| {
        let phases = units
            .iter()
            .flat_map(|unit| stage.phases.iter().map(move |phase| (unit, *phase)));
        phases.map(|(unit, phase)| Action::Visit {
            unit: unit.clone(),
            phase,
            revision: stage.revision.clone(),
            moves: Vec::new(),
        })
    });
    let each = units.iter().map(|unit| Action::Restart { unit: unit.clone() });
    let bounds = whole.chain(visits).chain(each).map(|action| match rail(&action) {
        Fencing::Bounded(bound) => bound,
        Fencing::Fenced | Fencing::Conditional => Duration::ZERO,
    });
    bounds.max().unwrap_or_default()
}

/// Which intents are started now: those just announced and those never settled, but never one that is
/// under way in this process.
pub fn to_start(again: Vec<Seq>, announced: Vec<Seq>, under_way: &BTreeSet<Seq>) -> Vec<Seq> {
    again
        .into_iter()
        .chain(announced)
        .filter(|seq| !under_way.contains(seq))
        .collect()
}

/// What is known of earlier calls for the same intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Earlier {
    /// There was none.
    None,
    /// An earlier process may have made one. It cannot land any more, and may have had its effect.
    Adopted,
    /// One of ours may still land.
    Stray,
}

/// The outcome that the journal records for an answer.
///
/// A call that may still land is no failure: if it were settled as one, the run would continue, and the call
/// would land later unnoticed. While an earlier call may land, only an answer that would be the same next
/// time settles it. A call that did not start because its approval had expired is settled as that, if no
/// earlier call can have had its effect.
///
/// # Errors
/// The intent stays open, and the call is made again.
pub fn outcome_of(answer: Result<String, BackendError>, earlier: Earlier) -> Result<Outcome, BackendError> {
    let error = match answer {
        // It may hold what a command printed.
        Ok(note) => return Ok(Outcome::Done { note: redact(&note) }),
        Err(error) => error,
    };
    let settles = !error.outcome_unknown
        && match error.retryability {
            Retryability::Permanent => true,
            Retryability::Transient => earlier != Earlier::Stray,
            Retryability::Expired => earlier == Earlier::None,
        };
    if !settles {
        return Err(error);
    }
    Ok(if error.retryability == Retryability::Expired {
        Outcome::NotBegun { why: error.why }
    } else {
        // The journal also says what to do.
        let why = match &error.hint {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        Outcome::Failed { why }
    })
}

/// The units that an action touches.
pub fn units_of(action: &Action) -> Vec<UnitId> {
    match action {
        Action::TakeGuard { units, .. } | Action::DropGuard { units, .. } | Action::Collect { units } => {
            units.clone()
        }
        Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => {
            vec![unit.clone()]
        }
        Action::Step { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use stagger_core::model::{GoingBack, Kind, PartName, Phase, Revision, StageSpec, Width};

    use super::*;

    #[test]
    fn a_new_holder_raises_the_fence_wherever_the_world_can_refuse_and_waits_out_the_rest() {
        let restart = |unit: &str| Action::Restart {
            unit: UnitId::new(unit).unwrap(),
        };
        let open = [restart("fenced"), restart("conditional"), restart("bounded")];
        let first = takeover(&open, |action| match units_of(action)[0].as_str() {
            "fenced" => Fencing::Fenced,
            "conditional" => Fencing::Conditional,
            _ => Fencing::Bounded(Duration::from_secs(7)),
        });
        let names: Vec<_> = first.raise.iter().map(UnitId::as_str).collect();
        assert_eq!(names, ["fenced", "conditional"]);
        assert_eq!(first.wait, Duration::from_secs(7));
    }

    /// Of a visit, only the part that is a command cannot be refused: it is waited for all the same.
    #[test]
    fn what_a_stranger_may_have_under_way_is_any_phase_of_any_unit() {
        let stage = StageSpec {
            name: PartName::new("reboot").unwrap(),
            kind: Kind::new("node").unwrap(),
            revision: Revision::new("rebooted").unwrap(),
            width: Width::Policy,
            phases: vec![Phase::Enter, Phase::Change, Phase::Leave],
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        };
        let target = Target {
            title: "reboot".to_owned(),
            parts: vec![Part::Stage(stage)],
            only: None,
        };
        let units = [UnitId::new("node1").unwrap()];
        let bound = longest_bound(&target, &units, |action| match action {
            Action::Visit {
                phase: Phase::Change, ..
            } => Fencing::Bounded(Duration::from_secs(7)),
            _ => Fencing::Fenced,
        });
        assert_eq!(bound, Duration::from_secs(7));
    }

    #[test]
    fn what_is_written_down_holds_no_secret() {
        let told = outcome_of(
            Ok("moved with --password hunter2hunter2".to_owned()),
            Earlier::None,
        )
        .unwrap();
        let failed = BackendError::permanent(
            "run `tool --secret-key=hunter2hunter2` on h1",
            "it ended with 1: mysql://me:hunter2hunter2@db/x is away",
        );
        let failed = outcome_of(Err(failed.hint("try db_password=hunter2hunter2")), Earlier::None).unwrap();
        for outcome in [told, failed] {
            assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
        }
    }

    #[test]
    fn a_call_that_may_still_land_is_no_failure() {
        let lost = || BackendError::transient("stop osd.3", "no answer").outcome_unknown();
        let no = || BackendError::permanent("stop osd.3", "it ended with 1");
        let not_now = || BackendError::transient("stop osd.3", "the host is away");
        assert!(outcome_of(Err(lost()), Earlier::None).is_err());
        assert!(
            outcome_of(Err(not_now()), Earlier::None).is_ok(),
            "nothing was sent"
        );
        assert!(
            outcome_of(Err(not_now()), Earlier::Adopted).is_ok(),
            "that of the process before was waited out"
        );
        assert!(
            outcome_of(Err(not_now()), Earlier::Stray).is_err(),
            "the call before may still land"
        );
        assert!(
            outcome_of(Err(no()), Earlier::Stray).is_ok(),
            "it will be the same however often it comes"
        );
    }

    #[test]
    fn what_was_not_begun_is_settled_as_that_only_where_nothing_can_have_begun_before() {
        let late = || BackendError::expired("stop osd.3", "it was agreed to 21 s ago");
        let outcome = outcome_of(Err(late()), Earlier::None);
        assert!(matches!(outcome, Ok(Outcome::NotBegun { .. })), "{outcome:?}");
        for earlier in [Earlier::Adopted, Earlier::Stray] {
            assert!(outcome_of(Err(late()), earlier).is_err(), "{earlier:?}");
        }
    }
}
