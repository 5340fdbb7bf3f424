//! What is saved of a Ceph tells the same when it is read.

use std::path::Path;

use stagger_ceph::source::CephSource;
use stagger_conformance::source::what_is_saved_is_read_back;
use stagger_core::model::ClusterName;

use crate::cluster::{VERSIONS, fixture};

#[tokio::test]
async fn its_source_has_the_law_of_every_source() {
    for version in VERSIONS {
        let source = CephSource::folder(&fixture(version), ClusterName::new("c").unwrap());
        let read = |inventory: &_| CephSource::from_inventory(inventory, Path::new("saved.json")).unwrap();
        let facts = what_is_saved_is_read_back(&source, read).await;
        assert!(!facts.osds.osds.is_empty());
    }
}
