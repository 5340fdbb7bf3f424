//! `watch`: a run as it goes, from any terminal.

use std::time::Duration;

use jiff::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use stagger_core::model::RunId;
use stagger_core::run::{Command, Run};
use stagger_core::view::{self, Verdict};
use stagger_engine::driver::DriveError;
use stagger_engine::store::Store;
use stagger_engine::supervisor;
use stagger_report::History;
use stagger_report::sentences::{command_words, told};

use super::user;
use crate::args::{self, Cli};
use crate::error::CliError;
use crate::exit::Exit;
use crate::journal::no_start;
use crate::print;
use crate::state::{store, which};
use crate::watch_screen::{Act, Reading, Screen, draw, key};

/// So often the store is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How names of simulated runs begin.
const SIMULATED: &str = "sim-";
/// So long a key is waited for at once.
const KEYS: Duration = Duration::from_millis(200);

/// `watch`
pub(crate) fn watch_run(cli: &Cli, args: &args::Watch) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = which(&*store, args.run.as_ref())?;
    if args.plain || cli.json || !print::live() {
        return follow(cli, &*store, &run);
    }
    // Whatever is wrong with the run is told before the screen is taken.
    let first = read(&*store, &run)?;
    let mut terminal = ratatui::try_init().map_err(|error| screen_failed(&error))?;
    let ended = on_screen(store, &run, first, &mut terminal);
    ratatui::try_restore().map_err(|error| screen_failed(&error))?;
    ended.map(exit)
}

fn screen_failed(error: &std::io::Error) -> CliError {
    CliError::new(
        Exit::Internal,
        format!("the terminal cannot be drawn on: {error}"),
    )
    .hint("`stagger watch --plain` prints lines")
}

fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::NeedsYou => Exit::NeedsYou,
        Verdict::Ended => Exit::No,
        Verdict::Interrupted => Exit::Abandoned,
        Verdict::Running | Verdict::Held | Verdict::Done => Exit::Done,
    }
}

fn on_screen(
    mut store: Box<dyn Store>,
    run: &RunId,
    first: Reading,
    terminal: &mut DefaultTerminal,
) -> Result<Verdict, CliError> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut reading = first;
    let mut screen = Screen::default();
    let mut looked = std::time::Instant::now();
    loop {
        terminal
            .draw(|frame| draw(frame, &reading, &screen, now(&reading), colours))
            .map_err(|error| screen_failed(&error))?;
        if event::poll(KEYS).map_err(|error| screen_failed(&error))? {
            let event = event::read().map_err(|error| screen_failed(&error))?;
            if let Event::Key(pressed) = event
                && pressed.kind == KeyEventKind::Press
            {
                match key(&mut screen, &reading, pressed) {
                    Act::Nothing => {}
                    Act::Quit => return Ok(reading.view.verdict),
                    Act::Ask(command) => screen.told = Some(ask(&mut *store, run, &command)),
                }
            }
        }
        if looked.elapsed() >= LOOK {
            looked = std::time::Instant::now();
            look_again(&*store, run, &mut reading);
        }
    }
}

/// A simulated run has a time of its own, which stands still between its events.
fn now(reading: &Reading) -> Timestamp {
    if reading.view.run.as_str().starts_with(SIMULATED) {
        return reading.history.last;
    }
    Timestamp::now()
}

/// Asks a run for something, and says what came of it.
fn ask(store: &mut dyn Store, run: &RunId, command: &Command) -> String {
    let word = command_words(command);
    match supervisor::ask(store, run, Timestamp::now(), command, &user()) {
        Ok(()) => format!("{word} was asked; whoever carries the run out heeds it"),
        Err(error) => format!("{word} could not be asked: {error}"),
    }
}

/// Reads the run once more if anything was written; what cannot be read is told beside what was read last.
fn look_again(store: &dyn Store, run: &RunId, reading: &mut Reading) {
    let is_new = match store.mark(run, None) {
        Ok(mark) => mark.is_none_or(|mark| mark.seq != reading.view.seq),
        // A store without checksums is read as a whole.
        Err(_) => true,
    };
    // Who carries it out may have ended without a word.
    let may_be_alone = matches!(
        reading.view.verdict,
        Verdict::Running | Verdict::Held | Verdict::Interrupted
    );
    if !is_new && !may_be_alone && reading.unread.is_none() {
        return;
    }
    match read(store, run) {
        Ok(read) => *reading = read,
        Err(error) => reading.unread = Some(error.message),
    }
}

fn read(store: &dyn Store, run: &RunId) -> Result<Reading, CliError> {
    let entries = store.journal(run)?;
    let no_start = || no_start(&format!("the journal of {run}"));
    let history = History::of(&entries).ok_or_else(no_start)?;
    let (run, lines) = told(&entries)
        .map_err(DriveError::Illegal)?
        .ok_or_else(no_start)?;
    let mut seen = view::run(&run, None);
    if let Some(why) = supervisor::nobody(store, &run)? {
        seen = seen.without_a_holder(why);
    }
    Ok(Reading {
        view: seen,
        history,
        lines,
        doors: doors(&run),
        unread: None,
    })
}

/// The doors that the run has not passed, in order.
fn doors(run: &Run) -> Vec<String> {
    if run.ended().is_some() {
        return Vec::new();
    }
    let passed: Vec<String> = run.permitted().collect();
    let plan = run.plan().into_iter();
    let doors = plan.flat_map(stagger_core::plan::Plan::doors);
    doors
        .map(|door| door.name.to_string())
        .filter(|door| !passed.contains(door))
        .collect()
}

/// A line for each event until the run is over.
fn follow(cli: &Cli, store: &dyn Store, run: &RunId) -> Result<Exit, CliError> {
    let mut shown = 0;
    loop {
        let entries = store.journal(run)?;
        let told = told(&entries).map_err(DriveError::Illegal)?;
        let (replayed, lines) = told.ok_or_else(|| no_start(&format!("the journal of {run}")))?;
        if cli.json {
            for entry in entries.iter().filter(|entry| entry.seq > shown) {
                print::line(&crate::documents::EVENT.of(entry));
            }
        } else {
            for line in lines.iter().filter(|line| line.seq > shown) {
                print::out(&format!("{:.0} {:<9}{}", line.at, line.word, line.text));
            }
        }
        shown = entries.last().map_or(shown, |entry| entry.seq);
        let mut seen = view::run(&replayed, None);
        if let Some(why) = supervisor::nobody(store, &replayed)? {
            seen = seen.without_a_holder(why);
        }
        let goes_on = matches!(seen.verdict, Verdict::Running | Verdict::Held);
        if !goes_on || print::unwritten().is_some() {
            if !cli.json {
                print::out(&format!("{}  {}", seen.verdict, seen.why));
            }
            return Ok(exit(seen.verdict));
        }
        std::thread::sleep(LOOK);
    }
}
