//! From nothing to `HEALTH_OK`.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::spec::{CephSpec, FS, Kind, Rule};
use super::{Cluster, Lap, S3_USER, files, is_clean, logs_tail, stretch};
use crate::command::run;
use crate::folder::Folder;
use crate::machine::Needed;
use crate::rados::{Rados, Request, Target};
use crate::roots::{self, Release, Root};
use crate::sandbox::Sandbox;

/// So many daemons are started at the same time; more only wait for each other.
const WIDTH: usize = 6;
/// After this time a cluster that is not healthy will not become so.
const LIMIT: Duration = Duration::from_mins(4);

/// What a cluster may take of the disk, in bytes.
const DISK: u64 = 12_000_000_000;

/// What is there while a cluster is being made.
struct Boot<'a> {
    spec: &'a CephSpec,
    release: Release,
    root: &'a Root,
    sandbox: &'a Sandbox,
    begun: Instant,
    laps: Vec<Lap>,
}

pub(super) fn boot(release: Release, spec: CephSpec, releases: &[Release]) -> Result<Cluster> {
    spec.check().context("this cluster cannot become healthy")?;
    Needed::Iproute2.ensure()?;
    let roots = roots::ensure(releases)?;
    let root = roots.iter().find(|root| root.release == release);
    let root = root.with_context(|| format!("Ceph {release} is not among the releases asked for"))?;
    let begun = Instant::now();
    let folder = Folder::make("ceph-", DISK)?;
    let fsid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
    files::write(folder.path(), fsid.trim(), &spec, release, &roots)?;
    let paths: Vec<&Path> = roots.iter().map(|root| root.path.as_path()).collect();
    let sandbox = Sandbox::start(folder.path(), &paths)?;
    let dir = folder.path().to_owned();
    files::write_entrances(&sandbox, root)?;

    let mut boot = Boot {
        spec: &spec,
        release,
        root,
        sandbox: &sandbox,
        begun,
        laps: Vec::new(),
    };
    let rados = boot.run(fsid.trim()).with_context(|| {
        format!(
            "booting Ceph {release} in {}; the ends of its logs:\n{}",
            dir.display(),
            logs_tail(&dir)
        )
    })?;
    let laps = boot.laps;
    Ok(Cluster {
        rados: Mutex::new(rados),
        sandbox,
        _folder: folder,
        roots,
        begun: release,
        spec,
        laps,
    })
}

