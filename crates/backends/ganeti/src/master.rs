//! The master's turn: another node becomes master before it is rebooted.
//!
//! RAPI has no word for that, so it is a command. Where stagger itself runs on the master, the run goes on on
//! the successor: its journal is copied there first, then the cluster is told that the run goes on there and
//! the fencing token goes up. From then on this process is refused, and so is who resumes the run from the
//! journal that stayed behind; so exactly one of the two goes on.

use std::time::Instant;

use stagger_engine::cluster::BackendError;

use crate::visitor::{SSH_LOST, Visitor};
use crate::{commands, lock};

/// What a command ends with that was cut off at its limit.
const CUT_OFF: i32 = 124;

/// Makes `to` the master instead of `from`.
///
/// # Errors
/// A command failed, the new master does not answer, or the run was handed over.
pub async fn fail_over(visitor: &Visitor<'_>, from: &str, to: &str) -> Result<(), BackendError> {
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
    if let Some(copy) = &visits.copy_journal {
        visitor.command("copy-journal", copy, &names).await?;
    }
    if here {
        lock::hand_over(visitor.rapi, &visitor.call.run, to, visitor.call.fence).await?;
    }
    let begun = Instant::now();
    // RAPI is silent while it runs: the command is bounded as the waiting is, lest the lock is lost meanwhile.
    let mut settings = visitor.settings.clone();
    settings.hosts.timeout = settings.hosts.timeout.min(visits.failover_timeout);
    let ran = commands::ran(
        visitor.rapi,
        &settings,
        visitor.call,
        "failover",
        failover,
        &names,
    )
    .await?;
    // Cut off, or its connection lost: it may go on over there.
    let is_cut = [CUT_OFF, SSH_LOST].contains(&ran.code);
    let said = ran.said();
    if !is_cut {
        ran.whole()?;
    }
    let waited = wait_for(visitor, to, begun, &tried).await;
    if is_cut && let Err(mut error) = waited {
        error.why = format!("{said}; {}", error.why);
        return Err(error);
    }
    waited?;
    if here {
        let run = &visitor.call.run;
        let why = format!("the run goes on on {to}: this node is about to be rebooted");
        return Err(BackendError::transient(tried, why)
            .outcome_unknown()
            .hint(format!("`stagger resume {run}` on {to}")));
    }
    Ok(())
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
