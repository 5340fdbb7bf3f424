//! One connection for many queries: about a millisecond each.
//!
//! A small Python process with the `rados` module holds the connection, for two reasons: that module is
//! installed wherever the `ceph` program is, which is written in Python too, and it speaks every release's
//! protocol. Where it is missing, each query starts the `ceph` program instead.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::exec::Exec;
use super::{Access, Body, CephAnswer, CephApi, CephApiError, Chunks, QueryTarget, command_line};

const SCRIPT: &str = include_str!("session.py");
/// By default the C library keeps a heap for each thread, and what was freed of a large answer.
const SPARING: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];
/// How much longer than the script itself we wait, for its start and a large answer.
const GRACE: Duration = Duration::from_secs(5);
/// For so many bytes of an announced answer there is a place before they come.
const RESERVED: u64 = 1 << 24;
/// An answer of more bytes than this is none: 4 GB, four times the dump of 320,000 placement groups.
const LARGEST: u64 = 1 << 32;
/// What comes as it is read is handed on in pieces of so many bytes,
const CHUNK: usize = 1 << 16;
/// and so many of them may wait. Until they are read, other answers on the connection wait too.
const CHUNKS: usize = 4;
/// Under this number the script says whether it has a connection; questions count from there.
const HELLO: u64 = 0;

/// Keeps one connection, over which many may ask at once: none waits for another's answer. Where one has no
/// answer in time the connection is given up, and the next question connects anew; the others in flight have
/// three seconds left. What was in flight when it broke fails: nothing is asked twice by itself, since a question
/// may be an order.
///
/// The process ends when its input does, so it dies with this one, and a command that it had sent is
/// over a few seconds after the configured time at the latest, also when whoever asked waits no longer.
#[derive(Debug)]
pub struct Session {
    access: Access,
    exec: Exec,
    open: AsyncMutex<Option<Arc<Connection>>>,
    fell_back: OnceLock<String>,
}

/// What the script says: which of these fields are there tells what happened.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    id: u64,
    ready: bool,
    missing: Option<String>,
    unreachable: Option<String>,
    timed_out: bool,
    rc: i32,
    err: String,
    bytes: u64,
}

type Came = Result<(Head, Body), String>;

/// The waiting callers by query.
#[derive(Debug)]
struct Asker {
    answer: oneshot::Sender<Came>,
    /// How long a piece of it may take, where it is to come as it is read.
    by_chunks: Option<Duration>,
}

/// Who waits for which answer.
#[derive(Debug, Default)]
struct Waiting {
    answers: BTreeMap<u64, Asker>,
    last: u64,
    /// Why no more queries are accepted.
    closed: Option<String>,
}

/// The process, and a thread that hands out its answers. It is ended when the last who asked has let go of it.
#[derive(Debug)]
struct Connection {
    process: Child,
    questions: Arc<Mutex<ChildStdin>>,
    waiting: Arc<Mutex<Waiting>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Session {
    /// Connects when the first question comes.
    pub fn new(access: Access) -> Self {
        Self {
            exec: Exec::new(access.clone()),
            access,
            open: AsyncMutex::new(None),
            fell_back: OnceLock::new(),
        }
    }
    fn transport(&self) -> String {
        let python = self.access.python.iter().flatten();
        python.cloned().collect::<Vec<_>>().join(" ") + " with rados"
    }

    fn unreachable(&self, asked: &str, why: impl Into<String>) -> CephApiError {
        CephApiError::Unreachable {
            command: asked.to_owned(),
            via: self.transport(),
            why: why.into(),
        }
    }

    fn timed_out(&self, asked: &str) -> CephApiError {
        CephApiError::TimedOut {
            command: asked.to_owned(),
            via: self.transport(),
            seconds: self.access.timeout.as_secs(),
        }
    }

    /// The connection that is there, or a new one; `None` where there can be none.
    async fn connection(&self, asked: &str) -> Result<Option<Arc<Connection>>, CephApiError> {
        let Some(python) = self
            .access
            .python
            .as_ref()
            .filter(|_| self.fell_back.get().is_none())
        else {
            return Ok(None);
        };
        let mut open = self.open.lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| connection.takes_more()) {
            return Ok(Some(Arc::clone(connection)));
        }
        *open = None;
        let connected = self.connect(python, asked).await?;
        open.clone_from(&connected.map(Arc::new));
        Ok(open.clone())
    }

