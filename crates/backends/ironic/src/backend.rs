//! The backend: an Ironic as plans and runs see it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{Fact, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{BackendError, Call, Executor, Fencing};

use crate::client::{IronicClient, RemoteIronic};
use crate::config::{IronicSettings, IronicTiming, Service, ServiceRole, StopMode};
use crate::facts::IronicFacts;
use crate::goal::UpgradeGoal;
use crate::observe::{balancer, collect_facts, release_code, unknown_release};
use crate::planner::snapshot;
use crate::records::RecordStore;
use crate::release_code::ReleaseCode;
use crate::releases::Releases;
use crate::rings::absence_permitted;
use crate::sql::with_password;
use crate::visit::divert::accepting_stand_ins;
use crate::visit::perform::Performer;
use crate::visit::steps::raise;

/// An Ironic.
#[derive(Debug)]
pub struct IronicBackend {
    client: Arc<dyn IronicClient>,
    book: RecordStore,
    settings: IronicSettings,
    table: Releases,
    goal: Option<UpgradeGoal>,
    /// The interruptions that a person permits, by name or by sort.
    permitted: Mutex<BTreeSet<String>>,
    /// What the code of a release said that `table` does not have.
    asked: OnceLock<ReleaseCode>,
}

impl IronicBackend {
    /// That of the configuration. `goal`: what the run that it serves began with.
    ///
    /// # Errors
    /// What in the configuration cannot be used. Nothing is asked yet.
    pub fn new(settings: IronicSettings, goal: Option<UpgradeGoal>) -> Result<Self, BackendError> {
        let client = Arc::new(RemoteIronic::new(settings.clone())?);
        Self::of(client, settings, goal)
    }

    /// The same on another world.
    ///
    /// # Errors
    /// The database of ours has no URL.
    pub fn of(
        client: Arc<dyn IronicClient>,
        settings: IronicSettings,
        goal: Option<UpgradeGoal>,
    ) -> Result<Self, BackendError> {
        let config = &settings.cluster;
        let url = with_password(&config.ours, config.password_file.as_deref())?;
        let mut table = Releases::built_in();
        if let Some(code) = goal.as_ref().and_then(|goal| goal.code.as_ref()) {
            table = table.with(code).map_err(|error| {
                BackendError::permanent(
                    "go by what the new code lists, as the run remembers it",
                    error.to_string(),
                )
            })?;
        }
        Ok(Self {
            book: RecordStore::open(
                &url,
                &config.database,
                config.name.clone(),
                settings.pace.lock,
                settings.pace.call,
            )?,
            client,
            settings,
            table,
            asked: OnceLock::new(),
            permitted: Mutex::new(
                goal.as_ref()
                    .map_or_else(BTreeSet::new, |goal| goal.interruptions.clone()),
            ),
            goal,
        })
    }

    /// All facts, now.
    pub async fn collect_facts(&self) -> IronicFacts {
        let config = &self.settings.cluster;
        let mut facts = collect_facts(&*self.client, &self.book, config).await;
        if let Some(release) = unknown_release(&facts, config, &self.table) {
            facts.code = self.code(release).await;
        }
        facts
    }

    /// What the code of a release says about itself, asked once: it does not change.
    pub(crate) async fn code(&self, release: &str) -> Option<Fact<ReleaseCode>> {
        if let Some(code) = self.asked.get().filter(|code| code.version == release) {
            return Some(Fact::Yes(code.clone()));
        }
        let code = release_code(&*self.client, &self.settings.cluster.tools, release).await?;
        if let Fact::Yes(code) = &code {
            // One release is asked for, and whoever was faster has asked for the same.
            drop(self.asked.set(code.clone()));
        }
        Some(code)
    }

    pub(crate) fn table(&self) -> &Releases {
        &self.table
    }

    /// The snapshot of these facts, for what is wished.
    ///
    /// # Errors
    /// Facts that make none.
    pub fn snapshot(
        &self,
        facts: &IronicFacts,
        goal: Option<&UpgradeGoal>,
    ) -> Result<Snapshot, BackendError> {
        let permitted = goal.map_or_else(
            || self.permitted_interruptions(),
            |goal| goal.interruptions.clone(),
        );
        let table = self.table.of_facts(facts);
        snapshot(facts, &self.settings.cluster, &table, goal, &permitted)
    }

    fn permitted_interruptions(&self) -> BTreeSet<String> {
        let permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        permitted.clone()
    }

    pub(crate) fn book(&self) -> &RecordStore {
        &self.book
    }

    pub(crate) fn settings(&self) -> &IronicSettings {
        &self.settings
    }

    fn performer<'a>(&'a self, call: &'a Call) -> Performer<'a> {
        Performer {
            client: &*self.client,
            book: &self.book,
            settings: &self.settings,
            table: &self.table,
            goal: self.goal.as_ref(),
            permitted: self.permitted_interruptions(),
            call,
        }
    }

    /// Whether something of it writes into Ironic's database, which no fence guards.
    fn writes_into_ironic(&self, unit: &UnitId) -> bool {
        let is_conductor = unit.as_str().starts_with(ServiceRole::Conductor.as_str());
        is_conductor && self.settings.cluster.stopping.way == StopMode::Mute
    }
}

