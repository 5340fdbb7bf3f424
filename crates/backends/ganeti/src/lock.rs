//! The lock in the cluster, kept in job filters that match no job.
//!
//! Each contender writes a filter of its own with its claim, and then reads all filters until its own is
//! among them. A contender that sees another live claim removes its own and gives up. Of two, one is written
//! first, and the other contender sees it: Ganeti writes its configuration as a whole, one version after
//! another, and a version with the second claim has the first one too.
//!
//! Whether a claim is live is decided by the observer's own clock alone: a holder changes its claim at each
//! renewal, and a contender removes a claim only after it has watched it unchanged for longer than its
//! lifetime.
//!
//! Tags of the cluster would work as well, but each change of a tag is a job: it waits in the queue, behind
//! whatever pauses or drains it, and a tag ends after 128 characters.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stagger_core::model::RunId;
use stagger_engine::cluster::{Anchor, BackendError, Holder, LockError, LockRecord};
use stagger_engine::liveness::Liveness;

use crate::rapi::client::{Rapi, RapiClientError};
use crate::rapi::fence;
use crate::rapi::filters::{Filter, FilterAction, JobMatch, ListedFilter, RecordedFilter, id_of, priority};

/// A claim as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockEntry {
    lock: LockRecord,
    token: u64,
    /// Grows with each renewal.
    beat: u64,
    /// How long after a renewal it may be taken over, in milliseconds.
    expires: u64,
}

/// A run that goes on elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoverEntry {
    handed_over: RunId,
    /// On which node.
    to: String,
}

/// Where the journal of a run stood. It stays when the lock is given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchorEntry {
    anchored: Anchor,
}

/// Takes, renews and gives back the lock.
#[derive(Debug)]
pub struct FilterLock {
    expires: Duration,
    beat: AtomicU64,
    /// The node that this machine is, whatever the host calls itself.
    node: OnceLock<String>,
    /// Whether it was taken where the cluster remembered neither a token nor a claim.
    is_the_first: AtomicBool,
}

impl FilterLock {
    /// One that others may take over after so long a silence.
    pub fn new(expires: Duration) -> Self {
        Self {
            expires,
            beat: AtomicU64::new(0),
            node: OnceLock::new(),
            is_the_first: AtomicBool::new(false),
        }
    }

    /// On which node this is, as the cluster knows it: what was handed over to that one goes on here.
    pub fn set_node(&self, node: &str) {
        self.node.get_or_init(|| node.to_owned());
    }

    fn is_local(&self, name: &str, claim: &LockRecord) -> bool {
        same_host(name, &claim.host) || self.node.get().is_some_and(|node| node == name)
    }

    fn check_continues_here(&self, filters: &[ListedFilter], claim: &LockRecord) -> Result<(), LockError> {
        match self.handover_to_other_node(filters, claim) {
            Some(handover) => Err(continues_elsewhere(handover)),
            None => Ok(()),
        }
    }

    /// Where else a run was handed over to.
    fn handover_to_other_node(
        &self,
        filters: &[ListedFilter],
        claim: &LockRecord,
    ) -> Option<RecordedFilter<HandoverEntry>> {
        filters
            .iter()
            .filter_map(ListedFilter::record_of::<HandoverEntry>)
            .find(|found| found.record.handed_over == claim.run && !self.is_local(&found.record.to, claim))
    }

    /// Whether somebody may have acted under it before this process took it. Who acts has raised the fence before, and a recovery
    /// that takes the fence away has waited for whoever was left.
    pub fn may_have_been_held(&self) -> bool {
        !self.is_the_first.load(Ordering::Relaxed)
    }

    /// How long it lasts.
    pub fn expires(&self) -> Duration {
        self.expires
    }

