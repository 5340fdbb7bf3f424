//! By what failures are known that are Ironic's own, however it is upgraded.
//!
//! A failed request is Ironic's own only if its answer has a signature of this list *and* a line of a service's log that
//! names the same request has the other half of it. Everything else is ours. A row needs a defect that was reproduced
//! by hand.

use super::failure::Failure;

/// One defect of Ironic's, as it is seen from outside and in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What we call it.
    pub defect: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The method of the request.
    pub method: &'static str,
    /// How its path begins.
    pub path: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What the answer's body has, in this order.
    pub body: &'static [&'static str],
    /// What a line of a log has, in this order.
    pub log: &'static [&'static str],
}

/// All of them.
pub const SIGNATURES: [Signature; 1] = [Signature {
    defect: "D1",
    about: "from 29.0 to 32.0: a conductor that is pinned answers with a Node of the old version, and in it a TraitList \
            of the new one, which an API of the old release refuses. The write was done.",
    method: "PATCH",
    path: "/v1/nodes/",
    status: 500,
    body: &["Version ", " of TraitList is not supported"],
    log: &["Server-side error: \"Version ", " of TraitList is not supported"],
}];

impl Signature {
    /// Whether the answer has its half.
    pub(super) fn fits(&self, failure: &Failure) -> bool {
        failure.error.is_none()
            && failure.method == self.method
            && failure.path.starts_with(self.path)
            && failure.status == Some(self.status)
            && has_in_order(&failure.body, self.body)
    }

    /// Whether a line of a log has the other half, for that request.
    pub(super) fn is_told(&self, failure: &Failure, line: &str) -> bool {
        let id = failure.request_id.as_deref().filter(|id| !id.is_empty());
        id.is_some_and(|id| line.contains(id)) && has_in_order(line, self.log)
    }
}

fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| {
        let found = rest.find(part);
        if let Some(at) = found {
            rest = &rest[at + part.len()..];
        }
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_in_their_order() {
        assert!(has_in_order(
            "Version 1.2 of TraitList is not",
            &["Version ", " of TraitList"]
        ));
        assert!(!has_in_order(
            " of TraitList Version ",
            &["Version ", " of TraitList"]
        ));
    }
}
