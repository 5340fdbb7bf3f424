//! From nothing to `HEALTH_OK`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::root::{BEGUN, PACKAGES_DIR, Root, SERVER};
use super::{Cluster, HostsSpec, ceph_conf};
use crate::ceph::{Daemon, Kind, each, is_clean, write_keys};
use crate::command::run;
use crate::files::put;
use crate::folder::Folder;
use crate::hosts::cgroups::Cgroups;
use crate::hosts::host::Host;
use crate::hosts::{make_ssh, network};
use crate::machine::Needed;
use crate::rados::{self, Rados, Request, Target};
use crate::sandbox::Sandbox;

/// After this time hosts that are not up, or a cluster that is not healthy, will not become so.
const LIMIT: Duration = Duration::from_mins(3);

/// A manager of a new cluster starts itself once more when it learns which modules are on. Then another is active, and none for
/// some seconds.
const STEADY: Duration = Duration::from_secs(5);

/// What the hosts may take of the disk, in bytes: half a GB for each installation, and the OSDs.
const DISK_PER_HOST: u64 = 3_000_000_000;

/// Where a host finds what its daemons begin with.
const BEGIN_DIR: &str = "etc/ceph/begin";
const BEGIN: &str = include_str!("begin.sh");

pub(super) fn boot(spec: HostsSpec) -> Result<Cluster> {
    spec.check().context("this cluster cannot become healthy")?;
    Needed::Iproute2.ensure()?;
    let root = Root::ensure()?;
    let begun = Instant::now();
    let folder = Folder::make("hosts-", DISK_PER_HOST * u64::from(spec.hosts))?;
    let names: Vec<String> = (1..=spec.hosts).map(|number| format!("h{number}")).collect();
    let cgroups = Cgroups::make(folder.path(), &names)?;
    let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
    network::make(&sandbox, &names)?;
    let server = [
        "python3",
        "-m",
        "http.server",
        "--bind",
        network::OUTSIDE,
        "--directory",
        PACKAGES_DIR,
        SERVER,
    ];
    network::serve(&sandbox, &root.path, &server)?;
    let mut boot = Boot {
        spec,
        root: &root,
        sandbox: &sandbox,
        hosts: Vec::new(),
        begun,
    };
    let rados = boot
        .run(&names, &cgroups)
        .with_context(|| format!("booting hosts in {}", folder.path().display()))?;
    let hosts = boot.hosts;
    Ok(Cluster {
        rados,
        sandbox,
        _cgroups: cgroups,
        _folder: folder,
        root,
        spec,
        hosts,
        took: begun.elapsed(),
    })
}

/// What is there while the hosts and the cluster are being made.
struct Boot<'a> {
    spec: HostsSpec,
    root: &'a Root,
    sandbox: &'a Sandbox,
    hosts: Vec<Host>,
    begun: Instant,
}

