//! `hold-reboots`: no reboot of this host without a grant, as far as logind asks anybody.

use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use stagger_asks::view::{AskDocument, AskStateWord};
use stagger_engine::supervisor::Identity;
use tokio::process::{Child, Command};

use super::{stop_asked, user};
use crate::args::{Cli, HoldRebootsArgs};
use crate::ask_client::{AskClient, WantedAsk};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// How often it is looked at whether a reboot is wanted.
const LOOK: Duration = Duration::from_secs(5);
/// The same while an answer is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// `hold-reboots`
pub(crate) async fn hold_reboots(cli: &Cli, args: &HoldRebootsArgs) -> Result<Exit, CliError> {
    let host = match &args.host {
        Some(host) => host.clone(),
        None => Identity::current_process().host,
    };
    let client = AskClient::open(cli, &args.door, user()).await?;
    // Whoever starts this has booted: what was granted before is over.
    for open in client.open_of(&host).await? {
        client.done(&open.id).await?;
        print::status_line(&format!("{host} is back: {} is over", open.id));
    }
    let mut inhibitor = Some(inhibit(&host)?);
    print::status_line(&format!("reboots of {host} are held until they are granted"));
    let mut ask: Option<AskDocument> = None;
    let mut told = String::new();
    let mut stop = pin!(stop_asked());
    loop {
        let pause = if ask.is_some() { LOOK_AGAIN } else { LOOK };
        tokio::select! {
            () = &mut stop => {
                if let Some(ask) = &ask { client.done(&ask.id).await.ok(); }
                return Ok(Exit::Done);
            }
            ended = ended(inhibitor.as_mut()) => {
                return Err(CliError::new(Exit::Unreachable, format!("systemd-inhibit ended: {ended}"))
                    .hint("it needs logind, and the right to inhibit: run it as root, in a service"));
            }
            () = tokio::time::sleep(pause) => {}
        }
        let is_wanted = args.when.exists();
        // A store or server that is away grants nothing: the reboot stays held.
        let now = match next(&client, &host, args, is_wanted, ask.take()).await {
            Ok(now) => now,
            Err(error) => {
                let line = format!("still held: {}", error.message);
                if line != told {
                    print::status_line(&line);
                    told = line;
                }
                continue;
            }
        };
        let granted = now.as_ref().is_some_and(|ask| ask.state == AskStateWord::Granted);
        if let Some(line) = now.as_ref().map(AskDocument::line)
            && line != told
        {
            print::status_line(&line);
            told = line;
        }
        match (granted, inhibitor.take()) {
            (true, Some(mut held)) => {
                held.kill().await?;
                print::status_line(&format!("a reboot of {host} may go now"));
                if args.reboot {
                    reboot().await?;
                }
            }
            (false, None) => {
                inhibitor = Some(inhibit(&host)?);
                print::status_line(&format!("the grant is over: reboots of {host} are held again"));
            }
            (_, held) => inhibitor = held,
        }
        ask = now.filter(|ask| ask.state != AskStateWord::Ended);
    }
}

/// What stands of our ask now.
async fn next(
    client: &AskClient,
    host: &str,
    args: &HoldRebootsArgs,
    is_wanted: bool,
    ask: Option<AskDocument>,
) -> Result<Option<AskDocument>, CliError> {
    match (is_wanted, ask) {
        (true, None) => {
            // One that was lost sight of while the store was away is still ours.
            if let Some(open) = client.open_of(host).await?.into_iter().next() {
                return Ok(Some(open));
            }
            let wanted = WantedAsk {
                hosts: vec![host.to_owned()],
                units: Vec::new(),
                hold: u32::try_from(args.hold.as_secs()).unwrap_or(u32::MAX),
                until: None,
                lapses: false,
                why: "a reboot is required".to_owned(),
            };
            client.put(&wanted).await.map(Some)
        }
        (true, Some(ask)) => client.wait(&ask.id, Duration::ZERO).await.map(Some),
        (false, Some(ask)) => client.done(&ask.id).await.map(|_| None),
        (false, None) => Ok(None),
    }
}

fn inhibit(host: &str) -> Result<Child, CliError> {
    let why = format!("reboots of {host} go through `stagger ask`");
    Command::new("systemd-inhibit")
        .args(["--what=shutdown", "--mode=block", "--who=stagger"])
        .arg(format!("--why={why}"))
        .args(["sleep", "infinity"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            CliError::usage(format!("start systemd-inhibit: {error}")).hint(
                "without logind there is nothing that holds a reboot: `stagger ask` in front of it does",
            )
        })
}

async fn ended(inhibitor: Option<&mut Child>) -> String {
    match inhibitor {
        None => std::future::pending().await,
        Some(child) => match child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        },
    }
}

async fn reboot() -> Result<(), CliError> {
    let status = Command::new("systemctl").arg("reboot").status().await?;
    if status.success() {
        return Ok(());
    }
    Err(CliError::new(
        Exit::No,
        format!("`systemctl reboot` ended with {status}"),
    ))
}
