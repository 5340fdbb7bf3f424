//! `hroller` under its own name, and `stagger hroller --compat=strict`: the answers, messages and exit codes
//! of Ganeti's.
//!
//! What is unsafe in an answer, and what prevents one, is reported beside it on stderr, in lines that begin
//! with `stagger:`; not with `--no-warn`.

use std::path::Path;

use stagger_ganeti::hroller::strict::{StrictInput, StrictOptions, refusal, saved};
use stagger_ganeti::hroller::{HrollerError, OutputOptions, lines, missing};
use stagger_ganeti::loaders::luxi;
use stagger_ganeti::loaders::rapi::KVM_NODE_MEMORY;
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::GanetiCluster;

use super::getopt::{self, Flag, ParsedArgs};
use crate::args::{Cli, HrollerArgs};
use crate::clusters::ganeti;
use crate::error::CliError;
use crate::print;

/// Its exit code where something is wrong with the command line.
const USAGE: u8 = 2;
/// Its exit code where there is no answer.
const NO: u8 = 1;

/// What it is asked.
#[derive(Debug)]
pub(crate) struct Request {
    options: StrictOptions,
    text_data: Option<String>,
    master: Option<String>,
    luxi: Option<String>,
    ialloc_src: Option<String>,
    save: Option<String>,
    kvm_node_memory: u64,
    /// 1 where nothing is said.
    verbose: i32,
    shown: OutputOptions,
    arguments: Vec<String>,
    /// Not in hroller: nothing is told beside the answer.
    no_warn: bool,
}

/// The exit code of a command line that ends at once: it is wrong, or asks for help, and that was printed.
pub(crate) struct ExitCode(pub(crate) u8);

impl Request {
    /// As hroller's own command line has it, without the name of the program.
    ///
    /// # Errors
    /// Its exit code; what it prints then was printed.
    pub(crate) fn read(words: &[String]) -> Result<Self, ExitCode> {
        let mut words = words.to_vec();
        let before = words.len();
        words.retain(|word| word != "--no-warn");
        let no_warn = words.len() < before;
        let ParsedArgs { given, arguments } = getopt::read(&words).map_err(|errors| {
            print::status_line(&format!(
                "Command line error: {errors}\n{}",
                getopt::usage().trim_end()
            ));
            ExitCode(USAGE)
        })?;
        let mut request = Self {
            arguments,
            no_warn,
            ..Self::default()
        };
        let mut asked = Vec::new();
        for (flag, value) in given {
            match flag {
                Flag::Version | Flag::Help | Flag::HelpCompletion => asked.push(flag),
                flag => request.take(flag, value).map_err(|why| {
                    print::status_line(&format!("Error while parsing command line arguments:\n{why}"));
                    ExitCode(NO)
                })?,
            }
        }
        let text = if asked.contains(&Flag::Help) {
            getopt::usage()
        } else if asked.contains(&Flag::Version) {
            getopt::version_line()
        } else if asked.contains(&Flag::HelpCompletion) {
            getopt::completion()
        } else {
            return Ok(request);
        };
        print::data_line(text.trim_end());
        Err(ExitCode(0))
    }

    fn take(&mut self, flag: Flag, value: Option<String>) -> Result<(), String> {
        match flag {
            Flag::Luxi => self.luxi = Some(value.unwrap_or_else(|| luxi::SOCKET.to_owned())),
            Flag::Master => self.master = value,
            Flag::TextData => self.text_data = value,
            Flag::IallocSrc => self.ialloc_src = value,
            Flag::Offline => self.options.offline.extend(value),
            Flag::OfflineMaintenance => self.options.offline_maintenance = true,
            Flag::Verbose => self.verbose += 1,
            Flag::Quiet => self.verbose -= 1,
            Flag::NoHeaders => self.shown.headers = false,
            Flag::NodeTags => self.options.tags = value.map(|tags| tags_of(&tags)),
            Flag::Save => self.save = value,
            Flag::Group => self.options.group = value,
            Flag::PrintMoves => self.shown.moves = true,
            Flag::FullEvacuation => self.options.full_evacuation = true,
            Flag::SkipNonRedundant => self.options.skip_non_redundant = true,
            Flag::IgnoreNonRedundant => self.options.ignore_non_redundant = true,
            Flag::Force => self.options.force = true,
            Flag::OneStepOnly => self.shown.one_step_only = true,
            Flag::StaticKvmNodeMemory => self.kvm_node_memory = memory_of(&value.unwrap_or_default())?,
            Flag::Version | Flag::Help | Flag::HelpCompletion => {}
        }
        Ok(())
    }

