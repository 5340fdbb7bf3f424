//! A sandbox ends with the process that made it, however that one ends.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stagger_e2e::command::run;
use stagger_e2e::sandbox::Sandbox;

const HELD: &str = "STAGGER_E2E_HELD_SANDBOX";

/// The process that is killed: this test program again, which holds a sandbox in the folder of `HELD`.
fn hold(dir: &Path) -> Result<()> {
    let sandbox = Sandbox::start(dir, &[])?;
    // A daemon as daemons are: in a session of its own, its parent gone.
    run(sandbox
        .command("sh")
        .args(["-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"]))?;
    writeln!(stdout(), "\nheld {}", sandbox.first_pid())?;
    thread::sleep(Duration::from_mins(2));
    Ok(())
}

#[test]
#[ignore = "needs root; cargo xtask test --long runs it"]
fn nothing_outlives_a_killed_harness() -> Result<()> {
    if let Some(dir) = env::var_os(HELD) {
        return hold(Path::new(&dir));
    }
    let dir = tempfile::tempdir()?.keep();
    let mut harness = Command::new(env::current_exe()?)
        .args(["--ignored", "--nocapture", "nothing_outlives_a_killed_harness"])
        .env(HELD, &dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = BufReader::new(harness.stdout.take().context("no stdout")?);
    let mut lines = stdout.lines().map_while(Result::ok);
    let held = lines
        .find_map(|line| line.strip_prefix("held ").map(str::to_owned))
        .context("no sandbox was held")?;
    ensure!(
        fs::exists(format!("/proc/{held}"))?,
        "the sandbox's first process is not there"
    );
    let net = fs::read_link(format!("/proc/{held}/ns/net"))?;

    harness.kill()?; // SIGKILL: nothing of its own code runs any more
    harness.wait()?;

    let begun = Instant::now();
    while dir.exists() || in_network(&net)? > 0 {
        ensure!(
            begun.elapsed() < Duration::from_secs(10),
            "10 s later its folder or a process is still there"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
#[ignore = "needs root; cargo xtask test --long runs it"]
fn an_orphan_that_ends_is_reaped() -> Result<()> {
    let dir = tempfile::tempdir()?.keep();
    let sandbox = Sandbox::start(&dir, &[])?;
    run(sandbox
        .command("sh")
        .args(["-c", "setsid sleep 0.2 </dev/null >/dev/null 2>&1 &"]))?;
    thread::sleep(Duration::from_millis(600));
    let list = run(sandbox.command("ps").args(["-e", "-o", "stat=,args="]))?;
    ensure!(!list.contains("defunct"), "a zombie is left:\n{list}");
    let net = fs::read_to_string("/proc/net/dev")?;
    let inside = run(sandbox.command("cat").arg("/proc/net/dev"))?;
    ensure!(
        inside.lines().count() == 3,
        "more than a loopback inside:\n{inside}\noutside:\n{net}"
    );
    drop(sandbox);
    ensure!(!dir.exists(), "the folder is left");
    Ok(())
}

/// How many processes are in a network namespace.
fn in_network(net: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc")? {
        let link = entry?.path().join("ns/net");
        count += usize::from(fs::read_link(link).is_ok_and(|its| its == net));
    }
    Ok(count)
}