    /// Takes it, and returns a token larger than any.
    ///
    /// # Errors
    /// Another holds it, the run goes on elsewhere, or the cluster cannot be asked.
    pub async fn take(&self, rapi: &Rapi, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let filters = read(rapi).await?;
        self.check_continues_here(&filters, claim)?;
        let remembered = fence::newest(&filters);
        let mut token = at_least.max(remembered);
        let mut watched: BTreeMap<String, (LockEntry, Instant)> = claims(&filters)
            .map(|found| (found.id, (found.record, Instant::now())))
            .collect();
        self.is_the_first
            .store(remembered == 0 && watched.is_empty(), Ordering::Relaxed);
        while !watched.is_empty() {
            let now: BTreeMap<String, LockEntry> = claims(&read(rapi).await?)
                .map(|found| (found.id, found.record))
                .collect();
            watched.retain(|id, _| now.contains_key(id));
            for (id, (seen, since)) in &watched {
                let Some(current) = now.get(id) else { continue };
                token = token.max(current.token);
                if current != seen {
                    return Err(LockError::Held(Box::new(current.lock.clone())));
                }
                // What has provably ended renews nothing any more: there is nothing to watch.
                let gone = current.lock.pulse() == Liveness::Gone;
                if gone || since.elapsed() > Duration::from_millis(current.expires) {
                    remove(rapi, id).await?;
                }
            }
            if watched
                .values()
                .any(|(seen, _)| seen.lock.pulse() != Liveness::Gone)
            {
                tokio::time::sleep(rapi.pace().again).await;
            }
        }
        token = token.max(fence::largest_token(&read(rapi).await?)) + 1;
        self.write(rapi, claim, token).await?;
        let filters = fence::wait_until_listed(rapi, &id_of_claim(claim))
            .await
            .map_err(LockError::Backend)?;
        if let Some(other) = claims(&filters).find(|other| other.record.lock.incarnation != claim.incarnation)
        {
            remove(rapi, &id_of_claim(claim)).await?;
            return Err(LockError::Held(Box::new(other.record.lock)));
        }
        self.check_continues_here(&filters, claim)?;
        // Another may have taken the lock and given it back between our reading of the token and our claim.
        let newest = fence::newest(&filters);
        if newest >= token {
            token = newest + 1;
            self.write(rapi, claim, token).await?;
        }
        fence::raise(rapi, token).await.map_err(LockError::Backend)?;
        Ok(token)
    }

    /// Says that the holder lives. One who was away so long that another took over gives way.
    ///
    /// # Errors
    /// Another holds it, or it was taken away.
    pub async fn renew(&self, rapi: &Rapi, claim: &LockRecord, token: u64) -> Result<(), LockError> {
        let filters = read(rapi).await?;
        if let Some(RecordedFilter {
            record: HandoverEntry { handed_over: run, to },
            ..
        }) = self.handover_to_other_node(&filters, claim)
        {
            remove(rapi, &id_of_claim(claim)).await?;
            return Err(LockError::Lost(format!(
                "run {run} continues on {to}, since this node is about to be rebooted: `stagger resume {run}` there"
            )));
        }
        let other = claims(&filters)
            .find(|other| other.record.lock.incarnation != claim.incarnation && other.record.token > token);
        if let Some(other) = other {
            remove(rapi, &id_of_claim(claim)).await?;
            return Err(LockError::Held(Box::new(other.record.lock)));
        }
        let newest = fence::newest(&filters);
        if newest > token {
            return Err(LockError::Lost(format!(
                "the cluster has seen the fencing token {newest}, ours is {token}"
            )));
        }
        if claims(&filters).all(|found| found.record.lock.incarnation != claim.incarnation) {
            return Err(LockError::Lost(
                "another took the lock, as it was not renewed".to_owned(),
            ));
        }
        self.write(rapi, claim, token).await
    }

    /// Says that the holder lives while it hands its run over: whoever goes on elsewhere waits until it is known that the master
    /// has changed.
    ///
    /// # Errors
    /// It was taken away, or the cluster cannot be asked.
    pub async fn renew_during_handover(
        &self,
        rapi: &Rapi,
        claim: &LockRecord,
        token: u64,
    ) -> Result<(), LockError> {
        let filters = read(rapi).await?;
        if claims(&filters).all(|found| found.record.lock.incarnation != claim.incarnation) {
            return Err(LockError::Lost(
                "another took the lock, as it was not renewed".to_owned(),
            ));
        }
        self.write(rapi, claim, token).await
    }

