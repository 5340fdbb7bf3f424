//! What was told to whom, and what is to be told next.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use stagger_core::model::RunId;
use stagger_core::run::{Entry, Event};
use stagger_engine::store::Store;
use stagger_report::sentences::told;

use super::send::{Failed, Sender};
use super::{Importance, Message, Receiver, Tell};
use crate::error::CliError;
use crate::print;

/// So often the journal is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// At least so long apart are two digests.
const DIGEST: Duration = Duration::from_mins(15);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_mins(1);
/// Once the run is left, so long what was not told is tried.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many messages wait for a receiver that does not answer; older ones are dropped.
const WAITING: usize = 1_000;

/// Tells receivers what a run comes to, until it is dropped.
#[derive(Debug)]
pub(crate) struct Notifier {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Begins to tell of a run. `folder`: where it is written down what was told.
    ///
    /// # Errors
    /// A receiver's secret cannot be read, or the thread cannot be started.
    pub(crate) fn begin(
        receivers: &[Receiver],
        run: &RunId,
        store: Box<dyn Store>,
        folder: &Path,
    ) -> Result<Self, CliError> {
        let over = Arc::new(AtomicBool::new(false));
        if receivers.is_empty() {
            return Ok(Self { over, thread: None });
        }
        let queues = receivers.iter().map(|receiver| Queue::new(receiver, folder, run));
        let teller = Teller {
            run: run.clone(),
            store,
            read: 0,
            queues: queues.collect::<Result<_, _>>()?,
            over: Arc::clone(&over),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CliError::usage(format!("begin to notify: {error}")))?;
        let thread = std::thread::Builder::new()
            .name("notify".to_owned())
            .spawn(move || runtime.block_on(teller.tell()))
            .map_err(|error| CliError::usage(format!("begin to notify: {error}")))?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Notifier {
    /// What was not told yet is told, for ten seconds.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Teller {
    run: RunId,
    store: Box<dyn Store>,
    /// Up to which event the journal was read.
    read: u64,
    queues: Vec<Queue>,
    over: Arc<AtomicBool>,
}

impl Teller {
    async fn tell(mut self) {
        let mut left: Option<Instant> = None;
        loop {
            let is_over = self.over.load(Ordering::Relaxed);
            self.read_on();
            for queue in &mut self.queues {
                queue.next(is_over).await;
            }
            if is_over {
                let since = *left.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE || self.queues.iter().all(Queue::is_empty) {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        for queue in self.queues.iter().filter(|queue| !queue.is_empty()) {
            print::talk(&format!(
                "{} was not told of {} messages: {}; whoever resumes the run tells it",
                queue.name,
                queue.waiting.len(),
                queue.why.as_deref().unwrap_or("there was no time left")
            ));
        }
    }

    /// Takes what was written since. A store that cannot be read is read again later.
    fn read_on(&mut self) {
        let mark = self.store.mark(&self.run, None);
        if mark.is_ok_and(|mark| mark.is_some_and(|mark| mark.seq == self.read)) {
            return;
        }
        let Ok(entries) = self.store.journal(&self.run) else {
            return;
        };
        let messages = messages(&entries);
        let begun = since(&entries);
        for queue in &mut self.queues {
            queue.take(&messages, self.read, begun);
        }
        self.read = entries.last().map_or(self.read, |entry| entry.seq);
    }
}

/// All that a journal is worth telling.
pub(super) fn messages(entries: &[Entry]) -> Vec<Message> {
    let Ok(Some((run, lines))) = told(entries) else {
        return Vec::new();
    };
    let lines: BTreeMap<u64, _> = lines.iter().map(|line| (line.seq, line)).collect();
    entries
        .iter()
        .filter_map(|entry| Message::of(entry, lines.get(&entry.seq)?, &run))
        .collect()
}

/// The event after which a receiver is told that nobody has told anything: what was before the process of now is old.
fn since(entries: &[Entry]) -> u64 {
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
    tell: Tell,
    /// Where it is written down up to which event it was told.
    file: PathBuf,
    told: Option<u64>,
    waiting: VecDeque<Message>,
    digest: Vec<Message>,
    digested: Instant,
    tries: u32,
    again: Instant,
    /// Why the last attempt failed.
    why: Option<String>,
}

impl Queue {
    fn new(receiver: &Receiver, folder: &Path, run: &RunId) -> Result<Self, CliError> {
        let whom = format!("{:?}{:?}", receiver.webhook, receiver.command);
        let mut mark = [0; 8];
        mark.copy_from_slice(&Sha256::digest(whom.as_bytes())[..8]);
        let mark = u64::from_be_bytes(mark);
        let file = folder.join("notified").join(format!("{run}-{mark:016x}"));
        let told = std::fs::read_to_string(&file).ok();
        Ok(Self {
            name: receiver.name(),
            sender: Sender::new(receiver)?,
            tell: receiver.tell,
            told: told.and_then(|text| text.trim().parse().ok()),
            file,
            waiting: VecDeque::new(),
            digest: Vec::new(),
            digested: Instant::now(),
            tries: 0,
            again: Instant::now(),
            why: None,
        })
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.digest.is_empty()
    }

    /// Takes what is new. `begun`: after which event it is told what nobody was told before.
    fn take(&mut self, messages: &[Message], read: u64, begun: u64) {
        let from = self.told.unwrap_or(begun).max(read);
        for message in messages.iter().filter(|message| message.seq > from) {
            match message.importance {
                Importance::Urgent => {
                    // What came before it is read before it.
                    self.close_digest();
                    self.waiting.push_back(message.clone());
                }
                Importance::Digest if self.tell == Tell::All => self.digest.push(message.clone()),
                Importance::Digest => {}
            }
        }
        while self.waiting.len() > WAITING {
            self.waiting.pop_front();
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
                Ok(()) => self.has_told(),
                Err(Failed { why, for_good: true }) => {
                    print::talk(&format!(
                        "{} refuses a notification, it is not sent again: {why}",
                        self.name
                    ));
                    self.has_told();
                }
                Err(Failed { why, .. }) => {
                    if self.tries == 0 {
                        print::talk(&format!(
                            "{} was not reached, it is tried again: {why}",
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

    fn has_told(&mut self) {
        (self.tries, self.why) = (0, None);
        let Some(message) = self.waiting.pop_front() else {
            return;
        };
        self.told = Some(message.seq);
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).ok();
        }
        // Where it cannot be written down, whoever resumes tells it once more.
        std::fs::write(&self.file, message.seq.to_string()).ok();
    }
}

/// One second, and twice as long each time.
fn pause(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.min(6)).min(LONGEST)
}
