//! `stagger`: the one binary, and the only place that knows every backend.

mod args;
mod ask_client;
mod clusters;
mod commands;
mod complete;
mod config;
mod documents;
mod error;
mod exit;
mod final_findings;
mod forecasts;
mod improve;
mod notify;
mod plan_diff;
mod plan_file;
mod planning;
mod print;
mod risks;
mod show;
mod state;
mod watch_screen;

use std::process::ExitCode;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _};
use stagger_core::run::Command as RunCommand;

use args::{CephCommand, Cli, CliCommand, GanetiCommand, IronicCommand, LintCommand, OsdCommand};
use commands::{
    agent, ask, ceph, control, db, demo, gate, guards, history, hold_reboots, hroller, init, ironic, kube,
    lint, observe, operator, osd, plan, preflight, reason, recover, rehearse, report, risks as known_risks,
    run, serve, simulate, succession, verify, versions, watch,
};
use documents::SchemaFields;
use error::CliError;
use exit::Exit;

/// Observing a large cluster takes tens of megabytes for a moment, on whatever thread: this gives them back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What still runs when a command is over has so long to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(words) = hroller::hroller_args() {
        return as_hroller(&words);
    }
    complete::answer_a_shell();
    let parsed = args::command_here(config::kind().as_deref()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return report_usage(error),
    };
    let ended = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(CliError::from)
        .and_then(|runtime| {
            let ended = runtime.block_on(dispatch(&cli));
            // Whoever still waits for an answer keeps nobody from ending.
            runtime.shutdown_timeout(LAST_WORDS);
            ended
        });
    let exit = match ended {
        Ok(exit) => exit,
        Err(error) => report_error(&error, cli.json),
    };
    match (exit, print::write_error()) {
        // What went wrong before counts more.
        (Exit::Done, Some(why)) => {
            // A reader that has gone, as `head`, knows why.
            if why.kind() != std::io::ErrorKind::BrokenPipe {
                print::status_line(&format!("error: write to stdout: {why}"));
            }
            Exit::Unwritten.into()
        }
        (exit, _) => exit.into(),
    }
}

/// Started under the name of Ganeti's tool, it is that tool.
fn as_hroller(words: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(hroller::run_as_hroller(words)),
        Err(error) => report_error(&CliError::from(error), false).into(),
    }
}

/// Tells of an error, to scripts as well if they asked for JSON.
fn report_error(error: &CliError, json: bool) -> Exit {
    if json {
        print::json(&documents::ERROR.of(&documents::ErrorReport::of(error)));
    }
    print::status_line(error.text().trim_end());
    error.exit
}

/// The commands that take a goal.
const TAKE_GOALS: [&str; 5] = ["plan", "check", "run", "explain", "simulate"];

/// What is wrong with the command line; or the help or the version, which were asked for.
fn report_usage(mut error: clap::Error) -> ExitCode {
    let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    // These were flags before goals had words of their own.
    let takes_goals = std::env::args().any(|word| TAKE_GOALS.contains(&word.as_str()));
    let goal = match flag.as_deref().filter(|_| takes_goals) {
        Some("--to") => Some("upgrade --to RELEASE"),
        Some("--reboot") => Some("reboot"),
        _ => None,
    };
    if let Some(goal) = goal {
        let tip = StyledStr::from(format!("the goal is a word of its own: '{goal}'"));
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if error.use_stderr() && std::env::args_os().any(|word| word == "--json") {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let mut refused = CliError::usage(message.strip_prefix("error: ").unwrap_or(message));
        let tips = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("tip: "));
        refused.hints.extend(tips.map(str::to_owned));
        print::json(&documents::ERROR.of(&documents::ErrorReport::of(&refused)));
    }
    let printed = error.print();
    match (error.use_stderr(), printed) {
        (true, _) => Exit::Usage.into(),
        (false, Ok(())) => Exit::Done.into(),
        (false, Err(_)) => Exit::Unwritten.into(),
    }
}

