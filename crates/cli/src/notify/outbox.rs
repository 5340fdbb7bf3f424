//! The outbox: delivered messages, and the next one, for each receiver.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use stagger_core::model::RunId;
use stagger_core::run::{Entry, Event};
use stagger_engine::store::JournalStore;
use stagger_report::event_text::event_lines;

use super::send::{SendError, Sender};
use super::{Importance, Message, NotifyLevel, Receiver};
use crate::error::CliError;
use crate::print;

/// So often it is looked whether something is to be done.
const LOOK: Duration = Duration::from_millis(200);
/// So often the journal is read, if something was written.
const READ: Duration = Duration::from_secs(2);
/// At least so long apart are two digests.
const DIGEST: Duration = Duration::from_mins(15);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_mins(1);
/// Once the run is left, so long what was not told is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells receivers what a run comes to, until it is dropped.
#[derive(Debug)]
pub(crate) struct Notifier {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Notifier {
    /// Begins to tell of a run, each receiver by a thread of its own. `open` opens the store; `folder`: where it is written down
    /// what was told.
    ///
    /// # Errors
    /// A receiver's secret or the journal cannot be read, or a thread cannot be started.
    pub(crate) async fn begin(
        receivers: &[Receiver],
        run: &RunId,
        open: impl AsyncFn() -> Result<Box<dyn JournalStore>, CliError>,
        folder: &Path,
    ) -> Result<Self, CliError> {
        let mut this = Self {
            over: Arc::default(),
            threads: Vec::new(),
        };
        for receiver in receivers {
            let store = open().await?;
            let begun = first_new_event(&store.journal(run).await?);
            let teller = Teller {
                run: run.clone(),
                store,
                read: 0,
                is_ended: false,
                queue: Queue::new(receiver, folder, run, begun)?,
                over: Arc::clone(&this.over),
            };
            let failed = |error: std::io::Error| CliError::usage(format!("start to notify: {error}"));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(failed)?;
            let thread = std::thread::Builder::new().name("notify".to_owned());
            let thread = thread.spawn(move || runtime.block_on(teller.deliver()));
            this.threads.push(thread.map_err(failed)?);
        }
        Ok(this)
    }
}

impl Drop for Notifier {
    /// What was not told yet is told, for ten seconds.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

struct Teller {
    run: RunId,
    store: Box<dyn JournalStore>,
    /// Up to which event the journal was read.
    read: u64,
    /// Whether the run is over: nobody resumes it.
    is_ended: bool,
    queue: Queue,
    over: Arc<AtomicBool>,
}

impl Teller {
    async fn deliver(mut self) {
        let mut left: Option<Instant> = None;
        let mut again = Instant::now();
        loop {
            let is_over = self.over.load(Ordering::Relaxed);
            if is_over || again <= Instant::now() {
                self.read_on().await;
                again = Instant::now() + READ;
            }
            self.queue.next(is_over).await;
            if is_over {
                let since = *left.get_or_insert_with(Instant::now);
                if self.queue.is_empty() || since.elapsed() >= PATIENCE {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        if !self.queue.is_empty() {
            let next = if self.is_ended {
                "the run is over, and they are not sent later"
            } else {
                "`stagger resume` sends them"
            };
            print::status_line(&format!(
                "{}: {} notifications not delivered ({}); {next}",
                self.queue.name,
                self.queue.waiting.len(),
                self.queue.why.as_deref().unwrap_or("no time left")
            ));
        }
    }

    /// Takes what was written since. A store that cannot be read is read again later.
    async fn read_on(&mut self) {
        let mark = self.store.mark(&self.run, None).await;
        if mark.is_ok_and(|mark| mark.is_some_and(|mark| mark.seq == self.read)) {
            return;
        }
        let Ok(entries) = self.store.journal(&self.run).await else {
            return;
        };
        self.queue.take(&messages(&entries), self.read);
        if let Some(last) = entries.last() {
            self.read = last.seq;
            self.is_ended = matches!(last.event, Event::Ended { .. });
        }
    }
}

/// All that a journal is worth telling.
pub(super) fn messages(entries: &[Entry]) -> Vec<Message> {
    let Ok(Some((run, lines))) = event_lines(entries) else {
        return Vec::new();
    };
    let lines: BTreeMap<u64, _> = lines.iter().map(|line| (line.seq, line)).collect();
    entries
        .iter()
        .filter_map(|entry| Message::of(entry, lines.get(&entry.seq)?, &run))
        .collect()
}

/// After which event a receiver is told that was not known before: what was before the process of now is old.
fn first_new_event(entries: &[Entry]) -> u64 {
    let taken = entries
        .iter()
        .filter(|entry| matches!(entry.event, Event::LeaseTaken { .. }));
    match taken.map(|entry| entry.seq).collect::<Vec<_>>().as_slice() {
        // The first of all has begun the run.
        [] | [_] => 0,
        [.., last] => *last,
    }
}

/// What one receiver is still to be told.
struct Queue {
    name: String,
    sender: Sender,
    tell: NotifyLevel,
    /// Where it is written down up to which event it was told.
    file: PathBuf,
    told: u64,
    waiting: VecDeque<Message>,
    digest: Vec<Message>,
    digested: Instant,
    tries: u32,
    again: Instant,
    /// Why the last attempt failed.
    why: Option<String>,
}

impl Queue {
    /// `begun`: after which event it is told, if it was told of this run by no process before.
    fn new(receiver: &Receiver, folder: &Path, run: &RunId, begun: u64) -> Result<Self, CliError> {
        let whom = format!("{:?}{:?}", receiver.webhook, receiver.command);
        let mut mark = [0; 8];
        mark.copy_from_slice(&Sha256::digest(whom.as_bytes())[..8]);
        let mark = u64::from_be_bytes(mark);
        let file = folder.join("notified").join(format!("{run}-{mark:016x}"));
        let told = std::fs::read_to_string(&file).ok();
        let told: Option<u64> = told.and_then(|text| text.trim().parse().ok());
        let this = Self {
            name: receiver.name(),
            sender: Sender::new(receiver)?,
            tell: receiver.tell,
            told: told.unwrap_or(begun),
            file,
            waiting: VecDeque::new(),
            digest: Vec::new(),
            digested: Instant::now(),
            tries: 0,
            again: Instant::now(),
            why: None,
        };
        // At once: a process that is killed before it has told anything would leave no word that there was something to tell.
        this.save_position();
        Ok(this)
    }

    /// Writes down up to which event it was told. Where that cannot be written, whoever resumes tells it once more.
    fn save_position(&self) {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).ok();
        }
        std::fs::write(&self.file, self.told.to_string()).ok();
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.digest.is_empty()
    }

    /// Takes what is new since that event.
    fn take(&mut self, messages: &[Message], read: u64) {
        let from = self.told.max(read);
        for message in messages.iter().filter(|message| message.seq > from) {
            match message.importance {
                Importance::Urgent => {
                    // What came before it is read before it.
                    self.close_digest();
                    self.waiting.push_back(message.clone());
                }
                Importance::Digest if self.tell == NotifyLevel::All => self.digest.push(message.clone()),
                Importance::Digest => {}
            }
        }
    }

    fn close_digest(&mut self) {
        self.waiting.extend(Message::digest(&self.digest));
        self.digest.clear();
        self.digested = Instant::now();
    }

    /// Sends what is due, as long as it is taken.
    async fn next(&mut self, is_over: bool) {
        if is_over || self.digested.elapsed() >= DIGEST {
            self.close_digest();
        }
        while let Some(message) = self.waiting.front() {
            if self.again > Instant::now() {
                return;
            }
            match self.sender.send(message).await {
                Ok(()) => self.mark_delivered(),
                Err(SendError { why, for_good: true }) => {
                    print::status_line(&format!(
                        "{} rejected a notification ({why}); it is not retried",
                        self.name
                    ));
                    self.mark_delivered();
                }
                Err(SendError { why, .. }) => {
                    if self.tries == 0 {
                        print::status_line(&format!(
                            "{} did not take a notification ({why}); retrying",
                            self.name
                        ));
                    }
                    self.why = Some(why);
                    self.again = Instant::now() + pause(self.tries);
                    self.tries += 1;
                    return;
                }
            }
        }
    }

    fn mark_delivered(&mut self) {
        (self.tries, self.why) = (0, None);
        let Some(message) = self.waiting.pop_front() else {
            return;
        };
        self.told = message.seq;
        self.save_position();
    }
}

/// One second, and twice as long each time.
fn pause(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.min(6)).min(LONGEST)
}
