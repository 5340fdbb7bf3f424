//! What is stored and sent, in the versions of 1.0 and of this release.

use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stagger_versioned::store::{Kind, Objects, Table};
use stagger_versioned::{Chain, ConversionError, Declared, Manifest, Registry, TryFollows, Versioned};

/// Something in the warehouse, as 1.0 knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Item", version = "1.0")]
pub struct Item1_0 {
    /// Its number.
    pub sku: String,
    /// What it is called.
    pub name: String,
    /// Where it lies.
    pub place: String,
    /// How many there are.
    pub on_hand: i64,
}

/// Something in the warehouse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Item", version = "1.1", before = Item1_0)]
pub struct Item1_1 {
    /// Its number.
    pub sku: String,
    /// What it is called.
    #[versioned(renamed = "name")]
    pub title: String,
    /// Where it lies.
    pub place: String,
    /// How many there are: the sum of its movements.
    pub on_hand: i64,
    /// What people ought to know of it.
    #[versioned(added)]
    pub note: Option<String>,
}

/// Some of an item that came or went, as 1.0 knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Movement", version = "1.0")]
pub struct Movement1_0 {
    /// Chosen by whoever asks for it.
    pub id: String,
    /// The item.
    pub sku: String,
    /// How many came; less than nothing if they went.
    pub count: i64,
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

// One field becomes two, which no attribute says.
impl TryFollows for Movement1_1 {
    type Before = Movement1_0;

    fn try_up(before: Movement1_0) -> Result<Self, ConversionError> {
        let Movement1_0 { id, sku, count } = before;
        let direction = match count {
            1.. => Direction::In,
            0 => {
                return Err(ConversionError::new(format!(
                    "{id} moves none of {sku}: delete it"
                )));
            }
            ..0 => Direction::Out,
        };
        let amount = count.checked_abs();
        let amount = amount.ok_or_else(|| ConversionError::new(format!("{id} moves more than can be")))?;
        Ok(Self {
            id,
            sku,
            direction,
            amount,
        })
    }

    fn try_down(&self) -> Result<Movement1_0, ConversionError> {
        Ok(Movement1_0 {
            id: self.id.clone(),
            sku: self.sku.clone(),
            count: self.count(),
        })
    }
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
    Chain::<Item1_0>::first().then()
}

/// All versions of a movement.
pub fn movements() -> Chain<Movement> {
    Chain::<Movement1_0>::first().then()
}

/// Where items are stored: the columns of both versions.
pub fn stored_items() -> Result<Objects<Item>> {
    let columns = [
        ("name", Kind::Text),
        ("title", Kind::Text),
        ("place", Kind::Text),
        ("on_hand", Kind::Integer),
        ("note", Kind::Text),
    ];
    let table = Table::new("items", &[("sku", Kind::Text)], &columns)?.revision_in("revision")?;
    Ok(Objects::new(table, Arc::new(items())))
}

/// Where movements are stored: the columns of both versions.
pub fn stored_movements() -> Result<Objects<Movement>> {
    let columns = [
        ("sku", Kind::Text),
        ("count", Kind::Integer),
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

#[cfg(test)]
mod tests {
    use super::*;
    use stagger_versioned::laws;

    /// What comes up goes down again as it was, and what went down once loses nothing more.
    #[test]
    fn conversions_keep_the_laws() {
        let item = Item1_0 {
            sku: "chair".to_owned(),
            name: "Chair".to_owned(),
            place: "A-12".to_owned(),
            on_hand: 3,
        };
        laws::up_loses_nothing::<Item1_1>(&item).unwrap();
        let noted = Item1_1 {
            note: Some("wobbles".to_owned()),
            ..Item1_1::try_up(item).unwrap()
        };
        laws::down_is_stable(&noted).unwrap();
        for count in [-2, 0, 7, i64::MIN] {
            let movement = Movement1_0 {
                id: "m".to_owned(),
                sku: "chair".to_owned(),
                count,
            };
            laws::up_loses_nothing::<Movement1_1>(&movement).unwrap();
        }
    }
}
