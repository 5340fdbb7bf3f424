//! What versions cost: the time of sending and receiving beside plain `serde_json` on the same object, in one run.
//!
//! `cargo bench -p stagger-versioned --bench cost` prints nanoseconds as JSON; `cargo xtask bench versioned` makes a page of them.
#![allow(
    clippy::many_single_char_names,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and may panic"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stagger_versioned::{Chain, Declared, Follows, Held, Manifest, Pin, Version, Versioned};

/// The one of `stagger` itself: a copy in an older version is mostly allocations.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

macro_rules! node {
    ($name:ident $minor:literal { $($field:ident: $kind:ty),* }) => {
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub(crate) struct $name {
            uuid: String, name: Option<String>, driver: String, chassis: Option<String>, owner: Option<String>,
            power: Option<String>, provision: String, fault: Option<String>, maintenance: bool, protected: bool,
            created: String, updated: Option<String>, class: Option<String>, group: String, reservation: Option<String>,
            properties: Texts, driver_info: Texts, traits: List, $($field: $kind),*
        }
        impl Versioned for $name {
            const NAME: &'static str = "Node";
            const VERSION: Version = Version::new(1, $minor);
        }
    };
}

macro_rules! taken {
    ($value:expr) => {
        $value
    };
}

macro_rules! copied {
    ($value:expr) => {
        $value.clone()
    };
}

/// The fields that both versions have, each by way of `$each`.
macro_rules! moved {
    ($from:expr, $to:ident, $each:ident, { $($field:ident: $value:expr),* }) => {
        $to {
            uuid: $each!($from.uuid), name: $each!($from.name), driver: $each!($from.driver),
            chassis: $each!($from.chassis), owner: $each!($from.owner), power: $each!($from.power),
            provision: $each!($from.provision), fault: $each!($from.fault), maintenance: $from.maintenance,
            protected: $from.protected, created: $each!($from.created), updated: $each!($from.updated),
            class: $each!($from.class), group: $each!($from.group), reservation: $each!($from.reservation),
            properties: $each!($from.properties), driver_info: $each!($from.driver_info),
            traits: $each!($from.traits), $($field: $value),*
        }
    };
}

/// A node in two versions, with maps and a list of these types.
macro_rules! nodes {
    ($texts:ty, $list:ty) => {
        use super::*;
        type Texts = $texts;
        type List = $list;
        node!(Node1_0 0 { extra: Texts });
        node!(Node1_1 1 { fake: Texts, description: Option<String> });

        impl Follows for Node1_1 {
            type Before = Node1_0;
            fn up(before: Node1_0) -> Self {
                moved!(before, Self, taken, { fake: before.extra, description: None })
            }
            fn down(&self) -> Node1_0 {
                moved!(self, Node1_0, copied, { extra: self.fake.clone() })
            }
        }

        pub(crate) fn node() -> Node1_1 {
            let text = |word: &str| Some(format!("{word}-0123456789"));
            let map = |word: &str| -> BTreeMap<String, String> {
                (0..8)
                    .map(|at| (format!("{word}_{at}"), format!("value of {word} {at}")))
                    .collect()
            };
            let traits: Vec<String> = (0..5).map(|at| format!("CUSTOM_TRAIT_{at}")).collect();
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
                properties: map("properties").into(),
                driver_info: map("driver").into(),
                traits: traits.into(),
                fake: map("fake").into(),
                description: None,
            }
        }
    };
}

/// Each version has maps and a list of its own: a copy copies every text.
mod owned {
    nodes!(BTreeMap<String, String>, Vec<String>);
}

/// What both versions have alike is shared by them.
mod shared {
    nodes!(Arc<BTreeMap<String, String>>, Arc<Vec<String>>);
}

/// A small object: what surrounds it weighs most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Port1_0 {
    uuid: String,
    address: String,
    node: String,
    pxe: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Port1_1 {
    uuid: String,
    address: String,
    node: String,
    pxe: bool,
    description: Option<String>,
}

impl Versioned for Port1_0 {
    const NAME: &'static str = "Port";
    const VERSION: Version = Version::new(1, 0);
}

impl Versioned for Port1_1 {
    const NAME: &'static str = "Port";
    const VERSION: Version = Version::new(1, 1);
}

impl Follows for Port1_1 {
    type Before = Port1_0;
    fn up(before: Port1_0) -> Self {
        let Port1_0 {
            uuid,
            address,
            node,
            pxe,
        } = before;
        Self {
            uuid,
            address,
            node,
            pxe,
            description: None,
        }
    }
    fn down(&self) -> Port1_0 {
        Port1_0 {
            uuid: self.uuid.clone(),
            address: self.address.clone(),
            node: self.node.clone(),
            pxe: self.pxe,
        }
    }
}

