//! The service: items and movements over HTTP, in envelopes that say their versions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use hyper::Method;
use serde_json::{Value, json};
use stagger_versioned::boundary::{Unreceived, Unsaved};
use stagger_versioned::store::{Objects, Store, StoreError};
use stagger_versioned::{Held, Pin, Pins, Version, Versioned as _};

use crate::http::{Http, READS};
use crate::objects::{Item, Movement, stored_items, stored_movements};

/// One process of the service.
#[derive(Debug)]
pub(crate) struct Service {
    store: Store,
    items: Objects<Item>,
    movements: Objects<Movement>,
    pins: Pins,
    http: Http,
    /// The URLs of the other processes.
    peers: Vec<String>,
    /// What peers told of: how many of each item were on hand when it was last moved there.
    elsewhere: Mutex<BTreeMap<String, i64>>,
    /// How often a peer understood what this process told it.
    understood: AtomicU64,
    /// How often it did not.
    refused: AtomicU64,
}

/// What is answered instead of what was asked for.
type Refusal = (StatusCode, String);

impl Service {
    pub(crate) fn new(store: Store, pins: Pins, peers: Vec<String>) -> Result<Self> {
        Ok(Self {
            store,
            items: stored_items()?,
            movements: stored_movements()?,
            pins,
            http: Http::new(),
            peers,
            elsewhere: Mutex::default(),
            understood: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route("/status", get(status))
            .route("/items", put(describe))
            .route("/items/{sku}", get(look_up))
            .route("/movements", post(book))
            .route("/peers", post(hear))
            .with_state(Arc::new(self))
    }

    /// An item for whoever asked, in a version that it reads.
    fn answer(&self, item: &Held<Item>, pin: &Pin, headers: &HeaderMap) -> Result<String, Refusal> {
        let reads = headers.get(READS).and_then(|reads| reads.to_str().ok());
        let reads: Option<Version> = reads.and_then(|reads| reads.parse().ok());
        let sent = self
            .items
            .chain()
            .answer(item, pin, reads)
            .map_err(|error| unsaved(&error))?;
        Ok(sent.text)
    }

    /// Tells the peers of an item. One that does not answer is down; one that does not understand is a fault, and counted.
    async fn tell(&self, item: Held<Item>, pin: Arc<Pin>) {
        let Ok(sent) = self.items.chain().send(&item, &pin, None) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        for peer in &self.peers {
            let url = format!("{peer}/peers");
            let asked = self.http.ask(Method::POST, &url, "", sent.text.clone());
            match asked.await {
                Ok((StatusCode::OK, _)) => self.understood.fetch_add(1, Ordering::Relaxed),
                Ok(_) => self.refused.fetch_add(1, Ordering::Relaxed),
                Err(_) => 0,
            };
        }
    }
}

async fn status(State(service): State<Arc<Service>>) -> Json<Value> {
    let pin = service.pins.now();
    let manifest = pin.manifest();
    Json(json!({
        "release": manifest.label(manifest.current()),
        "pin": pin.release(),
        "writes": pin.target(Item::NAME).ok().flatten().unwrap_or(Item::VERSION).to_string(),
        "understood": service.understood.load(Ordering::Relaxed),
        "refused": service.refused.load(Ordering::Relaxed),
        "elsewhere": service.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).len(),
    }))
}

/// Makes an item, or changes how it is described.
async fn describe(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: String,
) -> Result<String, Refusal> {
    let pin = service.pins.now();
    let mut item = service
        .items
        .chain()
        .receive(&body)
        .map_err(|error| unreceived(&error))?;
    // Only movements move anything.
    item.value.on_hand = 0;
    match service.items.create(&service.store, &item, &pin).await {
        Ok(()) => service.answer(&item, &pin, &headers),
        Err(StoreError::Taken { .. }) => {
            let key = [json!(item.value.sku)];
            let changed = service.items.change(&service.store, &key, &pin, |now| {
                let on_hand = now.on_hand;
                now.clone_from(&item.value);
                now.on_hand = on_hand;
            });
            let changed = changed.await.map_err(failed)?;
            service.answer(&changed.held, &pin, &headers)
        }
        Err(error) => Err(failed(error)),
    }
}

async fn look_up(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Path(sku): Path<String>,
) -> Result<String, Refusal> {
    let found = service.items.get(&service.store, &[json!(sku)]).await;
    let found = found.map_err(failed)?.ok_or_else(|| no_item(&sku))?;
    service.answer(&found.held, &service.pins.now(), &headers)
}

/// Books a movement, and moves the item: both in one transaction. One that is booked already is left as it is.
async fn book(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: String,
) -> Result<String, Refusal> {
    let pin = service.pins.now();
    let movement = service
        .movements
        .chain()
        .receive(&body)
        .map_err(|error| unreceived(&error))?;
    let key = [json!(movement.value.sku)];
    let mut transaction = service.store.begin().await.map_err(failed)?;
    let created = service.movements.create(&mut transaction, &movement, &pin).await;
    let booked_before = matches!(created, Err(StoreError::Taken { .. }));
    if !booked_before {
        created.map_err(failed)?;
    }
    let item = service.items.lock(&mut transaction, &key).await.map_err(failed)?;
    let mut item = item.ok_or_else(|| no_item(&movement.value.sku))?;
    if booked_before {
        return service.answer(&item.held, &pin, &headers);
    }
    item.held.value.on_hand += movement.value.count();
    let saved = service.items.save(&mut transaction, &mut item, &pin).await;
    saved.map_err(failed)?;
    let committed = transaction.commit().await;
    committed.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let answer = service.answer(&item.held, &pin, &headers)?;
    tokio::spawn(async move { service.tell(item.held, pin).await });
    Ok(answer)
}

/// Hears of an item from a peer.
async fn hear(State(service): State<Arc<Service>>, body: String) -> Result<(), Refusal> {
    let item = service
        .items
        .chain()
        .receive(&body)
        .map_err(|error| unreceived(&error))?
        .value;
    let mut elsewhere = service.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
    elsewhere.insert(item.sku, item.on_hand);
    Ok(())
}

fn no_item(sku: &str) -> Refusal {
    (StatusCode::NOT_FOUND, format!("there is no item {sku:?}"))
}

fn unreceived(error: &Unreceived) -> Refusal {
    (StatusCode::CONFLICT, error.to_string())
}

fn unsaved(error: &Unsaved) -> Refusal {
    // What the pin does not know may be asked for again when the upgrade is done.
    (StatusCode::NOT_ACCEPTABLE, error.to_string())
}

fn failed(error: StoreError) -> Refusal {
    match error {
        StoreError::Unsaved(error) => unsaved(&error),
        error if error.may_pass() => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        error => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
