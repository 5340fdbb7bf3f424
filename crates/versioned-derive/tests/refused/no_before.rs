use serde::{Deserialize, Serialize};
use stagger_versioned::Versioned;

#[derive(Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.1")]
struct Port1_1 {
    address: String,
    #[versioned(added)]
    description: Option<String>,
}

fn main() {}
