//! Plays random worlds and prints what came of them; `cargo xtask simulate` builds and starts this.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use stagger_core::run::{Entry, Run};
use stagger_engine::driver::Listener;
use stagger_sim::Class;
use stagger_sim::Scenario;
use stagger_sim::worlds::{Worlds, WorldsReport, as_file, play_with_listener, play_with_progress, shrunk};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// So many of the worlds in which something of a class was found are shrunk and written down.
const WRITTEN: usize = 4;

/// After so many worlds it is told how far it is.
const TOLD_EACH: u64 = 20_000;

/// So much of each event is printed.
const WIDE: usize = 300;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [key, file] = words.as_slice()
        && key == "--play"
    {
        return play_file(file);
    }
    let Some(wish) = Arguments::of(&words) else {
        say(
            "usage: stagger-worlds --worlds N --seed S [--first N] [--twice N] [--threads N] [--found FOLDER]",
        );
        say("       stagger-worlds --play FILE");
        return ExitCode::from(2);
    };
    let Arguments { worlds, found } = wish;
    say(&format!(
        "seed {}, {} worlds from world {}",
        worlds.seed, worlds.count, worlds.first
    ));
    let begun = Instant::now();
    let came = play_with_progress(&worlds, |played, found, new| {
        if let Some(new) = new {
            writeln!(std::io::stderr(), "world {}: {}", new.number, new.finding).ok();
        }
        if played.is_multiple_of(TOLD_EACH) {
            let seconds = begun.elapsed().as_secs();
            // Beside the table, which is kept.
            let text = format!(
                "{played} of {} worlds in {seconds} s, {found} with findings",
                worlds.count
            );
            writeln!(std::io::stderr(), "{text}").ok();
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    say(&table(&worlds, &came, seconds));
    if came.found.is_empty() {
        return ExitCode::SUCCESS;
    }
    let mut written = BTreeMap::<Class, usize>::new();
    for one in &came.found {
        let count = written.entry(one.finding.class).or_default();
        *count += 1;
        if *count > WRITTEN {
            continue;
        }
        let small = shrunk(one);
        let (name, text) = as_file(&small, &worlds);
        let path = found.join(&name);
        let written = std::fs::create_dir_all(&found).and_then(|()| std::fs::write(&path, text));
        say(&format!("world {}: {}", one.number, small.finding));
        match written {
            Ok(()) => say(&format!("  stagger simulate --fast {}", path.display())),
            Err(error) => say(&format!("  it cannot be written to {}: {error}", path.display())),
        }
    }
    say(&format!(
        "again: cargo xtask simulate --worlds {} --seed {}",
        worlds.first + worlds.count,
        worlds.seed
    ));
    ExitCode::FAILURE
}

/// Plays one world from its file, and prints its journal and what the truth finds.
fn play_file(file: &str) -> ExitCode {
    let read = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let world = read.and_then(|text| Scenario::parse(&text).map_err(|error| format!("{error:?}")));
    let played = world.and_then(|world| play_with_listener(&world, Box::new(EventPrinter)));
    match played {
        Ok(report) => {
            say(&format!("{:?}", report.ending));
            for finding in &report.findings {
                say(&finding.to_string());
            }
            if report.findings.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(why) => {
            say(&format!("{file} cannot be played: {why}"));
            ExitCode::from(2)
        }
    }
}

/// Prints each event.
struct EventPrinter;

impl Listener for EventPrinter {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        let text = serde_json::to_string(&entry.event).unwrap_or_default();
        let text: String = text.chars().take(WIDE).collect();
        say(&format!("{:.0} {} {text}", entry.at, entry.seq));
    }
}

/// What is asked for.
struct Arguments {
    worlds: Worlds,
    found: PathBuf,
}

impl Arguments {
    fn of(words: &[String]) -> Option<Self> {
        let mut worlds = Worlds {
            seed: 0,
            count: 0,
            first: 0,
            twice: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let mut found = PathBuf::from("scenarios/found");
        for pair in words.chunks(2) {
            let [key, value] = pair else { return None };
            match key.as_str() {
                "--worlds" => worlds.count = value.parse().ok()?,
                "--seed" => worlds.seed = value.parse().ok()?,
                "--first" => worlds.first = value.parse().ok()?,
                "--twice" => worlds.twice = value.parse().ok()?,
                "--threads" => worlds.threads = value.parse().ok()?,
                "--found" => found = PathBuf::from(value),
                _ => return None,
            }
        }
        (worlds.count > 0).then_some(Self { worlds, found })
    }
}

fn table(worlds: &Worlds, came: &WorldsReport, seconds: f64) -> String {
    let mut lines = vec![format!(
        "{} worlds in {seconds:.1} s, {:.0} a second on {} threads; {} played twice; journals {:016x}",
        worlds.count,
        worlds.count as f64 / seconds.max(0.001),
        worlds.threads,
        worlds.twice.min(worlds.count),
        came.digest
    )];
    lines.push(format!(
        "{} waves, {} stops; {} made unsafe by undetectable false reports, {} by a fault after both checks had answered; \
         {} late calls landed",
        came.waves, came.stops, came.undetectable, came.raced, came.late
    ));
    let counted = |title: &str, rows: Vec<(String, u64)>| {
        let rows = rows
            .into_iter()
            .map(|(name, count)| format!("  {count:>9}  {name}"));
        std::iter::once(title.to_owned()).chain(rows).collect::<Vec<_>>()
    };
    lines.push(format!("an operator helped in {} worlds", came.helped));
    let shapes = came.shapes.iter();
    let shapes = shapes.map(|(name, count)| ((*name).to_owned(), *count));
    lines.extend(counted("shapes", shapes.collect()));
    let faults = came
        .faults
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count));
    lines.extend(counted("faults drawn", faults.collect()));
    let endings = came.endings.iter().map(|(name, count)| (name.clone(), *count));
    lines.extend(counted("endings", endings.collect()));
    let by_class = came.by_class();
    let classes = Class::ALL.map(|class| (class.to_string(), by_class.get(&class).copied().unwrap_or(0)));
    lines.extend(counted("worlds with findings", classes.to_vec()));
    lines.join("\n")
}

fn say(text: &str) {
    // Nobody reads on: that is no reason to stop.
    writeln!(std::io::stdout(), "{text}").ok();
}
