//! The source of an Ironic's facts: its services, or an inventory.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stagger_engine::cluster::{BackendError, Source};
use stagger_engine::inventory::{Inventory, InventoryError};
use stagger_engine::redact::redact;

use crate::backend::IronicBackend;
use crate::client::RemoteIronic;
use crate::config::{IronicConfig, IronicSettings};
use crate::facts::IronicFacts;
use crate::goal::WantedRelease;
use crate::observe::release_code;

/// What an inventory of an Ironic says that it is of.
pub const SYSTEM: &str = "ironic";

/// An Ironic that answers.
#[derive(Debug)]
pub struct LiveIronic {
    backend: IronicBackend,
    config: IronicConfig,
}

impl LiveIronic {
    /// That of the configuration.
    ///
    /// # Errors
    /// What in the configuration cannot be used. Nothing is asked yet.
    pub fn new(settings: &IronicSettings) -> Result<Self, BackendError> {
        Ok(Self {
            backend: IronicBackend::new(settings.clone(), None)?,
            config: settings.cluster.clone(),
        })
    }
}

/// That release as it is wanted of this Ironic, by what its own code says: where it can be asked, it is.
///
/// # Errors
/// What in the configuration cannot be used.
pub async fn wanted_release(settings: &IronicSettings, release: &str) -> Result<WantedRelease, BackendError> {
    let client = RemoteIronic::new(settings.clone())?;
    Ok(WantedRelease {
        release: release.to_owned(),
        code: release_code(&client, &settings.cluster.tools, release).await,
    })
}

#[async_trait]
impl Source for LiveIronic {
    type Facts = IronicFacts;

    async fn facts(&self) -> Result<IronicFacts, BackendError> {
        Ok(self.backend.collect_facts().await)
    }

    async fn inventory(&self) -> Result<(Inventory, IronicFacts), BackendError> {
        let facts = self.facts().await?;
        Ok((inventory(&facts, &self.config)?, facts))
    }
}

/// An Ironic that was looked at before.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedIronic {
    facts: IronicFacts,
    /// Its services and how they are reached, as the configuration had it, without secrets.
    pub cluster: IronicConfig,
}

impl RecordedIronic {
    /// What an inventory keeps.
    ///
    /// # Errors
    /// Its answers have another shape.
    pub fn read(inventory: &Inventory) -> Result<Self, InventoryError> {
        inventory.answers()
    }
}

#[async_trait]
impl Source for RecordedIronic {
    type Facts = IronicFacts;

    async fn facts(&self) -> Result<IronicFacts, BackendError> {
        Ok(self.facts.clone())
    }

    async fn inventory(&self) -> Result<(Inventory, IronicFacts), BackendError> {
        Ok((inventory(&self.facts, &self.cluster)?, self.facts.clone()))
    }
}

fn inventory(facts: &IronicFacts, config: &IronicConfig) -> Result<Inventory, BackendError> {
    let wrong = |error: serde_json::Error| BackendError::permanent("write the inventory", error.to_string());
    let mut cluster = serde_json::to_value(config).map_err(wrong)?;
    without_secrets(&mut cluster);
    let kept = RecordedIronic {
        facts: facts.clone(),
        cluster: serde_json::from_value(cluster).map_err(wrong)?,
    };
    Inventory::new(SYSTEM, config.name.clone(), facts.at, &kept).map_err(wrong)
}

/// Commands are written by people, and what they write may be a secret.
fn without_secrets(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Array(values) => values.iter_mut().for_each(without_secrets),
        Value::Object(fields) => fields.values_mut().for_each(without_secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
