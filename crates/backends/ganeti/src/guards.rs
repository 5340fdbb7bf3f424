//! Guards: the selective drain, and the pause of Ganeti's watcher.
//!
//! A filter beside each guard records what it changed and when it expires, so that any process can clear it
//! after a crash. Ganeti itself expires no filter.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::{GuardName, UnitId};
use stagger_engine::cluster::{BackendError, Call, Retryability};
use stagger_engine::heartbeats::Heartbeats;
use stagger_engine::hosts::last_words;

use crate::commands;
use crate::config::{DrainScope, GanetiSettings};
use crate::drain_scope::names_of;
use crate::rapi::client::{Rapi, RapiClientError};
use crate::rapi::fence;
use crate::rapi::filters::{Filter, FilterAction, JobMatch, ListedFilter, RecordedFilter, id_of, priority};
use crate::rapi::opcode::FIELDS;
use crate::rapi::reason::{EMERGENCY, Range};
use crate::target::{DRAIN, WATCHER};

/// A guard as kept in its filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GanetiHeldGuard {
    /// Which.
    pub guard: String,
    /// Which run took it.
    pub run: String,
    /// With which fencing token.
    pub token: u64,
    /// Grows with each renewal: by this others see that its holder lives.
    #[serde(default)]
    pub beat: u64,
    /// So many seconds after a renewal others may take it away; not there in those of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u32>,
    /// When that is by the clock of who wrote it, in seconds since 1970: to be shown, not to be compared.
    pub until: i64,
    /// The watcher was paused by others already, and is left so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_others: bool,
    /// Only jobs that name certain nodes and instances wait: there is a filter for each field of an opcode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_names: bool,
}

impl GanetiHeldGuard {
    /// How long it lasts.
    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(u64::from(self.expires.unwrap_or(LASTS)))
    }
}

/// How long a guard lasts whose note does not say so.
const LASTS: u32 = 20 * 60;

/// The guards among these filters, each once.
pub fn held(filters: &[ListedFilter]) -> Vec<GanetiHeldGuard> {
    let mut found: Vec<GanetiHeldGuard> = Vec::new();
    for RecordedFilter { record, .. } in all(filters) {
        match found.iter_mut().find(|held| held.guard == record.guard) {
            Some(known) => {
                // Whoever gives it back takes all of its filters away.
                let by_names = known.by_names || record.by_names;
                // Its filters are written one after the other.
                if (known.token, known.beat) < (record.token, record.beat) {
                    *known = record;
                }
                known.by_names = by_names;
            }
            None => found.push(record),
        }
    }
    found
}

fn all(filters: &[ListedFilter]) -> impl Iterator<Item = RecordedFilter<GanetiHeldGuard>> {
    filters
        .iter()
        .filter_map(ListedFilter::record_of::<GanetiHeldGuard>)
}

/// After so many tries of a question a job that was started says that it is at work: 0.7 to 2.5 s were seen.
const STARTS: u32 = 6;

/// The filters of the drain, in the order in which they are written: neither ours nor an emergency must ever wait behind the
/// rest.
fn drain(record: &GanetiHeldGuard, names: Option<&BTreeSet<String>>) -> Vec<Filter<GanetiHeldGuard>> {
    let filter = |name: &str, priority, which, effect| Filter {
        id: id_of_drain(name),
        priority,
        which,
        effect,
        record: record.clone(),
    };
    let mut filters = vec![
        filter(
            "ours",
            priority::OURS,
            JobMatch::Reasons(Range::all_ours()),
            FilterAction::Accept,
        ),
        filter(
            "emergency",
            priority::OURS,
            JobMatch::Reason(EMERGENCY.to_owned()),
            FilterAction::Accept,
        ),
    ];
    match names {
        None => filters.push(filter("rest", priority::REST, JobMatch::All, FilterAction::Pause)),
        Some(names) => filters.extend(FIELDS.map(|field| {
            let which = JobMatch::Named {
                field,
                names: names.clone(),
            };
            filter(field, priority::REST, which, FilterAction::Pause)
        })),
    }
    filters
}

fn id_of_drain(name: &str) -> String {
    id_of(&["guard", DRAIN, name])
}

fn watcher(record: &GanetiHeldGuard) -> Filter<GanetiHeldGuard> {
    Filter {
        id: id_of(&["guard", WATCHER]),
        priority: priority::RECORD,
        which: JobMatch::None,
        effect: FilterAction::Continue,
        record: record.clone(),
    }
}

