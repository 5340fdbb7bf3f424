//! An update beside a running Rook: which daemons Rook skips, and when they are released to it.
//!
//! Rook updates every daemon to the image that the CephCluster names, at its own pace. So each daemon of a
//! run first gets Rook's own label for daemons to skip, then the CephCluster gets the new image, and each
//! daemon is released once it runs that image: its Deployment then is what Rook would write, so Rook restarts
//! nothing. A label has no expiry, so its holder is recorded beside it, and the reconciler of that
//! CephMaintenance removes labels that no run needs any more, also after a crash.
//!
//! Two shorter ways were measured and are worse (decision 0025): a label on the CephCluster keeps a restarted
//! Rook from watching anything at all, and without the new image in the CephCluster Rook would revert each
//! daemon.

mod image;
mod metadata_servers;
mod monitors;
mod settle;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use image::is_image_active;
pub use image::{ClusterImage, RookImageStatus};
pub(crate) use metadata_servers::{KIND as METADATA_SERVERS, pending_reason as servers_not_done};
pub(crate) use monitors::unwatched;
pub(crate) use settle::{SettleAction, settle};

use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use stagger_ceph::translate::Baseline;
use stagger_core::model::{
    Condition, ConditionName, IdError, Part, PartName, StepSpec, Target, UnitId, Verdict,
};

use crate::api::daemons::{kind_of, osd_of, serves};
use crate::api::names::{DO_NOT_RECONCILE, HELD};
use crate::api::objects::Deployment;
use crate::executor::goal::Goal;
use crate::executor::managed_fields::{HELD_BY, has_revision, holder};

/// What a run beside Rook keeps of how it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoexistenceState {
    /// Who holds: the name of the CephMaintenance.
    pub holder: String,
    /// The image that the CephCluster named.
    pub image_before: Option<String>,
    /// Whether metadata servers are left to Rook. Not where none ran when the run began, nor in journals of before they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mds_by_rook: bool,
}

/// What a run is to change: what it is asked for, and how things were before it.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a> {
    pub(crate) wish: &'a Goal,
    pub(crate) baseline: &'a Baseline,
    /// Whether metadata servers are left to Rook.
    pub(crate) mds_by_rook: bool,
}

/// What Rook has done of its own part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RookProgress {
    /// What it makes of the image that the CephCluster names.
    pub image: ClusterImage,
    /// What metadata servers that are left to it wait for.
    pub servers: Option<String>,
}

/// The daemons of a cluster.
pub type Daemons = BTreeMap<UnitId, Arc<Deployment>>;

/// Who keeps Rook from a daemon that gets this image: nobody, where it is the one that the CephCluster names. Whoever is taken back
/// after Rook had it again is kept from Rook by the same write, or Rook would take it forth once more.
pub(crate) fn holder_with<'a>(
    beside: Option<&'a CoexistenceState>,
    wish: &Goal,
    image: &str,
) -> Option<&'a str> {
    beside
        .filter(|_| image != wish.image)
        .map(|beside| beside.holder.as_str())
}

/// A step of a run beside Rook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Rook is kept from every daemon that is to be changed.
    Hold,
    /// The CephCluster names the new image.
    Image,
    /// Rook gets back monitors and managers: while it is kept from one monitor, it looks after none.
    Monitors,
    /// Rook has updated the metadata servers.
    MetadataServers,
}

impl Step {
    const ALL: [Self; 4] = [Self::Hold, Self::Image, Self::Monitors, Self::MetadataServers];

    fn name(self) -> &'static str {
        match self {
            Self::Hold => "keep-from-rook",
            Self::Image => "cephcluster-image",
            Self::Monitors => "monitors-back-to-rook",
            Self::MetadataServers => "metadata-servers-by-rook",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::Hold => {
                "labels the Deployments that are to be changed, so that Rook leaves them alone until they are"
            }
            Self::Image => {
                "writes the image into the CephCluster and waits until Rook has taken it up: Rook takes back none of what is changed \
                 from here on"
            }
            Self::Monitors => "takes the label off monitors and managers, which Rook watches again",
            Self::MetadataServers => {
                "waits until Rook has updated the metadata servers, which it does by itself; of another release once the monitors run it"
            }
        }
    }

    fn done_when(self) -> Result<ConditionName, IdError> {
        ConditionName::new(format!("{}-done", self.name()))
    }

    /// The step of that name.
    pub(crate) fn of(name: &PartName) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name.as_str())
    }
}

