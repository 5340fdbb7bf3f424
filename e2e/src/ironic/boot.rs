//! From nothing to a cluster that serves.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::root::Root;
use super::spec::{Calls, Database, IronicSpec, Service};
use super::{Cluster, files};
use crate::ceph::Lap;
use crate::command::run;
use crate::folder::Folder;
use crate::machine::Needed;
use crate::sandbox::Sandbox;

/// What a cluster may take of the disk, in bytes.
const DISK: u64 = 1_000_000_000;

/// By then the APIs have heard of the conductors.
const LIMIT: Duration = Duration::from_mins(2);

pub(super) fn boot(root: Root, spec: IronicSpec) -> Result<Cluster> {
    Needed::Iproute2.ensure()?;
    let begun = Instant::now();
    let folder = Folder::make("ironic-", DISK)?;
    files::write(folder.path(), spec)?;
    let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
    files::write_entrances(&sandbox, &root)?;
    let mut cluster = Cluster {
        sandbox,
        _folder: folder,
        root,
        spec,
        laps: Vec::new(),
        token: None,
    };
    start(&mut cluster, begun).with_context(|| {
        format!(
            "booting Ironic {} in {}; the ends of its logs:\n{}",
            cluster.spec.release,
            cluster.dir().display(),
            cluster.logs_tail()
        )
    })?;
    Ok(cluster)
}

fn start(cluster: &mut Cluster, begun: Instant) -> Result<()> {
    let mut laps = Vec::new();
    let mut lap = |part| {
        laps.push(Lap {
            part,
            until: begun.elapsed(),
        });
    };
    if cluster.spec.database == Database::MariaDb {
        install_mariadb(cluster)?;
    }
    cluster.database("start")?;
    for (database, words) in files::grants(cluster.spec.database) {
        cluster.sql_in(database, &words)?;
    }
    if cluster.spec.calls == Calls::RabbitMq {
        cluster.rabbitmq("start")?;
    }
    if cluster.spec.keystone {
        run(&mut cluster.ironicctl("ks", "start", &[]))?;
        cluster.token = Some(cluster.token()?);
    }
    lap("database");
    let (code, said) = cluster.code(cluster.spec.release, "ironic-dbsync", &["create_schema"])?;
    ensure!(code == 0, "the schema was not made, exit code {code}:\n{said}");
    lap("schema");
    run(&mut cluster.ironicctl("balancer", "start", &[]))?;
    // Those of one kind at once: most of it is one program reading its code.
    let conductors = cluster.spec.conductors();
    for (kind, part) in [(conductors, "conductors"), (&Service::APIS[..], "APIs")] {
        let started = &*cluster;
        thread::scope(|scope| {
            let starts = kind
                .iter()
                .map(|service| scope.spawn(move || started.service(*service, "start", &[])));
            let starts: Vec<_> = starts.collect();
            starts.into_iter().try_for_each(|start| {
                let start = start.join();
                start
                    .map_err(|_| anyhow!("starting a service panicked"))?
                    .map(drop)
            })
        })?;
        lap(part);
    }
    for service in cluster.spec.services() {
        cluster.service(service, "give-back", &[])?;
    }
    cluster.wait_for("all conductors are alive", LIMIT, |cluster| {
        // An API that has just started answers nothing at first.
        Ok(cluster
            .conductors()
            .is_ok_and(|all| all.len() == conductors.len() && all.values().all(|&alive| alive)))
    })?;
    lap("all healthy");
    cluster.laps = laps;
    Ok(())
}

fn install_mariadb(cluster: &Cluster) -> Result<()> {
    let mut install = cluster.command("mariadb-install-db");
    install.args([
        "--no-defaults",
        "--user=root",
        "--auth-root-authentication-method=normal",
        "--skip-name-resolve",
        "--skip-test-db",
    ]);
    // One word: two are not understood, and it then works on another folder.
    let folder = cluster.dir().join(files::DATABASE_FOLDER);
    install.arg(format!("--datadir={}", folder.display()));
    run(&mut install).map(drop)
}
