//! stagger.
fn main() {}
