//! `run` and `resume`: carry a run out in this process.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_asks::ClaimingBackend;
use stagger_core::model::{ClusterId, Reason, RunId, Topology, UnitId};
use stagger_core::plan::Plan;
use stagger_core::run::{Command, Ending, Entry, Seq};
use stagger_core::view::{self, RunView};
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::Backend;
use stagger_engine::drive::{Signal, Signals, Stopped, drive};
use stagger_engine::driver::{Driver, DriverParts};
use stagger_engine::lease::Lease;
use stagger_engine::supervisor::{self, Identity};
use tokio::signal::unix::{self, SignalKind};

use super::guards::GuardWatcher;
use super::{artifacts, run_or_newest, state_folder, store, store_location, user};
use crate::args::{Cli, GoalArgs, RunArgs};
use crate::clusters::{self, RunInput};
use crate::config;
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::final_findings;
use crate::forecasts::{self, Outlook};
use crate::notify::{self, Notifier};
use crate::plan_diff::differences;
use crate::plan_file::SavedPlan;
use crate::planning::{make_plan, refusal};
use crate::print;
use crate::show;
use crate::show::live::Progress;
use crate::show::plan::{Detail, PlanNotes};
use crate::state::ledger;
use stagger_report::event_text;

/// `run`
pub(crate) async fn run(cli: &Cli, args: &RunArgs) -> Result<Exit, CliError> {
    let args = match (&args.file, &args.goal) {
        (Some(path), None) => {
            let file = SavedPlan::read(path)?;
            Request {
                goal: file.goal(path)?,
                agreed: Some(Consent::Plan(Box::new(file.plan))),
                asked_by: args.asked_by.clone(),
            }
        }
        (None, Some(goal)) => Request {
            goal: goal.goal(),
            agreed: match &goal.with().plan {
                Some(id) => Some(Consent::Id(id.clone())),
                None => args.yes.then_some(Consent::Any),
            },
            asked_by: None,
        },
        (Some(_), Some(_)) | (None, None) => {
            return Err(CliError::usage("a run takes either a plan or a goal")
                .hint("`stagger run plan.json`, or `stagger run upgrade --to RELEASE`"));
        }
    };
    begin(cli, &args).await
}

/// What is to be done.
struct Request {
    goal: GoalArgs,
    /// To which plans was agreed before they were made; `None`: somebody is asked.
    agreed: Option<Consent>,
    /// In whose name, if not in that of whoever started this process.
    asked_by: Option<String>,
}

/// Plans that may be begun without asking.
enum Consent {
    /// That one, as it was shown.
    Plan(Box<Plan>),
    /// The one of that id.
    Id(String),
    /// Any.
    Any,
}

async fn begin(cli: &Cli, args: &Request) -> Result<Exit, CliError> {
    if args.agreed.is_none() && !print::can_ask() {
        return Err(
            CliError::usage("without a terminal a run must be confirmed beforehand")
                .hint("--yes, or a file of `stagger plan --out FILE`: `stagger run FILE`"),
        );
    }
    let cluster = clusters::of_config(cli)?;
    let RunInput {
        planning,
        baseline,
        backend,
    } = cluster.run_input(&args.goal).await?;
    let mut planning = planning.selected(&args.goal.select)?;
    let plan = make_plan(&args.goal.policy, &mut planning)?;
    if let Some(moved) = plan_differs(args.agreed.as_ref(), &plan) {
        return Err(moved);
    }
    if plan.is_empty() && plan.left_alone.is_empty() {
        if cli.json {
            print::json(&documents::PLAN.of(&plan));
        } else {
            let which = planning.target.only.as_ref().map_or("", |_| "selected ");
            print::data_line(&format!("Nothing to do: every {which}unit serves on the target."));
        }
        return Ok(Exit::Done);
    }
    if let Some(refusal) = refusal(&planning, &plan) {
        return Err(refusal);
    }
    let missing = cluster.missing_commands(&plan);
    if !missing.is_empty() {
        let mut error = CliError::refused("the run", &missing);
        error.hints.insert(
            0,
            "docs/guides/ceph.md shows commands; `stagger config check` looks for more".to_owned(),
        );
        return Err(error);
    }
    let run = supervisor::new_run_id(Timestamp::now());
    let next = format!("this run, {run}; Ctrl-C stops after the wave, `stagger resume {run}` continues");
    print::status_line(&show::plan::plan(
        &plan,
        &planning.snapshot,
        &PlanNotes {
            risks: &planning.risks,
            learned: forecasts::of_plan(cli, &planning, &plan).await,
        },
        Detail {
            moves: args.goal.print_moves(),
            ..Detail::default()
        },
        print::width(),
        &next,
    ));
    if args.agreed.is_none() && !print::ask("Start?") {
        return Err(CliError::new(Exit::No, "not started: nothing was changed"));
    }
    let backend = claiming(cli, backend, &run, None).await?;
    let outlook = if print::live() {
        let store = store(cli).await?;
        Outlook::new(forecasts::earlier(&*store, planning.snapshot.cluster(), None, None).await)
    } else {
        Outlook::default()
    };
    let (mut driver, lease) = supervisor::start(
        parts(cli, Arc::clone(&backend), &[], outlook).await?,
        &Identity::current_process(),
        run,
        planning.target,
        planning.policy,
        baseline,
        Topology::of(&planning.snapshot),
    )
    .await?;
    if let Some(by) = &args.asked_by
        && let Err(error) = driver.ask(Command::Resume, by).await
    {
        lease.leave().await;
        return Err(error.into());
    }
    Box::pin(carry_out(cli, &backend, driver, lease)).await
}

