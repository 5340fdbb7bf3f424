//! Read-only checks before a run: whether the configuration's requirements are met.
//!
//! Each backend lists its checks; each answer is a [`Check`]. Hosts are queried by [`ask_hosts`], one
//! question each, and a pure function evaluates the answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::cluster::BackendError;
use crate::hosts::Hosts;

/// What came of one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Outcome")
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// It is as it should be.
    Passed,
    /// A run can start, and may not end as intended.
    Warning,
    /// A run would fail.
    Failed,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What: a host, a key of the configuration, the cluster.
    pub subject: String,
    /// What came of it.
    pub outcome: CheckOutcome,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    /// It is as it should be.
    pub fn passed(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, CheckOutcome::Passed, found)
    }

    /// A run can start in any case.
    pub fn warning(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, CheckOutcome::Warning, found)
    }

    /// A run would fail.
    pub fn failed(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, CheckOutcome::Failed, found)
    }

    fn new(subject: impl Into<String>, outcome: CheckOutcome, found: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            outcome,
            found: found.into(),
            hint: None,
        }
    }

    /// What was to be looked at did not answer.
    pub fn unreachable(subject: impl Into<String>, error: BackendError) -> Self {
        // What was tried may be a long script, and the subject says on what.
        let check = Self::failed(subject, error.why);
        match error.hint {
            Some(hint) => check.hint(hint),
            None => check,
        }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A command of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its key: `[software.osd] restart`.
    pub key: String,
    /// The command.
    pub command: String,
    /// The placeholders.
    pub known: &'static [&'static str],
}

/// Least room for locks, results and packages where stagger writes on a host, in KiB.
const ROOM: u64 = 512 * 1024;

/// A clock that is further off makes logs of a run hard to read beside those of the host. Nothing else hangs on it: stagger never
/// compares the clocks of two machines.
const CLOCK: Duration = Duration::from_secs(5);

/// The questions to a host: its commands as they would run there, each with its key.
#[derive(Debug, Clone, Default)]
pub struct HostChecks {
    keys: Vec<String>,
    commands: Vec<String>,
    /// Stagger has no folder there.
    keeps_nothing: bool,
}

impl HostChecks {
    /// Of a host on which stagger keeps neither locks nor results: its folder and the room there are not asked for.
    pub fn without_folder() -> Self {
        Self {
            keeps_nothing: true,
            ..Self::default()
        }
    }

    /// One more command.
    pub fn add(&mut self, key: String, command: String) {
        self.keys.push(key);
        self.commands.push(command);
    }
}

/// How many hosts are asked at once: each may be a session of ssh.
const AT_ONCE: usize = 16;

/// Asks each host once, which changes nothing there. The answers are in the order of the hosts' names.
pub async fn ask_hosts(hosts: &Hosts, asked: BTreeMap<String, HostChecks>) -> Vec<Check> {
    let mut waiting = asked.into_iter();
    let mut under_way = JoinSet::new();
    let mut found = BTreeMap::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((host, asked)) = waiting.next()
        {
            let hosts = hosts.clone();
            under_way.spawn(async move {
                let checks = match hosts.ask(&host, &question(&hosts.folder, &asked)).await {
                    Ok(ran) => of_host(&host, &ran.output, &asked, Timestamp::now()),
                    Err(error) => vec![Check::unreachable(&host, error)],
                };
                (host, checks)
            });
        }
        match under_way.join_next().await {
            None => break,
            Some(Ok((host, checks))) => {
                found.insert(host, checks);
            }
            // A host without an answer is not healthy by that.
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(Err(error)) => {
                found.insert(String::new(), vec![Check::failed("a host", error.to_string())]);
            }
        }
    }
    found.into_values().flatten().collect()
}

