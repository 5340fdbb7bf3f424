//! Recovery: clears what runs have left in a cluster, without their journals.
//!
//! The process that does so is the one writer while it lasts: it takes the lock as a run does, raises the
//! fence, and waits for earlier jobs. Then each visit is left as its own run would have left it, in the order
//! of [`leftovers`].

mod arrival;
pub mod leftovers;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use stagger_core::model::RunId;
use stagger_engine::cluster::{BackendError, Call, Executor as _, Lock as _, LockError, LockRecord};
use stagger_engine::liveness::Liveness;

use crate::backend::GanetiBackend;
use crate::guards::{self, GanetiHeldGuard};
use crate::lock;
use crate::rapi::fence;
use crate::recovery::leftovers::{GanetiLeftovers, may_restore};
use crate::target::WATCHER;
use crate::visit::PlannedMoves;
use crate::visit::visitor::Visitor;

/// So many of the requests that are refused are named.
const NAMED: usize = 3;

/// What came of giving back.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// What was given back, in words.
    pub done: Vec<String>,
    /// What was not, and why.
    pub failed: Vec<BackendError>,
    /// What stays, and until when, in words.
    pub kept: Vec<String>,
}

impl GanetiBackend {
    /// What runs have left in the cluster.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn leftovers(&self) -> Result<GanetiLeftovers, BackendError> {
        let (facts, _) = self.observe_cluster().await?;
        let filters = self.rapi().filters().await;
        let filters = filters.map_err(|error| error.of("look at the filters", false))?;
        Ok(GanetiLeftovers::of(&facts, &filters))
    }

    /// Gives back what runs have left: on that node, or in the whole cluster. `claim` names this process, and stands in the lock
    /// while it lasts; a claim of a process that is dead is watched for as long as it lasts before it is taken over.
    ///
    /// # Errors
    /// A run is carried out now, or the cluster cannot be asked. What could not be given back is told in the result.
    pub async fn recover(&self, claim: &LockRecord, only: Option<&str>) -> Result<Recovered, LockError> {
        let filters = self.rapi().filters().await;
        let filters = filters.map_err(|error| LockError::Backend(error.of("look at the filters", false)))?;
        // One that was silent may be asleep: it is refused for ever after.
        let may_wake = lock::all_claims(&filters)
            .iter()
            .any(|claim| claim.lock.pulse() != Liveness::Gone);
        let token = self.lock(claim, 0).await?;
        let recovered = {
            let work = self.recover_all(claim, token, only, may_wake);
            tokio::pin!(work);
            let keeping = self.keep_lock(claim, token);
            tokio::pin!(keeping);
            // What is under way when the lock is lost is dropped: its jobs carry our token, for which a successor waits.
            tokio::select! {
                lost = &mut keeping => return Err(lost),
                recovered = &mut work => recovered,
            }
        };
        let given_back = self.unlock(claim, token).await;
        let recovered = recovered.map_err(LockError::Backend)?;
        given_back?;
        Ok(recovered)
    }

    /// Renews the lock until that fails for so long that another may have it by now: that is what it returns.
    async fn keep_lock(&self, claim: &LockRecord, token: u64) -> LockError {
        let expires = self.lock_expires();
        // As for a run: a sixth before its expiry it counts as lost.
        let lasts = expires.saturating_sub(expires / 6);
        // To take it may have meant to watch another's claim for longer than ours lasts: the first renewal counts.
        let mut since = Instant::now();
        let mut pause = Duration::ZERO;
        let mut failed: Option<BackendError> = None;
        loop {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            let left = lasts.saturating_sub(since.elapsed());
            match tokio::time::timeout(left, self.renew(claim, token)).await {
                Ok(Ok(())) => {
                    since = begun;
                    pause = expires / 3;
                    continue;
                }
                Ok(Err(LockError::Backend(error))) => failed = Some(error),
                Ok(Err(lost @ (LockError::Held(_) | LockError::Lost(_)))) => return lost,
                Err(_) => {}
            }
            if since.elapsed() >= lasts {
                let why = failed.map_or_else(|| "there was no answer".to_owned(), |error| error.to_string());
                return LockError::Lost(format!(
                    "it was not renewed for {} s: {why}",
                    since.elapsed().as_secs()
                ));
            }
            pause = expires / 12;
        }
    }

    /// Gives back all guards at once, of whatever run: jobs of others go on. A run that is at work takes them again with its
    /// next wave. `by` is named nowhere else: a command is carried out once for one name.
    ///
    /// # Errors
    /// The cluster cannot be asked, or a command fails. All others are given back all the same, and named.
    pub async fn drop_guards(&self, by: &RunId) -> Result<Vec<GanetiHeldGuard>, BackendError> {
        let filters = self.rapi().filters().await;
        let filters = filters.map_err(|error| error.of("look for guards", false))?;
        let fence = fence::largest_token(&filters);
        let call = Call {
            run: by.clone(),
            seq: 1,
            announced: fence,
            fence,
            deadline: None,
        };
        let mut held = guards::held(&filters);
        // The drain takes no command, and keeps people waiting: a watcher that nobody reaches must not stand before it.
        held.sort_by_key(|held| held.guard == WATCHER);
        let (mut dropped, mut failed) = (Vec::new(), None);
        for guard in held {
            match guards::release(self.rapi(), self.settings(), &call, &guard).await {
                Ok(()) => dropped.push(guard),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let Some(mut error) = failed else {
            return Ok(dropped);
        };
        if !dropped.is_empty() {
            let names: Vec<&str> = dropped.iter().map(|held| held.guard.as_str()).collect();
            error.why = format!("{}; restored all the same: {}", error.why, names.join(", "));
        }
        Err(error)
    }

    async fn recover_all(
        &self,
        claim: &LockRecord,
        token: u64,
        only: Option<&str>,
        may_wake: bool,
    ) -> Result<Recovered, BackendError> {
        self.raise_fence(token, &[]).await?;
        // Commands of processes before, on this machine.
        self.settings().hosts.raise_fence("this machine", token).await?;
        let raised = Instant::now();
        // What was shown was looked at before the lock was ours.
        let left = self.leftovers().await?;
        let left = match only {
            Some(node) => left.of_node(node),
            None => left,
        };
        self.arrivals(&left.visits, self.arrival_timeout(!may_wake))
            .await?;
        let mut recovered = Recovered::default();
        let call = |seq: usize| Call {
            run: claim.run.clone(),
            seq: seq as u64,
            announced: token,
            fence: token,
            deadline: None,
        };
        for (seq, visit) in (1..).zip(&left.visits) {
            let whose = visit.notes.owner_text();
            match self
                .recover_node(&call(seq), &visit.node, visit.notes.run.as_ref())
                .await
            {
                Ok(said) => recovered.done.push(format!("{} of {whose}: {said}", visit.node)),
                Err(error) => recovered.failed.push(error),
            }
        }
        if only.is_some() {
            return Ok(recovered);
        }
        let call = call(left.visits.len() + 1);
        for held in &left.guards {
            match guards::release(self.rapi(), self.settings(), &call, held).await {
                Ok(()) => recovered
                    .done
                    .push(format!("the guard {} of run {}: cleared", held.guard, held.run)),
                Err(error) => recovered.failed.push(error),
            }
        }
        self.forget_records(&left, may_wake, raised, &mut recovered)
            .await?;
        Ok(recovered)
    }

    async fn recover_node(
        &self,
        call: &Call,
        node: &str,
        run: Option<&RunId>,
    ) -> Result<String, BackendError> {
        let (facts, _) = self.observe_cluster().await?;
        if let Some(this) = facts.nodes.get(node) {
            may_restore(&facts, node, &this.notes.of(run))
                .map_err(|refusal| BackendError::permanent(format!("return {node} to service"), refusal.0))?;
        }
        let planned = PlannedMoves::default();
        let visitor = Visitor {
            rapi: self.rapi(),
            settings: self.settings(),
            call,
            planned: &planned,
            limits: self.limits(),
            host: None,
        };
        visitor.restore_node(node, run).await
    }

    /// Takes away what filters remember, once nobody needs it.
    async fn forget_records(
        &self,
        left: &GanetiLeftovers,
        may_wake: bool,
        raised: Instant,
        recovered: &mut Recovered,
    ) -> Result<(), BackendError> {
        const TRIED: &str = "take away what filters remember";
        let failed = |error: crate::rapi::client::RapiClientError| error.of(TRIED, true);
        let now = Timestamp::now().as_second();
        let (refused, over): (Vec<_>, Vec<_>) = left
            .records
            .refused
            .iter()
            .partition(|request| request.until > now);
        if let Some(last) = refused.iter().map(|request| request.until).max() {
            let reasons: Vec<&str> = refused
                .iter()
                .take(NAMED)
                .map(|request| request.reason.as_str())
                .collect();
            recovered.kept.push(format!(
                "{} requests whose answer was lost are refused for up to {} min more: {}{}",
                refused.len(),
                (last - now).unsigned_abs().div_ceil(60),
                reasons.join(", "),
                if refused.len() > NAMED { ", …" } else { "" }
            ));
        }
        for request in over {
            self.rapi().delete_filter(&request.filter).await.map_err(failed)?;
            recovered
                .done
                .push(format!("the refusal of {}: removed", request.reason));
        }
        if !recovered.failed.is_empty() {
            recovered.kept.push(
                "the fence and the record of the lock, until all of the above is cleaned up".to_owned(),
            );
            return Ok(());
        }
        for handover in &left.records.handovers {
            self.rapi()
                .delete_filter(&handover.filter)
                .await
                .map_err(failed)?;
            recovered.done.push(format!(
                "the handover of run {} to {}: removed",
                handover.run, handover.to
            ));
        }
        if let Some(run) = &left.records.anchor {
            lock::forget_anchor(self.rapi()).await.map_err(failed)?;
            recovered
                .done
                .push(format!("the journal position of run {run}: removed"));
        }
        let Some(token) = left.records.fence else {
            return Ok(());
        };
        if may_wake {
            recovered.kept.push(format!(
                "the fence {token}: a process that held the lock fell silent and may wake up; once it has certainly ended, \
                 recover again"
            ));
            return Ok(());
        }
        // A request of a process that has ended is on its way for so long at most; until then it is refused.
        if !left.is_restored() || !left.records.claims.is_empty() {
            let rest = self.settings().pace.call.saturating_sub(raised.elapsed());
            tokio::time::sleep(rest).await;
        }
        fence::forget(self.rapi()).await?;
        recovered.done.push(format!("the fence {token}: removed"));
        Ok(())
    }
}
