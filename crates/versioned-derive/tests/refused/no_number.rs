use serde::{Deserialize, Serialize};
use stagger_versioned::Versioned;

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.01")]
struct Port1_0 {
    address: String,
}

fn main() {}
