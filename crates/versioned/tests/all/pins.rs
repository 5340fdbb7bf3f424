//! Pins: what they hold a process to, and how they are set anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stagger_versioned::pin::{Changed, NotAcceptable, NotWhilePinned};
use stagger_versioned::{Pin, Pins, Version};

use crate::ironic::manifest;

#[test]
fn without_a_pin_there_is_no_target_and_all_is_the_newest() {
    for setting in ["", "  \n"] {
        let pin = Pin::read(manifest(), setting).unwrap();
        assert_eq!(pin.release(), None);
        assert_eq!(pin.target("Node").unwrap(), None);
        assert_eq!((pin.api(), pin.rpc()), (Version::new(1, 34), Version::new(1, 40)));
        assert!(pin.permits("Node", Version::new(1, 16)));
    }
}

#[test]
fn a_pin_is_a_name_or_a_number() {
    for setting in ["newton", "6.2", "6.2.4", " newton\n"] {
        let pin = Pin::read(manifest(), setting).unwrap();
        assert_eq!(pin.release().as_deref(), Some("newton"));
        assert_eq!(pin.target("Node").unwrap(), Some(Version::new(1, 14)));
        assert_eq!((pin.api(), pin.rpc()), (Version::new(1, 22), Version::new(1, 33)));
        assert!(pin.permits("Node", Version::new(1, 14)));
        assert!(!pin.permits("Node", Version::new(1, 15)));
        assert!(!pin.permits("Port", Version::new(1, 0)));
    }
}

#[test]
fn an_unknown_pin_is_refused_with_all_that_is_known() {
    let error = Pins::new(manifest(), "newtown").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot pin to it: there is no release \"newtown\"; the nearest is newton; known are: mitaka, 5.1, newton, 6.2, 6.3, \
         ocata, 2017.1, 7.0, master, unreleased; leave it empty for no pin"
    );
}

#[test]
fn an_object_that_the_pin_does_not_know_is_refused() {
    let error = Pin::read(manifest(), "newton")
        .unwrap()
        .target("Port")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Port is not known to newton, to which this service is pinned; it came with ocata; nothing was stored or sent: try again \
         when the upgrade is done"
    );
    assert_eq!(NotWhilePinned::STATUS, 406);
}

#[test]
fn the_api_is_capped_and_says_what_it_offers() {
    let lowest = Version::new(1, 1);
    let pin = Pin::read(manifest(), "newton").unwrap();
    assert_eq!(pin.negotiate(lowest, None).unwrap(), lowest);
    assert_eq!(
        pin.negotiate(lowest, Some(Version::new(1, 22))).unwrap(),
        Version::new(1, 22)
    );
    let error = pin.negotiate(lowest, Some(Version::new(1, 23))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "version 1.23 of the API is not offered; 1.1 to 1.22 are while this service is pinned to newton"
    );
    assert_eq!(NotAcceptable::STATUS, 406);
    let error = Pin::none(manifest())
        .negotiate(lowest, Some(Version::new(1, 35)))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "version 1.35 of the API is not offered; 1.1 to 1.34 are"
    );
    assert!(pin.negotiate(lowest, Some(Version::new(1, 0))).is_err());
}

/// D10 of Ironic: objects followed the new pin, and the cap of the RPC stayed with the old one.
#[test]
fn a_reload_changes_all_of_the_pin_at_once() {
    let pins = Arc::new(Pins::new(manifest(), "newton").unwrap());
    let before = pins.now();
    let changed = pins.reload("").unwrap();
    assert_eq!(
        changed,
        Changed {
            from: Some("newton".to_owned()),
            to: None
        }
    );
    // Work that has begun goes on as it began, in every respect.
    assert_eq!(before.target("Node").unwrap(), Some(Version::new(1, 14)));
    assert_eq!(before.rpc(), Version::new(1, 33));
    let after = pins.now();
    assert_eq!(
        (after.target("Node").unwrap(), after.rpc()),
        (None, Version::new(1, 40))
    );
}

#[test]
fn a_reload_with_a_pin_that_is_none_changes_nothing() {
    let pins = Pins::new(manifest(), "newton").unwrap();
    pins.reload("pike").unwrap_err();
    assert_eq!(pins.now().release().as_deref(), Some("newton"));
}

#[test]
fn nobody_ever_sees_half_a_pin() {
    let pins = Arc::new(Pins::new(manifest(), "newton").unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (pins, stop) = (Arc::clone(&pins), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut looks = 0_u32;
                while !stop.load(Ordering::Relaxed) || looks == 0 {
                    let pin = pins.now();
                    let seen = (pin.release(), pin.target("Node").unwrap(), pin.api(), pin.rpc());
                    let newton = (
                        Some("newton".to_owned()),
                        Some(Version::new(1, 14)),
                        Version::new(1, 22),
                        Version::new(1, 33),
                    );
                    let none = (None, None, Version::new(1, 34), Version::new(1, 40));
                    assert!(seen == newton || seen == none, "{seen:?}");
                    looks += 1;
                }
                looks
            })
        })
        .collect();
    for round in 0..2000 {
        pins.reload(if round % 2 == 0 { "" } else { "newton" }).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
}
