//! The release of skipped daemons to Rook while no run is under way.

use std::sync::Arc;

use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use super::{CoexistenceState, Daemons, is_rooks};
use crate::api::daemons::kind_of;
use crate::api::names::DO_NOT_RECONCILE;
use crate::api::objects::Deployment;
use crate::executor::goal::Goal;
use crate::executor::managed_fields::{HELD_BY, holder, template_image};

/// What is to be done about daemons that are held though no run is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettleAction {
    /// None is.
    Nothing,
    /// Rook gets these back.
    LetGo(Vec<UnitId>),
    /// All of it was taken back, so the CephCluster names this image again.
    ImageBefore(String),
    /// They stay as they are, for this reason.
    Stay(String),
}

/// Decides that. `needs`: whether a run may still go on with what is held: updates are managed here, and the last run has left
/// something undone. `last`: what the last run beside Rook kept, and its wish. One CephMaintenance is obeyed for a cluster, so what another
/// holds was left by one that is gone.
pub(crate) fn settle(
    needs: bool,
    daemons: &Daemons,
    cluster_image: Option<&str>,
    last: Option<(&CoexistenceState, &Goal)>,
) -> SettleAction {
    let held: Vec<(&UnitId, &Arc<Deployment>)> = daemons
        .iter()
        .filter(|(_, deployment)| deployment.labels().contains_key(HELD_BY))
        .collect();
    let is_of = |unit: &UnitId, deployment: &Deployment, image: &str| {
        template_image(deployment, kind_of(unit)) == Some(image)
    };
    let as_rook_has_it = |unit: &UnitId, deployment: &Deployment| {
        cluster_image.is_some_and(|image| is_of(unit, deployment, image))
    };
    let back: Vec<UnitId> = held
        .iter()
        // From one without Rook's own label it is not kept: somebody gave it back by hand.
        .filter(|(unit, deployment)| {
            !needs || holder(deployment).is_none() || as_rook_has_it(unit, deployment)
        })
        .map(|(unit, _)| (*unit).clone())
        .collect();
    if !back.is_empty() {
        return SettleAction::LetGo(back);
    }
    let Some((first, _)) = held.first() else {
        return SettleAction::Nothing;
    };
    if let Some((beside, wish)) = last
        && let Some(before) = &beside.image_before
        && cluster_image == Some(wish.image.as_str())
        && daemons
            .iter()
            .filter(|(unit, _)| !is_rooks(beside.mds_by_rook, unit))
            .all(|(unit, deployment)| is_of(unit, deployment, before))
    {
        return SettleAction::ImageBefore(before.clone());
    }
    SettleAction::Stay(format!(
        "{} daemons, of which {first} is one, run another image than the CephCluster names ({}), and Rook is kept from them by \
         the label {DO_NOT_RECONCILE}. `stagger resume` continues with them; without `updates` in spec.manage, Rook does",
        held.len(),
        cluster_image.unwrap_or("none"),
    ))
}