    /// A new connection, or `None` where there can be none.
    async fn connect(&self, python: &[String], asked: &str) -> Result<Option<Connection>, CephApiError> {
        let Access {
            ceph: _,
            python: _,
            conf,
            name,
            keyring,
            timeout,
        } = &self.access;
        let access =
            json!({ "conf": conf, "name": name, "keyring": keyring, "timeout": timeout.as_secs().max(1) });
        let Some((program, before)) = python.split_first() else {
            return Ok(self.fall_back("no python is configured"));
        };
        let started = Command::new(program)
            .args(before)
            .args(["-c", SCRIPT, &access.to_string()])
            .envs(SPARING)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => return Ok(self.fall_back(&format!("cannot start {program}: {error}"))),
        };
        let complaints = process.stderr.take();
        let (connection, hello) =
            Connection::connect_over(process).map_err(|error| self.unreachable(asked, error.to_string()))?;
        let hello = tokio::time::timeout(self.access.timeout + GRACE, received(hello))
            .await
            .map_err(|_| self.timed_out(asked))?;
        let head = match hello {
            Ok((head, _)) => head,
            Err(why) => {
                drop(connection);
                return Err(self.unreachable(asked, format!("{why}: {}", stderr_text(complaints).await)));
            }
        };
        if let Some(why) = head.missing {
            return Ok(self.fall_back(&format!("{program} has no rados module: {why}")));
        }
        if !head.ready {
            return Err(self.unreachable(asked, head.unreachable.unwrap_or_default()));
        }
        Ok(Some(connection))
    }

    fn fall_back(&self, why: &str) -> Option<Connection> {
        self.fell_back.get_or_init(|| why.to_owned());
        None
    }
}

/// What a process that has ended wrote beside its answers.
async fn stderr_text(complaints: Option<ChildStderr>) -> String {
    const LONGEST: u64 = 2_000;
    let read = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        // Whatever came is better than nothing.
        drop(complaints.map(|complaints| complaints.take(LONGEST).read_to_end(&mut text)));
        text
    });
    let read = tokio::time::timeout(Duration::from_secs(1), read).await;
    let text = read.ok().and_then(Result::ok).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

