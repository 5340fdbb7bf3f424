//! The one menu.
fn main() {}
