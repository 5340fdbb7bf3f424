//! One connection to each Ceph, shared by a run and its lock, drains, removals, and evictions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stagger_ceph::api::Access;
use stagger_ceph::api::session::Session;

type Cluster = (String, String);

/// The connections that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<BTreeMap<Cluster, (Access, Weak<Session>)>>,
}

impl Connections {
    /// The connection to the Ceph of a cluster; it ends with the last who holds it. Where it is reached in another
    /// way than before, this is another one.
    pub(crate) fn to(&self, namespace: &str, cluster: &str, access: &Access) -> Arc<Session> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), cluster.to_owned());
        let there = open.get(&key).filter(|(by, _)| by == access);
        if let Some(session) = there.and_then(|(_, session)| session.upgrade()) {
            return session;
        }
        let session = Arc::new(Session::new(access.clone()));
        open.retain(|_, (_, held)| held.strong_count() > 0);
        open.insert(key, (access.clone(), Arc::downgrade(&session)));
        session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_for_all_who_ask_while_somebody_holds_it() {
        let connections = Connections::default();
        let access = Access::default();
        let one = connections.to("rook-ceph", "a", &access);
        assert!(Arc::ptr_eq(&one, &connections.to("rook-ceph", "a", &access)));
        assert!(!Arc::ptr_eq(&one, &connections.to("rook-ceph", "b", &access)));
        let other = Access {
            name: Some("client.other".to_owned()),
            ..Access::default()
        };
        assert!(!Arc::ptr_eq(&one, &connections.to("rook-ceph", "a", &other)));
        drop(one);
        drop(connections.to("rook-ceph", "c", &access));
        assert_eq!(connections.open.lock().unwrap().len(), 1);
    }
}
