//! The law of a source: what is saved of it is read back, and tells the same.

use std::fmt::Debug;

use stagger_engine::cluster::Source;
use stagger_engine::inventory::Inventory;

/// An inventory that was written and read again gives the same facts, and the same inventory. Gives those facts.
///
/// # Panics
/// The law is broken.
pub async fn what_is_saved_is_read_back<F, S>(
    source: &dyn Source<Facts = F>,
    read: impl FnOnce(&Inventory) -> S,
) -> F
where
    F: PartialEq + Debug + Send + Sync,
    S: Source<Facts = F>,
{
    let (inventory, facts) = source.inventory().await.unwrap();
    let written = inventory.to_json().unwrap();
    let kept = Inventory::read(&written).unwrap();
    assert_eq!(kept.cluster, inventory.cluster);
    let recorded = read(&kept);
    assert_eq!(recorded.facts().await.unwrap(), facts);
    let (again, _) = recorded.inventory().await.unwrap();
    assert_eq!(again.to_json().unwrap(), written);
    facts
}
