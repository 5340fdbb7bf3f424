//! Raises fences, and keeps the hosts where that failed: a dead host does not leave the others unfenced.

use std::collections::BTreeMap;
use std::sync::Arc;

use stagger_core::model::UnitId;
use tokio::task::JoinSet;

use super::DriveError;
use crate::cluster::{Backend, BackendError};

/// So many hosts at once.
const AT_ONCE: usize = 16;

/// The hosts where the fence could not be raised, with their units and why.
#[derive(Debug, Default)]
pub(crate) struct Unguarded(BTreeMap<String, (Vec<UnitId>, BackendError)>);

impl Unguarded {
    /// Which units are.
    pub(crate) fn units(&self) -> impl Iterator<Item = &UnitId> {
        self.0.values().flat_map(|(units, _)| units)
    }

    /// Why a unit is, if it is.
    pub(crate) fn failure_of(&self, unit: &UnitId) -> Option<&BackendError> {
        let mut hosts = self.0.values();
        hosts.find_map(|(units, error)| units.contains(unit).then_some(error))
    }

    /// The same as an error, for callers that need every fence.
    pub(crate) fn error(&self) -> Option<DriveError> {
        let (_, (_, first)) = self.0.first_key_value()?;
        let names: Vec<&str> = self.units().map(UnitId::as_str).collect();
        Some(DriveError::StrayCall {
            units: names.join(" "),
            hosts: self.0.keys().map(String::as_str).collect::<Vec<_>>().join(" "),
            why: first.to_string(),
        })
    }
}

/// Raises the fence on these units, and tells where that could not be; everywhere else it is raised.
pub(crate) async fn raise(backend: &Arc<dyn Backend>, fence: u64, units: &[UnitId]) -> Unguarded {
    if units.is_empty() || backend.raise_fence(fence, units).await.is_ok() {
        return Unguarded::default();
    }
    // Once more, host by host: which are they?
    let mut hosts: BTreeMap<String, Vec<UnitId>> = BTreeMap::new();
    for unit in units {
        let host = backend.host_of(unit).unwrap_or_else(|| unit.to_string());
        hosts.entry(host).or_default().push(unit.clone());
    }
    let mut left = hosts.into_iter();
    let mut raising = JoinSet::new();
    let mut failed = BTreeMap::new();
    loop {
        while raising.len() < AT_ONCE
            && let Some((host, units)) = left.next()
        {
            let backend = Arc::clone(backend);
            raising.spawn(async move {
                let raised = backend.raise_fence(fence, &units).await;
                (host, units, raised)
            });
        }
        match raising.join_next().await {
            None => break,
            Some(Ok((_, _, Ok(())))) => {}
            Some(Ok((host, units, Err(error)))) => {
                failed.insert(host, (units, error));
            }
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The host is not known any more: it may be any.
            Some(Err(error)) => {
                let error = BackendError::transient("raise the fence", error.to_string());
                failed.insert("one of the hosts".to_owned(), (units.to_vec(), error));
            }
        }
    }
    Unguarded(failed)
}
