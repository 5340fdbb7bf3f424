//! Commands of the configuration, run on this machine: for what RAPI cannot do.
//!
//! Names in braces are placeholders; a value that is no plain word is refused. `{master}` is the current
//! master, and `{reason}` is the reason that a job must carry to pass while other jobs are held.

use std::process::Stdio;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use stagger_core::model::UnitId;
use stagger_core::run::Answer;
use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::hosts::{WHENEVER, last_words};
use stagger_engine::template;

use crate::config::GanetiSettings;
use crate::rapi::client::Rapi;
use crate::rapi::reason::{JobReason, PREFIX};

/// A command that has ended.
#[derive(Debug)]
pub struct CommandOutcome {
    command: String,
    /// What it ended with.
    pub code: i32,
    output: String,
}

impl CommandOutcome {
    /// How it ended, in words.
    pub fn outcome_text(&self) -> String {
        let Self {
            command,
            code,
            output,
        } = self;
        format!("`{command}` ended with {code}: {}", last_words(output))
    }

    /// What it printed.
    ///
    /// # Errors
    /// It did not end with 0.
    pub fn output(self) -> Result<String, BackendError> {
        let Self {
            command,
            code,
            output,
        } = self;
        if code == 0 {
            return Ok(output);
        }
        Err(BackendError::permanent(
            format!("run `{command}`"),
            format!("it ended with {code}: {}", last_words(&output)),
        ))
    }
}

/// Runs a command for a call, once: the same again returns the same result. `which` tells it from others of
/// the call.
///
/// # Errors
/// It could not be run, or did not end with 0.
pub async fn run(
    rapi: &Rapi,
    settings: &GanetiSettings,
    call: &Call,
    which: &str,
    command: &str,
    names: &[(&str, &str)],
) -> Result<String, BackendError> {
    run_with_outcome(rapi, settings, call, which, command, names)
        .await?
        .output()
}

/// The same, however it ends.
///
/// # Errors
/// It could not be run.
pub async fn run_with_outcome(
    rapi: &Rapi,
    settings: &GanetiSettings,
    call: &Call,
    which: &str,
    command: &str,
    names: &[(&str, &str)],
) -> Result<CommandOutcome, BackendError> {
    let reason = JobReason::new(call, which, 0).to_string();
    let command = filled(rapi, command, names, &reason).await?;
    let key = format!("{}-{which}", call.key());
    let ran = settings
        .hosts
        .run("this machine", &key, call.fence, &command, WHENEVER)
        .await?;
    Ok(CommandOutcome {
        command,
        code: ran.code,
        output: ran.output,
    })
}

/// Asks a command that changes nothing: 0 is yes, 1 is no, and what it prints is why.
///
/// # Errors
/// The master is not known.
pub async fn ask(
    rapi: &Rapi,
    settings: &GanetiSettings,
    command: &str,
    names: &[(&str, &str)],
) -> Result<Answer, BackendError> {
    // A question belongs to no intent: its jobs, if it makes any, pass the drain, and are taken for none of ours.
    let command = filled(rapi, command, names, &format!("{PREFIX}question")).await?;
    let asked = tokio::process::Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let limit = Duration::from_secs(settings.hosts.timeout);
    let unknown = |why: String| Answer::Unknown {
        why: format!("`{command}` {why}"),
    };
    let output = match tokio::time::timeout(limit, asked).await {
        Err(_) => return Ok(unknown(format!("has not ended after {} s", limit.as_secs()))),
        Ok(Err(error)) => return Ok(unknown(format!("cannot be run: {error}"))),
        Ok(Ok(output)) => output,
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let said = last_words(&said);
    Ok(match output.status.code() {
        Some(0) => Answer::Yes,
        Some(1) if said.is_empty() => Answer::No {
            why: format!("`{command}` says no"),
        },
        Some(1) => Answer::No { why: said.to_owned() },
        Some(code) => unknown(format!("ended with {code}: {said}")),
        None => unknown("was killed".to_owned()),
    })
}

/// So many nodes are asked at once.
const AT_ONCE: usize = 8;

/// Asks a command for each of these nodes, some at a time. The answers come in no order.
pub async fn ask_each(
    rapi: &Rapi,
    settings: &GanetiSettings,
    command: &str,
    nodes: Vec<UnitId>,
) -> Vec<(UnitId, Result<Answer, BackendError>)> {
    stream::iter(nodes)
        .map(|node| async move {
            let answer = ask(rapi, settings, command, &[("node", node.as_str())]).await;
            (node, answer)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

/// `{reason}` lets the jobs of a command pass while those of others wait, unless the caller has a better one.
async fn filled(
    rapi: &Rapi,
    command: &str,
    names: &[(&str, &str)],
    reason: &str,
) -> Result<String, BackendError> {
    const MASTER: &str = "{master}";
    let has_reason = names.iter().any(|(name, _)| *name == "reason");
    let with_reason: Vec<(&str, &str)> = names
        .iter()
        .copied()
        .chain((!has_reason).then_some(("reason", reason)))
        .collect();
    let names = with_reason.as_slice();
    if !command.contains(MASTER) || names.iter().any(|(name, _)| *name == "master") {
        return template::filled(command, names);
    }
    let info = rapi.get("/2/info").await;
    let info = info.map_err(|error| error.of(format!("find the master for `{command}`"), false))?;
    let master = info["master"].as_str().unwrap_or_default();
    let names = [names, &[("master", master)]].concat();
    template::filled(command, &names)
}