/// Why what is planned now is not what was shown.
fn plan_differs(agreed: Option<&Consent>, now: &Plan) -> Option<CliError> {
    const WORD: &str = "snapshot-has-moved";
    let reasons: Vec<Reason> = match agreed {
        Some(Consent::Plan(shown)) => {
            let found = differences(shown, now).into_iter();
            found.map(|what| Reason::of_backend(WORD, what)).collect()
        }
        Some(Consent::Id(wanted)) if *wanted != now.id => {
            vec![Reason::of_backend(
                WORD,
                format!("planning now gives {}, not {wanted}", now.id),
            )]
        }
        Some(Consent::Id(_) | Consent::Any) | None => Vec::new(),
    };
    (!reasons.is_empty()).then(|| {
        let mut error = CliError::refused("the run", &reasons);
        error.hints.insert(0, "look at `stagger plan` again".to_owned());
        error
    })
}

/// `resume`
pub(crate) async fn resume(cli: &Cli, run: Option<&RunId>) -> Result<Exit, CliError> {
    let mut journal = store(cli).await?;
    let run = run_or_newest(&*journal, run).await?;
    let replayed = supervisor::replay(&*journal, &run).await?;
    if let Some(ending) = replayed.ended() {
        // Before anything is asked of the cluster.
        return Err(CliError::new(
            Exit::No,
            format!(
                "run {run} is over: {}",
                event_text::ending(ending, replayed.start().target.only.is_some())
            ),
        ));
    }
    let is_to_pause = journal
        .pending_commands(&run)
        .await?
        .iter()
        .any(|(_, command, _)| *command == Command::Pause);
    if replayed.held().is_some() || is_to_pause {
        // Whoever resumes has looked: what is held for a person is tried again, and a pause that nobody has seen yet is over.
        supervisor::ask(&mut *journal, &run, Timestamp::now(), &Command::Resume, &user()).await?;
    }
    drop(journal);
    continue_run(cli, &run).await
}

/// Carries a run on as it stands, with what was asked of it.
pub(crate) async fn continue_run(cli: &Cli, run: &RunId) -> Result<Exit, CliError> {
    let journal = store(cli).await?;
    let past = journal.journal(run).await?;
    let replayed = supervisor::replay(&*journal, run).await?;
    let outlook = Outlook::of_run(&*journal, &replayed).await;
    drop(journal);
    let start = replayed.start();
    let (baseline, identity) = (&start.baseline, start.identity.as_ref());
    let backend = clusters::of_config(cli)?.backend_of_run(baseline, identity)?;
    let backend = claiming(cli, backend, run, identity).await?;
    let (driver, lease) = supervisor::resume(
        parts(cli, Arc::clone(&backend), &past, outlook).await?,
        &Identity::current_process(),
        run,
    )
    .await?;
    Box::pin(carry_out(cli, &backend, driver, lease)).await
}

