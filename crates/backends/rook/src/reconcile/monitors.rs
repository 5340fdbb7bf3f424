//! Tells of monitors that a running Rook does not look after, for as long as that is so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Shared;
use crate::api::cache::ObjectCache;
use crate::api::rook_operator;
use crate::executor::beside::unwatched;
use crate::observability::writer::Writer;

/// How often it is looked; nobody is asked anything while no monitor has the label.
const LOOK: Duration = Duration::from_secs(30);
/// Whether Rook runs is asked no more often than that.
const ASK: u32 = 10;
/// What is wrong.
const REASON: &str = "RookLooksAfterNoMonitor";

/// Tells of them until its task is ended.
pub(crate) async fn run(shared: Shared, namespace: String, watched: Arc<ObjectCache>, writer: Arc<Writer>) {
    // It runs, as far as was seen, and how many looks ago.
    let mut rook: Option<(bool, u32)> = None;
    loop {
        let (daemons, _) = watched.daemons();
        let why = unwatched(&daemons, &namespace, Timestamp::now());
        rook = match (&why, rook) {
            (None, _) => None,
            (Some(_), Some((runs, looks))) if looks < ASK => Some((runs, looks + 1)),
            (Some(_), known) => match rook_operator::running(&shared.client, &namespace, &watched).await {
                Ok(runs) => Some((runs.is_some(), 0)),
                Err(error) => {
                    tracing::warn!(%error, "whether Rook looks after monitors is not known");
                    known
                }
            },
        };
        // Where Rook does not run, it looks after nothing, and that is known.
        let why = why.filter(|_| rook.is_some_and(|(runs, _)| runs));
        let told = why.map(|why| ("monitors".to_owned(), why));
        writer.trouble(REASON, told.into_iter().collect::<BTreeMap<_, _>>());
        tokio::time::sleep(LOOK).await;
    }
}