/// Puts the steps in their places: two before everything, one once monitors and managers are changed. Metadata servers that are left to Rook
/// have no stage, and a step where Rook begins with them: after the monitors, or, of an image of the same release, at once.
pub(crate) fn insert_steps(
    target: &mut Target,
    mds_by_rook: bool,
    release_changes: bool,
) -> Result<(), IdError> {
    let is_of = |part: &Part, kinds: &[&str]| match part {
        Part::Stage(stage) => kinds.contains(&stage.kind.as_str()),
        Part::Step(_) => false,
    };
    if mds_by_rook {
        target.parts.retain(|part| !is_of(part, &[METADATA_SERVERS]));
    }
    let step = |step: Step| -> Result<Part, IdError> {
        Ok(Part::Step(StepSpec {
            name: PartName::new(step.name())?,
            done_when: step.done_when()?,
            before: Vec::new(),
            door: None,
            why: step.why().to_owned(),
        }))
    };
    let after =
        |parts: &[Part], kinds: &[&str]| parts.iter().rposition(|part| is_of(part, kinds)).map(|at| at + 1);
    if let Some(at) = after(&target.parts, &["mon", "mgr"]) {
        target.parts.insert(at, step(Step::Monitors)?);
    }
    if mds_by_rook {
        let monitors = after(&target.parts, &["mon"]).filter(|_| release_changes);
        target
            .parts
            .insert(monitors.unwrap_or(0), step(Step::MetadataServers)?);
    }
    target.parts.insert(0, step(Step::Image)?);
    target.parts.insert(0, step(Step::Hold)?);
    Ok(())
}

/// How far the steps are.
pub(crate) fn conditions(
    run: Changes<'_>,
    daemons: &Daemons,
    rook: &RookProgress,
) -> Result<Vec<Condition>, IdError> {
    let image = &rook.image;
    let still_left = |step: Step| {
        let left = remaining(step, run, daemons);
        let first = left.first()?;
        Some(format!("{first} and {} more remain", left.len() - 1))
    };
    let names_another = || {
        let says = image.named.as_deref();
        (says != Some(run.wish.image.as_str()))
            .then(|| format!("the CephCluster names {}", says.unwrap_or("no image")))
    };
    let not_done = |step: Step| match step {
        Step::Hold => still_left(step),
        Step::Image => names_another().or_else(|| image.inactive_reason().map(str::to_owned)),
        Step::Monitors => still_left(step).or_else(names_another),
        Step::MetadataServers => names_another().or_else(|| rook.servers.clone()),
    };
    let condition = |step: Step| {
        let why = not_done(step);
        Ok(Condition {
            name: step.done_when()?,
            verdict: if why.is_none() { Verdict::Yes } else { Verdict::No },
            why: why.unwrap_or_else(|| "nothing is left to do".to_owned()),
            but_for: Vec::new(),
        })
    };
    Step::ALL.into_iter().map(condition).collect()
}

/// The daemons of which a step has to change the labels.
pub(crate) fn remaining(step: Step, run: Changes<'_>, daemons: &Daemons) -> Vec<UnitId> {
    let is_left = |unit: &UnitId, deployment: &Deployment| match step {
        // One that a person keeps from everybody is left alone by the run too, and who gives one to Rook in its midst is not
        // fought.
        Step::Hold => is_open_to_rook(run, unit, deployment) && !deployment.labels().contains_key(HELD_BY),
        Step::Image | Step::MetadataServers => false,
        Step::Monitors => {
            ["mon", "mgr"].contains(&kind_of(unit))
                && is_up_to_date(run.wish, unit, deployment)
                && holder(deployment).is_some()
        }
    };
    let units = daemons
        .iter()
        .filter(|(unit, deployment)| is_left(unit, deployment));
    units.map(|(unit, _)| unit.clone()).collect()
}