    /// Gives it back.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn release(&self, rapi: &Rapi, claim: &LockRecord) -> Result<(), LockError> {
        let filters = read(rapi).await?;
        // Where the run went on here, there is nothing that anybody need know any more.
        for found in filters
            .iter()
            .filter_map(ListedFilter::record_of::<HandoverEntry>)
        {
            if found.record.handed_over == claim.run && self.is_local(&found.record.to, claim) {
                remove(rapi, &found.id).await?;
            }
        }
        remove(rapi, &id_of_claim(claim)).await
    }

    async fn write(&self, rapi: &Rapi, claim: &LockRecord, token: u64) -> Result<(), LockError> {
        let filter = Filter {
            id: id_of_claim(claim),
            priority: priority::RECORD,
            which: JobMatch::None,
            effect: FilterAction::Continue,
            record: LockEntry {
                lock: claim.clone(),
                token,
                beat: self.beat.fetch_add(1, Ordering::Relaxed),
                expires: u64::try_from(self.expires.as_millis()).unwrap_or(u64::MAX),
            },
        };
        rapi.put_filter(&filter)
            .await
            .map_err(|error| failed(error, "write the lock"))
    }
}

/// Whose claim stands there now: that with the newest token.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn holder(rapi: &Rapi) -> Result<Option<Holder>, LockError> {
    let filters = read(rapi).await?;
    let newest = claims(&filters).max_by_key(|found| found.record.token);
    Ok(newest.map(|found| Holder {
        claim: found.record.lock,
        expires: Duration::from_millis(found.record.expires),
    }))
}

/// Whether that claim's holder lives: it is watched until it is renewed or gone, or for as long as it lasts.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn is_renewed(rapi: &Rapi, claim: &LockRecord) -> Result<bool, LockError> {
    if claim.pulse() == Liveness::Gone {
        return Ok(false);
    }
    let id = id_of_claim(claim);
    let mut first: Option<(LockEntry, Instant)> = None;
    loop {
        let filters = read(rapi).await?;
        let Some(now) = claims(&filters).find(|found| found.id == id) else {
            return Ok(true);
        };
        let (seen, since) = first.get_or_insert_with(|| (now.record.clone(), Instant::now()));
        if now.record != *seen {
            return Ok(true);
        }
        if since.elapsed() > Duration::from_millis(seen.expires) {
            return Ok(false);
        }
        tokio::time::sleep(rapi.pace().again).await;
    }
}

/// Keeps where a journal stands.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn anchor(rapi: &Rapi, anchor: &Anchor) -> Result<(), LockError> {
    let filter = Filter {
        id: id_of(&["anchor"]),
        priority: priority::RECORD,
        which: JobMatch::None,
        effect: FilterAction::Continue,
        record: AnchorEntry {
            anchored: anchor.clone(),
        },
    };
    rapi.put_filter(&filter)
        .await
        .map_err(|error| failed(error, "anchor the journal"))
}

/// Where the journal of the last holder stood.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn anchored(rapi: &Rapi) -> Result<Option<Anchor>, LockError> {
    Ok(anchor_of(&read(rapi).await?))
}

/// From now on this run goes on on that node only, with a journal that was copied there before; and this
/// process is not the one writer any more.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn hand_over(rapi: &Rapi, run: &RunId, to: &str, token: u64) -> Result<(), BackendError> {
    let tried = format!("hand run {run} over to {to}");
    let id = id_of_handover(run);
    let filter = Filter {
        id: id.clone(),
        priority: priority::RECORD,
        which: JobMatch::None,
        effect: FilterAction::Continue,
        record: HandoverEntry {
            handed_over: run.clone(),
            to: to.to_owned(),
        },
    };
    rapi.put_filter(&filter)
        .await
        .map_err(|error| error.of(&tried, true))?;
    fence::wait_until_listed(rapi, &id).await?;
    fence::raise(rapi, token + 1).await
}