/// A backend that claims what the run takes down, beside all who ask, where the configuration has a gate for them.
async fn claiming(
    cli: &Cli,
    backend: Arc<dyn Backend>,
    run: &RunId,
    identity: Option<&ClusterId>,
) -> Result<Arc<dyn Backend>, CliError> {
    let Some(policy) = config::read(cli)?.gate_policy() else {
        return Ok(backend);
    };
    let identity = match identity {
        Some(identity) => identity.clone(),
        None => backend.identity().await?,
    };
    let ledger = ledger(cli).await?;
    ledger.register(&identity, backend.cluster()).await?;
    Ok(Arc::new(ClaimingBackend::new(
        backend,
        ledger,
        identity,
        run.clone(),
        policy.patience,
        Arc::new(SystemClock),
    )))
}

/// `past`: the journal so far, of a run that is carried on.
async fn parts(
    cli: &Cli,
    backend: Arc<dyn Backend>,
    past: &[Entry],
    outlook: Outlook,
) -> Result<DriverParts, CliError> {
    // Before anything is locked.
    notify::verify(&config::receivers(cli)?)?;
    Ok(DriverParts {
        backend,
        store: store(cli).await?,
        clock: Arc::new(SystemClock),
        artifacts: artifacts(cli)?,
        listener: Box::new(Progress::new(past, outlook)),
    })
}

/// What the run has come to, as `status --json` tells it.
fn document(cli: &Cli, run: &stagger_core::run::Run) {
    if cli.json {
        print::json(&view::run(run, None));
    }
}

/// What an error leaves: the run, what is being done to which unit, and how it goes on.
fn open_run_hint(run: &RunId, seen: &RunView) -> String {
    let at_work: Vec<String> = seen
        .current
        .iter()
        .flat_map(|current| &current.units)
        .map(|(what, units)| {
            let units: Vec<&str> = units.iter().map(UnitId::as_str).collect();
            format!("{what}: {}", units.join(", "))
        })
        .collect();
    let still = if at_work.is_empty() {
        String::new()
    } else {
        format!("; still out of service: {}", at_work.join("; "))
    };
    format!("run {run} is open{still}; next: `stagger resume {run}` or `stagger abort {run}`")
}

/// Steps until the run is over or held, the lock is lost, or the user has enough.
async fn carry_out(
    cli: &Cli,
    backend: &Arc<dyn Backend>,
    mut driver: Driver,
    lease: Lease,
) -> Result<Exit, CliError> {
    let run = driver.run().start().run.clone();
    let _watcher = match GuardWatcher::start(cli) {
        Ok(watcher) => watcher,
        Err(error) => {
            lease.leave().await;
            return Err(error);
        }
    };
    let notifier = match notifier(cli, &run).await {
        Ok(notifier) => notifier,
        Err(error) => {
            lease.leave().await;
            return Err(error);
        }
    };
    let driven = match Interrupts::listen() {
        Ok(mut interrupts) => drive(&mut driver, &mut interrupts)
            .await
            .map_err(|error| CliError::from(error).hint(open_run_hint(&run, &view::run(driver.run(), None)))),
        Err(error) => Err(error),
    };
    let end = match driven {
        Ok(Stopped::AtOnce) => {
            print::status_line(&format!("interrupted; next: `stagger resume {run}`"));
            disable_auto_resume(cli, &run).await;
            print_held_guards(cli, &run, Stays::Open).await;
            document(cli, driver.run());
            lease.leave().await;
            return Ok(Exit::Interrupted);
        }
        Ok(end) => end,
        // What was sent may still be under way, so the lock is not given back; but nobody is at work.
        Err(error) => {
            print_held_guards(cli, &run, Stays::Open).await;
            lease.leave().await;
            return Err(error);
        }
    };
    document(cli, driver.run());
    let next = view::mixed(driver.run());
    let selected = driver.run().start().target.only.is_some();
    let baseline = driver.run().start().baseline.clone();
    let last = view::run(driver.run(), None).seq;
    drop(driver);
    // What it came to is told before anybody is told here that it is over.
    tokio::task::spawn_blocking(move || drop(notifier)).await.ok();
    if let Err(error) = lease.release(backend).await {
        print::status_line(&format!(
            "{error}; it expires in {} s",
            backend.lock_expires().as_secs()
        ));
    }
    let journal = store_location(cli)?;
    let exit = match end {
        Stopped::BetweenWaves | Stopped::AtOnce => {
            print::status_line(&format!(
                "stopped between two waves; next: `stagger resume {run}`"
            ));
            Exit::Interrupted
        }
        Stopped::Held(reason) => {
            print::status_line(&format!(
                "NEEDS YOU  {reason}\nonce settled: `stagger resume {run}`"
            ));
            print_held_guards(cli, &run, Stays::Held).await;
            Exit::NeedsYou
        }
        Stopped::Over(ending) => {
            print::status_line(&format!("run {run} is {}", event_text::ending(&ending, selected)));
            if let Some(next) = next {
                print::status_line(&next);
            }
            report_final_findings(cli, &run, last, &baseline).await;
            match ending {
                Ending::Done => Exit::Done,
                Ending::Incomplete { .. } | Ending::RolledBack { .. } | Ending::Aborted => Exit::No,
            }
        }
    };
    print::status_line(&format!("journal: {journal} (stagger history {run})"));
    Ok(exit)
}

