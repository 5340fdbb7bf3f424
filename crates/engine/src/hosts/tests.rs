mod names;

use std::sync::atomic::{AtomicU32, Ordering};

use stagger_core::model::ClusterId;

use super::*;
use crate::cluster::Retryability;

/// Whoever asks may begin.
const YES: MayBegin<'static> = &|| Ok(());

fn here() -> (tempfile::TempDir, Hosts) {
    let folder = tempfile::tempdir().unwrap();
    let hosts = Hosts {
        folder: folder.path().join("stagger"),
        timeout: 20,
        ..Hosts::default()
    };
    (folder, hosts)
}

/// Each script is read by both: Debian's `sh`, and that of others.
const SHELLS: [&str; 2] = ["dash", "bash"];

#[tokio::test]
async fn a_command_runs_once_for_its_key_and_its_result_is_kept() {
    let (folder, hosts) = here();
    let count = folder.path().join("count");
    let command = format!(
        "echo once >> {}; echo it\\'s said; exit 3",
        quoted(&count.display().to_string())
    );
    for _ in 0..2 {
        let ran = hosts.run("h1", "r1-1", 1, &command, YES).await.unwrap();
        assert_eq!(
            ran,
            Ran {
                code: 3,
                output: "it's said".to_owned()
            }
        );
    }
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "once\n");
    hosts.run("h1", "r1-2", 1, &command, YES).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&count).unwrap(),
        "once\nonce\n",
        "another key runs it again"
    );
}

#[tokio::test]
async fn an_older_token_is_refused_and_the_newer_waits_for_what_is_under_way() {
    let (folder, hosts) = here();
    let done = folder.path().join("done");
    let slow = format!("sleep 0.5; touch {}", quoted(&done.display().to_string()));
    let first = {
        let hosts = hosts.clone();
        tokio::spawn(async move { hosts.run("h1", "r1-1", 5, &slow, YES).await })
    };
    while !hosts.folder.join("effects/r1-1.out").exists() {
        tokio::task::yield_now().await;
    }
    hosts.raise_fence("h1", 6).await.unwrap();
    assert!(
        done.exists(),
        "the fence was raised before the older command had ended"
    );
    assert_eq!(first.await.unwrap().unwrap().code, 0);
    let late = hosts
        .run("h1", "r1-2", 5, "echo too late", YES)
        .await
        .unwrap_err();
    assert!(late.why.contains("token 6"), "{late}");
}

#[tokio::test]
async fn commands_of_one_holder_run_side_by_side() {
    let (folder, hosts) = here();
    // Each waits for the other's file: only side by side can they end well.
    let wait = |mine: &str, other: &str| {
        let path = |name: &str| quoted(&folder.path().join(name).display().to_string());
        format!(
            "touch {}; for i in $(seq 300); do [ -e {} ] && exit 0; sleep 0.05; done; exit 9",
            path(mine),
            path(other)
        )
    };
    let (one, other) = (wait("a", "b"), wait("b", "a"));
    let (a, b) = tokio::join!(
        hosts.run("h1", "r1-1", 1, &one, YES),
        hosts.run("h1", "r1-2", 1, &other, YES)
    );
    assert_eq!((a.unwrap().code, b.unwrap().code), (0, 0));
}

/// A script that was started by hand, and what it says.
struct ByHand {
    child: tokio::process::Child,
    mark: ScriptMark,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    stdin: Option<tokio::process::ChildStdin>,
}