    /// As `stagger hroller --compat=strict` has it.
    ///
    /// # Errors
    /// An option that hroller does not have.
    pub(crate) fn of(args: &HrollerArgs) -> Result<Self, CliError> {
        let ours = [
            (args.move_non_redundant, "--move-non-redundant"),
            (args.improve.is_some(), "--improve"),
            (
                args.shared_secondary != crate::args::SharedSecondary::Exclude,
                "--shared-secondary",
            ),
            (args.non_drbd != crate::args::NonDrbd::default(), "--non-drbd"),
            (args.nodes.matching.is_some(), "--matching"),
            (!args.nodes.nodes.is_empty(), "--nodes"),
        ];
        if let Some((_, option)) = ours.iter().find(|(given, _)| *given) {
            return Err(CliError::usage(format!(
                "{option} is not in Ganeti's hroller, so that --compat=strict cannot answer for it"
            ))
            .hint("leave one of the two out"));
        }
        let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
        Ok(Self {
            options: StrictOptions {
                group: args.nodes.groups.last().cloned(),
                tags: (!args.nodes.node_tags.is_empty()).then(|| args.nodes.node_tags.clone()),
                offline: args.nodes.leave_out.clone(),
                skip_non_redundant: args.skip_non_redundant,
                ignore_non_redundant: args.ignore_non_redundant,
                offline_maintenance: args.offline_maintenance,
                full_evacuation: args.full_evacuation,
                force: args.force,
            },
            text_data: path(&args.text_data),
            master: args.master.clone(),
            luxi: args.luxi.as_ref().map(|socket| {
                if socket.is_empty() {
                    luxi::SOCKET.to_owned()
                } else {
                    socket.clone()
                }
            }),
            ialloc_src: path(&args.ialloc_src),
            save: path(&args.save),
            kvm_node_memory: u64::try_from(args.static_kvm_node_memory).unwrap_or(0),
            verbose: 1 + i32::from(args.verbose) - i32::from(args.quiet),
            shown: OutputOptions {
                headers: !args.no_headers,
                one_step_only: args.one_step_only,
                moves: args.print_moves,
            },
            arguments: args.arguments.clone(),
            no_warn: args.no_warn,
        })
    }
}

impl Default for Request {
    fn default() -> Self {
        Self {
            options: StrictOptions::default(),
            text_data: None,
            master: None,
            luxi: None,
            ialloc_src: None,
            save: None,
            kvm_node_memory: KVM_NODE_MEMORY,
            verbose: 1,
            shown: OutputOptions {
                headers: true,
                one_step_only: false,
                moves: false,
            },
            arguments: Vec::new(),
            no_warn: false,
        }
    }
}

/// The tags of a list; none of nothing.
fn tags_of(list: &str) -> Vec<String> {
    if list.is_empty() {
        return Vec::new();
    }
    list.split(',').map(str::to_owned).collect()
}

/// A number as hroller reads it; what is below 0 is as 0.
fn memory_of(given: &str) -> Result<u64, String> {
    let text = given.trim_start();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = digits.split_at(length);
    if number.is_empty() {
        return Err(format!("static node memory: cannot parse string '{given}'"));
    }
    if !rest.is_empty() {
        return Err(format!(
            "static node memory: leftover characters when parsing '{given}': '{rest}'"
        ));
    }
    Ok(if digits.len() < text.len() {
        0
    } else {
        number.parse().unwrap_or(u64::MAX)
    })
}

/// Answers, and gives the exit code.
pub(crate) async fn hroller(cli: Option<&Cli>, request: &Request) -> u8 {
    match answer_request(cli, request).await {
        Ok(()) => 0,
        Err((why, causes)) => {
            print::status_line(&format!("Error: {why}"));
            beside(request, &causes);
            NO
        }
    }
}

/// What hroller does not say.
fn beside(request: &Request, sentences: &[String]) {
    if !request.no_warn {
        for sentence in sentences {
            print::status_line(&format!("stagger: {sentence}"));
        }
    }
}

type Refused = (String, Vec<String>);

