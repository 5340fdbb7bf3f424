//! The remaining work after a run, and whether it is retried automatically.

use stagger_core::model::{Code, Policy, Reason, RunId, Terms, UnitId};
use stagger_core::plan::{self, Plan};
use stagger_core::run::{Command, Ending, Entry, Event, Run};

use super::blocked::Blocked;
use crate::api::maintenance::Desired;
use crate::executor::beside::CoexistenceState;
use crate::executor::goal::{Goal, is_superseded};
use crate::executor::memory::RookMemory;

/// Reasons of units that were tried and failed. What was left for another reason may go when that has passed.
const FAILED: [Code; 3] = [Code::WentBack, Code::VisitFailed, Code::CouldNotBeEntered];
/// The field that permits interruptions.
const INTERRUPTIONS: &str = "spec.updatePolicy.interruptions";
/// So many are named.
const NAMED: usize = 5;

/// The newest run, which is over, as its journal has it.
#[derive(Debug, Clone)]
pub(crate) struct Last {
    /// Its name.
    pub(crate) run: RunId,
    /// What it was asked for; `None`: nobody can read that any more.
    wish: Option<Goal>,
    /// What it kept, if it went on beside a Rook that runs.
    beside: Option<CoexistenceState>,
    ending: Ending,
    /// Whether it was ended as something else was asked for.
    interrupted: bool,
}

impl Last {
    /// Of a run with that journal; `None`: it is not over.
    pub(crate) fn of(run: &Run, journal: &[Entry]) -> Option<Self> {
        let ended_by = journal.iter().rev().find_map(|entry| match &entry.event {
            Event::Asked {
                command: Command::Abort,
                by,
            } => Some(by),
            _ => None,
        });
        let memory: Option<RookMemory> = serde_json::from_value(run.start().baseline.clone()).ok();
        let (wish, beside) = memory.map_or((None, None), |memory| (Some(memory.wish), memory.beside));
        Some(Self {
            run: run.start().run.clone(),
            wish,
            beside,
            ending: run.ended()?.clone(),
            interrupted: ended_by.is_some_and(|by| is_superseded(by)),
        })
    }

    /// What it kept of how it was before, and what it was asked for, if it went on beside a Rook that runs.
    pub(crate) fn beside(&self) -> Option<(&CoexistenceState, &Goal)> {
        self.beside.as_ref().zip(self.wish.as_ref())
    }

    /// Whether all that any plan would change was changed: what is still held is changed by none.
    pub(crate) fn is_done(&self) -> bool {
        self.ending == Ending::Done
    }

    /// What it was asked for, where the same is asked for now and that is not tried again by itself.
    pub(crate) fn failed_target(&self, desired: &Desired) -> Option<String> {
        let wish = self.wish.as_ref()?;
        let for_good = is_final_failure(&self.ending) && !self.interrupted;
        (for_good && wish.differs(desired).is_none()).then(|| wish.name())
    }

    /// What is said of that. `name`: that of the CephMaintenance.
    pub(crate) fn blocked(&self, wish: &str, namespace: &str, name: &str) -> Blocked {
        let (reason, what) = match &self.ending {
            Ending::Incomplete { left } => {
                let left = left.iter().map(|(what, why)| (what.as_str(), why));
                (
                    "UnitsFailed",
                    format!("is incomplete; failed: {}", unit_list(left)),
                )
            }
            Ending::Aborted => ("EndedByAPerson", "was aborted by an operator".to_owned()),
            Ending::RolledBack { .. } | Ending::Done => ("WentBack", "was rolled back".to_owned()),
        };
        Blocked::until_changed(
            reason,
            format!(
                "an upgrade to {wish} {what}; change the spec, or try again: `stagger resume -n {namespace}`, or `kubectl \
                 -n {namespace} annotate --overwrite cephmaintenance {name} {}=retry#1`",
                crate::api::names::COMMAND
            ),
        )
    }
}

/// Whether the same is not tried again by itself after a run that ended so.
fn is_final_failure(ending: &Ending) -> bool {
    match ending {
        Ending::Done => false,
        Ending::Aborted | Ending::RolledBack { .. } => true,
        Ending::Incomplete { left } => left.iter().any(|(_, reason)| FAILED.contains(&reason.code)),
    }
}

/// Why a run with this plan is not begun; `None`: it has something to do. `differing`: the daemons that have
/// another image.
pub(crate) fn blocked_reason(plan: &Plan, differing: &[UnitId]) -> Option<Blocked> {
    // What comes first waits for what is left: a run would begin and end, again and again.
    let waits = plan.parts.first().is_some_and(|first| {
        let mut left = plan.left_alone.iter();
        left.any(|left| left.needed_by.as_ref() == Some(first.name()))
    });
    if plan.stages().next().is_some() && !waits {
        return None;
    }
    if !plan.left_alone.is_empty() {
        let left = plan
            .left_alone
            .iter()
            .map(|left| (left.unit.as_str(), &left.reason));
        return Some(Blocked::temporary(
            "UnitsLeft",
            format!(
                "{}; it continues by itself once these can be changed: {}",
                match plan.parts.first().filter(|_| waits) {
                    Some(first) => format!("{} waits for what was skipped", first.name()),
                    None => "all others have the image".to_owned(),
                },
                unit_list(left)
            ),
        ));
    }
    plan.is_empty().then(|| {
        let names: Vec<&str> = differing.iter().take(NAMED).map(UnitId::as_str).collect();
        Blocked::temporary(
            "UnknownToCeph",
            format!(
                "{}{} have Deployments with another image, and Ceph knows none of them; wait until they have \
                 joined, or delete the Deployments",
                names.join(" "),
                and_more(differing.len())
            ),
        )
    })
}

