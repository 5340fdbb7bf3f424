//! The book says what is so: names, links, words, keys and outputs are compared with the sources.
//!
//! `STAGGER_DOCS=write cargo test -p stagger-cli --test docs` writes the outputs in the book anew.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stagger_core::model::Code;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder with that ending, but not what a build left there.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                if !path.join("CACHEDIR.TAG").exists() {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The pages of the book and those beside it.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages = files(&root.join("docs"), "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    pages
}

fn none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// The text without blocks of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What stands between single backticks.
fn quoted(text: &str) -> Vec<String> {
    prose(text)
        .split('\n')
        .flat_map(|line| {
            line.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The blocks of code in that language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    text.split(opening.as_str())
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

fn headings(text: &str) -> Vec<String> {
    prose(text)
        .lines()
        .filter_map(|line| {
            line.trim_start_matches('#')
                .strip_prefix(' ')
                .filter(|_| line.starts_with('#'))
        })
        .map(str::to_owned)
        .collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_test_that_coverage_names_exists() {
    let root = root();
    let text = read(&root.join("docs/coverage.md"));
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, shown_by] = cells[..] else {
            wrong.push(format!("not three columns: {row}"));
            continue;
        };
        if !ids.insert(id.to_owned()) {
            wrong.push(format!("{id} stands there twice"));
        }
        let tests: Vec<String> = quoted(shown_by)
            .into_iter()
            .filter(|word| word.contains(".rs::"))
            .collect();
        if tests.is_empty()
            && !["issue ", "not yet", "partly", "not wanted"]
                .iter()
                .any(|why| shown_by.contains(why))
        {
            wrong.push(format!("{id} has neither a test nor a reason why not"));
        }
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            match fs::read_to_string(root.join(file)) {
                Err(_) => wrong.push(format!("{id}: there is no file {file}")),
                Ok(source) if !source.contains(&format!("fn {name}(")) => {
                    wrong.push(format!("{id}: {file} has no test {name}"));
                }
                Ok(_) => {}
            }
        }
    }
    assert!(ids.len() > 80, "only {} requirements were found", ids.len());
    none("docs/coverage.md", &wrong);
}

/// The words of a backend's own reasons that a source file gives.
fn slugs(source: &str) -> Vec<String> {
    let after = |opening| {
        let rest = source.split(opening).skip(1);
        rest.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
    };
    after("Reason::of_backend(").map(str::to_owned).collect()
}

#[test]
fn every_reason_is_explained_and_nothing_else_is() {
    let root = root();
    let text = read(&root.join("docs/reference/reasons.md"));
    let explained: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut sorted = explained.clone();
    sorted.sort_unstable();
    assert_eq!(explained, sorted, "the headings are in alphabetical order");
    let mut wrong = Vec::new();
    let named = Code::NAMED.iter().map(Code::code);
    wrong.extend(
        named
            .filter(|word| !explained.contains(word))
            .map(|word| format!("{word}, of the core, has no paragraph")),
    );
    let mut all = String::new();
    let sources = files(&root.join("crates"), "rs")
        .into_iter()
        .filter(|path| !path.components().any(|c| c.as_os_str() == "tests"));
    for path in sources {
        let source = read(&path);
        for slug in slugs(&source) {
            if !explained.contains(&slug.as_str()) {
                wrong.push(format!(
                    "{slug}, of {}, has no paragraph",
                    path.strip_prefix(&root).unwrap().display()
                ));
            }
        }
        all.push_str(&source);
    }
    wrong.extend(
        explained
            .iter()
            .filter(|word| !all.contains(&format!("\"{word}\"")))
            .map(|word| format!("{word} is explained, and nothing gives it")),
    );
    none("docs/reference/reasons.md", &wrong);
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&page);
        for target in prose(&text)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, part) = target
                .split_once('#')
                .map_or((target, None), |(file, part)| (file, Some(part)));
            let path = if file.is_empty() {
                page.clone()
            } else {
                page.with_file_name("").join(file)
            };
            let there = path.exists();
            let found =
                there && part.is_none_or(|part| headings(&read(&path)).iter().any(|h| anchor(h) == part));
            if !found {
                wrong.push(format!("{} links to {target}", page.display()));
            }
        }
    }
    none("links that lead nowhere", &wrong);
}

