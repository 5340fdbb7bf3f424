//! The data model, one subject per file.

mod absent;
mod budget_text;
mod capacity;
mod condition;
mod constraint;
mod evacuation;
mod fact;
mod guard;
mod ids;
mod interruption;
mod moves;
mod names;
mod out_of_service;
mod plan;
mod planning_input;
mod policy;
mod reason;
mod remedy;
mod snapshot;
mod target;
mod terms;
mod topology;
mod unit;
mod window;

pub use absent::Absent;
pub(crate) use capacity::largest_met_demand;
pub use capacity::{
    Amounts, Capacity, CapacityError, CapacityViolation, Demand, Guest, Host, Migration, Resource, Storage,
};
pub use condition::{Condition, Gate, Verdict};
pub use constraint::{BudgetColumns, BudgetError, BudgetViolation, Budgets, BudgetsBuilder, Down};
pub use evacuation::{
    Evacuate, EvacuationPolicy, GuestHandling, LocalGuests, Maintenance, OneAtATime, SharedGuests, Spare,
    Standbys,
};
pub use fact::Fact;
pub use guard::{GuardScope, GuardSpec};
pub use ids::{
    ClusterId, ClusterName, ConditionName, GuardName, IdError, Kind, PartName, Revision, RunId, UnitId,
};
pub use interruption::{Bystander, Interruption};
pub use moves::{Move, MoveKind};
pub use names::{HostName, check_plain};
pub use out_of_service::Drained;
pub use plan::{
    Interrupted, LeftAlone, Plan, PlannedPart, PlannedStage, PlannedStep, Schedule, ScheduledVisit, Wave,
};
pub use planning_input::{PlanningInput, USUAL_VISIT};
pub use policy::{Doors, Growth, Limit, LimitError, OnFailure, Order, Policy, Retry, Search};
pub use reason::{Code, Reason};
pub(crate) use snapshot::hex;
pub use snapshot::{Snapshot, SnapshotError};
pub use target::{Door, GoingBack, Part, Phase, StageSpec, StepSpec, Target, Width};
pub use terms::Terms;
pub use topology::{HostUnits, Topology};
pub use unit::{Ix, Unit, UnitState};
pub use window::{Window, WindowError};