/// Takes a guard, or renews it.
///
/// # Errors
/// The cluster cannot be asked, or a command fails.
pub async fn take(
    rapi: &Rapi,
    settings: &GanetiSettings,
    call: &Call,
    guard: &GuardName,
    units: &[UnitId],
    expires: u32,
) -> Result<String, BackendError> {
    let tried = format!("take the guard {guard}");
    let failed = |error: RapiClientError| error.of(&tried, true);
    let mut record = GanetiHeldGuard {
        guard: guard.to_string(),
        run: call.run.to_string(),
        token: call.fence,
        beat: 0,
        expires: Some(expires),
        until: Timestamp::now().as_second() + i64::from(expires),
        by_others: false,
        by_names: false,
    };
    match guard.as_str() {
        DRAIN => {
            let names = match settings.cluster.visits.drain_scope {
                DrainScope::Cluster => None,
                DrainScope::Wave => names_of(&rapi.facts().await?, units),
            };
            record.by_names = names.is_some();
            take_drain(rapi, call, record, names.as_ref(), expires).await
        }
        WATCHER => {
            let before = rapi.filters().await.map_err(failed)?;
            let ours = held(&before)
                .into_iter()
                .any(|held| held.guard == WATCHER && !held.by_others);
            record.beat = next_beat(&before, WATCHER);
            record.by_others = !ours && is_paused(rapi, settings, call).await?;
            // Written down before anything is changed.
            rapi.put_filter(&watcher(&record)).await.map_err(failed)?;
            if record.by_others {
                return Ok("it is paused by others already".to_owned());
            }
            let Some(given) = &settings.cluster.visits.watcher else {
                return Err(no_command(&tried));
            };
            let seconds = expires.to_string();
            let names = [("seconds", seconds.as_str())];
            commands::run(rapi, settings, call, "watcher-pause", &given.pause, &names).await?;
            Ok(format!("paused for {expires} s"))
        }
        _ => Err(BackendError::permanent(tried, "this backend has no such guard")),
    }
}

/// The beat of a renewal, or of a guard that nobody has held.
fn next_beat(filters: &[ListedFilter], guard: &str) -> u64 {
    let before = held(filters).into_iter().find(|held| held.guard == guard);
    before.map_or(0, |held| held.beat + 1)
}

/// Jobs of others wait, and those that were at work before end first, so that what is observed then stays so. That may take
/// longer than the guard lasts, and no longer than a job may.
async fn take_drain(
    rapi: &Rapi,
    call: &Call,
    mut record: GanetiHeldGuard,
    names: Option<&BTreeSet<String>>,
    expires: u32,
) -> Result<String, BackendError> {
    let tried = format!("take the guard {DRAIN}");
    let failed = |error: RapiClientError| error.of(&tried, true);
    let renew = Duration::from_secs(u64::from(expires)) / 2;
    let first = Instant::now();
    let mut held_before = None;
    loop {
        let begun = Instant::now();
        record.until = Timestamp::now().as_second() + i64::from(expires);
        let waited = async {
            let filters = rapi.filters().await.map_err(failed)?;
            if fence::newest(&filters) > call.fence {
                let why = "another process has taken the run over";
                return Err(BackendError::permanent(&tried, why));
            }
            let is_held = || {
                held(&filters)
                    .iter()
                    .any(|held| held.guard == DRAIN && held.run == record.run)
            };
            held_before.get_or_insert_with(is_held);
            record.beat = next_beat(&filters, DRAIN);
            let mut last = String::new();
            for filter in drain(&record, names) {
                rapi.put_filter(&filter).await.map_err(failed)?;
                last = filter.id;
            }
            fence::wait_until_listed(rapi, &last).await?;
            rapi.wait_for_others(names).await?;
            // A job that was just started says only a moment later that it is.
            tokio::time::sleep(rapi.pace().again * STARTS).await;
            rapi.wait_for_others(names).await
        };
        let waited = tokio::time::timeout(renew, waited).await;
        let mut error = match waited {
            Ok(Ok(())) if begun.elapsed() < renew / 2 => {
                let whose = match names {
                    None => "jobs of others",
                    Some(_) => "jobs of others that name a node of the wave or an instance of one",
                };
                return Ok(format!("{whose} wait, but for those with the reason {EMERGENCY}"));
            }
            Ok(Err(error)) if error.retryability == Retryability::Permanent => return Err(error),
            // Nobody could be asked, or it took so long that the guard is renewed first.
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => BackendError::transient(&tried, "jobs of others are still running"),
        };
        if first.elapsed() > rapi.pace().job {
            let at_work = rapi.at_work_of_others(names).await.map_err(failed)?;
            let at_work: Vec<String> = at_work
                .iter()
                .map(|job| format!("{} {}", job.id, job.summary))
                .collect();
            if !at_work.is_empty() {
                error.why = format!(
                    "after {} s still running: {}",
                    first.elapsed().as_secs(),
                    at_work.join(", ")
                );
            }
            // Nobody should wait for nothing.
            if held_before == Some(false) {
                forget(rapi, &record).await.map_err(failed)?;
            }
            return Err(error.hint(
                "see `gnt-job info`, and end what is stuck by `gnt-job cancel`; or `job_timeout` is too short for it",
            ));
        }
        tokio::time::sleep(rapi.pace().again).await;
    }
}