impl Boot<'_> {
    fn run(&mut self, names: &[String], cgroups: &Cgroups) -> Result<Rados> {
        make_ssh(self.sandbox, &self.root.path, names)?;
        for index in 0..names.len() {
            self.hosts
                .push(Host::make(self.sandbox, &self.root.path, names, index)?);
        }
        self.files()?;
        for host in &self.hosts {
            host.plug_in(&cgroups.of(host.name()))?;
        }
        each(self.hosts.iter().collect(), |host: &Host| {
            host.wait_up(None, LIMIT).map(drop)
        })?;
        self.start(Kind::Mon, &[])?;
        let mut rados = self.connect()?;
        let uuids = self.new_osds(&mut rados)?;
        self.start(Kind::Mgr, &[])?;
        self.start(Kind::Osd, &uuids)?;
        pool(&mut rados)?;
        self.healthy(&mut rados)?;
        Ok(rados)
    }

    fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// A command with the files of the root, on none of the hosts.
    fn in_root(&self, program: &str) -> Command {
        self.sandbox.command_in(&self.root.path, program)
    }

    /// Writes the cluster's keys and maps, to each host what its daemons begin with.
    fn files(&self) -> Result<()> {
        let fsid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
        let keys = self.dir().join("keyring");
        let mons = self.spec.daemons(Kind::Mon);
        let mut map = self.in_root("monmaptool");
        map.args(["--create", "--fsid", fsid.trim(), "--enable-all-features"]);
        map.args(["--set-min-mon-release", BEGUN.name()]);
        for (host, mon) in &mons {
            let address = format!("[v2:{}:3300]", network::address(*host));
            map.args(["--addv", &mon.id, &address]);
        }
        run(map.arg(self.dir().join("monmap")))?;
        let mons: Vec<String> = mons.iter().map(|(host, _)| network::address(*host)).collect();
        let conf = ceph_conf::text(fsid.trim(), &mons);
        let own = format!(
            "{conf}[client.admin]\nkeyring = {}/$name\nadmin_socket =\nlog_file =\n",
            keys.display()
        );
        put(&self.dir().join("ceph.conf"), &own)?;
        put(&self.dir().join("connection.py"), rados::PROGRAM)?;

        let everyone = [Kind::Mon, Kind::Mgr, Kind::Osd].map(|kind| self.spec.daemons(kind));
        let everyone: Vec<Daemon> = everyone.concat().into_iter().map(|(_, daemon)| daemon).collect();
        fs::create_dir(&keys).with_context(|| format!("making {}", keys.display()))?;
        write_keys(&keys, &everyone)?;
        for host in &self.hosts {
            let begin = host.file(BEGIN_DIR);
            fs::create_dir_all(&begin).with_context(|| format!("making {}", begin.display()))?;
            put(&host.file("etc/ceph/ceph.conf"), &conf)?;
            let admin = host.file("etc/ceph/ceph.client.admin.keyring");
            fs::copy(keys.join("client.admin"), admin).context("copying the key of client.admin")?;
            fs::copy(self.dir().join("monmap"), begin.join("monmap")).context("copying the monmap")?;
            for entry in fs::read_dir(&keys).context("reading the keys")? {
                let key = entry?;
                fs::copy(key.path(), begin.join(key.file_name())).context("copying a key")?;
            }
        }
        Ok(())
    }

    /// Makes and starts all daemons of a kind by their units. OSDs have a uuid each.
    fn start(&self, kind: Kind, uuids: &[String]) -> Result<()> {
        let daemons = self.spec.daemons(kind).into_iter().enumerate().collect();
        each(daemons, |(index, (host, daemon)): (usize, (usize, Daemon))| {
            let host = self.hosts.get(host).context("a daemon without a host")?;
            let word = kind.to_string();
            let mut words = vec![word.as_str(), daemon.id.as_str()];
            words.extend(uuids.get(index).map(String::as_str));
            host.run_program(BEGIN, &words)
                .map(drop)
                .with_context(|| format!("making {daemon} on {}", host.name()))
        })
    }

    fn connect(&self) -> Result<Rados> {
        let mut command = self.in_root("python3");
        command.arg(self.dir().join("connection.py"));
        command.arg(self.dir().join("ceph.conf")).arg("client.admin");
        Rados::connect(&mut command)
    }

    /// Tells the mons of the OSDs to come; gives the uuid of each.
    fn new_osds(&self, rados: &mut Rados) -> Result<Vec<String>> {
        let mut uuids = Vec::new();
        let mut requests = Vec::new();
        for (_, osd) in self.spec.daemons(Kind::Osd) {
            let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
            let uuid = uuid.trim().to_owned();
            let id: u32 = osd.id.parse().context("an OSD has a number")?;
            let fields = json!({ "uuid": uuid, "id": id });
            requests.push(Request::new(Target::Mon, "osd new", fields));
            uuids.push(uuid);
        }
        rados.all(&requests)?;
        Ok(uuids)
    }

    fn healthy(&self, rados: &mut Rados) -> Result<()> {
        let osds = u64::from(self.spec.hosts * self.spec.osds_per_host);
        let mut since: Option<(Value, Instant)> = None;
        loop {
            let status = rados.mon("status")?;
            let checks = status.pointer("/health/checks").and_then(Value::as_object);
            // The modules of a manager may still be loading when placement groups are reported, and others come later.
            let standbys = status.pointer("/mgrmap/num_standbys").and_then(Value::as_u64);
            let managed = status.pointer("/mgrmap/available") == Some(&Value::Bool(true))
                && standbys == Some(u64::from(self.spec.mgrs) - 1);
            if !(managed && checks.is_some_and(Map::is_empty) && is_clean(&status, osds)) {
                since = None;
            } else if let Some((active, at)) = &since
                && *active == rados.mon("mgr stat")?["active_name"]
            {
                if at.elapsed() > STEADY {
                    return Ok(());
                }
            } else {
                since = Some((rados.mon("mgr stat")?["active_name"].clone(), Instant::now()));
            }
            ensure!(
                self.begun.elapsed() < LIMIT,
                "not healthy within {} s: {status}",
                LIMIT.as_secs()
            );
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// One pool, on three hosts.
fn pool(rados: &mut Rados) -> Result<()> {
    let fields = json!({ "pool": "data", "pg_num": 16, "pgp_num": 16 });
    rados.command(Target::Mon, "osd pool create", fields)?;
    let fields = json!({ "pool": "data", "app": "test" });
    rados.command(Target::Mon, "osd pool application enable", fields)?;
    Ok(())
}
