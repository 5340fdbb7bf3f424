//! The log endpoint: what `kubectl logs` is answered with, by way of the API server.
//!
//! One listener speaks for all nodes: the pod decides. The API server does not ask who it is speaking to.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::Api;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::Shared;

/// Between two looks whether a log that is followed has grown.
const LOOK: Duration = Duration::from_millis(200);

/// A listener, and who it says that it is.
pub(super) struct Endpoint {
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl Endpoint {
    /// Listens on a port of its own.
    pub(super) async fn open() -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
            .context("making a certificate for the log endpoint")?;
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config
                    .with_no_client_auth()
                    .with_single_cert(vec![own.cert.der().clone()], key.into())
            })
            .context("setting up TLS for the log endpoint")?;
        // Each node has an address; in the sandbox's own network nobody else asks.
        let listener = TcpListener::bind("0.0.0.0:0")
            .await
            .context("listening for those who ask for logs")?;
        Ok(Self {
            listener,
            tls: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Where it listens.
    pub(super) fn port(&self) -> Result<u16> {
        let address = self
            .listener
            .local_addr()
            .context("asking for the port of the log endpoint")?;
        Ok(address.port())
    }

    /// Answers until the agent ends.
    pub(super) async fn serve(self, shared: Arc<Shared>) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(LOOK).await;
                continue;
            };
            let (tls, shared) = (self.tls.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                if let Ok(stream) = tls.accept(stream).await {
                    // Who went away needs no answer.
                    answer(&shared, stream).await.ok();
                }
            });
        }
    }
}

/// Answers one question. The answer ends with the connection.
async fn answer(shared: &Shared, stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let log = match Question::of(&first) {
        Some(question) => Log::find(shared, question).await,
        None => Err((404, format!("the node agent answers no {}", first.trim()))),
    };
    let (status, why) = match &log {
        Ok(_) => (200, ""),
        Err((status, why)) => (*status, why.as_str()),
    };
    let head = format!("HTTP/1.1 {status} \r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{why}");
    stream.write_all(head.as_bytes()).await?;
    if let Ok(mut log) = log {
        stream.write_all(&log.first()).await?;
        while let Some(more) = log.more(shared).await {
            stream.flush().await?;
            stream.write_all(&more).await?;
        }
    }
    stream.shutdown().await
}

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Question {
    namespace: String,
    pod: String,
    container: String,
    previous: bool,
    follow: bool,
    /// So many lines, the last ones; all, if it is not said.
    tail: Option<usize>,
}

impl Question {
    /// Reads the first line of a request.
    fn of(line: &str) -> Option<Self> {
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.strip_prefix("/containerLogs/")?.split('/');
        let mut part = || Some(parts.next()?.to_owned());
        let mut question = Self {
            namespace: part()?,
            pod: part()?,
            container: part()?,
            ..Self::default()
        };
        for option in query.split('&') {
            match option.split_once('=') {
                Some(("previous", value)) => question.previous = value == "true",
                Some(("follow", value)) => question.follow = value == "true",
                Some(("tailLines", value)) => question.tail = Some(value.parse().ok()?),
                _ => {}
            }
        }
        parts.next().is_none().then_some(question)
    }
}

/// A log that is being told.
struct Log {
    question: Question,
    folder: PathBuf,
    /// Which run of the container it is of.
    run: u32,
    /// How much of it was told.
    told: usize,
}

impl Log {
    async fn find(shared: &Shared, question: Question) -> Result<Self, (u16, String)> {
        let Question {
            namespace,
            pod: name,
            container,
            ..
        } = &question;
        let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
        let pod = api
            .get(name)
            .await
            .map_err(|error| (500, format!("the pod {namespace}/{name} cannot be read: {error}")))?;
        let folder = shared.folder(&pod).join(container);
        let waits = state(&pod, container).is_some_and(|state| state.waiting.is_some());
        let run = newest(&folder).and_then(|newest| {
            // One that waits for its next run has none of its own yet: the newest is of the one before.
            if question.previous && !waits {
                newest.checked_sub(1)
            } else {
                Some(newest)
            }
        });
        let Some(run) = run else {
            let which = if question.previous {
                "earlier log"
            } else {
                "log yet"
            };
            return Err((
                400,
                format!("the container {container} of the pod {name} has no {which}"),
            ));
        };
        Ok(Self {
            question,
            folder,
            run,
            told: 0,
        })
    }