/// Gives a guard back; one that another run holds by now is left to it.
///
/// # Errors
/// As [`take`].
pub async fn drop(
    rapi: &Rapi,
    settings: &GanetiSettings,
    call: &Call,
    guard: &GuardName,
) -> Result<String, BackendError> {
    let tried = format!("clear the guard {guard}");
    let filters = rapi.filters().await.map_err(|error| error.of(&tried, true))?;
    let Some(held) = held(&filters)
        .into_iter()
        .find(|held| held.guard == guard.as_str())
    else {
        return Ok("not held".to_owned());
    };
    if held.run != call.run.as_str() {
        return Ok(format!("it is held by run {}", held.run));
    }
    release(rapi, settings, call, &held).await?;
    Ok("cleared".to_owned())
}

/// Gives a guard back, of whatever run. Who asks for it knows that this run does not rely on it any more.
///
/// # Errors
/// As [`take`].
pub async fn release(
    rapi: &Rapi,
    settings: &GanetiSettings,
    call: &Call,
    held: &GanetiHeldGuard,
) -> Result<(), BackendError> {
    if held.guard == WATCHER
        && !held.by_others
        && let Some(given) = &settings.cluster.visits.watcher
    {
        commands::run(rapi, settings, call, "watcher-continue", &given.resume, &[]).await?;
    }
    let tried = format!("clear the guard {}", held.guard);
    forget(rapi, held).await.map_err(|error| error.of(tried, true))
}

/// Takes the filters of a guard away, the rest's first.
async fn forget(rapi: &Rapi, held: &GanetiHeldGuard) -> Result<(), RapiClientError> {
    let mut ids = Vec::new();
    match held.guard.as_str() {
        DRAIN => {
            if held.by_names {
                ids.extend(FIELDS.map(id_of_drain));
            }
            ids.extend(["rest", "emergency", "ours"].map(id_of_drain));
        }
        other => ids.push(id_of(&["guard", other])),
    }
    for id in ids {
        rapi.delete_filter(&id).await?;
    }
    Ok(())
}

/// What came of a look at all guards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardSweep {
    /// Nobody has renewed these for as long as they last: they were taken away.
    pub gone: Vec<GanetiHeldGuard>,
    /// These are held.
    pub held: Vec<GanetiHeldGuard>,
    /// The first of these goes then, if nobody renews it.
    pub next: Option<Duration>,
    /// The longest of these lasts so long.
    pub longest: Option<Duration>,
}

/// Looks at all guards, and takes away those that `beats` has seen unchanged for longer than they last, of whatever run. The
/// watcher's pause ends by itself; only its record is taken away. So are filters that nothing needs any more.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn drop_expired(
    rapi: &Rapi,
    beats: &mut Heartbeats,
    now: Instant,
) -> Result<GuardSweep, BackendError> {
    let tried = "clear guards past their expiry";
    let failed = |error: RapiClientError| error.of(tried, true);
    let filters = rapi.filters().await.map_err(failed)?;
    let (all, refused) = (held(&filters), fence::refusing_filters(&filters));
    let guards = all.iter().map(|held| (held.guard.clone(), format!("{held:?}")));
    let once = refused
        .iter()
        .map(|found| (found.id.clone(), format!("{:?}", found.record)));
    let stood = beats.unchanged_for(now, guards.chain(once));
    let stood = |key: &str| stood.get(key).copied().unwrap_or_default();
    let mut looked = GuardSweep::default();
    for held in all {
        let (lasts, stood) = (held.lifetime(), stood(&held.guard));
        if let Some(left) = lasts.checked_sub(stood) {
            looked.next = Some(looked.next.map_or(left, |next| next.min(left)));
            looked.longest = looked.longest.max(Some(lasts));
            looked.held.push(held);
            continue;
        }
        forget(rapi, &held).await.map_err(failed)?;
        looked.gone.push(held);
    }
    for found in refused
        .iter()
        .filter(|found| stood(&found.id) > fence::REFUSED_FOR)
    {
        rapi.delete_filter(&found.id).await.map_err(failed)?;
    }
    Ok(looked)
}

fn no_command(tried: &str) -> BackendError {
    BackendError::permanent(
        tried,
        "RAPI cannot pause Ganeti's watcher, and there is no command for it",
    )
    .hint("give the commands under [cluster.visits.watcher]")
}

async fn is_paused(rapi: &Rapi, settings: &GanetiSettings, call: &Call) -> Result<bool, BackendError> {
    let Some(given) = &settings.cluster.visits.watcher else {
        return Err(no_command("see whether Ganeti's watcher is paused"));
    };
    let said = commands::run(rapi, settings, call, "watcher-info", &given.info, &[]).await?;
    // `gnt-cluster watcher info` says "The watcher is not paused." or "… is paused until …".
    match (said.contains("not paused"), said.contains("paused")) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        (false, false) => Err(BackendError::permanent(
            "see whether Ganeti's watcher is paused",
            format!("`{}` says neither: {}", given.info, last_words(&said)),
        )),
    }
}
