//! Every file in `scenarios/` runs and comes to what it expects.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use crate::playing;

use std::path::PathBuf;

use stagger_sim::Scenario;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios");

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // Counterexamples of the protocol's model are run by the engine's tests; those that were found in
        // random worlds expect nothing but that the truth finds nothing.
        .filter(|path| !path.ends_with("model") && !path.ends_with("found"))
        .collect();
    files.sort();
    files
}

#[test]
fn each_file_comes_to_what_it_expects() {
    let only = std::env::var("ONLY").ok();
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        count += 1;
        let scenario = Scenario::parse(&std::fs::read_to_string(&file).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let report = playing::play(&scenario);
        println!(
            "{name}: {:?}, {} waves of {} planned, {} units, {} stops, took {:#} of {:#} forecast, {} events",
            playing::word(&report.ending),
            report.waves,
            report.planned_waves,
            report.units,
            report.truth.stops,
            report.took,
            report.forecast,
            report.events,
        );
        let mut must = |holds: bool, what: String| {
            if !holds {
                wrong.push(format!("{name}: {what}; {:?}", report.ending));
            }
        };
        let expect = &scenario.expect;
        let (ending, reason) = playing::word(&report.ending);
        must(
            expect.ending.as_deref() == Some(ending),
            format!("it ends {ending}"),
        );
        if expect.reason.is_some() {
            must(expect.reason == reason, format!("the reason is {reason:?}"));
        }
        if let Some(left) = &expect.left {
            let found: Vec<_> = playing::left(&report.ending)
                .into_iter()
                .map(|(what, _)| what)
                .collect();
            must(*left == found, format!("left are {found:?}"));
        }
        if let Some(most) = expect.waves_at_most {
            must(report.waves <= most, format!("{} waves", report.waves));
        }
        if let Some(least) = expect.units_at_least {
            must(report.units >= least, format!("{} units", report.units));
        }
        must(report.findings.is_empty(), format!("{:?}", report.findings));
        must(
            report.truth.undetectable == expect.undetectable,
            format!("{} lies", report.truth.undetectable),
        );
        must(
            report.guards.is_empty() || ending == "held",
            format!("guards left: {:?}", report.guards),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(only.is_some() || count >= 10, "only {count} scenarios were found");
}

#[test]
fn nothing_else_lies_among_the_scenarios() {
    for file in files() {
        assert!(
            file.extension().is_some_and(|end| end == "toml"),
            "{} is not run",
            file.display()
        );
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = Scenario::parse(&text).unwrap();
        assert!(
            scenario.expect.ending.is_some(),
            "{} expects nothing",
            file.display()
        );
        assert!(
            !scenario.about.is_empty(),
            "{} does not say what it shows",
            file.display()
        );
        assert_eq!(
            Scenario::parse(&scenario.text()).unwrap(),
            scenario,
            "{}",
            file.display()
        );
    }
}

/// Worlds in which something was found once: the truth finds nothing in them any more, and each goes the same way
/// when it is played again.
#[test]
fn in_what_was_found_once_nothing_is_found_any_more() {
    let mut files: Vec<_> = std::fs::read_dir(format!("{FOLDER}/found"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 2, "only {} worlds were found", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
        let report = playing::play(&scenario);
        if !report.findings.is_empty() {
            wrong.push(format!("{}: {:?}", file.display(), report.findings));
        }
        assert_eq!(report, playing::play(&scenario), "{}", file.display());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
