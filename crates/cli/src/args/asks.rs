//! `gate`, `ask` and `hold-reboots`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use stagger_asks::AskId;
use stagger_core::model::{ClusterName, UnitId};

/// `gate`
#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Answer those who wait now, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

/// Where is asked.
#[derive(Debug, Clone, Args)]
pub(crate) struct AskDoorArgs {
    /// Ask a `stagger serve` at this address, not the store of this machine. The token is in `STAGGER_TOKEN`, or in --token-file.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The file of the token.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// The certificate of the server or of who signed it, in PEM [default: the authorities of this machine].
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) ca: Option<PathBuf>,
    /// The cluster [default: that of the configuration, else the only one].
    #[arg(long, value_name = "NAME", value_parser = cluster)]
    pub(crate) cluster: Option<ClusterName>,
}

/// `ask`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AskArgs {
    /// Or what became of asks.
    #[command(subcommand)]
    pub(crate) command: Option<AskCommand>,
    /// What is asked for.
    #[command(flatten)]
    pub(crate) put: PutAskArgs,
}

/// `ask HOST…`
#[derive(Debug, Args)]
pub(crate) struct PutAskArgs {
    /// The hosts to be taken down, with all that they carry.
    #[arg(value_name = "HOST", required_unless_present = "units")]
    pub(crate) hosts: Vec<String>,
    /// A unit by itself: osd.7. May be repeated.
    #[arg(long = "unit", value_name = "UNIT")]
    pub(crate) units: Vec<UnitId>,
    /// For how long from the grant on, at most 14 days: 20m.
    #[arg(long = "for", value_name = "TIME", default_value = "20m", value_parser = time)]
    pub(crate) hold: Duration,
    /// Wait for the grant. Without it the answer is that of now.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than that: 2h, or a time as 2026-12-01T06:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = until)]
    pub(crate) until: Option<Timestamp>,
    /// Without --wait: keep the place among those who wait for so long, until asked again.
    #[arg(long, value_name = "TIME", conflicts_with = "wait", value_parser = time)]
    pub(crate) keep: Option<Duration>,
    /// For people who look: kernel 6.12.9.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) why: String,
    /// Where is asked.
    #[command(flatten)]
    pub(crate) door: AskDoorArgs,
}

/// What else can be said of asks.
#[derive(Debug, Subcommand)]
pub(crate) enum AskCommand {
    /// What was granted is back: its grant ends. Of an ask that waits, it is withdrawn.
    #[command(after_help = "Examples: stagger ask done host7\n          stagger ask done a-0123456789abcdef")]
    Done {
        /// The ask, or a host that you have asked for.
        #[arg(value_name = "ASK|HOST")]
        what: String,
        /// Where is asked.
        #[command(flatten)]
        door: AskDoorArgs,
    },
    /// List asks and grants.
    List {
        /// Those too that are over.
        #[arg(long)]
        all: bool,
        /// Where is asked.
        #[command(flatten)]
        door: AskDoorArgs,
    },
}

/// `hold-reboots`
#[derive(Debug, Args)]
pub(crate) struct HoldRebootsArgs {
    /// What the cluster calls this host [default: its host name].
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// For how long it is down: 20m.
    #[arg(long = "for", value_name = "TIME", default_value = "20m", value_parser = time)]
    pub(crate) hold: Duration,
    /// A reboot is wanted while this file is there.
    #[arg(long, value_name = "FILE", default_value = "/run/reboot-required")]
    pub(crate) when: PathBuf,
    /// Once it is granted, reboot; else only let go what waits for it.
    #[arg(long)]
    pub(crate) reboot: bool,
    /// Where is asked.
    #[command(flatten)]
    pub(crate) door: AskDoorArgs,
}

/// The ask that a person names, or a host.
pub(crate) fn ask_id(text: &str) -> Option<AskId> {
    text.parse().ok()
}

fn cluster(text: &str) -> Result<ClusterName, String> {
    ClusterName::new(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    let time: Option<SignedDuration> = text.parse().ok();
    time.and_then(|time| Duration::try_from(time).ok())
        .filter(|time| time.as_secs() > 0)
        .ok_or_else(|| "write 20m, 2h or 1h30m".to_owned())
}

fn until(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = time(text) {
        let time = SignedDuration::try_from(time).map_err(|error| error.to_string())?;
        return Timestamp::now()
            .checked_add(time)
            .map_err(|error| error.to_string());
    }
    text.parse()
        .map_err(|_| "write 2h, or a time as 2026-12-01T06:00:00Z".to_owned())
}
