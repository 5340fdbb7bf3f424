//! What versions cost: the time of sending and receiving beside plain `serde_json`, as ratios of one run.
//!
//! `cargo run --release -p stagger-versioned --example cost`. The goals: at most 1.1 without a pin, at most 2 for a downgrade
//! of one version.
#![allow(
    clippy::many_single_char_names,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and may panic"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stagger_versioned::{Chain, Declared, Follows, Held, Manifest, Pin, Version, Versioned};

macro_rules! node {
    ($name:ident $minor:literal { $($field:ident: $kind:ty),* }) => {
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        struct $name {
            uuid: String, name: Option<String>, driver: String, chassis: Option<String>, owner: Option<String>,
            power: Option<String>, provision: String, fault: Option<String>, maintenance: bool, protected: bool,
            created: String, updated: Option<String>, class: Option<String>, group: String, reservation: Option<String>,
            properties: BTreeMap<String, String>, driver_info: BTreeMap<String, String>, traits: Vec<String>,
            $($field: $kind),*
        }
        impl Versioned for $name {
            const NAME: &'static str = "Node";
            const VERSION: Version = Version::new(1, $minor);
        }
    };
}

node!(Node1_0 0 { extra: BTreeMap<String, String> });
node!(Node1_1 1 { fake: BTreeMap<String, String>, description: Option<String> });

macro_rules! moved {
    ($from:expr, $to:ident, $each:expr, { $($field:ident: $value:expr),* }) => {
        $to {
            uuid: $each(&$from.uuid), name: $each(&$from.name), driver: $each(&$from.driver), chassis: $each(&$from.chassis),
            owner: $each(&$from.owner), power: $each(&$from.power), provision: $each(&$from.provision),
            fault: $each(&$from.fault), maintenance: $from.maintenance, protected: $from.protected,
            created: $each(&$from.created), updated: $each(&$from.updated), class: $each(&$from.class),
            group: $each(&$from.group), reservation: $each(&$from.reservation), properties: $each(&$from.properties),
            driver_info: $each(&$from.driver_info), traits: $each(&$from.traits), $($field: $value),*
        }
    };
}

fn cloned<T: Clone>(value: &T) -> T {
    value.clone()
}

impl Follows for Node1_1 {
    type Before = Node1_0;
    fn up(before: Node1_0) -> Self {
        let Node1_0 {
            uuid,
            name,
            driver,
            chassis,
            owner,
            power,
            provision,
            fault,
            maintenance,
            protected,
            created,
            updated,
            class,
            group,
            reservation,
            properties,
            driver_info,
            traits,
            extra,
        } = before;
        Self {
            uuid,
            name,
            driver,
            chassis,
            owner,
            power,
            provision,
            fault,
            maintenance,
            protected,
            created,
            updated,
            class,
            group,
            reservation,
            properties,
            driver_info,
            traits,
            fake: extra,
            description: None,
        }
    }
    fn down(&self) -> Node1_0 {
        moved!(self, Node1_0, cloned, { extra: self.fake.clone() })
    }
}

fn node() -> Node1_1 {
    let text = |word: &str| Some(format!("{word}-0123456789"));
    let map = |word: &str| {
        (0..8)
            .map(|at| (format!("{word}_{at}"), format!("value of {word} {at}")))
            .collect()
    };
    Node1_1 {
        uuid: "1be26c0b-03f2-4d2e-ae87-c02d7f33c123".to_owned(),
        name: text("name"),
        driver: "fake-hardware".to_owned(),
        chassis: None,
        owner: text("owner"),
        power: text("power on"),
        provision: "active".to_owned(),
        fault: None,
        maintenance: false,
        protected: true,
        created: "2026-11-21T10:00:00Z".to_owned(),
        updated: text("2026"),
        class: text("baremetal"),
        group: String::new(),
        reservation: None,
        properties: map("properties"),
        driver_info: map("driver"),
        traits: (0..5).map(|at| format!("CUSTOM_TRAIT_{at}")).collect(),
        fake: map("fake"),
        description: None,
    }
}

/// What is measured, with its name.
type Work = (&'static str, Box<dyn FnMut()>);

const ROUNDS: usize = 40;
const TIMES: u32 = 2000;

/// The shortest of several rounds, in turns, so that what else the machine does counts for all alike.
fn shortest(works: &mut [Work]) -> Vec<Duration> {
    let mut best = vec![Duration::MAX; works.len()];
    for _ in 0..ROUNDS {
        for (best, (_, work)) in best.iter_mut().zip(works.iter_mut()) {
            let begun = Instant::now();
            for _ in 0..TIMES {
                work();
            }
            *best = (*best).min(begun.elapsed() / TIMES);
        }
    }
    best
}

fn main() {
    let declared: Declared = serde_json::from_value(serde_json::json!({
        "current": "2.0",
        "release": [
            {"number": "1.0", "names": ["one"], "date": "2025-01-01", "api": "1.0", "rpc": "1.0", "objects": {"Node": "1.0"}},
            {"number": "2.0", "names": ["two"], "date": "2025-07-01", "api": "1.1", "rpc": "1.1", "objects": {"Node": "1.1"}},
        ],
    }))
    .unwrap();
    let manifest = Arc::new(Manifest::new(declared).unwrap());
    let chain: Arc<Chain<Node1_1>> = Arc::new(Chain::<Node1_0>::first().then());
    let (free, pinned) = (
        Pin::none(Arc::clone(&manifest)),
        Pin::read(manifest, "one").unwrap(),
    );
    let held = Arc::new(Held::new(node()));
    let plain = serde_json::to_string(&held.value).unwrap();
    let newest = chain.send(&held, &free, None).unwrap().text;
    let older = chain.send(&held, &pinned, None).unwrap().text;

    let (a, b, c) = (Arc::clone(&held), Arc::clone(&held), Arc::clone(&held));
    let (d, e, f, g) = (
        Arc::clone(&chain),
        Arc::clone(&chain),
        Arc::clone(&chain),
        Arc::clone(&chain),
    );
    let mut works: Vec<Work> = vec![
        (
            "encode, serde_json",
            Box::new(move || drop(black_box(serde_json::to_string(&a.value).unwrap()))),
        ),
        (
            "encode, no pin",
            Box::new(move || drop(black_box(d.send(&b, &free, None).unwrap()))),
        ),
        (
            "encode, one version down",
            Box::new(move || drop(black_box(e.send(&c, &pinned, None).unwrap()))),
        ),
        (
            "decode, serde_json",
            Box::new(move || drop(black_box(serde_json::from_str::<Node1_1>(&plain).unwrap()))),
        ),
        (
            "decode, newest",
            Box::new(move || drop(black_box(f.receive(&newest).unwrap()))),
        ),
        (
            "decode, one version up",
            Box::new(move || drop(black_box(g.receive(&older).unwrap()))),
        ),
    ];
    let times = shortest(&mut works);
    for (at, ((what, _), time)) in works.iter().zip(&times).enumerate() {
        let base = times[at / 3 * 3];
        println!(
            "{what:26} {:>8.2} us   {:.2}",
            time.as_secs_f64() * 1e6,
            time.as_secs_f64() / base.as_secs_f64()
        );
    }
}