/// How a run stays behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// Held: a person looks at it, and wants to know how to get past it.
    Held,
    /// In its midst.
    Open,
}

/// Where a unit carries runs on by itself, it must not undo what a person has just done: that looks like the death of a process.
async fn disable_auto_resume(cli: &Cli, run: &RunId) {
    let goes_on = clusters::of_config(cli).is_ok_and(|cluster| cluster.resumes_automatically());
    if !goes_on {
        return;
    }
    let pause = async || -> Result<(), CliError> {
        let mut store = store(cli).await?;
        Ok(supervisor::ask(&mut *store, run, Timestamp::now(), &Command::Pause, &user()).await?)
    };
    if let Err(error) = pause().await {
        print::status_line(&format!(
            "the unit on the master may continue run {run}, since its pause could not be recorded: {}",
            error.message
        ));
    }
}

/// Says what a run that stops in its midst still holds, and how that is cleared: others may wait for it.
async fn print_held_guards(cli: &Cli, run: &RunId, stays: Stays) {
    let Ok(Some(holder)) = clusters::of_config(cli).and_then(|cluster| cluster.guards()) else {
        return;
    };
    let Ok(held) = holder.held().await else {
        print::status_line(&format!(
            "cannot read the guards that the run still holds: `stagger {} guards`",
            holder.command()
        ));
        return;
    };
    for guard in held.iter().filter(|guard| guard.run == run.as_str()) {
        print::status_line(&format!("the guard {} stays until {}", guard.guard, guard.until));
    }
    if let (Some(word), true) = (holder.passes(), !held.is_empty() || stays == Stays::Held) {
        print::status_line(&format!(
            "jobs with --reason={word} run all the same; `stagger {} guards --drop` lets all of them run",
            holder.command()
        ));
    }
}

/// Says what a run that is over has left, and where guests are by now: nobody should have to look for that. The report has it
/// too. `last`: the run's last event.
async fn report_final_findings(cli: &Cli, run: &RunId, last: Seq, baseline: &serde_json::Value) {
    let lines = match clusters::of_config(cli) {
        Ok(cluster) => cluster.final_findings(run, baseline).await,
        Err(error) => Err(error),
    };
    match lines {
        Ok(lines) => {
            for line in &lines {
                print::status_line(line);
            }
            if lines.is_empty() {
                return;
            }
            let kept =
                artifacts(cli).and_then(|artifacts| final_findings::save(&artifacts, run, last, &lines));
            if let Err(error) = kept {
                print::status_line(&format!("the report will not have this: {}", error.message));
            }
        }
        Err(error) => print::status_line(&format!(
            "cannot read what the run still holds: {}",
            error.message
        )),
    }
}

/// Tells whoever the configuration names.
async fn notifier(cli: &Cli, run: &RunId) -> Result<Notifier, CliError> {
    let receivers = config::receivers(cli)?;
    Notifier::begin(&receivers, run, async || store(cli).await, &state_folder(cli)?).await
}

/// Ctrl-C and SIGTERM.
struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Interrupts {
    fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            unix::signal(kind)
                .map_err(|error| CliError::new(Exit::Internal, format!("listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }
}

#[async_trait]
impl Signals for Interrupts {
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        Signal::Stop
    }

    fn stopping(&mut self) {
        print::status_line("stopping after this wave; press Ctrl-C again to stop now");
    }
}
