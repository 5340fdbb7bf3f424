//! An operator's record of a service's release, where a run has left that open.

use jiff::Timestamp;
use stagger_core::model::{Fact, UnitState};
use stagger_engine::cluster::{BackendError, Call, LockError};
use stagger_engine::supervisor::{Identity, new_run_id};

use crate::backend::IronicBackend;
use crate::facts::IronicFacts;
use crate::records::{Record, RecordState};
use crate::releases::Releases;
use crate::running_releases::{runs, serves};

impl IronicBackend {
    /// Writes down that a service runs that release, and what it is held to, as long as nothing contradicts that: it has to
    /// serve, and neither it nor what its next start reads may say otherwise. A pinned service cannot be told from an old
    /// one: of those two the operator's word is taken.
    ///
    /// # Errors
    /// A run is at work, what was said cannot be, or the database of ours does not answer. Nothing is written then.
    pub async fn record_release(
        &self,
        by: &Identity,
        service: &str,
        release: &str,
        pin: Option<&str>,
    ) -> Result<(), LockError> {
        let now = Timestamp::now();
        let run = new_run_id(now);
        let record = Record {
            release: release.to_owned(),
            pin: pin.map(str::to_owned),
            state: RecordState::Runs,
            run: run.to_string(),
        };
        let fence = self.book().take(&by.claim(&run, now), 0).await?;
        let call = Call {
            run,
            seq: 0,
            announced: fence,
            fence,
            deadline: None,
        };
        let written = async {
            let facts = self.collect_facts().await;
            let mut table = self.table().of_facts(&facts).into_owned();
            if !table.has(release)
                && let Some(Fact::Yes(code)) = self.code(release).await
                && let Ok(with) = table.with(&code)
            {
                table = with;
            }
            self.check_possible(service, &record, facts, &table)?;
            self.book().note(&call, service, &record).await
        };
        let written = written.await;
        let back = self.book().release(fence).await;
        written.map_err(LockError::Backend).and(back)
    }

    /// Whether a service may run that, by all that can be seen.
    fn check_possible(
        &self,
        name: &str,
        record: &Record,
        mut facts: IronicFacts,
        table: &Releases,
    ) -> Result<(), BackendError> {
        let tried = format!("record what {name} runs");
        let config = &self.settings().cluster;
        let service = config.service(name).ok_or_else(|| {
            let known: Vec<&str> = config.services().map(|service| service.name).collect();
            BackendError::permanent(&tried, "the configuration has no such service")
                .hint(format!("it has {}", known.join(", ")))
        })?;
        let named = table.find(&record.release);
        if named.is_ok_and(|named| named.patch.is_none()) {
            let why = format!("{} is a release without its patch", record.release);
            return Err(BackendError::permanent(tried, why).hint("as 29.0.6"));
        }
        match &mut facts.records {
            Fact::Yes(records) => records.services.insert(name.to_owned(), record.clone()),
            Fact::No(why) => return Err(BackendError::transient(tried, why.clone())),
        };
        runs(&service, &facts, config, table)
            .map_err(|reason| BackendError::permanent(&tried, reason.detail))?;
        let (state, why) = serves(&service, &facts, config);
        if state != UnitState::Serving {
            return Err(
                BackendError::permanent(tried, format!("it does not serve: {why}"))
                    .hint("start it, and set it to ready at the balancer"),
            );
        }
        match facts.pins.get(name) {
            Some(Fact::Yes(pin)) if *pin == record.pin => Ok(()),
            Some(Fact::Yes(pin)) => {
                let told = |pin: &Option<String>| pin.clone().unwrap_or_else(|| "none".to_owned());
                let why = format!(
                    "its next start reads the pin {}, and what was said is {}",
                    told(pin),
                    told(&record.pin)
                );
                Err(BackendError::permanent(tried, why))
            }
            Some(Fact::No(why)) => Err(BackendError::transient(
                tried,
                format!("the pin that its next start reads is not known: {why}"),
            )),
            None => Err(BackendError::transient(
                tried,
                "the pin that its next start reads was not read",
            )),
        }
    }
}