async fn by_hand(hosts: &Hosts, shell: &str, patience: u64, command: &str) -> ByHand {
    let mark = ScriptMark::draw();
    let of = ScriptParameters {
        patience,
        piece: 1,
        ..hosts.of(&mark)
    };
    let mut child = Command::new(shell)
        .arg("-s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(of.run("r1-1", 1, command).as_bytes())
        .await
        .unwrap();
    ByHand {
        lines: BufReader::new(child.stdout.take().unwrap()).lines(),
        stdin: Some(stdin),
        mark,
        child,
    }
}

impl ByHand {
    async fn waits_for(&mut self, wanted: ScriptMessage<'_>) {
        loop {
            let line = self.lines.next_line().await.unwrap().expect("it has ended");
            if self.mark.parse_line(&line) == Some(wanted) {
                return;
            }
        }
    }

    async fn ends_with(&mut self) -> Option<i32> {
        while self.lines.next_line().await.unwrap().is_some() {}
        self.child.wait().await.unwrap().code()
    }
}

#[tokio::test]
async fn a_command_goes_on_when_its_caller_is_killed_and_the_next_one_reads_its_result() {
    for shell in SHELLS {
        let (folder, hosts) = here();
        let count = folder.path().join("count");
        let command = format!("sleep 0.4; echo once >> {}", quoted(&count.display().to_string()));
        let mut script = by_hand(&hosts, shell, PATIENCE, &command).await;
        script.waits_for(ScriptMessage::Ready).await;
        script.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
        while std::fs::read_to_string(hosts.folder.join("effects/r1-1.rc")).is_err() {
            tokio::task::yield_now().await;
        }
        // Its detached command holds the lock from its start on.
        while script.child.try_wait().unwrap().is_none() && !is_at_work(&hosts) {
            tokio::task::yield_now().await;
        }
        script.child.kill().await.unwrap();
        let asked = AtomicU32::new(0);
        let may_begin = || {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let ran = hosts.run("h1", "r1-1", 1, &command, &may_begin).await.unwrap();
        assert_eq!(ran.code, 0);
        assert_eq!(
            asked.into_inner(),
            0,
            "{shell}: what is under way is not asked again"
        );
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "once\n");
    }
}

/// Whether a command of the effect has been started: `setsid` made it the leader of a session.
fn is_at_work(hosts: &Hosts) -> bool {
    let folder = hosts.folder.display().to_string();
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.starts_with("timeout")
            && line.contains("once >>")
            && line.contains(folder.trim_end_matches("/stagger"))
    })
}

