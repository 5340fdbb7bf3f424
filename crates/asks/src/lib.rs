//! Asks of others to take hosts down: kured, a colleague's Ansible, `systemctl reboot` behind an inhibitor.
//!
//! An [`Ask`] names hosts or units, for how long, and until when it can wait. Its answer is a grant: a [`Claim`] with a
//! fence and an expiry, counted as down from then on by every run and every other grant. [`ledger`] keeps both in the
//! store. [`judge`] decides as a wave is decided: the core's own check over facts in which all claims count as down, then
//! the cluster's oracle. [`gate`] answers asks, one process a cluster; [`claiming`] makes a run claim what it takes down.
//!
//! Two who ask at once are never judged by the same facts: a claim is written only at the version of the claims by which
//! it was judged. Start reading at [`queue`], which says who is next, then [`gate`].

pub mod ask;
pub mod claim;
pub mod claiming;
mod counted;
pub mod gate;
pub mod judge;
pub mod ledger;
pub mod marked;
pub mod places;
pub mod queue;
pub mod scene;
pub mod view;

pub use ask::{Ask, AskEnd, AskError, AskId, AskState, NewAsk};
pub use claim::{Claim, ClaimHolder, ClaimRecord};
pub use claiming::ClaimingBackend;
pub use gate::{AskGate, GatePolicy};
pub use ledger::{AskLedger, LedgerError, LedgerLocation};