fn port() -> Port1_1 {
    Port1_1 {
        uuid: "5f0ac7e1-6d2b-4a0c-9d43-6f1f3a2b9c11".to_owned(),
        address: "52:54:00:12:34:56".to_owned(),
        node: "1be26c0b-03f2-4d2e-ae87-c02d7f33c123".to_owned(),
        pxe: true,
        description: None,
    }
}

/// What is measured, with its name.
type Work<'a> = (&'static str, Box<dyn FnMut() + 'a>);

const ROUNDS: usize = 60;
/// How long one piece of work is repeated in a round.
const SLICE: Duration = Duration::from_millis(2);

/// The shortest of several rounds for each, in turns, so that what else the machine does counts for all alike.
fn shortest(works: &mut [Work<'_>]) -> Vec<Duration> {
    let mut best = vec![Duration::MAX; works.len()];
    let times: Vec<u32> = works
        .iter_mut()
        .map(|(_, work)| {
            let (begun, mut times) = (Instant::now(), 0);
            while begun.elapsed() < SLICE {
                work();
                times += 1;
            }
            times
        })
        .collect();
    for _ in 0..ROUNDS {
        for ((best, times), (_, work)) in best.iter_mut().zip(&times).zip(works.iter_mut()) {
            let begun = Instant::now();
            for _ in 0..*times {
                work();
            }
            *best = (*best).min(begun.elapsed() / *times);
        }
    }
    best
}

/// One object, sent and received in all ways.
fn measured<T: Follows>(value: T, chain: &Chain<T>, manifest: &Arc<Manifest>) -> Value {
    let free = Pin::none(Arc::clone(manifest));
    let pinned = Pin::read(Arc::clone(manifest), "one").unwrap();
    let held = Held::new(value);
    let plain = serde_json::to_string(&held.value).unwrap();
    let newest = chain.send(&held, &free, None).unwrap().text;
    let older = chain.send(&held, &pinned, None).unwrap().text;
    let mut works: Vec<Work<'_>> = vec![
        (
            "encode_plain",
            Box::new(|| drop(black_box(serde_json::to_string(black_box(&held.value)).unwrap()))),
        ),
        (
            "encode_free",
            Box::new(|| drop(black_box(chain.send(black_box(&held), &free, None).unwrap()))),
        ),
        (
            "encode_down",
            Box::new(|| drop(black_box(chain.send(black_box(&held), &pinned, None).unwrap()))),
        ),
        (
            "copy",
            Box::new(|| drop(black_box(black_box(&held.value).down()))),
        ),
        (
            "decode_plain",
            Box::new(|| drop(black_box(serde_json::from_str::<T>(black_box(&plain)).unwrap()))),
        ),
        (
            "decode_newest",
            Box::new(|| drop(black_box(chain.receive(black_box(&newest)).unwrap()))),
        ),
        (
            "decode_up",
            Box::new(|| drop(black_box(chain.receive(black_box(&older)).unwrap()))),
        ),
    ];
    let times = shortest(&mut works);
    let mut told = Map::from_iter([("bytes".to_owned(), Value::from(plain.len()))]);
    for ((what, _), time) in works.iter().zip(times) {
        told.insert((*what).to_owned(), Value::from(time.as_nanos() as u64));
    }
    Value::Object(told)
}

fn main() {
    let objects = json!({"Node": "1.0", "Port": "1.0"});
    let newer = json!({"Node": "1.1", "Port": "1.1"});
    let declared: Declared = serde_json::from_value(json!({
        "current": "2.0",
        "release": [
            {"number": "1.0", "names": ["one"], "date": "2025-01-01", "api": "1.0", "rpc": "1.0", "objects": objects},
            {"number": "2.0", "names": ["two"], "date": "2025-07-01", "api": "1.1", "rpc": "1.1", "objects": newer},
        ],
    }))
    .unwrap();
    let manifest = Arc::new(Manifest::new(declared).unwrap());
    let nodes: Chain<owned::Node1_1> = Chain::<owned::Node1_0>::first().then();
    let shared: Chain<shared::Node1_1> = Chain::<shared::Node1_0>::first().then();
    let ports: Chain<Port1_1> = Chain::<Port1_0>::first().then();
    let told = json!({
        "node": measured(owned::node(), &nodes, &manifest),
        "shared": measured(shared::node(), &shared, &manifest),
        "port": measured(port(), &ports, &manifest),
    });
    println!("{told}");
}
