//! Events as text, one line each.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::model::{GoingBack, MoveKind, Part, Phase, Revision, UnitId};
use stagger_core::plan::Move;
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, IllegalEvent, Outcome, Run, Seq};
use stagger_core::view::all_serve;

use crate::names::{Places, compress};

/// The width up to which units are listed with their hosts; beyond it, their names and the number of hosts.
const PLACED: usize = 72;

/// Lines of a journal, in its order.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The step that was announced last.
    step: Option<Seq>,
    /// Who is being brought back, by the places of the intents.
    going_back: BTreeMap<Seq, UnitId>,
    /// Who was brought back since the wave was opened; `None`: it was opened before the first of these lines.
    back: Option<Vec<UnitId>>,
}

impl Lines {
    /// The event's keyword and its text; `None`: nothing to report.
    pub fn line(&mut self, entry: &Entry, run: &Run) -> Option<(&'static str, String)> {
        match &entry.event {
            Event::Intent {
                action: Action::Step { .. },
                ..
            } => self.step = Some(entry.seq),
            Event::Intent {
                action: Action::GoBack { unit, .. },
                ..
            } => {
                self.going_back.insert(entry.seq, unit.clone());
            }
            Event::WaveOpened { .. } => self.back = Some(Vec::new()),
            // Not of a reboot: that leads nowhere back.
            Event::WaveWentBack => {
                let text = match self.back.take().as_deref() {
                    // Another process began it; but where no way leads back, nothing was brought back.
                    None if is_irreversible(run) => {
                        "the wave was abandoned; nothing was rolled back".to_owned()
                    }
                    Some([]) => "the wave was abandoned; nothing was rolled back".to_owned(),
                    Some(back) => format!("previous release: {}", compress(back)),
                    None => "the wave is over; what was rolled back runs the previous release".to_owned(),
                };
                return Some(("rollback", text));
            }
            // A unit is seen to serve; of a step nothing else says what came of it.
            Event::Settled {
                intent,
                outcome: Outcome::Done { note },
            } if self.step == Some(*intent) && !note.trim().is_empty() => {
                let words: Vec<&str> = note.lines().map(str::trim).collect();
                return Some(("said", words.join(" ").trim().to_owned()));
            }
            Event::Settled {
                intent,
                outcome: Outcome::Done { .. },
            } => {
                let unit = self.going_back.remove(intent);
                if let Some(back) = &mut self.back {
                    back.extend(unit);
                }
            }
            _ => {}
        }
        line(entry, run)
    }
}

/// Whether nothing that the run changes can be brought back, as a reboot.
fn is_irreversible(run: &Run) -> bool {
    run.start().target.parts.iter().all(|part| match part {
        Part::Stage(stage) => matches!(stage.going_back, GoingBack::Impossible { .. }),
        Part::Step(_) => true,
    })
}

/// An event in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLine {
    /// Its place.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// Which sort of event.
    pub word: &'static str,
    /// What it says.
    pub text: String,
}

/// The run of a journal, and its events in words; `None`: the journal is empty.
///
/// # Errors
/// An event that cannot follow those before it.
pub fn event_lines(entries: &[Entry]) -> Result<Option<(Run, Vec<EventLine>)>, IllegalEvent> {
    let Some((first, rest)) = entries.split_first() else {
        return Ok(None);
    };
    let mut run = Run::begin(first.clone())?;
    let mut words = Lines::default();
    let mut lines = Vec::new();
    let mut tell = |entry: &Entry, run: &Run| {
        lines.extend(words.line(entry, run).map(|(word, text)| EventLine {
            seq: entry.seq,
            at: entry.at,
            word,
            text,
        }));
    };
    tell(first, &run);
    for entry in rest {
        run.apply(entry.clone())?;
        tell(entry, &run);
    }
    Ok(Some((run, lines)))
}

fn line(entry: &Entry, run: &Run) -> Option<(&'static str, String)> {
    Some(match &entry.event {
        Event::Started(start) => ("started", format!("{}, run {}", start.target.title, start.run)),
        Event::LeaseTaken { fence, holder } => ("lease", format!("token {fence}, {holder}")),
        Event::JournalBehind => (
            "behind",
            "the journal may lack what others did: units that were entered are left and approved anew"
                .to_owned(),
        ),
        Event::Planned { plan } => (
            "planned",
            format!(
                "{} waves left, at least {}, plan {}",
                plan.waves(),
                plan.at_least(),
                plan.id
            ),
        ),
        Event::WaveOpened { stage, units, .. } => ("wave", format!("{stage}: {}", placed(units, run))),
        Event::WaveJoined { units, .. } => ("joined", placed(units, run)),
        Event::Judged {
            units, ours, theirs, ..
        } => ("judged", verdict(units, ours, theirs)),
        Event::WaveDropped { reason } => ("dropped", format!("the wave is not started: {reason}")),
        Event::Intent { action, .. } => return intent(action),
        // Reported where the rolled-back units are known.
        Event::WaveWentBack
        | Event::Settled {
            outcome: Outcome::Done { .. },
            ..
        } => return None,
        Event::Settled {
            intent,
            outcome: Outcome::Failed { why },
        } => ("failed", format!("intent {intent}: {why}")),
        Event::Settled {
            intent,
            outcome: Outcome::NotBegun { why },
        } => ("too late", format!("intent {intent} was not started, {why}")),
        Event::WaveRecovered => (
            "recovered",
            "every unit of the wave serves on the target".to_owned(),
        ),
        Event::GatesTurned { shut } if shut.is_empty() => ("gates", "all open".to_owned()),
        Event::GatesTurned { shut } => {
            let text: Vec<_> = shut.iter().map(|(name, why)| format!("{name}: {why}")).collect();
            ("gates", text.join("; "))
        }
        Event::WaveFailed { units, reason, alone } => {
            let alone = if *alone {
                "; the change never arrived, and no other unit rolls back"
            } else {
                ""
            };
            ("FAILED", format!("{} {reason}{alone}", compress(units)))
        }
        Event::WavePassed => ("passed", format!("{} units serve on the target", run.changed())),
        Event::StepPassed { step } => ("passed", step.to_string()),
        Event::SetAside { unit, reason, until } => {
            let again = until.map_or("not again in this run".to_owned(), |until| {
                format!("again at {until:.0}")
            });
            ("aside", format!("{unit}, {again}: {reason}"))
        }
        Event::Asked { command, by } => ("asked", format!("{} by {by}", command_words(command))),
        Event::Held { reason } => ("HELD", reason.to_string()),
        Event::Released => ("released", "its cause is gone".to_owned()),
        Event::Ended { outcome } => ("ended", ending(outcome, run.start().target.only.is_some())),
    })
}

