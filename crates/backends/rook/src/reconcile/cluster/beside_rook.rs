//! Beside a running Rook: whether Rook may run at the same time, which daemons it skips, and how they are
//! released.

use std::collections::BTreeMap;
use std::time::Duration;

use stagger_core::model::UnitId;

use super::{ClusterReconciler, Pass};
use crate::api::daemons::kind_of;
use crate::api::maintenance::{Desired, FINALIZER, Manage};
use crate::api::rook_operator;
use crate::executor::backend::{kept_by_others_text, set_image};
use crate::executor::beside::{self, CoexistenceState, SettleAction};
use crate::executor::goal::Goal;
use crate::executor::handback;
use crate::executor::managed_fields;
use crate::observability::blocked::Blocked;
use crate::observability::events;
use crate::observability::last_run::Last;
use crate::reconcile::Shared;
use crate::reconcile::finalizer;

/// Nobody is told that it takes its time before it has taken so long.
const GIVING_BACK: Duration = Duration::from_secs(20);

impl ClusterReconciler {
    /// How a run keeps Rook from what it changes; `None`: Rook must not run. Where the image is that of the CephMaintenance, Rook may, or may
    /// be started in mid-run: the CephCluster gets that image.
    pub(super) async fn beside_rook(
        &self,
        desired: &Desired,
        wish: &Goal,
        differing: &[UnitId],
    ) -> Result<Option<CoexistenceState>, Blocked> {
        let Shared { client, .. } = &self.shared;
        let runs = rook_operator::running(client, &self.namespace, &self.watched).await?;
        if let Some(why) = &runs
            && desired.manages(Manage::Provisioning)
        {
            let why = format!("provisioning is managed here: {why}, or take it out of spec.manage");
            return Err(Blocked::temporary("RookOperatorRuns", why));
        }
        if desired.maintenance.spec.image.is_none() {
            return match runs {
                None => Ok(None),
                Some(_) => Err(Blocked::temporary(
                    "RookUpdates",
                    "Rook's operator runs, and updates daemons to the image of the CephCluster by itself: set spec.image of the \
                     CephMaintenance, and leave that of the CephCluster as it is",
                )),
            };
        }
        let named = &desired.cluster.spec.ceph_version.image;
        let (daemons, _) = self.watched.daemons();
        let is_held = |unit: &&UnitId| {
            daemons
                .get(*unit)
                .is_some_and(|one| managed_fields::holder(one).is_some())
        };
        // Metadata servers are always Rook's; where a run has others to do, it waits for them.
        let is_servers = |unit: &&UnitId| kind_of(unit) == beside::METADATA_SERVERS;
        let all_servers = differing.iter().all(|unit| is_servers(&unit));
        let theirs: Vec<&UnitId> = differing
            .iter()
            .filter(|unit| !is_held(unit) && (all_servers || !is_servers(unit)))
            .collect();
        if runs.is_some()
            && named.as_ref() == Some(&wish.image)
            && let Some(first) = theirs.first()
        {
            return Err(Blocked::temporary(
                "RookUpdates",
                format!(
                    "the CephCluster names {} already, so Rook's operator, which runs, updates {first}{} by itself",
                    wish.image,
                    match theirs.len() {
                        1 => String::new(),
                        many => format!(" and {} more", many - 1),
                    }
                ),
            ));
        }
        let before = self
            .last
            .as_ref()
            .and_then(Last::beside)
            .map(|(beside, _)| beside);
        // Of a run that goes on where another ended, it is what that one found.
        let goes_on = before.filter(|_| named.as_ref() == Some(&wish.image));
        Ok(Some(CoexistenceState {
            holder: desired.name(),
            image_before: goes_on.map_or_else(|| named.clone(), |before| before.image_before.clone()),
            mds_by_rook: runs.is_some(),
        }))
    }

    /// Two operators would undo each other's work.
    pub(super) async fn no_other_operator(&self) -> Result<(), Blocked> {
        match rook_operator::running(&self.shared.client, &self.namespace, &self.watched).await? {
            None => Ok(()),
            Some(why) => Err(Blocked::temporary("RookOperatorRuns", why)),
        }
    }

    /// Gives Rook back what is held and no run needs any more.
    pub(super) async fn release_held(&self, desired: &Desired) -> Result<(), Blocked> {
        const STAYS: &str = "RookIsKeptFromDaemons";
        let (daemons, _) = self.watched.daemons();
        let is_done = self.last.as_ref().is_some_and(Last::is_done);
        let settle = beside::settle(
            desired.manages(Manage::Updates) && !is_done,
            &daemons,
            desired.cluster.spec.ceph_version.image.as_deref(),
            self.last.as_ref().and_then(Last::beside),
        );
        let mut stays = BTreeMap::new();
        match settle {
            SettleAction::Nothing => {}
            SettleAction::LetGo(units) => {
                for unit in units {
                    if let Some(deployment) = daemons.get(&unit) {
                        handback::release_to_rook(&self.shared.client, &self.namespace, deployment).await?;
                        let stays = kept_by_others_text(deployment).map(events::kept_by_others);
                        self.writer.publish_events(stays.into_iter().collect());
                    }
                }
            }
            SettleAction::ImageBefore(image) => {
                let last = self.last.as_ref().and_then(Last::beside);
                let from = last.map(|(_, wish)| wish.image.as_str());
                let by = format!("{}-taken-back", desired.name());
                set_image(
                    &self.shared.client,
                    &self.namespace,
                    &self.name,
                    (from, &image),
                    &by,
                )
                .await?;
            }
            SettleAction::Stay(why) => drop(stays.insert(self.name.clone(), why)),
        }
        self.writer.set_problems(STAYS, stays);
        Ok(())
    }

    /// Waits until nothing is held any more, and lets the CephMaintenance go. Its last run is over, and drains give back
    /// beside this.
    pub(super) async fn wait_until_released(&self, desired: &Desired) -> Result<Pass, Blocked> {
        let (daemons, _) = self.watched.daemons();
        if daemons.values().any(|one| managed_fields::holder(one).is_some()) {
            // What was written is seen in a moment.
            return Ok(Pass::Rest);
        }
        self.set_phase(
            "Progressing",
            "GivesBack",
            "budgets and noout are being cleared",
            desired,
        );
        if tokio::time::timeout(GIVING_BACK, self.writer.wait_until_cleared())
            .await
            .is_err()
        {
            let troubles = self.writer.current_status().troubles;
            let why = troubles.values().flat_map(BTreeMap::values).next().cloned();
            let why = why.unwrap_or_else(|| "it is not done yet".to_owned());
            return Err(Blocked::temporary(
                "GivesBack",
                format!(
                    "budgets and noout are not cleared yet: {why}. If you remove the finalizer {FINALIZER}, clear them by \
                     hand"
                ),
            ));
        }
        finalizer::drop_it(&self.shared.client, &desired.maintenance).await;
        Ok(Pass::Rest)
    }
}
