//! The harness of Ganeti itself: what must never be started is not; a cluster comes up, does what clusters do, loses a
//! node and gets it back; nothing is left. And the real `hroller` answers.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_e2e::case::Phases;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{self, Cluster, GanetiSpec, Htools, READER, Root};

/// A job may take so long, on a busy machine.
const JOB: Duration = Duration::from_mins(3);

#[test]
fn a_ganeti_that_could_reboot_this_machine_is_not_started() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hypervisors = folder.path().join("usr/share/ganeti/3.0/ganeti/hypervisor");
    fs::create_dir_all(&hypervisors)?;
    fs::create_dir_all(folder.path().join("usr/lib/ganeti"))?;
    fs::write(
        hypervisors.join("hv_base.py"),
        "class BaseHypervisor(object):\n  def LinuxPowercycle(cls):\n    os.open(\"/proc/sysrq-trigger\")\n",
    )?;
    let root = Root {
        path: folder.path().to_owned(),
        version: "3.0.2-3".to_owned(),
    };
    let error = match Cluster::boot_in(root, GanetiSpec::default()) {
        Ok(_) => anyhow::bail!("a cluster was made"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(error.contains("could reboot this machine"), "{error}");
    Ok(())
}

#[test]
#[ignore = "needs root and Ganeti; cargo xtask test --long runs it"]
fn hroller_answers() -> Result<()> {
    let htools = Htools::start()?;
    let policy = "16384,8,1048576,16,8,12";
    // A mirrored instance of the master's, and one that is only where it is.
    let cluster = format!(
        "default|uuid-1|preferred||\n\n\
         n1|65536|512|60928|1000000|998848|8|M|uuid-1|1\n\
         n2|65536|512|65024|1000000|998848|8|N|uuid-1|1\n\
         n3|65536|512|60928|1000000|998976|8|N|uuid-1|1\n\n\
         i1|4096|1024|1|running|Y|n1|n2|drbd|\n\
         i2|4096|1024|1|running|Y|n3||plain|\n\n\n\n\
         |128,1,1024,1,1,1|1,1,1,1,0,1;{policy}|drbd,plain|4.0|32.0\n"
    );
    let answer = htools.hroller(&cluster, &["--ignore-non-redundant"])?;
    ensure!(
        answer.stderr.is_empty(),
        "the cluster does not add up: {}",
        answer.stderr
    );
    let nodes: Vec<_> = answer
        .groups()
        .with_context(|| format!("{answer:?}"))?
        .into_iter()
        .map(|group| group.nodes)
        .collect();
    ensure!(nodes.len() == 2, "{nodes:?}");
    let last = nodes.last().and_then(|group| group.last());
    ensure!(
        last.is_some_and(|name| name == "n1"),
        "the master is last: {nodes:?}"
    );
    let moves = htools.hroller(&cluster, &["--print-moves"])?.groups()?;
    let moved: Vec<_> = moves.iter().flat_map(|group| &group.moves).collect();
    ensure!(
        moved.len() == 1 && moved[0].instance == "i2" && moved[0].secondary.is_none(),
        "{moves:?}"
    );
    let none = htools.hroller(&cluster, &["-G", "nowhere"])?;
    ensure!(
        none.code == 1 && none.stderr.contains("Cannot find target group"),
        "{none:?}"
    );
    let balanced = htools.run("hbal", &cluster, &[])?;
    ensure!(balanced.code == 0, "{balanced:?}");
    Ok(())
}

#[test]
#[ignore = "needs root and Ganeti; cargo xtask test --long runs it"]
fn a_node_of_ganeti_is_rebooted() -> Result<()> {
    let cluster = Cluster::boot(GanetiSpec {
        nodes: 3,
        ..GanetiSpec::default()
    })?;
    for lap in cluster.laps() {
        say(format!("boot: {:5.1} s {}", lap.until.as_secs_f64(), lap.part));
    }
    let mut phases = Phases::begin();
    let result = story(&cluster, &mut phases);
    if result.is_err() {
        say(cluster.logs_tail());
    }
    phases.print();

    let dir = cluster.dir().to_owned();
    let begun = Instant::now();
    let untouched = cluster.ensure_machine_untouched();
    cluster.stop(false)?;
    say(format!("gone after {:.1} s", begun.elapsed().as_secs_f64()));
    result?;
    untouched?;
    nothing_left(&dir.display().to_string())
}

fn story(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    say(format!("memory {} MB", cluster.memory()? >> 20));
    ensure!(cluster.master()? == "node1", "node1 is the master");
    who_may_do_what(cluster)?;

    // One of each kind that behaves differently in maintenance.
    for (name, template, nodes) in [
        ("mirrored", "drbd", "node2:node3"),
        ("local", "plain", "node3"),
        ("shared", "sharedfile", "node2"),
        ("remote", "rbd", "node2"),
    ] {
        cluster.gnt(&[
            "gnt-instance",
            "add",
            "--no-name-check",
            "--no-ip-check",
            "--no-nics",
            "--os-type=dummy+default",
            "--disk=0:size=1024",
            "--backend-parameters=memory=512,vcpus=1",
            &format!("--disk-template={template}"),
            &format!("--node={nodes}"),
            name,
        ])?;
    }
    phases.lap("instances made");
    ensure!(cluster.running_on("node2")? == ["mirrored", "remote", "shared"]);
    ensure!(cluster.running_on("node3")? == ["local"]);

    let migrate = json!({ "mode": "live" });
    cluster.job("PUT", "/2/instances/mirrored/migrate", Some(&migrate), JOB)?;
    let migrate = json!({ "mode": "live", "target_node": "node1" });
    for name in ["shared", "remote"] {
        let path = format!("/2/instances/{name}/migrate");
        cluster.job("PUT", &path, Some(&migrate), JOB)?;
    }
    phases.lap("instances migrated");
    ensure!(cluster.running_on("node1")? == ["remote", "shared"]);
    ensure!(cluster.running_on("node2")?.is_empty());
    ensure!(cluster.running_on("node3")? == ["local", "mirrored"]);

    // Asked of Ganeti, so that what is patched is seen to do what it should.
    let boots = [cluster.boot_id("node2")?, cluster.boot_id("node3")?];
    cluster.job("POST", "/2/nodes/node2/powercycle", None, JOB)?;
    cluster.wait_for("node2 has rebooted", JOB, |cluster| {
        Ok(cluster.is_up("node2") && told_boot_id(cluster, "node2")?.is_some_and(|id| id != boots[0]))
    })?;
    phases.lap("node2 rebooted");
    ensure!(cluster.boot_id("node3")? == boots[1], "node3 rebooted too");
    let told = told_boot_id(cluster, "node2")?;
    ensure!(told.as_deref() == Some(&cluster.boot_id("node2")?), "{told:?}");

    // Ganeti repairs nothing by itself: what the reboot took is still gone.
    ensure!(degraded(cluster)?, "the mirror survived the reboot of one side");
    cluster.job("PUT", "/2/instances/mirrored/activate-disks", None, JOB)?;
    cluster.wait_for("the mirror is whole", JOB, |cluster| Ok(!degraded(cluster)?))?;
    cluster.job(
        "PUT",
        "/2/instances/mirrored/migrate",
        Some(&json!({ "mode": "live" })),
        JOB,
    )?;
    ensure!(cluster.running_on("node2")? == ["mirrored"]);
    phases.lap("its mirror repaired, its instance back");

    // A node that is broken, and what its instances are meanwhile.
    cluster.set_stays_down("node3", true)?;
    cluster.job("POST", "/2/nodes/node3/powercycle", None, JOB)?;
    cluster.wait_for("node3 is down", JOB, |cluster| Ok(!cluster.is_up("node3")))?;
    ensure!(
        cluster.on("node3", &["true"]).is_err(),
        "a node that is down does nothing"
    );
    cluster.set_stays_down("node3", false)?;
    cluster.start("node3")?;
    ensure!(
        cluster.running_on("node3")?.is_empty(),
        "what ran on it ended with it"
    );
    phases.lap("node3 broken and started again");

    cluster.on("node2", &["gnt-cluster", "master-failover"])?;
    ensure!(cluster.master()? == "node2", "node2 is the master now");
    cluster.wait_for("the new master answers", JOB, |cluster| {
        Ok(cluster
            .rapi("GET", "/2/info", None)
            .is_ok_and(|reply| reply.body["master"] == "node2"))
    })?;
    phases.lap("master failed over");
    Ok(())
}

/// The certificate is verified, and not everybody may change things.
fn who_may_do_what(cluster: &Cluster) -> Result<()> {
    let url = cluster.rapi_url();
    let reader = cluster.rapi_at(&url, READER, "GET", "/2/nodes", None)?;
    ensure!(reader.status == 200, "{reader:?}");
    let refused = cluster.rapi_at(&url, READER, "POST", "/2/nodes/node2/powercycle", None)?;
    ensure!(refused.status == 401 || refused.status == 403, "{refused:?}");
    let stranger = format!("https://{}:{}", ganeti::STRANGER, ganeti::RAPI_PORT);
    let error = match cluster.rapi_at(&stranger, READER, "GET", "/2/info", None) {
        Ok(reply) => anyhow::bail!("a name that the certificate does not have was believed: {reply:?}"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(error.contains("certificate"), "{error}");
    Ok(())
}

/// The boot id of a node as Ganeti has it, if the node answers.
fn told_boot_id(cluster: &Cluster, node: &str) -> Result<Option<String>> {
    let reply = cluster.rapi("GET", "/2/query/node?fields=name,bootid", None)?;
    let rows = reply.body["data"]
        .as_array()
        .with_context(|| format!("nodes without rows: {reply:?}"))?;
    // Each cell is a status and a value.
    let row = rows.iter().find(|row| row[0][1] == node);
    Ok(row.and_then(|row| row[1][1].as_str()).map(str::to_owned))
}

/// Whether Ganeti says of the mirrored instance's disk that it has lost its redundancy.
fn degraded(cluster: &Cluster) -> Result<bool> {
    let job = cluster.job("GET", "/2/instances/mirrored/info", None, JOB)?;
    let status = job
        .pointer("/opresult/0/mirrored/disks/0/pstatus")
        .with_context(|| format!("no status of a disk in {job}"))?;
    // Path, major, minor, percent, time, degraded, local disk.
    status[5]
        .as_bool()
        .with_context(|| format!("not understood as the status of a disk: {status}"))
}

fn nothing_left(path: &str) -> Result<()> {
    ensure!(!fs::exists(path)?, "{path} is left");
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    ensure!(!mounts.contains(path), "a mount is left: {mounts}");
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        let process = entry?.path();
        // Not all processes have a name of the cluster's in their words, but all have it in their environment.
        for file in ["cmdline", "environ"] {
            let text = fs::read(process.join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).replace('\0', " ");
            ensure!(!text.contains(path), "a process is left: {text}");
        }
    }
    ensure!(!fs::exists("/run/netns/node1")?, "a network namespace is left");
    Ok(())
}
