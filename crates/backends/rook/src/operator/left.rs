//! What a run leaves undone, and whether it is tried again by itself.

use serde_json::Value;
use stagger_core::model::{Reason, UnitId};
use stagger_core::plan::Plan;
use stagger_core::run::Ending;
use stagger_core::view::RunView;

use super::blocked::Blocked;

/// Reasons of units that were tried and failed. What was left for another reason may go when that has passed.
const FAILED: [&str; 3] = ["went-back", "visit-failed", "could-not-be-entered"];
/// So many are named.
const NAMED: usize = 5;

/// Whether the same image is not tried again by itself after a run that ended so.
pub(super) fn is_given_up(ending: &Ending) -> bool {
    match ending {
        Ending::Done => false,
        Ending::Aborted | Ending::RolledBack { .. } => true,
        Ending::Incomplete { left } => left
            .iter()
            .any(|(_, reason)| FAILED.contains(&reason.slug.as_str())),
    }
}

/// Why a run with this plan is not begun; `None`: it has something to do. `differing`: the daemons that have
/// another image.
pub(super) fn not_begun(plan: &Plan, differing: &[UnitId]) -> Option<Blocked> {
    if plan.stages().next().is_some() {
        return None;
    }
    if !plan.left_alone.is_empty() {
        let left = plan
            .left_alone
            .iter()
            .map(|left| (left.unit.as_str(), &left.reason));
        return Some(Blocked::for_now(
            "UnitsLeft",
            format!(
                "all others have the image; it goes on by itself when these may go: {}",
                named(left)
            ),
        ));
    }
    plan.is_empty().then(|| {
        let names: Vec<&str> = differing.iter().take(NAMED).map(UnitId::as_str).collect();
        Blocked::for_now(
            "UnknownToCeph",
            format!(
                "{}{} have Deployments with another image, and Ceph knows none of them; wait until they have \
                 joined, or delete the Deployments",
                names.join(" "),
                more(differing.len())
            ),
        )
    })
}

/// What is said of what is not tried again by itself, by the run that led to it. `cluster`: the name of the
/// CephCluster.
pub(super) fn given_up(run: Option<Value>, wish: &str, namespace: &str, cluster: &str) -> Blocked {
    let view = run.and_then(|run| serde_json::from_value::<RunView>(run).ok());
    let (reason, what) = match view.and_then(|view| view.ending) {
        Some(Ending::Incomplete { left }) => {
            let left = left.iter().map(|(what, why)| (what.as_str(), why));
            ("UnitsFailed", format!("left undone what failed: {}", named(left)))
        }
        Some(Ending::Aborted) => ("EndedByAPerson", "was ended by a person".to_owned()),
        _ => ("WentBack", "was taken back".to_owned()),
    };
    Blocked::until_changed(
        reason,
        format!(
            "an upgrade to {wish} {what}; ask for something else, or try again: `stagger resume -n {namespace}`, or \
             `kubectl -n {namespace} annotate --overwrite cephcluster {cluster} {}=retry#1`",
            super::COMMAND
        ),
    )
}

fn named<'a>(left: impl Iterator<Item = (&'a str, &'a Reason)>) -> String {
    let all: Vec<String> = left.map(|(what, why)| format!("{what} ({why})")).collect();
    let shown: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
    format!("{}{}", shown.join(", "), more(all.len()))
}

fn more(count: usize) -> String {
    match count.checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(parts: &Value, left: &[(&str, &str)]) -> Plan {
        let left: Vec<_> = left
            .iter()
            .map(|(unit, slug)| json!({ "unit": unit, "stage": "osd", "reason": Reason::new(slug, "why") }))
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
        assert_eq!(said(not_begun(&plan(&step, &[]), &differing)), None);
        let left = [("osd.7", "never-ok-to-stop")];
        for parts in [json!([]), step] {
            let (reason, why) = said(not_begun(&plan(&parts, &left), &differing)).unwrap();
            assert_eq!(reason, "UnitsLeft");
            assert!(why.contains("osd.7 (never-ok-to-stop: why)"), "{why}");
        }
        let blocked = not_begun(&plan(&json!([]), &[]), &differing).unwrap();
        assert!(blocked.passes && blocked.reason == "UnknownToCeph" && blocked.why.contains("osd.7"));
    }

    #[test]
    fn only_what_failed_is_given_up() {
        let ending = |slugs: &[&str]| Ending::Incomplete {
            left: slugs
                .iter()
                .map(|slug| ("osd.3".to_owned(), Reason::new(slug, "why")))
                .collect(),
        };
        for (ending, given_up) in [
            (Ending::Done, false),
            (Ending::Aborted, true),
            (ending(&["never-ok-to-stop", "units-left-behind"]), false),
            (ending(&["never-ok-to-stop", "went-back"]), true),
            (
                Ending::RolledBack {
                    reason: Reason::new("went-back", ""),
                },
                true,
            ),
        ] {
            assert_eq!(is_given_up(&ending), given_up, "{ending:?}");
        }
    }
}
