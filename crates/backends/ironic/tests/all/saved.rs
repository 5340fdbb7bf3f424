//! What is saved of an Ironic tells the same when it is read.

use serde_json::json;
use stagger_conformance::source::what_is_saved_is_read_back;
use stagger_ironic::source::RecordedIronic;

use crate::common::setup;

#[tokio::test]
async fn its_source_has_the_law_of_every_source() {
    let setup = setup("26.1.6");
    let facts = setup.backend(None).collect_facts().await;
    let answers = json!({ "facts": facts, "cluster": setup.settings.cluster });
    let source: RecordedIronic = serde_json::from_value(answers).unwrap();
    let read = |inventory: &_| RecordedIronic::read(inventory).unwrap();
    assert_eq!(what_is_saved_is_read_back(&source, read).await, facts);
}
