//! The event stream of a run: server-sent events, with the sequence number as id.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use stagger_core::run::Seq;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::Shared;
use crate::access::{Caller, Role};
use crate::problem::ProblemDetails;
use crate::read_error::ReadError;
use crate::run_path::{RunPath, authorized_run};
use crate::runs::{Followed, ReadRun};

/// Where a stream ended that is gone on with.
const LAST: HeaderName = HeaderName::from_static("last-event-id");
/// The interval of keep-alive messages.
const ALIVE: Duration = Duration::from_secs(15);

/// From where on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    /// Only events after that one; a `Last-Event-ID` counts more.
    #[serde(default)]
    after: Seq,
}

/// The maximum length of a stream; then the reader reconnects, as a token may have been revoked since.
const LONGEST: Duration = Duration::from_mins(5);

pub(crate) async fn stream(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    from: Result<Query<From>, QueryRejection>,
    headers: HeaderMap,
) -> Result<EventStream, ProblemDetails> {
    let (Path(run), Query(from)) = (run?, from?);
    let last = match headers.get(&LAST) {
        None => from.after,
        Some(last) => {
            let seq = last.to_str().ok().and_then(|text| text.parse().ok());
            seq.ok_or_else(|| ProblemDetails::malformed("Last-Event-ID is the place of an event: a number"))?
        }
    };
    let place = Arc::clone(&shared.streams).try_acquire_owned();
    let place = place.map_err(|_| ProblemDetails::too_many(shared.most_streams))?;
    let first = authorized_run(&shared, &caller, &run, Role::Look).await?;
    Ok(EventStream {
        followed: shared.runs.follow(&run, first),
        last,
        place,
    })
}

/// The events of a run after one of them, as they are written.
pub(crate) struct EventStream {
    followed: watch::Receiver<Followed>,
    last: Seq,
    /// Held for as long as it is told.
    place: OwnedSemaphorePermit,
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let Self {
            mut followed,
            last,
            place,
        } = self;
        followed.mark_changed();
        let told = stream::unfold(
            (followed, last, place),
            |(mut followed, last, place)| async move {
                // Nobody looks at the run any more: whoever reads comes again.
                followed.changed().await.ok()?;
                let now = followed.borrow_and_update().clone();
                let (events, last) = match now {
                    Ok(seen) => {
                        let newest = seen
                            .journal
                            .entries
                            .last()
                            .map_or(last, |entry| entry.seq.max(last));
                        (events_after(seen, last).left_stream(), newest)
                    }
                    Err(error) => (unread(&error).right_stream(), last),
                };
                Some((events, (followed, last, place)))
            },
        );
        let alive = KeepAlive::new().interval(ALIVE);
        let told = told.flatten().take_until(Box::pin(tokio::time::sleep(LONGEST)));
        Sse::new(told).keep_alive(alive).into_response()
    }
}

impl aide::OperationOutput for EventStream {
    type Inner = String;
}

/// The messages after an event: new events, and that the run changed. Each is made when the one before is
/// sent: with many readers of a long journal, each holds only one.
fn events_after(seen: Arc<ReadRun>, last: Seq) -> impl Stream<Item = Result<Event, Infallible>> {
    let run = Event::default().event("run").data(seen.view.verdict.to_string());
    let first = seen.journal.entries.partition_point(|entry| entry.seq <= last);
    let events = (first..seen.journal.entries.len()).map(move |at| {
        let entry = &seen.journal.entries[at];
        let told = Event::default().id(entry.seq.to_string()).event("entry");
        told.json_data(entry).unwrap_or_default()
    });
    stream::iter(events.chain([run]).map(Ok))
}

/// A message that the run cannot be read now; the stream continues when it can.
fn unread(error: &ReadError) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    // A line of a stream takes no other.
    let why = error.to_string().replace(char::is_control, " ");
    stream::iter([Ok(Event::default().event("unread").data(why))])
}
