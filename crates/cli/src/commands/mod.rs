//! The commands: each reads, calls the core, and shows or carries out.

pub(crate) mod agent;
pub(crate) mod ask;
pub(crate) mod ceph;
pub(crate) mod control;
pub(crate) mod db;
pub(crate) mod demo;
pub(crate) mod gate;
pub(crate) mod guards;
pub(crate) mod history;
pub(crate) mod hold_reboots;
pub(crate) mod hroller;
pub(crate) mod init;
pub(crate) mod ironic;
pub(crate) mod journal;
pub(crate) mod kube;
pub(crate) mod lint;
pub(crate) mod observe;
pub(crate) mod operator;
pub(crate) mod osd;
pub(crate) mod plan;
pub(crate) mod preflight;
pub(crate) mod reason;
pub(crate) mod recover;
pub(crate) mod rehearse;
pub(crate) mod report;
pub(crate) mod risks;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod succession;
pub(crate) mod verify;
pub(crate) mod versions;
pub(crate) mod watch;

use crate::state::{artifacts, run_or_newest, state_folder, store, store_location};

/// Who runs this program: `anna@ops1`.
pub(crate) fn user() -> String {
    let name = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| "unknown".to_owned());
    format!(
        "{name}@{}",
        stagger_engine::supervisor::Identity::current_process().host
    )
}

/// Returns on Ctrl-C, or when a service manager says that it is time to stop.
pub(crate) async fn stop_asked() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        tokio::signal::ctrl_c().await.ok();
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}
