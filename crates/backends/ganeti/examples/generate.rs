//! Prints a cluster in Ganeti's text format: `cargo run -p stagger-ganeti --example generate -- NODES
//! random|ring|pairs|cells:K|hubs:K GROUPS mirrored|movable|usual|mixed SEED`.
//!
//! Nodes of 128 GiB with ten instances each, which have a sixth of it; nothing but memory binds.

use std::io::Write as _;

use stagger_ganeti::loaders::generated::{
    ClusterRng, Layout, MIRRORED, MIXED, MOVABLE, Shape, USUAL, cluster,
};
use stagger_ganeti::loaders::text::write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [nodes, layout, groups, templates, seed] = words.as_slice() else {
        return Err("NODES LAYOUT GROUPS TEMPLATES SEED are wanted".into());
    };
    let layout = match layout.split_once(':').unwrap_or((layout, "")) {
        ("random", "") => Layout::Random,
        ("ring", "") => Layout::Ring,
        ("pairs", "") => Layout::Pairs,
        ("cells", size) => Layout::Cells(size.parse()?),
        ("hubs", count) => Layout::Hubs(count.parse()?),
        _ => return Err(format!("{layout:?} is no layout").into()),
    };
    let templates = match *templates {
        "mirrored" => MIRRORED,
        "movable" => MOVABLE,
        "usual" => USUAL,
        "mixed" => MIXED,
        other => return Err(format!("{other:?} is no mix of templates").into()),
    };
    let shape = Shape {
        nodes: nodes.parse()?,
        groups: groups.parse()?,
        layout,
        templates,
        roomy: 640,
        ..Shape::PLAIN
    };
    let text = write(&cluster(&mut ClusterRng(seed.parse()?), &shape));
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
