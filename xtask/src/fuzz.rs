//! `fuzz`: builds the targets of `fuzz/` on the pinned toolchain, gives them seeds, and runs them. The quick tests run each
//! over its seeds alone, as the workspace builds it: without the counting of edges, which everything would have to be built anew for.
//!
//! `cargo fuzz` wants a nightly compiler for its address sanitizer. There is no `unsafe` here, so that
//! would find nothing; what guides the fuzzer is the coverage, and the stable compiler can count that.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{cargo, root, say, target_folder};

/// Counters on every edge, the table of where they are, and the values that comparisons see.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Recorded answers by the letter that names their parser in `fuzz/fuzz_targets/answers.rs`.
const ANSWERS: [(char, &[&str]); 13] = [
    ('a', &["osd_dump"]),
    ('b', &["osd_tree"]),
    ('c', &["osd_metadata"]),
    ('d', &["pg_dump"]),
    ('e', &["pg_dump_pgs_brief", "pg_dump"]),
    ('f', &["quorum_status"]),
    ('g', &["mon_metadata", "mgr_metadata", "mds_metadata"]),
    ('h', &["mgr_dump"]),
    ('i', &["fs_dump"]),
    ('j', &["status"]),
    ('k', &["health_detail"]),
    ('l', &["versions"]),
    ('m', &["osd_ok_to_stop_0", "crash_ls_new"]),
];

/// From so many seconds a target on, it pays to optimise.
const LONG: u32 = 60;

/// What is optimised still ends at an overflow or a broken invariant, as tests do.
const STRICT: [&str; 2] = [
    "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS",
    "CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS",
];

const FIXTURES: &str = "crates/backends/ceph/tests/fixtures";

/// What a CephMaintenance and its CephCluster may ask for.
const SPEC: &str = r#"{"cluster":{"cephVersion":{"image":"ceph:20"},"dataDirHostPath":"/var/lib/rook","skipUpgradeChecks":false,
"priorityClassNames":{"osd":"high"},"resources":{"osd":{"limits":{"memory":"4Gi"}}},"annotations":{"all":{"a":"b"}},
"storage":{"useAllNodes":true,"osdMaxUpdatesInParallel":4}},"maintenance":{"cephCluster":"c","image":"ceph:21",
"manage":["drains","updates","provisioning"],"updatePolicy":{"onFailure":"rollback","doorsOpenAfterMinutes":5,
"healthErrorsToIgnore":["POOL_NO_REDUNDANCY"],"interruptions":["pool.rbd"],"partial":true,
"windows":[{"days":["sat"],"from":"22:00","until":"05:00","zone":"UTC"}],
"osds":{"maxInParallelPerCluster":"15%","grow":true,"soakSeconds":30}}}}"#;

/// Builds all targets, and runs that one, or all, for so many seconds each.
pub(crate) fn fuzz(seconds: u32, only: Option<&str>) -> Result<()> {
    let compiler = compiler()?;
    let folder = target_folder().join("fuzz");
    let built = build(&folder, &compiler, seconds >= LONG)?;
    let targets = targets()?;
    if let Some(only) = only.filter(|only| !targets.iter().any(|target| target == only)) {
        bail!("there is no target {only}; there are: {}", targets.join(", "));
    }
    for target in targets
        .iter()
        .filter(|target| only.is_none_or(|only| only == *target))
    {
        run(target, seconds, &folder, &built)?;
    }
    Ok(())
}

/// libFuzzer is written in C++.
fn compiler() -> Result<String> {
    let named = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    match Command::new(&named).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(named),
        Ok(_) | Err(_) => bail!(
            "there is no C++ compiler {named:?}, and libFuzzer needs one: install g++ or clang, or name another one by CXX"
        ),
    }
}

/// The targets are the files.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        if let Some(name) = entry?.path().file_stem() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn build(folder: &Path, compiler: &str, optimised: bool) -> Result<PathBuf> {
    let host = host()?;
    let profile = if optimised { "release" } else { "dev" };
    // With a target named, flags are not for build scripts and macros, which need no counting.
    let status = cargo(&["build", "--quiet", "--package", "stagger-fuzz", "--bins"])
        .args(["--profile", profile, "--target", &host, "--target-dir"])
        .arg(folder)
        .env("RUSTFLAGS", COVERAGE)
        .env("CXX", compiler)
        .envs(STRICT.map(|setting| (setting, "true")))
        .status()
        .context("build the targets of fuzz/")?;
    if !status.success() {
        bail!("the targets of fuzz/ do not build");
    }
    Ok(folder
        .join(host)
        .join(if optimised { "release" } else { "debug" }))
}

