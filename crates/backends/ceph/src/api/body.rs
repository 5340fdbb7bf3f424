//! The body of an answer: in memory, or streamed.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// What was answered.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// It comes while it is read, and is never in memory as a whole.
    Coming(Chunks),
}

/// An answer in pieces. Dropping it early cancels the rest.
#[derive(Debug)]
pub struct Chunks {
    coming: Receiver<io::Result<Vec<u8>>>,
    /// How long the next piece may take.
    patience: Duration,
    chunk: Vec<u8>,
    at: usize,
}

impl Chunks {
    /// What comes there; an error among the pieces says that no more will.
    pub(super) fn new(coming: Receiver<io::Result<Vec<u8>>>, patience: Duration) -> Self {
        Self {
            coming,
            patience,
            chunk: Vec::new(),
            at: 0,
        }
    }
}

impl Read for Chunks {
    /// Waits for the next piece: not for an async task.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            self.chunk = match self.coming.recv_timeout(self.patience) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = self.patience.as_secs();
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("the answer stopped coming for {seconds} s"),
                    ));
                }
            };
            self.at = 0;
        }
        let count = into.len().min(self.chunk.len() - self.at);
        into[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn pieces_are_read_as_one_text_and_what_broke_off_is_an_error() {
        let (to, coming) = sync_channel(8);
        for piece in ["ab", "", "cde"] {
            to.send(Ok(piece.as_bytes().to_vec())).unwrap();
        }
        drop(to);
        let mut text = String::new();
        Chunks::new(coming, Duration::from_secs(9))
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "abcde");

        let (to, coming) = sync_channel(8);
        to.send(Ok(b"ab".to_vec())).unwrap();
        to.send(Err(io::Error::other("it broke off"))).unwrap();
        let read = Chunks::new(coming, Duration::from_secs(9)).read_to_string(&mut String::new());
        assert_eq!(read.unwrap_err().to_string(), "it broke off");

        let (_to, coming) = sync_channel(8);
        let read = Chunks::new(coming, Duration::ZERO).read(&mut [0]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
