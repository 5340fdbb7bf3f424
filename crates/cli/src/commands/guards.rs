//! `guards`, and the watcher that gives guards back at their expiry when their run was killed.
//!
//! Ceph has no `noout` that ends by itself, and Ganeti no job filter. Each run starts this program once more beside itself, as a
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
use stagger_ganeti_rapi::backend::GanetiBackend;

use super::ganeti::live::Live;
use super::ironic;
use crate::args::{self, Cli};
use crate::config;
use crate::documents::{GUARDS, Guards, HeldGuard};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// While the run lives it renews and gives back by itself: one look in a minute is enough.
const WHILE_IT_LIVES: Duration = Duration::from_mins(1);
/// Afterwards another run may take the guards over and give them back.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// How long after the last expiry that it knows a watcher tries to reach a cluster that does not answer.
const PATIENCE: SignedDuration = SignedDuration::from_hours(1);

/// `guards`
pub(crate) async fn guards(cli: &Cli, wish: &args::Guards) -> Result<Exit, CliError> {
    if wish.watch {
        return watch(cli).await;
    }
    let holder = Holder::of_config(cli)?;
    if wish.drop_expired {
        told(holder.drop_expired().await?);
    }
    let held = holder.held().await?;
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

/// Says what was given back.
pub(crate) fn told<Guard: Into<HeldGuard>>(given_back: Vec<Guard>) {
    for guard in given_back {
        print::talk(&format!(
            "{} was past its expiry and was given back",
            words(&guard.into())
        ));
    }
}

/// A guard for people: `noout on osd.1 osd.4`.
fn words(guard: &HeldGuard) -> String {
    match (guard.on.as_slice(), guard.by_others) {
        (_, true) => format!("{} (set before)", guard.guard),
        ([], false) => guard.guard.clone(),
        (on, false) => format!("{} on {}", guard.guard, on.join(" ")),
    }
}

/// The cluster that holds guards.
enum Holder {
    Ceph(Box<CephBackend>),
    Ganeti(Box<GanetiBackend>),
}

impl Holder {
    fn of_config(cli: &Cli) -> Result<Self, CliError> {
        if let Some(live) = Live::of_config(cli)? {
            return Ok(Self::Ganeti(Box::new(live.backend()?)));
        }
        let settings = config::read(cli)?.ceph()?;
        let api = Arc::new(Session::new(settings.cluster.access()));
        Ok(Self::Ceph(Box::new(CephBackend::new(api, settings, None))))
    }

    async fn held(&self) -> Result<Vec<HeldGuard>, CliError> {
        Ok(match self {
            Self::Ceph(ceph) => ceph.guards().await?.into_iter().map(HeldGuard::from).collect(),
            Self::Ganeti(ganeti) => ganeti.guards().await?.into_iter().map(HeldGuard::from).collect(),
        })
    }

    async fn drop_expired(&self) -> Result<Vec<HeldGuard>, CliError> {
        Ok(match self {
            Self::Ceph(ceph) => ceph
                .drop_expired_guards()
                .await?
                .into_iter()
                .map(HeldGuard::from)
                .collect(),
            Self::Ganeti(ganeti) => ganeti
                .drop_expired_guards()
                .await?
                .into_iter()
                .map(HeldGuard::from)
                .collect(),
        })
    }
}

/// `guards --watch`
async fn watch(cli: &Cli) -> Result<Exit, CliError> {
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
    let holder = Holder::of_config(cli)?;
    holder.drop_expired().await?;
    holder.held().await
}

/// A watcher beside a run; it learns of the run's end, whatever that is, when this is gone.
#[derive(Debug)]
pub(crate) struct Watcher(#[expect(dead_code, reason = "its pipe is what matters")] Child);

impl Watcher {
    /// Starts it, in a process group of its own.
    pub(crate) fn start(cli: &Cli) -> Result<Option<Self>, CliError> {
        // An Ironic has no guards: what is drained is drained for one visit.
        if ironic::Live::of_config(cli)?.is_some() {
            return Ok(None);
        }
        // An installation that was replaced meanwhile is still this one.
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("stagger"));
        let configuration = config::path(cli)?;
        let kind = if Live::of_config(cli)?.is_some() {
            "ganeti"
        } else {
            "ceph"
        };
        let child = Command::new(&program)
            .arg("--config")
            .arg(&configuration)
            .args([kind, "guards", "--watch"])
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
        Ok(Some(Self(child)))
    }
}
