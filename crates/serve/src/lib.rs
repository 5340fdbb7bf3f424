//! Runs in a browser and over HTTP: read from their journals, with the commands that operators may give.
//!
//! The store is the only connection to the process that carries a run out: nothing here can reach a cluster,
//! so an attacker who controls this process controls no cluster. [`access`] decides about each request: over
//! a socket that only the user of this process may open, or by a token over TLS.

pub mod access;
mod api;
mod asks;
mod authentication;
mod body;
mod commands;
mod description;
mod etag;
mod fragments;
mod idempotency;
mod limits;
mod listen;
mod metrics;
mod page;
mod problem;
mod read_error;
mod run_path;
mod run_processes;
mod runs;
mod start;
mod stores;
mod stream;
mod write_timeout;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stagger_asks::LedgerLocation;
use tokio::sync::Semaphore;

pub use limits::RequestTimeouts;
pub use listen::{Listen, ServeError, Tls, serve};
pub use run_processes::RunLauncher;
pub use stores::{RunStore, StoreOpener};

use access::Tokens;
use asks::AskDesk;
use idempotency::IdempotencyKeys;
use run_processes::RunStarter;
use runs::RunCatalog;

/// What every answer is made from.
#[derive(Clone)]
struct Shared {
    runs: RunCatalog,
    asks: AskDesk,
    tokens: Arc<Tokens>,
    once: Arc<IdempotencyKeys>,
    carrier: Option<Arc<RunStarter>>,
    streams: Arc<Semaphore>,
    /// An answer may take so long.
    patience: Duration,
    most_streams: usize,
}

/// Of what is served.
#[derive(Clone)]
pub struct ServeSettings {
    /// Where the runs are.
    pub stores: Vec<RunStore>,
    /// Where the asks of their clusters are.
    pub asks: Vec<LedgerLocation>,
    /// The file of tokens.
    pub tokens: PathBuf,
    /// Starts runs, and continues interrupted ones; `None`: not from here.
    pub carry_on: Option<RunLauncher>,
    /// How long is waited, and for how many.
    pub limits: RequestTimeouts,
}

/// The description of the interface, an `OpenAPI` 3.1 document, made from the code that answers.
pub fn openapi() -> Value {
    api::described().1
}
