//! The process that answers: one for each cluster, by a lease in the store.
//!
//! It looks at the cluster only while somebody asks or was granted something. It keeps nothing that is not in the store:
//! where it is killed, the next one goes on by what stands there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{ClusterId, ClusterName, Ix, Snapshot, UnitState};
use stagger_engine::clock::Clock;
use stagger_engine::cluster::{Backend, in_full};

use crate::ask::{Ask, AskAnswer, AskEnd, AskGrant, AskId, AskState};
use crate::claim::{Claim, ClaimHolder, ClaimRecord};
use crate::counted::{counted, queued, sets, still_up, with_holder};
use crate::judge::{JudgedSet, judge, own_check};
use crate::ledger::{AskLedger, Board, GateLease, LedgerError};
use crate::places::HostPlaces;
use crate::queue::{Queued, RunningClaim, forecast, in_order, look_at, wait_on};
use crate::scene::Scene;

/// How a gate answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatePolicy {
    /// After that time nobody later is granted what would keep one out.
    pub patience: SignedDuration,
    /// The hosts behind other names, as the machine ids that `FleetLock` clients send.
    pub hosts: BTreeMap<String, String>,
    /// Facts are judged by for so long.
    pub facts_age: Duration,
    /// A gate that says nothing for so long is succeeded.
    pub lease: Duration,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            patience: SignedDuration::from_mins(15),
            hosts: BTreeMap::new(),
            facts_age: Duration::from_secs(5),
            lease: Duration::from_secs(30),
        }
    }
}

/// Why a gate cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The store.
    #[error("the store of asks cannot be used")]
    Ledger(#[from] LedgerError),
    /// Another answers by now.
    #[error("another process answers for this cluster by now")]
    Lost,
}

/// What a gate did in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateStep {
    /// So many wait.
    pub waiting: usize,
    /// So many grants are out.
    pub granted: usize,
    /// So many were granted in this step.
    pub granted_now: usize,
}

/// What was seen of the cluster.
struct GateFacts {
    snapshot: Snapshot,
    places: HostPlaces,
    /// The claims when it began to be observed: they count until it is observed again, also where they ended since.
    claims: Vec<ClaimRecord>,
    at: Duration,
}

/// What came of answering.
#[derive(Debug, Clone, Copy, Default)]
struct Answered {
    granted: usize,
    /// So many wait still; `None`: something moved meanwhile, and all is judged anew.
    waiting: Option<usize>,
}

/// One who asked, and what that takes down.
struct AskInLine<'a> {
    ask: &'a Ask,
    answer: &'a AskAnswer,
    claim: Claim,
}

/// All who asked, and why those wait that do.
struct Line<'a> {
    asks: Vec<AskInLine<'a>>,
    queue: Vec<Queued>,
    /// The places of both, in the order in which they go.
    order: Vec<usize>,
    whys: BTreeMap<usize, WhyNot>,
}

/// Why one waits.
#[derive(Debug, Clone)]
enum WhyNot {
    /// For others.
    Room(String),
    /// A judge says no.
    Judge(String),
}

impl WhyNot {
    fn words(&self) -> &str {
        match self {
            Self::Room(words) | Self::Judge(words) => words,
        }
    }
}

/// Answers for one cluster.
pub struct AskGate {
    backend: Arc<dyn Backend>,
    ledger: AskLedger,
    lease: GateLease,
    clock: Arc<dyn Clock>,
    policy: GatePolicy,
    facts: Option<GateFacts>,
    kept: Duration,
    told: Duration,
}

/// How often forecasts are made anew.
const FORECASTS: Duration = Duration::from_secs(2);
/// Where a claim has ended the cluster is looked at again after so long.
const ENDED: Duration = Duration::from_millis(500);
/// Nobody is judged by older facts.
const OLD: Duration = Duration::from_secs(20);
/// A step begins over so often when others claim meanwhile.
const OVER: usize = 20;

