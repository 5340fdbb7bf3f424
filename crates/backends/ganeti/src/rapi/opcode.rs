//! Which nodes and instances an opcode names.

use serde_json::Value;

/// The fields of opcodes that name one node or one instance.
pub const FIELDS: [&str; 6] = [
    "instance_name",
    "node_name",
    "pnode",
    "snode",
    "remote_node",
    "target_node",
];

/// What an opcode names in these fields.
pub fn names(opcode: &Value) -> impl Iterator<Item = String> {
    FIELDS
        .iter()
        .filter_map(|field| opcode[field].as_str().map(str::to_owned))
}