async fn dispatch(cli: &Cli) -> Result<Exit, CliError> {
    match &cli.command {
        CliCommand::Observe(args) => observe::observe(cli, args).await,
        CliCommand::Plan(args) => plan::show_plan(cli, args).await,
        CliCommand::Check(args) => plan::check_plan(cli, args).await,
        // Each backend makes them larger.
        CliCommand::Run(args) => Box::pin(run::run(cli, args)).await,
        CliCommand::Resume(args) if args.heard.kube.is_given() => {
            kube::ask(cli, &args.heard, &RunCommand::Resume).await
        }
        CliCommand::Resume(args) => Box::pin(run::resume(cli, args.run.as_ref())).await,
        CliCommand::Status(args) if args.kube.is_given() => kube::status(cli, args).await,
        CliCommand::Status(args) => history::status(cli, args).await,
        CliCommand::Versions(args) if args.kube.is_given() => kube::versions(cli, args).await,
        CliCommand::Versions(args) => versions::versions(cli, args).await,
        CliCommand::History(args) => history::history(cli, args).await,
        CliCommand::Verify(args) => verify::verify_run(cli, args).await,
        CliCommand::Watch(args) => watch::watch_run(cli, args).await,
        CliCommand::Report(args) => report::report(cli, args).await,
        CliCommand::Serve(args) => serve::serve(cli, args).await,
        CliCommand::Token(args) => serve::token(cli, args),
        CliCommand::Gate(args) => Box::pin(gate::gate(cli, args)).await,
        CliCommand::Ask(args) => ask::ask(cli, args).await,
        CliCommand::HoldReboots(args) => hold_reboots::hold_reboots(cli, args).await,
        CliCommand::Explain(args) => plan::explain_unit(cli, args).await,
        CliCommand::Simulate(args) => match (&args.scenario, &args.goal) {
            (Some(scenario), _) => simulate::simulate(cli, scenario, args.fast).await,
            (None, Some(goal)) => rehearse::rehearse(cli, goal).await,
            (None, None) => Err(CliError::usage("neither a scenario nor a goal is given")),
        },
        CliCommand::Demo { fast } => demo::demo(cli, *fast).await,
        CliCommand::Pause(args) => send_command(cli, args, &RunCommand::Pause).await,
        CliCommand::Abort(args) => send_command(cli, args, &RunCommand::Abort).await,
        CliCommand::Rollback(args) => send_command(cli, args, &RunCommand::Rollback).await,
        CliCommand::Approve(args) if args.heard.kube.is_given() => {
            let door = args.door.clone();
            kube::ask(cli, &args.heard, &RunCommand::Approve { door }).await
        }
        CliCommand::Approve(args) => control::approve(cli, args.run.as_ref(), &args.door).await,
        CliCommand::Confirm(args) if args.heard.kube.is_given() => {
            kube::ask(cli, &args.heard, &control::confirm_command(args)).await
        }
        CliCommand::Confirm(args) => {
            control::ask(cli, args.run.as_ref(), &control::confirm_command(args)).await
        }
        CliCommand::Settle(args) if args.heard.kube.is_given() => {
            kube::ask(cli, &args.heard, &control::settle_command(args)).await
        }
        CliCommand::Settle(args) => control::settle(cli, args).await,
        CliCommand::Artifacts(args) => history::show_artifacts(cli, args).await,
        CliCommand::Risks(args) => known_risks::risks(cli, args).await,
        CliCommand::Reason { reason } => reason::reason(cli, reason.as_deref()),
        CliCommand::Ceph(CephCommand::OkToStop { ids, max, from }) => {
            ceph::ok_to_stop(cli, ids, *max, from).await
        }
        CliCommand::Ceph(CephCommand::Guards(args)) => guards::guards(cli, args).await,
        CliCommand::Ganeti(GanetiCommand::Guards(args)) => recover::guards(cli, args).await,
        CliCommand::Ganeti(GanetiCommand::Recover(args)) => Box::pin(recover::recover(cli, args)).await,
        CliCommand::Ganeti(GanetiCommand::Resume) => Box::pin(succession::resume(cli)).await,
        CliCommand::Ganeti(GanetiCommand::Done { nodes }) => recover::mark_done(cli, nodes).await,
        CliCommand::Ganeti(GanetiCommand::Init(args)) => init::ganeti::init(cli, args).await,
        CliCommand::Hroller(args) => Ok(hroller::hroller(cli, args).await),
        CliCommand::Ironic(IronicCommand::Record {
            service,
            release,
            pin,
        }) => ironic::record(cli, service, release, pin.as_deref()).await,
        CliCommand::Config(args::ConfigCommand::Check { to, notify }) => {
            Box::pin(preflight::check(cli, to.as_deref(), *notify)).await
        }
        CliCommand::Config(args::ConfigCommand::Show) => preflight::show(cli),
        CliCommand::Config(args::ConfigCommand::Init(args)) => init::init(cli, args).await,
        CliCommand::Db(args) => db::db(cli, args).await,
        CliCommand::Lint(LintCommand::Migrations(args)) => lint::migrations(cli, args),
        CliCommand::Lint(LintCommand::Explain { rule }) => lint::explain_rule(rule.as_deref()),
        CliCommand::Schema { document, strict } => schema(document.as_deref(), *strict),
        CliCommand::Crds => crds(),
        CliCommand::Operator(args) => operator::operator(cli, args).await,
        CliCommand::Agent(args) => agent::agent(args).await,
        CliCommand::Osd(OsdCommand::Prepare(args)) => osd::prepare_devices(args).await,
        CliCommand::Completions { shell } => {
            print::data_line(complete::script(*shell)?.trim_end());
            Ok(Exit::Done)
        }
        CliCommand::Man { folder } => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(Cli::command(), folder)?;
            print::status_line(&format!("manual pages are in {}", folder.display()));
            Ok(Exit::Done)
        }
    }
}

/// A command for a run here, or for an operator's.
async fn send_command(cli: &Cli, args: &args::RunRequest, command: &RunCommand) -> Result<Exit, CliError> {
    if args.heard.kube.is_given() {
        return kube::ask(cli, &args.heard, command).await;
    }
    match command {
        RunCommand::Abort | RunCommand::Rollback => control::end_run(cli, args.run.as_ref(), command).await,
        _ => control::ask(cli, args.run.as_ref(), command).await,
    }
}

/// The definitions of the Kubernetes resources, as `kubectl apply -f -` takes them.
fn crds() -> Result<Exit, CliError> {
    for definition in stagger_rook::api::maintenance::definitions() {
        let text = serde_saphyr::to_string(&definition)
            .map_err(|error| CliError::new(Exit::Internal, format!("write a definition: {error}")))?;
        print::data_line(&format!("---\n{}", text.trim_end()));
    }
    Ok(Exit::Done)
}

/// One schema, or the names of all.
fn schema(document: Option<&str>, strict: bool) -> Result<Exit, CliError> {
    let all = documents::schemas(if strict {
        SchemaFields::OfThisRelease
    } else {
        SchemaFields::Any
    });
    let Some(asked) = document else {
        for (name, _) in all {
            print::data_line(name);
        }
        return Ok(Exit::Done);
    };
    match all.iter().find(|(name, _)| *name == asked) {
        Some((_, schema)) => {
            print::json(schema);
            Ok(Exit::Done)
        }
        None => {
            Err(CliError::usage(format!("there is no document {asked:?}"))
                .hint("`stagger schema` lists them"))
        }
    }
}
