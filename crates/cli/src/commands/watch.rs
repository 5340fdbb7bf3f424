//! `watch`: the live view of a run, from any terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use stagger_core::model::RunId;
use stagger_core::run::{Command, Run};
use stagger_core::view::{self, RunVerdict, RunView};
use stagger_engine::driver::DriveError;
use stagger_engine::store::JournalStore;
use stagger_engine::supervisor;
use stagger_report::event_text::{command_words, event_lines};
use stagger_report::forecast::RunForecast;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::journal::{no_start, now, reading, store_of};
use super::user;
use crate::args::{self, Cli, OperatorCluster};
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::forecasts::Outlook;
use crate::print;
use crate::state::run_or_newest;
use crate::watch_screen::{KeyAction, Screen, ScreenData, draw, key};

/// So often the store is looked at, and that of an operator.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FAR: Duration = Duration::from_secs(5);
/// So long a key is waited for at once.
const KEYS: Duration = Duration::from_millis(200);

/// Where a run is read, and whom it is asked through.
struct Source<'a> {
    store: Box<dyn JournalStore>,
    run: RunId,
    kube: Option<&'a OperatorCluster>,
    /// What earlier runs say of it; read once it is on a screen.
    outlook: Option<Outlook>,
}

/// `watch`
pub(crate) async fn watch_run(cli: &Cli, args: &args::WatchArgs) -> Result<Exit, CliError> {
    let store = store_of(cli, &args.kube).await?;
    let run = run_or_newest(&*store, args.run.as_ref()).await?;
    let mut source = Source {
        store,
        run,
        kube: Some(&args.kube).filter(|kube| kube.is_given()),
        outlook: None,
    };
    if args.plain || cli.json || !print::live() {
        return follow(cli, &source).await;
    }
    // Whatever is wrong with the run is told before the screen is taken.
    let first = source.read().await?;
    let over = stop_on_signal();
    let mut terminal = ratatui::try_init().map_err(|error| screen_failed(&error))?;
    let ended = on_screen(source, first, &mut terminal, &over).await;
    ratatui::try_restore().map_err(|error| screen_failed(&error))?;
    ended.map(Exit::of)
}

fn screen_failed(error: &std::io::Error) -> CliError {
    CliError::new(
        Exit::Internal,
        format!("the terminal cannot be drawn on: {error}"),
    )
    .hint("`stagger watch --plain` prints lines")
}

/// Becomes true when somebody ends this process, or its terminal goes: the screen is given back all the same.
fn stop_on_signal() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&over);
    tokio::spawn(async move {
        let (Ok(mut terminated), Ok(mut hung_up)) =
            (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
        else {
            return;
        };
        tokio::select! {
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
        set.store(true, Ordering::Relaxed);
    });
    over
}

/// What is typed, and changes of the terminal's size. Read by a thread of its own: of a terminal that is gone crossterm reads on without
/// an end, and whoever waits for a key would never hear of it.
fn typed() -> UnboundedReceiver<std::io::Result<Event>> {
    let (sender, typed) = unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    });
    typed
}

async fn on_screen(
    mut source: Source<'_>,
    first: ScreenData,
    terminal: &mut DefaultTerminal,
    over: &AtomicBool,
) -> Result<RunVerdict, CliError> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut shown = first;
    let mut screen = Screen::default();
    let mut looked = std::time::Instant::now();
    let mut typed = typed();
    loop {
        terminal
            .draw(|frame| {
                draw(
                    frame,
                    &shown,
                    &screen,
                    now(&shown.view, &shown.read.history),
                    colours,
                );
            })
            .map_err(|error| screen_failed(&error))?;
        match timeout(KEYS, typed.recv()).await {
            Ok(Some(Ok(Event::Key(pressed)))) if pressed.kind == KeyEventKind::Press => {
                match key(&mut screen, &shown, pressed) {
                    KeyAction::Nothing => {}
                    KeyAction::Quit => return Ok(shown.view.verdict),
                    KeyAction::Ask(command) => screen.told = Some(source.ask(&command).await),
                }
            }
            Ok(Some(Ok(_))) | Err(_) => {}
            Ok(Some(Err(error))) => return Err(screen_failed(&error)),
            // Its last word was why.
            Ok(None) => return Ok(shown.view.verdict),
        }
        if over.load(Ordering::Relaxed) {
            return Ok(shown.view.verdict);
        }
        if looked.elapsed() >= source.every() {
            looked = std::time::Instant::now();
            source.refresh(&mut shown).await;
        }
    }
}

