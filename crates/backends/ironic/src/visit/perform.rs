//! Carries visits out: drain, change, undrain, each as an idempotent step.

use std::collections::BTreeSet;
use std::time::Instant;

use stagger_core::model::{Fact, Phase, Revision, UnitId, UnitState};
use stagger_engine::cluster::{BackendError, Call};

use crate::client::IronicClient;
use crate::commands::{self, filled};
use crate::config::{IronicSettings, Service, ServiceRole};
use crate::facts::{ApiReport, IronicFacts};
use crate::goal::UpgradeGoal;
use crate::observe::{collect_facts, pin};
use crate::records::{Record, RecordState, RecordStore};
use crate::releases::Releases;
use crate::running_releases::{registered, release_of, runs, serves};
use crate::services::statuses;

/// What is written down when pins begin to be taken away.
pub(crate) const UNPIN: &str = "unpin";

/// One call, carried out.
pub(crate) struct Performer<'a> {
    pub(crate) client: &'a dyn IronicClient,
    pub(crate) book: &'a RecordStore,
    pub(crate) settings: &'a IronicSettings,
    pub(crate) table: &'a Releases,
    pub(crate) goal: Option<&'a UpgradeGoal>,
    /// The interruptions that a person permits.
    pub(crate) permitted: BTreeSet<String>,
    pub(crate) call: &'a Call,
}

