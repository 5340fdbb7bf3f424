//! A run's status, in short.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::Topology;
use stagger_core::view::{RunVerdict, RunView};

use stagger_report::forecast::RunForecast;
use stagger_report::names::{Places, fit};
use stagger_report::text::{counts, units};
use stagger_report::{History, duration};

use super::paint::painted;

/// How wide the word before a line is set.
const HEAD: usize = 11;
/// The most rows of the map.
const MAP: usize = 12;

/// Units with their hosts take no more of a line than that.
const UNITS: usize = 100;

/// The verdict first, then the why, then what it is at. `left`: how long the rest takes by earlier runs.
pub(crate) fn status(
    view: &RunView,
    topology: &Topology,
    left: Option<&RunForecast>,
    now: Timestamp,
    upgrade: bool,
) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}  {}", view.verdict, view.why);
    if let Some(until) = view.until {
        let _ = writeln!(
            text,
            "until      {until:.0} at most, {} from now",
            duration(until.duration_since(now))
        );
    }
    if view.verdict == RunVerdict::Interrupted {
        let run = &view.run;
        let _ = writeln!(
            text,
            "next       `stagger resume {run}` continues it, `stagger abort {run}` ends it"
        );
    }
    let took = match view.ended_at {
        Some(ended) => format!("took {}", duration(ended.duration_since(view.started))),
        None => format!("for {}", duration(now.duration_since(view.started))),
    };
    let _ = writeln!(
        text,
        "{}  {}   run {}, {took}",
        view.cluster, view.title, view.run
    );
    let _ = writeln!(
        text,
        "{} units changed, {} waves passed, {} left, about {}",
        view.changed,
        view.waves_passed,
        view.waves_left,
        left.map_or_else(
            || duration(SignedDuration::from_secs(view.seconds_left)),
            RunForecast::text
        )
    );
    if upgrade || !view.completed.is_empty() {
        let names: Vec<_> = view.completed.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "completed  {}",
            if names.is_empty() {
                "nothing yet".to_owned()
            } else {
                names.join(", ")
            }
        );
    }
    if let Some(current) = &view.current {
        let _ = writeln!(text, "now        {} since {:.0}", current.stage, current.since);
        let places = Places::of(topology);
        for (doing, units) in &current.units {
            let _ = writeln!(text, "  {doing:<10} {}", places.describe(units, UNITS));
        }
        for (gate, why) in &current.shut {
            let _ = writeln!(text, "  x {gate}: {}", fit(why, 140));
        }
    }
    for group in &view.left_alone {
        let _ = writeln!(
            text,
            "skipped    {} ({} in all): {}",
            group.units.join(" "),
            group.count,
            group.reason
        );
    }
    // Of one that waits for a person or is over, the holder may have gone.
    let held = match view.verdict {
        RunVerdict::Running | RunVerdict::Held => "holder    ",
        RunVerdict::Interrupted | RunVerdict::NeedsYou | RunVerdict::Done | RunVerdict::Ended => {
            "last holder"
        }
    };
    let _ = write!(text, "{held} {}", view.holder);
    text
}

/// Its units on their hosts, each with its state, and how many are in which.
pub(crate) fn picture(history: &History, width: usize) -> String {
    let width = width.saturating_sub(HEAD);
    let mut rows = units(history, width, MAP);
    rows.push(counts(history, width));
    let word = |at: usize| if at == 0 { "units" } else { "" };
    let rows = rows.iter().enumerate();
    rows.map(|(at, row)| {
        format!("\n{:<HEAD$}{}", word(at), painted(row))
            .trim_end()
            .to_owned()
    })
    .collect()
}
