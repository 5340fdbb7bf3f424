//! RabbitMQ's management API: how calls are routed, and changes to it.

use std::collections::BTreeSet;

use futures::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::config::{IronicConfig, RabbitMq};
use crate::credentials::{Auth, Credentials, HttpBasic};
use crate::http::Http;
use crate::rabbitmq::{Exchange, QueueReport, Routing, RoutingChange, queue_of};

/// Above the policies that a broker usually has.
const PRIORITY: u32 = 9;

/// The management API, asked by somebody.
#[derive(Debug)]
pub(crate) struct Management {
    http: Http,
    who: Credentials,
    config: RabbitMq,
}

impl Management {
    /// As the configuration says. Nothing is asked yet.
    pub(crate) fn new(http: Http, config: &RabbitMq) -> Result<Self, String> {
        let auth = Auth::HttpBasic(HttpBasic {
            user: config.user.clone(),
            password_file: config.password_file.clone(),
        });
        Ok(Self {
            http,
            who: Credentials::configured(Some(&auth), None)?,
            config: config.clone(),
        })
    }

    fn url(&self, parts: &[&str]) -> String {
        let encoded = parts
            .iter()
            .map(|part| utf8_percent_encode(part, NON_ALPHANUMERIC).to_string());
        let encoded: Vec<String> = encoded.collect();
        format!(
            "{}/api/{}",
            self.config.url.trim_end_matches('/'),
            encoded.join("/")
        )
    }

    /// What is there; `None`: there is no such thing.
    async fn get(&self, parts: &[&str]) -> Result<Option<Value>, String> {
        let url = self.url(parts);
        match self.http.json("GET", &url, &self.who, None).await? {
            (200, body) => Ok(Some(body)),
            (404, _) => Ok(None),
            (code, body) => Err(error_text(&url, code, &body)),
        }
    }

    async fn send(&self, method: &str, parts: &[&str], body: Option<&Value>) -> Result<(), String> {
        let url = self.url(parts);
        match self.http.json(method, &url, &self.who, body).await? {
            (200..=299, _) => Ok(()),
            // What is to be gone is.
            (404, _) if method == "DELETE" => Ok(()),
            (code, body) => Err(error_text(&url, code, &body)),
        }
    }

    /// How calls are routed now.
    pub(crate) async fn routing(&self, config: &IronicConfig) -> Result<Routing, String> {
        let RabbitMq { vhost, exchange, .. } = &self.config;
        let alternate = self.config.alternate();
        self.may_set_policies().await?;
        let Some(own) = self.get(&["exchanges", vhost, exchange]).await? else {
            return Err(format!(
                "{}: there is no exchange {exchange:?} in the virtual host {vhost:?}",
                self.config.url
            ));
        };
        let policy = own["policy"].as_str().filter(|policy| !policy.is_empty());
        let is_there = self.get(&["exchanges", vhost, &alternate]).await?.is_some();
        let mut routing = Routing {
            diverts: is_there && policy == Some(alternate.as_str()),
            policy_of_others: policy.filter(|policy| *policy != alternate).map(str::to_owned),
            ..Routing::default()
        };
        let bound = self.bindings(exchange).await?;
        let diverted = if is_there {
            self.bindings(&alternate).await?
        } else {
            BTreeSet::new()
        };
        let queues = config.conductors.iter().map(|conductor| async move {
            let queue = queue_of(&conductor.registered);
            Ok::<_, String>((conductor, self.get(&["queues", vhost, &queue]).await?))
        });
        for found in join_all(queues).await {
            let (conductor, queue) = found?;
            let (name, key) = (&conductor.registered, queue_of(&conductor.registered));
            if let Some(queue) = queue {
                let report = QueueReport {
                    is_bound: bound.contains(&(key.clone(), key.clone())),
                    // That list is of now, where the numbers are of some seconds ago.
                    consumers: queue["consumer_details"]
                        .as_array()
                        .map_or(0, |all| all.len() as u64),
                    calls: queue["messages"].as_u64().unwrap_or(0),
                };
                routing.queues.insert(name.clone(), report);
            }
            let others = config
                .conductors
                .iter()
                .filter(|other| diverted.contains(&(key.clone(), queue_of(&other.registered))));
            let others: BTreeSet<String> = others.map(|other| other.registered.clone()).collect();
            if !others.is_empty() {
                routing.stand_ins.insert(name.clone(), others);
            }
        }
        Ok(routing)
    }

    /// Otherwise a run would come to know it after the schema.
    async fn may_set_policies(&self) -> Result<(), String> {
        let who = self.get(&["whoami"]).await?.unwrap_or_default();
        // One text with commas between, up to 3.8.
        let listed = who["tags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let written = who["tags"].as_str().unwrap_or_default().split(',');
        let mut tags = listed.chain(written).map(str::trim);
        if tags.any(|tag| ["policymaker", "administrator"].contains(&tag)) {
            return Ok(());
        }
        Err(format!("{} has not the tag `policymaker`", self.config.user))
    }

    /// The keys with which queues are bound in an exchange, each with the queue.
    async fn bindings(&self, exchange: &str) -> Result<BTreeSet<(String, String)>, String> {
        let vhost = &self.config.vhost;
        let listed = self
            .get(&["exchanges", vhost, exchange, "bindings", "source"])
            .await?;
        let listed = listed.as_ref().and_then(Value::as_array).into_iter().flatten();
        let pairs = listed.filter_map(|binding| {
            let text = |name: &str| binding[name].as_str().map(str::to_owned);
            Some((text("routing_key")?, text("destination")?))
        });
        Ok(pairs.collect())
    }

    /// Carries a change out.
    pub(crate) async fn change(&self, change: &RoutingChange) -> Result<(), String> {
        let RabbitMq {
            vhost, exchange: own, ..
        } = &self.config;
        let alternate = self.config.alternate();
        let name = |exchange: &Exchange| match exchange {
            Exchange::Ironic => own.as_str(),
            Exchange::Alternate => alternate.as_str(),
        };
        match change {
            RoutingChange::Prepare => {
                let made = json!({ "type": "direct", "durable": true });
                self.send("PUT", &["exchanges", vhost, &alternate], Some(&made))
                    .await?;
                let policy = json!({
                    "pattern": format!("^{}$", own.replace('.', "\\.")),
                    "apply-to": "exchanges",
                    "priority": PRIORITY,
                    "definition": { "alternate-exchange": alternate },
                });
                self.send("PUT", &["policies", vhost, &alternate], Some(&policy))
                    .await
            }
            RoutingChange::Bind {
                exchange,
                conductor,
                queue,
            } => {
                let parts = ["bindings", vhost, "e", name(exchange), "q", &queue_of(queue)];
                let key = json!({ "routing_key": queue_of(conductor) });
                self.send("POST", &parts, Some(&key)).await
            }
            RoutingChange::Unbind {
                exchange,
                conductor,
                queue,
            } => {
                // A binding without arguments is known by its key.
                let (queue, key) = (queue_of(queue), queue_of(conductor));
                let parts = ["bindings", vhost, "e", name(exchange), "q", &queue, &key];
                self.send("DELETE", &parts, None).await
            }
        }
    }
}

fn error_text(url: &str, code: u16, body: &Value) -> String {
    let words = body["reason"].as_str().or_else(|| body["error"].as_str());
    format!("{url} answers {code}: {}", words.unwrap_or("nothing more"))
}
