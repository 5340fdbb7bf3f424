//! Runs in a browser and by HTTP: read from their journals, and asked for what a person may ask.
//!
//! The store is all that is between this and whoever carries a run out: nothing here knows how a cluster is reached, so whoever
//! gets hold of this process gets hold of no cluster. A request is answered as [`access`] permits it: over a socket that only
//! the user of this process may open, or by a token over TLS.

pub mod access;
mod api;
mod authentication;
mod begin;
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
mod patience;
mod problem;
mod read_error;
mod run_path;
mod run_processes;
mod runs;
mod stores;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

pub use limits::RequestTimeouts;
pub use listen::{Listen, ServeError, Tls, serve};
pub use run_processes::RunLauncher;
pub use stores::{RunStore, StoreOpener};

use access::Tokens;
use idempotency::IdempotencyKeys;
use run_processes::RunStarter;
use runs::RunCatalog;

/// What every answer is made from.
#[derive(Clone)]
struct Shared {
    runs: RunCatalog,
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
    /// The file of tokens.
    pub tokens: PathBuf,
    /// How runs are begun, and carried on where nobody carries them out; `None`: not from here.
    pub carry_on: Option<RunLauncher>,
    /// How long is waited, and for how many.
    pub limits: RequestTimeouts,
}

/// The description of the interface, an `OpenAPI` 3.1 document, made from the code that answers.
pub fn openapi() -> Value {
    api::described().1
}
