//! Fencing in the job queue itself.
//!
//! Every job of stagger carries its sender's token in its reason. For each token that is given out, a filter
//! rejects all older ones: a late request of an earlier holder becomes a job that is cancelled before it
//! starts.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_engine::cluster::{BackendError, Call};

use crate::rapi::client::Rapi;
use crate::rapi::filters::{Filter, FilterAction, JobMatch, ListedFilter, RecordedFilter, id_of, priority};
use crate::rapi::reason::{JobReason, Range};

/// How long a request may be on its way before nobody need look out for it any more: far more
/// than RAPI keeps one.
pub const REFUSED_FOR: Duration = Duration::from_hours(1);

/// What a filter of the fence keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fence", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fence {
    /// Older tokens are refused.
    Older {
        /// The token that is the newest.
        token: u64,
    },
    /// One submission, whose answer was lost, is refused.
    One {
        /// Its reason.
        reason: String,
        /// When the filter is not needed any more by the clock of who wrote it, in seconds since 1970.
        until: i64,
    },
}

/// The newest token that the cluster has seen; 0: none.
pub fn newest(filters: &[ListedFilter]) -> u64 {
    all(filters)
        .filter_map(|found| match found.record {
            Fence::Older { token } => Some(token),
            Fence::One { .. } => None,
        })
        .max()
        .unwrap_or(0)
}

/// What a new token has to be larger than: all that the cluster has seen. One that remembers none may have seen some, as `recover`
/// takes the fence away; hosts that ran commands of those days still refuse older ones. So there it is the time, in hundredths of a
/// second since 1970: more than was ever given out, and in the twelve digits of a reason until the year 2286.
pub fn largest_token(filters: &[ListedFilter]) -> u64 {
    match newest(filters) {
        0 => u64::try_from(Timestamp::now().as_millisecond() / 10).unwrap_or(0),
        newest => newest,
    }
}

fn all(filters: &[ListedFilter]) -> impl Iterator<Item = RecordedFilter<Fence>> {
    filters.iter().filter_map(ListedFilter::record_of::<Fence>)
}

/// From now on jobs with an older token are refused. There is a filter for each token, so one that is
/// written late takes nothing back; those of older tokens are then taken away.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn raise(rapi: &Rapi, token: u64) -> Result<(), BackendError> {
    let tried = format!("refuse jobs with a token older than {token}");
    let failed = |error: crate::rapi::client::RapiClientError| error.of(&tried, true);
    let id = id_of(&["fence", &token.to_string()]);
    let filter = Filter {
        id: id.clone(),
        priority: priority::FENCE,
        which: JobMatch::Reasons(Range::older_than(token)),
        effect: FilterAction::Reject,
        record: Fence::Older { token },
    };
    rapi.put_filter(&filter).await.map_err(failed)?;
    let filters = wait_until_listed(rapi, &id).await?;
    for older in all(&filters) {
        if matches!(older.record, Fence::Older { token: other } if other < token) {
            rapi.delete_filter(&older.id).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// Takes one step of [`raise`] back: `token` is the newest again. Only for who raised it to the next one for somebody who never
/// came. Where another has a newer one, that one's filter stays.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn lower(rapi: &Rapi, token: u64) -> Result<(), BackendError> {
    // First what stays, so that older ones are refused at any moment.
    raise(rapi, token).await?;
    let next = id_of(&["fence", &(token + 1).to_string()]);
    rapi.delete_filter(&next)
        .await
        .map_err(|error| error.of(format!("accept jobs with the token {token} again"), true))
}

/// Takes the fence away: the cluster remembers no token any more. Only for who holds the lock and knows that nobody is left
/// whom it would refuse.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn forget(rapi: &Rapi) -> Result<(), BackendError> {
    let failed = |error: crate::rapi::client::RapiClientError| error.of("take the fence away", true);
    for found in all(&rapi.filters().await.map_err(failed)?) {
        if matches!(found.record, Fence::Older { .. }) {
            rapi.delete_filter(&found.id).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// Waits until nothing of an older token is at work.
///
/// # Errors
/// The cluster cannot be asked, or a job takes too long.
pub async fn wait_for_older(rapi: &Rapi, token: u64) -> Result<(), BackendError> {
    let tried = format!("look for jobs with a token older than {token}");
    let jobs = rapi.jobs().await.map_err(|error| error.of(tried, true))?;
    for job in jobs {
        if !job.status.is_final() && job.reason.as_ref().is_some_and(|reason| reason.token < token) {
            rapi.wait(job.id, &job.summary).await?;
        }
    }
    Ok(())
}

/// The job with this very reason is refused, should it still come.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn refuse_one(rapi: &Rapi, call: &Call, reason: &JobReason) -> Result<(), BackendError> {
    let text = reason.to_string();
    let id = id_of(&["fence one", &text]);
    let filter = Filter {
        id: id.clone(),
        priority: priority::FENCE,
        which: JobMatch::Reason(text.clone()),
        effect: FilterAction::Reject,
        record: Fence::One {
            reason: text,
            until: Timestamp::now().as_second() + REFUSED_FOR.as_secs().cast_signed(),
        },
    };
    let tried = format!("refuse a request of {} whose answer was lost", call.key());
    rapi.put_filter(&filter)
        .await
        .map_err(|error| error.of(tried, true))?;
    wait_until_listed(rapi, &id).await.map(|_| ())
}

/// Reads the filters until that one is among them: then the queue knows it too. What was written before it
/// is then seen as well, since the configuration is written as a whole, one version after another.
///
/// # Errors
/// The cluster cannot be asked, or does not show it.
pub async fn wait_until_listed(rapi: &Rapi, id: &str) -> Result<Vec<ListedFilter>, BackendError> {
    const LOOKS: u32 = 40;
    let tried = format!("see the filter {id}");
    for _ in 0..LOOKS {
        let filters = rapi.filters().await.map_err(|error| error.of(&tried, true))?;
        if filters.iter().any(|filter| filter.uuid == id) {
            return Ok(filters);
        }
        tokio::time::sleep(rapi.pace().again.min(Duration::from_millis(500))).await;
    }
    Err(BackendError::transient(
        tried,
        "it was written, and the cluster does not show it",
    ))
}

/// The filters that refuse one submission each. One that was watched for [`REFUSED_FOR`] is not needed any more.
pub fn refusing_filters(filters: &[ListedFilter]) -> Vec<RecordedFilter<Fence>> {
    all(filters)
        .filter(|found| matches!(found.record, Fence::One { .. }))
        .collect()
}