impl Source<'_> {
    /// How long passes between two looks.
    fn every(&self) -> Duration {
        if self.kube.is_some() { LOOK_FAR } else { LOOK }
    }

    /// Asks the run for something, and says what came of it.
    async fn ask(&mut self, command: &Command) -> String {
        let asked = match self.kube {
            Some(kube) => super::kube::leave(kube, command).await,
            None => supervisor::ask(&mut *self.store, &self.run, Timestamp::now(), command, &user())
                .await
                .map_err(CliError::from),
        };
        let word = command_words(command);
        match asked {
            Ok(()) => format!("{word} requested"),
            Err(error) => format!("{word} failed: {}", error.message),
        }
    }

    /// Reads the run once more if anything was written; what cannot be read is told beside what was read last.
    async fn refresh(&mut self, shown: &mut ScreenData) {
        // An operator's journals have no mark that others write.
        let is_new = self.kube.is_some()
            || self
                .store
                .mark(&self.run, None)
                .await
                .map_or(true, |mark| mark.is_none_or(|mark| mark.seq != shown.view.seq));
        // What could not be read is read again. Where nothing is new, who carries it out may have ended without a word.
        let looked = if is_new || shown.unread.is_some() {
            self.read().await.map(|read| *shown = read)
        } else {
            self.view(&shown.read.run).await.map(|view| shown.view = view)
        };
        if let Err(error) = looked {
            shown.unread = Some(error.message);
        }
    }

    async fn read(&mut self) -> Result<ScreenData, CliError> {
        let read = reading(&*self.store, &self.run).await?;
        Ok(ScreenData {
            view: self.view(&read.run).await?,
            left: self.remaining_forecast(&read.run).await,
            words: read.pending_approvals(),
            read,
            unread: None,
        })
    }

    /// How long the rest takes by earlier runs.
    async fn remaining_forecast(&mut self, run: &Run) -> Option<RunForecast> {
        let outlook = match self.outlook.take() {
            Some(known) => known,
            None => Outlook::of_run(&*self.store, run).await,
        };
        self.outlook.insert(outlook).remaining(run)
    }

    fn no_start(&self) -> CliError {
        no_start(&format!("the journal of {}", self.run))
    }

    /// The run at a glance. Whether an operator is at work its own status tells.
    async fn view(&self, run: &Run) -> Result<RunView, CliError> {
        let seen = view::run(run, None);
        if self.kube.is_some() {
            return Ok(seen);
        }
        Ok(match supervisor::interruption_reason(&*self.store, run).await? {
            Some(why) => seen.without_a_holder(why),
            None => seen,
        })
    }
}

/// A line for each event until the run is over, or a person is needed.
async fn follow(cli: &Cli, source: &Source<'_>) -> Result<Exit, CliError> {
    let mut shown = 0;
    loop {
        let entries = source.store.journal(&source.run).await?;
        let told = event_lines(&entries).map_err(DriveError::Illegal)?;
        let (run, lines) = told.ok_or_else(|| source.no_start())?;
        if cli.json {
            for entry in entries.iter().filter(|entry| entry.seq > shown) {
                print::line(&documents::EVENT.of(entry));
            }
        } else {
            for line in lines.iter().filter(|line| line.seq > shown) {
                print::data_line(&format!("{:.0} {:<9}{}", line.at, line.word, line.text));
            }
        }
        shown = entries.last().map_or(shown, |entry| entry.seq);
        let seen = source.view(&run).await?;
        let goes_on = matches!(seen.verdict, RunVerdict::Running | RunVerdict::Held);
        if !goes_on || print::write_error().is_some() {
            if !cli.json {
                print::data_line(&format!("{}  {}", seen.verdict, seen.why));
            }
            return Ok(Exit::of(seen.verdict));
        }
        tokio::time::sleep(source.every()).await;
    }
}
