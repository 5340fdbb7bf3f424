//! Clients.

pub(crate) const PROGRAMS: [(&str, &str); 0] = [];