/// The question to a host: a script for its shell. It leaves nothing there: a folder is made and removed, since root may write to all
/// that cannot be written. The commands are as they would be run there.
fn question(folder: &Path, asked: &HostChecks) -> String {
    let mut script = "echo \"clock=$(date +%s)\"\n".to_owned();
    if !asked.keeps_nothing {
        let _ = write!(
            script,
            "d={}\n\
             while [ ! -d \"$d\" ]; do d=$(dirname -- \"$d\"); done\n\
             if t=$(mktemp -d \"$d/.stagger.XXXXXX\" 2>/dev/null) && rmdir \"$t\"; then echo writable=yes; else echo \"writable=no, \
             $(id -un) may not write to $d\"; fi\n\
             df -Pk -- \"$d\" | {{ read -r _; read -r _ _ _ free _; echo \"room=$free\"; }}\n",
            quoted(&folder.display().to_string())
        );
    }
    for (number, command) in asked.commands.iter().enumerate() {
        if let Some(program) = program(command) {
            let _ = writeln!(
                script,
                "command -v -- {0} >/dev/null 2>&1 || echo missing={number}",
                quoted(program)
            );
        }
        if let Some(permitted) = sudo(command) {
            let _ = writeln!(
                script,
                "if ! command -v sudo >/dev/null 2>&1; then echo nosudo={number}; elif ! {permitted} >/dev/null 2>&1; then echo \
                 refused={number}; fi"
            );
        }
        let _ = writeln!(
            script,
            "printf '%s\\n' {} | sh -n >/dev/null 2>&1 || echo unparsed={number}",
            quoted(command)
        );
    }
    script
}

/// The lines `name=value` of an answer with that name.
fn fields(answer: &str, name: &str) -> Vec<String> {
    let lines = answer.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
        .collect()
}

/// The number of the first such line.
fn number(answer: &str, name: &str) -> Option<u64> {
    fields(answer, name).first()?.trim().parse().ok()
}

/// Judges what a host answered about the folder that stagger has there.
fn of_folder(host: &str, answer: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    match fields(answer, "writable").first().map(String::as_str) {
        Some("yes") => {}
        Some(no) => checks.push(
            Check::failed(
                host,
                format!("its folder is not writable: {}", no.trim_start_matches("no, ")),
            )
            .hint("`folder` in [hosts] names another one; or reach the host as a user who may"),
        ),
        None => checks.push(Check::failed(
            host,
            "whether its folder can be written could not be determined",
        )),
    }
    match number(answer, "room") {
        Some(room) if room < ROOM => checks.push(
            Check::failed(host, format!("{} MiB are free where stagger writes", room / 1024))
                .hint(format!("at least {} MiB should be", ROOM / 1024)),
        ),
        Some(_) => {}
        None => checks.push(Check::warning(
            host,
            "how much room there is could not be determined",
        )),
    }
    checks
}

/// Judges what a host answered at that time.
fn of_host(host: &str, answer: &str, asked: &HostChecks, now: Timestamp) -> Vec<Check> {
    let HostChecks {
        keys,
        commands,
        keeps_nothing,
    } = asked;
    let fields = |name: &str| fields(answer, name);
    let of = |number: &String| -> Option<(&String, &String)> {
        let number: usize = number.parse().ok()?;
        keys.get(number).zip(commands.get(number))
    };
    if fields("clock").is_empty() {
        let why = format!("its answer is not that of a shell: {answer:.200}");
        return vec![Check::failed(host, why)];
    }
    let mut checks = Vec::new();
    if !keeps_nothing {
        checks.extend(of_folder(host, answer));
    }
    match number(answer, "clock") {
        Some(clock) => {
            let here = u64::try_from(now.as_second()).unwrap_or_default();
            let off = clock.abs_diff(here);
            if off > CLOCK.as_secs() {
                checks.push(
                    Check::warning(host, format!("its clock is {off} s off from the one here"))
                        .hint("look at chrony or ntpd there"),
                );
            }
        }
        None => checks.push(Check::warning(host, "its clock could not be read")),
    }
    for (key, command) in fields("missing").iter().filter_map(of) {
        let program = program(command).unwrap_or(command);
        checks.push(Check::failed(
            host,
            format!("{key}: there is no program {program}"),
        ));
    }
    for (key, _) in fields("nosudo").iter().filter_map(of) {
        checks.push(Check::failed(host, format!("{key}: there is no program sudo")));
    }
    for (key, command) in fields("refused").iter().filter_map(of) {
        let permitted = sudo(command).unwrap_or_default();
        checks.push(
            Check::failed(
                host,
                format!("{key}: sudo does not run `{command}` without a password"),
            )
            .hint(format!(
                "`{permitted}` has to end with 0 there: see NOPASSWD in sudoers"
            )),
        );
    }
    for (key, command) in fields("unparsed").iter().filter_map(of) {
        checks.push(Check::failed(
            host,
            format!("{key}: its shell cannot read `{command}`"),
        ));
    }
    if checks.is_empty() {
        let found = match commands.len() {
            0 => "it is reached".to_owned(),
            count => format!("{count} commands can be run"),
        };
        checks.push(Check::passed(host, found));
    }
    checks
}