/// The machine that is compiled for, as rustc calls it.
fn host() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .current_dir(root())
        .output()
        .context("ask rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Runs each target over its seeds, as the workspace was built.
pub(crate) fn seeds_alone() -> Result<()> {
    let folder = target_folder().join("fuzz");
    for target in targets()? {
        let (seeds, _) = sown(&target, &folder)?;
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&seeds).with_context(|| format!("read {}", seeds.display()))? {
            paths.push(entry?.path());
        }
        // Each by its name: a folder would be fuzzed, which takes the counting of edges.
        let output = Command::new(target_folder().join("debug").join(&target))
            .arg("-timeout=20")
            .args(&paths)
            .output()
            .with_context(|| format!("start the target {target}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let ran = text.lines().filter(|line| line.starts_with("Executed ")).count();
        if !output.status.success() || ran != paths.len() {
            bail!(
                "the target {target} ran {ran} of its {} seeds:\n{text}",
                paths.len()
            );
        }
        say(&format!("   {target}: {ran} seeds"));
    }
    Ok(())
}

/// A folder of that target's.
fn place(folder: &Path, kind: &str, target: &str) -> Result<PathBuf> {
    let path = folder.join(kind).join(target);
    std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// The folder with its seeds, made anew, and how long the longest is.
fn sown(target: &str, folder: &Path) -> Result<(PathBuf, usize)> {
    let place = place(folder, "seeds", target)?;
    let mut longest = 0;
    for (name, bytes) in seeds(target)? {
        longest = longest.max(bytes.len());
        let path = place.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
    }
    Ok((place, longest))
}

fn run(target: &str, seconds: u32, folder: &Path, built: &Path) -> Result<()> {
    let (seeds, longest) = sown(target, folder)?;
    let (corpus, artifacts) = (
        place(folder, "corpus", target)?,
        place(folder, "artifacts", target)?,
    );
    let log = folder.join(format!("{target}.log"));
    let output = Command::new(built.join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", (longest * 2).max(4096)))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .arg(&seeds)
        .output()
        .with_context(|| format!("start the target {target}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::write(&log, &text).with_context(|| format!("write {}", log.display()))?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    if !output.status.success() {
        let last: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("panicked at") || line.starts_with("=="))
            .collect();
        bail!(
            "the target {target} broke:\n  {}\nall of it is in {}; the input is in {}: give it to {}",
            last.join("\n  "),
            log.display(),
            artifacts.display(),
            built.join(target).display()
        );
    }
    say(&format!(
        "   {target}: {} inputs, {} new",
        number("stat::number_of_executed_units:"),
        number("stat::new_units_added:")
    ));
    Ok(())
}

/// What a target begins with.
fn seeds(target: &str) -> Result<Vec<(String, Vec<u8>)>> {
    match target {
        "answers" => answers(),
        "saved" => saved(),
        "configuration" => Ok(vec![(
            "guide.toml".to_owned(),
            blocks("docs/guides/ceph.md", "toml")?.into_bytes(),
        )]),
        "policy" => Ok(policies()),
        "journal" => journals(),
        "ganeti" => ganeti(),
        "ironic" => Ok(ironic()),
        "kubernetes" => Ok(vec![("spec.json".to_owned(), SPEC.as_bytes().to_vec())]),
        "scenario" => files("scenarios", "toml"),
        other => bail!("xtask/src/fuzz.rs has no seeds for the target {other}"),
    }
}

fn answers() -> Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for (letter, names) in ANSWERS {
        for version in ["16.2.15", "18.2.7", "20.2.4"] {
            for name in names {
                let path = root().join(FIXTURES).join(version).join(format!("{name}.json"));
                // Not every release has every answer.
                if let Ok(answer) = std::fs::read(&path) {
                    seeds.push((
                        format!("{letter}-{version}-{name}"),
                        [vec![letter as u8], answer].concat(),
                    ));
                }
            }
        }
    }
    if seeds.len() < ANSWERS.len() {
        bail!("only {} recorded answers were found in {FIXTURES}", seeds.len());
    }
    Ok(seeds)
}

/// The recorded answers of Ganeti, and the files that the transcripts are made with.
fn ganeti() -> Result<Vec<(String, Vec<u8>)>> {
    const RAPI: &str = "crates/backends/ganeti/tests/fixtures/answers";
    const REQUEST: &str = "crates/backends/ganeti/tests/fixtures/request.json";
    let text =
        |path: &str| std::fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"));
    let mut answers = serde_json::Map::new();
    for (name, file) in [
        ("info", "info"),
        ("groups", "groups_bulk"),
        ("nodes", "nodes_bulk"),
        ("boots", "query_nodes"),
        ("instances", "instances_bulk"),
    ] {
        let answer = serde_json::from_str(&text(&format!("{RAPI}/{file}.json"))?)
            .with_context(|| format!("read {file}.json"))?;
        answers.insert(name.to_owned(), answer);
    }
    let answers = serde_json::Value::Object(answers).to_string();
    let mut seeds = vec![
        ("answers".to_owned(), format!("a{answers}").into_bytes()),
        ("request".to_owned(), format!("i{}", text(REQUEST)?).into_bytes()),
    ];
    for (name, file) in files("crates/cli/tests/transcripts/inputs", "data")? {
        seeds.push((name, [b"t".to_vec(), file].concat()));
    }
    Ok(seeds)
}

fn ironic() -> Vec<(String, Vec<u8>)> {
    let table = "b# pxname,svname,qcur,qmax,scur,smax,slim,stot,status\n\
                 ironic,FRONTEND,,,2,9,100,20,OPEN\n\
                 ironic,api1,0,0,1,4,,10,UP\n\
                 ironic,api2,0,0,1,4,,10,DRAIN\n\
                 ironic,BACKEND,0,0,2,9,100,20,UP\n";
    let releases = ["29.0", "26.1.6", "2025.1", "master"];
    let releases = releases.map(|text| (text.to_owned(), format!("r{text}").into_bytes()));
    [("table".to_owned(), table.as_bytes().to_vec())]
        .into_iter()
        .chain(releases)
        .collect()
}

/// The recorded clusters as `observe --save` writes them.
fn saved() -> Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for version in ["16.2.15", "18.2.7", "20.2.4"] {
        let file = target_folder().join("fuzz").join(format!("{version}.json"));
        stagger(&[
            "observe",
            "--from",
            &format!("{FIXTURES}/{version}"),
            "--save",
            &file.display().to_string(),
        ])?;
        seeds.push((
            version.to_owned(),
            std::fs::read(&file).with_context(|| format!("read {}", file.display()))?,
        ));
    }
    Ok(seeds)
}

/// An `i64` and two `u32` stand behind the text: `arbitrary` takes numbers from the front as they come.
fn policies() -> Vec<(String, Vec<u8>)> {
    let texts = [
        r#"{"windows":[{"days":["sat","sun"],"from":"22:00","until":"05:00","zone":"Europe/Berlin"}]}"#,
        r#"{"windows":[{"from":"02:30","until":"02:30","zone":"America/New_York"}],"doors":{"auto-after":5}}"#,
        r#"{"max_in_parallel":"15%","max_in_parallel_of":{"osd":3},"order":{"by-domain":"rack"},"growth":"none"}"#,
        r#"{"order":{"list":["osd.3"]},"max_domains":{"rack":1},"max_reduced_redundancy":20,"retry":{"first":4000000000,"longest":1,"tries":30}}"#,
    ];
    let numbered = |text: &&str| {
        let numbers = [
            &1_800_000_000_i64.to_le_bytes()[..],
            &3_600_u32.to_le_bytes(),
            &60_u32.to_le_bytes(),
        ]
        .concat();
        [numbers, text.as_bytes().to_vec()].concat()
    };
    texts
        .iter()
        .enumerate()
        .map(|(at, text)| (at.to_string(), numbered(text)))
        .collect()
}

/// The journals of some scenarios.
fn journals() -> Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for scenario in ["demo", "rollback", "paused", "no-way-back"] {
        let state = tempfile::tempdir().context("make a folder")?;
        let state = state.path().display().to_string();
        let told = stagger(&[
            "--state",
            &state,
            "simulate",
            "--fast",
            "--json",
            &format!("scenarios/{scenario}.toml"),
        ])?;
        let told: serde_json::Value = serde_json::from_slice(&told).context("read the simulation")?;
        let journal = PathBuf::from(told["journal"].as_str().context("where the journal is")?);
        let folder = journal
            .parent()
            .context("where the journal is")?
            .display()
            .to_string();
        let run = told["run"].as_str().context("which run it was")?;
        let lines = stagger(&["--state", &folder, "history", run, "--json"])?;
        // Stored events do not carry the name of the document.
        let plain = String::from_utf8_lossy(&lines).replace(r#""schema":{"name":"event","version":1},"#, "");
        seeds.push((scenario.to_owned(), plain.into_bytes()));
    }
    Ok(seeds)
}

/// What the program prints; it may end as it likes.
fn stagger(words: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(target_folder().join("debug/stagger"))
        .args(words)
        .current_dir(root())
        .output()
        .context("start stagger, which `cargo build` makes")?;
    if output.stdout.is_empty() {
        bail!(
            "`stagger {}`: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output.stdout)
}

fn files(folder: &str, ending: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = root().join(folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            found.push((
                name,
                std::fs::read(&path).with_context(|| format!("read {}", path.display()))?,
            ));
        }
    }
    Ok(found)
}

/// The blocks of code in that language, as one text.
fn blocks(page: &str, language: &str) -> Result<String> {
    let text = std::fs::read_to_string(root().join(page)).with_context(|| format!("read {page}"))?;
    let opening = format!("```{language}\n");
    let blocks = text.split(opening.as_str()).skip(1);
    Ok(blocks.filter_map(|rest| rest.split("```").next()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_described() {
        let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let page = std::fs::read_to_string(root().join("fuzz/README.md")).unwrap();
        for target in targets().unwrap() {
            assert!(
                manifest.contains(&format!(
                    "name = \"{target}\"\npath = \"fuzz_targets/{target}.rs\""
                )),
                "{target}"
            );
            assert!(page.contains(&format!("\n| `{target}` | ")), "{target}");
        }
    }
}
