use serde::{Deserialize, Serialize};
use stagger_versioned::Versioned;

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port")]
struct Port1_0 {
    address: String,
}

fn main() {}
