//! Durations in earlier runs, for forecasts and schedules.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::event::{Action, Entry, Event, Outcome, Seq};
use crate::model::{Kind, Part, PartName, Phase, StageSpec, UnitId};

/// The median duration of a visit per kind of unit, without moves, and of each kind of move, in these
/// journals. The moves of one unit are sequential, so each gets its share. On leave they are undone in as
/// much time; the remainder belongs to the visit, such as the resync of disks.
pub fn measured_durations<'a>(
    journals: impl IntoIterator<Item = &'a [Entry]>,
) -> BTreeMap<Kind, SignedDuration> {
    let mut samples: BTreeMap<Kind, Vec<SignedDuration>> = BTreeMap::new();
    for journal in journals {
        add_samples(journal, &mut samples);
    }
    samples
        .into_iter()
        .filter_map(|(kind, mut took)| {
            took.sort_unstable();
            Some((kind, *took.get(took.len() / 2)?))
        })
        .collect()
}

/// What one visit has taken so far.
#[derive(Debug, Default)]
struct Visit {
    /// The time of its own.
    own: SignedDuration,
    /// What its moves took.
    moves: SignedDuration,
    /// Whether the unit was changed.
    changed: bool,
}

fn add_samples(journal: &[Entry], samples: &mut BTreeMap<Kind, Vec<SignedDuration>>) {
    let mut stages: BTreeMap<&PartName, &StageSpec> = BTreeMap::new();
    let mut stage = None;
    let mut begun: BTreeMap<Seq, (Timestamp, &Action)> = BTreeMap::new();
    let mut visits: BTreeMap<&UnitId, Visit> = BTreeMap::new();
    for entry in journal {
        match &entry.event {
            Event::Started(start) => {
                stages.extend(start.target.parts.iter().filter_map(|part| match part {
                    Part::Stage(stage) => Some((&stage.name, stage)),
                    Part::Step(_) => None,
                }));
            }
            Event::WaveOpened { stage: name, .. } => {
                stage = stages.get(name).copied();
                visits.clear();
            }
            Event::Intent { action, .. } => {
                begun.insert(entry.seq, (entry.at, action));
            }
            // What another process carried on took its time for other reasons as well.
            Event::LeaseTaken { .. } | Event::JournalBehind => begun.clear(),
            Event::Settled {
                intent,
                outcome: Outcome::Done { .. },
            } => {
                if let Some((at, action)) = begun.remove(intent)
                    && let Some(stage) = stage
                {
                    phase_done(stage, action, entry.at.duration_since(at), &mut visits, samples);
                }
            }
            Event::Planned { .. }
            | Event::WaveJoined { .. }
            | Event::Judged { .. }
            | Event::WaveDropped { .. }
            | Event::Settled { .. }
            | Event::GatesTurned { .. }
            | Event::WaveFailed { .. }
            | Event::WaveRecovered
            | Event::WavePassed
            | Event::WaveWentBack
            | Event::StepPassed { .. }
            | Event::SetAside { .. }
            | Event::Asked { .. }
            | Event::Held { .. }
            | Event::Released
            | Event::Ended { .. } => {}
        }
    }
}

