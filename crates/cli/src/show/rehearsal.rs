//! A rehearsal as text, in about fifteen lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::SignedDuration;
use stagger_core::model::{PartName, Terms};
use stagger_core::view;

use crate::documents::{Case, Exposure, Guests, Rehearsal, RehearsalOutcome, RehearsalRisk};
use stagger_report::duration;
use stagger_report::names::fit;

/// The report, in the cluster's own terms.
pub(crate) fn rehearsal(told: &Rehearsal, terms: &Terms, width: usize, next: &str) -> String {
    let mut lines = vec![("Ended", outcome(told)), ("Time", time(told))];
    if !told.doors.is_empty() {
        let names: Vec<&str> = told.doors.iter().map(PartName::as_str).collect();
        lines.push(("No undo", format!("auto-approved: {}", names.join(", "))));
    }
    if let Some(guests) = &told.guests {
        lines.push(("Exposure", self::guests(guests, terms)));
    }
    // Of the others nothing is counted.
    if told.exposure.placement_groups > 0 {
        let exposed = exposure(&told.exposure).into_iter();
        lines.extend(exposed.map(|line| ("Exposure", line)));
        match &told.risk {
            Some(risk) => lines.extend(self::risk(risk).into_iter().map(|line| ("Risk", line))),
            None => lines.push((
                "Risk",
                "nothing was drawn, no wave was passed or no run asked for".to_owned(),
            )),
        }
    }
    let left = told.left_alone.iter();
    for group in view::group(left.map(|left| (left.unit.to_string(), &left.reason))) {
        let names = group.units.join(" ");
        let more = match group.count - group.units.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(("Skipped", format!("{names}{more}: {}", group.reason)));
    }
    let mut text = format!(
        "{}  {}   a copy in memory; nothing was changed\n\n",
        told.cluster, told.title
    );
    let mut before = "";
    for (name, line) in &lines {
        let head = if *name == before { "" } else { name };
        before = name;
        let line = fit(&format!("{head:<9} {line}"), width.saturating_mul(3));
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\nPlan {}, seed {}.", told.plan, told.seed);
    let _ = write!(text, "Next: {next}");
    text
}

fn outcome(told: &Rehearsal) -> String {
    let why = told
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!(": {why}"));
    let how = match told.ended {
        RehearsalOutcome::Done => "done: every unit serves on the target",
        RehearsalOutcome::Incomplete => "incomplete: some units are skipped",
        RehearsalOutcome::RolledBack => "rolled back",
        RehearsalOutcome::Aborted => "aborted",
        RehearsalOutcome::Held => "held",
        RehearsalOutcome::Endless => "without an end",
    };
    format!("{how}{why}")
}

fn time(told: &Rehearsal) -> String {
    let time = &told.time;
    let seconds = |seconds| duration(SignedDuration::from_secs(seconds));
    format!(
        "{}, {} forecast; {} of {} waves, {} of {} units",
        seconds(time.took_seconds),
        seconds(time.forecast_seconds),
        time.waves,
        time.planned_waves,
        time.units,
        time.planned_units
    )
}

fn exposure(exposed: &Exposure) -> Vec<String> {
    let all = exposed.placement_groups;
    let mut lines = Vec::new();
    if exposed.stopped > 0 {
        lines.push(format!(
            "{} placement groups stopped serving because of the run. That is a bug of ours: report it with the file of \
             `stagger observe --save`",
            exposed.stopped
        ));
    }
    let wave = match (&exposed.stage, exposed.wave) {
        (Some(stage), Some(wave)) => format!(" (wave {wave} of {stage})"),
        _ => String::new(),
    };
    if exposed.worst == 0 {
        lines.push(format!(
            "none of {all} placement groups was ever one failure away from not serving because of us"
        ));
    } else {
        lines.push(format!(
            "at worst {} of {all} placement groups were one failure from unavailable because of the run{wave}",
            exposed.worst
        ));
        lines.push(format!(
            "{} placement-group-minutes in all",
            exposed.placement_group_seconds.div_ceil(60)
        ));
    }
    lines
}

/// `12 instances in 30 moves, none was down with its node`
fn guests(guests: &Guests, terms: &Terms) -> String {
    let Guests {
        running,
        moves,
        worst_down,
    } = guests;
    let (guest, host) = (&terms.guest, &terms.host);
    let down = match worst_down {
        0 => format!("no {guest} was down with its {host}"),
        down => format!("at worst {down} were down with their {host}s"),
    };
    format!("{running} {guest}s run; {moves} moves away, and back again; {down}")
}

fn risk(risk: &RehearsalRisk) -> Vec<String> {
    let RehearsalRisk {
        runs,
        stopped_in,
        longest_seconds,
        most_placement_groups,
        still_stopped_in,
        cases,
    } = risk;
    let seconds = i64::try_from(*longest_seconds).unwrap_or(i64::MAX);
    let longest = duration(SignedDuration::from_secs(seconds));
    let mut lines = Vec::new();
    if *stopped_in == 0 {
        lines.push(format!(
            "in none of {runs} runs in which one more OSD died did placement groups stop serving because of us"
        ));
    } else {
        lines.push(format!(
            "in {stopped_in} of {runs} runs with one more failed OSD, placement groups were unavailable until the wave was back"
        ));
        lines.push(format!(
            "(longest {longest}, at most {most_placement_groups} groups) that would serve without the run"
        ));
    }
    if *still_stopped_in > 0 {
        lines.push(format!(
            "in {still_stopped_in} of these some stay unavailable until the failed OSD is back: too few others had what \
             was written last"
        ));
    }
    lines.push(format!("of all {runs}: {}", endings(cases)));
    lines
}

/// What became of the runs: `3 finished, 97 were held (90 gates-shut, 7 rollback-failed)`.
fn endings(cases: &[Case]) -> String {
    let mut all: BTreeMap<RehearsalOutcome, BTreeMap<&str, usize>> = BTreeMap::new();
    for case in cases {
        let why = case.reason.as_deref().unwrap_or_default();
        *all.entry(case.ended).or_default().entry(why).or_default() += 1;
    }
    let said = all.iter().map(|(ended, whys)| {
        let count: usize = whys.values().sum();
        let how = match ended {
            RehearsalOutcome::Done => "finished",
            RehearsalOutcome::Incomplete => "finished the rest",
            RehearsalOutcome::RolledBack => "rolled back",
            RehearsalOutcome::Aborted => "ended early",
            RehearsalOutcome::Held => "then needed an operator",
            RehearsalOutcome::Endless => "came to no end",
        };
        let whys = whys.iter().filter(|(why, _)| !why.is_empty());
        let whys: Vec<String> = whys.map(|(why, count)| format!("{count} {why}")).collect();
        if whys.is_empty() {
            format!("{count} {how}")
        } else {
            format!("{count} {how} ({})", whys.join(", "))
        }
    });
    said.collect::<Vec<_>>().join(", ")
}
