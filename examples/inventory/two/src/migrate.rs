//! The online migration: rows of 1.0 are brought up while services work.

use std::io::Write as _;
use std::num::NonZeroU64;

use anyhow::Result;
use stagger_versioned::Pin;
use stagger_versioned::store::migrate::{End, Limits, Migrations};
use stagger_versioned::store::{RaiseRows, Store};

use crate::objects::{manifest, stored_items, stored_movements};

/// Brings up at most so many rows, and prints how far it came.
pub(crate) async fn migrate(
    store: &Store,
    max_count: Option<NonZeroU64>,
    batch: Option<NonZeroU64>,
) -> Result<End> {
    let pin = Pin::none(manifest()?);
    let migrations = Migrations::new()
        .then(RaiseRows::new("items", stored_items()?, &pin))?
        .then(RaiseRows::new("movements", stored_movements()?, &pin))?;
    let limits = Limits {
        max_count,
        batch: batch.unwrap_or(Limits::default().batch),
    };
    let report = migrations.run(store, &pin, limits, |_| {}).await?;
    let mut out = std::io::stdout();
    for each in &report.each {
        writeln!(out, "{}: {} done, {} left", each.name, each.done, each.left)?;
        for stuck in &each.stuck {
            writeln!(out, "  stuck: {stuck}")?;
        }
    }
    Ok(report.end)
}