/// Why a run with this plan is not begun: it would end half-way, behind what cannot be undone.
pub(crate) fn unreachable_target(plan: &Plan, policy: &Policy, terms: &Terms) -> Option<Blocked> {
    let reasons = plan::blocking_reasons(plan, policy, terms);
    if reasons.is_empty() {
        return None;
    }
    let all: Vec<String> = reasons
        .iter()
        .map(|reason| in_the_spec(&reason.to_string()))
        .collect();
    Some(Blocked::temporary(
        "TargetOutOfReach",
        format!(
            "{}; it is looked at again by itself, and spec.updatePolicy.partial does what can be done and ends before what \
             waits",
            all.join("; ")
        ),
    ))
}

/// A command line's options, as the fields of a spec.
fn in_the_spec(text: &str) -> String {
    text.replace("--interrupt, or interruptions in [policy]", INTERRUPTIONS)
        .replace("`--interrupt ", &format!("`{INTERRUPTIONS}: "))
}

fn unit_list<'a>(left: impl Iterator<Item = (&'a str, &'a Reason)>) -> String {
    let all: Vec<String> = left.map(|(what, why)| format!("{what} ({why})")).collect();
    let shown: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
    format!("{}{}", shown.join(", "), and_more(all.len()))
}

fn and_more(count: usize) -> String {
    match count.checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use crate::api::maintenance::desired;
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::Timestamp;
    use serde_json::{Value, json};
    use stagger_ceph::translate::Baseline;
    use stagger_core::model::{ClusterName, GoingBack, Policy, Terms};
    use stagger_core::run::Start;

    use super::*;
    use crate::api::pod_revision::RevisionCatalog;
    use crate::executor::goal::SUPERSEDED;

    fn plan(parts: &Value, left: &[(&str, &str)]) -> Plan {
        let left: Vec<_> = left
            .iter()
            .map(|(unit, slug)| json!({ "unit": unit, "stage": "osd", "reason": Reason::of_backend(slug, "why") }))
            .collect();
        serde_json::from_value(json!({
            "document": "plan", "version": 1, "id": "", "cluster": "c", "title": "t", "generation": "osdmap 1",
            "parts": parts, "left_alone": left, "search": { "seed": 0, "steps": 0 },
        }))
        .unwrap()
    }

    fn said(blocked: Option<Blocked>) -> Option<(&'static str, String)> {
        blocked.map(|blocked| (blocked.reason, blocked.why))
    }

    /// Else the same run would begin and end again and again.
    #[test]
    fn a_run_that_could_do_nothing_is_not_begun() {
        let unit = |name: &str| UnitId::new(name).unwrap();
        let differing = [unit("osd.7")];
        let step = json!([{ "step": { "name": "require-osd-release-20", "why": "w" } }]);
        assert_eq!(said(blocked_reason(&plan(&step, &[]), &differing)), None);
        let left = [("osd.7", "never-ok-to-stop")];
        for parts in [json!([]), step] {
            let (reason, why) = said(blocked_reason(&plan(&parts, &left), &differing)).unwrap();
            assert_eq!(reason, "UnitsLeft");
            assert!(why.contains("osd.7 (never-ok-to-stop: why)"), "{why}");
        }
        // Where what can be done is asked for, what is left is done with all that comes before what waits for it.
        let stage = |name: &str| {
            json!({ "stage": {
            "name": name, "kind": name, "revision": "20", "all": 1, "parallel": 1, "waves": [], "at_least": 0, "at_least_because": "",
            "going_back": GoingBack::Restart,
        } })
        };
        let with = |first: &str| {
            let mut plan = plan(&json!([]), &left);
            plan.parts = serde_json::from_value(json!([stage(first)])).unwrap();
            plan.left_alone[0].needed_by = Some("rgw".parse().unwrap());
            plan
        };
        assert_eq!(said(blocked_reason(&with("mds"), &differing)), None);
        let (reason, why) = said(blocked_reason(&with("rgw"), &differing)).unwrap();
        assert!(
            reason == "UnitsLeft" && why.starts_with("rgw waits for what was skipped;"),
            "{why}"
        );
        let blocked = blocked_reason(&plan(&json!([]), &[]), &differing).unwrap();
        assert!(blocked.passes && blocked.reason == "UnknownToCeph" && blocked.why.contains("osd.7"));
    }

    /// It would be found out half-way, behind what cannot be undone.
    #[test]
    fn a_run_that_would_end_half_way_is_not_begun() {
        let step = json!([{ "step": { "name": "require-osd-release-20", "why": "w" } }]);
        let mut made = plan(&step, &[]);
        let terms = Terms::default();
        assert_eq!(said(unreachable_target(&made, &Policy::default(), &terms)), None);
        made.left_alone = serde_json::from_value(json!([{
            "unit": "osd.7", "stage": "osd", "needed_by": "require-osd-release-20",
            "reason": Reason::new(Code::UnitDown, "it is down"),
        }]))
        .unwrap();
        made.interruptions = serde_json::from_value(json!([{
            "name": "pool.rbd", "sort": "pool", "units": 2, "seconds": 20, "what": "clients of the pool rbd wait",
            "permitted": false,
        }]))
        .unwrap();
        let (reason, why) = said(unreachable_target(&made, &Policy::default(), &terms)).unwrap();
        assert_eq!(reason, "TargetOutOfReach");
        for word in [
            "osd.7 is skipped",
            "require-osd-release-20 waits",
            "spec.updatePolicy.partial",
        ] {
            assert!(why.contains(word), "{word}: {why}");
        }
        // The words are those of a spec, and not of a command line.
        assert!(
            why.contains("`spec.updatePolicy.interruptions: pool.rbd`") && !why.contains("--interrupt"),
            "{why}"
        );
        let partial = Policy {
            partial: true,
            ..Policy::default()
        };
        assert_eq!(said(unreachable_target(&made, &partial, &terms)), None);
    }

    /// What a run was given up for is in its journal: a status may be lost.
    #[test]
    fn what_is_given_up_is_read_from_the_journal() {
        let spec = |image: &str| desired(json!({}), json!({ "manage": ["updates"], "image": image }));
        let of = |ending: &Ending, by: &str| {
            let memory = RookMemory {
                baseline: Baseline {
                    at: Timestamp::UNIX_EPOCH,
                    fsid: String::new(),
                    health: BTreeMap::new(),
                    mgr_standbys: 0,
                    osds_in: BTreeSet::new(),
                    crashes: BTreeSet::new(),
                    daemons: BTreeMap::new(),
                },
                book: RevisionCatalog::new(),
                wish: Goal::of(&spec("ceph:20"), true).unwrap(),
                beside: None,
            };
            let start = Start {
                version: 1,
                run: RunId::new("r1").unwrap(),
                cluster: ClusterName::new("c").unwrap(),
                identity: None,
                target: serde_json::from_value(json!({ "title": "t", "parts": [] })).unwrap(),
                policy: Policy::default(),
                baseline: serde_json::to_value(memory).unwrap(),
                topology: stagger_core::model::Topology::default(),
            };
            let events = [
                Event::Started(Box::new(start)),
                Event::LeaseTaken {
                    fence: 1,
                    holder: "a@b".to_owned(),
                },
                Event::Asked {
                    command: Command::Abort,
                    by: by.to_owned(),
                },
                Event::Ended {
                    outcome: ending.clone(),
                },
            ];
            let journal: Vec<Entry> = (1..)
                .zip(events)
                .map(|(seq, event)| Entry {
                    seq,
                    at: Timestamp::UNIX_EPOCH,
                    event,
                })
                .collect();
            let run = Run::replay(journal.clone()).unwrap().unwrap();
            assert!(
                Last::of(
                    &Run::replay(journal[..3].to_vec()).unwrap().unwrap(),
                    &journal[..3]
                )
                .is_none()
            );
            Last::of(&run, &journal).unwrap()
        };
        assert_eq!(of(&Ending::Done, "anna").failed_target(&spec("ceph:20")), None);
        // What is still held after it goes back to Rook.
        assert!(of(&Ending::Done, "anna").is_done() && !of(&Ending::Aborted, "anna").is_done());
        let last = of(
            &Ending::Aborted,
            "the CephMaintenance: annotation stagger.dev/command",
        );
        assert_eq!(last.failed_target(&spec("ceph:20")).as_deref(), Some("ceph:20"));
        assert_eq!(last.failed_target(&spec("ceph:21")), None);
        let blocked = last.blocked("ceph:20", "ns", "c");
        assert!(blocked.reason == "EndedByAPerson" && blocked.why.contains("stagger resume -n ns"));
        // Ended for another image, and then the first is asked for again.
        let by = format!("{SUPERSEDED}: the image is ceph:21 now");
        assert_eq!(of(&Ending::Aborted, &by).failed_target(&spec("ceph:20")), None);
    }

    #[test]
    fn only_what_failed_is_given_up() {
        let ending = |slugs: &[&str]| Ending::Incomplete {
            left: slugs
                .iter()
                .map(|slug| ("osd.3".to_owned(), Reason::of_backend(slug, "why")))
                .collect(),
        };
        for (ending, given_up) in [
            (Ending::Done, false),
            (Ending::Aborted, true),
            (ending(&["never-ok-to-stop", "units-left-behind"]), false),
            (ending(&["never-ok-to-stop", "went-back"]), true),
            (
                Ending::RolledBack {
                    reason: Reason::new(Code::WentBack, ""),
                },
                true,
            ),
        ] {
            assert_eq!(is_final_failure(&ending), given_up, "{ending:?}");
        }
    }
}