impl<'a> Performer<'a> {
    /// The service of a unit.
    pub(crate) fn service(&self, unit: &UnitId) -> Result<Service<'a>, BackendError> {
        let name = unit.as_str().split_once('.').map_or("", |(_, name)| name);
        self.settings.cluster.service(name).ok_or_else(|| {
            BackendError::permanent(format!("find {unit}"), "the configuration has no such service")
        })
    }

    pub(crate) fn goal(&self) -> Result<&'a UpgradeGoal, BackendError> {
        self.goal
            .ok_or_else(|| BackendError::permanent("change Ironic", "the run keeps no memory of its goal"))
    }

    pub(crate) async fn collect_facts(&self) -> IronicFacts {
        collect_facts(self.client, self.book, &self.settings.cluster).await
    }

    pub(crate) async fn command(
        &self,
        service: &Service<'_>,
        which: &str,
        command: Option<&String>,
        words: &[(&str, &str)],
    ) -> Result<String, BackendError> {
        let Some(command) = command else {
            let tried = format!("{which} {}", service.name);
            return Err(
                BackendError::permanent(tried, "the configuration has no command for it")
                    .hint(format!("set `{which}` in [cluster.commands]")),
            );
        };
        let command = filled(command, service, words)?;
        commands::run(self.client, self.call, which, service.host, &command).await
    }

    /// One phase of a service's turn.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) async fn visit(
        &self,
        unit: &UnitId,
        phase: Phase,
        revision: &Revision,
    ) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        match phase {
            Phase::Prepare => Ok(String::new()),
            Phase::Enter => self.enter(&service).await,
            Phase::Change => self.change(&service, revision).await,
            Phase::Leave => self.leave(&service).await,
        }
    }

    /// The service runs that release, held to that older one or to none. It does not get requests meanwhile.
    async fn change(&self, service: &Service<'_>, revision: &Revision) -> Result<String, BackendError> {
        let (release, held_to) = release_of(revision);
        let goal = self.goal()?;
        let facts = self.collect_facts().await;
        let is_unpin = self.is_unpin(goal, release, held_to);
        if is_unpin {
            self.may_be_unpinned(service, &facts)?;
        }
        let before = facts
            .records
            .get()
            .and_then(|records| records.services.get(service.name));
        let has_it =
            before.is_some_and(|record| record.release == release && record.state == RecordState::Runs);
        let pin = if held_to.is_some() {
            Some(goal.pin.clone())
        } else if release == goal.to {
            None
        } else {
            before.and_then(|record| record.pin.clone())
        };
        let meant = Record {
            release: release.to_owned(),
            pin,
            state: RecordState::Changing,
            run: self.call.run.to_string(),
        };
        self.make(service, &facts, meant, !(has_it && is_unpin)).await?;
        Ok(format!("it runs {revision}"))
    }

    /// Makes a service what is meant, by a start. It is written down before, and after it serves.
    async fn make(
        &self,
        service: &Service<'_>,
        facts: &IronicFacts,
        meant: Record,
        installs: bool,
    ) -> Result<(), BackendError> {
        let mut record = Record {
            state: RecordState::Changing,
            ..meant
        };
        self.book.note(self.call, service.name, &record).await?;
        if installs {
            let command = service.commands.install.as_ref();
            self.command(service, "install", command, &[("release", &record.release)])
                .await?;
        }
        record.pin = self.pinned(service, &record).await?;
        self.restart(service, facts).await?;
        record.state = RecordState::Runs;
        self.serves_alone(service, &record).await?;
        self.book.note(self.call, service.name, &record).await
    }

    /// Whether a service that is to run that release loses its pin by it. Between patches of one release there is none.
    fn is_unpin(&self, goal: &UpgradeGoal, release: &str, pin: Option<&str>) -> bool {
        let place = |text: &str| self.table.find(text).map(|found| found.place).ok();
        release == goal.to && pin.is_none() && place(&goal.from) != place(&goal.to)
    }

    /// No pin goes while an old service lives, and that of an API only after those of all conductors: before that an
    /// API would take what conductors drop in silence.
    pub(crate) fn may_be_unpinned(
        &self,
        service: &Service<'_>,
        facts: &IronicFacts,
    ) -> Result<(), BackendError> {
        let tried = format!("take the pin of {} away", service.name);
        let goal = self.goal()?;
        for other in statuses(facts, &self.settings.cluster, self.table) {
            if other.name == service.name || self.is_being_unpinned(other.name, facts) {
                continue;
            }
            let other_runs = other.runs.map_err(|reason| {
                BackendError::transient(
                    &tried,
                    format!("what {} runs is unknown: {}", other.name, reason.detail),
                )
            })?;
            if other_runs.release != goal.to {
                let why = format!(
                    "{} still runs {}, and one row that it cannot read breaks its lists",
                    other.name, other_runs.release
                );
                return Err(BackendError::permanent(tried, why));
            }
            let held = other_runs.pinned_to().is_some() && other.role == ServiceRole::Conductor;
            if held && service.role == ServiceRole::Api {
                let why = format!(
                    "{} is still pinned: it would drop in silence what this API takes",
                    other.name
                );
                return Err(BackendError::permanent(tried, why));
            }
        }
        Ok(())
    }

    /// Whether a service of the same wave is losing its pin: it runs the new code with it and without it.
    fn is_being_unpinned(&self, name: &str, facts: &IronicFacts) -> bool {
        let record = facts.records.get().and_then(|records| records.services.get(name));
        record.is_some_and(|record| {
            record.state == RecordState::Changing
                && record.pin.is_none()
                && record.run == self.call.run.as_str()
                && self.goal.is_some_and(|goal| record.release == goal.to)
        })
    }

    /// What the next start reads as its pin, once it is as it should be. An old release keeps what is written: to be held
    /// to itself changes nothing.
    async fn pinned(&self, service: &Service<'_>, meant: &Record) -> Result<Option<String>, BackendError> {
        let is_new = meant.release == self.goal()?.to;
        match &meant.pin {
            Some(pin) if is_new => self.write_pin(service, "write_pin", pin).await?,
            None if is_new => {
                let command = service.commands.remove_pin.as_ref();
                self.command(service, "remove_pin", command, &[]).await?;
            }
            Some(_) | None => {}
        }
        let now = self.read_pin(service).await?;
        if !is_new || now == meant.pin {
            return Ok(now);
        }
        let why = format!(
            "it would start with the pin {:?}, and not with {:?}",
            now.as_deref().unwrap_or("none"),
            meant.pin.as_deref().unwrap_or("none")
        );
        Err(BackendError::permanent(format!("pin {}", service.name), why))
    }

    pub(crate) async fn write_pin(
        &self,
        service: &Service<'_>,
        which: &str,
        pin: &str,
    ) -> Result<(), BackendError> {
        let command = service.commands.write_pin.as_ref();
        self.command(service, which, command, &[("pin", pin)])
            .await
            .map(drop)
    }

    pub(crate) async fn read_pin(&self, service: &Service<'_>) -> Result<Option<String>, BackendError> {
        let tried = format!("read the pin of {}", service.name);
        let Some(command) = &service.commands.read_pin else {
            return Err(BackendError::permanent(tried, "there is no command `read_pin`"));
        };
        match pin(self.client, service.host, &filled(command, service, &[])?).await {
            Fact::Yes(pin) => Ok(pin),
            Fact::No(why) => Err(BackendError::transient(tried, why)),
        }
    }

    /// Waits until the service says itself that it runs that, whatever the balancer does with it.
    async fn serves_alone(&self, service: &Service<'_>, record: &Record) -> Result<(), BackendError> {
        let tried = format!("wait until {} serves", service.name);
        let begun = Instant::now();
        loop {
            let mut facts = self.collect_facts().await;
            if let Fact::Yes(records) = &mut facts.records {
                records.services.insert(service.name.to_owned(), record.clone());
            }
            let is_there = match service.role {
                ServiceRole::Api => matches!(facts.apis.get(service.name), Some(ApiReport::Offers(_))),
                ServiceRole::Conductor => self
                    .conductor(service)
                    .and_then(|conductor| registered(conductor, &facts))
                    .is_some_and(|(_, alive)| alive),
            };
            let says = runs(service, &facts, &self.settings.cluster, self.table);
            let why = match says {
                Ok(_) if is_there => return Ok(()),
                Ok(_) => serves(service, &facts, &self.settings.cluster).1,
                Err(reason) => reason.detail,
            };
            if begun.elapsed() > self.settings.pace.ready {
                let why = format!("after {} s {why}", begun.elapsed().as_secs());
                return Err(BackendError::permanent(tried, why));
            }
            tokio::time::sleep(self.settings.pace.poll).await;
        }
    }

    /// Starts a service once more as it was meant to be: what was begun and is not known to be done is done once more, the
    /// installation and the pin too.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) async fn start_again(&self, unit: &UnitId) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        let tried = format!("start {} again", service.name);
        let goal = self.goal()?;
        let facts = self.collect_facts().await;
        let records = facts
            .records
            .as_result()
            .map_err(|why| BackendError::transient(&tried, why.to_owned()))?;
        let meant = if let Some(record) = records.services.get(service.name) {
            record.clone()
        } else {
            let runs = runs(&service, &facts, &self.settings.cluster, self.table)
                .map_err(|reason| BackendError::transient(&tried, reason.detail))?;
            Record {
                release: runs.release,
                pin: runs.pin.map(|(pin, _)| pin),
                state: RecordState::Runs,
                run: self.call.run.to_string(),
            }
        };
        let was_begun = meant.state == RecordState::Changing;
        if was_begun && self.is_unpin(goal, &meant.release, meant.pin.as_deref()) {
            self.may_be_unpinned(&service, &facts)?;
        }
        if serves(&service, &facts, &self.settings.cluster).0 == UnitState::Serving {
            self.enter(&service).await?;
        }
        self.make(&service, &facts, meant, was_begun).await?;
        self.leave(&service).await
    }

    /// Brings a service back to the old code. Up to the unpin the old code reads every row.
    ///
    /// # Errors
    /// Pins were taken away already, or what could not be done.
    pub(crate) async fn roll_back(&self, unit: &UnitId, revision: &Revision) -> Result<String, BackendError> {
        let service = self.service(unit)?;
        let tried = format!("bring {} back to {revision}", service.name);
        let goal = self.goal()?;
        let facts = self.collect_facts().await;
        let records = facts
            .records
            .as_result()
            .map_err(|why| BackendError::transient(&tried, why.to_owned()))?;
        if records.is_marked(&goal.to, UNPIN) {
            let why = format!(
                "pins were taken away: rows that {} cannot read may have been written",
                goal.from
            );
            return Err(BackendError::permanent(tried, why));
        }
        if serves(&service, &facts, &self.settings.cluster).0 == UnitState::Serving {
            self.enter(&service).await?;
        } else if let Some(conductor) = self
            .called_over_rabbitmq(&service)
            .filter(|_| self.is_drained(&service))
        {
            self.divert(conductor, &tried).await?;
        } else if self.is_drained(&service) {
            for server in service.servers {
                self.set(server, "drain").await?;
            }
        }
        self.change(&service, revision).await?;
        self.leave(&service).await?;
        Ok(format!("it runs {revision} again"))
    }
}
