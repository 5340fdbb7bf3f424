//! How runs are shown, of journals that were written once: in text of any width, and as a page.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

use std::fmt::Write as _;

use serde_json::{Map, Value};
use stagger_core::model::Topology;
use stagger_core::plan::Plan;
use stagger_core::run::{Entry, Event};
use stagger_core::view;
use stagger_report::event_text::{Lines, event_lines};
use stagger_report::forecast::{EarlierRun, Forecasts};
use stagger_report::history::{Interval, UnitProgress};
use stagger_report::page::RunReport;
use stagger_report::text::{self, Tone, plain};
use stagger_report::{History, page, verify};

const DEMO: &str = include_str!("../journals/demo.jsonl");
const HELD: &str = include_str!("../journals/held.jsonl");
const ROLLED_BACK: &str = include_str!("../journals/rolled-back.jsonl");

fn entries(journal: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let mut fields: Map<String, Value> = serde_json::from_str(line).unwrap();
        let seq = serde_json::from_value(fields.remove("seq").unwrap()).unwrap();
        let at = serde_json::from_value(fields.remove("at").unwrap()).unwrap();
        let event = serde_json::from_value(fields.into()).unwrap();
        Entry { seq, at, event }
    };
    journal.lines().map(entry).collect()
}

/// All that a terminal of that width shows, as of the last event.
fn shown(entries: &[Entry], width: usize) -> String {
    let (run, _) = event_lines(entries).unwrap().unwrap();
    let (view, history) = (view::run(&run, None), History::of(entries).unwrap());
    let now = history.last;
    let mut rows = text::heading(&view, &history, None, now, width);
    rows.extend(text::units(&history, width, 20));
    rows.push(text::counts(&history, width));
    rows.extend(text::current(&view, &history, now, width));
    rows.extend(text::waves(&history, now, width, 12));
    let mut shown = String::new();
    for row in &rows {
        let line = plain(row);
        assert!(line.chars().count() <= width, "wider than {width}: {line}");
        writeln!(shown, "{line}").unwrap();
    }
    shown
}

#[test]
fn a_run_that_is_over_at_three_widths() {
    let entries = entries(DEMO);
    insta::assert_snapshot!("demo_60", shown(&entries, 60));
    insta::assert_snapshot!("demo_100", shown(&entries, 100));
    insta::assert_snapshot!("demo_250", shown(&entries, 250));
}

/// Whatever a journal holds so far can be shown, in any width, and each unit is in one state.
#[test]
fn every_beginning_of_a_journal_is_shown() {
    for journal in [DEMO, HELD, ROLLED_BACK] {
        let entries = entries(journal);
        for until in 1..=entries.len() {
            for width in [20, 60, 133] {
                shown(&entries[..until], width);
            }
            let history = History::of(&entries[..until]).unwrap();
            assert_eq!(history.counts().values().sum::<usize>(), history.units.len());
            let shapes = text::units(&history, 200, 100);
            let shapes = shapes
                .iter()
                .flatten()
                .filter(|piece| matches!(piece.tone, Tone::Unit(_)));
            let count: usize = shapes.map(|piece| piece.text.chars().count()).sum();
            assert_eq!(count, history.units.len());
            // Where there is not room for all, none is left out alone.
            for rows in 0..30 {
                let shown = text::units(&history, 40, rows);
                assert!(shown.len() <= rows, "{} of {rows}", shown.len());
            }
        }
    }
}

/// The first plan of a journal, and where its units are.
fn planned(entries: &[Entry]) -> (Plan, Topology) {
    let plan = entries.iter().find_map(|entry| match &entry.event {
        Event::Planned { plan } => Some((**plan).clone()),
        _ => None,
    });
    (plan.unwrap(), History::of(entries).unwrap().topology)
}

