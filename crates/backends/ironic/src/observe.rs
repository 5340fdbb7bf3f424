//! One look at everything.

use futures::future::join_all;
use jiff::Timestamp;
use stagger_engine::hosts::last_words;

use crate::balancer::BalancerStatus;
use crate::client::IronicClient;
use crate::commands::filled;
use crate::config::IronicConfig;
use crate::facts::{Facts, Known};
use crate::records::RecordStore;

/// All facts, now.
pub async fn look(client: &dyn IronicClient, book: &RecordStore, config: &IronicConfig) -> Facts {
    let at = Timestamp::now();
    let pins = config.services().map(|service| async move {
        let pin = match &service.commands.read_pin {
            None => Known::No("there is no command `read_pin`".to_owned()),
            Some(command) => match filled(command, &service, &[]) {
                Ok(command) => pin(client, service.host, &command).await,
                Err(error) => Known::No(error.to_string()),
            },
        };
        (service.name.to_owned(), pin)
    });
    let (apis, conductors, database, balancer, pins, records) = futures::join!(
        client.apis(),
        client.conductors(),
        client.database(),
        balancer(client, config),
        join_all(pins),
        book.read(),
    );
    Facts {
        at,
        apis,
        conductors,
        database,
        balancer,
        pins: pins.into_iter().collect(),
        records: match records {
            Ok(records) => Known::Yes(records),
            Err(error) => Known::No(error.to_string()),
        },
    }
}

/// The balancer's servers, now.
pub async fn balancer(client: &dyn IronicClient, config: &IronicConfig) -> Known<BalancerStatus> {
    let command = &config.balancer.show;
    match client.ask(&config.balancer.host, command).await {
        Err(error) => Known::No(error.to_string()),
        Ok(ran) if ran.code != 0 => Known::No(format!(
            "`{command}` ended with {}: {}",
            ran.code,
            last_words(&ran.output)
        )),
        Ok(ran) => match BalancerStatus::read(&ran.output) {
            Ok(shown) => Known::Yes(shown),
            Err(error) => Known::No(format!("`{command}`: {error}")),
        },
    }
}

/// The pin that a service's next start reads.
pub async fn pin(client: &dyn IronicClient, host: &str, command: &str) -> Known<Option<String>> {
    match client.ask(host, command).await {
        Err(error) => Known::No(error.to_string()),
        Ok(ran) if ran.code != 0 => Known::No(format!(
            "`{command}` ended with {}: {}",
            ran.code,
            last_words(&ran.output)
        )),
        Ok(ran) => {
            let words: Vec<&str> = ran.output.split_whitespace().collect();
            match words.as_slice() {
                [] => Known::Yes(None),
                [pin] => Known::Yes(Some((*pin).to_owned())),
                _ => Known::No(format!(
                    "`{command}` printed {:?}, and a pin is one word",
                    ran.output
                )),
            }
        }
    }
}
