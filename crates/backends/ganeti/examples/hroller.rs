//! What `stagger hroller` does, without the rest of `stagger`, so that it is built in a minute and measured:
//! `cargo run --release -p stagger-ganeti --example hroller -- FILE [--offline-maintenance] [--capacity] [--steps N]`.

use std::io::Write as _;

use stagger_core::model::Standbys;
use stagger_ganeti::hroller::{HrollerOptions, OutputOptions, answer};
use stagger_ganeti::loaders::text::read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("a file is wanted")?;
    let mut options = HrollerOptions::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--offline-maintenance" => options.offline_maintenance = true,
            "--capacity" => options.shared_secondary = Standbys::Capacity,
            "--steps" => options.search.steps = words.next().ok_or("--steps wants a number")?.parse()?,
            other => return Err(format!("{other:?} is not known here").into()),
        }
    }
    let answer = answer(&read(&std::fs::read_to_string(file)?)?, &options)?;
    let shown = OutputOptions {
        headers: false,
        one_step_only: false,
        moves: false,
    };
    let mut out = std::io::stdout().lock();
    for line in answer.lines(shown) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