impl AskGate {
    /// Takes the right to answer for a cluster, if nobody has it. `None`: somebody has.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn take(
        backend: Arc<dyn Backend>,
        ledger: AskLedger,
        cluster: &ClusterId,
        name: &ClusterName,
        who: &str,
        clock: Arc<dyn Clock>,
        policy: GatePolicy,
    ) -> Result<Option<Self>, LedgerError> {
        ledger.register(cluster, name).await?;
        let before = clock.uptime();
        let lease = ledger.take_gate(cluster, who, policy.lease).await?;
        Ok(lease.map(|lease| Self {
            backend,
            ledger,
            lease,
            kept: before,
            told: Duration::ZERO,
            clock,
            policy,
            facts: None,
        }))
    }

    /// Gives the right back, so that the next one need not wait.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn leave(self) -> Result<(), LedgerError> {
        self.ledger.leave_gate(&self.lease).await
    }

    async fn keep_lease(&mut self) -> Result<(), GateError> {
        let now = self.clock.uptime();
        if now.saturating_sub(self.kept) < self.policy.lease / 3 {
            return Ok(());
        }
        if !self.ledger.keep_gate(&self.lease, self.policy.lease).await? {
            return Err(GateError::Lost);
        }
        self.kept = now;
        Ok(())
    }

    /// Ends what is over, answers who asks.
    ///
    /// # Errors
    /// The store does not answer, or another answers by now.
    pub async fn step(&mut self) -> Result<GateStep, GateError> {
        let mut granted_now = 0;
        for _ in 0..OVER {
            self.keep_lease().await?;
            let board = self.ledger.board(&self.lease.cluster).await?;
            let board = self.end_overdue(board).await?;
            if board.asks.is_empty() {
                self.facts = None;
                return Ok(GateStep::default());
            }
            if let Err(why) = self.look(&board).await {
                self.answer_all(&board, &why).await?;
                return Ok(step_of(&board, granted_now));
            }
            let Some(facts) = self.facts.take() else { continue };
            let answered = self.answer(&facts, &board).await;
            self.facts = Some(facts);
            let Answered { granted, waiting } = answered?;
            granted_now += granted;
            let Some(waiting) = waiting else { continue };
            return Ok(GateStep {
                waiting,
                granted: board.granted().count() + granted,
                granted_now,
            });
        }
        Ok(GateStep {
            granted_now,
            ..GateStep::default()
        })
    }

    /// Ends grants whose time is over, and asks that cannot wait any longer.
    async fn end_overdue(&self, mut board: Board) -> Result<Board, GateError> {
        let now = board.now;
        let mut open = Vec::with_capacity(board.asks.len());
        for ask in std::mem::take(&mut board.asks) {
            match &ask.state {
                AskState::Granted(grant) if grant.expires <= now => {
                    let why = "the time of the grant was over, and nobody said that it is done";
                    self.ledger.end(&ask.id, AskEnd::Expired, why).await?;
                }
                AskState::Waiting(answer) if ask.wanted.until.is_some_and(|until| until <= now) => {
                    self.ledger.end(&ask.id, AskEnd::TooLate, &answer.why).await?;
                }
                AskState::Waiting(_) | AskState::Granted(_) | AskState::Ended { .. } => open.push(ask),
            }
        }
        board.asks = open;
        Ok(board)
    }

    /// Observes, unless that was done just now.
    async fn look(&mut self, board: &Board) -> Result<(), String> {
        let now = self.clock.uptime();
        let stands = |claim: &ClaimRecord| board.claims.iter().any(|other| other.fence == claim.fence);
        let fresh = |facts: &GateFacts| {
            if now.saturating_sub(facts.at) > OLD {
                return false;
            }
            let age = now.saturating_sub(facts.at);
            // What has ended counts until it is looked at again, so that is soon.
            age < self.policy.facts_age && (age < ENDED || facts.claims.iter().all(stands))
        };
        if self.facts.as_ref().is_some_and(fresh) {
            return Ok(());
        }
        self.facts = None;
        let snapshot = self.backend.observe().await.map_err(|error| in_full(&error))?;
        self.facts = Some(GateFacts {
            places: HostPlaces::of(&snapshot, &*self.backend),
            snapshot,
            claims: board.claims.clone(),
            at: now,
        });
        Ok(())
    }

    async fn answer_all(&self, board: &Board, why: &str) -> Result<(), GateError> {
        let why = format!("the cluster cannot be observed: {why}");
        let answers: Vec<(AskId, AskAnswer)> = board
            .waiting()
            .filter(|(_, answer)| answer.why != why)
            .map(|(ask, answer)| {
                let answer = AskAnswer {
                    why: why.clone(),
                    earliest: None,
                    ..answer.clone()
                };
                (ask.id.clone(), answer)
            })
            .collect();
        Ok(self.ledger.answer(&answers).await?)
    }

    /// Ends grants of what is back, and answers all who wait.
    async fn answer(&mut self, facts: &GateFacts, board: &Board) -> Result<Answered, GateError> {
        let GateFacts { snapshot, places, .. } = facts;
        let mut claims = counted(&facts.claims, &board.claims);
        if self.settle_grants(facts, board, &claims).await? {
            return Ok(Answered::default());
        }
        let mut scene = Scene::new(snapshot, &sets(&claims, places, snapshot));
        let mut queue = Vec::new();
        let mut asks: Vec<AskInLine<'_>> = Vec::new();
        for (ask, answer) in board.waiting() {
            match places.claim_of(&ask.wanted, snapshot, &self.policy.hosts) {
                Ok(claim) => {
                    queue.push(queued(ask, answer, places.units_of(&claim, snapshot)));
                    asks.push(AskInLine { ask, answer, claim });
                }
                Err(unknown) => {
                    let end = AskEnd::Refused;
                    self.ledger.end(&ask.id, end, &unknown.to_string()).await?;
                }
            }
        }
        let order = in_order(&queue);
        let (mut version, mut fence, mut granted) = (board.version, board.fence, 0);
        let mut whys: BTreeMap<usize, WhyNot> = BTreeMap::new();
        for at in order.iter().copied() {
            // Of very many who ask, a pass takes longer than the lease lasts, and than facts may be judged by.
            self.keep_lease().await?;
            if self.clock.uptime().saturating_sub(facts.at) > OLD {
                return Ok(Answered {
                    granted,
                    waiting: None,
                });
            }
            let AskInLine { ask, claim, .. } = &asks[at];
            let patience = self.policy.patience;
            if let Err(blocked) = look_at(&mut scene, &mut queue[at], board.now, patience, fence) {
                let words = with_holder(&scene.words(&blocked), &blocked, &claims, places, snapshot);
                whys.insert(at, WhyNot::Room(words));
                continue;
            }
            if ask.wanted.run.is_some() {
                wait_on(&mut scene, &mut queue[at], board.now, patience, fence);
                whys.insert(at, WhyNot::Room("the run takes it at its next look".to_owned()));
                continue;
            }
            let claimed: Vec<Ix> = sets(&claims, places, snapshot)
                .into_iter()
                .flat_map(|(_, set)| set)
                .collect();
            let beside = still_up(&claims, places, snapshot);
            match judge(&*self.backend, snapshot, &claimed, &beside, &queue[at].set).await {
                JudgedSet::No(why) => {
                    wait_on(&mut scene, &mut queue[at], board.now, patience, fence);
                    whys.insert(at, WhyNot::Judge(why));
                }
                JudgedSet::Yes => {
                    let hold = Duration::from_secs(u64::from(ask.wanted.hold));
                    let given = self
                        .ledger
                        .grant(&self.lease, version, &ask.id, claim, hold)
                        .await?;
                    // Another has claimed, or the ask is over: all is judged anew.
                    let Some(given) = given else {
                        return Ok(Answered {
                            granted,
                            waiting: None,
                        });
                    };
                    (version, fence, granted) = (version + 1, given, granted + 1);
                    scene.claim(given, &queue[at].set);
                    claims.push(ClaimRecord {
                        fence: given,
                        holder: ClaimHolder::Grant(ask.id.clone()),
                        claim: claim.clone(),
                        expires: board.now.saturating_add(queue[at].hold).unwrap_or(Timestamp::MAX),
                    });
                }
            }
        }
        let line = Line {
            asks,
            queue,
            order,
            whys,
        };
        self.tell(facts, board, &scene, &claims, &line, fence).await?;
        Ok(Answered {
            granted,
            waiting: Some(line.whys.len()),
        })
    }

    /// Writes down why not now, and when, where that is another than it was.
    async fn tell(
        &mut self,
        facts: &GateFacts,
        board: &Board,
        scene: &Scene<'_>,
        claims: &[ClaimRecord],
        line: &Line<'_>,
        fence: u64,
    ) -> Result<(), GateError> {
        let Line {
            asks,
            queue,
            order,
            whys,
        } = line;
        let now = self.clock.uptime();
        let is_new = whys.keys().any(|at| asks[*at].answer.why.is_empty());
        if !is_new && now.saturating_sub(self.told) < FORECASTS {
            return Ok(());
        }
        self.told = now;
        let running: Vec<RunningClaim> = claims
            .iter()
            .map(|claim| RunningClaim {
                fence: claim.fence,
                set: facts.places.units_of(&claim.claim, &facts.snapshot),
                ends: claim.expires,
            })
            .collect();
        let waiting: Vec<usize> = order.iter().copied().filter(|at| whys.contains_key(at)).collect();
        let of_waiting: Vec<Queued> = waiting.iter().map(|at| queue[*at].clone()).collect();
        let patience = self.policy.patience;
        let starts = forecast(scene, &running, &of_waiting, board.now, patience, fence);
        let mut answers = Vec::new();
        for (ahead, (at, earliest)) in waiting.iter().zip(starts).enumerate() {
            let answer = AskAnswer {
                why: whys[at].words().to_owned(),
                // Until when a judge is of another opinion, nobody can tell.
                earliest: match whys[at] {
                    WhyNot::Room(_) => earliest.map(|at| at.max(board.now)),
                    WhyNot::Judge(_) => None,
                },
                ahead: ahead as u32,
                kept_free_since: queue[*at].kept_free_since,
                unfit_since: queue[*at].unfit_since,
            };
            let AskInLine {
                ask, answer: before, ..
            } = &asks[*at];
            if differs(before, &answer) {
                answers.push((ask.id.clone(), answer));
            }
        }
        Ok(self.ledger.answer(&answers).await?)
    }

    /// Ends grants whose units were seen down and are back and clean. Whether any ended.
    async fn settle_grants(
        &self,
        facts: &GateFacts,
        board: &Board,
        claims: &[ClaimRecord],
    ) -> Result<bool, GateError> {
        let GateFacts { snapshot, places, .. } = facts;
        let mut ended = false;
        for (ask, grant) in board.granted() {
            // Only what was observed after the grant says something of it.
            let Some(claim) = facts.claims.iter().find(|claim| claim.fence == grant.fence) else {
                continue;
            };
            let set = places.units_of(&claim.claim, snapshot);
            let serves = |at: &Ix| snapshot.unit(*at).state == UnitState::Serving;
            if !set.iter().all(serves) {
                if !grant.seen_down {
                    self.ledger.saw_down(&ask.id).await?;
                }
                continue;
            }
            if !grant.seen_down {
                continue;
            }
            let others: Vec<ClaimRecord> = claims
                .iter()
                .filter(|other| other.fence != grant.fence)
                .cloned()
                .collect();
            let others: Vec<Ix> = sets(&others, places, snapshot)
                .into_iter()
                .flat_map(|(_, set)| set)
                .filter(|at| !set.contains(at))
                .collect();
            // Clean is what could be taken down once more.
            if own_check(snapshot, &others, &set).is_ok() {
                self.ledger
                    .end(
                        &ask.id,
                        AskEnd::Returned,
                        "it was seen down, and is back and clean",
                    )
                    .await?;
                ended = true;
            }
        }
        Ok(ended)
    }
}

