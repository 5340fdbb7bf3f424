//! Which jobs the drain of one wave holds: those that name a node of the wave, or an instance of one.
//!
//! A job filter sees an opcode as it was submitted, one field at a time, and an opcode without that field
//! does not match (`src/Ganeti/JQScheduler/Filtering.hs`). So there is a filter for each field, and some jobs
//! that touch the wave pass: where an allocator chooses the nodes, where they are in a list, where a tag or a
//! group is named. Ganeti's own locks keep those apart from stagger's jobs, and its drained nodes get nothing
//! new.

use std::collections::BTreeSet;

use stagger_core::model::UnitId;

use crate::facts::GanetiFacts;

/// With more names a drain is not narrow, and its filters would be large: all jobs wait then.
const MOST_NAMES: usize = 1000;

/// The names of these nodes and of all instances that are theirs, also of those that a visit has moved away, in each way in which a
/// person may have typed them: Ganeti completes short names only when the job has begun. `None`: there are too many, or none.
pub fn names_of(facts: &GanetiFacts, nodes: &[UnitId]) -> Option<BTreeSet<String>> {
    let is_one = |name: &str| nodes.iter().any(|node| node.as_str() == name);
    let theirs = facts.instances.values().filter(|instance| {
        let is_noted = || {
            let noted = nodes.iter().filter_map(|node| facts.nodes.get(node.as_str()));
            noted
                .flat_map(|node| node.notes.visits())
                .any(|notes| notes.names(&instance.uuid))
        };
        is_one(&instance.primary) || instance.secondary.as_deref().is_some_and(is_one) || is_noted()
    });
    let whole = nodes.iter().map(UnitId::as_str);
    let names: BTreeSet<String> = whole
        .chain(theirs.map(|instance| instance.name.as_str()))
        .flat_map(spellings)
        .collect();
    (!names.is_empty() && names.len() <= MOST_NAMES).then_some(names)
}

/// `a.b.c` may be typed as `a` and as `a.b`.
fn spellings(name: &str) -> impl Iterator<Item = String> {
    let dots = name.match_indices('.').map(|(at, _)| name[..at].to_owned());
    dots.chain([name.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_each_way_in_which_it_may_be_typed() {
        let all: Vec<String> = spellings("web.a.org").collect();
        assert_eq!(all, ["web", "web.a", "web.a.org"]);
    }
}
