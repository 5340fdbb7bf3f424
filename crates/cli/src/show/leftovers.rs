//! The leftovers of runs in a Ganeti, as text.

use stagger_ganeti::facts::NodeRole;
use stagger_ganeti::recovery::leftovers::{GanetiLeftovers, InstanceLeftover, VisitLeftover, batch_text};

/// All of it: nodes with what was taken from them and how it is given back, then guards, then what filters remember.
pub(crate) fn leftovers(left: &GanetiLeftovers) -> String {
    let mut lines = Vec::new();
    for visit in &left.visits {
        lines.extend(of_visit(visit));
    }
    for guard in &left.guards {
        lines.push(format!("guard {} of run {}", guard.guard, guard.run));
    }
    let records = &left.records;
    for claim in &records.claims {
        lines.push(format!("lock held by {}", claim.lock));
    }
    for handover in &records.handovers {
        lines.push(format!("run {} was handed over to {}", handover.run, handover.to));
    }
    if let Some(run) = &records.anchor {
        lines.push(format!("journal position of run {run}"));
    }
    if !records.refused.is_empty() {
        let count = records.refused.len();
        lines.push(format!(
            "{count} requests whose answer was lost are refused, should they still come"
        ));
    }
    if let Some(token) = records.fence {
        lines.push(format!("fence: jobs with a token older than {token} are refused"));
    }
    for (node, tag) in &left.unknown {
        lines.push(format!(
            "{node} has the tag {tag}, which this release does not know: it stays"
        ));
    }
    lines.join("\n")
}

fn of_visit(visit: &VisitLeftover) -> Vec<String> {
    let since = visit
        .notes
        .since
        .map(|since| format!(", since {since}"))
        .unwrap_or_default();
    let drained = if visit.role == NodeRole::Drained {
        "drained, "
    } else {
        ""
    };
    let mut lines = vec![format!(
        "{}  {drained}held by {}{since}",
        visit.node,
        visit.notes.owner_text()
    )];
    lines.extend(
        visit
            .instances
            .iter()
            .map(|instance| format!("  {}", of_instance(instance))),
    );
    if !visit.notes.waits.is_empty() {
        lines.push(format!(
            "  held for you: while its run is active, use `stagger ganeti done {}`",
            visit.node
        ));
    }
    if visit.may_go_down {
        lines.push(
            "  it shows no reboot since one or a command was sent to it: it is watched first, since it may still go down"
                .to_owned(),
        );
    }
    lines.extend(
        visit
            .plan
            .iter()
            .map(|batch| format!("  -> {}", batch_text(batch))),
    );
    lines.extend(visit.refused.iter().map(|why| format!("  not now: {why}")));
    lines
}

fn of_instance(instance: &InstanceLeftover) -> String {
    let what = format!("{} {}", instance.name, instance.done.text());
    match &instance.now {
        Some((node, status)) => format!("{what}: on {node}, {status}"),
        None => format!("{what}, and is gone"),
    }
}