impl Board {
    /// Asks that wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&Ask, &AskAnswer)> {
        self.asks.iter().filter_map(|ask| match &ask.state {
            AskState::Waiting(answer) => Some((ask, answer)),
            AskState::Granted(_) | AskState::Ended { .. } => None,
        })
    }

    /// Grants that are out.
    pub fn granted(&self) -> impl Iterator<Item = (&Ask, &AskGrant)> {
        self.asks.iter().filter_map(|ask| match &ask.state {
            AskState::Granted(grant) => Some((ask, grant)),
            AskState::Waiting(_) | AskState::Ended { .. } => None,
        })
    }
}

fn step_of(board: &Board, granted_now: usize) -> GateStep {
    GateStep {
        waiting: board.waiting().count(),
        granted: board.granted().count(),
        granted_now,
    }
}

/// Whether an answer says something else to a person: forecasts move by seconds all the time.
fn differs(before: &AskAnswer, now: &AskAnswer) -> bool {
    let moved = match (before.earliest, now.earliest) {
        (Some(before), Some(now)) => now.duration_since(before).abs() >= SignedDuration::from_secs(30),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    moved
        || before.why != now.why
        || before.ahead != now.ahead
        || before.kept_free_since != now.kept_free_since
        || before.unfit_since != now.unfit_since
}