impl Connection {
    /// Over a process that was just started, and what will say whether it is connected.
    fn connect_over(mut process: Child) -> io::Result<(Self, oneshot::Receiver<Came>)> {
        let (Some(questions), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("its input and output are not there"));
        };
        let (answer, connected) = oneshot::channel();
        let hello = Asker {
            answer,
            by_chunks: None,
        };
        let waiting = Arc::new(Mutex::new(Waiting {
            answers: BTreeMap::from([(HELLO, hello)]),
            last: HELLO,
            closed: None,
        }));
        let connection = Self {
            process,
            questions: Arc::new(Mutex::new(questions)),
            waiting: Arc::clone(&waiting),
        };
        std::thread::Builder::new()
            .name("answers of Ceph".to_owned())
            .spawn(move || hand_out(BufReader::new(answers), &waiting))?;
        Ok((connection, connected))
    }

    fn takes_more(&self) -> bool {
        held(&self.waiting).closed.is_none()
    }

    fn close(&self, why: &str) {
        held(&self.waiting).closed.get_or_insert_with(|| why.to_owned());
    }

    async fn ask(&self, whom: Value, command: Value, by_chunks: Option<Duration>) -> Came {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut waiting = held(&self.waiting);
            if let Some(why) = &waiting.closed {
                return Err(why.clone());
            }
            waiting.last += 1;
            let id = waiting.last;
            let asker = Asker {
                answer: sender,
                by_chunks,
            };
            waiting.answers.insert(id, asker);
            id
        };
        let line = format!("{}\n", json!({ "id": id, "whom": whom, "command": command }));
        let questions = Arc::clone(&self.questions);
        let written = tokio::task::spawn_blocking(move || held(&questions).write_all(line.as_bytes()));
        match written.await {
            Ok(Ok(())) => received(answer).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn received(answer: oneshot::Receiver<Came>) -> Came {
    let lost = || Err("the reader of its answers has ended".to_owned());
    answer.await.unwrap_or_else(|_| lost())
}

/// Passes each answer to its caller, until there are no more.
fn hand_out(mut answers: BufReader<ChildStdout>, waiting: &Mutex<Waiting>) {
    let why = loop {
        if let Err(why) = hand_on(&mut answers, waiting) {
            break why;
        }
    };
    let mut waiting = held(waiting);
    waiting.closed = Some(why.clone());
    for asker in std::mem::take(&mut waiting.answers).into_values() {
        drop(asker.answer.send(Err(why.clone())));
    }
}

/// Gives the next answer to who waits for it; who waits no longer needs none.
fn hand_on(answers: &mut impl BufRead, waiting: &Mutex<Waiting>) -> Result<(), String> {
    let head = next_head(answers)?;
    let wanted = head.bytes;
    let asker = {
        let mut waiting = held(waiting);
        if head.timed_out || head.unreachable.is_some() {
            let why = "another question had no answer on this connection";
            waiting.closed.get_or_insert_with(|| why.to_owned());
        }
        waiting.answers.remove(&head.id)
    };
    match asker {
        Some(Asker {
            answer,
            by_chunks: Some(patience),
        }) if head.rc == 0 => {
            let (to, coming) = sync_channel(CHUNKS);
            drop(answer.send(Ok((head, Body::Coming(Chunks::new(coming, patience))))));
            by_chunks(answers, wanted, Some(to))
        }
        Some(Asker { answer, .. }) => {
            let body = read_exactly(answers, wanted);
            let ended = body.as_ref().map(drop).map_err(Clone::clone);
            drop(answer.send(body.map(|body| (head, Body::Whole(body)))));
            ended
        }
        None => by_chunks(answers, wanted, None),
    }
}

fn next_head(answers: &mut impl BufRead) -> Result<Head, String> {
    let mut line = Vec::new();
    let read = answers.read_until(b'\n', &mut line);
    if read.map_err(|e| e.to_string())? == 0 {
        return Err("the process that held the connection has ended".to_owned());
    }
    let head: Head = serde_json::from_slice(&line).map_err(|e| format!("garbled answer: {e}"))?;
    if head.bytes > LARGEST {
        return Err(format!("an answer of {} bytes is not taken", head.bytes));
    }
    Ok(head)
}

fn read_exactly(answers: &mut impl BufRead, wanted: u64) -> Result<Vec<u8>, String> {
    // Grown by doubling, it would take twice its place for a moment.
    let mut body = Vec::with_capacity(wanted.min(RESERVED) as usize);
    let got = answers.take(wanted).read_to_end(&mut body);
    if got.map_err(|e| e.to_string())? as u64 != wanted {
        return Err(truncated_answer(body.len() as u64, wanted));
    }
    Ok(body)
}

/// Hands an answer on as it comes. Where nobody reads on, the rest of it is passed over.
fn by_chunks(
    answers: &mut impl BufRead,
    wanted: u64,
    mut to: Option<SyncSender<io::Result<Vec<u8>>>>,
) -> Result<(), String> {
    let mut missing = wanted;
    while missing > 0 {
        let mut chunk = Vec::with_capacity(missing.min(CHUNK as u64) as usize);
        let read = answers.take(missing.min(CHUNK as u64)).read_to_end(&mut chunk);
        let why = match read {
            Ok(0) => truncated_answer(wanted - missing, wanted),
            Ok(got) => {
                missing -= got as u64;
                to = to.filter(|to| to.send(Ok(chunk)).is_ok());
                continue;
            }
            Err(error) => error.to_string(),
        };
        if let Some(to) = to {
            drop(to.send(Err(io::Error::other(why.clone()))));
        }
        return Err(why);
    }
    Ok(())
}

fn truncated_answer(got: u64, wanted: u64) -> String {
    format!("the answer broke off after {got} of {wanted} bytes")
}

impl Session {
    /// Asks over a connection: by chunks, whoever asks takes the answer as it comes.
    async fn exchange(
        &self,
        connection: &Connection,
        whom: QueryTarget,
        command: Value,
        by_chunks: bool,
    ) -> Result<(Head, Body), CephApiError> {
        let asked = command_line(&command).join(" ");
        let whom = match whom {
            QueryTarget::Mon => json!("mon"),
            QueryTarget::Mgr => json!("mgr"),
            QueryTarget::MonAt(rank) => json!(["mon", rank]),
            QueryTarget::Osd(id) => json!(["osd", id]),
        };
        let limit = self.access.timeout + GRACE;
        let asking = connection.ask(whom, command, by_chunks.then_some(limit));
        let Ok(came) = tokio::time::timeout(limit, asking).await else {
            connection.close("the session process does not answer");
            return Err(self.timed_out(&asked));
        };
        let (head, body) = came.map_err(|why| self.unreachable(&asked, why))?;
        if head.timed_out {
            return Err(self.timed_out(&asked));
        }
        if let Some(why) = head.unreachable {
            return Err(self.unreachable(&asked, why));
        }
        Ok((head, body))
    }
}

#[async_trait]
impl CephApi for Session {
    fn fallback_reason(&self) -> Option<&str> {
        self.fell_back.get().map(String::as_str)
    }

    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let asked = command_line(&command).join(" ");
        let Some(connection) = self.connection(&asked).await? else {
            return self.exec.command(whom, command).await;
        };
        let (head, body) = self.exchange(&connection, whom, command, false).await?;
        Ok(CephAnswer {
            rc: head.rc,
            out: match body {
                Body::Whole(out) => out,
                Body::Coming(_) => Vec::new(),
            },
            err: head.err,
        })
    }

    async fn ask_for_much(&self, whom: QueryTarget, mut command: Value) -> Result<Body, CephApiError> {
        command["format"] = Value::from("json");
        let asked = command_line(&command).join(" ");
        let Some(connection) = self.connection(&asked).await? else {
            return self.exec.ask(whom, command).await.map(Body::Whole);
        };
        let (head, body) = self.exchange(&connection, whom, command, true).await?;
        if head.rc == 0 {
            return Ok(body);
        }
        Err(CephApiError::Refused {
            command: asked,
            rc: head.rc,
            why: head.err.trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// What the script writes of these answers, each with its number.
    fn written(answers: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, body) in answers {
            writeln!(bytes, "{}", json!({ "id": id, "bytes": body.len() })).unwrap();
            bytes.extend_from_slice(body);
        }
        bytes
    }

    fn asking(waiting: &Mutex<Waiting>, id: u64, by_chunks: bool) -> oneshot::Receiver<Came> {
        let (answer, came) = oneshot::channel();
        let asker = Asker {
            answer,
            by_chunks: by_chunks.then_some(Duration::from_mins(1)),
        };
        held(waiting).answers.insert(id, asker);
        came
    }

    #[test]
    fn a_long_answer_comes_as_it_is_read_and_the_others_whole() {
        let waiting = Mutex::default();
        let [long, short, last] = [(1, true), (2, false), (3, true)].map(|(id, by)| asking(&waiting, id, by));
        // More than may wait at once.
        let much = vec![b'x'; CHUNK * (CHUNKS + 3) + 1];
        let written = written(&[(1, &much), (2, b"{}"), (9, b"nobody asks"), (3, b"")]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut answers = written.as_slice();
                for _ in 0..4 {
                    hand_on(&mut answers, &waiting).unwrap();
                }
                assert!(answers.is_empty());
            });
            let Ok((_, Body::Coming(mut coming))) = long.blocking_recv().unwrap() else {
                panic!("it is whole");
            };
            let mut read = Vec::new();
            coming.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), much.len());
            assert!(matches!(short.blocking_recv().unwrap(), Ok((_, Body::Whole(body))) if body == b"{}"));
            let Ok((_, Body::Coming(mut coming))) = last.blocking_recv().unwrap() else {
                panic!("it is whole");
            };
            assert_eq!(coming.read(&mut [0]).unwrap(), 0);
        });
    }

    #[test]
    fn who_stops_reading_keeps_nobody_waiting_and_what_breaks_off_is_told() {
        let waiting = Mutex::default();
        drop(asking(&waiting, 1, true));
        let cut = asking(&waiting, 2, true);
        let much = vec![b'x'; CHUNK * (CHUNKS + 3)];
        let mut written = written(&[(1, &much), (2, b"[1, 2, 3]")]);
        written.truncate(written.len() - 4);
        let mut answers = written.as_slice();
        hand_on(&mut answers, &waiting).unwrap();
        let why = "the answer broke off after 5 of 9 bytes";
        assert_eq!(hand_on(&mut answers, &waiting), Err(why.to_owned()));
        let Ok((_, Body::Coming(mut coming))) = cut.blocking_recv().unwrap() else {
            panic!("it is whole");
        };
        let read = coming.read_to_string(&mut String::new());
        assert_eq!(read.unwrap_err().to_string(), why);
    }
}