async fn answer_request(cli: Option<&Cli>, request: &Request) -> Result<(), Refused> {
    if !request.arguments.is_empty() {
        return Err(("This program doesn't take any arguments.".to_owned(), Vec::new()));
    }
    let said = |error: HrollerError| {
        // That one ends with an empty line.
        let end = if matches!(error, HrollerError::WrongOffline(_)) {
            "\n"
        } else {
            ""
        };
        (format!("{error}{end}"), error.causes().to_vec())
    };
    let cluster = cluster(cli, request).await?;
    if request.verbose != 0
        && let Some(missing) = missing(&cluster)
    {
        // It ends with an empty line.
        print::status_line(&format!("Warning: {missing}\n"));
    }
    let question = StrictInput::new(&cluster, &request.options).map_err(said)?;
    if let Some(warning) = question.warning() {
        print::status_line(&format!("Warning: {warning}"));
    }
    let question = question.with_offline().map_err(said)?;
    if let Some(save) = &request.save {
        let file = format!("{save}.original");
        std::fs::write(&file, saved(&cluster))
            .map_err(|error| (open_error_text(&file, &error), Vec::new()))?;
        print::status_line(&format!(
            "The cluster state before hroller run has been written to file '{file}'"
        ));
    }
    let colouring = question.colouring().map_err(said)?;
    if request.verbose > 2 {
        print::data_line(&format!("Node Graph: {}", colouring.graph()));
    }
    let groups = colouring.groups().map_err(said)?;
    if request.verbose > 1 {
        print::data_line(&colouring.statistics());
    }
    for line in lines(&groups, request.shown) {
        print::data_line(&line);
    }
    let dangers: Vec<String> = colouring
        .dangers(&groups)
        .into_iter()
        .map(|danger| format!("unsafe: {danger}"))
        .collect();
    beside(request, &dangers);
    Ok(())
}

async fn cluster(cli: Option<&Cli>, request: &Request) -> Result<GanetiCluster, Refused> {
    let Request {
        text_data,
        master,
        luxi,
        ialloc_src,
        kvm_node_memory,
        ..
    } = request;
    let named = [master.is_some(), luxi.is_some(), text_data.is_some()];
    if named.into_iter().filter(|named| *named).count() > 1 {
        let why = "Only one of the rapi, luxi, and data files options should be given.";
        return Err((why.to_owned(), Vec::new()));
    }
    let aborting = |why: String| (format!("failed to load data, aborting: {why}"), Vec::new());
    let ours = |error: CliError| {
        let (why, _) = aborting(error.message);
        (why, error.causes.into_iter().chain(error.hints).collect())
    };
    let content = |file: &String| {
        std::fs::read_to_string(file).map_err(|error| aborting(open_error_text(file, &error)))
    };
    let own = *kvm_node_memory;
    if let Some(address) = master {
        return match address.strip_prefix("file://") {
            Some(folder) => ganeti::bodies_at(Path::new(folder), own).map_err(ours),
            None => ganeti::cluster_at(cli, address, own, true).await.map_err(ours),
        };
    }
    if let Some(socket) = luxi {
        return ganeti::luxi_at(socket, own).map_err(ours);
    }
    if let Some(file) = text_data {
        let text = content(file)?;
        // It refuses some numbers that we take, as a whole one with a fraction.
        if let Some(why) = refusal(&text) {
            return Err(aborting(why));
        }
        return text::read(&text).map_err(|error| aborting(error.to_string()));
    }
    if let Some(file) = ialloc_src {
        content(file)?;
        return ganeti::request_at(Path::new(file), own).map_err(ours);
    }
    Err(aborting("No backend selected! Exiting.".to_owned()))
}

/// Why a file could not be opened, as Haskell's runtime says it.
fn open_error_text(file: &str, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let why = match error.kind() {
        ErrorKind::NotFound => "does not exist (No such file or directory)",
        ErrorKind::PermissionDenied => "permission denied (Permission denied)",
        ErrorKind::IsADirectory => "inappropriate type (is a directory)",
        _ => return format!("{file}: {error}"),
    };
    format!("{file}: openFile: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_hroller_reads_them() {
        assert_eq!(memory_of(" 12"), Ok(12));
        assert_eq!(memory_of("-12"), Ok(0));
        assert_eq!(
            memory_of("x").unwrap_err(),
            "static node memory: cannot parse string 'x'"
        );
        assert_eq!(
            memory_of("3x").unwrap_err(),
            "static node memory: leftover characters when parsing '3x': 'x'"
        );
    }

    #[test]
    fn an_empty_list_of_tags_has_none() {
        assert!(tags_of("").is_empty());
        assert_eq!(tags_of("a,,b"), ["a", "", "b"]);
    }
}