/// The question whether sudo runs what a command begins with, without a password: `sudo -n -l systemctl restart x`. `None`: the
/// command does not begin with sudo.
fn sudo(command: &str) -> Option<String> {
    // What stands behind is another command, or words that only the shell makes.
    const ENDS: [char; 12] = [';', '&', '|', '<', '>', '(', ')', '$', '`', '\'', '"', '\\'];
    let mut words = command.split_whitespace().peekable();
    words.next().filter(|first| *first == "sudo")?;
    let mut question = "sudo -n -l".to_owned();
    while let Some(flag) = words.next_if(|word| word.starts_with('-')) {
        // Of flags only the user changes what is permitted.
        if let ("-u" | "--user", Some(user)) = (flag, words.peek()) {
            let _ = write!(question, " -u {}", quoted(user));
            words.next();
        }
    }
    for word in words {
        let plain = word.split(ENDS).next().unwrap_or_default();
        if !plain.is_empty() {
            let _ = write!(question, " {}", quoted(plain));
        }
        if plain.len() < word.len() {
            break;
        }
    }
    Some(question)
}

/// Words of the shell that are followed by a program.
const BEFORE: [&str; 8] = ["sudo", "-n", "if", "while", "!", "time", "exec", "env"];

/// The first program of a command, if it is plain to see.
fn program(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace();
    let first = words.find(|word| {
        // What another command prints is not plain to see, and what follows is not the first program.
        if word.contains("$(") || word.contains('`') {
            return true;
        }
        let assigns = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        !assigns && !BEFORE.contains(word)
    })?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+');
    let first = first.trim_end_matches(';');
    (!first.is_empty() && first.chars().all(plain)).then_some(first)
}

