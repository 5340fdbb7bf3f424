//! What somebody writes into a CephCluster: a policy that is the same when it is looked at again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_rook::cluster::CephClusterSpec;
use stagger_rook::policy::Settings;
use stagger_rook::wish::Wish;

fuzz_target!(|bytes: &[u8]| {
    let Ok(spec) = serde_json::from_slice::<CephClusterSpec>(bytes) else {
        return;
    };
    for release_changes in [true, false] {
        let settings = Settings::read(&spec, release_changes);
        assert_eq!(settings, Settings::read(&spec, release_changes));
        let Some(wish) = Wish::of(&spec, release_changes) else {
            continue;
        };
        assert_eq!(wish.differs(&spec), None, "a spec asks for what it asks for");
        let written = serde_json::to_value(&wish).expect("a wish can be written");
        let read: Wish = serde_json::from_value(written).expect("what a run remembers is read");
        assert_eq!(read, wish);
    }
});
