//! The one menu: `cargo xtask {test, bench, simulate, fuzz, generate, krew, layers, package, pictures}`. No tool to install first.

mod bench;
mod chart;
mod disk;
mod fuzz;
mod generate;
mod krew;
mod layers;
mod long;
mod modules;
mod package;
mod pictures;
mod postgres;
mod prometheus;
mod report;
mod schemathesis;
mod simulate;
mod story;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

const MENU: &str = "cargo xtask test [--quick | --all]            set up what the tests need, and run them; stories that passed here
                                              with the same inputs only with --all
cargo xtask checks                            lints, pages, tools: all that only reads the code; part of `test`
cargo xtask test --long [CASE…]               every named case; writes docs/long-run.md
cargo xtask bench ceph [--osds N]             planning on large maps beside its peers; writes docs/bench.md
cargo xtask bench cephadm                    the same update by cephadm and by stagger; writes docs/bench-cephadm.md
cargo xtask bench kubernetes [--osds N]       the operator on 1,000 OSDs; writes docs/bench-kubernetes.md
cargo xtask bench ganeti [--patience SECONDS] reboot groups of large clusters beside hroller; writes docs/bench-ganeti.md
cargo xtask bench ironic                      a real upgrade beside the same by hand; writes docs/bench-ironic.md
cargo xtask bench versioned [--rows N]        what versions and migrations cost; writes docs/bench-versioned.md
cargo xtask simulate --worlds N [--seed S]    random worlds against the real driver, judged by the truth
cargo xtask layers [--modules]                who may depend on whom, and that the core is pure; or only the modules, crate by crate
cargo xtask fuzz [--seconds N] [TARGET]       what comes from outside, against the parsers; 20 s each
cargo xtask krew PROGRAM URL FOLDER           the plugin of kubectl, packed, and its manifest: where it will be fetched from
cargo xtask package [URL]                     a Debian package, the plugin and checksums in target/package; tried in a Debian root; the container image, tried
cargo xtask pictures                          those of README and guides, of a real upgrade; writes docs/pictures
cargo xtask generate [--check]                make the generated pages anew, or say which are old";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["test"] => test::test(test::Extent::Usual),
        ["test", "--quick"] => test::test(test::Extent::Quick),
        ["test", "--all"] => test::test(test::Extent::All),
        ["test", "--long", cases @ ..] => long::long(cases),
        ["checks"] => test::checks_alone(),
        ["simulate", "--worlds", worlds] => simulate::simulate(worlds.parse()?, None),
        ["simulate", "--worlds", worlds, "--seed", seed] => {
            simulate::simulate(worlds.parse()?, Some(seed.parse()?))
        }
        ["layers"] => layers::layers(),
        ["layers", "--modules"] => modules::told(report::root()),
        ["package"] => package::package(None),
        ["package", url] => package::package(Some(url)),
        ["krew", program, url, folder] => krew::krew(program, url, folder),
        ["fuzz"] => fuzz::fuzz(20, None),
        ["fuzz", "--seconds", seconds] => fuzz::fuzz(seconds.parse()?, None),
        ["fuzz", "--seconds", seconds, target] => fuzz::fuzz(seconds.parse()?, Some(target)),
        ["fuzz", target] => fuzz::fuzz(20, Some(target)),
        ["bench", "ceph"] => bench::bench(&[1_000, 10_000, 30_000]),
        ["bench", "ceph", "--osds", count] => bench::bench(&[count.parse()?]),
        ["bench", "cephadm"] => bench::cephadm::bench(),
        ["bench", "kubernetes"] => bench::kubernetes::bench(1_000),
        ["bench", "kubernetes", "--osds", count] => bench::kubernetes::bench(count.parse()?),
        ["bench", "ganeti"] => bench::ganeti::bench(u32::MAX),
        ["bench", "ganeti", "--patience", seconds] => bench::ganeti::bench(seconds.parse()?),
        ["bench", "ironic"] => bench::ironic::bench(),
        ["bench", "versioned"] => bench::versioned::bench(1_000_000),
        ["bench", "versioned", "--rows", count] => bench::versioned::bench(count.parse()?),
        // A program that the bench measures is the only child of a process of its own.
        ["measure", report, words @ ..] => bench::child::measure(report, words),
        ["pictures"] => pictures::pictures(),
        ["generate"] => generate::generate(false),
        ["generate", "--check"] => generate::generate(true),
        _ => bail!("what is asked is not on the menu:\n{MENU}"),
    }
}
