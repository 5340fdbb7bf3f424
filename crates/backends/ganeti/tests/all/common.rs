//! What the tests share: a world, a backend on it, and runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, Policy, Revision, RunId};
use stagger_engine::cluster::{Call, LockRecord};
use stagger_engine::hosts::Hosts;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::config::{GanetiSettings, GanetiTiming, RapiConfig, Visits};
use stagger_ganeti::goal::EvacuationGoal;
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::rapi::client::Rapi;

use crate::double::World;
use crate::double::http::{Shared, serve};

pub struct Setup {
    pub world: Shared,
    pub settings: GanetiSettings,
    pub folder: tempfile::TempDir,
}

/// A world that is served, and the settings by which it is reached.
pub async fn setup(world: World) -> Setup {
    let world = Arc::new(Mutex::new(world));
    let address = serve(&world).await;
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let settings = settings(&[&address], folder.path(), by_powercycle());
    Setup {
        world,
        settings,
        folder,
    }
}

/// The double knows RAPI's own way to reboot a node, and no ssh.
pub fn by_powercycle() -> Visits {
    Visits {
        reboot: Some("powercycle".to_owned()),
        ..Visits::default()
    }
}

pub fn settings(addresses: &[&str], folder: &Path, visits: Visits) -> GanetiSettings {
    let password_file = folder.join("password");
    std::fs::write(&password_file, "geheim\n").unwrap();
    std::fs::set_permissions(&password_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = RapiConfig {
        name: ClusterName::new("lab").unwrap(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        ca: None,
        fingerprint: None,
        user: Some("stagger".to_owned()),
        password_file: Some(password_file),
        timeout: 60,
        connect_timeout: 15,
        lock_expires: 300,
        poll: 5,
        visits,
    };
    let hosts = Hosts {
        folder: folder.join("hosts"),
        timeout: 20,
        ..Hosts::default()
    };
    let mut settings = GanetiSettings::new(cluster, hosts);
    settings.pace = GanetiTiming {
        call: Duration::from_secs(20),
        connect: Duration::from_secs(5),
        poll: Duration::from_millis(1),
        again: Duration::from_millis(1),
        lock: Duration::from_millis(600),
        job: Duration::from_secs(20),
        sync: Duration::from_secs(20),
        reboot: Duration::from_secs(20),
        failover: Duration::from_secs(20),
    };
    settings
}

impl Setup {
    pub fn rapi(&self) -> Rapi {
        Rapi::new(&self.settings).unwrap()
    }

    pub fn backend(&self, memory: Option<GanetiMemory>) -> GanetiBackend {
        GanetiBackend::new(self.settings.clone(), memory).unwrap()
    }

    /// How things are now, as a run remembers them.
    pub async fn memory(&self) -> GanetiMemory {
        let facts = self.rapi().facts().await.unwrap();
        GanetiMemory::of(&facts, rebooted(), EvacuationGoal::default())
    }

    pub fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

pub fn rebooted() -> Revision {
    Revision::new("rebooted").unwrap()
}

pub fn call(fence: u64) -> Call {
    Call {
        run: RunId::new("run-1").unwrap(),
        seq: 7,
        announced: 1,
        fence,
        deadline: None,
    }
}

pub fn claim(incarnation: &str, host: &str) -> LockRecord {
    LockRecord {
        incarnation: incarnation.to_owned(),
        run: RunId::new("run-1").unwrap(),
        host: host.to_owned(),
        process: 1,
        since: Timestamp::UNIX_EPOCH,
        life: None,
    }
}

pub fn policy() -> Policy {
    toml::from_str(
        r#"
        max_in_parallel = 2
        soak = 0
        canary_soak = 0
        gate_hold = 0
        gate_timeout = 60
        on_failure = "stop"
        search = { steps = 100 }
        "#,
    )
    .unwrap()
}
