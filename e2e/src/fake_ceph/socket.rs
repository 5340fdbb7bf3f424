//! The way to a Ceph that is only played: a socket, with a line of JSON in, and a line of JSON out with so many bytes
//! behind it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream as Connection};

use super::ceph::Ceph;

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
