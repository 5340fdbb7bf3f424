//! What a user has asked of the API server, as the server itself wrote it down.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// One request, at its end; a watch is none before that.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    stage: String,
    verb: String,
    #[serde(rename = "requestReceivedTimestamp")]
    pub(super) at: Timestamp,
    #[serde(default)]
    object_ref: Object,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
}

impl Asked {
    /// `patch deployments`.
    pub(super) fn what(&self) -> String {
        let Object {
            resource,
            subresource,
        } = &self.object_ref;
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{} {resource}{slash}{subresource}", self.verb)
    }

    /// Whether it is one that there always is: a watch, or the Lease.
    pub(super) fn is_usual(&self) -> bool {
        self.verb == "watch" || self.object_ref.resource == "leases"
    }
}

/// All requests that came in `from..until`.
pub(super) fn between(path: &Path, from: Timestamp, until: Timestamp) -> Result<Vec<Asked>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut all = Vec::new();
    for line in text.lines() {
        let one: Asked = serde_json::from_str(line).with_context(|| format!("not understood: {line}"))?;
        if one.stage == "ResponseComplete" && (from..until).contains(&one.at) {
            all.push(one);
        }
    }
    Ok(all)
}

/// How many of each.
pub(super) fn counts<'a>(all: impl IntoIterator<Item = &'a Asked>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one.what()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_requests_of_a_while_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let line = |stage: &str, verb: &str, second: u32, object: &str| {
            format!(
                r#"{{"kind":"Event","stage":"{stage}","verb":"{verb}","requestReceivedTimestamp":"2026-11-21T10:00:{second:02}.000000Z","objectRef":{object}}}"#
            )
        };
        let text = [
            line("ResponseComplete", "patch", 1, r#"{"resource":"leases"}"#),
            line("ResponseStarted", "watch", 2, r#"{"resource":"pods"}"#),
            line(
                "ResponseComplete",
                "patch",
                3,
                r#"{"resource":"cephmaintenances","subresource":"status"}"#,
            ),
            line("ResponseComplete", "patch", 9, r#"{"resource":"deployments"}"#),
        ];
        fs::write(&path, text.join("\n")).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let all = between(&path, at("2026-11-21T10:00:00Z"), at("2026-11-21T10:00:09Z")).unwrap();
        assert_eq!(all.iter().filter(|one| !one.is_usual()).count(), 1);
        let expected = [
            ("patch leases".to_owned(), 1),
            ("patch cephmaintenances/status".to_owned(), 1),
        ];
        assert_eq!(counts(&all), expected.into());
    }
}
