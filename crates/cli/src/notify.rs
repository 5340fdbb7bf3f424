//! Notifications: the events of a run, by webhook or by a command.
//!
//! A thread of its own reads the journal and delivers the messages, in order, to each receiver separately,
//! with retries. So the run never waits for a receiver, and messages that a killed process did not deliver,
//! the next process delivers.

mod message;
mod outbox;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use message::{Importance, Message};
pub(crate) use outbox::Notifier;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// Somebody who is told. Exactly one of `webhook` and `command`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receiver {
    /// Where messages are sent by HTTP. The path is often a secret: it is not shown.
    #[serde(serialize_with = "without_path", skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    /// A program with its arguments, which has the message on its standard input.
    pub(crate) command: Option<Vec<String>>,
    /// A file whose first line is the key that messages are signed with, as Standard Webhooks does.
    pub(crate) secret_file: Option<PathBuf>,
    /// How a message is written.
    #[serde(default)]
    pub(crate) format: Format,
    /// What is told.
    #[serde(default)]
    pub(crate) tell: NotifyLevel,
}

/// How a message to a webhook is written. A command has plain text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// A `CloudEvent` 1.0, structured, as JSON.
    #[default]
    Cloudevents,
    /// `{"text": "…"}`, as Slack, Mattermost and Rocket.Chat take it.
    Text,
}

/// What is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NotifyLevel {
    /// What is worth waking somebody for: a run that needs you, a wave that failed, an end that is not the target.
    #[default]
    Urgent,
    /// And what the run comes to otherwise, in a digest.
    All,
}

#[expect(clippy::ref_option, reason = "serde hands it so")]
fn without_path<S: serde::Serializer>(url: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    let shown = url.as_deref().map(|url| format!("{}/…", origin(url)));
    shown.serialize(to)
}

/// Scheme and host of an address.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", host.rsplit('@').next().unwrap_or_default())
}

impl Receiver {
    /// What it is called in messages: no path and no query of its address, which may be a secret.
    pub(crate) fn name(&self) -> String {
        match (&self.webhook, &self.command) {
            (Some(url), _) => origin(url),
            (None, Some(command)) => command.first().cloned().unwrap_or_default(),
            (None, None) => String::new(),
        }
    }

    /// What is wrong with it.
    pub(crate) fn verify(&self) -> Result<(), String> {
        match (&self.webhook, &self.command) {
            (Some(url), None) if !url.starts_with("https://") && !url.starts_with("http://") => Err(format!(
                "[[notify]] webhook: {:?} is no address that starts with https:// or http://",
                self.name()
            )),
            (None, Some(command)) if command.first().is_none_or(String::is_empty) => {
                Err("[[notify]] command: it names no program".to_owned())
            }
            (None, Some(_)) if self.secret_file.is_some() => {
                Err("[[notify]] secret_file: only what is sent to a webhook is signed".to_owned())
            }
            (Some(_), None) | (None, Some(_)) => Ok(()),
            (Some(_), Some(_)) | (None, None) => {
                Err("[[notify]]: it has a webhook or a command, one of them".to_owned())
            }
        }
    }
}

/// Refuses receivers that cannot be told anything: a secret that cannot be read.
pub(crate) fn verify(receivers: &[Receiver]) -> Result<(), CliError> {
    for receiver in receivers {
        receiver.verify().map_err(CliError::usage)?;
        send::Sender::new(receiver)?;
    }
    Ok(())
}

/// Tells each receiver that this works; what came of it, of each.
pub(crate) async fn test(
    receivers: &[Receiver],
    cluster: &str,
) -> Result<Vec<(String, Result<(), String>)>, CliError> {
    let mut told = Vec::new();
    for receiver in receivers {
        let sender = send::Sender::new(receiver)?;
        let sent = sender.send(&Message::test(cluster)).await;
        told.push((receiver.name(), sent.map_err(|failed| failed.why)));
    }
    Ok(told)
}