/// The word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(commands: &[&str]) -> HostChecks {
        let mut asked = HostChecks::default();
        for (number, command) in commands.iter().enumerate() {
            asked.add(format!("key {number}"), (*command).to_owned());
        }
        asked
    }

    fn answered(asked: &HostChecks, folder: &Path, path: &str) -> (Vec<Check>, String) {
        let ran = std::process::Command::new("sh")
            .arg("-c")
            .arg(question(folder, asked))
            .env("PATH", path)
            .output()
            .unwrap();
        let answer = String::from_utf8(ran.stdout).unwrap();
        (of_host("n1", &answer, asked, Timestamp::now()), answer)
    }

    fn asked(commands: &[&str]) -> (Vec<Check>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = std::env::var("PATH").unwrap();
        answered(&of(commands), &folder.path().join("not/yet"), &path)
    }

    #[test]
    fn a_host_that_has_all_passes() {
        let (checks, answer) = asked(&[
            "true 'a b'; echo \"$x\"",
            "LC_ALL=C sh -c 'exit 1'",
            "if true; then false; fi",
        ]);
        assert_eq!(checks, [Check::passed("n1", "3 commands can be run")], "{answer}");
    }

    #[test]
    fn programs_and_words_that_no_shell_reads_are_found() {
        let (checks, answer) = asked(&["no-such-program --x", "echo 'open", "exec no-such-either"]);
        let found: Vec<&str> = checks.iter().map(|check| check.found.as_str()).collect();
        let wanted = [
            "key 0: there is no program no-such-program",
            "key 2: there is no program no-such-either",
            "key 1: its shell cannot read `echo 'open`",
        ];
        assert_eq!(found, wanted, "{answer}");
        assert!(checks.iter().all(|check| check.outcome == CheckOutcome::Failed));
    }

    #[test]
    fn sudo_is_asked_for_what_it_would_run() {
        for (command, asked) in [
            ("systemctl restart x", None),
            (
                "sudo systemctl restart 'a b'",
                Some("sudo -n -l 'systemctl' 'restart'"),
            ),
            (
                "sudo -n -u ceph ceph-osd --mkfs; true",
                Some("sudo -n -l -u 'ceph' 'ceph-osd' '--mkfs'"),
            ),
        ] {
            assert_eq!(sudo(command).as_deref(), asked, "{command}");
        }
    }

    /// A sudo that permits one program.
    #[test]
    fn what_sudo_does_not_permit_is_found_before_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let sudo = folder.path().join("sudo");
        std::fs::write(
            &sudo,
            "#!/bin/sh\nfor last; do :; done\n[ \"$1 $2 $3\" = '-n -l true' ]\n",
        )
        .unwrap();
        std::fs::set_permissions(&sudo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let with = format!("{}:/usr/bin:/bin", folder.path().display());
        let asked = |command: &str| -> Vec<String> {
            let (checks, _) = answered(&of(&[command]), folder.path(), &with);
            checks.into_iter().map(|check| check.found).collect()
        };
        assert_eq!(asked("sudo -n true"), ["1 commands can be run"]);
        assert_eq!(
            asked("sudo -n false"),
            ["key 0: sudo does not run `sudo -n false` without a password"]
        );
    }

    /// A host that is only gone to has no folder of stagger's.
    #[test]
    fn where_nothing_is_kept_no_folder_is_asked_for() {
        let nowhere = Path::new("/proc/no/folder/can/be/made");
        let path = std::env::var("PATH").unwrap();
        let mut only_commands = HostChecks::without_folder();
        let (checks, answer) = answered(&only_commands, nowhere, &path);
        assert_eq!(checks, [Check::passed("n1", "it is reached")], "{answer}");
        only_commands.add("reboot".to_owned(), "no-such-program -f".to_owned());
        let (checks, answer) = answered(&only_commands, nowhere, &path);
        let missing = Check::failed("n1", "reboot: there is no program no-such-program");
        assert_eq!(checks, [missing], "{answer}");
        let (checks, answer) = answered(&HostChecks::default(), nowhere, &path);
        assert!(checks[0].found.contains("its folder is not writable"), "{answer}");
        let banner = of_host("n1", "-bash: banner\n", &only_commands, Timestamp::now());
        assert_eq!(banner[0].outcome, CheckOutcome::Failed, "{banner:?}");
    }

    /// Seen: of a command whose first word keeps what another prints, the next word was taken for a program.
    #[test]
    fn the_words_of_a_substitution_are_no_programs() {
        let (checks, answer) = asked(&["said=$(timeout 120 ssh n1 true); echo $said", "x=`no such`"]);
        assert_eq!(checks, [Check::passed("n1", "2 commands can be run")], "{answer}");
    }

    #[test]
    fn room_clocks_and_folders_are_judged() {
        let now = Timestamp::from_second(1_000).unwrap();
        let judged = |answer: &str| of_host("n1", answer, &HostChecks::default(), now);
        assert_eq!(
            judged("clock=1003\nwritable=yes\nroom=900000\n")[0].outcome,
            CheckOutcome::Passed
        );
        let checks = judged("clock=900\nwritable=no, ceph may not write to /var\nroom=1000\n");
        let found: Vec<String> = checks
            .iter()
            .map(|check| format!("{:?} {}", check.outcome, check.found))
            .collect();
        assert_eq!(
            found,
            [
                "Failed its folder is not writable: ceph may not write to /var",
                "Failed 0 MiB are free where stagger writes",
                "Warning its clock is 100 s off from the one here",
            ]
        );
        let checks = judged("-bash: banner\n");
        assert_eq!(checks[0].outcome, CheckOutcome::Failed, "unknown is not fine");
        let checks = judged("clock=1000\n");
        assert_eq!(checks[0].outcome, CheckOutcome::Failed, "unknown is not fine");
        assert_eq!(checks.len(), 2, "{checks:?}");
    }
}
