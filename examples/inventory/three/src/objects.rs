//! What is stored and sent. What 1.0 knew is gone.

use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stagger_versioned::store::{Kind, Objects, Table};
use stagger_versioned::{Chain, Declared, Manifest, Registry, Versioned};

/// Something in the warehouse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Item", version = "1.1")]
pub struct Item1_1 {
    /// Its number.
    pub sku: String,
    /// What it is called.
    pub title: String,
    /// Where it lies.
    pub place: String,
    /// How many there are: the sum of its movements.
    pub on_hand: i64,
    /// What people ought to know of it.
    pub note: Option<String>,
}

/// Some of an item that came or went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Movement", version = "1.1")]
pub struct Movement1_1 {
    /// Chosen by whoever asks for it, so that asking twice does no harm.
    pub id: String,
    /// The item.
    pub sku: String,
    /// Whether they came or went.
    pub direction: Direction,
    /// How many, more than none.
    pub amount: i64,
}

/// Where something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It came.
    In,
    /// It went.
    Out,
}

impl Movement1_1 {
    /// How many came; less than nothing if they went.
    pub fn count(&self) -> i64 {
        match self.direction {
            Direction::In => self.amount,
            Direction::Out => -self.amount,
        }
    }
}

/// The newest item.
pub type Item = Item1_1;
/// The newest movement.
pub type Movement = Movement1_1;

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
        ("title", Kind::Text),
        ("place", Kind::Text),
        ("on_hand", Kind::Integer),
        ("note", Kind::Text),
    ];
    let table = Table::new("items", &[("sku", Kind::Text)], &columns)?.revision_in("revision")?;
    Ok(Objects::new(table, Arc::new(items())))
}

/// Where movements are stored.
pub fn stored_movements() -> Result<Objects<Movement>> {
    let columns = [
        ("sku", Kind::Text),
        ("direction", Kind::Text),
        ("amount", Kind::Integer),
    ];
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
