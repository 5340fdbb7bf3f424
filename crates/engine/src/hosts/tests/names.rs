//! A name of a host, a daemon or a guest never runs anything.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn a_host_that_is_an_option_is_never_a_word_of_a_program() {
    let (folder, mut hosts) = here();
    let marker = folder.path().join("marker");
    hosts.shell = [
        "sh",
        "-c",
        "echo \"$1\" >\"$0\"; exec sh -s",
        &marker.display().to_string(),
        "{host}",
    ]
    .map(str::to_owned)
    .to_vec();
    for host in [
        "-oProxyCommand=id",
        "a;id",
        "root@-oProxyCommand=id",
        "$(id)",
        "",
        "a b",
    ] {
        for error in [
            hosts.run(host, "r1-1", 1, "true", YES).await.unwrap_err(),
            hosts.ask(host, "true").await.unwrap_err(),
            hosts.raise_fence(host, 1).await.unwrap_err(),
        ] {
            assert_eq!(error.retryability, Retryability::Permanent, "{error}");
            assert!(error.why.contains("is not valid"), "{error}");
        }
    }
    assert!(!marker.exists(), "something was started");
    hosts.ask("n1.example.org", "true").await.unwrap();
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "n1.example.org\n");
    let error = hosts.run("n1", "../../key", 1, "true", YES).await.unwrap_err();
    assert!(error.why.contains("the effect's key"), "{error}");
}

/// The commands of the guides, with what they hold in quotes and in shells behind shells. Their programs are not
/// here: what is left is what the shell makes of the names.
fn guides() -> Vec<String> {
    let pages = [
        include_str!("../../../../../docs/guides/ceph.md"),
        include_str!("../../../../../docs/guides/ironic.md"),
        include_str!("../../../../../docs/reference/ganeti.md"),
        include_str!("../../../../../docs/guides/ganeti.md"),
    ];
    let lines = pages.iter().flat_map(|page| page.lines());
    let commands =
        lines.filter(|line| line.contains('{') && line.contains(" = \"") && !line.contains("\"sh\""));
    let parsed = commands.filter_map(|line| {
        let table: toml::Table = toml::from_str(line.trim_start_matches("# ")).ok()?;
        table.values().next()?.as_str().map(str::to_owned)
    });
    parsed.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A name runs nothing, whatever it is: in a folder of its own each command of the guides leaves no file behind
    /// that the name asked for.
    #[test]
    fn no_name_runs_anything(
        name in prop_oneof![
            any::<String>(),
            "[-;&|$`'\"(){}<> a-z]{0,12}",
            prop_oneof![
                Just(";touch${IFS}MARK;"), Just("';touch MARK;'"), Just("\";touch MARK;\""), Just("$(touch MARK)"),
                Just("`touch MARK`"), Just("x\ntouch MARK\n"), Just("x\\';touch MARK;'"), Just("{id}"), Just(">MARK"),
                Just("-oProxyCommand=touch MARK"), Just("x&touch${IFS}MARK"), Just("x|touch${IFS}MARK"), Just("~/x"),
                Just("'\"'\"';touch MARK;'\"'\"'"),
            ].prop_map(str::to_owned),
        ],
        at in any::<prop::sample::Index>(),
    ) {
        let commands = guides();
        prop_assert!(commands.len() > 20, "only {} commands were found in the guides", commands.len());
        let template = at.get(&commands);
        let words = ["kind", "id", "host", "release", "service", "pin", "backend", "server", "state", "count", "node",
            "instance", "master", "successor", "reason", "seconds"].map(|known| (known, name.as_str()));
        if let Ok(command) = template::filled(template, &words) {
            prop_assert!(!leaves_a_mark(&command), "{name:?} in `{template}` was executed");
        }
    }
}

/// Whether something of the command ran `touch`, or wrote a file `MARK`. Of its programs only `ssh`, `sh` and `touch` are
/// here, and `ssh` is a second shell, as it is in the field.
fn leaves_a_mark(command: &str) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    let work = folder.path().join("work");
    std::fs::create_dir(&programs).unwrap();
    std::fs::create_dir(&work).unwrap();
    for (program, text) in [
        ("ssh", "shift\neval \"$*\""),
        ("touch", "echo \"$*\" >>\"$MARKED\""),
    ] {
        let file = programs.join(program);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::symlink("/bin/sh", programs.join("sh")).unwrap();
    let marked = folder.path().join("marked");
    // What the guides write on their hosts would be written here.
    let command = command.replace("/etc/", "./").replace("/run/", "./");
    std::process::Command::new("/bin/sh")
        .args(["-c", &command])
        .env_clear()
        .env("PATH", &programs)
        .env("MARKED", &marked)
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    marked.exists() || work.join("MARK").exists()
}

/// The test above sees what it looks for: filled in without a look, each of these names is executed.
#[test]
fn names_that_are_quoted_by_guess_are_executed() {
    for (template, name, value) in [
        (
            "systemctl restart 'ceph-radosgw@rgw.{id}'",
            "{id}",
            "x;touch${IFS}MARK",
        ),
        (
            "ssh root@{node} 'gnt-node list {node}'",
            "{node}",
            "x;touch${IFS}MARK",
        ),
    ] {
        assert!(
            leaves_a_mark(&template.replace(name, &quoted(value))),
            "{template}"
        );
    }
}