#[tokio::test]
async fn a_question_is_asked_each_time_anew() {
    let (folder, hosts) = here();
    let count = quoted(&folder.path().join("count").display().to_string());
    let question = format!("echo once >> {count}; cat {count}; exit 3");
    for output in ["once", "once\nonce"] {
        let ran = hosts.ask("h1", &question).await.unwrap();
        assert_eq!((ran.code, ran.output.as_str()), (3, output));
    }
    assert!(!hosts.folder.exists(), "it leaves nothing behind");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let (_folder, mut hosts) = here();
    hosts.timeout = 1;
    assert_eq!(
        hosts.run("h1", "r1-1", 1, "sleep 30", YES).await.unwrap().code,
        124
    );
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_named() {
    let (_folder, mut hosts) = here();
    hosts.shell = vec![
        "sh".to_owned(),
        "-c".to_owned(),
        "echo {host} is away >&2; exit 255".to_owned(),
    ];
    let error = hosts.run("h9", "r1-1", 1, "true", YES).await.unwrap_err();
    assert!(error.why.contains("h9 is away"), "{error}");
    assert!(
        error.outcome_unknown,
        "the connection may have been lost after the command had begun"
    );
    hosts.shell = vec![
        "sh".to_owned(),
        "-c".to_owned(),
        "echo ssh: connect to host {host} port 22: No route to host >&2; exit 255".to_owned(),
    ];
    let error = hosts.run("h9", "r1-1", 1, "true", YES).await.unwrap_err();
    assert!(!error.outcome_unknown, "nothing was started there: {error}");
}

#[tokio::test]
async fn nothing_begins_without_a_fresh_word() {
    for shell in SHELLS {
        let (folder, mut hosts) = here();
        hosts.shell = vec![shell.to_owned(), "-s".to_owned()];
        let done = folder.path().join("done");
        let command = format!("touch {}", quoted(&done.display().to_string()));
        let no = || Err("mon.b left the quorum 2 s ago".to_owned());
        let error = hosts.run("h1", "r1-1", 1, &command, &no).await.unwrap_err();
        assert_eq!(error.retryability, Retryability::Expired, "{error}");
        assert!(!error.outcome_unknown, "{error}");
        assert!(
            error.why.contains("nothing was started: mon.b left the quorum"),
            "{error}"
        );
        assert!(!done.exists(), "{shell} began it all the same");
        let asked = AtomicU32::new(0);
        let may_begin = || {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        for _ in 0..2 {
            assert_eq!(
                hosts
                    .run("h1", "r1-1", 1, &command, &may_begin)
                    .await
                    .unwrap()
                    .code,
                0
            );
        }
        assert!(done.exists());
        assert_eq!(asked.into_inner(), 1, "what has its result is not asked again");
    }
}

#[tokio::test]
async fn a_script_ends_when_its_sender_gave_up() {
    for shell in SHELLS {
        let (folder, hosts) = here();
        let done = folder.path().join("done");
        let command = format!("touch {}", quoted(&done.display().to_string()));
        // It hung up instead of answering; said something else; or said nothing.
        for (answer, patience) in [(None, 20), (Some("no\n"), 20), (Some(""), 1)] {
            let mut script = by_hand(&hosts, shell, patience, &command).await;
            script.waits_for(ScriptMessage::Ready).await;
            match answer {
                None => drop(script.stdin.take()),
                Some(said) => {
                    let stdin = script.stdin.as_mut().unwrap();
                    stdin.write_all(said.as_bytes()).await.unwrap();
                }
            }
            script.waits_for(ScriptMessage::Late).await;
            assert_eq!(script.ends_with().await, Some(95), "{shell} {answer:?}");
        }
        // Its lock is free again, and it waits for it no longer than somebody listens.
        let mut holder = by_hand(&hosts, shell, PATIENCE, &command).await;
        holder.waits_for(ScriptMessage::Ready).await;
        let mut other = by_hand(&hosts, shell, PATIENCE, &command).await;
        other.waits_for(ScriptMessage::Waiting).await;
        let ByHand { mut child, lines, .. } = other;
        drop(lines);
        assert!(!child.wait().await.unwrap().success());
        assert!(!done.exists(), "{shell} began it all the same");
    }
}

/// Two of one holder come at once to a host that has seen nothing: one raises the fence and begins, and the other has no older
/// command to wait for any more.
#[tokio::test]
async fn a_fence_that_its_like_has_raised_is_not_waited_for() {
    for shell in SHELLS {
        let (_folder, hosts) = here();
        std::fs::create_dir_all(&hosts.folder).unwrap();
        let at_work = std::fs::File::create(hosts.folder.join("fence.lock")).unwrap();
        at_work.lock_shared().unwrap();
        let mut second = by_hand(&hosts, shell, PATIENCE, "true").await;
        second.waits_for(ScriptMessage::Waiting).await;
        std::fs::write(hosts.folder.join("fence"), "1\n").unwrap();
        second.waits_for(ScriptMessage::Ready).await;
        at_work.unlock().unwrap();
    }
}

#[tokio::test]
async fn a_fence_that_is_no_number_is_told_and_nothing_is_begun() {
    for (shell, held) in [
        ("dash", "x7"),
        ("bash", ""),
        ("dash", "99999999999999999999"),
        ("bash", "-1"),
    ] {
        let (_folder, mut hosts) = here();
        hosts.shell = vec![shell.to_owned(), "-s".to_owned()];
        std::fs::create_dir_all(&hosts.folder).unwrap();
        std::fs::write(hosts.folder.join("fence"), format!("{held}\n")).unwrap();
        for error in [
            hosts.run("h1", "r1-1", 3, "true", YES).await.unwrap_err(),
            hosts.raise_fence("h1", 3).await.unwrap_err(),
        ] {
            assert!(error.why.contains("is no fencing token"), "{error}");
            assert!(error.why.contains("then remove the file"), "{error}");
            assert!(!error.outcome_unknown, "{error}");
        }
    }
}

#[tokio::test]
async fn without_room_for_its_result_nothing_is_begun() {
    for shell in SHELLS {
        let (folder, mut hosts) = here();
        hosts.raise_fence("h1", 1).await.unwrap();
        let done = folder.path().join("done");
        let command = format!("touch {}", quoted(&done.display().to_string()));
        // No file may grow: as on a disk that is full.
        hosts.shell = ["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" -s", shell]
            .map(str::to_owned)
            .to_vec();
        let error = hosts.run("h1", "r1-1", 1, &command, YES).await.unwrap_err();
        assert!(error.why.contains("no room for its result"), "{shell}: {error}");
        assert!(!error.outcome_unknown && !done.exists(), "{shell}: {error}");
        hosts.shell = vec![shell.to_owned(), "-s".to_owned()];
        assert_eq!(hosts.run("h1", "r1-1", 1, &command, YES).await.unwrap().code, 0);
        assert!(done.exists());
    }
}

#[tokio::test]
async fn a_result_takes_no_room_that_was_not_there_before_and_an_empty_one_is_none() {
    use std::os::unix::fs::MetadataExt as _;
    for shell in SHELLS {
        let (folder, mut hosts) = here();
        hosts.shell = vec![shell.to_owned(), "-s".to_owned()];
        let result = hosts.folder.join("effects/r1-1.rc");
        let seen = folder.path().join("seen");
        let command = format!(
            "stat -c '%i %s' {} >{}; exit 7",
            quoted(&result.display().to_string()),
            quoted(&seen.display().to_string())
        );
        // An earlier build left it so on a full disk.
        std::fs::create_dir_all(hosts.folder.join("effects")).unwrap();
        std::fs::write(&result, "").unwrap();
        assert_eq!(hosts.run("h1", "r1-1", 1, &command, YES).await.unwrap().code, 7);
        let after = std::fs::metadata(&result).unwrap();
        let while_at_work = std::fs::read_to_string(&seen).unwrap();
        assert_eq!(
            while_at_work.trim(),
            format!("{} {}", after.ino(), after.len()),
            "{shell}"
        );
        assert_eq!(after.mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&hosts.folder).unwrap().mode() & 0o777, 0o700);
    }
}

#[tokio::test]
async fn what_a_command_prints_is_never_taken_for_the_script_s_own_words() {
    let (_folder, hosts) = here();
    let lines = [
        "stagger-fenced: 9",
        "stagger-0123456789abcdef: fenced 9",
        "stagger-result: 0",
    ];
    let command = lines.map(|line| format!("echo '{line}'")).join(";") + "; exit 3";
    let ran = hosts.run("h1", "r1-1", 1, &command, YES).await.unwrap();
    assert_eq!((ran.code, ran.output), (3, lines.join("\n")));
}

#[tokio::test]
async fn one_cluster_has_one_fence_under_whatever_name_and_the_one_of_before_is_raised_too() {
    let (folder, hosts) = here();
    let named = |name: &str| Hosts {
        folder: folder.path().join(name),
        ..hosts.clone()
    };
    let identity = ClusterId::new("7fd7f20e-0b0f-4f4a-9d8e-6f0d5d8c2a11").unwrap();
    let (a, b) = (
        named("prod").of_identity(&identity),
        named("production").of_identity(&identity),
    );
    assert_eq!(a.folder, b.folder);
    // A run of before was of the name alone, and one of its commands comes late.
    named("prod").run("h1", "r0-1", 4, "true", YES).await.unwrap();
    a.raise_fence("h1", 6).await.unwrap();
    for late in [&named("prod"), &b] {
        let late = late.run("h1", "r0-2", 5, "echo too late", YES).await.unwrap_err();
        assert!(late.why.contains("token 6"), "{late}");
    }
    assert!(!folder.path().join("production").exists(), "nobody has used it");
}

/// A wave of twenty daemons on a host: connections are set up three at a time, and commands run beside each other.
#[tokio::test(flavor = "multi_thread")]
async fn few_connections_to_a_host_are_set_up_at_once() {
    let (folder, mut hosts) = here();
    let at = folder.path().display();
    // Counts itself while it logs in.
    let log_in = format!(
        "mkdir -p {at}/in; touch {at}/in/$$; ls {at}/in | wc -l >>{at}/seen; sleep 0.05; rm {at}/in/$$; exec sh -s"
    );
    hosts.shell = vec!["sh".to_owned(), "-c".to_owned(), log_in];
    hosts.timeout = 90;
    // Each waits until there are more at work than may log in at once.
    let command = format!(
        "mkdir -p {at}/work; touch {at}/work/$$; n=0; set -- {at}/work/*; \
         while [ $# -lt 8 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); set -- {at}/work/*; done; [ $# -ge 8 ]"
    );
    let mut running = tokio::task::JoinSet::new();
    for at in 0..8 {
        let (hosts, command) = (hosts.clone(), command.clone());
        running.spawn(async move { hosts.run("crowded", &format!("r1-{at}"), 1, &command, YES).await });
    }
    while let Some(ran) = running.join_next().await {
        assert_eq!(ran.unwrap().unwrap().code, 0, "they wait for each other");
    }
    let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
    let most = seen
        .lines()
        .map(|line| line.trim().parse::<usize>().unwrap())
        .max()
        .unwrap();
    assert!(most <= connections::AT_ONCE, "{most} at once");
    assert!(most > 1, "one after another: {seen}");
}
