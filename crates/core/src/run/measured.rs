//! How long things took in runs before: what forecasts and schedules rest upon.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::event::{Action, Entry, Event, Outcome, Seq};
use crate::model::{Kind, Part, PartName, Phase};
use crate::plan::kind_of_move;

/// The median of what each kind of unit took to be changed, and of each kind of move, in these journals. Moves of one
/// unit follow one another, so each is taken for its share of them.
pub fn measured<'a>(journals: impl IntoIterator<Item = &'a [Entry]>) -> BTreeMap<Kind, SignedDuration> {
    let mut samples: BTreeMap<Kind, Vec<SignedDuration>> = BTreeMap::new();
    for journal in journals {
        of_one(journal, &mut samples);
    }
    samples
        .into_iter()
        .filter_map(|(kind, mut took)| {
            took.sort_unstable();
            Some((kind, *took.get(took.len() / 2)?))
        })
        .collect()
}

fn of_one(journal: &[Entry], samples: &mut BTreeMap<Kind, Vec<SignedDuration>>) {
    let mut kinds: BTreeMap<&PartName, &Kind> = BTreeMap::new();
    let mut kind = None;
    let mut begun: BTreeMap<Seq, (Timestamp, &Action)> = BTreeMap::new();
    for entry in journal {
        match &entry.event {
            Event::Started(start) => {
                kinds.extend(start.target.parts.iter().filter_map(|part| match part {
                    Part::Stage(stage) => Some((&stage.name, &stage.kind)),
                    Part::Step(_) => None,
                }));
            }
            Event::WaveOpened { stage, .. } => kind = kinds.get(stage).copied(),
            Event::Intent { action } => {
                begun.insert(entry.seq, (entry.at, action));
            }
            // What another process carried on took its time for other reasons as well.
            Event::LeaseTaken { .. } => begun.clear(),
            Event::Settled {
                intent,
                outcome: Outcome::Done { .. },
            } => {
                if let Some((at, Action::Visit { phase, moves, .. })) = begun.remove(intent)
                    && let Some(kind) = kind
                {
                    let took = entry.at.duration_since(at);
                    match (phase, moves.as_slice()) {
                        (Phase::Change, _) => samples.entry(kind.clone()).or_default().push(took),
                        (Phase::Enter, [first, rest @ ..])
                            if rest.iter().all(|next| next.how == first.how) =>
                        {
                            let count = i32::try_from(1 + rest.len()).unwrap_or(i32::MAX);
                            let each = took / count;
                            if let Ok(kind) = Kind::new(kind_of_move(first.how)) {
                                samples.entry(kind).or_default().push(each);
                            }
                        }
                        (Phase::Enter | Phase::Leave, _) => {}
                    }
                }
            }
            Event::Planned { .. }
            | Event::WaveJoined { .. }
            | Event::Judged { .. }
            | Event::WaveDropped { .. }
            | Event::Settled { .. }
            | Event::GatesTurned { .. }
            | Event::WaveFailed { .. }
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
