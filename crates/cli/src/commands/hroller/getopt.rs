//! The command line of Ganeti's hroller: long options that may be abbreviated, grouped short ones, arguments
//! anywhere, and its own error messages.

use std::fmt::Write as _;

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionArgument {
    Nothing,
    Value(&'static str),
    Perhaps(&'static str),
}

/// The options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    Luxi,
    Master,
    TextData,
    IallocSrc,
    Offline,
    OfflineMaintenance,
    Verbose,
    Quiet,
    NoHeaders,
    NodeTags,
    Save,
    Group,
    PrintMoves,
    FullEvacuation,
    SkipNonRedundant,
    IgnoreNonRedundant,
    Force,
    OneStepOnly,
    StaticKvmNodeMemory,
    Version,
    Help,
    HelpCompletion,
}

/// An option: its letter, its word, what it takes, what a shell completes, and what it does.
struct Opt(
    Flag,
    Option<char>,
    &'static str,
    OptionArgument,
    &'static str,
    &'static str,
);

use OptionArgument::{Nothing, Perhaps, Value};

const OPTIONS: [Opt; 22] = [
    Opt(
        Flag::Luxi,
        Some('L'),
        "luxi",
        Perhaps("SOCKET"),
        "file",
        "ask the master's daemon at this socket [/var/run/ganeti/socket/ganeti-query]",
    ),
    Opt(
        Flag::Master,
        Some('m'),
        "master",
        Value("ADDRESS"),
        "host",
        "ask the RAPI at this address",
    ),
    Opt(
        Flag::TextData,
        Some('t'),
        "text-data",
        Value("FILE"),
        "file",
        "read a file in the text format",
    ),
    Opt(
        Flag::IallocSrc,
        Some('I'),
        "ialloc-src",
        Value("FILE"),
        "file",
        "read a request to an allocator",
    ),
    Opt(
        Flag::Offline,
        Some('O'),
        "offline",
        Value("NODE"),
        "onenode",
        "count this node as offline; may be repeated",
    ),
    Opt(
        Flag::OfflineMaintenance,
        None,
        "offline-maintenance",
        Nothing,
        "none",
        "count all instances as stopped",
    ),
    Opt(
        Flag::Verbose,
        Some('v'),
        "verbose",
        Nothing,
        "none",
        "print more: twice the colourings, three times the graph",
    ),
    Opt(
        Flag::Quiet,
        Some('q'),
        "quiet",
        Nothing,
        "none",
        "print no warnings",
    ),
    Opt(
        Flag::NoHeaders,
        None,
        "no-headers",
        Nothing,
        "none",
        "print no header",
    ),
    Opt(
        Flag::NodeTags,
        None,
        "node-tags",
        Value("TAG,..."),
        "string",
        "only nodes with one of these tags",
    ),
    Opt(
        Flag::Save,
        Some('S'),
        "save",
        Value("FILE"),
        "none",
        "write the cluster to FILE.original",
    ),
    Opt(
        Flag::Group,
        Some('G'),
        "group",
        Value("ID"),
        "onegroup",
        "only nodes of this group, by name or UUID",
    ),
    Opt(
        Flag::PrintMoves,
        None,
        "print-moves",
        Nothing,
        "none",
        "print where instances go",
    ),
    Opt(
        Flag::FullEvacuation,
        None,
        "full-evacuation",
        Nothing,
        "none",
        "secondaries leave the nodes too",
    ),
    Opt(
        Flag::SkipNonRedundant,
        None,
        "skip-non-redundant",
        Nothing,
        "none",
        "skip nodes with an instance of another disk template than drbd",
    ),
    Opt(
        Flag::IgnoreNonRedundant,
        None,
        "ignore-non-redundant",
        Nothing,
        "none",
        "ignore instances of another disk template than drbd",
    ),
    Opt(
        Flag::Force,
        Some('f'),
        "force",
        Nothing,
        "none",
        "go on without a master",
    ),
    Opt(
        Flag::OneStepOnly,
        None,
        "one-step-only",
        Nothing,
        "none",
        "print the first group only, a node on each line",
    ),
    Opt(
        Flag::StaticKvmNodeMemory,
        None,
        "static-kvm-node-memory",
        Value("N"),
        "integer",
        "MiB that a KVM node keeps for itself; 0: what it reports",
    ),
    Opt(
        Flag::Version,
        Some('V'),
        "version",
        Nothing,
        "none",
        "print the version",
    ),
    Opt(Flag::Help, Some('h'), "help", Nothing, "none", "print this help"),
    Opt(
        Flag::HelpCompletion,
        None,
        "help-completion",
        Nothing,
        "none",
        "print what a shell completes",
    ),
];

/// A command line that is understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedArgs {
    /// The options in their order, with their values.
    pub(super) given: Vec<(Flag, Option<String>)>,
    /// What is no option.
    pub(super) arguments: Vec<String>,
}

