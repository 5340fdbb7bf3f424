//! Release 2.0 of an inventory: a service with PostgreSQL, and its client.
//!
//! ```sh
//! inventory-two schema --database postgres://…
//! inventory-two serve --database postgres://… --listen 127.0.0.1:7001 [--peers http://127.0.0.1:7002,…] [--pin RELEASE]
//! inventory-two migrate --database postgres://… [--max-count N] [--batch N]
//! inventory-two client --name a --servers http://127.0.0.1:7001,… --items chair,table
//! ```

mod client;
mod http;
mod migrate;
pub mod objects;
mod service;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
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
        "migrate" => {
            let store = arguments.store().await?;
            let (max_count, batch) = (arguments.number("max-count")?, arguments.number("batch")?);
            let end = migrate::migrate(&store, max_count, batch).await?;
            return Ok(ExitCode::from(end.code()));
        }
        other => bail!("there is no command {other:?}: schema, serve, migrate, client"),
    }
    Ok(ExitCode::SUCCESS)
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

    fn number(&self, name: &str) -> Result<Option<NonZeroU64>> {
        let number = self.options.get(name).map(|number| number.parse());
        number
            .transpose()
            .with_context(|| format!("--{name} takes a number"))
    }

    async fn store(&self) -> Result<Store> {
        Ok(Store::connect(&self.option("database"), Connect::default()).await?)
    }
}
