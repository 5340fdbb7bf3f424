//! `ask`: may it go down, and if not, when?

use std::pin::pin;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_asks::view::{AskDocument, AskStateWord};

use super::user;
use crate::args::{self, AskArgs, AskCommand, Cli, PutAskArgs};
use crate::ask_client::{AskClient, WantedAsk};
use crate::documents::{self, AskRows};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// A gate has judged by then, if one answers.
const JUDGED: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(200);

/// `ask`
pub(crate) async fn ask(cli: &Cli, args: &AskArgs) -> Result<Exit, CliError> {
    match &args.command {
        None => put(cli, &args.put).await,
        Some(AskCommand::Done { what, door }) => {
            let client = AskClient::open(cli, door, user()).await?;
            let ids = match args::ask_id(what) {
                Some(id) => vec![id],
                None => client
                    .open_of(what)
                    .await?
                    .into_iter()
                    .map(|ask| ask.id)
                    .collect(),
            };
            let mut ended = Vec::new();
            for id in ids {
                ended.push(client.done(&id).await?);
            }
            if ended.is_empty() {
                return Err(
                    CliError::new(Exit::No, format!("you have no ask or grant for {what}"))
                        .hint("`stagger ask list` shows those of others"),
                );
            }
            print_all(cli, ended);
            Ok(Exit::Done)
        }
        Some(AskCommand::List { all, door }) => {
            let client = AskClient::open(cli, door, user()).await?;
            let mut found = client.list().await?;
            found.retain(|ask| *all || ask.state != AskStateWord::Ended);
            print_all(cli, found);
            Ok(Exit::Done)
        }
    }
}

async fn put(cli: &Cli, args: &PutAskArgs) -> Result<Exit, CliError> {
    let client = AskClient::open(cli, &args.door, user()).await?;
    let keep = args.keep.and_then(|keep| SignedDuration::try_from(keep).ok());
    let wanted = WantedAsk {
        hosts: args.hosts.clone(),
        units: args.units.clone(),
        hold: u32::try_from(args.hold.as_secs()).unwrap_or(u32::MAX),
        until: match keep {
            Some(keep) => Timestamp::now().checked_add(keep).ok(),
            None => args.until,
        },
        lapses: keep.is_some(),
        why: args.why.clone(),
    };
    let mut ask = client.put(&wanted).await?;
    if !args.wait {
        let judged = tokio::time::Instant::now() + JUDGED;
        loop {
            ask = client.wait(&ask.id, Duration::ZERO).await?;
            let waits = ask.state == AskStateWord::Waiting;
            if !waits || !ask.answered_for || ask.reason.is_some() || tokio::time::Instant::now() >= judged {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        if ask.state == AskStateWord::Waiting && args.keep.is_none() {
            // It may have been granted at this very moment.
            let now = client.wait(&ask.id, Duration::ZERO).await?;
            if now.state == AskStateWord::Granted {
                ask = now;
            } else {
                client.done(&ask.id).await?;
            }
        }
        return Ok(answered(cli, &ask));
    }
    let mut told = String::new();
    let mut stop = pin!(super::stop_asked());
    while ask.state == AskStateWord::Waiting {
        ask = tokio::select! {
            ask = client.wait(&ask.id, Duration::from_secs(2)) => ask?,
            () = &mut stop => {
                client.done(&ask.id).await?;
                print::status_line(&format!("{} is withdrawn", ask.id));
                return Ok(Exit::Interrupted);
            }
        };
        let line = ask.line();
        if ask.state == AskStateWord::Waiting && line != told {
            print::status_line(&line);
            told = line;
        }
    }
    Ok(answered(cli, &ask))
}

fn answered(cli: &Cli, ask: &AskDocument) -> Exit {
    if cli.json {
        print::json(&documents::ASK.of(ask));
    } else {
        print::data_line(&format!("{}  {}", ask.id, ask.line()));
    }
    match ask.state {
        AskStateWord::Granted => Exit::Done,
        AskStateWord::Waiting | AskStateWord::Ended => Exit::No,
    }
}

fn print_all(cli: &Cli, asks: Vec<AskDocument>) {
    if cli.json {
        print::json(&documents::ASKS.of(&AskRows { asks }));
        return;
    }
    if asks.is_empty() {
        print::data_line("Nobody asks, and nothing is granted.");
    }
    for ask in asks {
        let names: Vec<String> = ask
            .hosts
            .iter()
            .cloned()
            .chain(ask.units.iter().map(ToString::to_string))
            .collect();
        print::data_line(&format!(
            "{}  {:<20} {:>4} min  {:<24} {}",
            ask.id,
            names.join(","),
            ask.hold.div_ceil(60),
            ask.by,
            ask.line()
        ));
    }
}
