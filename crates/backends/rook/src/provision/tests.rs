use super::*;

fn node(name: &str) -> JobTarget {
    JobTarget::Node(name.to_owned())
}

fn at(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

fn osd(id: u32) -> OsdInfo {
    OsdInfo {
        id,
        uuid: format!("uuid-{id}"),
        device: format!("/dev/sd{id}"),
        ..OsdInfo::default()
    }
}

fn report(stage: Stage, ids: &[u32]) -> NodeReport {
    NodeReport {
        osds: ids.iter().map(|id| osd(*id)).collect(),
        status: stage.word().to_owned(),
        pvc_backed_osd: false,
        message: if stage == Stage::Failed {
            "/dev/sdx: not empty"
        } else {
            ""
        }
        .to_owned(),
    }
}

fn devices(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|device| (*device).to_owned()).collect()
}

/// A world that a test changes, and what is decided about it.
#[derive(Default)]
struct World {
    wished: BTreeMap<JobTarget, BTreeSet<String>>,
    nodes: BTreeSet<String>,
    known: BTreeMap<u32, DeployedOsd>,
    jobs: BTreeMap<JobTarget, PrepareJob>,
    told: BTreeMap<JobTarget, Result<NodeReport, String>>,
    failed: BTreeMap<JobTarget, Failed>,
}

impl World {
    /// Node `n1` is to have the devices of OSDs 1 and 2.
    fn new() -> Self {
        Self {
            wished: [(node("n1"), devices(&["/dev/sd1", "/dev/sd2"]))].into(),
            nodes: ["n1".to_owned()].into(),
            ..Self::default()
        }
    }

    fn decide(&self, minute: i64) -> ProvisioningDecision {
        decide(ProvisioningState {
            now: at(minute),
            patience: SignedDuration::from_mins(20),
            wished: &self.wished,
            nodes: &self.nodes,
            known: &self.known,
            jobs: &self.jobs,
            told: &self.told,
            failed: &self.failed,
        })
    }

    fn job(&mut self, state: JobState, minute: i64) {
        let progressed = at(minute);
        self.jobs.insert(node("n1"), PrepareJob { state, progressed });
    }

    fn has(&mut self, id: u32) {
        let known = DeployedOsd {
            at: Some(node("n1")),
            devices: devices(&[&format!("/dev/sd{id}")]),
        };
        self.known.insert(id, known);
    }
}

#[test]
fn from_a_wish_to_osds_and_then_nothing() {
    let mut world = World::new();
    let start = Act::Start {
        at: node("n1"),
        devices: devices(&["/dev/sd1", "/dev/sd2"]),
    };
    assert_eq!(world.decide(0).acts, [start]);
    world.job(JobState::Runs, 0);
    assert_eq!(world.decide(1).acts, []);
    assert_eq!(world.decide(1).again, Some(at(20)));
    world
        .told
        .insert(node("n1"), Ok(report(Stage::Orchestrating, &[1])));
    assert_eq!(world.decide(1).acts, []);
    world
        .told
        .insert(node("n1"), Ok(report(Stage::Completed, &[1, 2])));
    let create = |id| Act::Create {
        at: node("n1"),
        osd: osd(id),
    };
    assert_eq!(world.decide(2).acts, [create(1), create(2)]);
    // Killed between the two, and the report is read once more: no OSD twice.
    world.has(1);
    assert_eq!(world.decide(2).acts, [create(2)]);
    world.has(2);
    let settle = Act::Settle {
        at: node("n1"),
        why: None,
    };
    assert_eq!(world.decide(2).acts, [settle]);
    world.jobs.clear();
    world.told.clear();
    assert_eq!(world.decide(3), ProvisioningDecision::default());
}

#[test]
fn what_could_be_prepared_is_created_and_the_rest_is_told_and_tried_later() {
    let mut world = World::new();
    world.job(JobState::Done, 0);
    world.told.insert(node("n1"), Ok(report(Stage::Failed, &[1])));
    assert!(matches!(&world.decide(0).acts[..], [Act::Create { osd, .. }] if osd.id == 1));
    world.has(1);
    let acts = world.decide(0).acts;
    assert!(matches!(&acts[..], [Act::Settle { why: Some(why), .. }] if why.contains("not empty")));
    world.jobs.clear();
    world.told.clear();
    let failed = |times| Failed {
        times,
        last: at(0),
        why: "not empty".to_owned(),
        devices: devices(&["/dev/sd1", "/dev/sd2"]),
    };
    for (times, minutes) in [(1, 1), (2, 2), (5, 16), (6, 32), (60, 32)] {
        world.failed.insert(node("n1"), failed(times));
        let before = world.decide(minutes - 1);
        assert_eq!(before.acts, []);
        assert_eq!(before.remarks[0].reason, "PrepareFailed");
        assert_eq!(before.again, Some(at(minutes)));
        assert!(matches!(world.decide(minutes).acts[..], [Act::Start { .. }]));
    }
    // Another wish is another matter.
    world
        .wished
        .insert(node("n1"), devices(&["/dev/sd1", "/dev/sd3"]));
    assert!(matches!(world.decide(0).acts[..], [Act::Start { .. }]));
}

