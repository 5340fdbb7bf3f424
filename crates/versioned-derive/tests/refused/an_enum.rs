use serde::{Deserialize, Serialize};
use stagger_versioned::Versioned;

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.0")]
enum Port1_0 {
    Up,
    Down,
}

fn main() {}
