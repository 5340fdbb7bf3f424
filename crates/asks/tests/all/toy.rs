//! A cluster in memory that knows what is true: which units are up, and which sets are never down together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    Budgets, BudgetsBuilder, ClusterId, ClusterName, Ix, Kind, Revision, Snapshot, Unit, UnitId, UnitState,
};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};

/// What is so.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) down: BTreeSet<usize>,
    /// Each time that more was down than may be.
    pub(crate) unsafe_moments: Vec<String>,
    pub(crate) most_down: usize,
    pub(crate) questions: u32,
    pub(crate) blind: bool,
    pub(crate) oracle_says_no: bool,
}

/// One unit a host, and budgets over them.
#[derive(Debug)]
pub(crate) struct Toy {
    pub(crate) name: ClusterName,
    pub(crate) hosts: usize,
    pub(crate) budgets: Vec<(Vec<usize>, u32)>,
    pub(crate) truth: Mutex<Truth>,
}

impl Toy {
    pub(crate) fn new(hosts: usize, budgets: Vec<(Vec<usize>, u32)>) -> Self {
        Self {
            name: ClusterName::new("toy").unwrap(),
            hosts,
            budgets,
            truth: Mutex::default(),
        }
    }

    /// Each two neighbours in a ring have something in common.
    pub(crate) fn ring(hosts: usize) -> Self {
        let budgets = (0..hosts).map(|host| (vec![host, (host + 1) % hosts], 1));
        Self::new(hosts, budgets.collect())
    }

    pub(crate) fn identity() -> ClusterId {
        ClusterId::new("toy-1").unwrap()
    }

    pub(crate) fn host(at: usize) -> String {
        format!("host{at}")
    }

    pub(crate) fn unit(at: usize) -> UnitId {
        UnitId::new(format!("osd.{at}")).unwrap()
    }

    fn broken(&self, down: &BTreeSet<usize>) -> Option<String> {
        self.budgets.iter().find_map(|(members, limit)| {
            let count = members.iter().filter(|at| down.contains(at)).count();
            (count > *limit as usize).then(|| format!("{count} of {members:?} are down, at most {limit}"))
        })
    }

    pub(crate) fn stop(&self, at: usize) {
        let mut truth = self.truth.lock().unwrap();
        truth.down.insert(at);
        truth.most_down = truth.most_down.max(truth.down.len());
        if let Some(why) = self.broken(&truth.down) {
            truth.unsafe_moments.push(why);
        }
    }

    /// It can be seen, and its oracle is of our opinion.
    pub(crate) fn heal(&self) {
        let mut truth = self.truth.lock().unwrap();
        (truth.blind, truth.oracle_says_no) = (false, false);
    }

    pub(crate) fn start(&self, at: usize) {
        self.truth.lock().unwrap().down.remove(&at);
    }

    pub(crate) fn built_budgets(&self) -> Budgets {
        let mut budgets = BudgetsBuilder::default();
        for (at, (members, limit)) in self.budgets.iter().enumerate() {
            let members: Vec<(Ix, u32)> = members.iter().map(|at| (Ix(*at as u32), 1)).collect();
            budgets.add("group", &at.to_string(), *limit, &members);
        }
        budgets.build()
    }

    pub(crate) fn snapshot(&self, down: &BTreeSet<usize>) -> Snapshot {
        let units = (0..self.hosts).map(|at| Unit {
            id: Self::unit(at),
            kind: Kind::new("osd").unwrap(),
            state: if down.contains(&at) {
                UnitState::Down
            } else {
                UnitState::Serving
            },
            revision: Some(Revision::new("1").unwrap()),
            domains: BTreeMap::from([("host".to_owned(), Self::host(at))]),
            precedence: 0,
            untouchable: None,
        });
        Snapshot::new(
            self.name.clone(),
            Timestamp::now(),
            "1".to_owned(),
            units.collect(),
            self.built_budgets(),
            Vec::new(),
            BTreeMap::new(),
        )
        .unwrap()
    }

    fn at(unit: &UnitId) -> usize {
        unit.as_str().strip_prefix("osd.").unwrap().parse().unwrap()
    }
}

#[async_trait]
impl Executor for Toy {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let truth = self.truth.lock().unwrap();
        if truth.blind {
            return Err(BackendError::transient("observe the toy", "nobody answers"));
        }
        Ok(self.snapshot(&truth.down))
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let mut truth = self.truth.lock().unwrap();
        truth.questions += 1;
        if truth.oracle_says_no {
            return Ok(Answer::No {
                why: "the oracle is of another opinion".to_owned(),
            });
        }
        let mut down = truth.down.clone();
        down.extend(units.iter().map(Self::at));
        Ok(match self.broken(&down) {
            Some(why) => Answer::No { why },
            None => Answer::Yes,
        })
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        Some(Self::host(Self::at(unit)))
    }

    fn fencing(&self, _action: &Action) -> Fencing {
        Fencing::Fenced
    }

    async fn perform(&self, _call: &Call, action: &Action) -> Result<String, BackendError> {
        if let Some(unit) = action.unit() {
            self.stop(Self::at(unit));
            tokio::task::yield_now().await;
            self.start(Self::at(unit));
        }
        Ok(String::new())
    }

    async fn raise_fence(&self, _fence: u64, _units: &[UnitId]) -> Result<(), BackendError> {
        Ok(())
    }

    async fn diagnostics(
        &self,
        _call: &Call,
        _units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        Ok(Vec::new())
    }

    fn poll(&self) -> Duration {
        Duration::from_millis(10)
    }
}

#[async_trait]
impl Lock for Toy {
    fn cluster(&self) -> &ClusterName {
        &self.name
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        Ok(Self::identity())
    }

    async fn lock(&self, _claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        Ok(at_least + 1)
    }

    async fn renew(&self, _claim: &LockRecord, _fence: u64) -> Result<(), LockError> {
        Ok(())
    }

    async fn unlock(&self, _claim: &LockRecord, _fence: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_secs(30)
    }
}
