//! `ceph guards`, and the watcher that gives guards back at their expiry when their run was killed.
//!
//! Ceph has no `noout` that ends by itself. Each run starts this program once more beside itself, as a
//! process of its own that outlives it. It holds the reading end of a pipe whose other end is the run's:
//! however the run ends, the pipe says so. Then the watcher stays until the last guard is gone, whoever
//! gave it back, or until its time has come.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::guards::HeldGuard;

use crate::args::Cli;
use crate::config;
use crate::documents::{GUARDS, Guards};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// While the run lives it renews and gives back by itself: one look in a minute is enough.
const WHILE_IT_LIVES: Duration = Duration::from_mins(1);
/// Afterwards another run may take the guards over and give them back.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// How long after the last expiry that it knows a watcher tries to reach a cluster that does not answer.
const PATIENCE: SignedDuration = SignedDuration::from_hours(1);

/// `ceph guards`
pub(crate) async fn show(cli: &Cli, drop_expired: bool) -> Result<Exit, CliError> {
    let backend = backend(cli)?;
    if drop_expired {
        for guard in backend.drop_expired_guards().await? {
            print::talk(&format!(
                "{} was past its expiry and was given back",
                words(&guard)
            ));
        }
    }
    let held = backend.guards().await?;
    if cli.json {
        print::json(&GUARDS.of(&Guards { guards: held }));
        return Ok(Exit::Done);
    }
    if held.is_empty() {
        print::out("No guard is held.");
    }
    for guard in &held {
        print::out(&format!(
            "{}, run {}, until {}",
            words(guard),
            guard.run,
            guard.until
        ));
    }
    Ok(Exit::Done)
}

/// A guard for people: `noout on osd.1 osd.4`.
pub(crate) fn words(guard: &HeldGuard) -> String {
    if guard.on.is_empty() {
        format!("{} (set before)", guard.guard)
    } else {
        format!("{} on {}", guard.guard, guard.on.join(" "))
    }
}

fn backend(cli: &Cli) -> Result<CephBackend, CliError> {
    let settings = config::read(cli)?.ceph();
    let api = Arc::new(Session::new(settings.cluster.access()));
    Ok(CephBackend::new(api, settings, None))
}

/// `ceph guards --watch`
pub(crate) async fn watch(cli: &Cli) -> Result<Exit, CliError> {
    // The terminal may be closed; Ctrl-C is meant for the run.
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    let configuration = config::path(cli)?;
    let mut run = stdin_ends();
    let (mut lives, mut last_expiry) = (true, Timestamp::now());
    loop {
        let mut pause = if lives { WHILE_IT_LIVES } else { AFTERWARDS };
        match look(cli).await {
            Ok(held) if held.is_empty() && !lives => return Ok(Exit::Done),
            Ok(held) => {
                let now = Timestamp::now();
                if let Some(latest) = held.iter().map(|guard| guard.until).max() {
                    last_expiry = latest;
                }
                if let Some(next) = held.iter().map(|guard| guard.until).min() {
                    let until = Duration::try_from(now.duration_until(next)).unwrap_or_default();
                    pause = pause.min(until + Duration::from_secs(1));
                }
            }
            // A cluster that was taken away needs no watcher.
            Err(error) if !lives && (is_over(last_expiry) || !configuration.exists()) => return Err(error),
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = hangup.recv() => {}
            _ = &mut run, if lives => lives = false,
        }
    }
}

/// Whether a watcher that knows of no later expiry gives up on a cluster that does not answer.
fn is_over(last_expiry: Timestamp) -> bool {
    last_expiry
        .saturating_add(PATIENCE)
        .is_ok_and(|end| end < Timestamp::now())
}

/// Resolves when stdin has ended.
fn stdin_ends() -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nobody writes to it; an error is an end as well.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        tell.send(()).ok();
    });
    told
}

/// Gives back what is past its expiry. What is held then?
async fn look(cli: &Cli) -> Result<Vec<HeldGuard>, CliError> {
    let backend = backend(cli)?;
    backend.drop_expired_guards().await?;
    Ok(backend.guards().await?)
}

/// A watcher beside a run; it learns of the run's end, whatever that is, when this is gone.
#[derive(Debug)]
pub(crate) struct Watcher(#[expect(dead_code, reason = "its pipe is what matters")] Child);

impl Watcher {
    /// Starts it, in a process group of its own.
    pub(crate) fn start(cli: &Cli) -> Result<Self, CliError> {
        // An installation that was replaced meanwhile is still this one.
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("stagger"));
        let configuration = config::path(cli)?;
        let child = Command::new(&program)
            .arg("--config")
            .arg(&configuration)
            .args(["ceph", "guards", "--watch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                CliError::usage(format!(
                    "start {} beside the run, so that guards go at their expiry: {error}",
                    program.display()
                ))
            })?;
        Ok(Self(child))
    }
}
