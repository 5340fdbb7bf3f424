//! Release 3.0 of an inventory: a service with PostgreSQL, and its client.
//!
//! ```sh
//! inventory-three schema --database postgres://…
//! inventory-three serve --database postgres://… --listen 127.0.0.1:7001 [--peers http://127.0.0.1:7002,…] [--pin RELEASE]
//! inventory-three client --name a --servers http://127.0.0.1:7001,… --items chair,table
//! ```

mod client;
mod http;
pub mod objects;
mod service;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use sqlx::AssertSqlSafe;
use stagger_versioned::Pins;
use stagger_versioned::store::{Connect, Store};

use service::Service;

const SCHEMA: &str = include_str!("../schema.sql");

/// Does what the arguments say.
pub async fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let arguments = Arguments::new(arguments)?;
    match arguments.command.as_str() {
        "schema" => {
            let store = arguments.store().await?;
            readable(&store).await?;
            // Each by itself: whoever locks two tables at once waits for services, and they for him.
            for statement in SCHEMA.split_inclusive(';').filter(|text| text.contains(';')) {
                sqlx::raw_sql(AssertSqlSafe(statement))
                    .execute(store.pool())
                    .await?;
            }
        }
        "serve" => {
            let pins = Pins::new(objects::manifest()?, &arguments.option("pin"))?;
            let service = Service::new(arguments.store().await?, pins, arguments.list("peers"))?;
            let listener = tokio::net::TcpListener::bind(arguments.option("listen")).await?;
            axum::serve(listener, service.routes()).await?;
        }
        "client" => {
            let (servers, items) = (arguments.list("servers"), arguments.list("items"));
            client::client(&arguments.option("name"), &servers, &items).await?;
        }
        other => bail!("there is no command {other:?}: schema, serve, client"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this release reads all that is stored. It drops what 1.0 wrote, so nothing may be left of that.
async fn readable(store: &Store) -> Result<()> {
    let mut counts = objects::stored_items()?.versions(store).await?;
    counts.extend(objects::stored_movements()?.versions(store).await?);
    for count in counts {
        if let Err(why) = count.readable {
            bail!(
                "{} rows are in the way: {why}; finish `migrate` of 2.0 first",
                count.rows
            );
        }
    }
    Ok(())
}

/// A command and its options.
struct Arguments {
    command: String,
    options: BTreeMap<String, String>,
}

impl Arguments {
    fn new(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let command = arguments.next().unwrap_or_default();
        let mut options = BTreeMap::new();
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .with_context(|| format!("{name} needs a value"))?;
            options.insert(name.trim_start_matches('-').to_owned(), value);
        }
        Ok(Self { command, options })
    }

    fn option(&self, name: &str) -> String {
        self.options.get(name).cloned().unwrap_or_default()
    }

    fn list(&self, name: &str) -> Vec<String> {
        let list = self.option(name);
        list.split(',')
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect()
    }

    async fn store(&self) -> Result<Store> {
        Ok(Store::connect(&self.option("database"), Connect::default()).await?)
    }
}
