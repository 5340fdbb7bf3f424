//! One story for every change: what `ganeti_long/story.rs` tells, on Ganeti 3.0.

#[path = "ganeti_long/story.rs"]
mod story;

use anyhow::Result;
use stagger_e2e::case::on_ganeti;
use stagger_e2e::ganeti::Release;

#[test]
#[ignore = "needs root and Ganeti; cargo xtask test runs it"]
fn all_nodes_with_the_master_while_stagger_is_killed_and_others_work() -> Result<()> {
    on_ganeti("ganeti_story", story::spec(Release::V3_0), story::told)
}
