//! What the tests share: a lab, the settings by which it is reached, a policy, a clock that jumps.

use std::sync::Arc;
use std::time::Duration;

use stagger_core::model::{Fact, Policy, RunId};
use stagger_engine::cluster::{Call, Refusal};
use stagger_engine::hosts::Hosts;
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::config::{IronicConfig, IronicSettings, IronicTiming};
use stagger_ironic::facts::IronicFacts;
use stagger_ironic::goal::{UpgradeGoal, WantedRelease};
use stagger_ironic::release_code::ReleaseCode;
use stagger_ironic::releases::Releases;
use stagger_ironic::target::{Upgrade, upgrade};

use crate::double::Lab;

pub const CONFIG: &str = r#"
    name = "lab"
    endpoint = "http://127.0.0.1:1"
    database = "sqlite:///nowhere"
    ours = "OURS"
    installed = "26.1.6"

    [commands]
    install = "install {service} {release}"
    write_pin = "pin {service} {pin}"
    remove_pin = "unpin {service}"
    read_pin = "read-pin {service}"
    stop = "stop {service}"
    start = "start {service}"
    ready = "ready {service}"

    [[conductors]]
    name = "c1"
    host = "h1"
    registered = "c1:8089"
    rpc = "http://c1:8089"
    servers = ["rpc1/c1", "rpc2/c1"]

    [[conductors]]
    name = "c2"
    host = "h2"
    registered = "c2:8089"
    rpc = "http://c2:8089"
    servers = ["rpc1/c2", "rpc2/c2"]

    [[apis]]
    name = "a1"
    host = "h1"
    url = "http://a1"
    servers = ["b/a1"]

    [[apis]]
    name = "a2"
    host = "h2"
    url = "http://a2"
    servers = ["b/a2"]

    [tools]
    host = "t"
    check = "check"
    backup = "hook backup"
    schema = "schema {release}"
    migrate = "migrate {count}"
    batch = 5

    [balancer]
    host = "lb"
    show = "show"
    set = "set {backend} {server} {state}"

    [hooks]
    before = "hook before"
    ramdisk = "hook ramdisk {release}"
    clients = "hook clients"
    after = "hook after"
"#;

pub struct Setup {
    /// What the code of the wanted release has said, where it was asked.
    pub code: Option<Fact<ReleaseCode>>,
    pub lab: Arc<Lab>,
    pub settings: IronicSettings,
    pub folder: tempfile::TempDir,
}

/// Two conductors more, in a group of their own.
const MORE: &str = r#"
    [[conductors]]
    name = "c3"
    host = "h3"
    registered = "c3:8089"
    servers = ["rpc3/c3", "rpc4/c3"]

    [[conductors]]
    name = "c4"
    host = "h4"
    registered = "c4:8089"
    servers = ["rpc3/c4", "rpc4/c4"]
"#;

pub fn setup(from: &str) -> Setup {
    setup_of(from, CONFIG, Lab::new(from))
}

/// Four conductors in two groups.
pub fn setup_of_two_groups(from: &str) -> Setup {
    let lab = Lab::of_groups(from, &[("rack1", ["c1", "c2"]), ("rack2", ["c3", "c4"])]);
    setup_of(from, &format!("{CONFIG}{MORE}"), lab)
}

fn setup_of(from: &str, config: &str, lab: Lab) -> Setup {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let ours = format!("sqlite://{}/ours.db?mode=rwc", folder.path().display());
    let text = config.replace("OURS", &ours).replace("26.1.6", from);
    let config: IronicConfig = toml::from_str(&text).unwrap();
    config.verify().unwrap();
    let hosts = Hosts {
        folder: folder.path().join("hosts"),
        timeout: 20,
        ..Hosts::default()
    };
    let mut settings = IronicSettings::new(config, hosts);
    settings.pace = IronicTiming {
        call: Duration::from_secs(20),
        poll: Duration::from_millis(1),
        lock: Duration::from_millis(300),
        ready: Duration::from_millis(40),
        drain: Duration::from_millis(40),
        in_flight: Duration::from_millis(40),
        ring: Duration::from_millis(5),
        settle: Duration::from_millis(2),
        late: Duration::from_millis(3),
    };
    Setup {
        code: None,
        lab: Arc::new(lab),
        settings,
        folder,
    }
}

impl Setup {
    pub fn backend(&self, goal: Option<UpgradeGoal>) -> IronicBackend {
        let lab: Arc<Lab> = Arc::clone(&self.lab);
        IronicBackend::of(lab, self.settings.clone(), goal).unwrap()
    }

    /// The way to that release.
    pub fn upgrade(&self, facts: &IronicFacts, release: &str, policy: &Policy) -> Result<Upgrade, Refusal> {
        let mut table = Releases::built_in();
        if let Some(Fact::Yes(code)) = &self.code {
            table = table.with(code).unwrap();
        }
        let wanted = WantedRelease {
            release: release.to_owned(),
            code: self.code.clone(),
        };
        upgrade(facts, &self.settings.cluster, &table, &wanted, policy)
    }

    /// Whether an upgrade may begin.
    pub async fn may_begin(&self, release: &str) -> bool {
        let backend = self.backend(None);
        let facts = backend.collect_facts().await;
        self.upgrade(&facts, release, &policy()).is_ok()
    }

    /// The slugs of all reasons against an upgrade.
    pub async fn refused(&self, release: &str) -> Vec<String> {
        let backend = self.backend(None);
        let facts = backend.collect_facts().await;
        match self.upgrade(&facts, release, &policy()) {
            Ok(upgrade) => panic!("{:?}", upgrade.target.title),
            Err(refusal) => refusal
                .0
                .into_iter()
                .map(|reason| reason.code.to_string())
                .collect(),
        }
    }
}

pub fn policy() -> Policy {
    toml::from_str(
        r#"
        soak = 0
        canary_soak = 0
        gate_hold = 0
        gate_timeout = 2
        on_failure = "rollback"
        doors = { auto-after = 0 }
        search = { steps = 100 }
        growth = "none"
        "#,
    )
    .unwrap()
}

pub fn goal() -> UpgradeGoal {
    UpgradeGoal {
        to: "29.0.6".to_owned(),
        from: "26.1.6".to_owned(),
        pin: "26.1".to_owned(),
        interruptions: std::collections::BTreeSet::new(),
        code: None,
    }
}

pub fn call(fence: u64, seq: u64) -> Call {
    Call {
        run: RunId::new("run-1").unwrap(),
        seq,
        announced: 1,
        fence,
        deadline: None,
    }
}