/// Units of a wave with their hosts, as far as a line is long.
fn placed(units: &[(UnitId, Revision)], run: &Run) -> String {
    let units: Vec<UnitId> = units.iter().map(|(unit, _)| unit.clone()).collect();
    Places::of(&run.start().topology).describe(&units, PLACED)
}

fn verdict(units: &[UnitId], ours: &Answer, theirs: &Answer) -> String {
    let word = |answer: &Answer| match answer {
        Answer::Yes => "yes".to_owned(),
        Answer::No { why } => format!("no, {why}"),
        Answer::Unknown { why } => format!("unknown, {why}"),
        Answer::NoOracle => "has none".to_owned(),
        Answer::Overridden { why } => format!("no, overridden by an operator: {why}"),
    };
    let names = compress(units);
    match (ours, theirs) {
        (Answer::Yes, Answer::Yes) => format!("{names} may stop: both checks agree"),
        (ours, theirs) => format!(
            "{names} may stop? ours: {}; the cluster's: {}",
            word(ours),
            word(theirs)
        ),
    }
}

fn intent(action: &Action) -> Option<(&'static str, String)> {
    Some(match action {
        Action::TakeGuard { guard, units, .. } => ("guard", format!("{guard}{}", on_units(units))),
        Action::DropGuard { guard, units } => ("guard", format!("{guard}{} is cleared", on_units(units))),
        Action::Visit {
            unit,
            phase: Phase::Enter,
            moves,
            ..
        } if !moves.is_empty() => ("moves", format!("{unit}: {}", move_words(moves))),
        // The wave's line has named them all.
        Action::Visit { .. } => return None,
        Action::Restart { unit } => ("restart", format!("{unit} again")),
        Action::GoBack {
            unit,
            revision,
            rebuild: false,
        } => ("rollback", format!("{unit} to {revision}")),
        Action::GoBack {
            unit,
            revision,
            rebuild: true,
        } => ("rebuild", format!("{unit} on {revision}")),
        Action::Step { step } => ("step", step.to_string()),
        Action::Collect { units } => ("collect", format!("diagnostics of {}", compress(units))),
    })
}

/// So many guests that go to one place are named.
const NAMED: usize = 4;

/// What goes where: `web db to node4; mail with downtime to node5`.
fn move_words(moves: &[Move]) -> String {
    let mut by_way: BTreeMap<(MoveKind, &UnitId), Vec<&str>> = BTreeMap::new();
    for a_move in moves {
        let names = by_way.entry((a_move.how, &a_move.to)).or_default();
        names.push(&a_move.guest);
    }
    let parts = by_way.into_iter().map(|((how, to), names)| {
        let names = match names.len() {
            few if few <= NAMED => names.join(" "),
            many => format!("{many} guests"),
        };
        match how {
            MoveKind::Migrate => format!("{names} to {to}"),
            MoveKind::Relocate => format!("{names} with downtime to {to}"),
            MoveKind::ReplaceStandby => format!("second copies of {names} to {to}"),
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// ` on osd.1-3`, or nothing for the whole cluster.
fn on_units(units: &[UnitId]) -> String {
    if units.is_empty() {
        String::new()
    } else {
        format!(" on {}", compress(units))
    }
}

/// What a person asked for, as it is typed: `approve require-osd-release`.
pub fn command_words(command: &Command) -> String {
    match command {
        Command::Pause => "pause".to_owned(),
        Command::Resume => "resume".to_owned(),
        Command::Approve { door } => format!("approve {door}"),
        Command::Abort => "abort".to_owned(),
        Command::Rollback => "rollback".to_owned(),
        Command::Confirm { host, .. } => format!("confirm {host} is-off"),
        Command::Settle { intent, done } => {
            format!("settle {intent} {}", if *done { "done" } else { "failed" })
        }
    }
}

/// How a run of all units ended, or one of selected units, in a sentence.
pub fn ending(ending: &Ending, selected: bool) -> String {
    match ending {
        Ending::Done => format!("done: {}", all_serve(selected)),
        Ending::Incomplete { left } => {
            let text: Vec<_> = left
                .iter()
                .map(|(what, reason)| format!("{what} ({reason})"))
                .collect();
            format!("done; skipped: {}", text.join(", "))
        }
        Ending::RolledBack { reason } => format!("rolled back: {reason}"),
        Ending::Aborted => "aborted".to_owned(),
    }
}
