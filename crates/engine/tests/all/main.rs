//! The driver, the journal and the lease beside faults.

mod drive;
mod identity;
mod journal;
mod lease_is_kept;
mod lost_answer;
mod one_unit;
mod other_journals;
mod rails;
mod slow_store;
mod three_units;
