//! Which releases hosts can install, by what `[cluster.commands] versions` prints.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt as _};
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::{Hosts, Ran, last_words};
use stagger_engine::preflight::Check;

use crate::commands::filled;
use crate::config::IronicSettings;

/// How many hosts are asked at once: what they ask is one mirror or registry.
const AT_ONCE: usize = 8;

/// How long one may take, in seconds: package managers fetch lists.
const LIMIT: u64 = 120;

/// Whether every host can install that release; nothing where no command prints what it can.
pub async fn check(settings: &IronicSettings, release: &str) -> Vec<Check> {
    let mut questions = BTreeSet::new();
    let mut checks = Vec::new();
    for service in settings.cluster.services() {
        let Some(command) = &service.commands.versions else {
            continue;
        };
        match filled(command, &service, &[]) {
            // Services whose commands are the same have one answer.
            Ok(line) => {
                questions.insert((service.host.to_owned(), line));
            }
            Err(error) => checks.push(Check::failed(service.host, error.to_string())),
        }
    }
    let count = questions.len();
    let hosts = Hosts {
        timeout: LIMIT,
        ..settings.hosts.clone()
    };
    let hosts = &hosts;
    let answers = stream::iter(questions)
        .map(|(host, line)| async move {
            let answer = hosts.ask(&host, &line).await;
            judged(&host, &line, answer, release)
        })
        .buffered(AT_ONCE);
    checks.extend(answers.collect::<Vec<_>>().await.into_iter().flatten());
    if checks.is_empty() && count > 0 {
        checks.push(Check::passed(
            "repositories",
            format!("every host can install {release}"),
        ));
    }
    checks
}

/// What is wrong with what a host printed.
fn judged(host: &str, line: &str, answer: Result<Ran, BackendError>, release: &str) -> Option<Check> {
    let unread = |why: String| {
        Some(Check::warning(
            host,
            format!("its repositories could not be read: {why}"),
        ))
    };
    match answer {
        Err(error) => unread(error.why),
        Ok(Ran { code: 0, output }) if lists(&output, release) => None,
        Ok(Ran { code: 0, .. }) => Some(
            Check::failed(host, format!("its repositories do not have {release}"))
                .hint(format!("`{line}` lists what they have")),
        ),
        Ok(Ran { code, output }) => unread(format!("`{line}` ended with {code}: {}", last_words(&output))),
    }
}

/// Whether a release is among the words of what was printed: `29.0.6`, or as packages have it, `1:29.0.6-2`.
fn lists(output: &str, release: &str) -> bool {
    let mut words = output.split(|c: char| c.is_whitespace() || matches!(c, ',' | '|' | '(' | ')'));
    words.any(|word| {
        let version = word.split_once(':').map_or(word, |(_, after)| after);
        let rest = version.strip_prefix(release);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '+', '~']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIP: &str = "ironic (32.0.1)\nAvailable versions: 32.0.1, 29.0.6, 26.1.6\n";
    const MADISON: &str = " ironic-common | 1:29.0.6-2~bpo12+1 | https://deb.example.org bookworm/main\n";

    #[test]
    fn what_package_managers_print_is_read() {
        for (output, release, wanted) in [
            (PIP, "32.0.1", true),
            (PIP, "29.0.6", true),
            (PIP, "29.0", false),
            (PIP, "9.0.6", false),
            (MADISON, "29.0.6", true),
            (MADISON, "29.0.60", false),
            ("29.0.60\n29.0.6.dev1\n", "29.0.6", false),
            ("", "29.0.6", false),
        ] {
            assert_eq!(lists(output, release), wanted, "{release} in {output}");
        }
    }

    #[test]
    fn what_a_host_does_not_have_is_told_and_what_is_unknown_is_a_warning() {
        let ran = |code: i32, output: &str| {
            let output = output.to_owned();
            judged("h1", "versions", Ok(Ran { code, output }), "29.0.6")
        };
        assert_eq!(ran(0, PIP), None);
        let lacks = Check::failed("h1", "its repositories do not have 29.0.6");
        assert_eq!(ran(0, ""), Some(lacks.hint("`versions` lists what they have")));
        let unread = "its repositories could not be read: `versions` ended with 1: no index";
        assert_eq!(ran(1, "no index\n"), Some(Check::warning("h1", unread)));
        let silent = judged(
            "h1",
            "versions",
            Err(BackendError::transient("ask", "away")),
            "29.0.6",
        );
        let unread = Check::warning("h1", "its repositories could not be read: away");
        assert_eq!(silent, Some(unread));
    }
}
