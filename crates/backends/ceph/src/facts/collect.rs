//! Asks a cluster for all its facts.
#[derive(Debug)]
pub struct CollectError;
#[derive(Debug)]
pub struct CollectOptions;
pub fn collect() {}
