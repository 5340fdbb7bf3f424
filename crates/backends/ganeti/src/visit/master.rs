//! The master's visit: another node becomes master before it is rebooted.
//!
//! RAPI cannot do that, so it is a command. Where stagger itself runs on the master, the run continues on the
//! successor: its journal is copied there first, then the handover is recorded in the cluster and the fencing
//! token goes up. From then on this process is refused, and so is a resume from the journal that stayed
//! behind; so exactly one of the two continues. Where the master certainly did not change, all of that is
//! revoked, and the run continues here.

use std::sync::atomic::Ordering;
use std::time::Instant;

use stagger_engine::cluster::BackendError;

use crate::commands;
use crate::lock;
use crate::visit::visitor::{CUT_OFF, SSH_LOST, Visitor};

/// Makes `to` the master instead of `from`.
///
/// # Errors
/// A command failed, the new master does not answer, or the run was handed over.
pub(crate) async fn fail_over(visitor: &Visitor<'_>, from: &str, to: &str) -> Result<(), BackendError> {
    let tried = format!("make {to} the master instead of {from}");
    let visits = &visitor.settings.cluster.visits;
    let names = [("successor", to), ("master", from)];
    let Some(failover) = &visits.failover else {
        return Err(
            BackendError::permanent(tried, "there is no command for a failover")
                .hint("give `failover` under [cluster.visits]"),
        );
    };
    let here = visitor.host.is_some_and(|host| lock::same_host(host, from));
    if here && visits.copy_journal.is_none() {
        return Err(BackendError::permanent(
            tried,
            format!("stagger runs on {from} itself, and its journal would go away with it"),
        )
        .hint("give `copy_journal` under [cluster.visits], or run stagger elsewhere"));
    }
    // A journal that is not on the master stays where it is: the run goes on there.
    if here && let Some(copy) = &visits.copy_journal {
        visitor.command("copy-journal", copy, &names).await?;
    }
    if !here {
        return change(visitor, failover, &names, to, &tried).await;
    }
    let run = &visitor.call.run;
    visitor.limits.hands_over.store(true, Ordering::Relaxed);
    let changed = async {
        lock::hand_over(visitor.rapi, run, to, visitor.call.fence).await?;
        change(visitor, failover, &names, to, &tried).await
    };
    let changed = changed.await;
    let handed_over = match changed {
        Ok(()) => {
            let why = format!("the run continues on {to}: this node is about to be rebooted");
            BackendError::transient(tried, why)
                .outcome_unknown()
                .hint(format!("`stagger resume {run}` on {to}"))
        }
        // It may still become master: then the run goes on there, and not here.
        Err(error) if error.outcome_unknown => error,
        // It certainly did not: nobody else goes on with this run.
        Err(error) => match lock::revoke_handover(visitor.rapi, run, visitor.call.fence).await {
            Ok(()) => handover_failed(error, from),
            Err(mut stranded) => {
                stranded.why = format!("{error}; and then: {}", stranded.why);
                stranded
            }
        },
    };
    visitor.limits.hands_over.store(false, Ordering::Relaxed);
    Err(handed_over)
}

fn handover_failed(error: BackendError, master: &str) -> BackendError {
    let stays = format!("{master} is still the master, and the run continues here");
    let hint = match &error.hint {
        Some(hint) => format!("{hint}; {stays}"),
        None => stays,
    };
    error.hint(hint)
}

/// Runs the command, and waits until the new master answers.
async fn change(
    visitor: &Visitor<'_>,
    failover: &str,
    names: &[(&str, &str)],
    to: &str,
    tried: &str,
) -> Result<(), BackendError> {
    let begun = Instant::now();
    // RAPI is silent while it runs: the command is bounded as the waiting is, lest the lock is lost meanwhile.
    let limit = visitor.settings.cluster.visits.failover_timeout;
    let mut settings = visitor.settings.clone();
    settings.hosts.timeout = settings.hosts.timeout.min(limit);
    let ran = commands::run_with_outcome(visitor.rapi, &settings, visitor.call, "failover", failover, names)
        .await?;
    // Cut off, or its connection lost: it may go on over there.
    let is_cut = [CUT_OFF, SSH_LOST].contains(&ran.code);
    let said = ran.outcome_text();
    if !is_cut {
        ran.output()?;
    }
    let waited = wait_for(visitor, to, begun, tried).await;
    if is_cut && let Err(mut error) = waited {
        error.why = format!("{said}; {}", error.why);
        return Err(error);
    }
    waited
}

/// RAPI answers on the new master only, and not at once.
async fn wait_for(visitor: &Visitor<'_>, to: &str, begun: Instant, tried: &str) -> Result<(), BackendError> {
    loop {
        visitor.rapi.forget_master();
        let (said, is_silent) = match visitor.rapi.get("/2/info").await {
            Ok(info) if info["master"] == to => return Ok(()),
            Ok(info) => (format!("the master is {}", info["master"]), false),
            Err(error) => (error.to_string(), true),
        };
        if begun.elapsed() > visitor.rapi.pace().failover {
            let why = format!("{said}, after {} s", begun.elapsed().as_secs());
            // Whoever becomes master answers: while nobody does, it is not known who will.
            let error = if is_silent {
                BackendError::transient(tried, why).outcome_unknown()
            } else {
                BackendError::permanent(tried, why)
            };
            return Err(
                error.hint("see `gnt-cluster getmaster` on both nodes; RAPI's `addresses` must name both")
            );
        }
        tokio::time::sleep(visitor.rapi.pace().poll).await;
    }
}