fn id_of_handover(run: &RunId) -> String {
    id_of(&["handed over", run.as_str()])
}

/// The master did not change: the run goes on here, by this process. What [`hand_over`] has written is taken away.
///
/// # Errors
/// The cluster cannot be asked: then the run is stranded, and it is said how it goes on.
pub async fn revoke_handover(rapi: &Rapi, run: &RunId, token: u64) -> Result<(), BackendError> {
    let tried = format!("continue run {run} here, since the master did not change");
    let id = id_of_handover(run);
    let taken = async {
        // The filter goes last: while it is there nobody begins from the journal here.
        fence::lower(rapi, token).await?;
        rapi.delete_filter(&id)
            .await
            .map_err(|error| error.of(&tried, true))
    };
    taken.await.map_err(|error: BackendError| {
        error.outcome_unknown().hint(format!(
            "`gnt-filter delete {id}`, then `stagger resume {run}` here"
        ))
    })
}

/// Whether two names are of one host: Ganeti knows nodes by full names, hosts themselves often by short ones.
pub fn same_host(one: &str, other: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    one == other || (short(one) == short(other) && (!one.contains('.') || !other.contains('.')))
}

fn continues_elsewhere(handover: RecordedFilter<HandoverEntry>) -> LockError {
    let RecordedFilter { id, record } = handover;
    let HandoverEntry { handed_over: run, to } = record;
    let error = BackendError::permanent(
        format!("continue run {run}"),
        format!("it was handed over to {to} when the master changed: the journal here is old"),
    );
    LockError::Backend(error.hint(format!(
        "`stagger resume {run}` on {to}; if that node is lost with its journal, `gnt-filter delete {id}` lets it continue \
         here"
    )))
}

fn id_of_claim(claim: &LockRecord) -> String {
    id_of(&["lock", &claim.incarnation])
}

fn claims(filters: &[ListedFilter]) -> impl Iterator<Item = RecordedFilter<LockEntry>> {
    filters.iter().filter_map(ListedFilter::record_of::<LockEntry>)
}

/// Somebody who says that they hold the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockCandidate {
    /// Who.
    pub lock: LockRecord,
    /// Their token.
    pub token: u64,
}

/// A run that went on on another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The id of the filter that says so.
    pub filter: String,
    /// Which run.
    pub run: RunId,
    /// On which node.
    pub to: String,
}

/// All claims among these filters.
pub fn all_claims(filters: &[ListedFilter]) -> Vec<LockCandidate> {
    let found = claims(filters).map(|found| LockCandidate {
        lock: found.record.lock,
        token: found.record.token,
    });
    found.collect()
}

/// All runs that were handed over, as these filters say.
pub fn handovers(filters: &[ListedFilter]) -> Vec<Handover> {
    let found = filters
        .iter()
        .filter_map(ListedFilter::record_of::<HandoverEntry>);
    found
        .map(|found| Handover {
            filter: found.id,
            run: found.record.handed_over,
            to: found.record.to,
        })
        .collect()
}

/// Where a journal stood, as these filters say.
pub fn anchor_of(filters: &[ListedFilter]) -> Option<Anchor> {
    let found = filters.iter().find_map(ListedFilter::record_of::<AnchorEntry>);
    found.map(|found| found.record.anchored)
}

/// Takes away where a journal stood: whoever does that knows that no journal is compared with it any more.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn forget_anchor(rapi: &Rapi) -> Result<(), RapiClientError> {
    rapi.delete_filter(&id_of(&["anchor"])).await
}

async fn read(rapi: &Rapi) -> Result<Vec<ListedFilter>, LockError> {
    rapi.filters()
        .await
        .map_err(|error| failed(error, "read the lock"))
}

async fn remove(rapi: &Rapi, id: &str) -> Result<(), LockError> {
    rapi.delete_filter(id)
        .await
        .map_err(|error| failed(error, "remove a lock record"))
}

fn failed(error: RapiClientError, tried: &str) -> LockError {
    LockError::Backend(error.of(tried, true))
}
