//! A Ganeti in a file: its text format, a request to an allocator, a folder of RAPI bodies; or asked by luxi.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::value::RawValue;
use stagger_ganeti::loaders::iallocator;
use stagger_ganeti::loaders::luxi;
use stagger_ganeti::loaders::rapi::{Bodies, FILES, without_parameters};
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::Cluster;

use crate::error::CliError;
use crate::exit::Exit;

/// Its first line is a group: fields between bars, of which the third is an allocation policy.
pub(super) fn starts_as_text(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = std::fs::File::open(path).map(|file| file.take(4096).read_to_end(&mut start));
    if !matches!(read, Ok(Ok(_))) {
        return false;
    }
    let start = String::from_utf8_lossy(&start);
    let first = start.lines().next().unwrap_or_default();
    !first.trim_start().starts_with(['{', '[']) && first.split('|').count() >= 4
}

/// Reads a cluster in the text format.
pub(crate) fn text_at(path: &Path) -> Result<Cluster, CliError> {
    cluster_of_text(path, &text_of(path)?)
}

/// The text of such a file.
pub(super) fn text_of(path: &Path) -> Result<String, CliError> {
    let bytes =
        std::fs::read(path).map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let good = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        let line = good.matches('\n').count() + 1;
        no_text(path, format!("line {line}: it is not UTF-8"))
    })
}

/// The cluster of a text that was read from there.
pub(super) fn cluster_of_text(path: &Path, text: &str) -> Result<Cluster, CliError> {
    text::read(text).map_err(|error| no_text(path, error.to_string()))
}

fn no_text(path: &Path, why: String) -> CliError {
    let mut refused = CliError::usage(format!(
        "{} is no cluster in Ganeti's text format",
        path.display()
    ));
    refused.causes.push(why);
    refused
}

/// The bodies in a folder, as an inventory keeps them.
pub(super) fn bodies_kept(folder: &Path) -> Result<BTreeMap<String, Box<RawValue>>, CliError> {
    let bodies = FILES.into_iter().map(|file| {
        let path = folder.join(file);
        let wrong = |why: String| CliError::usage(format!("read {}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let body = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let body = serde_json::value::to_raw_value(&without_parameters(body));
        Ok((file.to_owned(), body.map_err(|error| wrong(error.to_string()))?))
    });
    bodies.collect()
}

/// Reads a request to an allocator. A node of a KVM cluster needs so much memory for itself, as everywhere below.
pub(crate) fn request_at(path: &Path, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    iallocator::read(&text, kvm_node_memory).map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Reads a folder of RAPI bodies.
pub(crate) fn bodies_at(folder: &Path, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let bodies = Bodies::in_folder(folder).and_then(|bodies| bodies.cluster_with(kvm_node_memory));
    bodies.map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Asks the daemon of the master that this machine is.
pub(crate) fn luxi_at(socket: &str, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let bodies = luxi::bodies_at(Path::new(socket)).map_err(|error| {
        CliError::caused(Exit::Unreachable, &error).hint(
            "ganeti-luxid listens on the master only; from elsewhere give -m with the cluster's address",
        )
    })?;
    bodies
        .cluster_with(kvm_node_memory)
        .map_err(|error| CliError::caused(Exit::Usage, &error))
}