#[test]
fn every_source_file_that_a_page_names_exists() {
    let root = root();
    let mut wrong = Vec::new();
    for page in pages() {
        for word in quoted(&read(&page)).into_iter().collect::<BTreeSet<_>>() {
            let path = word.split("::").next().unwrap_or_default();
            let ours = ["crates/", "docs/", "e2e/", "scenarios/", "xtask/"]
                .iter()
                .any(|folder| path.starts_with(folder));
            let plain = !path.contains(['*', ' ', '{', '<', '…']);
            if ours && plain && !root.join(path).exists() {
                wrong.push(format!("{} names {path}", page.display()));
            }
        }
    }
    none("files that do not exist", &wrong);
}

/// A test that a page names by its file, as `crates/…/x.rs::name`.
#[test]
fn every_test_that_a_page_names_exists() {
    let root = root();
    let mut wrong = Vec::new();
    for page in pages() {
        for word in quoted(&read(&page)) {
            let Some((file, name)) = word.split_once(".rs::") else {
                continue;
            };
            let file = format!("{file}.rs");
            let source = fs::read_to_string(root.join(file)).unwrap_or_default();
            if !source.contains(&format!("fn {name}(")) {
                wrong.push(format!("{} names {word}", page.display()));
            }
        }
    }
    none("tests that do not exist", &wrong);
}