    /// What is told at once.
    fn first(&mut self) -> Vec<u8> {
        let text = self.text();
        self.told = text.len();
        let begin = self.question.tail.map_or(0, |lines| begin_of_last(&text, lines));
        text[begin..].to_vec()
    }

    /// What is told next, if it is followed; `None`: that was all.
    async fn more(&mut self, shared: &Shared) -> Option<Vec<u8>> {
        while self.question.follow {
            // Asked before reading, so that its last words are told too.
            let grows = self.grows(shared).await;
            let text = self.text();
            let new = text.get(self.told..).unwrap_or_default();
            if !new.is_empty() {
                self.told = text.len();
                return Some(new.to_vec());
            }
            if !grows {
                return None;
            }
            sleep(LOOK).await;
        }
        None
    }

    fn text(&self) -> Vec<u8> {
        fs::read(self.folder.join(format!("{}.log", self.run))).unwrap_or_default()
    }

    /// Whether its container still runs. While the API server does not answer, it may.
    async fn grows(&self, shared: &Shared) -> bool {
        if newest(&self.folder) != Some(self.run) {
            return false;
        }
        let api: Api<Pod> = Api::namespaced(shared.client.clone(), &self.question.namespace);
        match api.get_opt(&self.question.pod).await {
            Ok(Some(pod)) => {
                state(&pod, &self.question.container).is_some_and(|state| state.running.is_some())
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

fn state<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerState> {
    let status = pod.status.as_ref()?;
    let inits = status.init_container_statuses.iter().flatten();
    let mut all = inits.chain(status.container_statuses.iter().flatten());
    all.find(|one| one.name == container)?.state.as_ref()
}

/// The number of the newest log in the folder of a container.
fn newest(folder: &Path) -> Option<u32> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let numbers = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".log")?.parse().ok()
    });
    numbers.max()
}

/// Where the last lines of a text begin.
fn begin_of_last(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1) {
        None => text.len(),
        Some(before) => ends.map(|(at, _)| at + 1).nth(before).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_its_first_line() {
        let plain = Question {
            namespace: "ns".to_owned(),
            pod: "p-0".to_owned(),
            container: "main".to_owned(),
            ..Question::default()
        };
        let all = Question {
            previous: true,
            follow: true,
            tail: Some(5),
            ..Question::of("GET /containerLogs/ns/p-0/main HTTP/1.1\r\n").unwrap()
        };
        let line = "GET /containerLogs/ns/p-0/main?follow=true&previous=true&tailLines=5 HTTP/1.1\r\n";
        assert_eq!(Question::of(line), Some(all));
        assert_eq!(
            Question::of("GET /containerLogs/ns/p-0/main?follow=false HTTP/1.1"),
            Some(plain)
        );
        for other in [
            "GET /pods HTTP/1.1",
            "POST /containerLogs/ns/p/c HTTP/1.1",
            "GET /containerLogs/ns/p HTTP/1.1",
            "GET /containerLogs/ns/p/c/d HTTP/1.1",
            "GET /containerLogs/ns/p/c?tailLines=-1 HTTP/1.1",
            "",
        ] {
            assert_eq!(Question::of(other), None, "{other}");
        }
    }

    #[test]
    fn the_last_lines_are_found() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\n", 2, "a\nb\n"),
            ("a\nb\n", 9, "a\nb\n"),
            ("a\n\n", 1, "\n"),
            ("a\n", 0, ""),
            ("", 3, ""),
        ] {
            let begin = begin_of_last(text.as_bytes(), lines);
            assert_eq!(&text[begin..], expected, "{lines} of {text:?}");
        }
    }
}
