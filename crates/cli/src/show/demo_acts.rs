//! The demo in three acts: the map of waves; a run in which one unit fails; a run that is killed and resumed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Snapshot, UnitId};
use stagger_core::plan::{Plan, PlannedStage};
use stagger_core::run::{Entry, Event, Run};
use stagger_engine::driver::Listener;

use crate::print;
use stagger_report::names::{Places, compress, fit};
use stagger_report::{duration, event_text};

/// Rows of the map are no wider than this.
const WIDTH: usize = 100;

/// The widest stage of a plan, a row for each failure domain, a group for each host, a number for the wave of each unit.
pub(crate) fn map(plan: &Plan, snapshot: &Snapshot) -> String {
    let Some(stage) = plan.stages().max_by_key(|stage| stage.waves.len()) else {
        return String::new();
    };
    let waves = wave_of(stage);
    let mut rows: BTreeMap<(&str, &str), BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for (_, unit) in snapshot.of_kind(&stage.kind) {
        let domain = |level: &str| unit.domains.get(level).map_or("", String::as_str);
        let row = rows.entry((domain("datacenter"), domain("rack"))).or_default();
        let wave = waves
            .get(&unit.id)
            .map_or_else(|| "-".to_owned(), usize::to_string);
        row.entry(domain("host")).or_default().push(format!("{wave:>2}"));
    }
    let mut text = String::new();
    for ((_, rack), hosts) in rows {
        let hosts: Vec<String> = hosts.values().map(|waves| waves.join(" ")).collect();
        let _ = writeln!(
            text,
            "  {}",
            fit(&format!("{rack:<7} {}", hosts.join("  | ")), WIDTH)
        );
    }
    text
}

/// In which wave each unit is, from 1.
fn wave_of(stage: &PlannedStage) -> BTreeMap<&UnitId, usize> {
    let numbered = stage.waves.iter().zip(1..);
    numbered
        .flat_map(|(wave, number)| wave.units.iter().map(move |unit| (unit, number)))
        .collect()
}

/// Shows a run in a line for each wave, and all that goes wrong.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    began: Option<Timestamp>,
    wave: usize,
    taken: u32,
}

impl Acts {
    fn line(&self, at: Timestamp, text: &str) {
        let since = at.duration_since(self.began.unwrap_or(at)).as_secs();
        let text = fit(
            &format!("  {:>2}:{:02}  {text}", since / 60, since % 60),
            print::width(),
        );
        print::status_line(&text);
    }

    /// What an event is worth in a line.
    fn event_text(&mut self, entry: &Entry, run: &Run) -> Option<String> {
        match &entry.event {
            Event::LeaseTaken { .. } => {
                self.taken += 1;
                if self.taken == 1 {
                    return None;
                }
                print::status_line(
                    "\n3  The process is killed in mid-wave. Another reads the journal, takes the lock, and continues\n",
                );
                Some(match run.open().count() {
                    0 => "nothing was under way".to_owned(),
                    open => format!(
                        "calls in doubt: {open}. Each host refuses late calls, and reports their outcomes"
                    ),
                })
            }
            Event::WaveOpened { stage, units, .. } => {
                self.wave += 1;
                let units: Vec<UnitId> = units.iter().map(|(unit, _)| unit.clone()).collect();
                let places = Places::of(&run.start().topology).describe(&units, 60);
                Some(format!("wave {:<3} {stage}: {places}", self.wave))
            }
            Event::WaveFailed { units, reason, .. } => {
                Some(format!("FAILED   {}: {reason}", compress(units)))
            }
            Event::SetAside {
                unit, until: None, ..
            } => Some(format!(
                "         {unit} is rolled back and set aside; the others continue"
            )),
            Event::StepPassed { step } => Some(format!("step     {step}")),
            Event::Asked { command, .. } => Some(format!("operator: {}", event_text::command_words(command))),
            Event::Held { reason } => Some(format!("HELD     {reason}")),
            Event::Ended { outcome } => Some(event_text::ending(outcome, false)),
            Event::Started(_)
            | Event::JournalBehind
            | Event::Planned { .. }
            | Event::WaveJoined { .. }
            | Event::Judged { .. }
            | Event::WaveDropped { .. }
            | Event::Intent { .. }
            | Event::Settled { .. }
            | Event::GatesTurned { .. }
            | Event::WaveRecovered
            | Event::WavePassed
            | Event::WaveWentBack
            | Event::SetAside { .. }
            | Event::Released => None,
        }
    }
}

impl Listener for Acts {
    fn event(&mut self, entry: &Entry, run: &Run) {
        self.began.get_or_insert(entry.at);
        if let Some(text) = self.event_text(entry, run) {
            self.line(entry.at, &text);
        }
    }
}

/// How long the same takes in other ways, by the same forecast.
pub(crate) fn beside(ways: &[(&str, usize, SignedDuration)]) -> String {
    let rows = ways.iter().map(|(way, waves, time)| {
        format!(
            "  {waves:>3} waves  {:<18} {way}",
            format!("about {}", duration(*time))
        )
    });
    rows.collect::<Vec<_>>().join("\n")
}
