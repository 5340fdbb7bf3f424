//! A run's backend that claims what the run takes down, and goes around what others have claimed.
//!
//! Both judges are asked by [`Executor::check_stop`] with all claims that there are by then, and the run's claim is written at
//! their version: what is judged at the same time by another is judged again. Nothing takes a unit out of service without a
//! claim that stands.
//!
//! Observations are left as they are: a run whose stage has units that are down at its end needs a person, and claims end
//! by themselves. What is refused for them is set aside by the run, goes in a later wave, and is waited for here for a
//! while once the run comes back to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use stagger_core::model::{ClusterId, ClusterName, Ix, Phase, RunId, Snapshot, UnitId, UnitState};
use stagger_core::run::{Action, Answer};
use stagger_engine::clock::Clock;
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord, in_full,
};

use crate::ask::{AskEnd, AskId, NewAsk};
use crate::claim::{Claim, ClaimHolder, ClaimRecord};
use crate::counted::{counted, queued, sets, still_up};
use crate::judge::own_check;
use crate::ledger::{AskLedger, Board, LedgerError};
use crate::marked::with_down;
use crate::places::HostPlaces;
use crate::queue::{in_order, wait_on};
use crate::scene::Scene;

/// A claim that is not renewed ends after that time; a run renews its own by each observation and while it acts.
pub const CLAIM_LASTS: Duration = Duration::from_mins(5);
/// A claim of which nothing was begun is given back after that time: the words of the judges are old by then.
const UNUSED: Duration = Duration::from_mins(2);
/// So often a set is judged anew when others claim meanwhile.
const OVER: usize = 10;
/// A run that waits has its place among those who ask for so long after it last said so: its longest pause between two
/// tries, and a while.
const WANTED: SignedDuration = SignedDuration::from_mins(12);
/// A unit that was refused before for the claims of others is waited for so long, at most.
const WAIT: Duration = Duration::from_mins(2);
/// Between two looks while it is.
const LOOK: Duration = Duration::from_secs(2);
/// For so long a wave takes something down, as a forecast has it.
const WAVE: u32 = 600;

/// A backend of one run, with its claims.
pub struct ClaimingBackend {
    backend: Arc<dyn Backend>,
    ledger: AskLedger,
    cluster: ClusterId,
    run: RunId,
    patience: SignedDuration,
    clock: Arc<dyn Clock>,
    state: Mutex<ClaimState>,
}

#[derive(Default)]
struct ClaimState {
    seen: Option<Seen>,
    /// Ours, by their fences.
    claims: BTreeMap<u64, OwnClaim>,
    /// Units that are given back and were not seen to serve since.
    left: BTreeSet<UnitId>,
    /// The units that we wait for, each with its place among those who ask.
    wanted: BTreeMap<UnitId, AskId>,
    /// What an earlier process of this run had claimed was read.
    adopted: bool,
}

#[derive(Clone)]
struct Seen {
    snapshot: Snapshot,
    places: Arc<HostPlaces>,
    /// The claims of others when it began to be observed.
    claims: Vec<ClaimRecord>,
}

#[derive(Debug, Clone)]
struct OwnClaim {
    units: BTreeSet<UnitId>,
    /// Those of which something was begun.
    begun: BTreeSet<UnitId>,
    since: Duration,
}

