//! The commands of the configuration, with their placeholders.

use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::hosts::last_words;
use stagger_engine::template;

use crate::client::IronicClient;
use crate::config::Service;

/// A command with the words of a service, and others, in place of their names.
///
/// # Errors
/// One of them is no plain word.
pub fn filled(command: &str, service: &Service<'_>, words: &[(&str, &str)]) -> Result<String, BackendError> {
    let own = [
        ("service", service.name),
        ("kind", service.role.as_str()),
        ("host", service.host),
    ];
    template::filled(command, &[&own, words].concat())
}

/// Runs a command for a call, once; `which` tells it from others of the call. Returns what it printed.
///
/// # Errors
/// It could not be run, or did not end with 0.
pub async fn run(
    client: &dyn IronicClient,
    call: &Call,
    which: &str,
    host: &str,
    command: &str,
) -> Result<String, BackendError> {
    let key = format!("{}-{which}", call.key());
    let ran = client.run(host, &key, call.fence, command).await?;
    if ran.code == 0 {
        return Ok(ran.output);
    }
    let why = if ran.code == 124 {
        format!("it was ended, as it took too long: {}", last_words(&ran.output))
    } else {
        format!("it ended with {}: {}", ran.code, last_words(&ran.output))
    };
    Err(BackendError::permanent(format!("run `{command}` on {host}"), why))
}