fn is_up_to_date(wish: &Goal, unit: &UnitId, deployment: &Deployment) -> bool {
    let kind = kind_of(unit);
    has_revision(deployment, kind, &wish.pod_revision(kind, ""))
}

/// Whether no plan changes an OSD: it neither ran nor was to hold data when the run began, as one that is dead and out, and it
/// does not serve now. Rook may do with it what it likes.
fn is_absent(run: Changes<'_>, unit: &UnitId, deployment: &Deployment) -> bool {
    let before = run.baseline;
    let is_out = osd_of(unit).is_some_and(|osd| !before.osds_in.contains(&osd));
    is_out && !before.daemons.contains_key(unit) && !serves(deployment)
}

/// Whether a daemon is left to Rook.
fn is_rooks(mds_by_rook: bool, unit: &UnitId) -> bool {
    mds_by_rook && kind_of(unit) == METADATA_SERVERS
}

/// Whether Rook is not kept from a daemon that the run still has to change.
fn is_open_to_rook(run: Changes<'_>, unit: &UnitId, deployment: &Deployment) -> bool {
    !is_rooks(run.mds_by_rook, unit)
        && !is_up_to_date(run.wish, unit, deployment)
        && !deployment.labels().contains_key(DO_NOT_RECONCILE)
        && !is_absent(run, unit, deployment)
}

/// Whether the run itself still has metadata servers to change, from which no label keeps Rook.
pub(crate) fn changes_servers(run: Changes<'_>, daemons: &Daemons) -> bool {
    let mut servers = daemons
        .iter()
        .filter(|(unit, _)| kind_of(unit) == METADATA_SERVERS);
    !run.mds_by_rook && servers.any(|(unit, deployment)| !is_up_to_date(run.wish, unit, deployment))
}

/// The daemons from which Rook is not kept though they are still to be changed.
pub(crate) fn open_to_rook(run: Changes<'_>, daemons: &Daemons) -> Vec<UnitId> {
    let open = daemons
        .iter()
        .filter(|(unit, deployment)| is_open_to_rook(run, unit, deployment));
    open.map(|(unit, _)| unit.clone()).collect()
}

/// Why no wave may begin: Rook is not kept from what is to be changed. `None`: it is.
pub(crate) fn is_open(run: Changes<'_>, daemons: &Daemons, cluster_image: Option<&str>) -> Option<String> {
    let wish = run.wish;
    if cluster_image != Some(wish.image.as_str()) {
        return Some(format!(
            "spec.cephVersion.image of the CephCluster is {}, and Rook would take back what is changed: set it to {}, or end \
             the run",
            cluster_image.unwrap_or("not set"),
            wish.image
        ));
    }
    let open = open_to_rook(run, daemons);
    let first = open.first()?;
    let deployment = daemons.get(first)?;
    Some(format!(
        "the label {DO_NOT_RECONCILE} was removed from the Deployment of {first}{}, so Rook may change it at any time: \
         set it again (`kubectl -n {} label deployment {} {DO_NOT_RECONCILE}={HELD}`), or abort the run",
        match open.len() {
            1 => String::new(),
            many => format!(" and {} more", many - 1),
        },
        deployment.namespace().unwrap_or_default(),
        deployment.name_any(),
    ))
}

#[cfg(test)]
mod tests {
    use stagger_core::model::{GoingBack, Kind, Revision, StageSpec, Width};

    use serde_json::{Value, json};

    use super::*;
    use crate::api::maintenance::desired;
    use crate::executor::managed_fields::labels;

    const OLD: &str = "ceph:20.2.4";
    const NEW: &str = "ceph:20.2.5";

    fn wish() -> Goal {
        let wanted = desired(json!({}), json!({ "manage": ["updates"], "image": NEW }));
        Goal::of(&wanted, false).unwrap()
    }