impl ClaimingBackend {
    /// Of a backend, for one run of that cluster.
    pub fn new(
        backend: Arc<dyn Backend>,
        ledger: AskLedger,
        cluster: ClusterId,
        run: RunId,
        patience: SignedDuration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            backend,
            ledger,
            cluster,
            run,
            patience,
            clock,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holder(&self) -> ClaimHolder {
        ClaimHolder::Run(self.run.clone())
    }

    async fn board(&self) -> Result<Board, BackendError> {
        self.ledger.board(&self.cluster).await.map_err(|error| {
            BackendError::transient("read what others have asked to take down", in_full(&error))
        })
    }

    fn of_others(&self, board: &Board) -> Vec<ClaimRecord> {
        let ours = self.holder();
        let others = board.claims.iter().filter(|claim| claim.holder != ours);
        others.cloned().collect()
    }

    /// What an earlier process of this run had claimed is ours.
    fn adopt(&self, board: &Board) {
        let ours = self.holder();
        let now = self.clock.uptime();
        let mut state = self.state();
        if state.adopted {
            return;
        }
        state.adopted = true;
        for claim in board.claims.iter().filter(|claim| claim.holder == ours) {
            // Nothing of that process lands any more. What it had begun is begun again by us, or serves and is given back.
            let own = OwnClaim {
                begun: BTreeSet::new(),
                units: claim.claim.units.clone(),
                since: now,
            };
            state.claims.insert(claim.fence, own);
        }
    }

    /// Renews what is ours, and gives back what serves again or was never begun.
    async fn tend(&self, snapshot: &Snapshot, places: &HostPlaces) -> Result<(), LedgerError> {
        let now = self.clock.uptime();
        let serves = |unit: &UnitId| {
            snapshot
                .find(unit)
                .is_none_or(|at| snapshot.unit(at).state == UnitState::Serving)
        };
        let mut shrunk = Vec::new();
        let fences: Vec<u64> = {
            let mut state = self.state();
            let ClaimState { claims, left, .. } = &mut *state;
            for (fence, own) in &mut *claims {
                let before = own.units.len();
                let unused = now.saturating_sub(own.since) > UNUSED;
                own.units.retain(|unit| {
                    let back = left.contains(unit) && serves(unit);
                    let idle = unused && !own.begun.contains(unit) && serves(unit);
                    !back && !idle
                });
                if own.units.len() != before {
                    let units: Vec<UnitId> = own.units.iter().cloned().collect();
                    shrunk.push((*fence, places.claim_of_units(&units, snapshot)));
                }
            }
            left.retain(|unit| !serves(unit));
            claims.retain(|_, own| !own.units.is_empty());
            claims.keys().copied().collect()
        };
        for (fence, to) in shrunk {
            self.ledger.shrink(&self.cluster, fence, &to).await?;
        }
        for fence in fences {
            if !self.ledger.renew(&self.cluster, fence, CLAIM_LASTS).await? {
                // It is claimed again before anything more is taken out of service.
                self.state().claims.remove(&fence);
            }
        }
        Ok(())
    }

    /// Whether every unit is claimed by us, by claims that stand.
    fn are_ours(&self, units: &[UnitId]) -> bool {
        let state = self.state();
        let is_ours = |unit: &UnitId| state.claims.values().any(|own| own.units.contains(unit));
        units.iter().all(is_ours)
    }

    /// Both judges, and our claim where both agree. A unit by itself that was refused before for what others claim is waited
    /// for: their claims end.
    async fn claim(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let waits = match units {
            [only] => self.state().wanted.contains_key(only),
            _ => false,
        };
        let begun = self.clock.uptime();
        loop {
            let judged = self.claim_now(units).await?;
            let Judged::NotYet(why) = judged else {
                return Ok(judged.into());
            };
            if !waits || self.clock.uptime().saturating_sub(begun) >= WAIT {
                return Ok(Answer::No { why });
            }
            self.clock.pause(LOOK).await;
            self.look().await?;
        }
    }

    async fn claim_now(&self, units: &[UnitId]) -> Result<Judged, BackendError> {
        let Some(seen) = self.state().seen.clone() else {
            return Ok(Judged::Answer(Answer::Unknown {
                why: "the cluster was not observed yet".to_owned(),
            }));
        };
        let Seen { snapshot, places, .. } = &seen;
        let set: Vec<Ix> = units.iter().filter_map(|unit| snapshot.find(unit)).collect();
        let claim = places.claim_of_units(units, snapshot);
        for _ in 0..OVER {
            let board = self.board().await?;
            let others = counted(&seen.claims, &self.of_others(&board));
            let down: Vec<Ix> = sets(&others, places, snapshot)
                .into_iter()
                .flat_map(|(_, set)| set)
                .collect();
            let are_ours = self.are_ours(units);
            // Where nobody else claims anything the driver has checked it already, by the same facts.
            let mut refused = None;
            if !others.is_empty()
                && let Err(why) = own_check_of_run(snapshot, &down, &set)
            {
                refused = Some(format!("{why} ({})", holders(&others)));
            } else if !are_ours {
                refused = self.keeps_out(&board, &seen, &others, &set);
            }
            if let Some(why) = refused {
                // Without the claims of others it is the run's own business.
                if let Err(why) = own_check_of_run(snapshot, &[], &set) {
                    return Ok(Judged::Answer(Answer::No { why }));
                }
                self.want(units, &claim, &board).await;
                return Ok(Judged::NotYet(why));
            }
            let beside = still_up(&others, places, snapshot).into_iter();
            let mut asked: Vec<UnitId> = units.to_vec();
            asked.extend(beside.filter(|unit| !units.contains(unit)));
            let answer = self.backend.check_stop(&asked).await?;
            if are_ours || !answer.agrees() {
                return Ok(Judged::Answer(answer));
            }
            let written = self
                .ledger
                .claim(&self.cluster, board.version, &self.holder(), &claim, CLAIM_LASTS)
                .await;
            let written = written.map_err(|error| {
                BackendError::transient("claim what this run takes down", in_full(&error))
            })?;
            if let Some(fence) = written {
                self.claimed(fence, units).await;
                return Ok(Judged::Answer(answer));
            }
        }
        Ok(Judged::Answer(Answer::Unknown {
            why: "others claimed again and again while this was judged".to_owned(),
        }))
    }

    /// These are ours, and nobody waits for them any more.
    async fn claimed(&self, fence: u64, units: &[UnitId]) {
        let own = OwnClaim {
            units: units.iter().cloned().collect(),
            begun: BTreeSet::new(),
            since: self.clock.uptime(),
        };
        let wanted: Vec<AskId> = {
            let mut state = self.state();
            state.claims.insert(fence, own);
            for unit in units {
                state.left.remove(unit);
            }
            units
                .iter()
                .filter_map(|unit| state.wanted.remove(unit))
                .collect()
        };
        for id in wanted {
            // One that stays lapses by itself.
            self.ledger.end(&id, AskEnd::Done, "").await.ok();
        }
    }

    async fn look(&self) -> Result<Snapshot, BackendError> {
        // The claims first: what ends while the cluster is observed counts until it is observed again.
        let board = self.board().await?;
        self.adopt(&board);
        let claims = self.of_others(&board);
        let snapshot = self.backend.observe().await?;
        let places = Arc::new(HostPlaces::of(&snapshot, &*self.backend));
        self.tend(&snapshot, &places)
            .await
            .map_err(|error| BackendError::transient("renew what this run claims", in_full(&error)))?;
        self.state().seen = Some(Seen {
            snapshot: snapshot.clone(),
            places,
            claims,
        });
        Ok(snapshot)
    }

    /// Why a set would keep out one who has waited long enough, and before us.
    fn keeps_out(&self, board: &Board, seen: &Seen, others: &[ClaimRecord], set: &[Ix]) -> Option<String> {
        let Seen { snapshot, places, .. } = seen;
        let mut scene = Scene::new(snapshot, &sets(others, places, snapshot));
        let waiting: Vec<_> = board.waiting().collect();
        let hosts = BTreeMap::new();
        let mut queue = Vec::new();
        let mut ours = None;
        for (ask, answer) in waiting {
            // Names that only the gate can tell are its business.
            let Ok(claim) = places.claim_of(&ask.wanted, snapshot, &hosts) else {
                continue;
            };
            let units = places.units_of(&claim, snapshot);
            // Of our own places that of the same set is ours; the others are no matter.
            if ask.wanted.run.as_ref() == Some(&self.run) {
                if units != set {
                    continue;
                }
                ours = Some(queue.len());
            }
            queue.push(queued(ask, answer, units));
        }
        let before_us = in_order(&queue);
        let before_us = before_us.iter().take_while(|at| Some(**at) != ours);
        for at in before_us {
            let mut one = queue[*at].clone();
            if one.kept_free_since.is_some() && scene.fits(&one.set).is_err() {
                wait_on(&mut scene, &mut one, board.now, self.patience, board.fence);
            }
        }
        // For all else the judges have their own words.
        match scene.fits(set) {
            Err(blocked @ (crate::scene::Blocked::KeptFree(_) | crate::scene::Blocked::KeptUnit(_))) => {
                Some(scene.words(&blocked))
            }
            Ok(()) | Err(_) => None,
        }
    }

    /// Takes the place of a unit among those who ask: whoever comes later does not keep it out for ever. Without it we would wait
    /// all the same.
    async fn want(&self, units: &[UnitId], claim: &Claim, board: &Board) {
        // Of several the run asks about each by itself next.
        let [unit] = units else { return };
        let wanted = NewAsk {
            cluster: self.cluster.clone(),
            asker: self.holder().to_string(),
            key: None,
            hosts: BTreeSet::new(),
            units: claim.units.clone(),
            hold: WAVE,
            until: board.now.checked_add(WANTED).ok(),
            lapses: true,
            why: "the next wave of a run".to_owned(),
            run: Some(self.run.clone()),
        };
        let known = board
            .waiting()
            .find(|(ask, _)| ask.wanted.run.as_ref() == Some(&self.run) && ask.wanted.units == wanted.units);
        let told = match known {
            Some((ask, _)) => self
                .ledger
                .ask_anew(&ask.id, &wanted)
                .await
                .map(|()| ask.id.clone()),
            None => self.ledger.place(&wanted).await.map(|ask| ask.id),
        };
        match told {
            Ok(id) => {
                self.state().wanted.insert(unit.clone(), id);
            }
            Err(error) => tracing::warn!(%error, "could not take a place among those who ask"),
        }
    }

    /// Makes sure that a unit is ours before it is taken out of service, and says that something is begun.
    async fn begin(&self, unit: &UnitId) -> Result<(), BackendError> {
        let tried = format!("claim {unit}");
        // What was open when a process ended is done again before anything is observed.
        if self.state().seen.is_none() {
            self.look().await?;
        }
        let fence = {
            let state = self.state();
            let found = state.claims.iter().find(|(_, own)| own.units.contains(unit));
            found.map(|(fence, _)| *fence)
        };
        let renewed = match fence {
            None => false,
            Some(fence) => self
                .ledger
                .renew(&self.cluster, fence, CLAIM_LASTS)
                .await
                .map_err(|error| BackendError::transient(&tried, in_full(&error)))?,
        };
        if !renewed {
            if let Some(fence) = fence {
                self.state().claims.remove(&fence);
            }
            match self.claim(std::slice::from_ref(unit)).await? {
                Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => {}
                Answer::No { why } | Answer::Unknown { why } => {
                    return Err(BackendError::expired(tried, why));
                }
            }
        }
        for own in self.state().claims.values_mut() {
            if own.units.contains(unit) {
                own.begun.insert(unit.clone());
            }
        }
        Ok(())
    }

    /// Renews all that is ours, again and again.
    async fn keep_renewed(&self) {
        loop {
            self.clock.pause(CLAIM_LASTS / 5).await;
            let fences: Vec<u64> = self.state().claims.keys().copied().collect();
            for fence in fences {
                if let Err(error) = self.ledger.renew(&self.cluster, fence, CLAIM_LASTS).await {
                    tracing::warn!(%error, "could not renew what this run claims");
                }
            }
        }
    }

    /// Gives back all of which nothing was begun or that is given back. The rest ends by itself; what is down is seen.
    async fn give_back(&self) {
        let (kept, wanted): (Vec<(u64, OwnClaim)>, BTreeMap<UnitId, AskId>) = {
            let mut state = self.state();
            let left = std::mem::take(&mut state.left);
            let mut claims = std::mem::take(&mut state.claims);
            for own in claims.values_mut() {
                let begun = own.begun.clone();
                own.units
                    .retain(|unit| begun.contains(unit) && !left.contains(unit));
            }
            (claims.into_iter().collect(), std::mem::take(&mut state.wanted))
        };
        for (fence, own) in kept {
            let to = Claim {
                units: own.units,
                ..Claim::default()
            };
            // What is left of it keeps its hosts until it expires.
            if to.is_empty()
                && let Err(error) = self.ledger.shrink(&self.cluster, fence, &to).await
            {
                tracing::warn!(%error, "could not give back what this run claimed; it expires");
            }
        }
        for wanted in wanted.into_values() {
            self.ledger.end(&wanted, AskEnd::Withdrawn, "").await.ok();
        }
    }
}

/// What came of judging a set.
enum Judged {
    Answer(Answer),
    /// The claims of others speak against it, and those end.
    NotYet(String),
}

impl From<Judged> for Answer {
    fn from(judged: Judged) -> Self {
        match judged {
            Judged::Answer(answer) => answer,
            Judged::NotYet(why) => Self::No { why },
        }
    }
}

/// Whose claims these are, until when; the first three.
fn holders(claims: &[ClaimRecord]) -> String {
    let told = claims
        .iter()
        .take(3)
        .map(|claim| format!("{} until {:.0}", claim.holder, claim.expires));
    told.collect::<Vec<_>>().join(", ")
}

/// Our own check: guests are the run's own business, since it moves them.
fn own_check_of_run(snapshot: &Snapshot, down: &[Ix], set: &[Ix]) -> Result<(), String> {
    if let Some(at) = set.iter().find(|at| down.contains(at)) {
        return Err(format!(
            "{} is taken down by another already",
            snapshot.unit(*at).id
        ));
    }
    if snapshot.capacity().is_none() {
        return own_check(snapshot, down, set);
    }
    let marked = with_down(snapshot.clone(), down).map_err(|error| error.to_string())?;
    stagger_core::check::may_stop(&marked, set)
}

/// Whether an action may take its unit out of service.
fn takes_down(action: &Action) -> Option<&UnitId> {
    match action {
        Action::Visit {
            unit,
            phase: Phase::Enter | Phase::Change,
            ..
        }
        | Action::Restart { unit }
        | Action::GoBack { unit, .. } => Some(unit),
        Action::Visit {
            phase: Phase::Prepare | Phase::Leave,
            ..
        }
        | Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Step { .. }
        | Action::Collect { .. } => None,
    }
}

/// The unit that serves again once that is done, if nothing more follows: one that is kept out of service until it is left
/// is observed as down until then.
fn gives_back(action: &Action) -> Option<&UnitId> {
    match action {
        Action::Visit {
            unit,
            phase: Phase::Change | Phase::Leave,
            ..
        }
        | Action::Restart { unit }
        | Action::GoBack { unit, .. } => Some(unit),
        Action::Visit {
            phase: Phase::Prepare | Phase::Enter,
            ..
        }
        | Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Step { .. }
        | Action::Collect { .. } => None,
    }
}

#[async_trait]
impl Executor for ClaimingBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        self.look().await
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.claim(units).await
    }

    fn permit(&self, interruptions: BTreeSet<String>) {
        self.backend.permit(interruptions);
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        self.backend.host_of(unit)
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.backend.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        if let Some(unit) = takes_down(action) {
            self.begin(unit).await?;
            self.state().left.remove(unit);
        }
        let done = tokio::select! {
            done = self.backend.perform(call, action) => done,
            () = self.keep_renewed() => Err(BackendError::transient("renew claims", "it ended").outcome_unknown()),
        };
        if let Some(unit) = gives_back(action)
            && done.is_ok()
        {
            self.state().left.insert(unit.clone());
        }
        done
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.backend.raise_fence(fence, units).await
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.backend.diagnostics(call, units).await
    }

    fn poll(&self) -> Duration {
        self.backend.poll()
    }
}

#[async_trait]
impl Lock for ClaimingBackend {
    fn cluster(&self) -> &ClusterName {
        self.backend.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.backend.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.backend.lock(claim, at_least).await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.backend.renew(claim, fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.backend.holder().await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.backend.anchor(anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        self.backend.anchored().await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.give_back().await;
        self.backend.unlock(claim, fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.backend.lock_expires()
    }

    fn may_have_been_held(&self) -> bool {
        self.backend.may_have_been_held()
    }
}
