//! The fence is raised wherever that is possible, and the hosts where it is not are named: one that died does not
//! keep the others unguarded.

use std::collections::BTreeMap;
use std::sync::Arc;

use stagger_core::model::UnitId;
use tokio::task::JoinSet;

use crate::backend::{Backend, BackendError};
use crate::driver::DriveError;

/// So many hosts at once.
const AT_ONCE: usize = 16;

/// Raises the fence on these units.
///
/// # Errors
/// Where it could not be; everywhere else it is raised.
pub(crate) async fn raise(
    backend: &Arc<dyn Backend>,
    fence: u64,
    units: &[UnitId],
) -> Result<(), DriveError> {
    if units.is_empty() || backend.raise_fence(fence, units).await.is_ok() {
        return Ok(());
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
            // Which it was is not known any more: it may be any.
            Some(Err(error)) => {
                let error = BackendError::transient("raise the fence", error.to_string());
                failed.insert("one of the hosts".to_owned(), (units.to_vec(), error));
            }
        }
    }
    let Some((_, (_, first))) = failed.first_key_value() else {
        return Ok(());
    };
    let why = first.to_string();
    let names: Vec<&str> = failed
        .values()
        .flat_map(|(units, _)| units)
        .map(UnitId::as_str)
        .collect();
    Err(DriveError::StrayCall {
        units: names.join(" "),
        hosts: failed.keys().map(String::as_str).collect::<Vec<_>>().join(" "),
        why,
    })
}
