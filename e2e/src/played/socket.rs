//! The way to a Ceph that is only played: a socket, with the protocol that `stagger` speaks to a process that
//! holds a connection (a line of JSON in, a line of JSON out with so many bytes behind it).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream as Connection};

use super::ceph::Ceph;

/// Joins this process's input and output with the socket, until the input ends.
///
/// # Errors
/// Nobody listens there.
pub fn join(socket: &Path) -> Result<()> {
    let mut ceph =
        UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
    let mut answers = ceph.try_clone().context("sharing the connection")?;
    // Not the buffered one: the end of an answer is no end of a line.
    let output = io::stdout().as_fd().try_clone_to_owned();
    let mut output = File::from(output.context("sharing the output")?);
    std::thread::spawn(move || pass_on(&mut answers, &mut output));
    pass_on(&mut io::stdin().lock(), &mut ceph).context("passing on questions")
}

/// Passes on what comes until its end. `io::copy` would splice, and a splice holds the pipe that it fills for as long
/// as it waits: who reads the pipe hangs with it, also one that would not wait.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
    }
}

/// Answers whoever connects, for as long as it is polled.
pub(super) async fn serve(listener: UnixListener, ceph: Arc<Mutex<Ceph>>) -> Result<()> {
    loop {
        let (connection, _) = listener.accept().await.context("waiting for a connection")?;
        let ceph = Arc::clone(&ceph);
        // One that breaks off is the end of it.
        tokio::spawn(async move { answer(connection, &ceph).await.ok() });
    }
}

async fn answer(connection: Connection, ceph: &Mutex<Ceph>) -> Result<()> {
    let (questions, mut answers) = connection.into_split();
    answers.write_all(b"{\"ready\":true}\n").await?;
    let mut questions = BufReader::new(questions).lines();
    while let Some(line) = questions.next_line().await? {
        let question: Value = serde_json::from_str(&line)?;
        let answer = {
            let mut ceph = ceph.lock().unwrap_or_else(PoisonError::into_inner);
            ceph.answer(&question["command"])
        };
        let head = json!({ "rc": answer.rc, "err": answer.err, "bytes": answer.out.len() });
        answers.write_all(format!("{head}\n").as_bytes()).await?;
        answers.write_all(&answer.out).await?;
    }
    Ok(())
}
