//! Objects in the manner of Ironic's, in four versions, and the manifest of their releases.
//!
//! 1.14 adds a field. 1.15 is the example of the design: `fake` replaces `extra`, which stays as deprecated; its traits are of
//! a later version too. 1.16 removes `extra`, splits `fake` in two, and moves the description.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stagger_versioned::{
    Chain, Child, Declared, Follows, Manifest, Registry, Version, Versioned, down_all, up_all,
};

pub(crate) type Texts = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trait1_0 {
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trait1_1 {
    pub(crate) name: String,
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Node1_13 {
    pub(crate) uuid: String,
    pub(crate) extra: Texts,
    pub(crate) traits: Vec<Trait1_0>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Node1_14 {
    pub(crate) uuid: String,
    pub(crate) extra: Texts,
    pub(crate) description: Option<String>,
    pub(crate) traits: Vec<Trait1_0>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Node1_15 {
    pub(crate) uuid: String,
    /// Deprecated: `fake` has it.
    pub(crate) extra: Option<Texts>,
    pub(crate) fake: Texts,
    pub(crate) description: Option<String>,
    pub(crate) traits: Vec<Trait1_1>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Notes {
    pub(crate) description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Node1_16 {
    pub(crate) uuid: String,
    /// What was in `fake` under `fact.`
    pub(crate) facts: Texts,
    /// The rest of it.
    pub(crate) labels: Texts,
    pub(crate) notes: Notes,
    pub(crate) traits: Vec<Trait1_1>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Port1_0 {
    pub(crate) address: String,
}

macro_rules! versions {
    ($($of:ty: $name:literal $major:literal $minor:literal [$($child:ty),*];)*) => {$(
        impl Versioned for $of {
            const NAME: &'static str = $name;
            const VERSION: Version = Version::new($major, $minor);
            const CHILDREN: &'static [Child] = &[$(Child::of::<$child>()),*];
        }
    )*};
}

versions! {
    Trait1_0: "Trait" 1 0 [];
    Trait1_1: "Trait" 1 1 [];
    Node1_13: "Node" 1 13 [Trait1_0];
    Node1_14: "Node" 1 14 [Trait1_0];
    Node1_15: "Node" 1 15 [Trait1_1];
    Node1_16: "Node" 1 16 [Trait1_1];
    Port1_0: "Port" 1 0 [];
}

impl Follows for Trait1_1 {
    type Before = Trait1_0;
    fn up(before: Trait1_0) -> Self {
        Self {
            name: before.name,
            note: None,
        }
    }
    fn down(&self) -> Trait1_0 {
        Trait1_0 {
            name: self.name.clone(),
        }
    }
}

impl Follows for Node1_14 {
    type Before = Node1_13;
    fn up(before: Node1_13) -> Self {
        let Node1_13 { uuid, extra, traits } = before;
        Self {
            uuid,
            extra,
            description: None,
            traits,
        }
    }
    fn down(&self) -> Node1_13 {
        Node1_13 {
            uuid: self.uuid.clone(),
            extra: self.extra.clone(),
            traits: self.traits.clone(),
        }
    }
}

impl Follows for Node1_15 {
    type Before = Node1_14;
    fn up(before: Node1_14) -> Self {
        Self {
            uuid: before.uuid,
            extra: None,
            fake: before.extra,
            description: before.description,
            traits: up_all(before.traits),
        }
    }
    fn down(&self) -> Node1_14 {
        Node1_14 {
            uuid: self.uuid.clone(),
            extra: self.fake.clone(),
            description: self.description.clone(),
            traits: down_all(&self.traits),
        }
    }
}

impl Follows for Node1_16 {
    type Before = Node1_15;
    const REMOVED: &'static [&'static str] = &["extra"];
    fn up(before: Node1_15) -> Self {
        let mut facts = Texts::new();
        let mut labels = Texts::new();
        for (key, value) in before.fake {
            match key.strip_prefix("fact.") {
                Some(fact) => facts.insert(fact.to_owned(), value),
                None => labels.insert(key, value),
            };
        }
        Self {
            uuid: before.uuid,
            facts,
            labels,
            notes: Notes {
                description: before.description,
            },
            traits: before.traits,
        }
    }
    fn down(&self) -> Node1_15 {
        let facts = self
            .facts
            .iter()
            .map(|(key, value)| (format!("fact.{key}"), value.clone()));
        let mut fake = self.labels.clone();
        fake.extend(facts);
        Node1_15 {
            uuid: self.uuid.clone(),
            extra: None,
            fake,
            description: self.notes.description.clone(),
            traits: self.traits.clone(),
        }
    }
}

/// The chain of a service whose code is of `newton`: it knows nothing of 1.15.
pub(crate) fn nodes_1_14() -> Chain<Node1_14> {
    Chain::<Node1_13>::first().rows_without_version_are_these().then()
}

/// That of `ocata`.
pub(crate) fn nodes_1_15() -> Chain<Node1_15> {
    nodes_1_14().then()
}

/// That of the newest code.
pub(crate) fn nodes() -> Chain<Node1_16> {
    nodes_1_15().then()
}

pub(crate) fn registry() -> Registry {
    Registry::new()
        .with(Arc::new(nodes()))
        .with(Arc::new(Chain::<Trait1_0>::first().then::<Trait1_1>()))
        .with(Arc::new(Chain::<Port1_0>::first()))
}

pub(crate) const MANIFEST: &str = r#"
current = "unreleased"

[[release]]
number = "5.1"
names = ["mitaka"]
date = "2016-04-07"
api = "1.16"
rpc = "1.33"
objects = { Node = "1.13", Trait = "1.0" }

[[release]]
number = "6.2"
names = ["newton"]
date = "2016-10-06"
newest-patch = 4
api = "1.22"
rpc = "1.33"
objects = { Node = "1.14", Trait = "1.0" }

[[release]]
number = "6.3"
date = "2016-12-01"
api = "1.24"
rpc = "1.34"
# Code between two releases was run too; the order makes no difference.
objects = { Node = ["1.15", "1.14"], Trait = ["1.0", "1.1"] }

[[release]]
number = "7.0"
names = ["ocata", "2017.1"]
date = "2017-02-22"
api = "1.31"
rpc = "1.36"
objects = { Node = "1.15", Trait = "1.1", Port = "1.0" }

[unreleased]
names = ["master"]
api = "1.34"
rpc = "1.40"
objects = { Node = "1.16", Trait = "1.1", Port = "1.0" }

[[deprecated]]
object = "Node"
field = "extra"
table = "nodes"
release = "6.3"
removed = "master"
"#;

pub(crate) fn declared() -> Declared {
    toml::from_str(MANIFEST).unwrap()
}

pub(crate) fn manifest() -> Arc<Manifest> {
    Arc::new(Manifest::new(declared()).unwrap())
}

pub(crate) fn texts() -> impl Strategy<Value = Texts> {
    prop::collection::btree_map("(fact\\.)?[a-c]{0,2}", "[a-z]{0,3}", 0..4)
}

fn text() -> impl Strategy<Value = String> {
    "[a-z\"\\\\ü]{0,4}"
}

fn maybe() -> impl Strategy<Value = Option<String>> {
    prop::option::of(text())
}

pub(crate) fn traits_1_0() -> impl Strategy<Value = Vec<Trait1_0>> {
    prop::collection::vec(text().prop_map(|name| Trait1_0 { name }), 0..3)
}

pub(crate) fn traits_1_1() -> impl Strategy<Value = Vec<Trait1_1>> {
    let one = (text(), maybe()).prop_map(|(name, note)| Trait1_1 { name, note });
    prop::collection::vec(one, 0..3)
}

pub(crate) fn any_1_13() -> impl Strategy<Value = Node1_13> {
    (text(), texts(), traits_1_0()).prop_map(|(uuid, extra, traits)| Node1_13 { uuid, extra, traits })
}

pub(crate) fn any_1_14() -> impl Strategy<Value = Node1_14> {
    (text(), texts(), maybe(), traits_1_0()).prop_map(|(uuid, extra, description, traits)| Node1_14 {
        uuid,
        extra,
        description,
        traits,
    })
}

pub(crate) fn any_1_15() -> impl Strategy<Value = Node1_15> {
    let all = (text(), prop::option::of(texts()), texts(), maybe(), traits_1_1());
    all.prop_map(|(uuid, extra, fake, description, traits)| Node1_15 {
        uuid,
        extra,
        fake,
        description,
        traits,
    })
}

pub(crate) fn any_1_16() -> impl Strategy<Value = Node1_16> {
    let all = (text(), texts(), texts(), maybe(), traits_1_1());
    all.prop_map(|(uuid, facts, labels, description, traits)| Node1_16 {
        uuid,
        facts,
        labels,
        notes: Notes { description },
        traits,
    })
}

/// One that has something in every field.
pub(crate) fn full() -> Node1_16 {
    Node1_16 {
        uuid: "n1".to_owned(),
        facts: Texts::from([("cpus".to_owned(), "4".to_owned())]),
        labels: Texts::from([("rack".to_owned(), "r7".to_owned())]),
        notes: Notes {
            description: Some("in the corner".to_owned()),
        },
        traits: vec![Trait1_1 {
            name: "GPU".to_owned(),
            note: None,
        }],
    }
}
