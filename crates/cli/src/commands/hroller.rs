//! `hroller`: compatible with Ganeti's tool of that name. stdout is the plan, stderr is `Warning:` and
//! `Error:`, the exit code 0 or 1.

mod getopt;
pub(crate) mod strict;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use stagger_ganeti::hroller::{HrollerOptions, HrollerOutput, OutputOptions, answer};
use stagger_ganeti::loaders::luxi;
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::GanetiCluster;

use crate::args::{self, Cli};
use crate::clusters::ganeti;
use crate::error::CliError;
use crate::exit::Exit;
use crate::improve;
use crate::print;

/// The name under which this program is Ganeti's hroller.
const NAME: &str = "hroller";

/// The words of the command line, if this program was started under hroller's name.
pub(crate) fn hroller_args() -> Option<Vec<String>> {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next()?;
    let name = Path::new(&program).file_name()?.to_str()?;
    name.eq_ignore_ascii_case(NAME).then(|| words.collect())
}

/// Answers as Ganeti's hroller.
pub(crate) async fn run_as_hroller(words: &[String]) -> ExitCode {
    match strict::Request::read(words) {
        Ok(request) => strict::hroller(None, &request).await.into(),
        Err(strict::ExitCode(code)) => code.into(),
    }
}

/// `hroller`
pub(crate) async fn hroller(cli: &Cli, args: &args::HrollerArgs) -> Exit {
    if args.help_completion {
        print::data_line(getopt::completion().trim_end());
        return Exit::Done;
    }
    if args.compat == Some(args::Compat::Strict) {
        let request = match strict::Request::of(args) {
            Ok(request) => request,
            Err(error) => return refusal_exit(&error),
        };
        return match strict::hroller(Some(cli), &request).await {
            0 => Exit::Done,
            _ => Exit::No,
        };
    }
    match groups(cli, args).await {
        Ok(answer) => {
            if !args.quiet {
                for warning in &answer.warnings {
                    print::status_line(&format!("Warning: {warning}"));
                }
            }
            if args.compat.is_some() {
                for difference in &answer.differences {
                    print::status_line(&format!("Differs: {difference}"));
                }
            }
            let shown = OutputOptions {
                headers: !args.no_headers,
                one_step_only: args.one_step_only,
                moves: args.print_moves,
            };
            for line in answer.lines(shown) {
                print::data_line(&line);
            }
            match in_no_group(&answer) {
                None => Exit::Done,
                Some(why) => {
                    print::status_line(&format!("Error: {why}"));
                    Exit::No
                }
            }
        }
        Err(error) => refusal_exit(&error),
    }
}

/// Who goes by the exit code alone must not take these for rebooted.
fn in_no_group(answer: &HrollerOutput) -> Option<String> {
    let names: Vec<&str> = answer.left_out.iter().map(|left| left.unit.as_str()).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("a selected node is in no group: {one}")),
        several => Some(format!(
            "{} selected nodes are in no group: {}",
            several.len(),
            several.join(", ")
        )),
    }
}

fn refusal_exit(error: &CliError) -> Exit {
    print::status_line(&format!("Error: {}", error.message));
    for cause in error.causes.iter().chain(&error.hints) {
        print::status_line(&format!("  {cause}"));
    }
    Exit::No
}

async fn groups(cli: &Cli, args: &args::HrollerArgs) -> Result<HrollerOutput, CliError> {
    if cli.json {
        return Err(CliError::usage("hroller has lines only")
            .hint("`stagger plan reboot --json` prints a plan as a document"));
    }
    if !args.arguments.is_empty() {
        return Err(
            CliError::usage("hroller takes no arguments, only options").hint(format!(
                "{:?} is none; -t FILE names a cluster in a file",
                args.arguments.join(" ")
            )),
        );
    }
    let cluster = cluster(cli, args).await?;
    if let Some(save) = &args.save {
        let file = format!("{}.original", save.display());
        std::fs::write(&file, text::write(&cluster))
            .map_err(|error| CliError::usage(format!("write {file}: {error}")))?;
        if !args.quiet {
            print::status_line(&format!("The cluster as it was read is in {file}"));
        }
    }
    let mut options = HrollerOptions {
        selection: ganeti::selection(&args.nodes)?,
        skip_non_redundant: args.skip_non_redundant,
        ignore_non_redundant: args.ignore_non_redundant,
        offline_maintenance: args.offline_maintenance,
        full_evacuation: args.full_evacuation,
        move_non_redundant: args.move_non_redundant,
        force: args.force,
        shared_secondary: args.shared_secondary.into(),
        non_drbd: args.non_drbd.into(),
        compat: args.compat.is_some(),
        ..HrollerOptions::default()
    };
    let answered = match improve::time(args.improve.as_deref())? {
        None => answer(&cluster, &options),
        Some(time) => improve::search_within(Instant::now(), time, |steps| {
            options.search.steps = steps;
            answer(&cluster, &options)
        }),
    };
    answered.map_err(|error| {
        let mut refused = CliError::caused(Exit::No, &error);
        refused.causes.extend(error.causes().iter().cloned());
        refused
    })
}

async fn cluster(cli: &Cli, args: &args::HrollerArgs) -> Result<GanetiCluster, CliError> {
    let sources = [
        args.text_data.is_some(),
        args.master.is_some(),
        args.luxi.is_some(),
        args.ialloc_src.is_some(),
    ];
    if sources.iter().filter(|given| **given).count() > 1 {
        return Err(CliError::usage(
            "one of -t, -m, -L and -I says where the cluster is, not several",
        ));
    }
    let own = u64::try_from(args.static_kvm_node_memory).unwrap_or(0);
    if let Some(socket) = &args.luxi {
        return ganeti::luxi_at(if socket.is_empty() { luxi::SOCKET } else { socket }, own);
    }
    if let Some(file) = &args.ialloc_src {
        return ganeti::request_at(file, own);
    }
    if let Some(file) = &args.text_data {
        return ganeti::text_at(file);
    }
    let Some(address) = &args.master else {
        return Err(CliError::usage("no cluster is given").hint(
            "give -t FILE, a cluster in Ganeti's text format, -m file:///FOLDER, with answers of its RAPI, or -L on the master",
        ));
    };
    match address.strip_prefix("file://") {
        Some(folder) => ganeti::bodies_at(Path::new(folder), own),
        None => ganeti::cluster_at(Some(cli), address, own, args.accept_any_certificate).await,
    }
}