/// Reads a command line, without the name of the program.
///
/// # Errors
/// Everything that is wrong in it, each in one or several lines.
pub(super) fn read(words: &[String]) -> Result<ParsedArgs, String> {
    let mut read = ParsedArgs::default();
    let (mut errors, mut unknown) = (String::new(), String::new());
    let mut rest: Vec<String> = words.iter().rev().cloned().collect();
    while let Some(word) = rest.pop() {
        if word == "--" {
            read.arguments.extend(rest.drain(..).rev());
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let named = format!("--{name}");
            match called(name).as_slice() {
                [] => {
                    let _ = writeln!(unknown, "unrecognized option `{word}'");
                }
                [option] => take_option(option, &named, value, false, &mut rest, &mut read, &mut errors),
                several => {
                    let _ = writeln!(errors, "option `{named}' is ambiguous; could be one of:");
                    errors += &table(several.iter().copied());
                }
            }
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            let mut letters = short.chars();
            let Some(letter) = letters.next() else { continue };
            let glued = letters.as_str();
            let named = format!("-{letter}");
            let found = OPTIONS.iter().find(|option| option.1 == Some(letter));
            let takes_more = found.is_some_and(|option| option.3 != Nothing);
            match found {
                None => {
                    let _ = writeln!(unknown, "unrecognized option `{named}'");
                }
                Some(option) => {
                    let value = (takes_more && !glued.is_empty()).then(|| glued.to_owned());
                    take_option(option, &named, value, true, &mut rest, &mut read, &mut errors);
                }
            }
            if !takes_more && !glued.is_empty() {
                rest.push(format!("-{glued}"));
            }
        } else {
            read.arguments.push(word);
        }
    }
    errors += &unknown;
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

/// The option of that word, or all that begin with it.
fn called(name: &str) -> Vec<&'static Opt> {
    let exact: Vec<&Opt> = OPTIONS.iter().filter(|option| option.2 == name).collect();
    if exact.is_empty() {
        OPTIONS
            .iter()
            .filter(|option| option.2.starts_with(name))
            .collect()
    } else {
        exact
    }
}

/// Takes an option with its value, which may be the next word.
fn take_option(
    option: &Opt,
    named: &str,
    value: Option<String>,
    short: bool,
    rest: &mut Vec<String>,
    read: &mut ParsedArgs,
    errors: &mut String,
) {
    let value = match (option.3, value) {
        (Nothing, Some(_)) if !short => {
            let _ = writeln!(errors, "option `{named}' doesn't allow an argument");
            return;
        }
        (Nothing, _) | (Perhaps(_), None) => None,
        (Value(_) | Perhaps(_), Some(value)) => Some(value),
        (Value(what), None) => {
            let Some(next) = rest.pop() else {
                let _ = writeln!(errors, "option `{named}' requires an argument {what}");
                return;
            };
            Some(next)
        }
    };
    read.given.push((option.0, value));
}

