//! `guards`, and the watcher that clears guards at their expiry when their run was killed.
//!
//! Ceph has no `noout` with an expiry, and Ganeti no such job filter. Each run starts this program a second
//! time, as a process of its own that outlives it. It holds the reading end of a pipe whose other end is the
//! run's: however the run ends, the pipe closes. Then the watcher stays until the last guard is cleared, by
//! any process, or until its time has come.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use stagger_engine::heartbeats::Heartbeats;

use crate::args::{self, Cli};
use crate::clusters;
use crate::clusters::guards::{GuardHolder, HeldGuards};
use crate::config;
use crate::documents::{GUARDS, Guards, HeldGuard};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use stagger_report::duration;

/// While the run lives it renews and gives back by itself: one look in a minute is enough.
const WHILE_IT_LIVES: Duration = Duration::from_mins(1);
/// Afterwards another run may take the guards over and give them back.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// How long after the last expiry that there may be a watcher tries to reach a cluster that does not answer.
const PATIENCE: Duration = Duration::from_hours(1);

/// `guards`
pub(crate) async fn guards(cli: &Cli, args: &args::GuardsArgs) -> Result<Exit, CliError> {
    if args.watch {
        return watch(cli).await;
    }
    let holder = holder(cli)?;
    if args.drop_expired {
        drop_expired(&holder).await?;
    }
    let held = holder.held().await?;
    if cli.json {
        print::json(&GUARDS.of(&Guards { guards: held }));
        return Ok(Exit::Done);
    }
    if held.is_empty() {
        print::data_line("No guard is held.");
    }
    for guard in &held {
        print::data_line(&format!(
            "{}, run {}, until {}",
            guard_text(guard),
            guard.run,
            guard.until
        ));
    }
    Ok(Exit::Done)
}

/// Gives back what nobody renews any more.
pub(super) async fn clear_expired(cli: &Cli) -> Result<(), CliError> {
    drop_expired(&holder(cli)?).await
}

/// Watches each guard for as long as it lasts, and gives back what nobody has renewed meanwhile. One look is not enough: the
/// clock of who took it may be any other.
async fn drop_expired(holder: &GuardHolder) -> Result<(), CliError> {
    let (mut beats, begun) = (Heartbeats::default(), Instant::now());
    let mut told = false;
    loop {
        let HeldGuards {
            gone,
            held,
            next,
            longest,
        } = holder.clear_expired_and_list(&mut beats).await?;
        for guard in gone {
            print::status_line(&format!(
                "{} expired without renewal, and was cleared",
                guard_text(&guard)
            ));
        }
        let longest = longest.unwrap_or_default();
        // What is there now was renewed since the first look: its holder lives.
        if held.is_empty() || begun.elapsed() > longest {
            return Ok(());
        }
        if !told {
            let s = if held.len() == 1 { "" } else { "s" };
            print::status_line(&format!(
                "watching {} guard{s} for up to {}: a guard that its holder renews stays",
                held.len(),
                duration(SignedDuration::try_from(longest).unwrap_or_default())
            ));
            told = true;
        }
        let soon = next.unwrap_or(AFTERWARDS) + Duration::from_secs(1);
        tokio::time::sleep(soon.min(AFTERWARDS)).await;
    }
}

/// A guard for people: `noout on osd.1 osd.4`.
fn guard_text(guard: &HeldGuard) -> String {
    match (guard.on.as_slice(), guard.by_others) {
        (_, true) => format!("{} (set before)", guard.guard),
        ([], false) => guard.guard.clone(),
        (on, false) => format!("{} on {}", guard.guard, on.join(" ")),
    }
}

/// The cluster of the configuration, if it keeps guards.
fn holder(cli: &Cli) -> Result<GuardHolder, CliError> {
    let held = clusters::of_config(cli)?.guards()?;
    held.ok_or_else(|| CliError::usage("Ironic has no guards: a service is drained for one visit"))
}

/// `guards --watch`
async fn watch(cli: &Cli) -> Result<Exit, CliError> {
    // The terminal may be closed; Ctrl-C is meant for the run.
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    let configuration = config::path(cli)?;
    let mut run = stdin_ends();
    let (mut lives, mut beats) = (true, Heartbeats::default());
    // Until then a cluster that does not answer is asked again.
    let mut patient = Instant::now() + PATIENCE;
    loop {
        let mut pause = if lives { WHILE_IT_LIVES } else { AFTERWARDS };
        match list_guards(cli, &mut beats).await {
            Ok(looked) if looked.held.is_empty() && !lives => return Ok(Exit::Done),
            Ok(looked) => {
                patient = Instant::now() + looked.longest.unwrap_or_default() + PATIENCE;
                if let Some(next) = looked.next {
                    pause = pause.min(next + Duration::from_secs(1));
                }
                if let Some(longest) = looked.longest {
                    // A renewal that is seen late makes the guard stay later.
                    pause = pause.min((longest / 8).max(Duration::from_secs(1)));
                }
            }
            // A cluster that was taken away needs no watcher.
            Err(error) if !lives && (patient < Instant::now() || !configuration.exists()) => {
                return Err(error);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = hangup.recv() => {}
            _ = &mut run, if lives => lives = false,
        }
    }
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

async fn list_guards(cli: &Cli, beats: &mut Heartbeats) -> Result<HeldGuards, CliError> {
    holder(cli)?.clear_expired_and_list(beats).await
}

/// A watcher beside a run; it learns of the run's end, whatever that is, when this is gone.
#[derive(Debug)]
pub(crate) struct GuardWatcher(#[expect(dead_code, reason = "its pipe is what matters")] Child);

impl GuardWatcher {
    /// Starts it, in a process group of its own.
    pub(crate) fn start(cli: &Cli) -> Result<Option<Self>, CliError> {
        let Some(holder) = clusters::of_config(cli)?.guards()? else {
            return Ok(None);
        };
        // An installation that was replaced meanwhile is still this one.
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("stagger"));
        let configuration = config::path(cli)?;
        let child = Command::new(&program)
            .arg("--config")
            .arg(&configuration)
            .args([holder.command(), "guards", "--watch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                CliError::usage(format!(
                    "start {} beside the run, to clear guards at their expiry: {error}",
                    program.display()
                ))
            })?;
        Ok(Some(Self(child)))
    }
}
