//! Asks of others to take hosts down: left in the store for the gate of the cluster, which judges and answers.

pub(crate) mod api;
pub(crate) mod fleetlock;
pub(crate) mod section;

use std::sync::Arc;
use std::time::Duration;

use stagger_asks::ask::{Ask, AskId, AskState};
use stagger_asks::ledger::{AskLedger, AskedCluster, LedgerError, LedgerLocation};
use stagger_core::model::ClusterName;
use tokio::sync::OnceCell;

use crate::access::{Caller, Role};
use crate::problem::ProblemDetails;

/// How often an ask is looked at while its answer is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// The stores of asks.
#[derive(Clone, Default)]
pub(crate) struct AskDesk {
    stores: Arc<[KeptStore]>,
}

struct KeptStore {
    location: LedgerLocation,
    opened: OnceCell<AskLedger>,
}

impl KeptStore {
    async fn ledger(&self) -> Result<&AskLedger, LedgerError> {
        self.opened.get_or_try_init(|| self.location.open()).await
    }
}

impl AskDesk {
    /// Of these stores.
    pub(crate) fn of(locations: Vec<LedgerLocation>) -> Self {
        let stores = locations.into_iter().map(|location| KeptStore {
            location,
            opened: OnceCell::new(),
        });
        Self {
            stores: stores.collect(),
        }
    }

    /// All clusters that a caller may ask for, each with its ledger; and why a store does not answer.
    pub(crate) async fn clusters(
        &self,
        caller: &Caller,
    ) -> (Vec<(AskedCluster, AskLedger)>, Option<LedgerError>) {
        let (mut all, mut away) = (Vec::new(), None);
        for store in &*self.stores {
            let found = match store.ledger().await {
                Ok(ledger) => ledger.clusters().await.map(|found| (found, ledger.clone())),
                Err(error) => Err(error),
            };
            match found {
                Ok((found, ledger)) => {
                    let seen = found.into_iter().filter(|cluster| caller.may_see(&cluster.name));
                    all.extend(seen.map(|cluster| (cluster, ledger.clone())));
                }
                Err(error) => away = Some(error),
            }
        }
        (all, away)
    }

    /// The cluster of that name; without one, the only one that the caller may ask for.
    pub(crate) async fn cluster(
        &self,
        caller: &Caller,
        name: Option<&ClusterName>,
    ) -> Result<(AskedCluster, AskLedger), ProblemDetails> {
        let (all, away) = self.clusters(caller).await;
        let mut like = all
            .into_iter()
            .filter(|(cluster, _)| name.is_none_or(|name| cluster.name == *name));
        match (like.next(), like.next(), away) {
            (Some(one), None, _) => Ok(one),
            (Some(_), Some(_), _) => Err(ProblemDetails::refused_ask(
                "there are several clusters: name one by `cluster`",
            )),
            (None, _, Some(error)) => Err(of(&error)),
            (None, _, None) => Err(ProblemDetails::no_gate(name)),
        }
    }

    /// An ask that the caller may know of, with its cluster and ledger.
    pub(crate) async fn ask(
        &self,
        caller: &Caller,
        id: &AskId,
    ) -> Result<(Ask, AskedCluster, AskLedger), ProblemDetails> {
        let (all, away) = self.clusters(caller).await;
        for (cluster, ledger) in all {
            match ledger.ask(id).await {
                Ok(ask) if ask.wanted.cluster == cluster.identity && may_see(caller, &ask) => {
                    return Ok((ask, cluster, ledger));
                }
                Ok(_) | Err(LedgerError::NoAsk(_)) => {}
                Err(error) => return Err(of(&error)),
            }
        }
        match away {
            Some(error) => Err(of(&error)),
            None => Err(ProblemDetails::no_such_ask(id.as_str())),
        }
    }
}

/// Whoever may only ask sees what they asked for.
fn may_see(caller: &Caller, ask: &Ask) -> bool {
    caller.role > Role::Ask || ask.wanted.asker == caller.name
}

/// Whether they may ask at all: who looks does not.
pub(crate) fn may_ask(caller: &Caller) -> bool {
    caller.role == Role::Ask || caller.role >= Role::Operate
}

/// Why the store of asks has no answer.
pub(crate) fn of(error: &LedgerError) -> ProblemDetails {
    match error {
        LedgerError::NoAsk(id) => ProblemDetails::no_such_ask(id.as_str()),
        LedgerError::Ask(_) => ProblemDetails::refused_ask(error.to_string()),
        LedgerError::OtherAsk => ProblemDetails::malformed("this Idempotency-Key came with another request"),
        LedgerError::NoCluster(_) => ProblemDetails::no_gate(None),
        LedgerError::Failed { .. } | LedgerError::Unreadable { .. } => {
            ProblemDetails::store("the store of asks does not answer")
        }
    }
}

/// Waits until an ask is granted or over, no longer than that.
pub(crate) async fn settled(ledger: &AskLedger, first: Ask, wait: Duration) -> Result<Ask, LedgerError> {
    let until = tokio::time::Instant::now() + wait;
    let mut ask = first;
    while matches!(ask.state, AskState::Waiting(_)) && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        ask = ledger.ask(&ask.id).await?;
    }
    Ok(ask)
}