#[test]
fn a_job_that_never_ends_is_named_and_holds_up_nothing() {
    let mut world = World::new();
    world.job(JobState::Runs, 0);
    world.wished.insert(node("n2"), devices(&["/dev/sd3"]));
    world.nodes.insert("n2".to_owned());
    let decided = world.decide(20);
    assert_eq!(decided.remarks[0].reason, "PrepareStuck");
    assert!(decided.remarks[0].message.contains("rook-ceph-osd-prepare-n1"));
    assert!(matches!(&decided.acts[..], [Act::Start { at, .. }] if *at == node("n2")));
}

#[test]
fn a_job_that_ended_without_a_word_has_failed_but_not_at_once() {
    let mut world = World::new();
    world.job(JobState::Done, 0);
    let decided = world.decide(0);
    assert_eq!((decided.acts, decided.again), (vec![], Some(at(0) + SILENT)));
    assert!(matches!(
        &world.decide(1).acts[..],
        [Act::Settle { why: Some(_), .. }]
    ));
    world.job(JobState::Failed("no image".to_owned()), 0);
    assert!(matches!(&world.decide(0).acts[..], [Act::Settle { why: Some(why), .. }] if why == "no image"));
}

#[test]
fn a_report_that_cannot_be_read_is_named_and_the_rest_goes_on() {
    let mut world = World::new();
    world
        .told
        .insert(node("n1"), Err("its key status is no report".to_owned()));
    world.told.insert(node("n2"), Ok(report(Stage::Completed, &[7])));
    let decided = world.decide(0);
    assert_eq!(decided.remarks[0].reason, "StatusUnreadable");
    assert!(decided.remarks[0].message.contains("rook-ceph-osd-n1-status"));
    assert!(matches!(&decided.acts[..], [Act::Create { osd, .. }] if osd.id == 7));
}

#[test]
fn a_node_that_is_not_there_is_waited_for() {
    let mut world = World::new();
    world.nodes.clear();
    let decided = world.decide(0);
    assert_eq!(decided.acts, []);
    assert_eq!(decided.remarks[0].reason, "NodeNotThere");
}

#[test]
fn a_device_that_an_osd_has_under_another_name_is_noted_once() {
    let mut world = World::new();
    world.has(2);
    let known = DeployedOsd {
        at: Some(node("n1")),
        devices: devices(&["/dev/disk/by-id/one"]),
    };
    world.known.insert(1, known);
    world
        .told
        .insert(node("n1"), Ok(report(Stage::Completed, &[1, 2])));
    let note = Act::Note {
        at: node("n1"),
        id: 1,
        device: "/dev/sd1".to_owned(),
    };
    assert_eq!(world.decide(0).acts, [note]);
    world
        .known
        .entry(1)
        .or_default()
        .devices
        .insert("/dev/sd1".to_owned());
    assert!(matches!(
        world.decide(0).acts[..],
        [Act::Settle { why: None, .. }]
    ));
    world.told.clear();
    assert_eq!(world.decide(0), ProvisioningDecision::default());
}

#[test]
fn a_claim_goes_the_same_way_and_needs_no_node() {
    let claim = JobTarget::Claim("set1-data-0x".to_owned());
    let mut world = World::default();
    let path = claim_path(claim.name());
    world.wished.insert(claim.clone(), devices(&[&path]));
    let start = Act::Start {
        at: claim.clone(),
        devices: devices(&[&path]),
    };
    assert_eq!(world.decide(0).acts, [start]);
    let osd = OsdInfo {
        device: path.clone(),
        ..osd(1)
    };
    let told = NodeReport {
        osds: vec![osd.clone()],
        pvc_backed_osd: true,
        ..report(Stage::Completed, &[])
    };
    world.told.insert(claim.clone(), Ok(told));
    let create = Act::Create {
        at: claim.clone(),
        osd,
    };
    assert_eq!(world.decide(0).acts, [create]);
    let known = DeployedOsd {
        at: Some(claim.clone()),
        devices: devices(&[&path]),
    };
    world.known.insert(1, known);
    // However often it is read.
    let settle = Act::Settle {
        at: claim.clone(),
        why: None,
    };
    assert_eq!(world.decide(0).acts, [settle]);
    world.told.clear();
    assert_eq!(world.decide(0), ProvisioningDecision::default());
    // A node of that name is another matter.
    world.wished = [(node(claim.name()), devices(&[&path]))].into();
    assert_eq!(world.decide(0).remarks[0].reason, "NodeNotThere");
    let failed = Failed {
        times: 1,
        last: at(0),
        why: "no room".to_owned(),
        devices: devices(&["/mnt/other"]),
    };
    let other = JobTarget::Claim("other".to_owned());
    world.wished = [(other.clone(), devices(&["/mnt/other"]))].into();
    world.failed.insert(other, failed);
    let told = serde_json::to_value(&world.decide(0).remarks[0]).unwrap();
    assert_eq!((&told["claim"], &told["node"]), (&"other".into(), &Value::Null));
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("claim other could not be prepared")
    );
}
