//! Parts of a page: each has a name and a digest, and is sent only if the reader has another version.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

/// A part of a page.
#[derive(Debug)]
pub(crate) struct PagePart {
    name: String,
    digest: String,
    html: String,
}

impl PagePart {
    pub(crate) fn new(name: impl Into<String>, content: &Markup) -> Self {
        let name = name.into();
        let mut hasher = DefaultHasher::new();
        (&name, &content.0).hash(&mut hasher);
        Self {
            name,
            digest: format!("{:016x}", hasher.finish()),
            html: content.0.clone(),
        }
    }

    /// As the page has it when it is loaded.
    pub(crate) fn full(&self) -> Markup {
        html! {
            div data-part=(self.name) data-digest=(self.digest) { (PreEscaped(&self.html)) }
        }
    }
}

/// All of them, in order.
pub(crate) fn full_list(parts: &[PagePart]) -> Markup {
    html! { @for part in parts { (part.full()) } }
}

/// A part as a script is sent it.
#[derive(Debug, Serialize)]
pub(crate) struct PartDocument<'a> {
    name: &'a str,
    digest: &'a str,
    /// Absent: the reader has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
}

/// The parts in order, without the content of those whose digests stand in `have`, with a dot between two.
pub(crate) fn sent<'a>(parts: impl IntoIterator<Item = &'a PagePart>, have: &str) -> Vec<PartDocument<'a>> {
    let have: BTreeSet<&str> = have.split('.').collect();
    let sent = parts.into_iter().map(|part| PartDocument {
        name: &part.name,
        digest: &part.digest,
        html: (!have.contains(part.digest.as_str())).then_some(part.html.as_str()),
    });
    sent.collect()
}
