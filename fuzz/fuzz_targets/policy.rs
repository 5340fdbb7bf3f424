//! Policies and windows: they answer for any time and any size, and hold what they promise.
#![no_main]

use jiff::{SignedDuration, Timestamp};
use libfuzzer_sys::fuzz_target;
use stagger_core::model::{Kind, Policy};

fuzz_target!(|input: (i64, u32, u32, &str)| {
    let (at, length, all, text) = input;
    let Ok(policy) = serde_json::from_str::<Policy>(text) else {
        return;
    };
    let written = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), policy);
    for kind in ["osd", "mon"] {
        let parallel = policy.parallel(&Kind::new(kind).unwrap(), all);
        assert!(parallel >= 1, "nothing would ever be done");
    }
    let Ok(from) = Timestamp::from_second(at) else {
        return;
    };
    for tries in 0..40 {
        if let Some(next) = policy.retry.after(from, tries) {
            assert!(next >= from);
        }
    }
    policy.soak_after(true);
    let Ok(until) = from.checked_add(SignedDuration::from_secs(i64::from(length))) else {
        return;
    };
    for window in &policy.windows {
        if let Some(next) = window.next(from, until) {
            assert!(next >= from, "{window}: {next} is before {from}");
            let end = next.checked_add(until.duration_since(from));
            assert!(
                end.is_ok_and(|end| window.holds(next, end)),
                "{window}: {next} is promised"
            );
        }
    }
});
