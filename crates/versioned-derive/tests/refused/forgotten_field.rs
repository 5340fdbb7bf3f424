use serde::{Deserialize, Serialize};
use stagger_versioned::Versioned;

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.0")]
struct Port1_0 {
    address: String,
    speed: i64,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.1", before = Port1_0)]
struct Port1_1 {
    address: String,
}

fn main() {}