#[test]
fn a_plan_over_the_map() {
    let (plan, topology) = planned(&entries(DEMO));
    let stage = plan.stages().max_by_key(|stage| stage.waves.len()).unwrap();
    let mut shown = String::new();
    for (width, rows) in [(100, 20), (60, 20), (60, 8), (100, 4)] {
        writeln!(shown, "{width} columns, {rows} rows:").unwrap();
        let drawn = text::planned(stage, &topology, width, rows);
        assert!(drawn.len() <= rows, "{} of {rows}", drawn.len());
        for row in &drawn {
            let line = plain(row);
            assert!(line.chars().count() <= width, "wider than {width}: {line}");
            writeln!(shown, "{line}").unwrap();
        }
    }
    insta::assert_snapshot!("planned", shown);
}

/// Whoever looks at the picture counts the same units in each wave as whoever reads the list.
#[test]
fn each_unit_is_drawn_once_with_the_number_of_its_wave() {
    let (plan, topology) = planned(&entries(DEMO));
    for stage in plan.stages() {
        let drawn = text::planned(stage, &topology, 100, 100);
        let mut counts = vec![0; stage.waves.len()];
        for piece in drawn.iter().flatten() {
            if let Tone::Wave(number) = piece.tone {
                counts[number - 1] += piece.text.split_whitespace().count();
            }
        }
        let listed: Vec<usize> = stage.waves.iter().map(|wave| wave.units.len()).collect();
        assert_eq!(counts, listed, "{}", stage.name);
    }
}

#[test]
fn units_of_which_nobody_said_where_they_are_have_no_map_of_waves() {
    let (plan, _) = planned(&entries(DEMO));
    let stage = plan.stages().next().unwrap();
    assert_eq!(
        text::planned(stage, &Topology::default(), 100, 100),
        Vec::<text::TextRow>::new()
    );
}

/// Where what is drawn comes from: at each time, what the journal says of a unit.
#[test]
fn a_unit_is_down_from_its_first_stop_until_it_was_left() {
    let entries = entries(DEMO);
    let whole = History::of(&entries).unwrap();
    let wave = whole.waves().find(|wave| wave.turns.len() > 1).unwrap();
    let turn = &wave.turns[0];
    let out = turn.out_of_service();
    let [Interval { from, to }] = out[..] else {
        panic!("{out:?}");
    };
    let state_at = |at| {
        let until = entries.iter().take_while(|entry| entry.at <= at).count();
        History::of(&entries[..until]).unwrap().units[&turn.unit].state
    };
    assert_eq!(state_at(from), UnitProgress::Down);
    assert_eq!(state_at(to.unwrap()), UnitProgress::Verifying);
    assert_eq!(state_at(wave.time.to.unwrap()), UnitProgress::Done);
    assert_eq!(state_at(wave.time.from), UnitProgress::Waiting);
}

#[test]
fn what_went_wrong_is_told_by_the_history() {
    let rolled_back = History::of(&entries(ROLLED_BACK)).unwrap();
    assert!(rolled_back.waves().any(|wave| wave.failed.is_some()));
    assert!(
        rolled_back.counts().contains_key(&UnitProgress::RolledBack),
        "{:?}",
        rolled_back.counts()
    );
    let held = History::of(&entries(HELD)).unwrap();
    assert!(!held.holds.is_empty());
    assert!(
        held.holds.iter().all(|hold| hold.time.to.is_some()),
        "the run is over"
    );
}

#[test]
fn the_most_that_are_down_at_once_is_no_more_than_a_plan_permits() {
    for journal in [DEMO, ROLLED_BACK] {
        let entries = entries(journal);
        let history = History::of(&entries).unwrap();
        let largest = history.waves().map(|wave| wave.turns.len()).max().unwrap();
        let most = history.max_down();
        assert!((1..=largest).contains(&most), "{most} of {largest}");
    }
}

fn the_page(entries: &[Entry]) -> String {
    page_with(entries, &[])
}