impl Boot<'_> {
    fn run(&mut self, fsid: &str) -> Result<Rados> {
        self.mons(fsid)?;
        let mut rados = self.connect()?;
        self.lap("quorum");
        let uuids = self.new_osds(&mut rados)?;
        self.lap("OSDs known");
        each(self.spec.daemons(Kind::Mgr), |mgr| self.start(&mgr))?;
        self.lap("mgrs started");
        let osds = self.spec.daemons(Kind::Osd).into_iter().zip(uuids).collect();
        each(osds, |(osd, uuid): (super::Daemon, String)| {
            let dir = self.dir().join(osd.to_string());
            fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
            let mut mkfs = self.sandbox.command_in(&self.root.path, "ceph-osd");
            mkfs.arg("-c").arg(self.dir().join("ceph.conf")).args([
                "-i",
                &osd.id,
                "--mkfs",
                "--osd-uuid",
                &uuid,
            ]);
            run(&mut mkfs)?;
            self.start(&osd)
        })?;
        self.lap("OSDs started");
        self.pools(&mut rados)?;
        self.lap("pools made");
        let services = [self.spec.daemons(Kind::Mds), self.spec.daemons(Kind::Rgw)].concat();
        each(services, |daemon| self.start(&daemon))?;
        if self.spec.rgws > 0 {
            self.s3_user()?;
        }
        self.lap("mds and rgw started");
        if self.spec.stretch {
            let crushtool = || self.sandbox.command_in(&self.root.path, "crushtool");
            stretch::begin(self.spec, self.dir(), &mut rados, crushtool)?;
            self.lap("stretch mode");
        }
        self.healthy(&mut rados)?;
        self.lap("HEALTH_OK");
        Ok(rados)
    }

    fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    fn lap(&mut self, part: &'static str) {
        self.laps.push(Lap {
            part,
            until: self.begun.elapsed(),
        });
    }

    fn start(&self, daemon: &super::Daemon) -> Result<()> {
        let ctl = self.dir().join("daemonctl");
        run(self
            .sandbox
            .command(ctl)
            .args(["start", &daemon.kind.to_string(), &daemon.id]))?;
        Ok(())
    }

    fn mons(&self, fsid: &str) -> Result<()> {
        let map = self.dir().join("monmap");
        let mut make = self.sandbox.command_in(&self.root.path, "monmaptool");
        make.args([
            "--create",
            "--fsid",
            fsid,
            "--enable-all-features",
            "--set-min-mon-release",
            self.release.name(),
        ]);
        if self.release == Release::Tentacle {
            // As a cluster is that was upgraded to it: the keys that older clients have are let in.
            make.args(["--auth-allowed-ciphers", "aes,aes256k"]);
            make.args(["--auth-service-cipher", "aes", "--auth-preferred-cipher", "aes"]);
        }
        let mons = self.spec.daemons(Kind::Mon);
        for (index, mon) in mons.iter().enumerate() {
            make.args([
                "--addv",
                &mon.id,
                &format!("[v2:{}]", super::conf::mon_address(index)),
            ]);
        }
        run(make.arg(&map))?;
        each(mons, |mon| {
            let mut mkfs = self.sandbox.command_in(&self.root.path, "ceph-mon");
            mkfs.arg("-c")
                .arg(self.dir().join("ceph.conf"))
                .args(["--mkfs", "-i", &mon.id, "--monmap"])
                .arg(&map);
            run(mkfs.arg("--keyring").arg(self.dir().join("keyring/mons")))?;
            self.start(&mon)
        })
    }

    fn connect(&self) -> Result<Rados> {
        let mut command = self.sandbox.command_in(&self.root.path, "python3");
        command
            .arg(self.dir().join("lib/connection.py"))
            .arg(self.dir().join("ceph.conf"))
            .arg("client.admin");
        Rados::connect(&mut command)
    }

    /// Tells the mons of the OSDs to come; gives the uuid of each.
    fn new_osds(&self, rados: &mut Rados) -> Result<Vec<String>> {
        let mut uuids = Vec::new();
        let mut requests = Vec::new();
        for id in 0..self.spec.osds {
            let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random uuid")?;
            let uuid = uuid.trim().to_owned();
            requests.push(Request::new(
                Target::Mon,
                "osd new",
                json!({ "uuid": uuid, "id": id }),
            ));
            uuids.push(uuid);
        }
        rados.all(&requests)?;
        Ok(uuids)
    }

    fn pools(&self, rados: &mut Rados) -> Result<()> {
        let rule = |name: &str, over: &str| {
            Request::new(
                Target::Mon,
                "osd crush rule create-replicated",
                json!({ "name": name, "root": "default", "type": over }),
            )
        };
        let profile = json!({ "name": "ec21", "profile": ["k=2", "m=1", "crush-failure-domain=host"] });
        rados.all(&[
            rule("by-host", "host"),
            rule("by-rack", "rack"),
            Request::new(Target::Mon, "osd erasure-code-profile set", profile),
        ])?;
        let mut make = Vec::new();
        let mut mark = Vec::new();
        for pool in self.spec.pools() {
            let (name, pgs) = (pool.name, pool.pgs);
            // `.rgw.root` has to be insisted on: 18 answers 0 to it otherwise, and makes nothing.
            let mut fields = json!({
                "pool": name,
                "pg_num": pgs,
                "pgp_num": pgs,
                "yes_i_really_mean_it": true,
            });
            match pool.rule {
                Rule::Hosts => fields["rule"] = json!("by-host"),
                Rule::Racks => fields["rule"] = json!("by-rack"),
                Rule::Erasure => fields["erasure_code_profile"] = json!("ec21"),
            }
            let erasure = pool.rule == Rule::Erasure;
            fields["pool_type"] = json!(if erasure { "erasure" } else { "replicated" });
            make.push(Request::new(Target::Mon, "osd pool create", fields));
            mark.push(Request::new(
                Target::Mon,
                "osd pool application enable",
                json!({ "pool": name, "app": pool.application }),
            ));
        }
        rados.all(&make)?;
        rados.all(&mark)?;
        if self.spec.mdss > 0 {
            let fields = json!({ "fs_name": FS, "metadata": "fs-meta", "data": "fs-data" });
            rados.command(Target::Mon, "fs new", fields)?;
        }
        Ok(())
    }

    fn s3_user(&self) -> Result<()> {
        let mut create = self.sandbox.command_in(&self.root.path, "radosgw-admin");
        create.arg("-c").arg(self.dir().join("ceph.conf")).args([
            "user",
            "create",
            "--uid",
            "test",
            "--display-name",
            "test",
        ]);
        create.args(["--access-key", S3_USER.0, "--secret-key", S3_USER.1]);
        run(&mut create)?;
        Ok(())
    }

    fn healthy(&self, rados: &mut Rados) -> Result<()> {
        let (osds, mdss) = (u64::from(self.spec.osds), u64::from(self.spec.mdss));
        loop {
            let status = rados.mon("status")?;
            let standbys = status
                .pointer("/fsmap/up:standby")
                .and_then(Value::as_u64)
                .unwrap_or(0);
            let active = status.pointer("/fsmap/up").and_then(Value::as_u64).unwrap_or(0);
            let served = mdss == 0 || (active == 1 && standbys == mdss - 1);
            let checks = status.pointer("/health/checks").and_then(Value::as_object);
            let expected = self.release.unavoidable_health_codes();
            let well =
                checks.is_some_and(|checks| checks.keys().all(|code| expected.contains(&code.as_str())));
            if served && well && is_clean(&status, osds) {
                return Ok(());
            }
            if self.begun.elapsed() > LIMIT {
                return Err(anyhow!("not healthy within {} s: {status}", LIMIT.as_secs()));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Does something for each item, for several at a time; the first failure is given back.
pub(crate) fn each<T: Send>(items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let width = WIDTH.min(items.len());
    let queue = Mutex::new(VecDeque::from(items));
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..width)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(item) = next() {
                        work(item)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| anyhow!("a worker of the boot panicked"))?
        })
    })
}
