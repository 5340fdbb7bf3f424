//! A cluster in memory, with seeded faults and a virtual clock.
//!
//! [`world`] keeps what is *true*: who is up, and whose copies are complete. [`backend`] shows the
//! engine what such a cluster would *say*, which may be late, missing or a lie. The world judges each
//! stop by the truth at that instant and counts what no honest tool could have known.
//! [`simulate`](fn@simulate) runs a whole [`scenario::Scenario`] through the real engine; [`rehearse`](fn@rehearse) runs an upgrade
//! on the [`copy`] of a real cluster; [`worlds`] plays [`random`] worlds by the thousand, and shrinks those in
//! which the truth has found something ([`SimulationFinding`]).
//!
//! Start reading at [`simulate`](mod@simulate), then [`world`].

pub mod backend;
pub mod clock;
pub mod copy;
mod lock;
mod memory;
pub mod random;
pub mod rehearse;
pub mod rng;
pub mod scenario;
pub mod simulate;
pub mod target;
pub mod world;
pub mod worlds;

pub use backend::Sim;
pub use clock::{ClockError, ClockSpeed, VirtualClock};
pub use copy::ClusterCopy;
pub use rehearse::{Rehearsal, RehearsalReport, rehearse};
pub use scenario::{Scenario, SimSpec};
pub use simulate::{Class, SimEnding, SimError, SimReport, SimulationFinding, simulate};
pub use target::target;
