//! `gate`: answers those who ask to take hosts down.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stagger_asks::gate::{AskGate, GateError};
use stagger_engine::clock::SystemClock;

use super::{stop_asked, user};
use crate::args::{Cli, GateArgs};
use crate::clusters;
use crate::config;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::state::ledger;

/// Between two looks while somebody waits.
const BUSY: Duration = Duration::from_millis(100);
/// Between two looks while nobody does.
const IDLE: Duration = Duration::from_millis(500);
/// Between two tries where another answers, or the store is away.
const AGAIN: Duration = Duration::from_secs(2);
/// How the cluster was before is read anew after that time, while nobody asks.
const STALE: Duration = Duration::from_mins(10);

/// `gate`
pub(crate) async fn gate(cli: &Cli, args: &GateArgs) -> Result<Exit, CliError> {
    let policy = config::read(cli)?.gate_policy().ok_or_else(|| {
        CliError::usage(
            "the configuration has no [gate]: without it runs claim nothing, and would not be counted",
        )
        .hint("add a line `[gate]`; docs/guides/gate.md has its keys")
    })?;
    let cluster = clusters::of_config(cli)?;
    let ledger = ledger(cli).await?;
    let mut stop = pin!(stop_asked());
    let mut stands_by = false;
    let who = format!("{} (process {})", user(), std::process::id());
    loop {
        let built = Instant::now();
        let backend = cluster.gate_backend().await?;
        let identity = backend.identity().await?;
        let name = backend.cluster().clone();
        let clock = Arc::new(SystemClock);
        let taken = AskGate::take(
            backend,
            ledger.clone(),
            &identity,
            &name,
            &who,
            clock,
            policy.clone(),
        );
        let Some(mut gate) = taken.await? else {
            if args.once {
                return Err(CliError::new(
                    Exit::No,
                    format!("another process answers for {name} already"),
                ));
            }
            if !stands_by {
                print::status_line(&format!("another process answers for {name}: standing by"));
                stands_by = true;
            }
            tokio::select! {
                () = &mut stop => return Ok(Exit::Done),
                () = tokio::time::sleep(AGAIN) => continue,
            }
        };
        stands_by = false;
        if args.once {
            let step = gate.step().await;
            gate.leave().await?;
            let step = step.map_err(|error| CliError::caused(Exit::Unreachable, &error))?;
            print::status_line(&format!("{} granted, {} wait", step.granted_now, step.waiting));
            return Ok(Exit::Done);
        }
        print::status_line(&format!("answering for {name}"));
        let mut told = String::new();
        loop {
            let pause = match gate.step().await {
                Ok(step) => {
                    told.clear();
                    if step.waiting + step.granted > 0 {
                        BUSY
                    } else if built.elapsed() > STALE {
                        gate.leave().await?;
                        break;
                    } else {
                        IDLE
                    }
                }
                Err(GateError::Lost) => {
                    print::status_line(&format!("another process answers for {name} by now"));
                    break;
                }
                Err(error) => {
                    let text = stagger_engine::cluster::in_full(&error);
                    if text != told {
                        print::status_line(&format!("nothing is granted: {text}"));
                        told = text;
                    }
                    AGAIN
                }
            };
            tokio::select! {
                () = &mut stop => {
                    gate.leave().await?;
                    return Ok(Exit::Done);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