    /// Of a run that began with osd.5 down and out, and all others up.
    fn baseline() -> Baseline {
        let baseline = json!({
            "kind": "ceph-baseline", "version": 1, "at": "2026-11-29T00:00:00Z", "fsid": "f", "health": {},
            "mgr_standbys": 1, "osds_in": [1, 2, 3], "crashes": [], "daemons": {},
        });
        serde_json::from_value(baseline).unwrap()
    }

    fn ours() -> CoexistenceState {
        CoexistenceState {
            holder: "m".to_owned(),
            image_before: Some(OLD.to_owned()),
            mds_by_rook: true,
        }
    }

    fn daemon(unit: &str, image: &str, labels: &Value) -> (UnitId, Arc<Deployment>) {
        let (kind, _) = unit.split_once('.').unwrap();
        let deployment = serde_json::from_value(json!({
            "metadata": { "name": unit, "labels": labels },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": kind, "image": image }] } } },
        }));
        (UnitId::new(unit).unwrap(), Arc::new(deployment.unwrap()))
    }

    fn held() -> Value {
        labels("m")
    }

    fn names(units: &[UnitId]) -> Vec<&str> {
        units.iter().map(UnitId::as_str).collect()
    }

    /// What the steps have to do, in the order of a run.
    #[test]
    fn rook_is_kept_from_what_is_to_be_changed_and_gets_monitors_back_once_they_are() {
        let (wish, baseline) = (wish(), baseline());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        let none = json!({});
        let before = Daemons::from([
            daemon("mon.a", OLD, &none),
            daemon("osd.1", OLD, &none),
            daemon("osd.2", NEW, &none),
            daemon("osd.3", OLD, &json!({ DO_NOT_RECONCILE: "mine" })),
        ]);
        let names_it = |image: &str, word: RookImageStatus| ClusterImage {
            named: Some(image.to_owned()),
            word,
        };
        let told = |daemons: &Daemons, image: ClusterImage| {
            let servers = None;
            conditions(run, daemons, &RookProgress { image, servers }).unwrap()
        };
        let done = |daemons: &Daemons, image: &str| -> Vec<bool> {
            let conditions = told(daemons, names_it(image, RookImageStatus::TakenUp));
            conditions.iter().map(|one| one.verdict == Verdict::Yes).collect()
        };
        assert_eq!(names(&remaining(Step::Hold, run, &before)), ["mon.a", "osd.1"]);
        assert_eq!(done(&before, OLD), [false, false, false, false]);
        assert!(is_open(run, &before, Some(OLD)).unwrap().contains("take back"));
        assert!(
            is_open(run, &before, Some(NEW))
                .unwrap()
                .contains("mon.a and 1 more")
        );

        let begun = Daemons::from([daemon("mon.a", OLD, &held()), daemon("osd.1", OLD, &held())]);
        assert_eq!(done(&begun, NEW), [true, true, true, true]);
        assert_eq!(is_open(run, &begun, Some(NEW)), None);
        // Rook has its own mind about the image: no monitor is changed before it is known.
        let refused = names_it(
            NEW,
            RookImageStatus::NotTakenUp("Rook does not take it up".to_owned()),
        );
        let told = told(&begun, refused);
        let verdicts: Vec<Verdict> = told.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Yes, Verdict::No, Verdict::Yes, Verdict::Yes]);
        assert_eq!(told[1].why, "Rook does not take it up");

        // Somebody gives one to Rook by hand: it is not labelled again, and no wave begins.
        let given = Daemons::from([
            daemon("mon.a", OLD, &held()),
            daemon("osd.1", OLD, &json!({ HELD_BY: "m" })),
        ]);
        assert_eq!(done(&given, NEW), [true, true, true, true]);
        let why = is_open(run, &given, Some(NEW)).unwrap();
        assert!(why.contains("from the Deployment of osd.1, so Rook"), "{why}");

        let changed = Daemons::from([daemon("mon.a", NEW, &held()), daemon("osd.1", OLD, &held())]);
        assert_eq!(names(&remaining(Step::Monitors, run, &changed)), ["mon.a"]);
        assert_eq!(done(&changed, NEW), [true, true, false, true]);
    }

    /// No label keeps Rook from one; journals of before say that the run changes it.
    #[test]
    fn metadata_servers_are_rooks() {
        let (wish, baseline) = (wish(), baseline());
        let run = |mds_by_rook: bool| Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook,
        };
        let daemons = Daemons::from([daemon("mds.fs-a", OLD, &json!({})), daemon("osd.1", OLD, &held())]);
        assert_eq!(remaining(Step::Hold, run(true), &daemons), []);
        assert_eq!(is_open(run(true), &daemons, Some(NEW)), None);
        assert_eq!(names(&remaining(Step::Hold, run(false), &daemons)), ["mds.fs-a"]);
        assert!(changes_servers(run(false), &daemons) && !changes_servers(run(true), &daemons));
        let says = |servers: Option<&str>| {
            let rook = RookProgress {
                image: ClusterImage {
                    named: Some(NEW.to_owned()),
                    word: RookImageStatus::TakenUp,
                },
                servers: servers.map(str::to_owned),
            };
            conditions(run(true), &daemons, &rook).unwrap().remove(3)
        };
        let waits = says(Some("mds.fs-a is starting"));
        assert!(
            waits.verdict == Verdict::No && waits.why.contains("mds.fs-a"),
            "{waits:?}"
        );
        assert_eq!(says(None).verdict, Verdict::Yes);
    }

    /// Its Deployment is still there, and no plan ever changes it: held, it would be so for ever.
    #[test]
    fn a_dead_osd_is_left_to_rook_until_it_serves_again() {
        let (wish, baseline) = (wish(), baseline());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        let mut daemons = Daemons::from([
            daemon("osd.1", OLD, &held()),
            daemon("osd.5", OLD, &json!({})),
            daemon("mon.a", NEW, &json!({})),
        ]);
        assert_eq!(remaining(Step::Hold, run, &daemons), []);
        assert_eq!(is_open(run, &daemons, Some(NEW)), None);
        let (unit, back) = daemon("osd.5", OLD, &json!({}));
        let mut back = Arc::unwrap_or_clone(back);
        back.status = serde_json::from_value(json!({ "readyReplicas": 1 })).unwrap();
        daemons.insert(unit, Arc::new(back));
        assert_eq!(names(&remaining(Step::Hold, run, &daemons)), ["osd.5"]);
        // One that is down and not out is waited for, and changed.
        let down = Daemons::from([daemon("osd.3", OLD, &json!({}))]);
        assert_eq!(names(&remaining(Step::Hold, run, &down)), ["osd.3"]);
    }

    #[test]
    fn the_steps_have_their_places() {
        let stage = |kind: &str| {
            Part::Stage(StageSpec {
                name: PartName::new(kind).unwrap(),
                kind: Kind::new(kind).unwrap(),
                revision: Revision::new("20.2.5").unwrap(),
                width: Width::Policy,
                phases: Vec::new(),
                guards: Vec::new(),
                gates: Vec::new(),
                door_before_last: None,
                may_be_left: false,
                going_back: GoingBack::Restart,
                maintenance: None,
            })
        };
        let mut target = Target {
            title: "t".to_owned(),
            parts: ["mon", "mgr", "osd", "mds"].map(stage).into(),
            only: None,
        };
        insert_steps(&mut target, true, true).unwrap();
        let names = |target: &Target| -> Vec<String> {
            target.parts.iter().map(|part| part.name().to_string()).collect()
        };
        let expected = [
            "keep-from-rook",
            "cephcluster-image",
            "mon",
            "metadata-servers-by-rook",
            "mgr",
            "monitors-back-to-rook",
            "osd",
        ];
        assert_eq!(names(&target), expected);
        let steps = target.parts.iter().filter(|part| Step::of(part.name()).is_some());
        assert_eq!(steps.count(), Step::ALL.len());
        // Only OSDs are left to do: Rook has the others.
        target.parts = vec![stage("osd")];
        insert_steps(&mut target, true, true).unwrap();
        let expected = [
            "keep-from-rook",
            "cephcluster-image",
            "metadata-servers-by-rook",
            "osd",
        ];
        assert_eq!(names(&target), expected);
        // Of an image of the same release Rook does not wait for the monitors.
        target.parts = ["mon", "osd", "mds"].map(stage).into();
        insert_steps(&mut target, true, false).unwrap();
        let expected = [
            "keep-from-rook",
            "cephcluster-image",
            "metadata-servers-by-rook",
            "mon",
            "monitors-back-to-rook",
            "osd",
        ];
        assert_eq!(names(&target), expected);
        // No Rook runs that would do it.
        target.parts = ["osd", "mds"].map(stage).into();
        insert_steps(&mut target, false, true).unwrap();
        let expected = ["keep-from-rook", "cephcluster-image", "osd", "mds"];
        assert_eq!(names(&target), expected);
    }

    #[test]
    fn what_no_run_needs_goes_back_and_what_is_half_done_stays_and_is_told() {
        let settle = |needs: bool, daemons: &Daemons, image: &str| {
            settle(needs, daemons, Some(image), Some((&ours(), &wish())))
        };
        let let_go = |units: &[&str]| {
            let units = units.iter().map(|unit| UnitId::new(*unit).unwrap());
            SettleAction::LetGo(units.collect())
        };
        let done = Daemons::from([daemon("osd.1", NEW, &held()), daemon("osd.2", NEW, &json!({}))]);
        assert_eq!(settle(true, &done, NEW), let_go(&["osd.1"]));
        let half = Daemons::from([daemon("osd.1", NEW, &json!({})), daemon("osd.2", OLD, &held())]);
        match settle(true, &half, NEW) {
            SettleAction::Stay(why) => assert!(why.contains("osd.2") && why.contains(NEW), "{why}"),
            other => panic!("{other:?}"),
        }
        // The second half of our mark goes where somebody has taken the first one away.
        let given = Daemons::from([
            daemon("osd.1", OLD, &json!({ HELD_BY: "m" })),
            daemon("osd.2", OLD, &held()),
        ]);
        assert_eq!(settle(true, &given, NEW), let_go(&["osd.1"]));
        // A person takes updates away: Rook goes on.
        assert_eq!(settle(false, &half, NEW), let_go(&["osd.2"]));
        // All of it went back.
        let back = Daemons::from([daemon("osd.1", OLD, &held()), daemon("osd.2", OLD, &held())]);
        assert_eq!(
            settle(true, &back, NEW),
            SettleAction::ImageBefore(OLD.to_owned())
        );
        assert_eq!(settle(true, &back, OLD), let_go(&["osd.1", "osd.2"]));
        // Rook takes back what it has updated itself.
        let mut with_servers = back.clone();
        with_servers.extend([daemon("mds.fs-a", NEW, &json!({}))]);
        assert_eq!(
            settle(true, &with_servers, NEW),
            SettleAction::ImageBefore(OLD.to_owned())
        );
        // By a CephMaintenance that is gone; and what a person holds is theirs.
        let theirs = Daemons::from([
            daemon("osd.1", OLD, &labels("gone")),
            daemon("osd.2", OLD, &json!({ DO_NOT_RECONCILE: "mine" })),
        ]);
        assert_eq!(settle(false, &theirs, NEW), let_go(&["osd.1"]));
        // Our half of the mark goes where the other one is somebody else's by now.
        let shared = Daemons::from([daemon(
            "osd.1",
            NEW,
            &json!({ DO_NOT_RECONCILE: "mine", HELD_BY: "m" }),
        )]);
        assert_eq!(settle(true, &shared, NEW), let_go(&["osd.1"]));
    }

    /// A monitor that Rook had back, and that a run takes back after all.
    #[test]
    fn who_is_taken_back_is_kept_from_rook_again() {
        let ours = ours();
        assert_eq!(holder_with(Some(&ours), &wish(), OLD), Some("m"));
        assert_eq!(holder_with(Some(&ours), &wish(), NEW), None);
        assert_eq!(holder_with(None, &wish(), OLD), None);
    }
}
