//! What is stored and sent.

use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stagger_versioned::store::{Kind, Objects, Table};
use stagger_versioned::{Chain, Declared, Manifest, Registry, Versioned};

/// Something in the warehouse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Item", version = "1.0")]
pub struct Item1_0 {
    /// Its number.
    pub sku: String,
    /// What it is called.
    pub name: String,
    /// Where it lies.
    pub place: String,
    /// How many there are: the sum of its movements.
    pub on_hand: i64,
}

/// Some of an item that came or went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Movement", version = "1.0")]
pub struct Movement1_0 {
    /// Chosen by whoever asks for it, so that asking twice does no harm.
    pub id: String,
    /// The item.
    pub sku: String,
    /// How many came; less than nothing if they went.
    pub count: i64,
}

/// The newest item.
pub type Item = Item1_0;
/// The newest movement.
pub type Movement = Movement1_0;

/// All versions of an item.
pub fn items() -> Chain<Item> {
    Chain::first()
}

/// All versions of a movement.
pub fn movements() -> Chain<Movement> {
    Chain::first()
}

/// Where items are stored.
pub fn stored_items() -> Result<Objects<Item>> {
    let columns = [
        ("name", Kind::Text),
        ("place", Kind::Text),
        ("on_hand", Kind::Integer),
    ];
    let table = Table::new("items", &[("sku", Kind::Text)], &columns)?.revision_in("revision")?;
    Ok(Objects::new(table, Arc::new(items())))
}

/// Where movements are stored.
pub fn stored_movements() -> Result<Objects<Movement>> {
    let columns = [("sku", Kind::Text), ("count", Kind::Integer)];
    let table = Table::new("movements", &[("id", Kind::Text)], &columns)?;
    Ok(Objects::new(table, Arc::new(movements())))
}

/// The releases up to this one. The code is checked against them.
pub fn manifest() -> Result<Arc<Manifest>> {
    let declared: Declared = toml::from_str(include_str!("../releases.toml"))?;
    let manifest = Manifest::new(declared)?;
    let registry = Registry::new()
        .with(Arc::new(items()))
        .with(Arc::new(movements()));
    registry.check(&manifest)?;
    Ok(Arc::new(manifest))
}