fn page_with(entries: &[Entry], look_back: &[String]) -> String {
    let (run, lines) = event_lines(entries).unwrap().unwrap();
    let earlier = EarlierRun::of(self::entries(DEMO).as_slice()).unwrap();
    let forecasts = EarlierRun::of(entries).map(|run| Forecasts::of(&run, &[earlier]));
    page(&RunReport {
        forecasts: forecasts.as_ref(),
        view: &view::run(&run, None),
        history: &History::of(entries).unwrap(),
        verification: &verify(entries).unwrap(),
        lines: &lines,
        broken: None,
        look_back,
        version: "0.1.0",
    })
}

#[test]
fn a_page_needs_nothing_from_elsewhere_and_has_every_part() {
    for journal in [DEMO, HELD, ROLLED_BACK] {
        let page = the_page(&entries(journal));
        for elsewhere in [
            "<script", "http://", "https://", "src=", "<link", "@import", "url(",
        ] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        for part in [
            "Laws",
            "every law held",
            "Waves",
            "Units",
            "Journal",
            "Waited for",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}

#[test]
fn where_guests_are_when_the_run_is_over_stands_in_the_page() {
    let moved = "NOT ON ITS ORIGINAL PRIMARY  web is on n3, and was on n1";
    let page = page_with(&entries(DEMO), &[moved.to_owned(), "<script>".to_owned()]);
    assert!(page.contains("When it was over") && page.contains(moved));
    assert!(!page.contains("<script"));
    assert!(
        !the_page(&entries(DEMO)).contains("When it was over"),
        "nobody asked"
    );
}

/// Names are the cluster's own, and reasons quote what it says.
#[test]
fn nothing_that_a_cluster_says_is_markup() {
    let journal = DEMO.replace("mgr.a", "<script>alert(1)</script>\\u0026mgr.a");
    let page = the_page(&entries(&journal));
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;"));
}

/// Seen on a Ganeti after `abort` and `resume`: no release was changed, so nothing is on the one before.
#[test]
fn where_no_way_leads_back_nothing_is_said_to_be_on_a_release_before() {
    let mut entries = entries(ROLLED_BACK);
    let given_up = entries
        .iter()
        .find(|entry| entry.event == Event::WaveWentBack)
        .unwrap()
        .clone();
    if let Event::Started(start) = &mut entries[0].event {
        for part in &mut start.target.parts {
            if let stagger_core::model::Part::Stage(stage) = part {
                stage.going_back = stagger_core::model::GoingBack::Impossible {
                    why: "a node that has rebooted has rebooted".to_owned(),
                };
            }
        }
    }
    let (run, _) = event_lines(&entries[..1]).unwrap().unwrap();
    let (_, text) = Lines::default().line(&given_up, &run).unwrap();
    assert_eq!(text, "the wave was abandoned; nothing was rolled back");
}

/// Seen on a Ganeti: of a node that was rebooted and did not come back nothing is on any release before.
#[test]
fn what_was_brought_back_is_named_and_nothing_else_is() {
    let entries = entries(ROLLED_BACK);
    let (_, lines) = event_lines(&entries).unwrap().unwrap();
    let back: Vec<&str> = lines
        .iter()
        .filter(|line| line.text.starts_with("previous release"))
        .map(|line| line.text.as_str())
        .collect();
    assert_eq!(back, ["previous release: osd.9-10,23"]);
    let given_up = entries
        .iter()
        .find(|entry| entry.event == Event::WaveWentBack)
        .unwrap();
    let (run, _) = event_lines(&entries[..1]).unwrap().unwrap();
    let mut lines = Lines::default();
    let (_, text) = lines.line(given_up, &run).unwrap();
    assert!(
        text.ends_with("what was rolled back runs the previous release"),
        "another process began it"
    );
    let opened = entries
        .iter()
        .find(|entry| matches!(entry.event, Event::WaveOpened { .. }));
    lines.line(opened.unwrap(), &run).unwrap();
    let (_, text) = lines.line(given_up, &run).unwrap();
    assert_eq!(text, "the wave was abandoned; nothing was rolled back");
}
