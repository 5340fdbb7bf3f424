//! Observes everything once, and asks what the code of a release lists.

use futures::future::join_all;
use jiff::Timestamp;
use stagger_engine::hosts::{Ran, last_words};
use stagger_engine::template;

use crate::balancer::BalancerStatus;
use crate::client::IronicClient;
use crate::commands::filled;
use crate::config::{IronicConfig, Tools};
use crate::facts::IronicFacts;
use crate::records::RecordStore;
use crate::release_code::{QUESTION, ReleaseCode};
use crate::releases::Releases;
use stagger_core::model::Fact;

/// All facts, now.
pub async fn collect_facts(
    client: &dyn IronicClient,
    book: &RecordStore,
    config: &IronicConfig,
) -> IronicFacts {
    let at = Timestamp::now();
    let pins = config.services().map(|service| async move {
        let pin = match &service.commands.read_pin {
            None => Fact::No("there is no command `read_pin`".to_owned()),
            Some(command) => match filled(command, &service, &[]) {
                Ok(command) => pin(client, service.host, &command).await,
                Err(error) => Fact::No(error.to_string()),
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
    IronicFacts {
        at,
        apis,
        conductors,
        database,
        balancer,
        pins: pins.into_iter().collect(),
        records: match records {
            Ok(records) => Fact::Yes(records),
            Err(error) => Fact::No(error.to_string()),
        },
        code: None,
    }
}

/// The servers, now: those of the balancer, and conductors that are called over RabbitMQ.
pub async fn balancer(client: &dyn IronicClient, config: &IronicConfig) -> Fact<BalancerStatus> {
    let (shown, routing) = futures::join!(haproxy(client, config), client.routing());
    match (shown, routing) {
        (shown, None) => shown,
        (Fact::Yes(mut shown), Some(Fact::Yes(routing))) => {
            shown.servers.extend(routing.servers(config));
            Fact::Yes(shown)
        }
        (Fact::No(why), _) | (_, Some(Fact::No(why))) => Fact::No(why),
    }
}

async fn haproxy(client: &dyn IronicClient, config: &IronicConfig) -> Fact<BalancerStatus> {
    let command = &config.balancer.show;
    match client.ask(&config.balancer.host, command).await {
        Err(error) => Fact::No(error.to_string()),
        Ok(ran) if ran.code != 0 => Fact::No(format!(
            "`{command}` ended with {}: {}",
            ran.code,
            last_words(&ran.output)
        )),
        Ok(ran) => match BalancerStatus::read(&ran.output) {
            Ok(shown) => Fact::Yes(shown),
            Err(error) => Fact::No(format!("`{command}`: {error}")),
        },
    }
}

/// The pin that a service's next start reads.
pub async fn pin(client: &dyn IronicClient, host: &str, command: &str) -> Fact<Option<String>> {
    match client.ask(host, command).await {
        Err(error) => Fact::No(error.to_string()),
        Ok(ran) if ran.code != 0 => Fact::No(format!(
            "`{command}` ended with {}: {}",
            ran.code,
            last_words(&ran.output)
        )),
        Ok(ran) => {
            let words: Vec<&str> = ran.output.split_whitespace().collect();
            match words.as_slice() {
                [] => Fact::Yes(None),
                [pin] => Fact::Yes(Some((*pin).to_owned())),
                _ => Fact::No(format!(
                    "`{command}` printed {:?}, and a pin is one word",
                    ran.output
                )),
            }
        }
    }
}

/// The newest release among the services of which the table knows nothing, as it is written down.
pub(crate) fn unknown_release<'a>(
    facts: &'a IronicFacts,
    config: &'a IronicConfig,
    table: &Releases,
) -> Option<&'a str> {
    let written = facts
        .records
        .get()
        .into_iter()
        .flat_map(|records| records.services.values());
    let running = written.map(|record| record.release.as_str());
    let parts =
        |release: &&str| -> Vec<u32> { release.split('.').map_while(|part| part.parse().ok()).collect() };
    running
        .chain([config.installed.as_str()])
        .filter(|release| !table.has(release))
        .max_by_key(parts)
}

/// What the code of that release says, asked where the tools are; `None`: nothing says by which Python.
pub async fn release_code(
    client: &dyn IronicClient,
    tools: &Tools,
    release: &str,
) -> Option<Fact<ReleaseCode>> {
    let python = tools.python.as_ref()?;
    Some(match ask(client, &tools.host, python, release).await {
        Ok(code) => Fact::Yes(code),
        Err(why) => Fact::No(format!("the code of {release} on {}: {why}", tools.host)),
    })
}

async fn ask(
    client: &dyn IronicClient,
    host: &str,
    python: &str,
    release: &str,
) -> Result<ReleaseCode, String> {
    let python = template::filled(python, &[("release", release)]).map_err(|error| error.to_string())?;
    let question = format!("{python} - <<'END_OF_QUESTION'\n{QUESTION}END_OF_QUESTION\n");
    let ran = client
        .ask(host, &question)
        .await
        .map_err(|error| error.to_string())?;
    let code = answer(&ran, &python)?;
    if code.version != release {
        return Err(format!("`{python}` has Ironic {}", code.version));
    }
    Ok(code)
}

/// What was printed, if a table can be made of it.
fn answer(ran: &Ran, python: &str) -> Result<ReleaseCode, String> {
    if ran.code != 0 {
        return Err(format!(
            "`{python}` ended with {}: {}",
            ran.code,
            last_words(&ran.output)
        ));
    }
    // Libraries may warn before.
    let line = ran.output.lines().rfind(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("`{python}` printed {:?}", last_words(&ran.output)))?;
    let code: ReleaseCode = serde_json::from_str(line).map_err(|error| format!("its answer: {error}"))?;
    Releases::built_in()
        .with(&code)
        .map_err(|faults| format!("its list of releases: {faults}"))?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, output: &str) -> Ran {
        Ran {
            code,
            output: output.to_owned(),
        }
    }

    #[test]
    fn what_a_library_warns_of_stands_before_the_answer() {
        let said = include_str!("code/39.0.0.json");
        let code = answer(&ran(0, &format!("a warning\n{said}")), "python3").unwrap();
        assert_eq!(code.version, "39.0.0");
    }

    #[test]
    fn what_is_no_answer_is_told_as_it_came() {
        for (ran, told) in [
            (
                ran(127, "sh: python3: not found"),
                "ended with 127: sh: python3: not found",
            ),
            (ran(0, "Hello"), "printed \"Hello\""),
            (ran(0, "{\"version\": 1}"), "its answer: invalid type"),
            (
                ran(
                    0,
                    "{\"version\":\"40.0.0\",\"releases\":[],\"heads\":[],\"tables\":{}}",
                ),
                "its list of releases: it does not list itself",
            ),
        ] {
            let why = answer(&ran, "python3").unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }
}