/// How it is used: hroller's options, in our words.
pub(super) fn usage() -> String {
    format!(
        "{}\nUsage: hroller [OPTION...]\n{}",
        version_line(),
        table(OPTIONS.iter())
    )
}

/// The version of this program, under hroller's name.
pub(super) fn version_line() -> String {
    format!("hroller (stagger) version {}", env!("CARGO_PKG_VERSION"))
}

/// What a shell completes, an option on each line.
pub(super) fn completion() -> String {
    let mut text = String::new();
    for Opt(_, short, long, _, completes, _) in &OPTIONS {
        let short = short.map(|letter| format!("-{letter},")).unwrap_or_default();
        let _ = writeln!(text, "{short}--{long} {completes}");
    }
    text
}

#[expect(clippy::needless_pass_by_value, reason = "an iterator is passed by value")]
fn table<'a>(options: impl Iterator<Item = &'a Opt> + Clone) -> String {
    let short = |option: &Opt| match (option.1, option.3) {
        (None, _) => String::new(),
        (Some(letter), Nothing) => format!("-{letter}"),
        (Some(letter), Value(what)) => format!("-{letter} {what}"),
        (Some(letter), Perhaps(what)) => format!("-{letter}[{what}]"),
    };
    let long = |option: &Opt| match option.3 {
        Nothing => format!("--{}", option.2),
        Value(what) => format!("--{}={what}", option.2),
        Perhaps(what) => format!("--{}[={what}]", option.2),
    };
    let widest =
        |of: &dyn Fn(&Opt) -> String| options.clone().map(|option| of(option).len()).max().unwrap_or(0);
    let (first, second) = (widest(&short), widest(&long));
    let mut text = String::new();
    for option in options.clone() {
        let _ = writeln!(
            text,
            "  {:first$}  {:second$}  {}",
            short(option),
            long(option),
            option.5
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<ParsedArgs, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words)
    }

    #[test]
    fn options_are_cut_glued_and_permuted() {
        let read = words("-vvt file a --one -Gwest --node-tags=x,y --group east -L -- -q").unwrap();
        let given: Vec<(Flag, Option<&str>)> = read
            .given
            .iter()
            .map(|(flag, value)| (*flag, value.as_deref()))
            .collect();
        assert_eq!(
            given,
            [
                (Flag::Verbose, None),
                (Flag::Verbose, None),
                (Flag::TextData, Some("file")),
                (Flag::OneStepOnly, None),
                (Flag::Group, Some("west")),
                (Flag::NodeTags, Some("x,y")),
                (Flag::Group, Some("east")),
                (Flag::Luxi, None),
            ]
        );
        assert_eq!(read.arguments, ["a", "-q"]);
    }

    #[test]
    fn what_is_wrong_is_told_in_hrollers_words() {
        assert_eq!(words("--bla=3").unwrap_err(), "unrecognized option `--bla=3'\n");
        assert_eq!(
            words("-x -t").unwrap_err(),
            "option `-t' requires an argument FILE\nunrecognized option `-x'\n"
        );
        assert_eq!(
            words("--quiet=1").unwrap_err(),
            "option `--quiet' doesn't allow an argument\n"
        );
        let ambiguous = words("--no").unwrap_err();
        assert!(
            ambiguous
                .starts_with("option `--no' is ambiguous; could be one of:\n    --no-headers         print"),
            "{ambiguous}"
        );
        // A word that is whole is not ambiguous.
        assert_eq!(
            words("--offline n1").unwrap().given,
            [(Flag::Offline, Some("n1".to_owned()))]
        );
        // A value may look like an option.
        assert_eq!(
            words("-O -q").unwrap().given,
            [(Flag::Offline, Some("-q".to_owned()))]
        );
    }

    #[test]
    fn a_shell_learns_what_each_option_takes() {
        let text = completion();
        assert!(text.starts_with("-L,--luxi file\n-m,--master host\n"), "{text}");
        assert!(
            text.ends_with("-h,--help none\n--help-completion none\n"),
            "{text}"
        );
    }
}
