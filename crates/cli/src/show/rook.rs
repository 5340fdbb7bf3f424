//! The status of a CephMaintenance, and the versions in its cluster.

use std::fmt::Write as _;

use jiff::Timestamp;
use stagger_core::model::{Topology, UnitId};
use stagger_rook::client::status::{Drains, Leader, MaintenanceCondition, MaintenanceStatus};
use stagger_rook::client::unmanaged::Unmanaged;
use stagger_rook::client::versions::{ClusterVersions, DaemonRow, Program};

use stagger_report::duration;
use stagger_report::names::{compress, fit};

use super::status;

/// The phase first, then the why, then what there is to know, then the run.
pub(crate) fn status(told: &MaintenanceStatus, now: Timestamp, upgrade: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", headline(told));
    let manages = if told.manages.is_empty() {
        "observes".to_owned()
    } else {
        format!("manages {} of", told.manages.join(", "))
    };
    let _ = writeln!(
        text,
        "{}/{}  {manages} CephCluster {}, wants {}",
        told.namespace,
        told.name,
        told.cluster,
        told.image.as_deref().unwrap_or("no image")
    );
    let _ = write!(text, "operator   {}", leader(&told.leader, now));
    if told.phase.is_some() && !told.about_this_spec {
        text.push_str("\n           has not reported on the newest spec yet");
    }
    // That it is seen to is no news; that it is not is.
    let is_news = |one: &&MaintenanceCondition| (one.status == "True") != (one.kind == "Available");
    for condition in told.conditions.iter().filter(is_news) {
        let not = if condition.status == "True" { "" } else { "not " };
        let _ = write!(text, "\ncondition  {not}{}", condition.kind);
        if let Some(since) = condition.last_transition_time {
            let _ = write!(text, " since {since:.0}");
        }
        // That of the phase is in the first line.
        if !condition.message.is_empty() && told.message.as_ref() != Some(&condition.message) {
            let _ = write!(text, ": {}", condition.message);
        }
    }
    if let Some(command) = &told.command {
        let heard = told.heard.as_ref() == Some(command);
        let _ = write!(
            text,
            "\ncommand    {command}: {}",
            if heard { "processed" } else { "not processed yet" }
        );
    }
    if let Some(image) = &told.gave_up {
        let _ = write!(text, "\ngave up    {image}: `stagger resume` has it tried again");
    }
    if let Some(drains) = &told.drains {
        let _ = write!(text, "\ndrains     {}", drained(drains));
    }
    if let Some(why) = &told.unreadable {
        let _ = write!(
            text,
            "\nrun        cannot be shown: {why}; use the operator's release of stagger"
        );
    }
    let ready = told.phase.as_deref() == Some("Ready");
    if let Some(run) = told.run.as_ref().filter(|_| upgrade || !ready) {
        let _ = write!(
            text,
            "\n\n{}",
            status::status(run, &Topology::default(), None, now, upgrade)
        );
    }
    text
}

/// How it is, and then why a drain stands still.
pub(crate) fn unmanaged(seen: &Unmanaged) -> String {
    let Unmanaged {
        namespace, cluster, ..
    } = seen;
    let mut text = "UNMANAGED  it has no CephMaintenance: observed only".to_owned();
    let phase = seen.phase.as_deref().unwrap_or("no phase yet");
    let why = match &seen.message {
        Some(why) => format!(": {why}"),
        None => String::new(),
    };
    let image = seen.image.as_deref().unwrap_or("no image");
    let _ = write!(text, "\n{namespace}/{cluster}  {phase}{why}, wants {image}");
    let _ = write!(
        text,
        "\nceph       {}",
        seen.health.as_deref().unwrap_or("not known yet")
    );
    for (name, why) in &seen.warnings {
        let _ = write!(text, "\n           {name}: {why}");
    }
    let not_ready = if seen.not_ready.is_empty() {
        String::new()
    } else {
        format!("; not ready: {}", seen.not_ready.join(" "))
    };
    let _ = write!(
        text,
        "\npods       {} of {} are ready{not_ready}",
        seen.pods - seen.not_ready.len(),
        seen.pods
    );
    if let Some(domain) = &seen.draining {
        let _ = write!(
            text,
            "\ndrains     Rook drains {domain}; all others wait until it is back, or placement groups are clean without it"
        );
    }
    for node in &seen.cordoned {
        let _ = write!(text, "\ncordoned   {}", node.node);
        if !node.may_go.is_empty() {
            let _ = write!(text, "\n           {} may go", node.may_go.join(" "));
        }
        for (pod, why) in &node.blocked {
            let _ = write!(text, "\n           {pod} may not: {why}");
        }
    }
    for why in &seen.unseen {
        let _ = write!(text, "\nunseen     {why}");
    }
    text
}