fn phase_done<'a>(
    stage: &StageSpec,
    action: &'a Action,
    took: SignedDuration,
    visits: &mut BTreeMap<&'a UnitId, Visit>,
    samples: &mut BTreeMap<Kind, Vec<SignedDuration>>,
) {
    let Action::Visit {
        unit, phase, moves, ..
    } = action
    else {
        return;
    };
    let visit = visits.entry(unit).or_default();
    match phase {
        // It still serves.
        Phase::Prepare => return,
        Phase::Enter => {
            // Tried again: what came before was no part of the visit.
            *visit = Visit::default();
            match moves.as_slice() {
                [] => visit.own = took,
                [first, rest @ ..] => {
                    visit.moves = took;
                    if rest.iter().all(|next| next.how == first.how)
                        && let Ok(kind) = Kind::new(first.how.name())
                    {
                        let count = i32::try_from(1 + rest.len()).unwrap_or(i32::MAX);
                        samples.entry(kind).or_default().push(took / count);
                    }
                }
            }
        }
        Phase::Change => {
            visit.own += took;
            visit.changed = true;
        }
        Phase::Leave => visit.own += (took - visit.moves).max(SignedDuration::ZERO),
    }
    let last = stage.phases.last() == Some(phase);
    if last
        && let Some(visit) = visits.remove(unit)
        && visit.changed
    {
        samples.entry(stage.kind.clone()).or_default().push(visit.own);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A journal of one stage whose units are visited in all phases: each line is when, and an event.
    fn journal(lines: &[(i64, serde_json::Value)]) -> Vec<Entry> {
        (1..)
            .zip(lines)
            .map(|(seq, (second, event))| Entry {
                seq,
                at: Timestamp::from_second(*second).unwrap(),
                event: serde_json::from_value(event.clone()).unwrap(),
            })
            .collect()
    }

    fn started() -> serde_json::Value {
        json!({ "event": "started", "version": crate::run::VERSION, "run": "r", "cluster": "c",
            "target": { "title": "reboot", "parts": [{ "stage": {
                "name": "reboot", "kind": "node", "revision": "rebooted", "width": "policy",
                "gates": [], "going_back": { "how": "restart" } } }] },
            "policy": {}, "baseline": null })
    }

    fn opened() -> serde_json::Value {
        json!({ "event": "wave-opened", "stage": "reboot", "units": [["node1", "before"]] })
    }

    fn visit(phase: &str, moved: &[&str]) -> serde_json::Value {
        let moves: Vec<_> = moved
            .iter()
            .map(|guest| json!({ "guest": guest, "how": "migrate", "from": "node1", "to": "node2" }))
            .collect();
        json!({ "event": "intent", "action": { "action": "visit", "unit": "node1", "phase": phase,
            "revision": "rebooted", "moves": moves } })
    }

    fn done(intent: u64) -> serde_json::Value {
        json!({ "event": "settled", "intent": intent, "outcome": { "outcome": "done", "note": "" } })
    }

    fn seconds(lines: &[(i64, serde_json::Value)]) -> BTreeMap<String, i64> {
        measured_durations([journal(lines).as_slice()])
            .into_iter()
            .map(|(kind, took)| (kind.to_string(), took.as_secs()))
            .collect()
    }

    /// Two migrations in 20 s, a reboot of 100 s, 70 s to leave: 20 of these for the way back, 50 for a resync.
    #[test]
    fn a_visit_is_its_change_and_what_leaving_takes_beside_moves() {
        let lines = [
            (0, started()),
            (0, opened()),
            (10, visit("enter", &["web", "mail"])),
            (30, done(3)),
            (40, visit("change", &[])),
            (140, done(5)),
            (150, visit("leave", &[])),
            (220, done(7)),
        ];
        let expected = BTreeMap::from([("migrate".to_owned(), 10), ("node".to_owned(), 150)]);
        assert_eq!(seconds(&lines), expected);
        // A visit that is not at its end tells nothing of how long one takes.
        assert_eq!(seconds(&lines[..6]), BTreeMap::from([("migrate".to_owned(), 10)]));
    }

    #[test]
    fn what_another_process_carried_on_is_not_measured() {
        let lines = [
            (0, started()),
            (0, opened()),
            (0, visit("enter", &[])),
            (5, done(3)),
            (5, visit("change", &[])),
            (
                1000,
                json!({ "event": "lease-taken", "fence": 2, "holder": "another" }),
            ),
            (1001, done(5)),
            (1001, visit("leave", &[])),
            (1002, done(8)),
        ];
        assert_eq!(seconds(&lines), BTreeMap::new());
    }
}