#[async_trait]
impl Executor for IronicBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let facts = self.collect_facts().await;
        let (config, goal) = (&self.settings.cluster, self.goal.as_ref());
        let table = self.table.of_facts(&facts);
        snapshot(&facts, config, &table, goal, &self.permitted_interruptions())
    }

    fn permit(&self, interruptions: BTreeSet<String>) {
        *self.permitted.lock().unwrap_or_else(PoisonError::into_inner) = interruptions;
    }

    /// The balancer is asked: whether what comes to these units finds somebody else.
    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let config = &self.settings.cluster;
        let services = config.services().filter(|service| {
            let id = format!("{}.{}", service.role.as_str(), service.name);
            units.iter().any(|unit| unit.as_str() == id)
        });
        let permitted = self.permitted_interruptions();
        let facts = if permitted.is_empty() && config.rabbitmq.is_none() {
            None
        } else {
            Some(self.collect_facts().await)
        };
        let by_word = |service: &Service<'_>| {
            let of = (service.role, service.name);
            let facts = facts.as_ref();
            facts.is_some_and(|facts| absence_permitted(facts, config, &permitted, of))
        };
        let (alone, others): (Vec<_>, Vec<_>) = services.partition(by_word);
        let servers: Vec<_> = others.iter().flat_map(|service| service.servers).collect();
        let of_alone: Vec<&str> = alone.iter().map(|service| service.name).collect();
        if servers.is_empty() {
            let why = format!(
                "the stand-ins of {} are not checked: its interruption is permitted",
                of_alone.join(" ")
            );
            return Ok(if of_alone.is_empty() {
                Answer::NoOracle
            } else {
                Answer::Overridden { why }
            });
        }
        let shown = match balancer(&*self.client, config).await {
            Fact::Yes(shown) => shown,
            Fact::No(why) => return Ok(Answer::Unknown { why }),
        };
        let of_rabbitmq = |role: ServiceRole| config.rabbitmq.is_some() && role == ServiceRole::Conductor;
        for service in others.iter().filter(|service| of_rabbitmq(service.role)) {
            let facts = facts.as_ref();
            let candidates =
                facts.map_or_else(Vec::new, |facts| accepting_stand_ins(facts, config, service.name));
            if !candidates
                .iter()
                .any(|other| !servers.iter().any(|server| other.servers.contains(server)))
            {
                let why = format!("no stand-in of {} takes calls over RabbitMQ", service.name);
                return Ok(Answer::No { why });
            }
        }
        let behind = others.iter().filter(|service| !of_rabbitmq(service.role));
        for server in behind.flat_map(|service| service.servers) {
            if !shown.peers(server).any(|peer| !servers.contains(&peer)) {
                let why = format!(
                    "the balancer has no other server for requests in {}",
                    server.backend
                );
                return Ok(Answer::No { why });
            }
        }
        Ok(Answer::Yes)
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        let (_, name) = unit.as_str().split_once('.')?;
        let service = self.settings.cluster.service(name)?;
        Some(service.host.to_owned())
    }

    fn fencing(&self, action: &Action) -> Fencing {
        let IronicTiming { ring, drain, .. } = self.settings.pace;
        let limit = Duration::from_secs(self.settings.hosts.timeout) + ring + drain;
        match action {
            Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. }
                if self.writes_into_ironic(unit) =>
            {
                Fencing::Bounded(limit)
            }
            // Commands are refused on their hosts, records and the lock in our database. A step raises the fence on
            // every host itself, before it does anything.
            Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } | Action::Step { .. } => {
                Fencing::Fenced
            }
            Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Collect { .. } => {
                Fencing::Bounded(self.settings.pace.call + Duration::from_secs(10))
            }
        }
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let performer = self.performer(call);
        match action {
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => performer.visit(unit, *phase, revision).await,
            Action::Restart { unit } => performer.start_again(unit).await,
            Action::GoBack { unit, revision, .. } => performer.roll_back(unit, revision).await,
            Action::Step { step } => performer.step(step.as_str()).await,
            Action::TakeGuard { guard, .. } | Action::DropGuard { guard, .. } => {
                Err(BackendError::permanent(
                    format!("take the guard {guard}"),
                    "this backend has no guards: what is drained is drained for one visit",
                ))
            }
            Action::Collect { .. } => Ok(String::new()),
        }
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let config = &self.settings.cluster;
        let hosts = config.services().filter_map(|service| {
            let id = format!("{}.{}", service.role.as_str(), service.name);
            units
                .iter()
                .any(|unit| unit.as_str() == id)
                .then_some(service.host)
        });
        // Those of the balancer and of the tools too: what was drained or migrated was told there.
        let shared = [config.balancer.host.as_str(), config.tools.host.as_str()];
        let hosts: BTreeSet<&str> = hosts.chain(shared).collect();
        // RabbitMQ has no fence: what a process that has lost the lock still tells it is waited out.
        let is_conductor = |unit: &UnitId| unit.as_str().starts_with(ServiceRole::Conductor.as_str());
        let late = if config.rabbitmq.is_some() && units.iter().any(is_conductor) {
            self.settings.pace.late
        } else {
            Duration::ZERO
        };
        let (raised, ()) = futures::join!(raise(&*self.client, fence, hosts), tokio::time::sleep(late));
        raised
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        let performer = self.performer(call);
        let facts = self.collect_facts().await;
        let facts = serde_json::to_vec_pretty(&facts)
            .map_err(|error| BackendError::permanent("keep the facts", error.to_string()))?;
        let mut files = vec![("facts.json".to_owned(), facts)];
        for unit in units {
            let service = performer.service(unit)?;
            if let Some(log) = performer.logs(&service).await {
                files.push((format!("{unit}.log"), log.into_bytes()));
            }
        }
        Ok(files)
    }

    fn poll(&self) -> Duration {
        self.settings.pace.poll
    }
}