/// All defects of Ironic, each with its number, in the table of the guide and by name among the tests.
#[test]
fn each_defect_of_ironic_has_its_test() {
    let root = root();
    let guide = read(&root.join("docs/guides/versioned.md"));
    let tests = read(&root.join("crates/versioned/tests/all/defects.rs"));
    for number in 1..=12 {
        let row = guide
            .lines()
            .find(|line| line.starts_with(&format!("| D{number} |")));
        let row = row.unwrap_or_else(|| panic!("the guide has no D{number}"));
        let named = quoted(row).into_iter().find_map(|word| {
            let (_, name) = word.split_once("defects.rs::")?;
            Some(name.to_owned())
        });
        let named = named.unwrap_or_else(|| panic!("D{number} has no test in the guide"));
        assert!(named.starts_with(&format!("d{number}_")), "{named}");
        assert!(tests.contains(&format!("#[test]\nfn {named}() {{")), "{named}");
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let docs = root().join("docs");
    let summary = read(&docs.join("SUMMARY.md"));
    let missing: Vec<String> = files(&docs, "md")
        .into_iter()
        .map(|page| page.strip_prefix(&docs).unwrap().display().to_string())
        .filter(|page| page != "SUMMARY.md" && !summary.contains(&format!("({page})")))
        .collect();
    none("docs/SUMMARY.md does not list", &missing);
}

#[test]
fn every_decision_has_its_five_parts() {
    let mut wrong = Vec::new();
    for page in files(&root().join("docs/decisions"), "md") {
        let headings = headings(&read(&page));
        for part in [
            "Status",
            "Context",
            "Decision",
            "Consequences",
            "What we rejected",
        ] {
            if !headings.iter().any(|heading| heading == part) {
                wrong.push(format!("{} lacks {part}", page.display()));
            }
        }
    }
    none("decisions", &wrong);
}

/// The guide with its configuration, and the reference with its tables.
fn ceph_guide() -> String {
    let pages = ["docs/guides/ceph.md", "docs/reference/ceph.md"];
    pages.map(|page| read(&root().join(page))).concat()
}

/// The keys of a section as it is written out, those that are not set included.
fn keys(section: &impl serde::Serialize) -> Vec<String> {
    let value = serde_json::to_value(section).unwrap();
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_ceph_guide_shows_every_key() {
    let cluster: stagger_ceph::config::CephConfig = toml::from_str("name = \"x\"").unwrap();
    let policy = stagger_core::model::Policy::default();
    let mut all = keys(&cluster);
    all.extend(keys(&policy));
    all.extend(keys(&policy.retry));
    all.extend(keys(&policy.search));
    all.extend(keys(&stagger_ceph::translate::HealthPolicy::default()));
    all.extend(keys(&stagger_engine::hosts::Hosts::default()));
    all.extend(keys(&stagger_ceph::software::Software::default()));
    all.extend(["days", "from", "until", "zone"].map(str::to_owned));
    let example = blocks(&ceph_guide(), "toml").concat();
    let shown = |key: &String| {
        example.lines().any(|line| {
            let is_key = line
                .strip_prefix(key.as_str())
                .is_some_and(|rest| rest.starts_with([' ', '=']));
            is_key || (line.starts_with('[') && line.contains(&format!(".{key}]")))
        })
    };
    let missing: Vec<String> = all.into_iter().filter(|key| !shown(key)).collect();
    none("keys that docs/guides/ceph.md does not show", &missing);
}

/// What comes of planning with that configuration: nothing, or the error.
fn planned_with(configuration: &str, file: &Path) -> Result<(), String> {
    fs::write(file, configuration).unwrap();
    let mut command = stagger();
    command.arg("--config").arg(file);
    command.args([
        "plan",
        "upgrade",
        "--to",
        "18.2.7",
        "--from",
        "crates/backends/ceph/tests/fixtures/16.2.15",
        "--interrupt",
        "mgr",
    ]);
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_ceph_guide_s_configuration_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stagger.toml");
    planned_with(&blocks(&ceph_guide(), "toml").concat(), &file).unwrap();
}

/// So each key that the guide shows is one that the program knows.
#[test]
fn no_section_of_the_configuration_takes_an_unknown_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stagger.toml");
    let whole = blocks(&ceph_guide(), "toml").concat();
    let headers: Vec<&str> = whole
        .lines()
        .filter(|line| line.starts_with('['))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(headers.len() >= 10, "{headers:?}");
    for header in headers {
        let spoilt = whole.replacen(header, &format!("{header}\nno_such_key = 1 #"), 1);
        let said = planned_with(&spoilt, &file).expect_err(header);
        assert!(said.contains("no_such_key"), "{header}: {said}");
    }
}

/// The words of a key's value, as the error about a wrong one lists them.
fn words_of<T: serde::de::DeserializeOwned>(wrong: serde_json::Value) -> Vec<String> {
    let error = serde_json::from_value::<T>(wrong).err().unwrap().to_string();
    let (_, expected) = error.split_once("expected ").unwrap();
    let words = expected.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

#[test]
fn the_ceph_guide_shows_every_word() {
    use stagger_ceph::target::PgGate;
    use stagger_core::model::Policy;
    let example = blocks(&ceph_guide(), "toml").concat();
    let mut missing = Vec::new();
    for key in ["growth", "order", "doors", "on_failure"] {
        let words = words_of::<Policy>(serde_json::json!({ key: "no-such-word" }));
        assert!(words.len() > 1, "{key}: {words:?}");
        missing.extend(words.into_iter().map(|word| (key, word)));
    }
    let gates = words_of::<PgGate>(serde_json::json!("no-such-word"));
    missing.extend(gates.into_iter().map(|word| ("pgs", word)));
    missing.retain(|(_, word)| !example.contains(word.as_str()));
    assert!(
        missing.is_empty(),
        "docs/guides/ceph.md does not show {missing:?}"
    );
}

#[test]
fn the_ceph_guide_has_the_tables_of_the_sources() {
    let text = ceph_guide();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let mut wrong = Vec::new();
    for cause in stagger_ceph::translate::CAUSED {
        if !rows.iter().any(|row| {
            row.contains(&format!("`{}`", cause.code))
                && row.ends_with(if cause.half_way { "| yes |" } else { "|  |" })
        }) {
            wrong.push(format!("the code {}", cause.code));
        }
    }
    for line in stagger_ceph::rollback_table::TABLE {
        let takes = match line.takes {
            stagger_ceph::rollback_table::RollbackCost::Restart => "restart",
            stagger_ceph::rollback_table::RollbackCost::Convert(_) => "conversion",
            stagger_ceph::rollback_table::RollbackCost::Rebuild(_) => "rebuild",
        };
        let start = format!("| {} | {} | {} | {takes}", line.kind, line.from, line.to);
        if !rows.iter().any(|row| row.starts_with(&start)) {
            wrong.push(format!("{} from {} to {}", line.kind, line.from, line.to));
        }
    }
    let source = read(&root().join("crates/backends/ceph/src/translate/conditions.rs"));
    for name in source
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `")?.split('`').next())
    {
        if !rows.iter().any(|row| row.starts_with(&format!("| `{name}`"))) {
            wrong.push(format!("the condition {name}"));
        }
    }
    none("the guide and the reference of Ceph lack", &wrong);
}

#[test]
fn exit_codes_are_those_of_the_program() {
    let root = root();
    let source = read(&root.join("crates/cli/src/exit.rs"));
    let text = read(&root.join("docs/reference/exit-codes.md"));
    let numbers: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => "))
        .map(|(_, number)| number.trim_end_matches(','))
        .collect();
    assert!(numbers.len() >= 7, "{numbers:?}");
    for number in numbers {
        assert!(
            text.contains(&format!("\n| {number} | ")),
            "{number} is not in the table"
        );
    }
}

fn stagger() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stagger"));
    command
        .current_dir(root())
        .stdin(Stdio::null())
        .env("NO_COLOR", "1");
    command
}

/// What a command prints, and its exit code where that is not 0.
fn said(line: &str, folder: &Path) -> String {
    let folder = format!("{}/", folder.display());
    let words = line
        .split_whitespace()
        .skip(1)
        .map(|word| word.replace("/tmp/", &folder));
    let output = stagger().args(words).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => {}
        code => writeln!(text, "[exit {}]", code.unwrap_or(-1)).unwrap(),
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").replace(&folder, "/tmp/")
}

/// Blocks of `console` are run, and print what stands there. A line `…` stands for whatever comes.
#[test]
fn outputs_are_what_the_program_prints() {
    let write = std::env::var_os("STAGGER_DOCS").is_some_and(|value| value == "write");
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut run = 0;
    for page in pages() {
        let text = read(&page);
        let mut new = text.clone();
        for block in blocks(&text, "console") {
            let mut fresh = String::new();
            for part in format!("\n{block}").split("\n$ ").skip(1) {
                let (line, expected) = part.split_once('\n').unwrap_or((part, ""));
                let printed = said(line, folder.path());
                run += 1;
                let elided = expected.lines().any(|line| line == "…");
                if !matches(expected.trim_end(), &printed) {
                    wrong.push(format!("{}: `{line}` prints\n{printed}\n", page.display()));
                }
                let kept = if elided {
                    expected.trim_end()
                } else {
                    printed.trim_end()
                };
                writeln!(fresh, "$ {line}\n{kept}").unwrap();
            }
            new = new.replacen(&block, &fresh, 1);
        }
        if write && new != text {
            fs::write(&page, new).unwrap();
        }
    }
    assert!(run >= 6, "only {run} commands were found");
    if !write {
        none(
            "outputs that are not as printed (STAGGER_DOCS=write writes them anew)",
            &wrong,
        );
    }
}

fn matches(expected: &str, printed: &str) -> bool {
    let mut rest = printed;
    for (at, piece) in expected
        .split("…\n")
        .map(|piece| piece.trim_end_matches('…'))
        .enumerate()
    {
        match rest.find(piece) {
            Some(found) if at > 0 || found == 0 => rest = &rest[found + piece.len()..],
            Some(_) | None => return false,
        }
    }
    expected.ends_with('…') || rest.trim().is_empty()
}
