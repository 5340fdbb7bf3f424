//! The services of an Ironic: a line for each, or a row of a document.

use stagger_ironic::services::unit_id;
use stagger_ironic::versions::ServiceVersions;

use crate::documents::ServiceRow;
use crate::error::CliError;

/// The objects that are shown where not all are asked for.
const SHOWN: [&str; 3] = ["Node", "Port", "Conductor"];

/// The services, a line for each.
pub(crate) fn services(services: &[ServiceVersions], all: bool) -> Vec<String> {
    let head = format!(
        "{:<12} {:<10} {:<10} {:<8} {:<7} {:<8} writes",
        "service", "release", "pin", "RPC cap", "API", "state"
    );
    let lines = services.iter().map(|service| line(service, all));
    std::iter::once(head).chain(lines).collect()
}

fn state(service: &ServiceVersions) -> String {
    format!("{:?}", service.state).to_lowercase()
}

fn line(service: &ServiceVersions, all: bool) -> String {
    let name = &service.service;
    let state = state(service);
    let Some(runs) = &service.runs else {
        let why = service.why.as_deref().unwrap_or_default();
        return format!(
            "{name:<12} {:<10} {:<10} {:<8} {:<7} {state:<8} {why}",
            "unknown", "?", "?", "?"
        );
    };
    let written = runs
        .objects
        .iter()
        .filter(|(object, _)| all || SHOWN.contains(&object.as_str()));
    let objects: Vec<String> = written
        .map(|(object, version)| format!("{object} {version}"))
        .collect();
    let pin = runs.pin.as_deref().unwrap_or("none");
    let why = service
        .why
        .as_ref()
        .map_or(String::new(), |why| format!("; {why}"));
    let (cap, api, release) = (runs.rpc_cap.to_string(), runs.api.to_string(), &runs.release);
    let objects = objects.join(", ");
    format!("{name:<12} {release:<10} {pin:<10} {cap:<8} {api:<7} {state:<8} {objects}{why}")
}

/// The same for scripts.
pub(crate) fn row(service: ServiceVersions) -> Result<ServiceRow, CliError> {
    let unit = unit_id(service.kind, &service.service).map_err(|error| CliError::usage(error.to_string()))?;
    let runs = service.runs;
    let objects = runs.iter().flat_map(|runs| &runs.objects);
    Ok(ServiceRow {
        unit,
        state: service.state,
        objects: objects
            .map(|(object, version)| (object.clone(), version.to_string()))
            .collect(),
        release: runs.as_ref().map(|runs| runs.release.clone()),
        pin: runs.as_ref().and_then(|runs| runs.pin.clone()),
        api: runs.as_ref().map(|runs| runs.api.to_string()),
        rpc_cap: runs.as_ref().map(|runs| runs.rpc_cap.to_string()),
        why: service.why,
    })
}