fn headline(told: &MaintenanceStatus) -> String {
    let Some(phase) = &told.phase else {
        return "UNKNOWN  no operator has reported on it yet".to_owned();
    };
    let mut line = phase.to_uppercase();
    if let Some(reason) = &told.reason {
        let _ = write!(line, "  {reason}");
    }
    if let Some(message) = &told.message {
        let _ = write!(
            line,
            "{} {message}",
            if told.reason.is_some() { ":" } else { " " }
        );
    }
    line
}

/// Who leads, in a few words.
pub(crate) fn leader(leader: &Leader, now: Timestamp) -> String {
    let ago = |renewed: &Timestamp| duration(now.duration_since(*renewed));
    match leader {
        Leader::Leads { holder, renewed } => format!("leader {holder}, renewed {} ago", ago(renewed)),
        Leader::Expired { holder, renewed } => {
            format!("no leader: {holder} last renewed {} ago", ago(renewed))
        }
        Leader::Nobody => "no leader: the Lease is not held".to_owned(),
        Leader::Unknown { why } => format!("unknown: {why}"),
    }
}

fn drained(drains: &Drains) -> String {
    let mut said = Vec::new();
    if !drains.draining.is_empty() {
        said.push(format!("{} may be drained", drains.draining.join(", ")));
    }
    if drains.blocked_count > 0 {
        let more = drains.blocked_count.saturating_sub(drains.blocked.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        said.push(format!(
            "{}{more} may not: {}",
            drains.blocked.join(", "),
            drains.why
        ));
    }
    for (domain, until) in &drains.noout {
        said.push(format!("noout on {domain} until {until:.0}"));
    }
    said.join("; ")
}

/// The programs of ours first, then a row for each kind and pair of versions, or for each daemon.
pub(crate) fn versions(versions: &ClusterVersions, now: Timestamp, all: bool, width: usize) -> String {
    let mut text = format!(
        "operator  {}\n          {}\nagents    {}\n\n",
        program(versions.operator.as_ref()),
        leader(&versions.leader, now),
        program(versions.agents.as_ref()),
    );
    let head = ["kind", "rook", "ceph", "ready", "image", "daemons"].map(str::to_owned);
    let mut rows = vec![head];
    for row in &versions.daemons {
        if all {
            rows.extend(row.daemons.iter().map(|one| {
                let ready = usize::from(!row.not_ready.contains(one));
                cells(row, ready, std::slice::from_ref(one))
            }));
        } else {
            rows.push(cells(row, row.count - row.not_ready.len(), &row.daemons));
        }
    }
    let longest = |column: usize| -> usize {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths = [0, 1, 2, 3, 4].map(longest);
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let names = fit(&row[5], width.saturating_sub(line.chars().count()).max(12));
        let _ = writeln!(text, "{line}{names}");
    }
    for why in &versions.unclear {
        let _ = writeln!(text, "unclear   {why}");
    }
    text.trim_end().to_owned()
}

fn program(program: Option<&Program>) -> String {
    program.map_or_else(
        || "none in the cluster".to_owned(),
        |found| {
            format!(
                "{}  {}  {} of {} ready",
                found.version, found.image, found.ready, found.wanted
            )
        },
    )
}

fn cells(row: &DaemonRow, ready: usize, daemons: &[String]) -> [String; 6] {
    let units: Result<Vec<UnitId>, _> = daemons.iter().map(|name| UnitId::new(name.as_str())).collect();
    let names = units.map_or_else(|_| daemons.join(" "), |units| compress(&units));
    [
        row.kind.clone(),
        row.rook_version.clone(),
        row.ceph_version.clone(),
        format!("{ready} of {}", daemons.len()),
        row.image.clone(),
        names,
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stagger_core::view::{Current, RunVerdict, RunView, Schema};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn run() -> RunView {
        RunView {
            ended_at: None,
            schema: Schema {
                name: "run".to_owned(),
                version: 1,
            },
            run: "r1".parse().unwrap(),
            cluster: "main".parse().unwrap(),
            title: "ceph 18.2.7 to 20.2.4".to_owned(),
            verdict: RunVerdict::Running,
            why: "gates-shut: pgs-clean: 3 of 160 are not".to_owned(),
            until: None,
            started: at("2026-11-03T09:50:00Z"),
            seq: 41,
            holder: "token 2, op-1 process 1".to_owned(),
            changed: 5,
            waves_passed: 5,
            waves_left: 7,
            seconds_left: 600,
            completed: vec!["mon".parse().unwrap(), "mgr".parse().unwrap()],
            current: Some(Current {
                stage: "osd".parse().unwrap(),
                since: at("2026-11-03T09:59:00Z"),
                units: BTreeMap::from([(
                    "changed".to_owned(),
                    vec!["osd.3".parse().unwrap(), "osd.4".parse().unwrap()],
                )]),
                shut: vec![("pgs-clean".to_owned(), "3 of 160 are not".to_owned())],
            }),
            left_alone: Vec::new(),
            ending: None,
        }
    }

    fn told() -> MaintenanceStatus {
        let condition = |kind: &str, status: &str| MaintenanceCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: "UpgradeRuns".to_owned(),
            message: String::new(),
            last_transition_time: Some(at("2026-11-03T09:50:00Z")),
        };
        MaintenanceStatus {
            namespace: "rook-ceph".to_owned(),
            name: "main".to_owned(),
            cluster: "ceph".to_owned(),
            manages: vec!["drains".to_owned(), "updates".to_owned()],
            image: Some("quay.io/ceph/ceph:v20.2.4".to_owned()),
            phase: Some("Progressing".to_owned()),
            reason: Some("UpgradeRuns".to_owned()),
            message: Some("ceph 18.2.7 to 20.2.4: running (5 of 12 waves)".to_owned()),
            conditions: vec![condition("UpToDate", "False"), condition("Progressing", "True")],
            about_this_spec: true,
            command: Some("pause#2".to_owned()),
            heard: Some("resume#1".to_owned()),
            gave_up: None,
            drains: Some(Drains {
                blocked: vec!["a".to_owned(), "c".to_owned()],
                blocked_count: 5,
                why: "osd.3 of b is down".to_owned(),
                waiting: Vec::new(),
                draining: vec!["b".to_owned()],
                noout: BTreeMap::from([("b".to_owned(), at("2026-11-03T10:20:00Z"))]),
            }),
            run: Some(run()),
            unreadable: None,
            leader: Leader::Leads {
                holder: "op-1".to_owned(),
                renewed: at("2026-11-03T09:59:57Z"),
            },
        }
    }

    #[test]
    fn a_run_is_shown_with_all_that_is_known_of_it() {
        let mut told = told();
        told.conditions[1].message = told.message.clone().unwrap();
        told.conditions.push(MaintenanceCondition {
            kind: "Degraded".to_owned(),
            message: "osd.3 has no label".to_owned(),
            ..told.conditions[1].clone()
        });
        let expected = "\
PROGRESSING  UpgradeRuns: ceph 18.2.7 to 20.2.4: running (5 of 12 waves)
rook-ceph/main  manages drains, updates of CephCluster ceph, wants quay.io/ceph/ceph:v20.2.4
operator   leader op-1, renewed 3 s ago
condition  Progressing since 2026-11-03T09:50:00Z
condition  Degraded since 2026-11-03T09:50:00Z: osd.3 has no label
command    pause#2: not processed yet
drains     b may be drained; a, c and 3 more may not: osd.3 of b is down; noout on b until 2026-11-03T10:20:00Z

RUNNING  gates-shut: pgs-clean: 3 of 160 are not
main  ceph 18.2.7 to 20.2.4   run r1, for 10 min
5 units changed, 5 waves passed, 7 left, about 10 min
completed  mon, mgr
now        osd since 2026-11-03T09:59:00Z
  changed    osd.3-4
  x pgs-clean: 3 of 160 are not
holder     token 2, op-1 process 1";
        assert_eq!(status(&told, at("2026-11-03T10:00:00Z"), false), expected);
    }

    /// A run that is over is news only where it is the reason why the cluster is as it is.
    #[test]
    fn nobody_there_is_said() {
        let mut told = told();
        told.phase = Some("Ready".to_owned());
        told.leader = Leader::Expired {
            holder: "op-1".to_owned(),
            renewed: at("2026-11-03T09:58:00Z"),
        };
        told.about_this_spec = false;
        (told.drains, told.command) = (None, None);
        let expected = "\
READY  UpgradeRuns: ceph 18.2.7 to 20.2.4: running (5 of 12 waves)
rook-ceph/main  manages drains, updates of CephCluster ceph, wants quay.io/ceph/ceph:v20.2.4
operator   no leader: op-1 last renewed 2 min ago
           has not reported on the newest spec yet
condition  Progressing since 2026-11-03T09:50:00Z";
        assert_eq!(status(&told, at("2026-11-03T10:00:00Z"), false), expected);
        assert!(status(&told, at("2026-11-03T10:00:00Z"), true).contains("run r1"));
        (told.phase, told.run) = (None, None);
        assert!(status(&told, Timestamp::UNIX_EPOCH, false).starts_with("UNKNOWN  no operator"));
    }

    #[test]
    fn versions_are_a_row_for_each_pair() {
        let row = |ceph: &str, image: &str, daemons: &[&str], not_ready: &[&str]| DaemonRow {
            kind: "osd".to_owned(),
            rook_version: "v1.20.1".to_owned(),
            ceph_version: ceph.to_owned(),
            image: image.to_owned(),
            count: daemons.len(),
            daemons: daemons.iter().map(|name| (*name).to_owned()).collect(),
            not_ready: not_ready.iter().map(|name| (*name).to_owned()).collect(),
        };
        let found = ClusterVersions {
            operator: Some(Program {
                version: "0.1.0".to_owned(),
                image: "stagger:0.1.0".to_owned(),
                wanted: 2,
                ready: 1,
            }),
            leader: Leader::Nobody,
            agents: None,
            daemons: vec![
                row("18.2.7-0", "ceph:v18", &["osd.0", "osd.1", "osd.2"], &[]),
                row("20.2.4-0", "quay.io/ceph:v20", &["osd.3"], &["osd.3"]),
            ],
            unclear: vec!["Deployment x has no label".to_owned()],
        };
        let now = Timestamp::UNIX_EPOCH;
        let expected = "\
operator  0.1.0  stagger:0.1.0  1 of 2 ready
          no leader: the Lease is not held
agents    none in the cluster

kind  rook     ceph      ready   image             daemons
osd   v1.20.1  18.2.7-0  3 of 3  ceph:v18          osd.0-2
osd   v1.20.1  20.2.4-0  0 of 1  quay.io/ceph:v20  osd.3
unclear   Deployment x has no label";
        assert_eq!(versions(&found, now, false, 100), expected);
        let all = versions(&found, now, true, 100);
        assert!(
            all.contains("osd   v1.20.1  18.2.7-0  1 of 1  ceph:v18          osd.2\n"),
            "{all}"
        );
    }
}
