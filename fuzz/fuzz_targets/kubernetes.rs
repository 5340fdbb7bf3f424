//! What somebody writes into a CephMaintenance and its CephCluster: a policy that is the same when it is looked at again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_rook::api::cluster::{CephCluster, CephClusterSpec};
use stagger_rook::api::maintenance::{CephMaintenance, CephMaintenanceSpec, Desired};
use stagger_rook::api::settings::PolicySettings;
use stagger_rook::executor::goal::Goal;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut specs) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    let mut of = |name: &str| {
        specs
            .get_mut(name)
            .map(serde_json::Value::take)
            .unwrap_or_default()
    };
    let (Ok(cluster), Ok(maintenance)) = (
        serde_json::from_value::<CephClusterSpec>(of("cluster")),
        serde_json::from_value::<CephMaintenanceSpec>(of("maintenance")),
    ) else {
        return;
    };
    let desired = Desired {
        cluster: CephCluster::new("c", cluster),
        maintenance: CephMaintenance::new("m", maintenance),
    };
    for release_changes in [true, false] {
        let settings = PolicySettings::read(&desired, release_changes);
        assert_eq!(settings, PolicySettings::read(&desired, release_changes));
        let Some(wish) = Goal::of(&desired, release_changes) else {
            continue;
        };
        assert_eq!(wish.differs(&desired), None, "it asks for what it asks for");
        let written = serde_json::to_value(&wish).expect("a wish can be written");
        let read: Goal = serde_json::from_value(written).expect("what a run remembers is read");
        assert_eq!(read, wish);
    }
});
